//! An explained sync in words and as JSON. Pure: it knows what happened, not where it is printed.

use serde_json::{Value, json};

use crate::attribution::{Breakdown, Cause, Confidence, Explanation, Row};
use crate::event::{Disk, Open};
use crate::timeline::{Sync, Timeline};

mod disks;
mod errno;
mod open;
mod text;

pub use disks::{DiskReport, KINDS, Latency, SUBMITTERS, disk_json, disk_text, page_cache, reason, submitter};
pub use errno::name as errno_name;
pub use open::OpenSync;
pub use text::{block, open_block};

/// Parts of the time after a sync, as the probes count them.
const AFTER: [&str; 4] = ["on_cpu", "preempted", "run_queue", "blocked"];

/// An explained sync as one JSON object. The schema is docs/json.md.
pub fn json(explanation: &Explanation, unix_offset_ns: i64) -> Value {
    let Explanation { sync, breakdown, verdict } = explanation;
    let mut object = identity(sync, unix_offset_ns);
    let more = json!({
        "parts": parts(breakdown),
        "after_ns": sync.event.return_ns.checked_sub(sync.event.end_ns).filter(|_| sync.event.return_ns != 0),
        "after_parts": after(sync),
        "cause": verdict.cause.word(),
        "culprit": verdict.culprit.as_ref().map(|culprit| json!({"class": culprit.class, "text": culprit.text})),
        "confidence": verdict.confidence.word(),
        "evidence": verdict.evidence,
        "lost_events": sync.lost_events,
        "open": false,
    });
    merge(&mut object, more);
    object
}

/// A sync that still runs, in the same schema.
pub fn open_json(open: &OpenSync, unix_offset_ns: i64) -> Value {
    let mut object = identity(&open.sync, unix_offset_ns);
    let more = json!({
        "parts": parts(&open.breakdown),
        "after_ns": null,
        "after_parts": [],
        "cause": Cause::Unknown.word(),
        "culprit": null,
        "confidence": Confidence::Unknown.word(),
        "evidence": open.evidence,
        "lost_events": open.sync.lost_events,
        "open": true,
    });
    merge(&mut object, more);
    object
}

fn identity(sync: &Sync, unix_offset_ns: i64) -> Value {
    let event = &sync.event;
    json!({
        "id": sync.id,
        "time_unix_ns": (event.start_ns as i64).saturating_add(unix_offset_ns),
        "operation": sync.operation.name(),
        "process": {"pid": event.pid, "name": sync.process},
        "thread": {"tid": event.tid, "name": event.thread},
        "asked_through": event.asked.as_ref().map(|asked| asked.through.word()),
        "file": file(sync),
        "filesystems": sync.filesystems.iter().map(|(disk, ns)| json!({"device": device(disk), "ns": ns})).collect::<Vec<_>>(),
        "device": device(&sync.disk),
        "result": result(sync),
        "duration_ns": sync.duration_ns(),
    })
}

fn device(Disk { dev, name, .. }: &Disk) -> Value {
    json!({"major": dev >> 20, "minor": dev & 0xf_ffff, "name": name})
}

/// Null for a sync of whole filesystems.
fn file(sync: &Sync) -> Value {
    if sync.operation.is_of_files() {
        json!({"path": sync.file.path, "inode": sync.file.inode, "directory": sync.event.directory})
    } else {
        Value::Null
    }
}

/// 0, or the errno's name; null where it is not known.
fn result(sync: &Sync) -> Value {
    match sync.result() {
        None => Value::Null,
        Some(0..) => json!(0),
        Some(error) => json!(errno_name(error)),
    }
}

fn parts(breakdown: &Breakdown) -> Vec<Value> {
    assert_eq!(breakdown.sum_ns(), breakdown.whole_ns, "the parts of a sync sum to its duration");
    breakdown.rows.iter().map(|row| json!({"name": row.name, "ns": row.ns, "detail": detail(row)})).collect()
}

/// Title, note and culprit of a row in one text.
fn detail(row: &Row) -> String {
    let Row { name: _, title, ns: _, note, culprit } = row;
    let more = [note, culprit].into_iter().flatten();
    more.fold((*title).to_owned(), |text, more| format!("{text}; {more}"))
}

fn after(sync: &Sync) -> Vec<Value> {
    let parts = AFTER.iter().zip(sync.event.after).filter(|(_, ns)| *ns != 0);
    parts.map(|(name, ns)| json!({"name": name, "ns": ns})).collect()
}

fn merge(object: &mut Value, more: Value) {
    if let (Value::Object(object), Value::Object(more)) = (object, more) {
        object.extend(more);
    }
}

/// A sync that still runs, seen now.
pub fn open_sync(open: &Open, timeline: &Timeline) -> OpenSync {
    OpenSync::of(open, timeline)
}
