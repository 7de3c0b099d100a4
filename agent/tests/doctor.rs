//! What `doctor` and `cost` say of this machine, and that they leave nothing behind.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

use support::agent::field::{number, text};
use support::journal::Workload;
use support::scratch::{Format, LoopFs, Scratch};
use support::{Machine, bpf, missing, remains, wait_for};

const AGENT: &str = env!("CARGO_BIN_EXE_fsyncscope");
/// The filesystems' probes, those of every sync, and those of a journal.
const EXT4: [&str; 2] = ["ext4_sync_file_enter", "ext4_sync_file_exit"];
const EVERY_SYNC: [&str; 7] = [
    "sched_switch",
    "sched_waking",
    "sched_process_exit",
    "block_rq_issue",
    "block_rq_complete",
    "block_io_start",
    "rseq_update",
];
const JOURNAL: [&str; 5] =
    ["jbd2_start_commit", "jbd2_commit_locking", "jbd2_commit_flushing", "jbd2_commit_logging", "jbd2_end_commit"];

/// Runs a command of the agent to its end; demands that every program it held is gone afterwards.
fn run(command: &mut Command) -> Output {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.expect("start the agent");
    let pid = child.id();
    let reader = std::thread::spawn(move || child.wait_with_output().expect("the agent ends"));
    let mut held = BTreeSet::new();
    while !reader.is_finished() {
        held.extend(bpf::programs_of(pid));
        std::thread::sleep(Duration::from_millis(10));
    }
    let output = reader.join().expect("the reader does not panic");
    // The kernel frees a program a moment after its last descriptor.
    let gone = wait_for(Duration::from_secs(3), || held.iter().all(|id| !bpf::exists(*id)).then_some(()));
    assert!(gone.is_some(), "programs stay attached: {held:?}");
    output
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("not JSON ({e}); stderr: {}", said(output)))
}

fn doctor(arguments: &[&str]) -> (Value, Option<i32>) {
    let output = run(Command::new(AGENT).args(["doctor", "--json"]).args(arguments));
    (json(&output), output.status.code())
}

fn probe<'a>(report: &'a Value, name: &str) -> &'a Value {
    let probes = report["probes"].as_array().expect("a list of probes");
    probes.iter().find(|probe| probe["name"] == name).unwrap_or_else(|| panic!("no {name} in {report}"))
}

fn assert_proofs(report: &Value, names: &[&str], proof: &str) {
    for name in names {
        assert_eq!(text(probe(report, name), "/proof"), proof, "{name}: {}", probe(report, name)["why"]);
    }
}

/// One sentence as the command line promises it.
fn assert_one_sentence(output: &Output) {
    let said = said(output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("fsyncscope: ") && !said.trim_end().ends_with('.'), "{said}");
}

fn no_canary_in(directory: &Path) {
    let entries = fs::read_dir(directory).expect("list the directory").flatten();
    let left: Vec<_> = entries.filter(|entry| entry.file_name().to_string_lossy().contains("canary")).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// The machine's own kernel shows them; another's may lack some, and then `doctor` names them.
fn attached(report: &Value) -> impl Iterator<Item = &Value> {
    report["probes"].as_array().expect("a list of probes").iter().filter(|probe| probe["attached"] != "missing")
}

#[test]
fn every_probe_is_proven_on_scratch_disks_and_no_other_disk_is_synced() {
    skip_if!(
        missing(&["strace"])
            .or_else(|| Format::Ext4.missing())
            .or_else(|| Format::Xfs.missing())
            .or_else(|| Format::Btrfs.missing())
    );
    let _machine = Machine::lock();
    let scratch = Scratch::new("doctor");
    let log = scratch.join("strace.log");
    let calls = "trace=fsync,fdatasync,sync,syncfs,msync,sync_file_range,io_submit,io_uring_enter";
    let mut traced = Command::new("strace");
    traced.args(["-f", "-y", "-e", calls, "-o"]).arg(&log).arg(AGENT);
    let output = run(traced.args(["doctor", "--json", "--syscall-tracepoints"]));
    let report = json(&output);
    let unproven: Vec<&Value> = attached(&report).filter(|probe| probe["proof"] != "proven").collect();
    assert!(unproven.is_empty() && attached(&report).count() > 20, "{unproven:#?}");
    assert_eq!((text(&report, "/verdict"), output.status.code()), ("fine", Some(0)), "{report:#}");
    let places: Vec<[&str; 2]> = (0..3)
        .map(|at| {
            [text(&report, &format!("/canaries/{at}/filesystem")), text(&report, &format!("/canaries/{at}/ground"))]
        })
        .collect();
    assert_eq!(places, ["ext4", "xfs", "btrfs"].map(|filesystem| [filesystem, "scratch"]));
    // Of what it and its tools sync, everything lies in memory, under the name of a canary's disk. AIO's calls do not
    // show their files: the canary's are the only ones.
    let traced = fs::read_to_string(log).expect("read what strace saw");
    let of_files: Vec<&str> = traced.lines().filter(|line| line.contains("sync") && line.contains('(')).collect();
    let others: Vec<&&str> = of_files.iter().filter(|line| !line.contains("/fsyncscope-canary-")).collect();
    assert!(others.is_empty() && of_files.len() >= 30, "{others:#?} of {}", of_files.len());
    assert_eq!(remains("fsyncscope-canary"), Vec::<String>::new());
}

#[test]
fn killed_at_any_moment_it_leaves_nothing() {
    skip_if!(Format::Ext4.missing().or_else(|| Format::Xfs.missing()));
    let _machine = Machine::lock();
    for moment in 1..=20 {
        let doctor = Command::new(AGENT).arg("doctor").stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut doctor = doctor.expect("start doctor");
        std::thread::sleep(Duration::from_millis(75 * moment));
        doctor.kill().expect("kill doctor");
        doctor.wait().expect("doctor ends");
        let empty = wait_for(Duration::from_secs(10), || remains("fsyncscope-canary").is_empty().then_some(()));
        assert!(empty.is_some(), "{:?}", remains("fsyncscope-canary"));
    }
}

/// `doctor` as in a pod, which may not mount.
fn without_mounting() -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--no-new-privs", "--bounding-set=-all,+bpf,+perfmon,+syslog,+sys_ptrace,+dac_read_search"]);
    command.arg(AGENT).args(["doctor", "--json"]);
    command
}

#[test]
fn where_it_may_not_mount_it_syncs_nothing_and_listens_to_others() {
    skip_if!(missing(&["setpriv", "strace"]).or_else(|| Format::Ext4.missing()));
    let _machine = Machine::lock();
    let scratch = Scratch::new("doctor");
    let disk = LoopFs::new(&scratch, "disk", Format::Ext4, 64);
    let journal = Workload::new("ForceWriteThread", disk.join("1.txn")).spawn();
    let output = run(&mut without_mounting());
    let made = journal.stop().len() as u64;
    let report = json(&output);
    assert_eq!(text(&report, "/canaries/0/ground"), "others", "{report:#}");
    let told = number(&report, "/canaries/0/told");
    assert!(told > 0 && told <= made, "{told} of {made} told");
    assert_proofs(&report, &EXT4, "proven");
    assert_proofs(&report, &["sched_switch", "sched_waking", "rseq_update"], "proven");
    assert_proofs(&report, &["block_rq_merge", "xfs_file_fsync", "ext4_sync_fs"], "untried");
    // Nobody syncs now: nothing is proven, and it says how to ask.
    let quiet = json(&run(&mut without_mounting()));
    let heard = quiet["canaries"].as_array().expect("a list").iter().map(|canary| number(canary, "/told")).sum::<u64>();
    assert!(heard > 0 || quiet["canary_problems"].to_string().contains("--canary"), "{quiet:#}");
    assert!(heard > 0 || quiet["verdict"] == "impaired", "{quiet:#}");
}

#[test]
fn a_canary_proves_the_probes_of_a_filesystem_without_a_journal() {
    skip_if!(Format::Ext4WithoutJournal.missing());
    let _machine = Machine::lock();
    let scratch = Scratch::new("doctor");
    let disk = LoopFs::new(&scratch, "disk", Format::Ext4WithoutJournal, 64);
    let (report, code) = doctor(&["--canary", disk.path().to_str().unwrap()]);
    assert_eq!(text(&report, "/canaries/0/filesystem"), "ext4");
    assert_eq!(text(&report, "/canaries/0/disk"), disk.device_name());
    assert_eq!(text(&report, "/canaries/0/journal"), "absent");
    assert_eq!(number(&report, "/canaries/0/told"), number(&report, "/canaries/0/made"));
    assert_eq!(number(&report, "/canaries/0/of_another_tid"), 0);
    assert!(number(&report, "/canaries/0/transfers") >= number(&report, "/canaries/0/made"), "{}", report["canaries"]);
    assert_proofs(&report, &EXT4, "proven");
    assert_proofs(&report, &EVERY_SYNC, "proven");
    assert_proofs(&report, &["xfs_file_fsync"], "untried");
    assert_eq!((text(&report, "/verdict"), code), ("fine", Some(0)), "{report:#}");
    no_canary_in(disk.path());
}

#[test]
fn a_canary_on_a_journal_proves_the_journal_probes() {
    skip_if!(Format::Ext4.missing());
    let _machine = Machine::lock();
    let scratch = Scratch::new("doctor");
    let disk = LoopFs::new(&scratch, "disk", Format::Ext4, 64);
    let (report, code) = doctor(&["--canary", disk.path().to_str().unwrap()]);
    assert_eq!(text(&report, "/canaries/0/journal"), "present");
    assert!(number(&report, "/canaries/0/commits") > 0);
    assert_proofs(&report, &JOURNAL, "proven");
    assert_proofs(&report, &EXT4, "proven");
    assert_eq!(code, Some(0), "{report:#}");
    no_canary_in(disk.path());
}

#[test]
fn a_canary_on_xfs_proves_the_probe_of_xfs() {
    skip_if!(Format::Xfs.missing());
    let _machine = Machine::lock();
    let scratch = Scratch::new("doctor");
    let disk = LoopFs::new(&scratch, "disk", Format::Xfs, 400);
    let (report, code) = doctor(&["--canary", disk.path().to_str().unwrap()]);
    assert_eq!(text(&report, "/canaries/0/filesystem"), "xfs");
    assert_proofs(&report, &["xfs_file_fsync", "rseq_update"], "proven");
    assert_proofs(&report, &EXT4, "untried");
    assert_eq!(code, Some(0), "{report:#}");
}

#[test]
fn where_no_sync_reaches_a_disk_nothing_is_called_proven() {
    skip_if!(missing(&[]));
    let _machine = Machine::lock();
    let (report, code) = doctor(&["--canary", "/dev/shm"]);
    assert_eq!(number(&report, "/canaries/0/told"), 0);
    assert_proofs(&report, &EXT4, "untried");
    assert_eq!((text(&report, "/verdict"), code), ("impaired", Some(1)), "{report:#}");
    assert!(report["canary_problems"].to_string().contains("--canary"), "{report:#}");
}

#[test]
fn the_text_fits_a_terminal_and_names_every_probe() {
    skip_if!(missing(&[]));
    let _machine = Machine::lock();
    let output = run(Command::new(AGENT).args(["doctor", "--syscall-tracepoints"]));
    let shown = String::from_utf8_lossy(&output.stdout);
    let long: Vec<&str> = shown.lines().filter(|line| line.chars().count() > 80).collect();
    assert!(long.is_empty(), "{long:#?}");
    for name in EXT4.iter().chain(&EVERY_SYNC).chain(&JOURNAL) {
        assert!(shown.lines().any(|line| line.starts_with(name)), "no {name} in {shown}");
    }
}

#[test]
fn without_privilege_it_says_one_sentence() {
    skip_if!(missing(&[]));
    let scratch = Scratch::new("doctor");
    // The build may lie in a directory that only root may enter.
    let agent = scratch.join("fsyncscope");
    fs::copy(AGENT, &agent).expect("copy the agent");
    for command in ["doctor", "cost"] {
        let output = run(Command::new(&agent).arg(command).uid(65534).gid(65534));
        assert_one_sentence(&output);
        assert!(said(&output).contains("BPF and PERFMON"), "{}", said(&output));
    }
    let output = run(Command::new(&agent).args(["doctor", "--json"]).uid(65534).gid(65534));
    let report = json(&output);
    assert_eq!(text(&report, "/verdict"), "cannot_trace");
    let states = report["capabilities"].as_array().expect("a list");
    assert!(states.iter().any(|row| row["name"] == "BPF" && row["state"] == "missing"), "{report:#}");
}

#[test]
fn a_directory_that_holds_no_file_is_refused() {
    skip_if!(missing(&[]));
    assert_one_sentence(&run(Command::new(AGENT).args(["doctor", "--canary", "/proc"])));
    assert_one_sentence(&run(Command::new(AGENT).args(["doctor", "--canary", "/no/such/directory"])));
}

/// Tracepoints that a process is attached to, as the kernel tells them of its links.
fn tracepoints(pid: u32) -> BTreeSet<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
    let texts = entries.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    let name = |text: String| Some(text.lines().find_map(|line| line.strip_prefix("tp_name:"))?.trim().to_owned());
    texts.filter_map(name).collect()
}

#[test]
fn a_command_runs_once_and_taxes_no_system_call() {
    skip_if!(missing(&[]));
    let _machine = Machine::lock();
    let mut first = Command::new(AGENT).args(["watch", "--for", "20s"]).stdout(Stdio::null()).spawn().expect("start");
    let pid = first.id();
    let attached = wait_for(Duration::from_secs(30), || {
        let attached = tracepoints(pid);
        attached.contains("xfs_file_fsync").then_some(attached)
    });
    let second = run(Command::new(AGENT).args(["watch", "--for", "1s"]));
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").flatten();
    let perf =
        descriptors.filter(|entry| fs::read_link(entry.path()).is_ok_and(|to| to.ends_with("anon_inode:[perf_event]")));
    let perf = perf.count();
    let _ = first.kill();
    let _ = first.wait();
    let attached = attached.expect("its links show their tracepoints");
    for name in EXT4.iter().chain(&EVERY_SYNC) {
        assert!(attached.contains(*name), "no {name} in {attached:?}");
    }
    let taxed =
        |name: &&String| name.starts_with("sys_") || ["raw_syscalls", "sys_enter", "sys_exit"].contains(&name.as_str());
    assert_eq!(attached.iter().filter(taxed).count(), 0, "{attached:?}");
    assert_eq!(perf, 0, "a tracepoint of a system call is attached through a perf event");
    assert_one_sentence(&second);
    assert!(said(&second).contains(&format!("as process {pid}")), "{}", said(&second));
}
