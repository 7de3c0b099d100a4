//! A small journal: one thread that writes a little and makes it durable, again and again, and keeps its own book of
//! every sync. That book is the oracle for durations; it is taken outside the kernel, so it is never shorter than the
//! truth and is longer by two clock readings and the way in and out.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::mapping::Mapping;
use super::{monotonic_ns, own_tid};

/// The distance of scattered writes.
const APART: u64 = 64 << 10;

/// How a journal makes its bytes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Durability {
    Fdatasync,
    Fsync,
    /// The write itself, on a descriptor that is open with O_DSYNC.
    DsyncWrite,
    /// The write itself, on a descriptor that is open with O_SYNC.
    SyncWrite,
    /// msync(MS_SYNC) of the pages of a mapping that were just changed.
    Msync,
}

/// Where each write lands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// Behind the last one: the file grows, and a journalled filesystem commits each time. Not for msync.
    Append,
    /// Round and round in a region of this many bytes that was written beforehand: no metadata changes but times.
    Within(u64),
}

/// What a journal does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Workload {
    /// The name of the thread; the kernel keeps 15 bytes.
    pub thread: String,
    pub file: PathBuf,
    pub durability: Durability,
    pub place: Place,
    pub bytes: usize,
    /// How many such writes, 64 KiB apart so that no two become one request, precede each sync; 1 is usual.
    pub scatter: u64,
    /// The pause between the write and the sync: time for a flusher to take the pages first.
    pub linger_us: u64,
    /// The pause after each sync.
    pub think_us: u64,
    /// How many syncs it makes; without a number it goes on until it is stopped.
    pub count: Option<u64>,
}

/// One sync in the journal's own book: CLOCK_MONOTONIC, and 0 or the error's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    pub start_ns: u64,
    pub end_ns: u64,
    pub error: i32,
}

impl Operation {
    pub fn duration_ns(&self) -> u64 {
        self.end_ns - self.start_ns
    }
}

impl Workload {
    /// A journal like BookKeeper's: 512 bytes appended, fdatasync, a pause of a millisecond.
    pub fn new(thread: &str, file: PathBuf) -> Self {
        Self {
            thread: thread.to_owned(),
            file,
            durability: Durability::Fdatasync,
            place: Place::Append,
            bytes: 512,
            scatter: 1,
            linger_us: 0,
            think_us: 1000,
            count: None,
        }
    }

    /// Runs on a thread of this process.
    pub fn spawn(self) -> Journal {
        // On the caller's thread: the sync of the filling is none of the journal's.
        if let Place::Within(region) = self.place {
            let file = File::create(&self.file).expect("create the journal's file");
            file.write_all_at(&vec![0x30; region as usize], 0).expect("fill the journal's file");
            file.sync_all().expect("sync the journal's file");
        }
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let (sender, receiver) = channel();
        let thread = std::thread::Builder::new()
            .name(self.thread.clone())
            .spawn(move || {
                let mut target = Target::open(&self);
                let _ = sender.send(own_tid());
                self.run(&mut target, &told)
            })
            .expect("start the journal's thread");
        let tid = receiver.recv().expect("the journal could not open its file");
        Journal { thread: Some(thread), stop, tid }
    }

    /// Runs in a child process; gives its book as text.
    pub(super) fn perform(self, stop: &Arc<AtomicBool>, ready: impl Fn(u32)) -> String {
        let mut journal = self.spawn();
        ready(journal.tid());
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(5));
        }
        journal
            .finish()
            .iter()
            .map(|operation| {
                let Operation { start_ns, end_ns, error } = operation;
                format!("{start_ns} {end_ns} {error}\n")
            })
            .collect()
    }

    /// Where the writes before one sync land.
    fn offsets(&self, first: u64) -> Vec<u64> {
        let apart = (0..self.scatter).map(|number| first + number * APART);
        match self.place {
            Place::Append => apart.collect(),
            Place::Within(region) => apart.map(|offset| offset % region).collect(),
        }
    }

    fn run(&self, target: &mut Target, stop: &AtomicBool) -> Vec<Operation> {
        let data = vec![0x6a; self.bytes];
        let mut book = Vec::new();
        let mut offset = 0;
        while !stop.load(Ordering::Relaxed) && self.count.is_none_or(|count| (book.len() as u64) < count) {
            if let Place::Within(region) = self.place
                && offset + self.bytes as u64 > region
            {
                offset = 0;
            }
            book.push(target.sync(self.durability, &data, &self.offsets(offset), || pause(self.linger_us)));
            offset += self.bytes as u64;
            pause(self.think_us);
        }
        book
    }
}

/// Reads the book of a journal that ran as a child process.
pub fn book(log: &str) -> Vec<Operation> {
    log.lines()
        .map(|line| {
            let numbers: Vec<u64> = line.split(' ').map(|word| word.parse().expect("a number")).collect();
            Operation { start_ns: numbers[0], end_ns: numbers[1], error: numbers[2] as i32 }
        })
        .collect()
}

/// A journal that runs on a thread of this process.
pub struct Journal {
    thread: Option<JoinHandle<Vec<Operation>>>,
    stop: Arc<AtomicBool>,
    tid: u32,
}

impl Journal {
    pub fn tid(&self) -> u32 {
        self.tid
    }

    /// Tells it to stop after the sync that runs, and gives its book.
    pub fn stop(mut self) -> Vec<Operation> {
        self.stop.store(true, Ordering::Relaxed);
        self.finish()
    }

    /// Waits until it has made all its syncs, and gives its book.
    pub fn wait(mut self) -> Vec<Operation> {
        self.thread.take().expect("it is waited for once").join().expect("the journal's thread panicked")
    }

    fn finish(&mut self) -> Vec<Operation> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("it is waited for once").join().expect("the journal's thread panicked")
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // Not joined: a sync that hangs behind a frozen filesystem must not hang the test that shows it.
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The journal's open file, and its mapping for msync.
struct Target {
    file: File,
    mapping: Option<Mapping>,
}

impl Target {
    fn open(workload: &Workload) -> Self {
        let flag = match workload.durability {
            Durability::DsyncWrite => libc::O_DSYNC,
            Durability::SyncWrite => libc::O_SYNC,
            Durability::Fdatasync | Durability::Fsync | Durability::Msync => 0,
        };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(flag)
            .open(&workload.file)
            .expect("open the journal's file");
        let mapping = match (workload.durability, workload.place) {
            (Durability::Msync, Place::Within(region)) => Some(Mapping::new(&[&file], region as usize)),
            (Durability::Msync, Place::Append) => panic!("a mapping does not grow: msync needs Place::Within"),
            _ => None,
        };
        Self { file, mapping }
    }

    /// Writes, lingers and makes durable; only what makes durable is timed.
    fn sync(&mut self, durability: Durability, data: &[u8], offsets: &[u64], linger: impl FnOnce()) -> Operation {
        let write = |offset: &u64| self.file.write_all_at(data, *offset);
        match durability {
            Durability::Fdatasync => {
                offsets.iter().try_for_each(write).expect("write to the journal");
                linger();
                timed(|| self.file.sync_data())
            }
            Durability::Fsync => {
                offsets.iter().try_for_each(write).expect("write to the journal");
                linger();
                timed(|| self.file.sync_all())
            }
            Durability::DsyncWrite | Durability::SyncWrite => timed(|| write(&offsets[0])),
            Durability::Msync => {
                let mapping = self.mapping.as_mut().expect("msync has a mapping");
                mapping.write(data, offsets[0] as usize);
                linger();
                timed(|| mapping.sync(offsets[0] as usize, data.len()))
            }
        }
    }
}

fn pause(microseconds: u64) {
    if microseconds > 0 {
        std::thread::sleep(Duration::from_micros(microseconds));
    }
}

fn timed(call: impl FnOnce() -> std::io::Result<()>) -> Operation {
    let start_ns = monotonic_ns();
    let result = call();
    let end_ns = monotonic_ns();
    let error = result.err().map_or(0, |error| error.raw_os_error().unwrap_or(-1));
    Operation { start_ns, end_ns, error }
}
