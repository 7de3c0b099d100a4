//! A job: a filesystem on the device mapper, which hands its writes to the disk below at once, after a known delay, or
//! not at all.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::guest::{disk, mount, unmount};
use super::support::agent::Agent;
use super::support::journal::{Operation, Workload};
use super::support::scratch::Format;
use super::support::{find, run, wait_for};

/// Syncs of each journal.
const SYNCS: u64 = 41;
/// What a write is held back by the target that delays, in ms.
pub const DELAY_MS: u64 = 53;

/// What is stacked on which disk.
const STACKS: [(&str, Format, &str); 3] =
    [("ext4", Format::Ext4, "linear"), ("ext4", Format::Ext4, "delay"), ("bare", Format::Ext4WithoutJournal, "delay")];

pub fn go() -> Value {
    let found: Vec<Value> = STACKS.iter().map(|(serial, format, target)| on(serial, *format, target)).collect();
    json!({ "stacks": found })
}

fn on(serial: &str, format: Format, target: &str) -> Value {
    let lower = disk(serial);
    let upper = Upper::new(&lower, target);
    let place = Path::new("/stack");
    std::fs::create_dir_all(place).expect("make a place for a disk");
    mount(&upper.node.to_string_lossy(), format.kernel_name(), place);
    let agent = Agent::watch(&["--threshold", "0"]);
    let journal = |thread: &str, count: u64| {
        let mut workload = Workload::new(thread, place.join(thread));
        workload.count = Some(count);
        workload.spawn().wait()
    };
    // The disk below is watched once the agent has told that there is one.
    let first = journal("first", 1);
    let is_told = || agent.syncs().iter().any(|sync| sync["thread"]["name"] == "first").then_some(());
    let watched = wait_for(Duration::from_secs(20), is_told).is_some();
    let book = journal("journal", SYNCS);
    upper.fail();
    let failed = journal("failing", 1);
    let syncs = agent.interrupt().syncs;
    unmount(place);
    let told = |book: &[Operation]| -> Vec<Value> {
        book.iter().map(|each| json!([each.start_ns, each.end_ns, each.error])).collect()
    };
    let number = std::fs::metadata(&lower).expect("look at the disk").rdev();
    json!({
        "disk": serial, "target": target, "watched": watched, "first": told(&first), "book": told(&book),
        "failed": told(&failed),
        "syncs": syncs, "lower": [libc::major(number), libc::minor(number)],
    })
}

/// A device of the device mapper, removed when dropped.
struct Upper {
    node: PathBuf,
}

impl Upper {
    const NAME: &str = "upper";

    fn new(lower: &Path, target: &str) -> Self {
        let name = lower.file_name().expect("a disk has a name");
        let sectors = std::fs::read_to_string(Path::new("/sys/class/block").join(name).join("size"));
        let sectors = sectors.expect("read the disk's size").trim().to_owned();
        let below = lower.display();
        let table = match target {
            "delay" => format!("0 {sectors} delay {below} 0 0 {below} 0 {DELAY_MS}"),
            _ => format!("0 {sectors} linear {below} 0"),
        };
        dmsetup(&["create", Self::NAME, "--table", &table]);
        Self { node: Path::new("/dev/mapper").join(Self::NAME) }
    }

    /// From now on each read and write fails.
    fn fail(&self) {
        dmsetup(&["wipe_table", "--noflush", Self::NAME]);
    }
}

impl Drop for Upper {
    fn drop(&mut self) {
        // What failed already left its filesystem mounted; only the first failure is of interest.
        if std::thread::panicking() {
            return;
        }
        dmsetup(&["remove", "--retry", Self::NAME]);
    }
}

fn dmsetup(arguments: &[&str]) {
    let program = find("dmsetup").expect("it is in the image");
    // There is no daemon that would make the nodes.
    run(Command::new(program).args(arguments).env("DM_DISABLE_UDEV", "1"));
}
