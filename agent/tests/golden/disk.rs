//! What is said of a disk, as text and as JSON, and that the page of the JSON knows every field.

use std::collections::BTreeSet;

use fsyncscope::event::{self, Disk, PageCache, Source, Writer};
use fsyncscope::report::{self, DiskReport, Latency};
use fsyncscope::timeline::{Subject, WrittenBack};
use fsyncscope_ebpf::slot::Latencies;
use serde_json::Value;

const WIDTH: usize = 80;

#[test]
fn a_disk_is_shown_within_the_width_of_a_terminal() {
    let text = format!("{}{}", report::disk_text(&disk(), 0), report::page_cache(&CACHE));
    assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    let wanted = [
        "loop7, on vda: 2.0 s until 1970-01-01 00:00:09.000000 UTC; times in ms",
        "  requests           number       bytes  queue p50      p99  device p50      p99",
        "  write by sync           3      12 KiB     <0.001   <0.008      <1.024    >4194",
        "  flush by journal        1           -     <0.001   <0.001      <0.128   <0.128",
        "  2 requests are in flight now",
        "  3 requests of any disk were not followed, so this is not all",
        "  written back from the page cache: 5.0 MiB",
        "     4.0 MiB  /ledgers/current/3a.log, by the flusher kworker/u8:3, reason",
        "              background",
        "              <- open for writing by java (pid 9) and 1 more",
        "     1.0 MiB  a file without a known name (inode 77), by dd (tid 12)",
        "       8 KiB  the filesystem's own blocks, by the journal jbd2/loop7-8",
        "       4 KiB  several files, or one that is not known, by the worker",
        "              kworker/u8:3",
        "page cache: 24.0 MiB dirty, 512 KiB under writeback; the flusher starts at",
        "            16.0 MiB, writers wait near 4633.0 MiB",
    ];
    assert_eq!(text, format!("{}\n", wanted.join("\n")));
}

#[test]
fn every_field_of_a_disk_is_on_the_page() {
    let page = include_str!("../../../docs/json.md");
    let table = page.split("## A disk").nth(1).and_then(|rest| rest.split("\n## ").next()).expect("its chapter");
    let object = report::disk_json(&disk(), Some(&CACHE), 5);
    let mut keys = BTreeSet::new();
    collect(&object, &mut keys);
    assert!(keys.len() > 30, "{keys:?}");
    for key in keys {
        assert!(table.contains(&format!("`{key}`")), "{key} is not in the table");
    }
    assert_eq!(object["time_unix_ns"], 9_000_000_005_u64);
    assert_eq!(object["requests"][0]["device"]["p99_at_most_ns"], Value::Null);
    assert_eq!(object["written_back"][1]["file"]["path"], Value::Null);
    assert_eq!(object["written_back"][2]["file"], Value::Null);
    assert_eq!(object["written_back"][1]["reason"], Value::Null);
}

#[test]
fn small_files_beyond_the_first_are_summed() {
    let mut report = disk();
    let small = report.written[3].clone();
    report.written.extend(std::iter::repeat_n(small, 10));
    let text = report::disk_text(&report, 0);
    assert!(text.ends_with("      16 KiB  4 more\n"), "{text}");
}

fn collect<'a>(value: &'a Value, keys: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(object) => object.iter().for_each(|(key, value)| {
            keys.insert(key);
            collect(value, keys);
        }),
        Value::Array(items) => items.iter().for_each(|item| collect(item, keys)),
        _ => {}
    }
}

const CACHE: PageCache = PageCache {
    dirty_bytes: 24 << 20,
    writeback_bytes: 512 << 10,
    background_threshold_bytes: 16 << 20,
    threshold_bytes: 4633 << 20,
};

fn disk() -> DiskReport {
    DiskReport {
        disk: Disk { dev: 7 << 20 | 7, name: "loop7".into(), lower: vec![254 << 20], stacked: true },
        lower: vec!["vda".into()],
        until_ns: 9_000_000_000,
        span_ns: 2_000_000_000,
        in_flight: 2,
        latencies: vec![
            Latency {
                kind: "write",
                submitter: "sync",
                queue: latencies(&[(0, 2), (3, 1)], 0),
                device: latencies(&[(10, 2), (23, 1)], 12 << 10),
            },
            Latency {
                kind: "flush",
                submitter: "journal",
                queue: latencies(&[(0, 1)], 0),
                device: latencies(&[(7, 1)], 0),
            },
        ],
        written: vec![
            written(Source::Flusher, Subject::File { inode: 5, path: Some("/ledgers/current/3a.log".into()) }, 4 << 20),
            written(Source::Other, Subject::File { inode: 77, path: None }, 1 << 20),
            written(Source::Journal, Subject::Metadata, 8 << 10),
            written(Source::Worker, Subject::Unknown, 4 << 10),
        ],
        lost: 3,
    }
}

fn latencies(counts: &[(usize, u64)], bytes: u64) -> Latencies {
    let mut latencies = Latencies { buckets: [0; 24], sum_ns: 1, bytes };
    counts.iter().for_each(|(bucket, count)| latencies.buckets[*bucket] = *count);
    latencies
}

fn written(submitter: Source, subject: Subject, bytes: u64) -> WrittenBack {
    let comm = match submitter {
        Source::Other => "dd",
        Source::Journal => "jbd2/loop7-8",
        _ => "kworker/u8:3",
    };
    let writer = |pid| Writer { pid, name: "java".into() };
    let writers = if submitter == Source::Flusher { vec![writer(9), writer(10)] } else { Vec::new() };
    let event = event::WrittenBack {
        from_ns: 0,
        until_ns: 8_000_000_000,
        disk: 7 << 20 | 7,
        inode: 0,
        inode_dev: 0,
        submitter,
        reason: 0,
        tid: 12,
        comm: comm.into(),
        bytes,
        requests: 2,
    };
    WrittenBack { event, disk: Disk::default(), subject, writers }
}
