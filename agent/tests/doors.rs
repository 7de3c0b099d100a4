//! Every door to durability, counted against the client's own book: one record for each operation and file, with the right
//! thread, operation, file, device and result, by typed programs and by raw ones; from one thread, from seven, and from a
//! process that exits right after.

mod support;

use std::collections::BTreeSet;
use std::time::Instant;

use serde_json::{Value, json};

use support::agent::{Agent, field};
use support::client::{Client, Entry, Shape};
use support::doors::{DOORS, Door, Span};
use support::ledger::{Account, Distance, Told};
use support::matrix::{self, AGENT, Place, gone, ready};
use support::means::Known;
use support::oracle::Oracle;
use support::rings::io_uring_missing;
use support::scratch::{Format, LoopFs, Scratch};
use support::{Machine, bpf, missing};

#[test]
fn every_door_of_ext4_with_a_journal_is_counted() {
    all(Format::Ext4, &[]);
}

#[test]
fn every_door_of_ext4_without_a_journal_is_counted() {
    all(Format::Ext4WithoutJournal, &[]);
}

#[test]
fn every_door_of_xfs_is_counted() {
    all(Format::Xfs, &[]);
}

#[test]
fn every_door_of_btrfs_is_counted() {
    all(Format::Btrfs, &[]);
}

#[test]
fn raw_programs_count_the_same() {
    all(Format::Ext4, &["--raw"]);
}

/// All doors that are seen, in all shapes, under as few agents as there are flags.
fn all(format: Format, arguments: &[&str]) {
    skip_if!(format.missing().or_else(io_uring_missing));
    let _machine = Machine::lock();
    let flags: BTreeSet<Option<&str>> = DOORS.iter().map(|door| door.flag).collect();
    for flag in flags {
        let doors: Vec<&Door> = DOORS.iter().filter(|door| door.flag == flag).collect();
        let arguments: Vec<&str> = arguments.iter().copied().chain(flag).collect();
        count(format, &arguments, &doors);
    }
}

fn count(format: Format, arguments: &[&str], doors: &[&'static Door]) {
    let scratch = Scratch::new("doors");
    let disk = LoopFs::alone(&scratch, "disk", format, format.mebibytes());
    let place = Place { directory: disk.path(), number: disk.number(), told: Told::by_newest(format) };
    let agent = Agent::watch(&[&AGENT[..], arguments].concat());
    assert_programs(&agent, arguments.contains(&"--raw"));
    let begun = Instant::now();
    let found = matrix::count(agent, doors, &place, |door| door.count);
    eprintln!("{format:?} {arguments:?}: {} of {} records, {:.1?}", found.told, found.owed, begun.elapsed());
    for (cell, distance) in &found.distances {
        eprintln!("{cell:24} {distance}");
    }
    let far = found.distances.iter().filter(|(_, distance)| !distance.is_allowed());
    let far = far.map(|(cell, distance)| format!("{cell}: durations lie too far apart: {distance:?}"));
    let wrong: Vec<String> = found.wrong.into_iter().chain(far).collect();
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), found.said.join("\n"));
}

/// Programs on events of the kernel are of one type, raw or typed.
fn assert_programs(agent: &Agent, raw: bool) {
    const RAW_TRACEPOINT: u32 = 17;
    const TRACING: u32 = 26;
    let types = bpf::types_of(agent.pid());
    let (own, other) = if raw { (RAW_TRACEPOINT, TRACING) } else { (TRACING, RAW_TRACEPOINT) };
    assert!(types.contains(&own) && !types.contains(&other), "{types:?}");
}

#[test]
fn what_a_full_ring_loses_is_counted_to_the_last_sync() {
    skip_if!(Format::Ext4.missing());
    let _machine = Machine::lock();
    let scratch = Scratch::new("full");
    let disk = LoopFs::alone(&scratch, "disk", Format::Ext4, Format::Ext4.mebibytes());
    let door = Door::named("fsync");
    let (client, child) = ready(door, Shape::Main, door.count, &scratch, disk.path());
    let agent = Agent::watch(&["--threshold", "0", "--ring-bytes", "65536", "--thread", "fsync"]);
    let account = gone(client, child);
    let ended = agent.interrupt();
    let last = ended.said.last().expect("it says how many it saw");
    let numbers: Vec<usize> = last.split([' ', ',', ';']).filter_map(|word| word.parse().ok()).collect();
    let [_, shown, lost, 0] = numbers[..] else { panic!("nothing was lost: {last}") };
    eprintln!("{last}");
    let own = ended.syncs.iter().filter(|sync| field::number(sync, "/process/pid") == u64::from(account.pid)).count();
    assert_eq!((shown, own + lost), (ended.syncs.len(), account.owed(Told::by_newest(Format::Ext4))), "{last}");
}

/// A record of an entry as the agent would tell it, of device 7:3.
fn told(entry: &Entry, pid: u32) -> Value {
    json!({
        "process": { "pid": pid, "name": "fsync" }, "thread": { "tid": entry.tid, "name": entry.thread },
        "operation": "fsync", "file": { "inode": entry.known[0].inode, "path": entry.known[0].path },
        "device": { "major": 7, "minor": 3 }, "result": 0, "time_unix_ns": entry.start_ns, "open": false,
        "duration_ns": entry.duration_ns(), "parts": [{ "name": "device", "ns": entry.duration_ns() }],
    })
}

#[test]
fn each_wrong_record_is_found() {
    let known = vec![Known { inode: 12, path: "/disk/fsync.main.0.0".into() }];
    let entry = |number: u64| Entry {
        call: 0,
        thread: "fsync".to_owned(),
        tid: 41,
        start_ns: number * 1_000_000,
        end_ns: number * 1_000_000 + 100_000,
        error: 0,
        known: known.clone(),
    };
    let client = Client { door: "fsync".to_owned(), shape: Shape::Main, count: 3, directory: "/disk".into() };
    let account = Account { client, pid: 41, book: (0..3).map(entry).collect() };
    let right: Vec<Value> = account.book.iter().map(|entry| told(entry, account.pid)).collect();
    let faults = |syncs: &[Value]| account.compare(syncs, (7, 3), Told::by_newest(Format::Ext4)).0.sentences("");
    assert_eq!(faults(&right), Vec::<String>::new());
    assert!(faults(&right[1..])[0].contains("2 records of 3"));
    assert!(faults(&[&right[..], &right[..1]].concat())[0].contains("4 records of 3"));
    let changes = [
        ("/thread/tid", json!(42), "records of"),
        ("/thread/name", json!("other"), "another thread's name"),
        ("/process/name", json!("other"), "another process's name"),
        ("/operation", json!("fdatasync"), "called fdatasync"),
        ("/file/inode", json!(13), "another inode"),
        ("/file/path", json!("/disk/other"), "another path"),
        ("/device/minor", json!(4), "another device"),
        ("/result", json!("EIO"), "another result"),
        ("/open", json!(true), "still runs"),
        ("/duration_ns", json!(100_001), "longer than the call"),
        ("/duration_ns", json!(99_999), "do not sum"),
    ];
    for (pointer, value, kind) in changes {
        let mut wrong = right.clone();
        *wrong[1].pointer_mut(pointer).expect("a field of the record") = value;
        assert!(faults(&wrong).iter().any(|fault| fault.contains(kind)), "{pointer}: {:?}", faults(&wrong));
    }
}

#[test]
fn durations_may_lie_apart_so_far_and_no_farther() {
    let distance = Distance {
        word: "fsync",
        span: Span::Whole,
        calls: 997,
        records: 1,
        unseen: 0,
        quarter_ns: 0,
        median_ns: 22_000,
        p99_ns: 0,
        max_ns: 0,
        book_ns: 100_000,
    };
    assert!(distance.is_allowed());
    assert!(!Distance { median_ns: 22_001, ..distance }.is_allowed());
    assert!(!Distance { unseen: 499, ..distance }.is_allowed(), "most of them have no end");
    assert!(Distance { median_ns: 22_001, span: Span::Within, ..distance }.is_allowed());
}

#[test]
fn a_client_makes_the_calls_of_its_book() {
    const CALLS: u64 = 97;
    skip_if!(missing(&["strace"]).or_else(|| Format::Btrfs.missing()).or_else(io_uring_missing));
    let _machine = Machine::lock();
    let scratch = Scratch::new("clients");
    let disk = LoopFs::alone(&scratch, "disk", Format::Btrfs, Format::Btrfs.mebibytes());
    for door in &DOORS {
        let (client, child) = ready(door, Shape::Threads(7), CALLS, &scratch, disk.path());
        let names: BTreeSet<&str> = door.calls.iter().map(|call| call.system_call).collect();
        let oracle = Oracle::attach(&scratch, child.worker_tid(), &names.iter().copied().collect::<Vec<_>>().join(","));
        let Account { book, .. } = gone(client, child);
        let trace = oracle.stop();
        for (number, call) in door.calls.iter().enumerate() {
            let of_call = |entry: &&Entry| entry.call == number;
            let mut noted: Vec<u32> = book.iter().filter(of_call).map(|entry| entry.tid).collect();
            let made = trace.calls.iter().filter(|made| made.name == call.system_call && made.result >= 0);
            let mut made: Vec<u32> = made.map(|made| made.tid).collect();
            noted.sort_unstable();
            made.sort_unstable();
            assert_eq!(noted, made, "{}: the book against strace, {}", door.name, call.system_call);
        }
        assert!(book.iter().all(|entry| entry.error == 0), "{}: the client itself failed", door.name);
    }
}
