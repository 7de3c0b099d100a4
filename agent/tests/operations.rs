//! Every way to make bytes durable that is traced, counted against the journal's own book: one record each, with the
//! right operation, thread, file, device and result, by typed programs and by raw ones.

mod support;

use std::collections::BTreeSet;

use serde_json::Value;

use support::agent::{Agent, field};
use support::journal::{Durability, Operation, Place, Workload};
use support::scratch::{Format, LoopFs, Scratch};
use support::verdict::assert_whole;
use support::{Machine, bpf, wait_for};

/// Prime, so that no batch divides it.
const COUNT: u64 = 199;
const REGION: u64 = 1 << 20;

/// A way, the thread that goes it, and the words that may be said of it.
struct Way {
    durability: Durability,
    thread: &'static str,
    words: &'static [&'static str],
}

const WAYS: [Way; 5] = [
    Way { durability: Durability::Fsync, thread: "way-fsync", words: &["fsync"] },
    Way { durability: Durability::Fdatasync, thread: "way-fdatasync", words: &["fdatasync"] },
    Way { durability: Durability::DsyncWrite, thread: "way-o_dsync", words: &["o_dsync"] },
    Way { durability: Durability::SyncWrite, thread: "way-o_sync", words: &["o_sync"] },
    Way { durability: Durability::Msync, thread: "way-msync", words: &["msync"] },
];

#[test]
fn every_way_on_ext4_with_a_journal_is_one_record_each() {
    all_ways(Format::Ext4, &[]);
}

#[test]
fn every_way_on_ext4_without_a_journal_is_one_record_each() {
    all_ways(Format::Ext4WithoutJournal, &[]);
}

#[test]
fn every_way_on_xfs_is_one_record_each() {
    all_ways(Format::Xfs, &[]);
}

#[test]
fn raw_programs_see_the_same() {
    all_ways(Format::Ext4, &["--raw"]);
}

fn all_ways(format: Format, arguments: &[&str]) {
    // BPF_PROG_TYPE_RAW_TRACEPOINT and BPF_PROG_TYPE_TRACING.
    let programs = if arguments.contains(&"--raw") { 17 } else { 26 };
    skip_if!(format.missing());
    let _machine = Machine::lock();
    let scratch = Scratch::new("ways");
    // The smallest XFS that its tools make has 300 MiB.
    let disk = LoopFs::new(&scratch, "disk", format, if format == Format::Xfs { 320 } else { 64 });
    let agent = Agent::watch(&[&["--threshold", "0"], arguments].concat());
    assert_eq!(bpf::types_of(agent.pid()), BTreeSet::from([programs]));
    let books: Vec<Vec<Operation>> = WAYS.iter().map(|way| go(way, &disk)).collect();
    let all = wait_for(std::time::Duration::from_secs(5), || {
        let syncs = agent.syncs();
        WAYS.iter().all(|way| of(way, &syncs).len() as u64 >= COUNT).then_some(())
    });
    let ended = agent.interrupt();
    assert!(ended.status.success(), "{}", ended.said.join("; "));
    assert!(all.is_some(), "not all were told: {:?}", WAYS.map(|way| (way.thread, of(&way, &ended.syncs).len())));
    assert_no_others(&ended.syncs, &disk);
    for (way, book) in WAYS.iter().zip(&books) {
        let told = of(way, &ended.syncs);
        assert_eq!(told.len() as u64, COUNT, "{}", way.thread);
        for (sync, operation) in told.iter().zip(book) {
            check(sync, operation, way, &disk, format);
        }
    }
}

fn go(way: &Way, disk: &LoopFs) -> Vec<Operation> {
    let mut workload = Workload::new(way.thread, disk.join(way.thread));
    workload.durability = way.durability;
    workload.place = Place::Within(REGION);
    workload.think_us = 200;
    workload.count = Some(COUNT);
    let book = workload.spawn().wait();
    assert_eq!(book.len() as u64, COUNT);
    assert!(book.iter().all(|operation| operation.error == 0), "the workload itself failed");
    book
}

/// Syncs of a way's thread. Filling its file was another thread's work.
fn of(way: &Way, syncs: &[Value]) -> Vec<Value> {
    let own = |sync: &&Value| field::text(sync, "/thread/name") == way.thread && sync["open"] == Value::Bool(false);
    syncs.iter().filter(own).cloned().collect()
}

/// Nobody else syncs on this disk but who filled the files, once for each way.
fn assert_no_others(syncs: &[Value], disk: &LoopFs) {
    let (major, minor) = disk.number();
    let on_disk = |sync: &&Value| sync["device"]["major"] == major && sync["device"]["minor"] == minor;
    let of_way = |sync: &&Value| WAYS.iter().any(|way| field::text(sync, "/thread/name") == way.thread);
    let others: Vec<&Value> = syncs.iter().filter(on_disk).filter(|sync| !of_way(sync)).collect();
    eprintln!("{} others", others.len());
    let filling = |sync: &&Value| field::number(sync, "/process/pid") == u64::from(std::process::id());
    assert!(others.len() <= WAYS.len() && others.iter().all(filling), "{others:#?}");
}

fn check(sync: &Value, operation: &Operation, way: &Way, disk: &LoopFs, format: Format) {
    assert_whole(sync);
    assert_eq!(field::number(sync, "/process/pid"), u64::from(std::process::id()), "{sync}");
    let (major, minor) = disk.number();
    assert_eq!(field::number(sync, "/device/major"), u64::from(major), "{sync}");
    assert_eq!(field::number(sync, "/device/minor"), u64::from(minor), "{sync}");
    assert!(field::duration_ns(sync) <= operation.duration_ns(), "{sync} against {operation:?}");
    let word = field::text(sync, "/operation");
    if format == Format::Xfs {
        // Its event does not say whether only data must be durable, which tells the two kinds of writes apart.
        let write = matches!(way.durability, Durability::DsyncWrite | Durability::SyncWrite);
        assert!(way.words.contains(&word) || write && word == "o_sync", "{sync}");
        assert_eq!(sync["result"], Value::Null, "{sync}");
        return;
    }
    assert!(way.words.contains(&word), "{sync}");
    assert_eq!(field::number(sync, "/result"), 0, "{sync}");
    assert!(field::text(sync, "/file/path").ends_with(way.thread), "{sync}");
}
