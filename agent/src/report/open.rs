//! A sync that still runs: how long, and what it waits for now.

use fsyncscope_ebpf::part::BLOCKED;

use crate::attribution::Breakdown;
use crate::event::{EndSeen, Open, Sync as Ended};
use crate::timeline::{File, Operation, Sync, Timeline};

/// An open sync with what is known of it so far.
#[derive(Clone, Debug)]
pub struct OpenSync {
    pub sync: Sync,
    pub breakdown: Breakdown,
    pub evidence: Vec<String>,
}

/// What a function on the stack of a blocked thread says, the innermost first.
const WAITS: [(&str, &str); 16] = [
    ("jbd2_log_wait_commit", "its journal's commit"),
    ("jbd2_journal_wait_updates", "operations that still hold the transaction"),
    ("wait_transaction_locked", "a journal transaction to open"),
    ("start_this_handle", "a journal transaction to open"),
    ("add_transaction_credits", "space in the journal"),
    ("rq_qos_wait", "writeback throttling of the disk"),
    ("wbt_wait", "writeback throttling of the disk"),
    ("blk_mq_get_tag", "a free request of the disk"),
    ("blkdev_issue_flush", "a cache flush of the disk"),
    ("submit_bio_wait", "a request of the disk"),
    ("folio_wait_writeback", "its pages to be written"),
    ("wait_on_page_writeback", "its pages to be written"),
    ("wait_on_buffer", "a block of the filesystem to be written"),
    ("sb_start_write", "a frozen filesystem to thaw"),
    ("percpu_rwsem_wait", "a frozen filesystem to thaw"),
    ("rwsem_down", "a lock of the file"),
];

impl OpenSync {
    pub(super) fn of(open: &Open, timeline: &Timeline, operation: Operation) -> Self {
        let mut hands = open.hands;
        let pending = open.now_ns.saturating_sub(open.since_ns);
        if let Some(hand) = hands.get_mut(open.class as usize) {
            *hand = hand.saturating_add(pending);
        }
        let disk = timeline.disk_of(open.dev);
        let thread = timeline.thread(open.tid);
        let sync = Sync {
            id: timeline.number_of(open.tid, open.start_ns),
            operation,
            process: thread.map_or_else(|| open.thread.clone(), |thread| thread.process.clone()),
            file: File { inode: open.inode, path: timeline.file(open.dev, open.inode).map(|known| known.path.clone()) },
            lower: disk.lower.iter().map(|dev| timeline.disk(*dev)).collect(),
            disk,
            waits: Vec::new(),
            journal_waits: Vec::new(),
            delays: Vec::new(),
            journal_delays: Vec::new(),
            worker_delays: Vec::new(),
            commits: Vec::new(),
            queues: Vec::new(),
            lost_events: 0,
            baselines: Vec::new(),
            servants: Vec::new(),
            event: ended(open, hands),
        };
        let breakdown = Breakdown::of(&sync);
        Self { breakdown, evidence: evidence(open, pending), sync }
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
    }
}

fn evidence(open: &Open, pending: u64) -> Vec<String> {
    let seconds = pending as f64 / 1e9;
    if open.class != BLOCKED {
        return vec![format!("for {seconds:.1} s it is not blocked, but runs or waits for a CPU")];
    }
    let mut evidence = vec![format!("for {seconds:.1} s it waits for {}", wait_of(&open.stack))];
    if !open.journal_stack.is_empty() {
        evidence.push(format!("its journal thread waits for {}", wait_of(&open.journal_stack)));
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
    if stack.is_empty() {
        return "something unknown: its kernel stack cannot be read, which takes SYS_PTRACE and SYS_ADMIN";
    }
    let word = |function: &String| WAITS.iter().find(|(name, _)| function.contains(name)).map(|(_, word)| *word);
    stack.iter().find_map(word).unwrap_or("something that its stack does not name")
}
