//! The syncing thread was runnable, but did not run.
//!
//! Required: its own run-queue time. The culprit is the task that ran on that CPU just before it.

use super::case::{Case, ms};
use super::cause::{Confidence, Finding};

pub fn consider(case: &Case) -> Option<Finding> {
    let rows = ["run_queue", "preempted"];
    let explained_ns = case.ns(&rows);
    if explained_ns == 0 {
        return None;
    }
    let occupant = case.occupant(case.sync.delays.iter());
    let confidence = occupant.as_ref().map_or(Confidence::Likely, |occupant| occupant.confidence());
    let mut evidence = vec![format!("the thread was ready to run for {} and did not get a CPU", ms(explained_ns))];
    evidence.extend(occupant.as_ref().and_then(|occupant| occupant.evidence()));
    Some(Finding {
        explained_ns,
        confidence,
        evidence,
        culprit: occupant.and_then(|occupant| occupant.culprit()),
        row: case.largest(&rows),
    })
}
