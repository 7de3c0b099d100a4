//! Syncs that fail: each is told with the error that the caller got, and counted by it.

mod support;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use fsyncscope::report::errno_name;
use serde_json::Value;

use support::agent::{Agent, field};
use support::scratch::{Format, LoopFs, Scratch};
use support::{Machine, wait_for};

const DISK_MIB: u64 = 64;
/// What its memory really holds.
const ROOM_MIB: u64 = 24;
const CHUNK: usize = 1 << 20;

/// Writes more than the disk can take, syncs after each piece, and gives what each sync gave.
fn fill(disk: &LoopFs) -> Vec<Value> {
    let file = File::create(disk.join("1.txn")).expect("create the journal");
    let mut results = Vec::new();
    for number in 0..DISK_MIB / 2 {
        // Nothing that the disk below could leave out. A filesystem that has given up takes no more.
        let piece: Vec<u8> = (0..CHUNK).map(|byte| (byte as u64 * 31 + number) as u8).collect();
        let _ = file.write_all_at(&piece, number * CHUNK as u64);
        results.push(match file.sync_data() {
            Ok(()) => Value::from(0),
            Err(error) => errno_name(-error.raw_os_error().expect("an error of the kernel")).into(),
        });
    }
    results
}

fn every_error_is_told(format: Format) {
    skip_if!(format.missing());
    let _machine = Machine::lock();
    let scratch = Scratch::new("errors");
    let disk = LoopFs::short(&scratch, "disk", format, DISK_MIB, ROOM_MIB);
    let agent = Agent::run(&["--threshold", "0", "--lines", "100000"]);
    let results = fill(&disk);
    let own = |sync: &Value| {
        field::number(sync, "/process/pid") == u64::from(std::process::id())
            && sync["device"]["name"] == *disk.device_name()
    };
    let told = || {
        let told: Vec<Value> = agent.syncs().into_iter().filter(own).map(|sync| sync["result"].clone()).collect();
        without_refusals(&told).to_vec()
    };
    // A filesystem that has given up refuses the next sync, before any event or right after its own.
    let results = without_refusals(&results);
    let all = wait_for(Duration::from_secs(5), || (told().len() >= results.len()).then_some(()));
    let labels = [("device", disk.device_name())];
    let counted = wait_for(Duration::from_secs(5), || {
        let samples = agent.scrape();
        let of = |error: &str| samples.sum("fsyncscope_sync_errors_total", &[labels[0], ("error", error)]);
        by_error(results).into_iter().all(|(error, count)| of(&error) == count as f64).then_some(())
    });
    eprintln!("{:?}", by_error(results));
    assert!(results.iter().any(Value::is_string), "nothing failed: {results:?}");
    assert!(all.is_some() && told() == results, "{:?} instead of {results:?}", told());
    assert!(counted.is_some(), "the metric counts otherwise than {:?}", by_error(results));
    agent.terminate();
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
