//! What a cause may ask of a sync.

use std::collections::BTreeMap;

use super::breakdown::Breakdown;
use super::cause::{Confidence, Culprit};
use super::intervals::{common, length, merged};
use crate::event::{Delay, Wait};
use crate::timeline::{Sync, Timeline};

/// Rows in which the thread itself, and a helper, were ready to run and did not run.
pub const OWN_CPU: [&str; 2] = ["run_queue", "preempted"];
pub const HELPER_CPU: [&str; 4] =
    ["journal_run_queue", "journal_preempted", "worker_run_queue", "journal_worker_run_queue"];
/// Rows in which a request was with a device: the sync's own disk, or one below it, in its line or inside.
pub const INSIDE: [&str; 10] = [
    "device",
    "flush_device",
    "lower_queue",
    "lower_device",
    "lower_flush",
    "journal_device",
    "journal_flush_device",
    "journal_lower_queue",
    "journal_lower_device",
    "journal_lower_flush",
];

/// A sync under examination.
pub struct Case<'a> {
    pub sync: &'a Sync,
    pub breakdown: &'a Breakdown,
    pub names: &'a Timeline,
}

impl Case<'_> {
    /// Time of some rows together.
    pub fn ns(&self, rows: &[&str]) -> u64 {
        rows.iter().map(|row| self.breakdown.ns(row)).sum()
    }

    /// The larger of some rows, by name: where a culprit stands.
    pub fn largest(&self, rows: &[&'static str]) -> Option<&'static str> {
        rows.iter().copied().max_by_key(|row| self.breakdown.ns(row))
    }

    /// Long waits of the thread and of its journal thread that lie in the sync.
    pub fn waits(&self) -> impl Iterator<Item = &Wait> {
        self.sync.waits.iter().chain(&self.sync.journal_waits)
    }

    /// Time in some windows in which the thread, its journal thread or a kernel worker was seen to be ready and not
    /// running.
    pub fn delayed_ns(&self, windows: Vec<(u64, u64)>) -> u64 {
        let Sync { delays, journal_delays, worker_delays, .. } = self.sync;
        let all = delays.iter().chain(journal_delays).chain(worker_delays);
        let all = merged(all.map(|delay| (delay.start_ns, delay.end_ns)).collect());
        length(&common(&all, &merged(windows)))
    }

    /// Who ran on the CPU that some delayed tasks waited for, and whether that accounts for most of the rows that the
    /// delays stand in: short delays are not told. Tasks that waited for one CPU at the same time waited once.
    pub fn occupant<'b>(&self, rows: &[&str], delays: impl Iterator<Item = &'b Delay>) -> Option<Occupant> {
        let mut by_task: BTreeMap<(String, u32), u64> = BTreeMap::new();
        let mut counted_until: BTreeMap<u32, u64> = BTreeMap::new();
        let mut delayed_ns = 0;
        let (start, end) = (self.sync.event.start_ns, self.sync.event.end_ns);
        let mut delays: Vec<&Delay> = delays.collect();
        delays.sort_by_key(|delay| (delay.start_ns, std::cmp::Reverse(delay.end_ns)));
        for delay in delays {
            let counted = counted_until.entry(delay.cpu).or_insert(start);
            let inside = delay.end_ns.min(end).saturating_sub(delay.start_ns.max(*counted));
            *counted = delay.end_ns.min(end).max(*counted);
            delayed_ns += inside;
            // Of a thread that was moved it is not known which CPU it waited for.
            for ran in delay.ran.iter().filter(|ran| ran.tid != 0 && !delay.moved) {
                *by_task.entry((ran.process.clone(), ran.pid)).or_default() += ran.ns.min(inside);
            }
        }
        let ((name, pid), ran_ns) = by_task.into_iter().max_by_key(|(_, ns)| *ns)?;
        if ran_ns == 0 {
            return None;
        }
        Some(Occupant { name, pid, ran_ns, delayed_ns: delayed_ns.max(self.ns(rows)) })
    }
}

/// The task that held a CPU.
pub struct Occupant {
    pub name: String,
    pub pid: u32,
    /// For how long it surely ran during the delays.
    pub ran_ns: u64,
    /// How long they were delayed, told or not.
    pub delayed_ns: u64,
}

impl Occupant {
    /// Named only if it surely ran for half of the delay: on a crowded CPU the last one is not the one.
    pub fn culprit(&self) -> Option<Culprit> {
        let text = format!("{} (pid {}) held the CPU for {}", self.name, self.pid, ms(self.ran_ns));
        (self.ran_ns.saturating_mul(2) >= self.delayed_ns).then(|| Culprit::new(&self.name, text))
    }

    /// Certain if it alone ran for four fifths of the delay.
    pub fn confidence(&self) -> Confidence {
        if self.ran_ns.saturating_mul(5) >= self.delayed_ns.saturating_mul(4) {
            Confidence::Certain
        } else {
            Confidence::Likely
        }
    }

    /// What is known of it where it is not named.
    pub fn evidence(&self) -> Option<String> {
        let known = format!(
            "several tasks shared the CPU; {} (pid {}) ran the longest, for {}",
            self.name,
            self.pid,
            ms(self.ran_ns)
        );
        self.culprit().is_none().then_some(known)
    }
}

/// A time for a sentence.
pub fn ms(ns: u64) -> String {
    format!("{:.2} ms", ns as f64 / 1e6)
}
