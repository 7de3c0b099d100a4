//! The sync's requests stood in line behind another's on the same disk.
//!
//! Required: during most of its waits for requests, most of the traffic on the disk was another's. Certain only where
//! its request was queued for half of the time before the device had it; inside the device the order is not seen. Never
//! certain where the line may have stood for want of a CPU: on a stacked disk, which kernel threads serve, and where
//! anybody whom the sync waited for was ready to run for a quarter of it.

use super::case::{Case, INSIDE};
use super::cause::{Confidence, Finding};
use super::neighbours;

const LINE: [&str; 6] =
    ["before_submit", "queue", "flush_queue", "journal_before_submit", "journal_queue", "journal_flush_queue"];

const QUEUES: [&str; 4] = ["queue", "flush_queue", "journal_queue", "journal_flush_queue"];

pub fn consider(case: &Case) -> Option<Finding> {
    let crowd = neighbours::on_disk(case, case.sync.disk.dev);
    if !crowd.crowd() {
        return None;
    }
    let (line, inside) = (case.ns(&LINE), case.ns(&INSIDE));
    // Before its request existed it was in no line: what kept it there is another question.
    let in_line = case.ns(&QUEUES).saturating_mul(2) >= case.sync.duration_ns();
    let whole = (case.sync.event.start_ns, case.sync.event.end_ns);
    let starved = case.delayed_ns(vec![whole]).saturating_mul(4) >= case.sync.duration_ns();
    let certain = in_line && !starved && !case.sync.disk.is_stacked();
    let mut evidence = vec![crowd.sentence(&case.sync.disk.name)];
    if crowd.depth > 0 {
        evidence.push(format!("up to {} requests were in flight when its own was submitted", crowd.depth));
    }
    let rows: Vec<&'static str> = LINE.iter().chain(&INSIDE).copied().collect();
    Some(Finding {
        explained_ns: line + inside,
        confidence: if certain { Confidence::Certain } else { Confidence::Likely },
        culprit: crowd.culprit,
        evidence,
        row: case.largest(&rows),
    })
}
