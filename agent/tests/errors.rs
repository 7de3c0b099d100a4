//! Syncs that fail: each is told with the error that the caller got, and counted by it.

mod support;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use fsyncscope::report::errno_name;
use serde_json::Value;

use support::agent::{Agent, field};
use support::scratch::{Format, LoopFs, Scratch};
use support::{Machine, wait_for};

/// Pieces that are written: more than any of the disks takes.
const PIECES: u64 = 40;
const CHUNK: usize = 1 << 20;
/// Syncs of a filesystem that fails without sleeping.
const SYNCS: usize = 17;

/// How large a disk claims to be, and what its memory really holds: the filesystem's own tables and log, and some pieces.
fn mebibytes(format: Format) -> (u64, u64) {
    match format {
        Format::Ext4 | Format::Ext4WithoutJournal => (64, 24),
        Format::Xfs => (Format::Xfs.mebibytes(), 90),
        Format::Btrfs => (Format::Btrfs.mebibytes(), 40),
    }
}

/// Writes more than the disk can take, syncs after each piece, and gives what each sync gave.
fn fill(disk: &LoopFs) -> Vec<Value> {
    let file = File::create(disk.join("1.txn")).expect("create the journal");
    let mut results = Vec::new();
    for number in 0..PIECES {
        write(&file, number);
        results.push(result(file.sync_data()));
    }
    results
}

/// Nothing that the disk below could leave out. A filesystem that has given up takes no more.
fn write(file: &File, number: u64) {
    let piece: Vec<u8> = (0..CHUNK).map(|byte| (byte as u64 * 31 + number) as u8).collect();
    let _ = file.write_all_at(&piece, number * CHUNK as u64);
}

/// What a sync gave, as it is to be told.
fn result(given: std::io::Result<()>) -> Value {
    match given {
        Ok(()) => Value::from(0),
        Err(error) => errno_name(-error.raw_os_error().expect("an error of the kernel")).into(),
    }
}

/// Syncs of this thread on a disk, in their order.
fn own(agent: &Agent, disk: &LoopFs) -> Vec<Value> {
    // SAFETY: the call takes nothing and cannot fail.
    let tid = unsafe { libc::gettid() } as u64;
    let own = |sync: &Value| field::number(sync, "/thread/tid") == tid && sync["device"]["name"] == *disk.device_name();
    agent.syncs().into_iter().filter(own).collect()
}

fn every_error_is_told(format: Format) {
    skip_if!(format.missing());
    let _machine = Machine::lock();
    let scratch = Scratch::new("errors");
    let (size, room) = mebibytes(format);
    let disk = LoopFs::short(&scratch, "disk", format, size, room);
    let agent = Agent::run(&["--threshold", "0", "--lines", "100000"]);
    let results = fill(&disk);
    let told = || own(&agent, &disk).into_iter().map(|sync| sync["result"].clone()).collect::<Vec<_>>();
    // A filesystem that has given up refuses the next sync: before any event, right after its own, or on btrfs without a
    // sleep, so that its result is not seen.
    let results = without_refusals(&results);
    let all = wait_for(Duration::from_secs(5), || (told().len() >= results.len()).then_some(()));
    let told = told();
    let (told, refused) = told.split_at(told.len().min(results.len()));
    eprintln!("{:?} of {}, {} refused", by_error(results), results.len(), refused.len());
    assert!(results.iter().any(Value::is_string), "nothing failed: {results:?}");
    assert!(all.is_some() && told == results, "{told:?} instead of {results:?}");
    assert!(refused.iter().all(|result| result.is_null() || *result == "EROFS"), "{refused:?}");
    assert_counted(&agent, &disk, results);
    agent.terminate();
}

/// The metric counts as many of each error.
fn assert_counted(agent: &Agent, disk: &LoopFs, results: &[Value]) {
    let counted = wait_for(Duration::from_secs(5), || {
        let samples = agent.scrape();
        let labels = [("device", disk.device_name())];
        let of = |error: &str| samples.sum("fsyncscope_sync_errors_total", &[labels[0], ("error", error)]);
        by_error(results).into_iter().all(|(error, count)| of(&error) == count as f64).then_some(())
    });
    assert!(counted.is_some(), "the metric counts otherwise than {:?}", by_error(results));
}

/// All but the last ones, if those are refusals of a filesystem that can only be read by now.
fn without_refusals(results: &[Value]) -> &[Value] {
    let refusals = results.iter().rev().take_while(|result| *result == "EROFS").count();
    &results[..results.len() - refusals]
}

fn by_error(results: &[Value]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for error in results.iter().filter_map(Value::as_str) {
        *counts.entry(error.to_owned()).or_default() += 1;
    }
    counts
}

#[test]
fn a_failing_disk_under_ext4_without_a_journal() {
    every_error_is_told(Format::Ext4WithoutJournal);
}

/// The journal is given up at the first error, and the filesystem takes no more.
#[test]
fn a_failing_disk_under_ext4_with_a_journal() {
    every_error_is_told(Format::Ext4);
}

#[test]
fn a_failing_disk_under_xfs() {
    every_error_is_told(Format::Xfs);
}

/// The transaction is given up at the first error, and the filesystem takes no more.
#[test]
fn a_failing_disk_under_btrfs() {
    every_error_is_told(Format::Btrfs);
}

/// A sync that does not sleep is not seen to return: one that fails is told all the same, one that does not, as not known.
#[test]
fn errors_of_xfs_that_no_sync_waited_for() {
    skip_if!(Format::Xfs.missing());
    let _machine = Machine::lock();
    let scratch = Scratch::new("errors");
    let (size, room) = mebibytes(Format::Xfs);
    let disk = LoopFs::short(&scratch, "disk", Format::Xfs, size, room);
    let file = File::create(disk.join("1.txn")).expect("create the journal");
    (0..PIECES).for_each(|number| write(&file, number));
    // SAFETY: the descriptor is open for as long as the file lives.
    let written = unsafe { libc::syncfs(file.as_raw_fd()) };
    assert_eq!(written, -1, "the disk took all of it");
    let directory = File::open(disk.path()).expect("open the directory");
    directory.sync_all().expect("sync the directory");
    let agent = Agent::run(&["--threshold", "0", "--lines", "100000"]);
    // The first meets what the writeback of the others' call met.
    let mut results: Vec<Value> = (0..SYNCS).map(|_| result(file.sync_all())).collect();
    shut_down(&directory);
    results.extend((0..SYNCS).map(|_| result(file.sync_all())));
    results.extend((0..SYNCS).map(|_| result(directory.sync_all())));
    let told = wait_for(Duration::from_secs(5), || {
        let told = own(&agent, &disk);
        (told.len() >= results.len()).then_some(told)
    });
    let told = told.unwrap_or_else(|| panic!("too few records: {}", own(&agent, &disk).len()));
    eprintln!("{:?} of {}", by_error(&results), results.len());
    assert_eq!(by_error(&results).values().sum::<usize>(), SYNCS + 1, "{results:?}");
    for (result, sync) in results.iter().zip(&told) {
        let unseen = sync["after_ns"].is_null() && *result == 0;
        assert!(sync["result"] == *result || unseen && sync["result"].is_null(), "{result} is told as {sync}");
    }
    assert_counted(&agent, &disk, &results);
    agent.terminate();
}

/// Shuts a filesystem of XFS down, as it does itself when its log fails.
fn shut_down(directory: &File) {
    const GOING_DOWN: libc::c_ulong = 0x8004_587d;
    let without_its_log: u32 = 2;
    // SAFETY: the call reads a number that outlives it.
    let done = unsafe { libc::ioctl(directory.as_raw_fd(), GOING_DOWN, &raw const without_its_log) };
    assert_eq!(done, 0, "shut the filesystem down: {}", std::io::Error::last_os_error());
}

/// Two syncs in a row through one descriptor: the first never sleeps, and the second is none that is traced.
#[test]
fn a_sync_that_never_slept_is_not_taken_for_the_next_call() {
    for format in [Format::Xfs, Format::Btrfs] {
        skip_if!(format.missing());
        let _machine = Machine::lock();
        let scratch = Scratch::new("errors");
        let disk = LoopFs::alone(&scratch, "disk", format, format.mebibytes());
        let other = LoopFs::new(&scratch, "other", Format::Ext4WithoutJournal, 64);
        let device = File::options().write(true).open(other.device()).expect("open a disk itself");
        let path = disk.join("directory");
        fs::create_dir(&path).and_then(|()| File::open(&path)?.sync_all()).expect("make a directory");
        let agent = Agent::run(&["--threshold", "0", "--lines", "100000"]);
        for _ in 0..SYNCS {
            let file = File::open(&path).expect("open the directory");
            // The second has something to wait for.
            device.write_all_at(&[0x62; 4096], 60 << 20).expect("write to a disk");
            // What is closed for good is cleaned up on the way to user mode, which would be seen.
            let _open = file.try_clone().expect("keep the directory open");
            // The same in all registers that tell calls apart.
            // SAFETY: the call takes numbers only.
            let sync = || unsafe { libc::syscall(libc::SYS_fsync, file.as_raw_fd(), 0, 0) };
            let first = sync();
            // SAFETY: both descriptors are open, and the file keeps its own.
            assert!(unsafe { libc::dup2(device.as_raw_fd(), file.as_raw_fd()) } >= 0);
            assert_eq!([first, sync()], [0; 2]);
        }
        File::create(disk.join("last")).and_then(|file| file.sync_all()).expect("sync another file");
        let told = wait_for(Duration::from_secs(5), || {
            let told = own(&agent, &disk);
            (told.len() > SYNCS).then_some(told)
        });
        let told = told.unwrap_or_else(|| panic!("too few records: {}", own(&agent, &disk).len()));
        let seen = told[..SYNCS].iter().filter(|sync| !sync["after_ns"].is_null() || !sync["result"].is_null());
        // What interrupts one of them may put it aside, and then it is seen.
        assert!(seen.clone().count() * 4 < SYNCS, "{:?}", seen.collect::<Vec<_>>());
        assert_eq!((&told[SYNCS]["result"], told.len()), (&Value::from(0), SYNCS + 1));
        agent.terminate();
    }
}
