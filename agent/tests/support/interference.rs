//! Neighbours that disturb a journal, each a process with a name of its own and a log of what it did.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::scratch::LoopFs;
use super::{monotonic_ns, own_tid};

/// Inodes of 256 bytes in a block of 4096.
const INODES_OF_A_BLOCK: usize = 16;

/// What a writer does when it has filled its region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Growth {
    /// Writes over what is there: after the first round no block is allocated and no metadata changes but times.
    Rewrite,
    /// Cuts the file to nothing and begins anew: every flush allocates blocks, as a growing entry log does, and a commit
    /// of the filesystem's journal waits for their data.
    Regrow,
}

/// Writes through the page cache into a region of a file and never syncs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Writer {
    pub file: PathBuf,
    /// Bytes of one write.
    pub chunk: usize,
    /// Bytes after which it begins again at the start.
    pub region: u64,
    pub growth: Growth,
    /// The pause after each write; 0 is flat out.
    pub pause_us: u64,
}

/// Which way direct I/O goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Direction {
    Read,
    Write,
}

/// Reads or writes past the page cache, over and over the same region of a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Direct {
    pub file: PathBuf,
    pub direction: Direction,
    /// Bytes of one read or write, a multiple of 4096.
    pub chunk: usize,
    pub region: u64,
    pub pause_us: u64,
}

/// Takes one CPU away at a real-time priority, for `burst_ms` in every `interval_ms`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hog {
    pub cpu: usize,
    pub burst_ms: u64,
    pub interval_ms: u64,
}

/// Changes the modes of many files of one filesystem, over and over: metadata of others for its journal, and no data.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Storm {
    /// Made, and filled with empty files.
    pub directory: PathBuf,
    /// An odd number.
    pub files: usize,
}

/// One burst of a hog on CLOCK_MONOTONIC: from its first instruction on the CPU to its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    pub start_ns: u64,
    pub end_ns: u64,
}

/// How long an interval overlapped the bursts of a hog.
pub fn overlap_ns(bursts: &[Burst], start_ns: u64, end_ns: u64) -> u64 {
    bursts.iter().map(|burst| burst.end_ns.min(end_ns).saturating_sub(burst.start_ns.max(start_ns))).sum()
}

/// Reads the log of a hog.
pub fn bursts(log: &str) -> Vec<Burst> {
    log.lines()
        .map(|line| {
            let (start, end) = line.split_once(' ').expect("two numbers a line");
            Burst { start_ns: start.parse().expect("a number"), end_ns: end.parse().expect("a number") }
        })
        .collect()
}

/// Reads the log of a writer or of direct I/O: how many bytes it moved.
pub fn bytes_moved(log: &str) -> u64 {
    log.trim().parse().expect("one number")
}

impl Writer {
    pub(super) fn perform(self, stop: &AtomicBool, ready: impl Fn(u32)) -> String {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&self.file);
        let file = file.expect("open the writer's file");
        let data = vec![0x77; self.chunk];
        let write = |offset: u64| {
            let cut = offset > 0 || self.growth == Growth::Rewrite || file.set_len(0).is_ok();
            cut && file.write_all_at(&data, offset).is_ok()
        };
        // What it takes from the journal is to be the disk, not the CPU.
        // SAFETY: setpriority takes three numbers; 0 is the calling thread.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
        // A full disk or a dying test ends the writer, not the test.
        repeat(stop, ready, self.chunk, self.region, self.pause_us, write)
    }
}

impl Direct {
    pub(super) fn perform(self, stop: &AtomicBool, ready: impl Fn(u32)) -> String {
        // Filled first, so that reads find blocks and writes change no metadata.
        let filled = File::create(&self.file).expect("create the file for direct I/O");
        let megabyte = vec![0x64; 1 << 20];
        for offset in (0..self.region).step_by(1 << 20) {
            filled.write_all_at(&megabyte, offset).expect("fill the file for direct I/O");
        }
        filled.sync_all().expect("sync the file for direct I/O");
        let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(&self.file);
        let file = file.expect("open the file for direct I/O");
        // Direct I/O wants an aligned buffer: the first aligned byte of one that is a page too long.
        let mut memory = vec![0x64_u8; self.chunk + 4096];
        let skip = memory.as_ptr().align_offset(4096);
        let buffer = &mut memory[skip..skip + self.chunk];
        let direction = self.direction;
        let transfer = |offset: u64| match direction {
            Direction::Read => file.read_exact_at(buffer, offset).is_ok(),
            Direction::Write => file.write_all_at(buffer, offset).is_ok(),
        };
        repeat(stop, ready, self.chunk, self.region, self.pause_us, transfer)
    }
}

impl Storm {
    /// The log is how many changes it made.
    pub(super) fn perform(self, stop: &AtomicBool, ready: impl Fn(u32)) -> String {
        std::fs::create_dir(&self.directory).expect("make the storm's directory");
        let file = |number: usize| self.directory.join((number % self.files).to_string());
        for number in 0..self.files {
            File::create(file(number)).expect("make a file of the storm");
        }
        ready(own_tid());
        let mut changes = 0;
        while !stop.load(Ordering::Relaxed) {
            let mode =
                std::fs::Permissions::from_mode(if (changes / self.files).is_multiple_of(2) { 0o600 } else { 0o640 });
            // Neighbours share a block of the inode table: with a stride each change is another block's.
            if std::fs::set_permissions(file(changes * INODES_OF_A_BLOCK), mode).is_err() {
                break;
            }
            changes += 1;
        }
        changes.to_string()
    }
}

/// Calls a transfer round and round a region until told to stop or until it fails; gives the bytes moved.
fn repeat(
    stop: &AtomicBool,
    ready: impl Fn(u32),
    chunk: usize,
    region: u64,
    pause_us: u64,
    mut transfer: impl FnMut(u64) -> bool,
) -> String {
    ready(own_tid());
    let mut moved = 0_u64;
    let mut offset = 0;
    while !stop.load(Ordering::Relaxed) && transfer(offset) {
        moved += chunk as u64;
        offset += chunk as u64;
        if offset + chunk as u64 > region {
            offset = 0;
        }
        if pause_us > 0 {
            std::thread::sleep(Duration::from_micros(pause_us));
        }
    }
    moved.to_string()
}

impl Hog {
    /// Only the thread that bursts is pinned and raised; the one that listens for the end stays as it was.
    pub(super) fn perform(self, stop: &Arc<AtomicBool>, ready: impl Fn(u32)) -> String {
        pin(self.cpu);
        raise();
        ready(own_tid());
        let mut log = String::new();
        let interval_ns = self.interval_ms * 1_000_000;
        let mut next_ns = monotonic_ns() + interval_ns;
        while !stop.load(Ordering::Relaxed) {
            sleep_until(next_ns);
            let start_ns = monotonic_ns();
            let until_ns = start_ns + self.burst_ms * 1_000_000;
            let mut end_ns = start_ns;
            while end_ns < until_ns {
                end_ns = monotonic_ns();
            }
            let _ = writeln!(log, "{start_ns} {end_ns}");
            // Never two bursts without a pause: the kernel's limit for real-time threads would cut into the second.
            next_ns = (next_ns + interval_ns).max(end_ns + 1_000_000);
        }
        log
    }
}

/// Keeps the calling thread on one CPU.
pub fn pin(cpu: usize) {
    pin_task(0, cpu);
}

/// Keeps a thread on one CPU, also a kernel's own; 0 is the calling thread.
pub fn pin_task(tid: u32, cpu: usize) {
    // SAFETY: an all-zero cpu_set_t is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: CPU_SET writes inside the set only, for any number below its size.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the set outlives the call and its size is the one given.
    let result = unsafe { libc::sched_setaffinity(tid as i32, size_of::<libc::cpu_set_t>(), &raw const set) };
    assert_eq!(result, 0, "pin {tid} to CPU {cpu}: {}", std::io::Error::last_os_error());
}

/// The kernel's thread that commits the journal of a filesystem.
pub fn jbd2_thread(filesystem: &LoopFs) -> u32 {
    let name = format!("jbd2/{}-8", filesystem.device_name());
    let processes = std::fs::read_dir("/proc").expect("list processes").flatten();
    processes
        .filter_map(|process| process.file_name().to_str()?.parse::<u32>().ok())
        .find(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim_end() == name))
        .unwrap_or_else(|| panic!("no thread {name}"))
}

fn raise() {
    let parameter = libc::sched_param { sched_priority: 10 };
    // SAFETY: the parameter outlives the call; 0 is the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) };
    assert_eq!(result, 0, "become a real-time thread: {}", std::io::Error::last_os_error());
}

fn sleep_until(time_ns: u64) {
    let time = libc::timespec { tv_sec: (time_ns / 1_000_000_000) as i64, tv_nsec: (time_ns % 1_000_000_000) as i64 };
    // SAFETY: the time outlives the call and no remainder is asked for.
    unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &raw const time, std::ptr::null_mut()) };
}
