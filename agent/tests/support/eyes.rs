//! A real broker's journal under both eyes: every call that strace sees make something durable on the broker's disk is
//! held against the agent's records, and both against what the broker itself counts. Knows no broker by name.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde_json::Value;

use super::agent::{Agent, Ended, field};
use super::matrix;
use super::oracle::{Oracle, SYNC_CALLS, SYNC_CALLS_AND_WRITES};
use super::scratch::{Format, LoopFs, Scratch};
use super::strace::{Call, Trace};
use super::verdict::assert_whole;
use super::{Machine, realtime_minus_monotonic_ns, unix_ns};

/// strace and the agent both give times in the past of a microsecond, rounded.
const ROUNDING_NS: u64 = 1000;

/// A server whose disk nobody else writes, with its own client.
pub trait Broker {
    /// The processes that it has while no client is connected; what they start later is followed.
    fn pids(&self) -> Vec<u32>;

    /// Makes its client write, and comes back when the last write was acknowledged.
    fn load(&self);

    /// Files that are open so that each write to them is durable when it returns: strace shows no flags of a file.
    fn writes_through(&self) -> Option<Through> {
        None
    }

    /// How many of its syncs the broker has counted, where it counts.
    fn counted(&self) -> Option<u64> {
        None
    }

    /// Whether it counts this one.
    fn counts(&self, _call: &Call) -> bool {
        true
    }
}

/// Files whose writes are syncs.
#[derive(Clone, Copy)]
pub struct Through {
    /// What their paths hold, and no others.
    pub part: &'static str,
    /// The agent's word for such a write.
    pub operation: &'static str,
}

/// What both eyes have seen between the first write of the client and the acknowledgement of its last.
pub struct Seen {
    pub calls: Vec<Call>,
}

impl Seen {
    /// The calls of one kind on files whose path holds this.
    pub fn of(&self, name: &str, path: &str) -> Vec<&Call> {
        let chosen = |call: &&Call| call.name == name && path_of(call).contains(path);
        self.calls.iter().filter(chosen).collect()
    }
}

/// Starts a broker on a disk of its own, has its client write, and compares.
pub fn both_eyes<B: Broker>(name: &str, mebibytes: u64, start: impl FnOnce(&Scratch, &LoopFs) -> B) -> Seen {
    let _machine = Machine::lock();
    let scratch = Scratch::new(name);
    let disk = LoopFs::new(&scratch, "disk", Format::Ext4, mebibytes);
    let drift = Drift::start();
    // Nothing is chosen: a record that names another process or file than it should is not to be filtered away.
    // From the broker's first start on: the agent sees how it makes its files and gives them the names that they keep.
    let agent = Agent::watch(&matrix::AGENT);
    let broker = start(&scratch, &disk);
    let pids = broker.pids();
    let traced = if broker.writes_through().is_some() { SYNC_CALLS_AND_WRITES } else { SYNC_CALLS };
    let oracle = Oracle::attach_all(&scratch, &pids, traced);
    let before = Reading::of(&broker);
    let window = Window::over(|| broker.load());
    let after = Reading::of(&broker);
    let processes = processes(&pids);
    let trace = oracle.stop();
    let ended = agent.interrupt();
    assert!(ended.status.success(), "{}", ended.said.join("; "));
    let Trace { calls, unfinished } = trace;
    let calls = syncs_of(&broker, &disk, calls);
    print_counts(name, &calls);
    let unfinished = syncs_of(&broker, &disk, unfinished);
    let through = broker.writes_through();
    let compared = Compared { disk: &disk, calls: &calls, unfinished, through, processes, slack_ns: drift.slack_ns() };
    compared.assert_equal(&ended, &window);
    assert_own_count(&broker, &calls, before, after);
    Seen { calls: calls.into_iter().filter(|call| window.holds(call)).collect() }
}

/// A stretch of the wall clock.
struct Window {
    from_ns: u64,
    until_ns: u64,
}

impl Window {
    fn over(work: impl FnOnce()) -> Self {
        let from_ns = unix_ns();
        work();
        Self { from_ns, until_ns: unix_ns() }
    }

    fn holds(&self, call: &Call) -> bool {
        (self.from_ns..self.until_ns).contains(&call.start_unix_ns)
    }
}

/// How far the wall clock moves against the kernel's, which the agent's times are made of.
struct Drift {
    offset_ns: u64,
}

impl Drift {
    fn start() -> Self {
        Self { offset_ns: realtime_minus_monotonic_ns() }
    }

    /// How far apart the two may put the same moment.
    fn slack_ns(&self) -> u64 {
        self.offset_ns.abs_diff(realtime_minus_monotonic_ns()) + 2 * ROUNDING_NS
    }
}

/// What the broker itself had counted, and when it was asked.
struct Reading {
    count: Option<u64>,
    asked: Window,
}

impl Reading {
    fn of(broker: &impl Broker) -> Self {
        let mut count = None;
        let asked = Window::over(|| count = broker.counted());
        Self { count, asked }
    }
}

/// The broker's own count lies between what ended surely between its two readings and what may have: equal where the
/// broker is idle then.
fn assert_own_count(broker: &impl Broker, calls: &[Call], before: Reading, after: Reading) {
    let (Some(first), Some(last)) = (before.count, after.count) else {
        assert_eq!(before.count, after.count, "the broker counts at one time only");
        return;
    };
    let ended = |from: u64, until: u64| {
        calls.iter().filter(|call| broker.counts(call) && from < end_ns(call) && end_ns(call) <= until).count() as u64
    };
    let surely = ended(before.asked.until_ns, after.asked.from_ns);
    let perhaps = ended(before.asked.from_ns, after.asked.until_ns);
    eprintln!("the broker itself counts {}, strace {surely} to {perhaps}", last - first);
    assert!((surely..=perhaps).contains(&(last - first)), "the broker counts {first} to {last}");
}

/// Those calls that make something durable on the disk.
fn syncs_of(broker: &impl Broker, disk: &LoopFs, mut calls: Vec<Call>) -> Vec<Call> {
    let through = |call: &Call| broker.writes_through().is_some_and(|through| path_of(call).contains(through.part));
    let syncs = |call: &Call| match call.name.as_str() {
        "fsync" | "fdatasync" | "msync" => true,
        name => name.contains("write") && call.result > 0 && through(call),
    };
    calls.retain(|call| Path::new(path_of(call)).starts_with(disk.path()) && syncs(call));
    calls
}

/// Each living thread with its process.
fn processes(pids: &[u32]) -> HashMap<u32, u32> {
    let threads = pids.iter().flat_map(|pid| {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).map(|tid| (tid, *pid))
    });
    threads.collect()
}

/// The records of each call.
type Told<'a> = HashMap<*const Call, Vec<&'a Value>>;

/// Each inode with the paths that strace has for it.
type Names<'a> = HashMap<u64, HashSet<&'a str>>;

struct Compared<'a> {
    disk: &'a LoopFs,
    calls: &'a [Call],
    /// Those that ran when strace let go: what the agent tells of them has no counterpart.
    unfinished: Vec<Call>,
    through: Option<Through>,
    processes: HashMap<u32, u32>,
    slack_ns: u64,
}

impl Compared<'_> {
    /// Each call that began in the window has one record, and each record that began in the window has a call.
    fn assert_equal(&self, ended: &Ended, window: &Window) {
        let mut told = Told::new();
        let mut wrong = Vec::new();
        for sync in ended.syncs.iter().filter(|sync| self.is_on_disk(sync)) {
            let start_ns = field::number(sync, "/time_unix_ns");
            match self.call_of(sync) {
                Some(call) => {
                    let records = told.entry(std::ptr::from_ref(call)).or_default();
                    // After the window strace lets go; a record of then is not a second one of the last call before.
                    if records.is_empty() || start_ns < window.until_ns {
                        records.push(sync);
                    }
                }
                // The agent watches for longer than strace.
                None if !(window.from_ns..window.until_ns).contains(&start_ns) => {}
                None => wrong.push(format!("a record without a call: {sync}")),
            }
        }
        let names = self.names(&told);
        for call in self.calls.iter().filter(|call| window.holds(call)) {
            match told.get(&std::ptr::from_ref(call)).map_or(&[][..], Vec::as_slice) {
                [sync] => wrong.extend(self.differences(call, sync, &names)),
                other => wrong.push(format!("{} records of {call:?}: {other:?}", other.len())),
            }
        }
        assert!(
            wrong.is_empty(),
            "{} differences, the first:\n{}",
            wrong.len(),
            wrong[..wrong.len().min(10)].join("\n")
        );
    }

    /// A file that is renamed again and again has had some names that it has no more.
    fn names(&self, told: &Told) -> Names<'_> {
        let mut names = Names::new();
        for call in self.calls {
            for sync in told.get(&std::ptr::from_ref(call)).into_iter().flatten() {
                names.entry(field::number(sync, "/file/inode")).or_default().insert(path_of(call));
            }
        }
        names
    }

    fn is_on_disk(&self, sync: &Value) -> bool {
        let (major, minor) = self.disk.number();
        sync["open"] == false && sync["device"]["major"] == major && sync["device"]["minor"] == minor
    }

    /// The last call that the record's thread had begun when the record began. Where strace shows the end of a call is
    /// not told exactly: its duration is counted from later than its start, by the time of writing the line.
    fn call_of(&self, sync: &Value) -> Option<&Call> {
        let tid = field::number(sync, "/thread/tid");
        let start_ns = field::number(sync, "/time_unix_ns") + self.slack_ns;
        let begun = |call: &&Call| u64::from(call.tid) == tid && call.start_unix_ns <= start_ns;
        self.calls.iter().chain(&self.unfinished).filter(begun).max_by_key(|call| call.start_unix_ns)
    }

    /// Whether the agent names a call's file rightly: by its path or, if that has come to lead to another file or to none
    /// before it could be looked for, by its path inside the filesystem or by one that it had later.
    fn is_named(&self, call: &Call, sync: &Value, names: &Names) -> bool {
        let path = path_of(call);
        let inside = path.strip_prefix(self.disk.path().to_str().expect("scratch paths are plain"));
        let inode = field::number(sync, "/file/inode");
        let leads_there = |path: &str| fs::metadata(path).is_ok_and(|found| found.ino() == inode);
        let told = sync["file"]["path"].as_str().unwrap_or_default();
        let later = || leads_there(told) || names.get(&inode).is_some_and(|names| names.contains(told));
        told == path || !leads_there(path) && (Some(told) == inside || later())
    }

    /// What the two say differently of one call.
    fn differences(&self, call: &Call, sync: &Value, names: &Names) -> Vec<String> {
        assert_whole(sync);
        let process = self.processes.get(&call.tid).copied().unwrap_or(call.tid);
        let through = self.through.filter(|_| call.name.contains("write"));
        let operation = through.map_or(call.name.as_str(), |through| through.operation);
        let result = call.error.as_deref().map_or(Value::from(0), Value::from);
        let rows = [
            ("operation", sync["operation"].clone(), operation.into()),
            ("thread", sync["thread"]["name"].clone(), call.comm.as_str().into()),
            ("process", sync["process"]["pid"].clone(), process.into()),
            ("result", sync["result"].clone(), result),
            ("lost events", sync["lost_events"].clone(), 0.into()),
        ];
        let mut found: Vec<String> = rows
            .into_iter()
            .filter(|(_, agent, strace)| agent != strace)
            .map(|(what, agent, strace)| format!("{what}: agent {agent}, strace {strace} of {call:?}"))
            .collect();
        if !self.is_named(call, sync, names) {
            found.push(format!("file: agent {}, strace {call:?}", sync["file"]));
        }
        // strace measures from outside: its call is never the shorter one.
        if field::duration_ns(sync) > call.duration_ns + ROUNDING_NS {
            found.push(format!("duration: agent {}, strace {call:?}", field::duration_ns(sync)));
        }
        found
    }
}

fn path_of(call: &Call) -> &str {
    call.path.as_deref().unwrap_or_default()
}

fn end_ns(call: &Call) -> u64 {
    call.start_unix_ns + call.duration_ns
}

/// What was compared, for whoever reads the output of a run.
fn print_counts(name: &str, calls: &[Call]) {
    let mut counts: BTreeMap<(&str, &str, &str), usize> = BTreeMap::new();
    for call in calls {
        let file = Path::new(path_of(call)).file_name().and_then(|name| name.to_str()).unwrap_or_default();
        *counts.entry((&call.name, &call.comm, file)).or_insert(0) += 1;
    }
    for ((call, thread, file), count) in counts {
        eprintln!("{name}: {count} {call} by {thread} on {file}");
    }
}
