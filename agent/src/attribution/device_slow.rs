//! The device took long for the sync's own requests, much longer than it usually does, and nobody else kept it busy.
//!
//! Required: one request or flush at least four times slower than the median of that kind on the disk, over enough of
//! them; on a stacked disk, a disk below that was slow as well. Excluded: others' traffic on any of them. Never certain: what happens inside a device is not seen.

use super::case::{Case, ms};
use super::cause::{Confidence, Culprit, Finding};
use super::neighbours;
use crate::timeline::Kind;

const SLOWER: u64 = 4;
const REQUESTS_MIN: usize = 32;

pub fn consider(case: &Case) -> Option<Finding> {
    let rows = ["device", "flush_device", "journal_device", "journal_flush_device"];
    let explained_ns = case.ns(&rows);
    let disks = std::iter::once(&case.sync.disk).chain(&case.sync.lower);
    if explained_ns == 0 || disks.into_iter().any(|disk| neighbours::on_disk(case, disk.dev).crowd()) {
        return None;
    }
    let (what, took, median) = outlier(case)?;
    if !case.sync.lower.is_empty() && lower_took(case).saturating_mul(2) < took {
        return None;
    }
    Some(Finding {
        explained_ns,
        confidence: Confidence::Likely,
        culprit: Some(Culprit::new("device", format!("{} itself", case.sync.disk.name))),
        evidence: vec![format!(
            "a {what} took {} on {}, where the median is {}",
            ms(took),
            case.sync.disk.name,
            ms(median)
        )],
        row: case.largest(&rows),
    })
}

/// The longest time that a disk below was with a request while the sync waited. A stacked disk is kernel threads and
/// the disks below it: where those were quick, the time is not the device's.
fn lower_took(case: &Case) -> u64 {
    let below = case.sync.queues.iter().filter(|queue| case.sync.lower.iter().any(|disk| disk.dev == queue.disk));
    let beside =
        |done_ns: u64, issued_ns: u64| case.waits().any(|wait| issued_ns < wait.end_ns && wait.start_ns < done_ns);
    let requests = below.flat_map(|queue| &queue.recent).filter(|request| request.issued_ns != 0);
    let times = requests
        .filter(|request| beside(request.done_ns, request.issued_ns))
        .map(|request| request.done_ns.saturating_sub(request.issued_ns));
    times.max().unwrap_or(0)
}

/// The slowest of the sync's requests and flushes, if it is out of the ordinary.
fn outlier(case: &Case) -> Option<(&'static str, u64, u64)> {
    let median = |kind: Kind| {
        let known = case.sync.baselines.iter().find(|baseline| baseline.kind == kind)?;
        (known.count >= REQUESTS_MIN).then_some(known.median_ns)
    };
    let writes = case.waits().filter_map(|wait| wait.request.as_ref()).filter(|request| request.issued_ns != 0);
    let slowest_write = writes.map(|request| request.done_ns.saturating_sub(request.issued_ns)).max().unwrap_or(0);
    let flushes = case.waits().flat_map(|wait| wait.flushes).filter(|[issued, _]| *issued != 0);
    let slowest_flush = flushes.map(|[issued, done]| done.saturating_sub(issued)).max().unwrap_or(0);
    let found = [("write", slowest_write, median(Kind::Write)), ("flush", slowest_flush, median(Kind::Flush))];
    let slow = found.into_iter().filter_map(|(what, took, median)| Some((what, took, median?)));
    slow.filter(|(_, took, median)| *took >= median.saturating_mul(SLOWER)).max_by_key(|(_, took, _)| *took)
}
