//! The sync waited for a block throttle (io.max, blkio.throttle).
//!
//! Required: its request was held until a throttle's dispatcher submitted it. Excluded otherwise: a request that waits
//! for tags or for writeback throttling is submitted by the waiter itself. Only likely if anybody whom the sync waited for
//! was ready and not running for a fifth of that time: the dispatcher may have been late.

use super::case::{Case, ms};
use super::cause::{Confidence, Culprit, Finding};
use crate::event::Source;

pub fn consider(case: &Case) -> Option<Finding> {
    let dispatched =
        |wait: &&crate::event::Wait| wait.request.as_ref().is_some_and(|request| request.submitter == Source::Throttle);
    let held_in = |wait: &crate::event::Wait| {
        Some((wait.start_ns, wait.request.as_ref()?.allocated_ns.min(wait.end_ns))).filter(|(from, until)| from < until)
    };
    let windows: Vec<(u64, u64)> = case.waits().filter(dispatched).filter_map(held_in).collect();
    let held: u64 = windows.iter().map(|(from, until)| until - from).sum();
    let explained_ns = held.min(case.ns(&["before_submit", "journal_before_submit"]));
    if explained_ns == 0 {
        return None;
    }
    // The dispatcher is a kernel worker: what it waited for a CPU is not the limit's.
    let wanted_cpu = case.delayed_ns(windows).saturating_mul(5) >= held;
    Some(Finding {
        explained_ns,
        confidence: if wanted_cpu { Confidence::Likely } else { Confidence::Certain },
        culprit: Some(Culprit::new(
            "throttle",
            format!("a block throttle (io.max or blkio.throttle) on {}", case.sync.disk.name),
        )),
        evidence: vec![format!("its request was held for {} until the throttle's dispatcher submitted it", ms(held))],
        row: case.largest(&["before_submit", "journal_before_submit"]),
    })
}
