//! What the probes cost: how often they run for a sync, held against what happened, so that one run more is seen.
//!
//! Runs of all probes per sync depend on what else the machine does, since most probes stand on events of all tasks and
//! disks. So each is held against what makes it run: a sync, a request given to a driver, a switch between tasks. The last
//! two are counted by the empty programs that `cost` attaches beside the probes.

mod support;

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use support::journal::Workload;
use support::scratch::{Format, LoopFs, Scratch};
use support::{Machine, figure, run};

const AGENT: &str = env!("CARGO_BIN_EXE_fsyncscope");

/// What makes some probes run, and the runs that each such event may cost.
struct Group {
    name: &'static str,
    probes: &'static [&'static str],
    /// The floor that counts the event; the syncs count themselves.
    floor: Option<&'static str>,
    runs_max: f64,
}

/// Bounds from the spread in docs/accuracy.md: the most of thirty repetitions, quiet and loaded, and half a run. One more
/// program on any of these events is a whole run more, or most of one.
const GROUPS: [Group; 4] = [
    Group { name: "sync", probes: &["ext4_", "jbd2_"], floor: None, runs_max: 7.5 },
    Group { name: "request", probes: &["block_"], floor: Some("block_rq_issue"), runs_max: 3.5 },
    Group { name: "switch", probes: &["sched_switch"], floor: Some("sched_switch"), runs_max: 1.5 },
    // A wake-up of a task that still runs is no switch, nor is a return to user mode that moves the task's CPU.
    Group { name: "wakeup", probes: &["sched_waking", "rseq_update"], floor: Some("sched_switch"), runs_max: 2.3 },
];
/// Attached while somebody on the machine uses Linux AIO, and then it runs for the work of all workers.
const FOR_AIO: &str = "workqueue_queue_work";
/// Runs per sync of all others together: flushers' rounds, names and ends of tasks. The most was 0.46, where the machine
/// was busiest and made few syncs; a program that runs for all work or all tasks is some ten.
const OTHERS_MAX: f64 = 2.0;

#[test]
fn probes_run_as_often_as_what_they_stand_on() {
    skip_if!(Format::Ext4.missing());
    let _machine = Machine::lock();
    let cost = measured();
    assert_cheap("quiet", &cost);
    for name in ["sched_switch", "sched_waking", "block_rq_issue", "jbd2_end_commit", "ext4_sync_file_enter"] {
        let row = programs(&cost).find(|row| row["program"] == name).unwrap_or_else(|| panic!("no {name}: {cost:#}"));
        assert!(float(row, "runs_per_sync") > 0.0 && float(row, "floor_ns_per_run") > 0.0, "{row}");
        assert!(float(row, "net_ns_per_run") <= float(row, "ns_per_run"), "{row}");
    }
    assert!(float(&cost, "net_ns_per_sync") < float(&cost, "gross_ns_per_sync"), "{cost:#}");
    assert_eq!(cost["floors"].as_array().map(Vec::len), Some(2));
}

#[test]
fn probes_run_no_oftener_where_every_cpu_is_busy() {
    skip_if!(Format::Ext4.missing());
    let _machine = Machine::lock();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    assert_cheap("loaded", &beside(2 * cpus, std::hint::spin_loop, measured));
}

/// Works beside threads that take one step after the other until the work is done.
fn beside<T>(threads: usize, step: impl Fn() + Sync, work: impl FnOnce() -> T) -> T {
    /// Ends the threads on every way out.
    struct End<'a>(&'a AtomicBool);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = End(&stop);
        for _ in 0..threads {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    step();
                }
            });
        }
        work()
    })
}

/// What `cost` says of two seconds of a journal on a disk in memory, so that no other disk works for it.
fn measured() -> Value {
    let scratch = Scratch::new("cost");
    let disk = LoopFs::alone(&scratch, "disk", Format::Ext4, 64);
    let journal = Workload::new("ForceWriteThread", disk.join("1.txn")).spawn();
    let used = AtomicBool::new(false);
    let look = || {
        used.fetch_or(aio_in_use(), Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(2));
    };
    let said = beside(1, look, || run(Command::new(AGENT).args(["cost", "--for", "2s", "--json"])));
    let made = journal.stop().len() as u64;
    let cost: Value = serde_json::from_str(&said).expect("cost prints JSON");
    let told = cost["syncs"].as_u64().expect("syncs are counted");
    // Before the window the probes are loaded, which takes its time on a busy machine.
    assert!(told >= 50 && made >= 50, "{made} made, {cost:#}");
    let runs = programs(&cost).any(|row| row["program"] == FOR_AIO);
    assert!(!runs || used.into_inner(), "{FOR_AIO} is attached without need: {cost:#}");
    cost
}

/// Whether anybody on this machine, tests of others included, uses Linux AIO.
fn aio_in_use() -> bool {
    fs::read_to_string("/proc/sys/fs/aio-nr").is_ok_and(|count| count.trim() != "0")
}

fn assert_cheap(state: &str, cost: &Value) {
    let syncs = float(cost, "syncs");
    let others = programs(cost).filter(|row| row["program"] != FOR_AIO);
    let mut left: f64 = others.map(|row| float(row, "runs")).sum();
    let mut dear = Vec::new();
    for Group { name, probes, floor, runs_max } in &GROUPS {
        let of_group = |row: &&Value| probes.iter().any(|probe| row["program"].to_string().contains(probe));
        let runs: f64 = programs(cost).filter(of_group).map(|row| float(row, "runs")).sum();
        let events = floor.map_or(syncs, |event| floor_runs(cost, event));
        left -= runs;
        figure(&format!("runs.{name}.{state}"), runs / events);
        if runs > runs_max * events {
            dear.push(format!("{:.2} runs of {name} for each event, at most {runs_max}", runs / events));
        }
    }
    figure(&format!("runs.others.{state}"), left / syncs);
    if left > OTHERS_MAX * syncs {
        dear.push(format!("{:.2} runs of others for each sync, at most {OTHERS_MAX}", left / syncs));
    }
    assert!(dear.is_empty(), "{}: {cost:#}", dear.join("; "));
}

fn programs(cost: &Value) -> impl Iterator<Item = &Value> {
    cost["programs"].as_array().expect("a list of programs").iter()
}

fn floor_runs(cost: &Value, event: &str) -> f64 {
    let floors = cost["floors"].as_array().expect("a list of floors");
    let floor = floors.iter().find(|floor| floor["event"] == event);
    float(floor.unwrap_or_else(|| panic!("no floor on {event}: {cost:#}")), "runs")
}

fn float(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_else(|| panic!("no {key} in {row}"))
}
