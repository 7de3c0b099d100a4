//! What a guest is asked to do. A job only does and tells; the host judges.

use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::guest::mount_disk;
use super::support::agent::Agent;
use super::support::journal::{Durability, Workload};
use super::support::wait_for;

pub struct Job {
    pub name: &'static str,
    /// What the disks of the filesystems do at most, so that a sync is spent waiting for them.
    pub writes_a_second: u32,
    pub run: fn() -> Value,
}

/// Syncs of each journal in the next two; primes, so that no batch divides them.
const MANY: u64 = 997;
const FEW: u64 = 41;
pub const MANY_SYNCS: Job = Job { name: "many-syncs", writes_a_second: 1000, run: || journals(MANY) };
pub const FEW_SYNCS: Job = Job { name: "few-syncs", writes_a_second: 100, run: || journals(FEW) };
pub const JOBS: [Job; 2] = [MANY_SYNCS, FEW_SYNCS];

const FILESYSTEMS: [&str; 2] = ["ext4", "xfs"];
const WAYS: [(&str, Durability); 3] =
    [("fsync", Durability::Fsync), ("fdatasync", Durability::Fdatasync), ("o_dsync", Durability::DsyncWrite)];

/// On each filesystem, journals that make their bytes durable in three ways, and what the agent tells of them.
fn journals(count: u64) -> Value {
    let places = FILESYSTEMS.map(mount_disk);
    let doctors = FILESYSTEMS.map(doctor);
    let agent = Agent::watch(&["--threshold", "0"]);
    let mut ways = Vec::new();
    for (filesystem, place) in FILESYSTEMS.iter().zip(&places) {
        for (word, durability) in WAYS {
            let thread = format!("{filesystem}-{word}");
            let file = place.join(&thread);
            let mut workload = Workload::new(&thread, file.clone());
            workload.durability = durability;
            workload.count = Some(count);
            let journal = workload.spawn();
            let tid = journal.tid();
            let book = journal.wait();
            let about = std::fs::metadata(&file).expect("look at the journal's file");
            let book: Vec<Value> = book.iter().map(|each| json!([each.start_ns, each.end_ns, each.error])).collect();
            let dev = [libc::major(about.dev()), libc::minor(about.dev())];
            ways.push(json!({
                "filesystem": filesystem, "operation": word, "thread": thread, "tid": tid, "path": file, "inode": about.ino(), "dev": dev,
                "book": book,
            }));
        }
    }
    let all = ways.len() * count as usize;
    wait_for(Duration::from_secs(5), || (agent.printed() >= all).then_some(()));
    let ended = agent.interrupt();
    json!({
        "release": std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim(),
        "doctors": doctors, "ways": ways, "syncs": ended.syncs, "said": ended.said, "status": ended.status.code(),
    })
}

/// What `doctor` says of a filesystem.
fn doctor(filesystem: &str) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fsyncscope"));
    let output = command.args(["doctor", "--json", "--canary", &format!("/{filesystem}")]).output();
    let output = output.expect("start doctor");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    json!({ "filesystem": filesystem, "report": report, "said": String::from_utf8_lossy(&output.stderr) })
}
