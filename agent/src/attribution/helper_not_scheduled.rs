//! A kernel thread that the sync waited for was runnable, but did not run: the journal thread, or a worker.
//!
//! Required: run-queue time on the helper's own clock, or of a stacked disk's worker inside the request that it served.

use super::case::{Case, ms};
use super::cause::{Confidence, Finding};

pub fn consider(case: &Case) -> Option<Finding> {
    let journal = ["journal_run_queue", "journal_preempted"];
    let worker = ["worker_run_queue", "journal_worker_run_queue"];
    let explained_ns = case.ns(&journal) + case.ns(&worker);
    if explained_ns == 0 {
        return None;
    }
    let occupant = case.occupant(case.sync.journal_delays.iter().chain(&case.sync.worker_delays));
    let confidence = occupant.as_ref().map_or(Confidence::Likely, |occupant| occupant.confidence());
    let mut evidence = Vec::new();
    let matters = |ns: u64| ns.saturating_mul(20) >= explained_ns;
    if matters(case.ns(&journal)) {
        evidence.push(format!("the journal thread was ready to run for {} and did not get a CPU", ms(case.ns(&journal))));
    }
    if matters(case.ns(&worker)) {
        evidence.push(format!("a kernel worker was ready to run for {} and did not get a CPU", ms(case.ns(&worker))));
    }
    evidence.extend(occupant.as_ref().and_then(|occupant| occupant.evidence()));
    Some(Finding {
        explained_ns,
        confidence,
        culprit: occupant.and_then(|occupant| occupant.culprit()),
        evidence,
        row: case.largest(&["journal_run_queue", "journal_preempted", "worker_run_queue", "journal_worker_run_queue"]),
    })
}
