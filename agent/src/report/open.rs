//! A sync that still runs: how long, and what it waits for now.

use fsyncscope_ebpf::part::BLOCKED;

use crate::attribution::{Breakdown, stack_meaning};
use crate::event::{EndSeen, Open, Sync as Ended};
use crate::timeline::{Sync, Timeline};

/// An open sync with what is known of it so far.
#[derive(Clone, Debug)]
pub struct OpenSync {
    pub sync: Sync,
    pub breakdown: Breakdown,
    pub evidence: Vec<String>,
}

impl OpenSync {
    pub(super) fn of(open: &Open, timeline: &Timeline) -> Self {
        let mut hands = open.hands;
        let pending = open.now_ns.saturating_sub(open.since_ns);
        if let Some(hand) = hands.get_mut(open.class as usize) {
            *hand = hand.saturating_add(pending);
        }
        let sync = timeline.named(timeline.number_of(open.tid, open.start_ns), ended(open, hands));
        let breakdown = Breakdown::of(&sync);
        Self { breakdown, evidence: evidence(open, pending, &sync.disk.name), sync }
    }

    /// What it waits for, as the end of a sentence.
    pub fn waits_for(&self) -> &str {
        self.evidence.first().map_or("something that is not known", String::as_str)
    }
}

/// The open sync as if it ended now.
fn ended(open: &Open, hands: fsyncscope_ebpf::part::Hands) -> Ended {
    Ended {
        start_ns: open.start_ns,
        end_ns: open.now_ns,
        return_ns: 0,
        tid: open.tid,
        pid: open.pid,
        thread: open.thread.clone(),
        dev: open.dev,
        inode: open.inode,
        datasync: open.datasync,
        syscall: open.syscall,
        result: 0,
        end: EndSeen::Unseen,
        hands,
        journal_hands: [0; fsyncscope_ebpf::part::Part::COUNT],
        after: [0; 4],
        directory: open.directory,
        result_known: false,
        asked: open.asked.clone(),
    }
}

fn evidence(open: &Open, pending: u64, disk: &str) -> Vec<String> {
    let seconds = pending as f64 / 1e9;
    if open.class != BLOCKED {
        return vec![format!("for {seconds:.1} s it is not blocked, but runs or waits for a CPU")];
    }
    let mut evidence = vec![format!("for {seconds:.1} s it waits for {}", wait_of(&open.stack))];
    if !open.journal_stack.is_empty() {
        evidence.push(format!("its journal thread waits for {}", wait_of(&open.journal_stack)));
    }
    // A device that hangs has requests, a filesystem that is frozen has none.
    match open.in_flight {
        Some(0) => evidence.push(format!("no request is in flight on {disk}")),
        Some(1) => evidence.push(format!("1 request is in flight on {disk}")),
        Some(count) => evidence.push(format!("{count} requests are in flight on {disk}")),
        None => {}
    }
    if !open.stack.is_empty() {
        evidence.push(format!("stack: {}", open.stack.join(" < ")));
    }
    if !open.journal_stack.is_empty() {
        evidence.push(format!("journal thread's stack: {}", open.journal_stack.join(" < ")));
    }
    evidence
}

fn wait_of(stack: &[String]) -> &'static str {
    stack_meaning(stack.iter().map(String::as_str)).unwrap_or("something that its stack does not name")
}
