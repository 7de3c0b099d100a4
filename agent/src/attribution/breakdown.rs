//! The rows of a sync: what its thread's clock gained, the wait for the journal opened into the journal thread's own
//! clock, and a stacked disk's time opened into the disk below and its workers' run queue.

use fsyncscope_ebpf::part::{Hands, Part};

use super::stacked::{self, BELOW};
use crate::timeline::Sync;

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Word of the part: the same in JSON and metrics.
    pub name: &'static str,
    /// For a person.
    pub title: &'static str,
    pub ns: u64,
    /// What more is known of it.
    pub note: Option<String>,
    pub culprit: Option<String>,
}

/// A sync's wall time, divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breakdown {
    /// Rows that are not zero, in the order of the table; their sum is `whole_ns`.
    pub rows: Vec<Row>,
    pub whole_ns: u64,
}

/// Word and title of each hand as the thread's own and as its journal thread's.
///
/// Waits that are known by their waker alone, or by nothing, are the remainder.
const NAMES: [[(&str, &str); 2]; Part::COUNT] = [
    [("on_cpu", "on CPU"), ("journal_on_cpu", "journal: on CPU")],
    [("preempted", "preempted"), ("journal_preempted", "journal: preempted")],
    [("run_queue", "woken, not running"), ("journal_run_queue", "journal: woken, not running")],
    [("before_submit", "before submit"), ("journal_before_submit", "journal: before submit")],
    [("queue", "block queue"), ("journal_queue", "journal: block queue")],
    [("device", "device"), ("journal_device", "journal: device")],
    [("flush_queue", "flush queue"), ("journal_flush_queue", "journal: flush queue")],
    [("flush_device", "device flush"), ("journal_flush_device", "journal: device flush")],
    [("completion", "completion"), ("journal_completion", "journal: completion")],
    [("writeback", "under writeback, started by the flusher"), ("journal_writeback", "journal: under writeback")],
    [("worker_wait", "waiting for a worker"), ("journal_worker_wait", "journal: waiting for a worker")],
    [
        ("worker_run_queue", "worker woken, not running"),
        ("journal_worker_run_queue", "journal: worker woken, not running"),
    ],
    [("worker", "worker"), ("journal_worker", "journal: worker")],
    [("journal_unseen", "waiting for the journal"), ("journal_idle", "journal: idle")],
    [REMAINDER, REMAINDER],
    [REMAINDER, REMAINDER],
    [REMAINDER, ("journal_idle", "journal: idle")],
];
/// From the request to a worker until that began.
const HANDED: (&str, &str) = ("asked", "asked for, no worker at it yet");
const REMAINDER: (&str, &str) = ("remainder", "unexplained");

/// Words of all rows, for metrics and documents.
pub fn names() -> impl Iterator<Item = &'static str> {
    let hands = [0, 1].into_iter().flat_map(|side| NAMES.iter().chain(&BELOW).map(move |names| names[side].0));
    let mut seen: Vec<&str> = Vec::new();
    std::iter::once(HANDED.0).chain(hands).filter(move |name| {
        let fresh = *name != "journal_unseen" && !seen.contains(name);
        seen.push(name);
        fresh
    })
}

impl Breakdown {
    /// Divides a sync. What the clocks do not account for, or account for twice, goes to the remainder.
    pub fn of(sync: &Sync) -> Self {
        let whole_ns = sync.duration_ns();
        let mut own = sync.event.hands;
        let mut journal = sync.event.journal_hands;
        // A torn clock may say that the wait for the journal was longer than the sync.
        let handed_ns = sync.event.begun_ns().saturating_sub(sync.event.start_ns).min(whole_ns);
        let done_ns = whole_ns - handed_ns;
        let waited = std::mem::take(&mut own[Part::Journal as usize]).min(done_ns);
        let unseen = fit(&mut journal, waited);
        let missing = fit(&mut own, done_ns - waited);
        let below = stacked::open(&mut own, &sync.waits, sync);
        let journal_below = stacked::open(&mut journal, &sync.journal_waits, sync);
        let mut breakdown = Self { rows: Vec::new(), whole_ns };
        breakdown.put(HANDED, handed_ns);
        breakdown.add(&own, &below, 0);
        breakdown.add(&journal, &journal_below, 1);
        breakdown.put(REMAINDER, unseen + missing);
        let (remainder, known) = breakdown.rows.into_iter().partition(|row| row.name == REMAINDER.0);
        breakdown.rows = known;
        breakdown.rows.extend::<Vec<Row>>(remainder);
        debug_assert_eq!(breakdown.sum_ns(), whole_ns, "the rows of a breakdown sum to its whole");
        breakdown
    }

    pub fn sum_ns(&self) -> u64 {
        self.rows.iter().map(|row| row.ns).sum()
    }

    /// Time of a row by its word; 0 if it has none.
    pub fn ns(&self, name: &str) -> u64 {
        self.rows.iter().find(|row| row.name == name).map_or(0, |row| row.ns)
    }

    /// Says more of a row, if there is one and there is more.
    pub(super) fn note(&mut self, name: &str, note: Option<String>) {
        if let Some(row) = self.rows.iter_mut().find(|row| row.name == name) {
            row.note = note;
        }
    }

    fn add(&mut self, hands: &Hands, below: &[u64; BELOW.len()], side: usize) {
        let rows: Vec<_> = NAMES.iter().zip(hands).collect();
        let (upto_device, rest) = rows.split_at(Part::FlushDevice as usize + 1);
        let below: Vec<_> = BELOW.iter().zip(below).collect();
        for (names, ns) in [upto_device, &below, rest].concat() {
            self.put(names[side], *ns);
        }
    }

    fn put(&mut self, (name, title): (&'static str, &'static str), ns: u64) {
        match self.rows.iter_mut().find(|row| row.name == name) {
            Some(row) => row.ns += ns,
            None if ns > 0 => self.rows.push(Row { name, title, ns, note: None, culprit: None }),
            None => {}
        }
    }
}

/// Makes hands sum to what they divide: gives back what is missing, and takes an excess from the largest hands.
fn fit(hands: &mut Hands, whole: u64) -> u64 {
    // Hands of a torn clock may each be of any size.
    let mut sum: u128 = hands.iter().map(|hand| u128::from(*hand)).sum();
    let whole = u128::from(whole);
    while sum > whole {
        let Some(largest) = hands.iter_mut().max() else { break };
        let off = (sum - whole).min(u128::from(*largest));
        *largest -= off as u64;
        sum -= off;
    }
    (whole - sum) as u64
}
