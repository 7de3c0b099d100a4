//! Every door to durability, counted against the client's own book: one record for each operation and file, with the right
//! thread, operation, file, device and result, by typed programs and by raw ones; from one thread, from seven, and from a
//! process that exits right after.

mod support;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::Value;

use support::agent::{Agent, field};
use support::child::{Child, Role};
use support::client::{Client, Shape, book};
use support::doors::{About, DOORS, Door};
use support::ledger::Account;
use support::oracle::Oracle;
use support::rings::io_uring_missing;
use support::scratch::{Format, LoopFs, Scratch};
use support::{Machine, bpf, missing, wait_for};

const ALL: &[Format] = &[Format::Ext4, Format::Ext4WithoutJournal, Format::Xfs, Format::Btrfs];
const BTRFS: &[Format] = &[Format::Btrfs];

/// Doors that the agent does not see, or not as their rows say, and where: left out of the matrix.
const NOT_YET: [(&str, &[Format]); 20] = [
    ("fsync", BTRFS),
    ("fdatasync", BTRFS),
    ("o_dsync", BTRFS),
    ("o_sync", BTRFS),
    ("rwf_dsync", BTRFS),
    ("rwf_sync", BTRFS),
    ("msync", BTRFS),
    ("msync_two", BTRFS),
    ("fallocate", BTRFS),
    ("directory", &[Format::Xfs, Format::Btrfs]),
    // No door: whether a record says that its file is a directory.
    (DIRECTORY_FIELD, ALL),
    ("syncfs", ALL),
    ("sync", ALL),
    ("sync_file_range", ALL),
    ("fadvise", ALL),
    ("io_uring", ALL),
    ("io_uring_linked", ALL),
    ("io_uring_sqpoll", ALL),
    ("aio_fsync", ALL),
    ("aio_fdsync", ALL),
];
const DIRECTORY_FIELD: &str = "file.directory";

/// At a threshold of zero every wait is told with the queue around it: seven threads fill the usual 4 MiB in 200 ms,
/// which is two polls of an agent that itself waits for a CPU.
const AGENT: [&str; 4] = ["--threshold", "0", "--ring-bytes", "67108864"];

const SHAPES: [Shape; 3] = [Shape::Main, Shape::Threads(7), Shape::Exits];
/// Of one client. A slow disk under the scratch directory takes seconds.
const LIMIT: Duration = Duration::from_secs(120);

#[test]
fn every_door_of_ext4_with_a_journal_is_counted() {
    matrix(Format::Ext4, &[]);
}

#[test]
fn every_door_of_ext4_without_a_journal_is_counted() {
    matrix(Format::Ext4WithoutJournal, &[]);
}

#[test]
fn every_door_of_xfs_is_counted() {
    matrix(Format::Xfs, &[]);
}

#[test]
fn every_door_of_btrfs_is_counted() {
    matrix(Format::Btrfs, &[]);
}

#[test]
fn raw_programs_count_the_same() {
    matrix(Format::Ext4, &["--raw"]);
}

/// All doors that are seen, in all shapes, under as few agents as there are flags.
fn matrix(format: Format, arguments: &[&str]) {
    skip_if!(format.missing().or_else(io_uring_missing));
    let _machine = Machine::lock();
    let flags: BTreeSet<Option<&str>> = seen(format).map(|door| door.flag).collect();
    for flag in flags {
        let doors: Vec<&Door> = seen(format).filter(|door| door.flag == flag).collect();
        let arguments: Vec<&str> = arguments.iter().copied().chain(flag).collect();
        count(format, &arguments, &doors);
    }
}

fn seen(format: Format) -> impl Iterator<Item = &'static Door> {
    DOORS.iter().filter(move |door| !is_not_yet(door.name, format))
}

fn is_not_yet(name: &str, format: Format) -> bool {
    NOT_YET.iter().any(|(door, formats)| *door == name && formats.contains(&format))
}

fn count(format: Format, arguments: &[&str], doors: &[&'static Door]) {
    let scratch = Scratch::new("doors");
    let disk = LoopFs::alone(&scratch, "disk", format, format.mebibytes());
    let agent = Agent::watch(&[&AGENT[..], arguments].concat());
    assert_programs(&agent, arguments.contains(&"--raw"));
    let begun = Instant::now();
    let cells = doors.iter().flat_map(|door| SHAPES.map(|shape| (*door, shape)));
    let accounts: Vec<Account> = cells.map(|(door, shape)| go(door, shape, door.count, &scratch, &disk)).collect();
    let owed: usize = accounts.iter().map(Account::owed).sum();
    let all = wait_for(Duration::from_secs(10), || (agent.printed() >= owed).then_some(()));
    let ended = agent.interrupt();
    assert!(ended.status.success(), "{}", ended.said.join("; "));
    eprintln!("{format:?} {arguments:?}: {} of {owed} records, {:.1?}", ended.syncs.len(), begun.elapsed());
    let mut wrong = strangers(&ended.syncs, &accounts, &disk);
    if !is_not_yet(DIRECTORY_FIELD, format) {
        wrong.extend(wrong_directories(&ended.syncs, &accounts));
    }
    for account in &accounts {
        let (faults, distances) = account.compare(&ended.syncs, &disk, format);
        wrong.extend(faults.sentences(&account.name()));
        for distance in distances {
            eprintln!("{:24} {distance:?}", account.name());
            if !distance.is_allowed() {
                wrong.push(format!("{}: durations lie too far apart: {distance:?}", account.name()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), ended.said.join("\n"));
    assert!(all.is_some(), "{} records of {owed}; {}", ended.syncs.len(), ended.said.join("; "));
}

/// Programs on events of the kernel are of one type, raw or typed.
fn assert_programs(agent: &Agent, raw: bool) {
    const RAW_TRACEPOINT: u32 = 17;
    const TRACING: u32 = 26;
    let types = bpf::types_of(agent.pid());
    let (own, other) = if raw { (RAW_TRACEPOINT, TRACING) } else { (TRACING, RAW_TRACEPOINT) };
    assert!(types.contains(&own) && !types.contains(&other), "{types:?}");
}

/// Lets a process go through a door, and gives its book.
fn go(door: &Door, shape: Shape, count: u64, scratch: &Scratch, disk: &LoopFs) -> Account {
    let client = Client { door: door.name.to_owned(), shape, count, directory: disk.path().to_owned() };
    let log = scratch.join(&format!("{}.{}.book", door.name, shape.name()));
    let child = Child::start(Role::Client(client.clone()), door.name, log);
    let pid = child.worker_tid();
    let book = book(&child.stop_within(LIMIT));
    assert_eq!(book.len() as u64, count * door.calls.len() as u64, "the book of {} is not whole", door.name);
    Account { client, pid, book }
}

/// Nobody else syncs on a disk of our own.
fn strangers(syncs: &[Value], accounts: &[Account], disk: &LoopFs) -> Vec<String> {
    let (major, minor) = disk.number();
    let ours =
        |sync: &Value| accounts.iter().any(|account| field::number(sync, "/process/pid") == u64::from(account.pid));
    let on_disk = |sync: &&Value| sync["device"]["major"] == major && sync["device"]["minor"] == minor;
    syncs.iter().filter(on_disk).filter(|sync| !ours(sync)).map(|sync| format!("of nobody: {sync}")).collect()
}

/// Records that take a directory for a file, or a file for a directory.
fn wrong_directories(syncs: &[Value], accounts: &[Account]) -> Vec<String> {
    let of_directories =
        |account: &&Account| Door::named(&account.client.door).calls.iter().any(|call| call.about == About::Directory);
    let pids: BTreeSet<u64> = accounts.iter().filter(of_directories).map(|account| account.pid.into()).collect();
    let wrong = syncs.iter().filter(|sync| {
        let is_directory = pids.contains(&field::number(sync, "/process/pid"));
        !sync["file"].is_null() && sync["file"]["directory"] != Value::Bool(is_directory)
    });
    wrong.take(1).map(|sync| format!("not told from a file: {sync}")).collect()
}

/// What stands in the list and is seen by now would be left out of the matrix for nothing.
#[test]
fn a_door_that_is_left_out_is_not_seen() {
    const FEW: u64 = 7;
    skip_if!(
        Format::Ext4
            .missing()
            .or_else(|| Format::Btrfs.missing())
            .or_else(|| Format::Xfs.missing())
            .or_else(io_uring_missing)
    );
    let _machine = Machine::lock();
    for format in ALL {
        let scratch = Scratch::new("unseen");
        let disk = LoopFs::alone(&scratch, "disk", *format, format.mebibytes());
        let agent = Agent::watch(&AGENT);
        // One behind a flag is not seen without it, now or later.
        let doors = DOORS.iter().filter(|door| is_not_yet(door.name, *format) && door.flag.is_none());
        let accounts: Vec<Account> = doors.map(|door| go(door, Shape::Main, FEW, &scratch, &disk)).collect();
        let syncs = agent.interrupt().syncs;
        let seen = |account: &&Account| account.compare(&syncs, &disk, *format).0.sentences("").is_empty();
        let seen: Vec<String> = accounts.iter().filter(seen).map(Account::name).collect();
        assert!(seen.is_empty(), "{format:?}: to be taken from the list: {seen:?}");
    }
}

#[test]
fn a_client_makes_the_calls_of_its_book() {
    const CALLS: u64 = 97;
    skip_if!(missing(&["strace"]).or_else(|| Format::Btrfs.missing()).or_else(io_uring_missing));
    let _machine = Machine::lock();
    let scratch = Scratch::new("clients");
    let disk = LoopFs::alone(&scratch, "disk", Format::Btrfs, Format::Btrfs.mebibytes());
    for door in &DOORS {
        let client = Client {
            door: door.name.to_owned(),
            shape: Shape::Threads(7),
            count: CALLS,
            directory: disk.path().to_owned(),
        };
        let child = Child::start(Role::Client(client), door.name, scratch.join(&format!("{}.book", door.name)));
        let names: BTreeSet<&str> = door.calls.iter().map(|call| call.system_call).collect();
        let oracle = Oracle::attach(&scratch, child.worker_tid(), &names.iter().copied().collect::<Vec<_>>().join(","));
        let book = book(&child.stop_within(LIMIT));
        let trace = oracle.stop();
        for (number, call) in door.calls.iter().enumerate() {
            let of_call = |entry: &&support::client::Entry| entry.call == number;
            let mut noted: Vec<u32> = book.iter().filter(of_call).map(|entry| entry.tid).collect();
            let made = trace.calls.iter().filter(|made| made.name == call.system_call && made.result >= 0);
            let mut made: Vec<u32> = made.map(|made| made.tid).collect();
            noted.sort_unstable();
            made.sort_unstable();
            assert_eq!(noted.len() as u64, CALLS, "{}", door.name);
            assert_eq!(noted, made, "{}: the book against strace, {}", door.name, call.system_call);
        }
        assert!(book.iter().all(|entry| entry.error == 0), "{}: the client itself failed", door.name);
    }
}
