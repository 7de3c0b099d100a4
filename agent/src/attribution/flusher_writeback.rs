//! The pages that the sync waited for were being written by the flusher, not by the sync itself.
//!
//! Required: the request that ended the wait was submitted by page-cache writeback. Its reason is the kernel's own.
//! Excluded: a request that the sync, its journal thread or anybody else submitted. Only likely where the device held
//! those requests for half of the wait, since a slow device holds pages under writeback as well, and for a writer.

use super::case::{Case, ms};
use super::cause::{Confidence, Culprit, Finding};
use super::neighbours;
use crate::event::{Request, Source, Wait};

pub fn consider(case: &Case) -> Option<Finding> {
    let rows = ["writeback", "journal_writeback"];
    let explained_ns = case.ns(&rows);
    if explained_ns == 0 {
        return None;
    }
    let requests = case.waits().filter_map(|wait| wait.request.as_ref());
    let reason =
        requests.filter(|request| request.submitter == Source::Flusher).map(|request| reason(request.reason)).next();
    let told = reason.unwrap_or("not known");
    let crowd = neighbours::on_disk(case, case.sync.disk.dev);
    let crowded = crowd.crowd();
    let by_writer = crowd.culprit.filter(|culprit| crowded && culprit.class != "none");
    // That the flusher wrote is seen; that this writer made it start is a conclusion.
    let in_device: u64 = case.waits().filter(flushed).filter_map(|wait| wait.request.as_ref()).map(in_device).sum();
    let by_device = in_device.saturating_mul(2) >= explained_ns;
    let sure = reason.is_some() && by_writer.is_none() && !by_device;
    let confidence = if sure { Confidence::Certain } else { Confidence::Likely };
    let culprit = by_writer.unwrap_or_else(|| Culprit::new("flusher", format!("the flusher (reason: {told})")));
    Some(Finding {
        explained_ns,
        confidence,
        culprit: Some(culprit),
        evidence: vec![format!(
            "for {} its pages were under writeback by the flusher, reason {told}",
            ms(explained_ns)
        )],
        row: case.largest(&rows),
    })
}

fn flushed(wait: &&Wait) -> bool {
    wait.request.as_ref().is_some_and(|request| request.submitter == Source::Flusher)
}

/// Time that the device had a request: a slow device holds pages under writeback as well.
fn in_device(request: &Request) -> u64 {
    request.done_ns.saturating_sub(request.issued_ns)
}

/// Why the flusher wrote, for the row.
pub(super) fn note(waits: &[Wait]) -> Option<String> {
    let requests = waits.iter().filter_map(|wait| wait.request.as_ref());
    requests
        .filter(|request| request.submitter == Source::Flusher)
        .map(|request| format!("reason: {}", reason(request.reason)))
        .next()
}

/// The kernel's word for a reason (`enum wb_reason`, the same numbers since 5.10).
pub fn reason(number: u16) -> &'static str {
    const REASONS: [&str; 8] =
        ["background", "vmscan", "sync", "periodic", "laptop_timer", "fs_free_space", "forker_thread", "foreign_flush"];
    REASONS.get(usize::from(number)).copied().unwrap_or("other")
}
