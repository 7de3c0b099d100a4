//! Large commits of a filesystem's journal: metadata that others changed, and what it costs a sync.

mod support;

use std::fs::{self, File};
use std::io::BufReader;
use std::path::Path;
use std::time::Duration;

use fsyncscope::event::{Commit, Event};
use fsyncscope::record;
use serde_json::Value;

use support::Machine;
use support::agent::{Agent, field};
use support::child::{Child, Role};
use support::interference::{Direct, Direction, Storm, jbd2_thread};
use support::journal::Workload;
use support::scratch::{Format, LoopFs, Scratch};
use support::verdict::{assert_nobody_blamed, assert_whole, waited_for_cpu_ns};

/// Files of a storm; their inodes fill 1,250 blocks.
const FILES: usize = 20_011;
/// The words of the verdict.
const LARGE: &str = "the commit was large";

/// A journal that grows by 512 bytes and syncs every 25 ms.
fn journal(disk: &LoopFs) -> Workload {
    let mut workload = Workload::new("ForceWriteThread", disk.join("1.txn"));
    workload.think_us = 25_000;
    workload
}

#[test]
fn a_storm_of_metadata_makes_large_commits_and_quiet_times_do_not() {
    skip_if!(Format::Ext4.missing());
    let _machine = Machine::lock();
    let scratch = Scratch::new("storm");
    let disk = LoopFs::alone(&scratch, "disk", Format::Ext4, 2048);
    let recording = scratch.join("recording");
    let recorded = recording.to_str().expect("scratch paths are plain");
    let agent = Agent::watch(&["--threshold", "0", "--file", "*/1.txn", "--record", recorded]);
    let journal = journal(&disk).spawn();
    std::thread::sleep(Duration::from_secs(3));
    let quiet = agent.syncs().len();
    // It makes its files before it is ready: those syncs belong to neither side.
    let storm = Storm { directory: disk.join("tree"), files: FILES };
    let storm = Child::start(Role::Storm(storm), "storm", scratch.join("storm"));
    let from = agent.syncs().len();
    std::thread::sleep(Duration::from_secs(4));
    let until = agent.syncs().len();
    let changes: u64 = storm.stop().parse().expect("a number of changes");
    // One sync takes what it left.
    std::thread::sleep(Duration::from_millis(500));
    let quiet_again = agent.syncs().len();
    std::thread::sleep(Duration::from_secs(2));
    journal.stop();
    let (counted, thread) = (Counted::of(&disk), jbd2_thread(&disk));
    let syncs = agent.interrupt().syncs;
    syncs.iter().for_each(assert_whole);

    let commits = commits(&recording, thread);
    counted.assert_equal(&commits);
    assert_nobody_blamed(syncs[..quiet].iter().chain(&syncs[quiet_again..]));
    // What the CPU made slow, by proof of its rows, is another matter.
    let of_disk = |sync: &&Value| waited_for_cpu_ns(sync) * 2 < field::duration_ns(sync);
    let disturbed: Vec<&Value> = syncs[from..until].iter().filter(of_disk).collect();
    let named = disturbed.iter().filter(|sync| is_large(sync)).count();
    eprintln!("{changes} changes; {named} of {} syncs beside them say large", disturbed.len());
    assert!(disturbed.len() >= 20 && named * 10 >= disturbed.len() * 9, "{named} of {}", disturbed.len());
    for sync in disturbed.iter().filter(|sync| is_large(sync)) {
        assert_eq!((field::text(sync, "/confidence"), &sync["culprit"]), ("likely", &Value::Null), "{sync}");
    }
}

#[test]
fn a_slow_disk_under_small_commits_does_not_make_them_large() {
    skip_if!(Format::Ext4.missing());
    let _machine = Machine::lock();
    let scratch = Scratch::new("small");
    let lower = LoopFs::alone(&scratch, "lower", Format::Ext4WithoutJournal, 256);
    let disk = LoopFs::stacked(&scratch, "disk", Format::Ext4, 64, &lower);
    let agent = Agent::watch(&["--threshold", "0", "--file", "*/1.txn"]);
    let journal = journal(&disk).spawn();
    std::thread::sleep(Duration::from_secs(2));
    let writer = Direct {
        file: lower.join("segment.data"),
        direction: Direction::Write,
        chunk: 16 << 20,
        region: 128 << 20,
        pause_us: 0,
    };
    let quiet = mean_ns(&agent.syncs());
    let writer = Child::start(Role::Direct(writer), "neighbour", scratch.join("writer"));
    let from = agent.syncs().len();
    std::thread::sleep(Duration::from_secs(3));
    let slow = mean_ns(&agent.syncs()[from..]);
    writer.stop();
    journal.stop();
    let syncs = agent.interrupt().syncs;
    syncs.iter().for_each(assert_whole);
    eprintln!("{quiet} ns on average, {slow} beside the neighbour");
    assert!(slow > 3 * quiet, "the neighbour was not felt");
    let large: Vec<&Value> = syncs.iter().filter(|sync| is_large(sync)).collect();
    assert!(large.is_empty(), "{large:#?}");
}

/// Whether a sync is said to have waited for a large commit.
fn is_large(sync: &Value) -> bool {
    field::text(sync, "/cause") == "journal_commit" && sync["evidence"].to_string().contains(LARGE)
}

fn mean_ns(syncs: &[Value]) -> u64 {
    syncs.iter().map(field::duration_ns).sum::<u64>() / syncs.len().max(1) as u64
}

/// The commits of one journal in a recording, in their order.
fn commits(recording: &Path, thread: u32) -> Vec<Commit> {
    let events = record::read(BufReader::new(File::open(recording).expect("open the recording")));
    let commit = |event| match event {
        Ok(Event::Commit(commit)) if commit.tid == thread => Some(commit),
        _ => None,
    };
    events.filter_map(commit).collect()
}

/// What the kernel itself counts of a journal since the mount, in whole numbers.
struct Counted {
    transactions: u64,
    operations_each: u64,
    blocks_each: u64,
}

impl Counted {
    fn of(disk: &LoopFs) -> Self {
        let path = format!("/proc/fs/jbd2/{}-8/info", disk.device_name());
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let number = |what: &str| {
            let line = text.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("no {what}: {text}"));
            line.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{line}"))
        };
        Self {
            transactions: number(" transactions ("),
            operations_each: number("handles per transaction"),
            blocks_each: number("logged blocks per transaction"),
        }
    }

    /// The averages are cut to whole numbers.
    fn assert_equal(&self, commits: &[Commit]) {
        let Self { transactions, operations_each, blocks_each } = *self;
        // The kernel was asked while the agent still watched.
        let counted = &commits[..(transactions as usize).min(commits.len())];
        let told = counted.len() as u64;
        let operations = counted.iter().map(|commit| u64::from(commit.operations)).sum::<u64>();
        let blocks = counted.iter().map(|commit| u64::from(commit.blocks)).sum::<u64>();
        eprintln!("kernel: {transactions} commits of {operations_each} operations and {blocks_each} blocks on average");
        eprintln!("agent: {told} commits, {operations} operations, {blocks} blocks");
        assert_eq!((told, operations / told, blocks / told), (transactions, operations_each, blocks_each));
        for pair in commits.windows(2) {
            let (before, next) = (&pair[0].before, &pair[1].before);
            assert_eq!((before.count + 1, before.blocks + u64::from(pair[0].blocks)), (next.count, next.blocks));
        }
    }
}
