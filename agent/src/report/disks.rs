//! What a watched disk did in some time: its requests by who submitted them, and whose pages were written back and why.

use std::fmt::Write;

use fsyncscope_ebpf::limits::BUCKETS;
use fsyncscope_ebpf::slot::{Kind, Latencies, Submitter};
use serde_json::{Value, json};

use super::text::{utc, wrap};
use crate::attribution::writeback_reason;
use crate::event::{self, Disk, PageCache, Source};
use crate::timeline::{Subject, WrittenBack};

/// Kinds of requests and their words.
pub const KINDS: [(Kind, &str); Kind::COUNT] = [(Kind::Read, "read"), (Kind::Write, "write"), (Kind::Flush, "flush")];
/// Who submits requests, and their words.
pub const SUBMITTERS: [(Submitter, &str); Submitter::COUNT] = [
    (Submitter::Sync, "sync"),
    (Submitter::Journal, "journal"),
    (Submitter::Flusher, "flusher"),
    (Submitter::Throttle, "throttle"),
    (Submitter::Worker, "worker"),
    (Submitter::Other, "other"),
];
/// Files that a text shows one by one.
const FILES: usize = 10;

/// A disk in a span of time.
#[derive(Clone, Debug)]
pub struct DiskReport {
    pub disk: Disk,
    /// Names of the disks below it.
    pub lower: Vec<String>,
    pub until_ns: u64,
    pub span_ns: u64,
    /// Requests that have begun and are not done at its end.
    pub in_flight: u32,
    /// Those that are not empty.
    pub latencies: Vec<Latency>,
    /// Most bytes first.
    pub written: Vec<WrittenBack>,
    /// Requests of all disks that found no place, and runs of probes that were left out, in that time.
    pub lost: u64,
}

/// Requests of one kind and one submitter in that time.
#[derive(Clone, Debug)]
pub struct Latency {
    pub kind: &'static str,
    pub submitter: &'static str,
    pub queue: Latencies,
    pub device: Latencies,
}

/// The word of a submitter.
pub fn submitter(source: Source) -> &'static str {
    match source {
        Source::Sync => "sync",
        Source::Journal => "journal",
        Source::Flusher => "flusher",
        Source::Throttle => "throttle",
        Source::Worker => "worker",
        Source::Other => "other",
    }
}

/// Why the flusher wrote; others have no reason of their own.
pub fn reason(written: &event::WrittenBack) -> Option<&'static str> {
    (written.submitter == Source::Flusher).then(|| writeback_reason(written.reason))
}

/// One JSON object. The schema is docs/json.md.
pub fn disk_json(report: &DiskReport, cache: Option<&PageCache>, unix_offset_ns: i64) -> Value {
    let DiskReport { disk, lower, until_ns, span_ns, in_flight, latencies, written, lost } = report;
    json!({
        "time_unix_ns": (*until_ns as i64).saturating_add(unix_offset_ns),
        "span_ns": span_ns,
        "device": {"major": disk.dev >> 20, "minor": disk.dev & 0xf_ffff, "name": disk.name},
        "lower": lower,
        "in_flight": in_flight,
        "requests": latencies.iter().map(latency_json).collect::<Vec<Value>>(),
        "written_back": written.iter().map(written_json).collect::<Vec<Value>>(),
        "lost": lost,
        "page_cache": cache.map(|cache| json!({
            "dirty_bytes": cache.dirty_bytes,
            "background_threshold_bytes": cache.background_threshold_bytes,
            "threshold_bytes": cache.threshold_bytes,
            "writeback_bytes": cache.writeback_bytes,
        })),
    })
}

fn latency_json(latency: &Latency) -> Value {
    let Latency { kind, submitter, queue, device } = latency;
    let time = |latencies: &Latencies| {
        json!({
            "sum_ns": latencies.sum_ns,
            "p50_at_most_ns": at_most_ns(latencies, 500),
            "p99_at_most_ns": at_most_ns(latencies, 990),
        })
    };
    json!({
        "kind": kind,
        "submitter": submitter,
        "count": count(device),
        "bytes": device.bytes,
        "queue": time(queue),
        "device": time(device),
    })
}

fn written_json(written: &WrittenBack) -> Value {
    let WrittenBack { event, disk: _, subject, writers } = written;
    let (of, inode, path) = match subject {
        Subject::File { inode, path } => ("file", Some(inode), path.as_deref()),
        Subject::Metadata => ("metadata", None, None),
        Subject::Unknown => ("unknown", None, None),
    };
    json!({
        "of": of,
        "file": inode.map(|inode| json!({"inode": inode, "path": path})),
        "writers": writers.iter().map(|writer| json!({"pid": writer.pid, "name": writer.name})).collect::<Vec<Value>>(),
        "submitter": submitter(event.submitter),
        "task": {"tid": event.tid, "name": event.comm},
        "reason": reason(event),
        "bytes": event.bytes,
        "requests": event.requests,
    })
}

/// For a person, within 80 columns.
pub fn disk_text(report: &DiskReport, unix_offset_ns: i64) -> String {
    let DiskReport { disk, lower, until_ns, span_ns, in_flight, latencies, written, lost } = report;
    let mut out = String::new();
    let on = if lower.is_empty() { String::new() } else { format!(", on {}", lower.join(", ")) };
    let until = utc((*until_ns as i64).saturating_add(unix_offset_ns));
    let span = *span_ns as f64 / 1e9;
    wrap(&mut out, "", &format!("{}{on}: {span:.1} s until {until}; times in ms", disk.name));
    let _ = writeln!(out, "  requests           number       bytes  queue p50      p99  device p50      p99");
    for latency in latencies {
        let name = format!("{} by {}", latency.kind, latency.submitter);
        let [p50, p99] = [500, 990].map(|share| milliseconds(&latency.queue, share));
        let [device_p50, device_p99] = [500, 990].map(|share| milliseconds(&latency.device, share));
        let number = count(&latency.device);
        let bytes = if latency.device.bytes == 0 { "-".into() } else { mebibytes(latency.device.bytes) };
        let _ = writeln!(out, "  {name:<17}{number:>8}{bytes:>12}{p50:>11}{p99:>9}{device_p50:>12}{device_p99:>9}");
    }
    if *in_flight > 0 {
        let _ = writeln!(out, "  {in_flight} requests are in flight now");
    }
    if *lost > 0 {
        wrap(&mut out, "  ", &format!("{lost} requests of any disk were not followed, so this is not all"));
    }
    if !written.is_empty() {
        let bytes = written.iter().map(|written| written.event.bytes).sum();
        let _ = writeln!(out, "  written back from the page cache: {}", mebibytes(bytes));
    }
    written.iter().take(FILES).for_each(|written| written_text(&mut out, written));
    if let Some(rest) = written.get(FILES..).filter(|rest| !rest.is_empty()) {
        let bytes = rest.iter().map(|written| written.event.bytes).sum();
        let _ = writeln!(out, "  {:>10}  {} more", mebibytes(bytes), rest.len());
    }
    out
}

fn written_text(out: &mut String, written: &WrittenBack) {
    let WrittenBack { event, disk: _, subject, writers } = written;
    let why = reason(event).map(|reason| format!(", reason {reason}")).unwrap_or_default();
    let by = format!("by the {} {}{why}", submitter(event.submitter), event.comm);
    let by = if event.submitter == Source::Other { format!("by {} (tid {})", event.comm, event.tid) } else { by };
    let what = match subject {
        Subject::File { path: Some(path), .. } => path.clone(),
        Subject::File { inode, path: None } => format!("a file without a known name (inode {inode})"),
        Subject::Metadata => "the filesystem's own blocks".into(),
        Subject::Unknown => "several files, or one that is not known".into(),
    };
    wrap(out, &format!("  {:>10}  ", mebibytes(event.bytes)), &format!("{what}, {by}"));
    if let Some(first) = writers.first() {
        let more = if writers.len() > 1 { format!(" and {} more", writers.len() - 1) } else { String::new() };
        wrap(out, "              <- ", &format!("open for writing by {} (pid {}){more}", first.name, first.pid));
    }
}

/// The page cache of the machine against its thresholds, for a person.
pub fn page_cache(cache: &PageCache) -> String {
    let PageCache { dirty_bytes, writeback_bytes, background_threshold_bytes, threshold_bytes } = cache;
    let mut out = String::new();
    let [dirty, writeback, background, limit] =
        [dirty_bytes, writeback_bytes, background_threshold_bytes, threshold_bytes].map(|bytes| mebibytes(*bytes));
    let facts = format!(
        "{dirty} dirty, {writeback} under writeback; the flusher starts at {background}, writers wait near {limit}"
    );
    wrap(&mut out, "page cache: ", &facts);
    out
}

fn count(latencies: &Latencies) -> u64 {
    latencies.buckets.iter().sum()
}

/// A quantile in thousandths: the upper bound of its bucket, `None` without requests or if its bucket is the open one.
fn at_most_ns(latencies: &Latencies, thousandths: u64) -> Option<u64> {
    let rank = (count(latencies) * thousandths).div_ceil(1000).max(1);
    let mut seen = 0;
    for (bucket, count) in latencies.buckets.iter().enumerate().take(BUCKETS - 1) {
        seen += count;
        if seen >= rank {
            return Some(1000 << bucket);
        }
    }
    None
}

fn milliseconds(latencies: &Latencies, thousandths: u64) -> String {
    match at_most_ns(latencies, thousandths) {
        Some(ns) => format!("<{:.3}", ns as f64 / 1e6),
        None if count(latencies) == 0 => "-".into(),
        None => format!(">{:.0}", (1000u64 << (BUCKETS - 2)) as f64 / 1e6),
    }
}

fn mebibytes(bytes: u64) -> String {
    if bytes < 1 << 20 {
        return format!("{} KiB", bytes >> 10);
    }
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latencies(counts: &[(usize, u64)]) -> Latencies {
        let mut latencies = Latencies { buckets: [0; BUCKETS], sum_ns: 0, bytes: 0 };
        counts.iter().for_each(|(bucket, count)| latencies.buckets[*bucket] = *count);
        latencies
    }

    #[test]
    fn a_quantile_is_the_bound_of_the_bucket_that_it_lies_in() {
        assert_eq!(at_most_ns(&latencies(&[(0, 50), (3, 49), (9, 1)]), 500), Some(1000));
        assert_eq!(at_most_ns(&latencies(&[(0, 50), (3, 49), (9, 1)]), 990), Some(8000));
        assert_eq!(at_most_ns(&latencies(&[(0, 49), (3, 49), (9, 2)]), 990), Some(512_000));
        assert_eq!(at_most_ns(&latencies(&[(BUCKETS - 1, 1)]), 500), None);
        assert_eq!(milliseconds(&latencies(&[(BUCKETS - 1, 1)]), 500), ">4194");
        assert_eq!(milliseconds(&latencies(&[]), 500), "-");
    }
}
