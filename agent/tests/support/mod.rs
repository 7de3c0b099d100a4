//! What the integration tests stand on: scratch disks, real brokers, interference with a known truth, and oracles that
//! know nothing of the agent. It must not know how the agent works, only its command line, its JSON and its metrics.
//!
//! Everything here needs root. A test asks [`missing`] (or a module's own `missing`) first, says [`skipped`] and returns.
#![allow(dead_code, unused_imports, reason = "each test binary compiles this module and uses a part of it")]

pub mod agent;
pub mod bookie;
pub mod bpf;
pub mod catalogue;
pub mod child;
pub mod client;
pub mod dashboard;
pub mod doors;
pub mod etcd;
pub mod extents;
pub mod eyes;
pub mod faults;
pub mod filled;
pub mod found;
pub mod http;
pub mod interference;
pub mod java;
pub mod journal;
pub mod kafka;
pub mod ledger;
pub mod manifest;
pub mod mapping;
pub mod mariadb;
pub mod matrix;
pub mod means;
pub mod metrics;
pub mod oracle;
pub mod pod;
pub mod postgres;
pub mod process;
pub mod prometheus;
pub mod rabbitmq;
pub mod redis;
pub mod rings;
pub mod scratch;
pub mod strace;
pub mod tool;
pub mod verdict;
pub mod zookeeper;

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Why a test that needs root and these programs cannot run here, or nothing.
pub fn missing(tools: &[&str]) -> Option<String> {
    // SAFETY: geteuid has no preconditions and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return Some("needs root".to_owned());
    }
    tools.iter().find(|tool| find(tool).is_none()).map(|tool| format!("needs the program {tool}"))
}

/// Where a program lies: in PATH, or in one of the directories of administrators that a user's PATH often lacks.
pub fn find(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|directory| directory.join(tool))
        .find(|candidate| candidate.is_file())
}

/// Says that a test was skipped, past libtest's capture and at the start of a line, so that CI can count these lines.
pub fn skipped(why: &str) {
    let _ = write!(std::io::stderr(), "\nskipped: {why}\n");
}

/// Returns from the test with a `skipped:` line if something is missing.
#[macro_export]
macro_rules! skip_if {
    ($why:expr) => {
        if let Some(why) = $why {
            $crate::support::skipped(&why);
            return;
        }
    };
}

/// The machine as one resource: tests that measure or disturb it hold this while they do, across threads and processes.
pub struct Machine {
    _lock: File,
}

impl Machine {
    pub fn lock() -> Self {
        // The directory itself is the lock, so that no file is left behind.
        let path = std::env::temp_dir();
        let file = File::open(&path).expect("open the directory of temporary files");
        // SAFETY: the descriptor is open for as long as `file` lives; flock takes nothing else.
        let result = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) };
        assert_eq!(result, 0, "lock {}: {}", path.display(), std::io::Error::last_os_error());
        Self { _lock: file }
    }
}

/// One number of one repetition, for `scripts/spread.sh`.
pub fn figure(name: &str, value: f64) {
    println!("\nfigure {name} {value:.4}");
}

/// Runs a command to its end and gives its stdout; panics with its stderr when it fails.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("start {command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?} ended with {}: {}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr),
        String::from_utf8_lossy(&output.stdout),
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A client of a broker, which is ended after a minute: a broker that does not answer fails its test and no other.
pub fn client(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("timeout");
    command.arg("60").arg(program);
    command
}

/// Asks every 20 ms until the answer is there or the time is over.
pub fn wait_for<T>(limit: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + limit;
    loop {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        if Instant::now() > end {
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// CLOCK_MONOTONIC, the clock of the kernel's `ktime_get_ns`, and so of every event.
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// How far CLOCK_REALTIME is ahead of CLOCK_MONOTONIC now, to compare a log of ours with strace's.
pub fn realtime_minus_monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_REALTIME) - clock_ns(libc::CLOCK_MONOTONIC)
}

/// The wall clock, as strace has it.
pub fn unix_ns() -> u64 {
    clock_ns(libc::CLOCK_REALTIME)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of ours that outlives the call.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert_eq!(result, 0, "these two clocks exist on every Linux");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The id of the calling thread.
pub fn own_tid() -> u32 {
    // SAFETY: gettid has no preconditions and cannot fail.
    unsafe { libc::gettid() as u32 }
}

/// A TCP port that was free on loopback a moment ago; the caller hands it to a server that binds it at once.
pub fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("bind a port on loopback")
        .port()
}

/// Waits until somebody listens on a loopback port.
pub fn wait_for_port(port: u16, limit: Duration) -> bool {
    wait_for(limit, || std::net::TcpStream::connect(("127.0.0.1", port)).ok()).is_some()
}

/// The directory beside the build's own output where fetched brokers are kept between runs.
pub fn broker_cache(name: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    target.parent().expect("the target directory has a parent").join("brokers").join(name)
}

/// The directory of checked-in broker files.
pub fn broker_files(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/brokers").join(name)
}

/// Loop devices, mounts and temporary files whose names contain this.
pub fn remains(of: &str) -> Vec<String> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounted = mounts.lines().map(str::to_owned);
    let loops = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let backing = loops.filter_map(|disk| std::fs::read_to_string(disk.path().join("loop/backing_file")).ok());
    let files = std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    let files = files.map(|file| file.file_name().to_string_lossy().into_owned());
    mounted.chain(backing).chain(files).filter(|name| name.contains(of)).collect()
}
