//! Threads and processes that change their names between syncs: each sync has the name of its time.

mod support;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use support::agent::{Agent, field};
use support::scratch::{Format, LoopFs, Scratch};
use support::{Machine, wait_for};

const NAMES: [&str; 2] = ["before-rename", "after-rename"];
const SYNCS: usize = 31;
/// Shorter and longer than the time between two polls of the agent.
const PAUSES_MS: [u64; 3] = [0, 30, 500];

#[test]
fn a_renamed_thread_is_wanted_by_the_name_that_it_has() {
    skip_if!(Format::Ext4WithoutJournal.missing());
    let _machine = Machine::lock();
    let scratch = Scratch::new("renamed");
    let disk = LoopFs::new(&scratch, "disk", Format::Ext4WithoutJournal, 64);
    for (wanted, pause_ms) in NAMES.iter().flat_map(|name| PAUSES_MS.map(|pause_ms| (*name, pause_ms))) {
        // A selector has to fit something that runs.
        let bearer = std::thread::Builder::new().name(wanted.into());
        let bearer = bearer.spawn(std::thread::park).expect("start a thread");
        let agent = Agent::watch(&["--threshold", "0", "--thread", wanted]);
        let (file, pause) = (disk.join(wanted), Duration::from_millis(pause_ms));
        let renamed = std::thread::Builder::new().name(NAMES[0].into()).spawn(move || sync_under_both(&file, pause));
        renamed.expect("start a thread").join().expect("the thread syncs");
        std::thread::sleep(Duration::from_millis(500));
        let ended = agent.interrupt();
        bearer.thread().unpark();
        let names: Vec<&str> = ended.syncs.iter().map(|sync| field::text(sync, "/thread/name")).collect();
        assert_eq!(names, [wanted; SYNCS], "after {pause_ms} ms: {:?}", ended.said);
    }
}

#[test]
fn a_process_has_the_name_of_the_program_that_it_executes() {
    skip_if!(Format::Ext4WithoutJournal.missing());
    let _machine = Machine::lock();
    let scratch = Scratch::new("executed");
    let disk = LoopFs::new(&scratch, "disk", Format::Ext4WithoutJournal, 64);
    let file = disk.join("executed");
    let agent = Agent::watch(&["--threshold", "0", "--file", "*/executed"]);
    let script =
        "open(F, '>>', $ARGV[0]) or die; for (1..3) { syswrite(F, 'x'); F->sync or die } exec 'sync', $ARGV[0]";
    let status = Command::new("perl").args(["-MIO::Handle", "-e", script]).arg(&file).status().expect("run perl");
    assert!(status.success(), "{status}");
    let wanted = ["perl", "perl", "perl", "sync"];
    let all = wait_for(Duration::from_secs(5), || (agent.syncs().len() >= wanted.len()).then_some(()));
    let ended = agent.interrupt();
    assert!(all.is_some(), "not all were told: {:#?}", ended.syncs);
    let of = |sync: &Value| (field::text(sync, "/process/name").to_owned(), field::number(sync, "/process/pid"));
    let told: Vec<(String, u64)> = ended.syncs.iter().map(of).collect();
    assert_eq!(told, wanted.map(|name| (name.to_owned(), told[0].1)), "one process, two programs");
}

/// Syncs a file under the thread's first name, then under the second.
fn sync_under_both(path: &Path, pause: Duration) {
    sync(path);
    // The agent hears of the first name before the second is taken, or after: neither may decide over the other.
    std::thread::sleep(pause);
    let name = std::ffi::CString::new(NAMES[1]).expect("a name without a zero");
    // SAFETY: the name ends with a zero.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) }, 0);
    sync(path);
}

/// A log that is made in a directory of another name, as etcd makes its own, is named by the one that it has since.
#[test]
fn a_file_whose_directory_is_renamed_has_its_new_path() {
    skip_if!(Format::Ext4.missing());
    let _machine = Machine::lock();
    let scratch = Scratch::new("moved");
    let disk = LoopFs::new(&scratch, "disk", Format::Ext4, 64);
    let agent = Agent::watch(&["--threshold", "0", "--file", "*/wal/*"]);
    std::fs::create_dir(disk.join("wal.tmp")).expect("create a directory");
    let file = std::fs::File::create(disk.join("wal.tmp/0.wal")).expect("create a log");
    file.sync_data().expect("sync it");
    std::fs::rename(disk.join("wal.tmp"), disk.join("wal")).expect("rename its directory");
    for _ in 0..5 {
        std::io::Write::write_all(&mut &file, b"entry").and_then(|()| file.sync_data()).expect("sync it again");
    }
    let ended = agent.interrupt();
    assert_eq!(ended.syncs.len(), 5, "{}", ended.said.join("; "));
}

fn sync(path: &Path) {
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path).expect("open the file");
    for _ in 0..SYNCS {
        std::io::Write::write_all(&mut &file, b"x").expect("write the file");
        file.sync_data().expect("sync the file");
    }
}
