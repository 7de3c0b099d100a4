//! The rows of a sync: what its thread's clock gained, the wait for the journal opened into the journal thread's own
//! clock, and a stacked device's time opened into its worker's run queue.

use fsyncscope_ebpf::part::{Hands, Part};

use super::case::ms;
use super::intervals::{common, length, merged};
use crate::event::{Request, Source, Wait};
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
const REMAINDER: (&str, &str) = ("remainder", "unexplained");

/// Words of all rows, for metrics and documents.
pub fn names() -> impl Iterator<Item = &'static str> {
    let hands = [0, 1].into_iter().flat_map(|side| NAMES.iter().map(move |names| names[side].0));
    let mut seen: Vec<&str> = Vec::new();
    hands.filter(move |name| {
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
        let waited = std::mem::take(&mut own[Part::Journal as usize]).min(whole_ns);
        let unseen = fit(&mut journal, waited);
        let missing = fit(&mut own, whole_ns - waited);
        if sync.disk.is_stacked() {
            open_stacked(&mut own, &sync.waits, sync);
            open_stacked(&mut journal, &sync.journal_waits, sync);
        }
        let mut breakdown = Self { rows: Vec::new(), whole_ns };
        breakdown.add(&own, 0);
        breakdown.add(&journal, 1);
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

    fn add(&mut self, hands: &Hands, side: usize) {
        for (names, ns) in NAMES.iter().zip(hands) {
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

/// Moves device time of a stacked disk to the run queue of the kernel threads that serve it: as far as one of them was
/// delayed within the request, and no disk below had a request of theirs at that time.
fn open_stacked(hands: &mut Hands, waits: &[Wait], sync: &Sync) {
    let delays = sync.worker_delays.iter().filter(|delay| sync.servants.contains(&delay.tid));
    let delayed = merged(delays.map(|delay| (delay.start_ns, delay.end_ns)).collect());
    let busy = below(sync);
    for (service, part) in waits.iter().flat_map(services) {
        let late = common(&delayed, &[service]);
        let moved = (length(&late) - length(&common(&late, &busy))).min(hands[part as usize]);
        hands[part as usize] -= moved;
        hands[Part::WorkerRunQueue as usize] += moved;
    }
}

/// Times at which a disk below was with a request of the kernel threads that serve the sync's disk. A bare flush counts
/// from its submission: it is never issued itself.
fn below(sync: &Sync) -> Vec<(u64, u64)> {
    let requests = sync.queues.iter().filter(|queue| queue.disk != sync.disk.dev).flat_map(|queue| &queue.recent);
    let served = requests.filter(|request| sync.servants.contains(&request.tid));
    let began = |request: &Request| if request.issued_ns == 0 { request.allocated_ns } else { request.issued_ns };
    merged(served.map(|request| (began(request), request.done_ns)).collect())
}

/// How much of the device time of a stacked disk was with the disks below it, for its row.
pub(super) fn note_below(sync: &Sync, waits: &[Wait], wanted: Part) -> Option<String> {
    // The flusher's requests stand in a row of their own.
    let flushed = |wait: &&Wait| wait.request.as_ref().is_some_and(|request| request.submitter == Source::Flusher);
    let own = waits.iter().filter(|wait| !flushed(wait));
    let services: Vec<(u64, u64)> =
        own.flat_map(services).filter(|(_, part)| *part == wanted).map(|(service, _)| service).collect();
    let services = merged(services);
    if sync.lower.is_empty() || services.is_empty() {
        return None;
    }
    let with_it = length(&common(&services, &below(sync)));
    let names: Vec<&str> = sync.lower.iter().map(|disk| disk.name.as_str()).collect();
    let (whole, names) = (ms(length(&services)), names.join(", "));
    Some(match with_it {
        0 => format!("of the long waits' {whole} no part was seen on {names} below"),
        _ => format!("of the long waits' {whole} the disk below, {names}, had it for {}", ms(with_it)),
    })
}

/// Times at which a wait's request, and the flushes around it, were with the device.
fn services(wait: &Wait) -> impl Iterator<Item = ((u64, u64), Part)> {
    let request = wait.request.iter().map(|request| ((request.issued_ns, request.done_ns), Part::Device));
    let flushes = wait.flushes.iter().map(|[issued, done]| ((*issued, *done), Part::FlushDevice));
    let inside = |from: u64, until: u64| (from.max(wait.start_ns), until.min(wait.end_ns));
    let times: Vec<_> = request.chain(flushes).filter(|((issued, _), _)| *issued != 0).collect();
    let clipped = times.into_iter().map(move |((from, until), part)| (inside(from, until), part));
    clipped.filter(|((from, until), _)| from < until)
}
