//! The device took long for the sync's own requests, much longer than it usually does, and nobody else kept it busy.
//!
//! Required: one write or flush at least four times slower than the median of that kind on the disk, over enough of
//! them; it explains the time of its kind. On a stacked disk, one below that is not stacked itself was slow as well.
//! Excluded: others' traffic on any of them, for a quarter of the waits or still there at the end of one. Never certain:
//! what happens inside a device is not seen.

use super::case::{Case, ms};
use super::cause::{Confidence, Culprit, Finding};
use super::neighbours;
use crate::event::Request;
use crate::timeline::Kind;

const SLOWER: u64 = 4;
const REQUESTS_MIN: usize = 32;
const WRITES: [&str; 4] = ["device", "lower_device", "journal_device", "journal_lower_device"];
const FLUSHES: [&str; 4] = ["flush_device", "lower_flush", "journal_flush_device", "journal_lower_flush"];

pub fn consider(case: &Case) -> Option<Finding> {
    let mut disks = std::iter::once(&case.sync.disk).chain(&case.sync.lower);
    if disks.any(|disk| neighbours::on_disk(case, disk.dev).present()) {
        return None;
    }
    let writes = outlier(case, Kind::Write, slowest_write(case)).map(|sentence| (sentence, WRITES));
    let flushes = outlier(case, Kind::Flush, slowest_flush(case)).map(|sentence| (sentence, FLUSHES));
    let found: Vec<(String, [&'static str; 4])> = [writes, flushes].into_iter().flatten().collect();
    let rows: Vec<&'static str> = found.iter().flat_map(|(_, rows)| *rows).collect();
    let explained_ns = case.ns(&rows);
    if explained_ns == 0 {
        return None;
    }
    let row = case.largest(&rows);
    let below = case.sync.lower.iter().map(|disk| disk.name.as_str()).collect::<Vec<_>>().join(", ");
    let disk = match row {
        Some(row) if row.contains("lower") => format!("{below}, below {}", case.sync.disk.name),
        _ => format!("{} itself", case.sync.disk.name),
    };
    Some(Finding {
        explained_ns,
        confidence: Confidence::Likely,
        culprit: Some(Culprit::new("device", disk)),
        evidence: found.into_iter().map(|(sentence, _)| sentence).collect(),
        row,
    })
}

/// What is said of a time that is out of the ordinary for its kind, and not explained by kernel threads of a stack.
fn outlier(case: &Case, kind: Kind, took: u64) -> Option<String> {
    let known = case.sync.baselines.iter().find(|baseline| baseline.kind == kind)?;
    let slow = known.count >= REQUESTS_MIN && took >= known.median_ns.saturating_mul(SLOWER);
    let below = !case.sync.disk.is_stacked() || lower_took(case).saturating_mul(2) >= took;
    let what = match kind {
        Kind::Write => "write",
        Kind::Flush => "flush",
    };
    let disk = &case.sync.disk.name;
    (slow && below)
        .then(|| format!("a {what} took {} on {disk}, where the median is {}", ms(took), ms(known.median_ns)))
}

fn slowest_write(case: &Case) -> u64 {
    let requests = case.waits().filter_map(|wait| wait.request.as_ref()).filter(|request| request.issued_ns != 0);
    requests.map(|request| request.done_ns.saturating_sub(request.issued_ns)).max().unwrap_or(0)
}

fn slowest_flush(case: &Case) -> u64 {
    let flushes = case.waits().flat_map(|wait| wait.flushes).filter(|[issued, _]| *issued != 0);
    flushes.map(|[issued, done]| done.saturating_sub(issued)).max().unwrap_or(0)
}

/// The longest time that a disk below was with a request while the sync waited. A stacked disk is kernel threads and
/// the disks below it: where those were quick, or are stacked themselves, the time is not the device's.
fn lower_took(case: &Case) -> u64 {
    let real = |dev: u32| case.sync.lower.iter().any(|disk| disk.dev == dev && !disk.is_stacked());
    let below = case.sync.queues.iter().filter(|queue| real(queue.disk));
    // A bare flush is never issued itself: its time begins when it was submitted.
    let began = |request: &Request| if request.issued_ns == 0 { request.allocated_ns } else { request.issued_ns };
    let beside =
        |request: &&Request| case.waits().any(|wait| began(request) < wait.end_ns && wait.start_ns < request.done_ns);
    let requests = below.flat_map(|queue| &queue.recent).filter(beside);
    requests.map(|request| request.done_ns.saturating_sub(began(request))).max().unwrap_or(0)
}
