//! From one sync to its breakdown and its verdict.
//!
//! Architecture invariant: the rows of a breakdown sum to the sync's wall time, exactly, in nanoseconds. The largest
//! row is no cause: a cause is named only by its own evidence, each in a file of its own. Pure; it never fails.

use fsyncscope_ebpf::part::Part;

use crate::event::{Commit, Wait};
use crate::timeline::{Sync, Timeline};

mod breakdown;
mod case;
mod cause;
mod device_slow;
mod flusher_writeback;
mod helper_not_scheduled;
mod intervals;
mod journal_commit;
mod neighbours;
mod queue_behind;
mod shared_lower_device;
mod stack;
mod stacked;
mod thread_not_scheduled;
mod throttled;

pub use breakdown::{Breakdown, Row, names as part_names};
pub use cause::{Cause, Confidence, Culprit, Verdict};
pub use flusher_writeback::reason as writeback_reason;
pub use neighbours::writer_class;
pub use stack::meaning as stack_meaning;

use case::{Case, ms};
use cause::Finding;

/// A sync explained.
#[derive(Clone, Debug)]
pub struct Explanation {
    pub sync: Sync,
    pub breakdown: Breakdown,
    pub verdict: Verdict,
}

/// One way to explain a sync, and its word.
type Consider = fn(&Case) -> Option<Finding>;

/// All causes, the more specific ones first: the first that explains half of a sync is named.
const CAUSES: [(Cause, Consider); 8] = [
    (Cause::Throttled, throttled::consider),
    (Cause::ThreadNotScheduled, thread_not_scheduled::consider),
    (Cause::HelperNotScheduled, helper_not_scheduled::consider),
    (Cause::FlusherWriteback, flusher_writeback::consider),
    (Cause::JournalCommit, journal_commit::consider),
    (Cause::QueueBehind, queue_behind::consider),
    (Cause::SharedLowerDevice, shared_lower_device::consider),
    (Cause::DeviceSlow, device_slow::consider),
];

/// Explains a sync with what the timeline knows of names.
pub fn explain(sync: Sync, names: &Timeline) -> Explanation {
    let mut breakdown = Breakdown::of(&sync);
    breakdown.note("writeback", flusher_writeback::note(&sync.waits));
    breakdown.note("journal_writeback", flusher_writeback::note(&sync.journal_waits));
    let held = |part: Part| move |wait: &&Wait| wait.part == part as u32;
    let by_waker = sync.waits.iter().chain(&sync.journal_waits);
    let unexplained = by_waker.filter(|wait| held(Part::Task)(wait) || held(Part::Unlinked)(wait));
    breakdown.note("remainder", stack::note(unexplained, names));
    breakdown.note("before_submit", stack::note(sync.waits.iter().filter(late_request), names));
    breakdown.note("journal_before_submit", stack::note(sync.journal_waits.iter().filter(late_request), names));
    breakdown.note("worker", worked(&sync.waits, names));
    breakdown.note("journal_worker", worked(&sync.journal_waits, names));
    let mut verdict = judge(&Case { sync: &sync, breakdown: &breakdown, names });
    verdict.evidence.extend(sync.commits.iter().filter_map(|commit| phases(&sync, commit)));
    let mut explanation = Explanation { sync, breakdown, verdict };
    explanation.attach_culprit();
    explanation
}

/// Whether a wait's request was submitted only after half of the wait: it is the submission that was waited for.
fn late_request(wait: &&Wait) -> bool {
    let middle = wait.start_ns.midpoint(wait.end_ns);
    wait.request.as_ref().is_some_and(|request| request.allocated_ns > middle)
}

/// The function that the worker of the longest wait ran.
fn worked(waits: &[Wait], names: &Timeline) -> Option<String> {
    let longest =
        waits.iter().filter(|wait| wait.function != 0).max_by_key(|wait| wait.end_ns.saturating_sub(wait.start_ns))?;
    Some(format!("{} in {}", longest.waker, names.symbol(longest.function)?))
}

/// The phases of a commit that took a tenth of the sync or more.
fn phases(sync: &Sync, commit: &Commit) -> Option<String> {
    let Commit { transaction, start_ns, locking_ns, flushing_ns, logging_ns, end_ns, .. } = commit;
    let inside = (*end_ns).min(sync.event.end_ns).saturating_sub((*start_ns).max(sync.event.start_ns));
    if inside.saturating_mul(10) < sync.duration_ns() || *locking_ns == 0 {
        return None;
    }
    let [locked, flushed, logged] = [(locking_ns, flushing_ns), (flushing_ns, logging_ns), (logging_ns, end_ns)]
        .map(|(from, until)| ms(until.saturating_sub(*from)));
    Some(format!(
        "commit {transaction} took {}: {locked} for running operations to end, {flushed} for data of files, {logged} for the log",
        ms(end_ns.saturating_sub(*start_ns))
    ))
}

/// The first cause of the table that explains at least half of the sync: the more specific ones stand first.
fn judge(case: &Case) -> Verdict {
    let whole = case.sync.duration_ns();
    let found = CAUSES.into_iter().find_map(|(cause, consider)| {
        let finding = consider(case)?;
        (finding.explained_ns.saturating_mul(2) >= whole).then_some((cause, finding))
    });
    let Some((cause, finding)) = found else { return Verdict::unknown(case) };
    let Finding { explained_ns, mut confidence, culprit, mut evidence, row } = finding;
    if case.sync.lost_events != 0 && confidence == Confidence::Certain {
        confidence = Confidence::Likely;
        evidence.push(format!("{} events were lost meanwhile, so this is not certain", case.sync.lost_events));
    }
    Verdict { cause, confidence, culprit, evidence, explained_ns, row }
}

impl Explanation {
    /// Puts the culprit under the row that it explains.
    fn attach_culprit(&mut self) {
        let Verdict { row, culprit, .. } = &self.verdict;
        if let (Some(name), Some(culprit)) = (row, culprit)
            && let Some(row) = self.breakdown.rows.iter_mut().find(|row| row.name == *name)
        {
            row.culprit = Some(culprit.text.clone());
        }
    }
}
