//! Many threads, many files, many processes: every sync is told or counted as lost, and the agent stays small.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use serde_json::Value;

use support::agent::{Agent, field};
use support::scratch::{Format, LoopFs, Scratch};
use support::verdict::assert_whole;
use support::{Machine, wait_for};

const FILES: usize = 1000;
/// At once, where more than that come one after another.
const ABREAST: usize = 64;
/// What the DaemonSet grants, less the ring that these tests ask for beyond the usual one.
const RESIDENT_MIB: u64 = 256;
const RING: [&str; 2] = ["--ring-bytes", "67108864"];

/// A disk with many files, and an agent that tells every sync of this process on it.
struct Crowd {
    agent: Agent,
    files: Vec<PathBuf>,
    disk: LoopFs,
    _scratch: Scratch,
    _machine: Machine,
}

impl Crowd {
    fn new(name: &str) -> Self {
        let machine = Machine::lock();
        let scratch = Scratch::new(name);
        let disk = LoopFs::alone(&scratch, "disk", Format::Ext4, 128);
        let files: Vec<PathBuf> = (0..FILES).map(|number| disk.join(&format!("{number}.txn"))).collect();
        files.iter().for_each(|path| drop(File::create(path).expect("create a file")));
        let agent = Agent::watch(&[&["--threshold", "0"], &RING[..]].concat());
        Self { agent, files, disk, _scratch: scratch, _machine: machine }
    }

    /// What the agent told of this process on the disk, once it is as much as is owed; fails if it never is.
    fn told(self, owed: usize) -> Vec<Value> {
        let all = wait_for(Duration::from_secs(20), || (self.agent.printed() >= owed).then_some(()));
        let resident = resident_mib(self.agent.pid());
        let ended = self.agent.interrupt();
        let own = |sync: &Value| {
            field::number(sync, "/process/pid") == u64::from(std::process::id())
                && sync["device"]["name"] == *self.disk.device_name()
        };
        let told: Vec<Value> = ended.syncs.into_iter().filter(own).collect();
        let said = ended.said.join("; ");
        eprintln!("{} of {owed} told, {resident} MiB resident; {said}", told.len());
        told.iter().for_each(assert_whole);
        assert!(all.is_some() && told.len() == owed, "{} of {owed}: {said}", told.len());
        assert!(!said.contains("lost"), "{said}");
        assert!(resident < RESIDENT_MIB, "{resident} MiB");
        assert_eq!(wrong_paths(&told, &self.files), BTreeSet::new(), "another file's path");
        told
    }
}

fn resident_mib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the agent runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it says its memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") >> 10
}

/// Writes to a file and syncs it: gives the thread and the inode that a record owes.
fn sync(path: &PathBuf) -> (u64, u64) {
    let file = File::options().write(true).open(path).expect("open the file");
    std::io::Write::write_all(&mut &file, b"entry").and_then(|()| file.sync_data()).expect("sync it");
    // SAFETY: the call takes nothing and cannot fail.
    let tid = unsafe { libc::gettid() } as u64;
    (tid, file.metadata().expect("look at it").ino())
}

/// Thread and inode of each record, and how often.
fn pairs(all: impl Iterator<Item = (u64, u64)>) -> BTreeMap<(u64, u64), usize> {
    let mut counts = BTreeMap::new();
    all.for_each(|pair| *counts.entry(pair).or_default() += 1);
    counts
}

fn pair(sync: &Value) -> (u64, u64) {
    (field::number(sync, "/thread/tid"), field::number(sync, "/file/inode"))
}

fn wrong_paths(told: &[Value], files: &[PathBuf]) -> BTreeSet<String> {
    let inode = |path: &PathBuf| std::fs::metadata(path).expect("look at a file").ino();
    let by_inode: BTreeMap<u64, &PathBuf> = files.iter().map(|path| (inode(path), path)).collect();
    let right = |sync: &&Value| by_inode[&field::number(sync, "/file/inode")].to_str() == sync["file"]["path"].as_str();
    told.iter().filter(|sync| !right(sync)).map(|sync| sync["file"].to_string()).collect()
}

#[test]
fn ten_thousand_threads_that_sync_once_and_end() {
    const THREADS: usize = 10_000;
    skip_if!(Format::Ext4.missing());
    let crowd = Crowd::new("threads");
    let next = Arc::new(AtomicUsize::new(0));
    let files = Arc::new(crowd.files.clone());
    // Each starter has one thread at a time.
    let starters: Vec<_> = (0..ABREAST)
        .map(|_| {
            let (next, files) = (Arc::clone(&next), Arc::clone(&files));
            std::thread::spawn(move || {
                let mut made = Vec::new();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= THREADS {
                        return made;
                    }
                    let files = Arc::clone(&files);
                    let once = std::thread::spawn(move || sync(&files[number % FILES]));
                    made.push(once.join().expect("a thread that syncs"));
                }
            })
        })
        .collect();
    let made: Vec<(u64, u64)> = starters.into_iter().flat_map(|starter| starter.join().expect("a starter")).collect();
    let told = crowd.told(THREADS);
    assert_eq!(pairs(told.iter().map(pair)), pairs(made.into_iter()), "a thread or file of another's sync");
}

#[test]
fn five_hundred_threads_that_sync_at_once() {
    const THREADS: usize = 500;
    const ROUNDS: usize = 3;
    skip_if!(Format::Ext4.missing());
    let crowd = Crowd::new("abreast");
    let barrier = Arc::new(Barrier::new(THREADS));
    let threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let (barrier, path) = (Arc::clone(&barrier), crowd.files[number].clone());
            std::thread::spawn(move || {
                let round = |_| {
                    barrier.wait();
                    sync(&path)
                };
                (0..ROUNDS).map(round).collect::<Vec<_>>()
            })
        })
        .collect();
    let made: Vec<(u64, u64)> = threads.into_iter().flat_map(|thread| thread.join().expect("a thread")).collect();
    let told = crowd.told(THREADS * ROUNDS);
    assert_eq!(pairs(told.iter().map(pair)), pairs(made.into_iter()), "a thread or file of another's sync");
}

#[test]
fn a_storm_of_processes_beside_a_journal() {
    const SYNCS: usize = 1000;
    const PROCESSES: usize = 1500;
    skip_if!(Format::Ext4.missing());
    let crowd = Crowd::new("storm");
    let storm = std::thread::spawn(|| {
        for _ in 0..PROCESSES {
            let status = Command::new("true").status().expect("run a process");
            assert!(status.success(), "{status}");
        }
    });
    let made: Vec<(u64, u64)> = (0..SYNCS).map(|number| sync(&crowd.files[number])).collect();
    storm.join().expect("the storm");
    let told = crowd.told(SYNCS);
    assert_eq!(pairs(told.iter().map(pair)), pairs(made.into_iter()), "a thread or file of another's sync");
}
