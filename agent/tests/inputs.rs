//! What no command can work with: one sentence on stderr that says what was tried, why it failed and what to do, exit
//! code 2, nothing on stdout, nothing left in the kernel.

mod support;

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use support::agent::Agent;
use support::journal::Workload;
use support::scratch::{Format, LoopFs, Scratch};
use support::{Machine, bpf, missing, wait_for};

/// What is typed, and what the sentence must have in it: what was tried, and what to do.
type Typed = (&'static [&'static str], &'static [&'static str]);

const TYPED: &[Typed] = &[
    (&["watch", "--nope"], &["unexpected argument '--nope'", "--help"]),
    (&["wach"], &["unrecognized subcommand 'wach'", "--help"]),
    (&["watch", "surplus"], &["unexpected argument 'surplus'", "--help"]),
    (&["watch", "--threshold", "-1ms"], &["'-1ms' for '--threshold", "between 0 and 1000 hours"]),
    (&["watch", "--threshold=-1ms"], &["'-1ms' for '--threshold", "between 0 and 1000 hours"]),
    (&["watch", "--threshold", "5"], &["'5' for '--threshold", "a number with a unit"]),
    (&["watch", "--threshold", ""], &["'' for '--threshold", "a number with a unit"]),
    (&["watch", "--threshold", "NaNs"], &["'NaNs' for '--threshold", "between 0 and 1000 hours"]),
    (&["watch", "--threshold", "1e99s"], &["'1e99s' for '--threshold", "between 0 and 1000 hours"]),
    (&["watch", "--open", "-1s"], &["'-1s' for '--open", "between 0 and 1000 hours"]),
    (&["watch", "--for", "0"], &["'0' for '--for", "more than no time"]),
    (&["watch", "--count", "0"], &["'0' for '--count", "a number from 1 on"]),
    (&["watch", "--count", "-1"], &["'-1' for '--count", "a number from 1 on"]),
    (&["watch", "--worst", "101"], &["'101' for '--worst", "from 1 to 100"]),
    (&["watch", "--worst", "1", "--count", "1"], &["'--worst <N>' cannot be used with '--count <N>'"]),
    (&["watch", "--ring-bytes", "1000"], &["'1000' for '--ring-bytes", "a power of two from 4096"]),
    (&["watch", "--syscall-tracepoints=read"], &["'read' for '--syscall-tracepoints", "give all, or of"]),
    (&["run", "--lines", "-1"], &["'-1' for '--lines", "a number from 0"]),
    (&["run", "--listen", "localhost"], &["'localhost' for '--listen", "such as 127.0.0.1:9464"]),
    (&["run", "--listen", "127.0.0.1:65536"], &["'127.0.0.1:65536' for '--listen", "such as 127.0.0.1:9464"]),
    (&["run", "--listen", "192.0.2.1:9464"], &["could not listen on 192.0.2.1:9464", "an address of this machine"]),
    (&["disks", "--every", "500ms"], &["'500ms' for '--every", "a second or more"]),
    (&["cost", "--for", "-1s"], &["'-1s' for '--for", "between 0 and 1000 hours"]),
    (&["watch", "--process", "nobody-has-it"], &["--process \"nobody-has-it\": no running process", "ps -eo"]),
    (&["watch", "--thread", "nobody-has-it"], &["--thread \"nobody-has-it\": no running thread", "ps -eLo"]),
    (&["watch", "--cgroup", "/nobody/has/it"], &["--cgroup \"/nobody/has/it\": no running process", "ps -eo"]),
    (&["watch", "--operation", "fsink"], &["--operation \"fsink\": there is no such operation", "one of fsync"]),
    (&["watch", "--file", "["], &["--file \"[\"", "put a backslash before"]),
    (&["watch", "--process", ""], &["--process \"\": the glob is empty", "give a name"]),
    (
        &["watch", "--record", "/no/such/spike.rec"],
        &["create the recording /no/such/spike.rec", "name a file in a directory"],
    ),
    (&["watch", "--record", "/proc"], &["create the recording /proc", "name a file in a directory"]),
    (&["explain", "/no/such.rec"], &["open the recording /no/such.rec", "name a file that --record wrote"]),
    (&["explain", "/proc"], &["could not read /proc", "name a file that --record wrote"]),
    (&["explain", "/dev/null"], &["could not read /dev/null", "name a file that --record wrote"]),
    (&["doctor", "--canary", "/no/such"], &["canary file in /no/such", "name a directory where files can be made"]),
    (&["doctor", "--canary", "/dev/null"], &["canary file in /dev/null", "name a directory where files can be made"]),
    (&["doctor", "--canary", "/proc"], &["canary file in /proc", "name a directory where files can be made"]),
];

/// How each command is asked to print something, with a recording for `explain`.
fn printing(recording: &str) -> [Vec<&str>; 8] {
    [
        vec!["watch", "--threshold", "0", "--for", "20s"],
        vec!["watch", "--threshold", "0", "--for", "20s", "--json"],
        vec!["watch", "--worst", "1", "--for", "2s"],
        vec!["run", "--threshold", "0", "--listen", "127.0.0.1:0"],
        vec!["disks", "--every", "1s", "--for", "20s"],
        vec!["doctor"],
        vec!["cost", "--for", "1s"],
        vec!["explain", recording, "--threshold", "0"],
    ]
}

fn fsyncscope(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fsyncscope"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs a command, which must end by itself, and wants it to refuse with a sentence that has these words. Where it had
/// begun, the sentence is the last.
fn assert_refuses(command: &mut Command, words: &[&str]) {
    let before = bpf::all();
    let output = within(Duration::from_secs(30), command.stderr(Stdio::piped()));
    let said = String::from_utf8_lossy(&output.stderr);
    let told = String::from_utf8_lossy(&output.stdout);
    let about = format!("{command:?}: {:?}, on stderr: {said}, on stdout: {told}", output.status.code());
    assert_eq!(output.status.code(), Some(2), "{about}");
    let begun = |line: &&str| line.starts_with("fsyncscope: watching ");
    let sentences: Vec<&str> = said.lines().filter(|line| !begun(line)).collect();
    let [sentence] = sentences[..] else { panic!("no single sentence of {about}") };
    assert!(sentence.starts_with("fsyncscope: ") && words.iter().all(|word| sentence.contains(word)), "{about}");
    assert!(told.is_empty(), "{about}");
    let left = || bpf::all().difference(&before).copied().collect::<BTreeSet<u32>>();
    assert!(
        wait_for(Duration::from_secs(5), || left().is_empty().then_some(())).is_some(),
        "{:?} left by {about}",
        left()
    );
}

/// What a command says until it ends; one that does not end in time fails.
fn within(limit: Duration, command: &mut Command) -> Output {
    let mut child = command.spawn().unwrap_or_else(|error| panic!("start {command:?}: {error}"));
    let ended = wait_for(limit, || child.try_wait().ok().flatten()).is_some();
    if !ended {
        let _ = child.kill();
    }
    let output = child.wait_with_output().expect("read what it said");
    assert!(ended, "{command:?} did not end; it said {}", String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
fn what_is_typed_wrong_is_refused() {
    skip_if!(missing(&[]));
    let _machine = Machine::lock();
    for (arguments, words) in TYPED {
        assert_refuses(fsyncscope(arguments).stdout(Stdio::piped()), words);
    }
    let environment = ["'elsewhere' for '--listen", "such as 127.0.0.1:9464"];
    assert_refuses(fsyncscope(&["run"]).env("FSYNCSCOPE_LISTEN", "elsewhere").stdout(Stdio::piped()), &environment);
    let nothing = fsyncscope(&[]).output().expect("start the agent");
    assert_eq!(nothing.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("Usage: fsyncscope <COMMAND>"));
}

#[test]
fn what_is_taken_is_refused() {
    skip_if!(missing(&[]));
    let _machine = Machine::lock();
    let port = TcpListener::bind("127.0.0.1:0").expect("bind a port");
    let address = port.local_addr().expect("a port has an address").to_string();
    let taken = [address.as_str(), "choose another with --listen"];
    assert_refuses(fsyncscope(&["run", "--listen", &address]).stdout(Stdio::piped()), &taken);
    for first in [Agent::watch(&[]), Agent::run(&[]), Agent::disks(&[])] {
        let name = fs::read(format!("/proc/{}/cmdline", first.pid())).expect("it runs");
        let name = String::from_utf8_lossy(&name).split('\0').nth(1).expect("it has a command").to_owned();
        let holder = format!("`fsyncscope {name}` runs already, as process {}", first.pid());
        let second: &[&str] = if name == "run" { &["run", "--listen", "127.0.0.1:0"] } else { &[&name] };
        assert_refuses(fsyncscope(second).stdout(Stdio::piped()), &[&holder, "end it first"]);
    }
}

/// A recording of a few syncs, as the agent writes it.
fn record(scratch: &Scratch, disk: &LoopFs) -> String {
    let recording = scratch.join("spike.rec").display().to_string();
    let agent = Agent::watch(&["--threshold", "0", "--record", &recording]);
    let mut workload = Workload::new("journal", disk.join("1.txn"));
    workload.count = Some(7);
    workload.spawn().wait();
    assert!(agent.interrupt().syncs.len() >= 7);
    recording
}

/// A daemon may begin before the broker.
#[test]
fn a_daemon_waits_for_what_it_is_to_watch() {
    skip_if!(missing(&[]));
    let _machine = Machine::lock();
    let agent = Agent::run(&["--process", "nobody-has-it"]);
    let said = agent.said().join("\n");
    assert!(said.contains("no running process has such a name") && said.contains("waiting for it to appear"), "{said}");
    assert!(agent.terminate().status.success());
}

#[test]
fn a_stdout_that_takes_nothing_is_told() {
    skip_if!(Format::Ext4WithoutJournal.missing());
    let _machine = Machine::lock();
    let scratch = Scratch::new("inputs");
    let disk = LoopFs::new(&scratch, "disk", Format::Ext4WithoutJournal, 64);
    let recording = record(&scratch, &disk);
    // Something to print.
    let mut workload = Workload::new("journal", disk.join("1.txn"));
    workload.think_us = 10_000;
    let journal = workload.spawn();
    for arguments in printing(&recording) {
        let full = OpenOptions::new().write(true).open("/dev/full").expect("open /dev/full");
        assert_refuses(fsyncscope(&arguments).stdout(full), &["could not write to stdout", "more room"]);
        let (reader, writer) = std::io::pipe().expect("make a pipe");
        drop(reader);
        assert_refuses(fsyncscope(&arguments).stdout(writer), &["could not write to stdout", "keep its reader open"]);
        let mut closed = Command::new("sh");
        closed.args(["-c", "exec \"$0\" \"$@\" >&-", env!("CARGO_BIN_EXE_fsyncscope")]).args(&arguments);
        assert_refuses(closed.stdin(Stdio::null()).stdout(Stdio::piped()), &["stdout is closed", "redirect it"]);
    }
    journal.stop();
}

#[test]
fn a_recording_that_is_none_is_refused() {
    skip_if!(Format::Ext4WithoutJournal.missing());
    let _machine = Machine::lock();
    let scratch = Scratch::new("inputs");
    let disk = LoopFs::new(&scratch, "disk", Format::Ext4WithoutJournal, 64);
    let recording = record(&scratch, &disk);
    let whole = fs::read_to_string(&recording).expect("read the recording");
    let lines: Vec<&str> = whole.lines().collect();
    let with = |line: &'static str| [&lines[..3], &[line], &lines[3..]].concat().join("\n");
    let binary = || (0..4096u32).map(|number| ((number * number) >> 3) as u8).collect::<Vec<u8>>();
    let garbage = [
        ("binary", binary(), "line 1 is no event"),
        ("event", with("{\"nonsense\":{}}").into_bytes(), "line 4 is no event"),
        ("field", with("{\"path\":{\"dev\":\"x\"}}").into_bytes(), "line 4 is no event"),
        ("headless", lines[1..].join("\n").into_bytes(), "it does not begin as a recording does"),
        ("endless", vec![b'{'; 1 << 20], "line 1 is no event"),
    ];
    for (name, bytes, why) in garbage {
        let path = scratch.join(name).display().to_string();
        fs::write(&path, bytes).expect("write a file");
        let words = [&*format!("could not read {path}: {why}"), "name a file that --record wrote"];
        assert_refuses(fsyncscope(&["explain", &path]).stdout(Stdio::piped()), &words);
    }
    // One that was cut off, as by a full disk, tells what it has.
    let cut = scratch.join("cut");
    fs::write(&cut, &whole[..whole.len() * 3 / 4]).expect("write a file");
    let output = fsyncscope(&["explain", &cut.display().to_string(), "--threshold", "0"]).output().expect("start it");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !output.stdout.is_empty() && said.contains("ends inside a line"), "{output:?}");
    let full = ["could not write the recording", "record elsewhere"];
    assert_refuses(fsyncscope(&["watch", "--record", "/dev/full", "--for", "20s"]).stdout(Stdio::piped()), &full);
}

#[test]
fn a_machine_or_a_user_that_cannot_trace_is_told_what_is_missing() {
    skip_if!(missing(&["unshare", "setpriv"]));
    let _machine = Machine::lock();
    let commands: [&[&str]; 5] =
        [&["watch"], &["run", "--listen", "127.0.0.1:0"], &["disks"], &["cost", "--for", "1s"], &["demo"]];
    for arguments in commands {
        let hidden = "mount -t tmpfs none /sys/kernel/btf && exec \"$0\" \"$@\"";
        let mut without_types = Command::new("unshare");
        without_types.args(["--mount", "sh", "-c", hidden, env!("CARGO_BIN_EXE_fsyncscope")]).args(arguments);
        let words = ["/sys/kernel/btf/vmlinux", "CONFIG_DEBUG_INFO_BTF"];
        assert_refuses(without_types.stdin(Stdio::null()).stdout(Stdio::piped()), &words);
        let mut without_right = Command::new("setpriv");
        without_right
            .args(["--bounding-set=-all", "--inh-caps=-all", env!("CARGO_BIN_EXE_fsyncscope")])
            .args(arguments);
        assert_refuses(
            without_right.stdin(Stdio::null()).stdout(Stdio::piped()),
            &["BPF", "PERFMON", "run it as root"],
        );
    }
}
