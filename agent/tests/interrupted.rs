//! Syncs whose thread is killed, stopped or frozen while they run: each is shown while it runs, told once when it ends, and
//! leaves nothing in the kernel's tables.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use support::agent::{Agent, field};
use support::child::{Child, Role};
use support::faults::Frozen;
use support::journal::{Operation, Workload, book};
use support::scratch::{Format, LoopFs, Scratch};
use support::verdict::assert_whole;
use support::{Machine, bpf, missing, skipped, wait_for};

const FORMATS: [Format; 3] = [Format::Ext4, Format::Xfs, Format::Btrfs];
/// How long a process stays interrupted after its sync could end.
const ASIDE: Duration = Duration::from_millis(1500);

/// A journal whose sync hangs, since the disk below takes no write.
struct Hanging<'a> {
    agent: Agent,
    journal: Child,
    open: Value,
    fault: Frozen<'a>,
}

impl<'a> Hanging<'a> {
    fn new(scratch: &Scratch, lower: &'a LoopFs, disk: &LoopFs) -> Self {
        let workload = Workload::new("journal", disk.join("1.txn"));
        let journal = Child::start(Role::Journal(workload), "journal", scratch.join("book"));
        let agent = Agent::watch(&["--threshold", "500ms", "--process", "journal"]);
        std::thread::sleep(Duration::from_millis(300));
        let fault = Frozen::new(lower);
        let open = agent.wait_for_sync(Duration::from_secs(4), |sync| sync["open"] == true);
        let open = open.expect("a sync that hangs was not shown");
        assert_eq!(field::number(&open, "/thread/tid"), u64::from(journal.worker_tid()));
        Self { agent, journal, open, fault }
    }
}

/// How often a sync was shown while it ran, and what was told at its end.
fn told(agent: &Agent, id: u64) -> (usize, Vec<Value>) {
    let own: Vec<Value> = agent.syncs().into_iter().filter(|sync| sync["id"] == id).collect();
    let (open, ended): (Vec<Value>, Vec<Value>) = own.into_iter().partition(|sync| sync["open"] == true);
    (open.len(), ended)
}

/// Waits until a sync is told as ended, and wants it told once.
fn end_of(agent: &Agent, id: u64) -> Value {
    let ended = agent.wait_for_sync(Duration::from_secs(10), |sync| sync["id"] == id && sync["open"] == false);
    let ended = ended.expect("the sync was not told when it ended");
    assert_eq!(told(agent, id).1.len(), 1);
    assert_whole(&ended);
    ended
}

fn assert_nothing_watched(agent: &Agent) {
    let left = || bpf::watched_threads(agent.pid());
    let none = wait_for(Duration::from_secs(5), || left().is_empty().then_some(()));
    assert!(none.is_some(), "threads {:?} have ended and keep their places", left());
}

/// Does something to each journal while its sync hangs.
fn on_each_filesystem(interrupt: impl Fn(Format, Hanging)) {
    skip_if!(missing(&["bpftool"]).or_else(|| FORMATS.into_iter().find_map(Format::missing)));
    let _machine = Machine::lock();
    for format in FORMATS {
        let scratch = Scratch::new("interrupted");
        let lower = LoopFs::new(&scratch, "lower", Format::Ext4, 2 * format.mebibytes());
        let disk = LoopFs::stacked(&scratch, "disk", format, format.mebibytes(), &lower);
        interrupt(format, Hanging::new(&scratch, &lower, &disk));
    }
}

#[test]
fn a_process_that_is_killed_in_a_sync() {
    on_each_filesystem(|format, hanging| {
        let Hanging { agent, journal, open, fault } = hanging;
        let id = field::number(&open, "/id");
        journal.signal(libc::SIGKILL);
        let (before, _) = told(&agent, id);
        std::thread::sleep(ASIDE);
        let (after, ended) = told(&agent, id);
        assert!(after > before && ended.is_empty(), "{format:?}: shown {before} and {after} times, {ended:?}");
        drop(fault);
        let ended = end_of(&agent, id);
        eprintln!("{format:?}: {} {} {}", ended["duration_ns"], ended["after_ns"], ended["result"]);
        assert!(field::duration_ns(&ended) > field::duration_ns(&open));
        assert_nothing_watched(&agent);
        assert!(agent.interrupt().status.success());
    });
}

/// The sync is over, and its thread does not get back to user mode: that time is not the sync's.
fn assert_apart(format: Format, hanging: Hanging, aside: impl FnOnce(&Child), back: impl FnOnce(&Child)) {
    let Hanging { agent, journal, open, fault } = hanging;
    let id = field::number(&open, "/id");
    aside(&journal);
    drop(fault);
    std::thread::sleep(ASIDE);
    let (shown, ended) = told(&agent, id);
    std::thread::sleep(ASIDE);
    let (still, _) = told(&agent, id);
    assert_eq!((still, ended.len()), (shown, 0), "{format:?}: it is over, and shown as if it ran");
    back(&journal);
    let ended = end_of(&agent, id);
    let book = book(&journal.stop());
    let longest = book.iter().map(Operation::duration_ns).max().expect("it synced");
    let (took, after) = (field::duration_ns(&ended), field::number(&ended, "/after_ns"));
    eprintln!("{format:?}: {took} ns, {after} after it, {longest} by the book");
    assert_eq!(ended["result"], 0);
    // The disk needs a moment before the sync is over.
    let aside = 2 * ASIDE.as_nanos() as u64 - 100_000_000;
    assert!(after >= aside && took + after <= longest, "{ended}");
    assert!(longest - took - after < 20_000_000, "{longest} by the book, {ended}");
    assert_nothing_watched(&agent);
    assert!(agent.interrupt().status.success());
}

#[test]
fn a_process_that_is_stopped_in_a_sync() {
    let [stop, go] = [libc::SIGSTOP, libc::SIGCONT].map(|signal| move |journal: &Child| journal.signal(signal));
    on_each_filesystem(|format, hanging| assert_apart(format, hanging, stop, go));
}

#[test]
fn a_process_whose_control_group_is_frozen_in_a_sync() {
    let freezer = match Freezer::new() {
        Ok(freezer) => freezer,
        Err(why) => return skipped(&why),
    };
    on_each_filesystem(|format, hanging| {
        assert_apart(format, hanging, |journal| freezer.freeze(journal.pid()), |_| freezer.thaw());
    });
}

/// A control group of version 1 or 2 that holds what is in it, removed when dropped.
struct Freezer {
    group: PathBuf,
    /// The file, and what freezes and thaws.
    state: (&'static str, [&'static str; 2]),
}

impl Freezer {
    fn new() -> Result<Self, String> {
        let kinds = [
            ("/sys/fs/cgroup/freezer", ("freezer.state", ["FROZEN", "THAWED"])),
            ("/sys/fs/cgroup/unified", ("cgroup.freeze", ["1", "0"])),
            ("/sys/fs/cgroup", ("cgroup.freeze", ["1", "0"])),
        ];
        for (root, state) in kinds {
            let group = Path::new(root).join(format!("fsyncscope-frozen-{}", std::process::id()));
            if Path::new(root).join("cgroup.procs").exists() && fs::create_dir(&group).is_ok() {
                let made = Self { group, state };
                if made.group.join(state.0).exists() {
                    return Ok(made);
                }
            }
        }
        Err("needs a control group that can be frozen".into())
    }

    fn freeze(&self, pid: u32) {
        fs::write(self.group.join("cgroup.procs"), pid.to_string()).expect("move a process to a control group");
        fs::write(self.group.join(self.state.0), self.state.1[0]).expect("freeze a control group");
    }

    fn thaw(&self) {
        fs::write(self.group.join(self.state.0), self.state.1[1]).expect("thaw a control group");
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        let _ = fs::write(self.group.join(self.state.0), self.state.1[1]);
        if wait_for(Duration::from_secs(5), || fs::remove_dir(&self.group).ok()).is_none() {
            eprintln!("{} could not be removed", self.group.display());
        }
    }
}
