//! The sync waited for a block throttle (io.max, blkio.throttle).
//!
//! Required: its request was held until a throttle's dispatcher submitted it. Excluded otherwise: a request that waits
//! for tags or for writeback throttling is submitted by the waiter itself.

use super::case::{Case, ms};
use super::cause::{Confidence, Culprit, Finding};
use crate::event::Source;

pub fn consider(case: &Case) -> Option<Finding> {
    let dispatched =
        |wait: &&crate::event::Wait| wait.request.as_ref().is_some_and(|request| request.submitter == Source::Throttle);
    let held: u64 = case
        .waits()
        .filter(dispatched)
        .filter_map(|wait| Some(wait.request.as_ref()?.allocated_ns.min(wait.end_ns).saturating_sub(wait.start_ns)))
        .sum();
    let explained_ns = held.min(case.ns(&["before_submit", "journal_before_submit"]));
    if explained_ns == 0 {
        return None;
    }
    Some(Finding {
        explained_ns,
        confidence: Confidence::Certain,
        culprit: Some(Culprit::new(
            "throttle",
            format!("a block throttle (io.max or blkio.throttle) on {}", case.sync.disk.name),
        )),
        evidence: vec![format!("its request was held for {} until the throttle's dispatcher submitted it", ms(held))],
        row: case.largest(&["before_submit", "journal_before_submit"]),
    })
}
