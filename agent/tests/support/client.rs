//! A process that goes through one door a number of times and keeps its own exact book. The book lies in shared memory of
//! a file, so that a process may end right after its last operation, without one more system call.

use std::fs::{File, OpenOptions};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Barrier;

use serde::{Deserialize, Serialize};

use super::doors::Door;
use super::mapping::Mapping;
use super::means::{Known, Site};
use super::{monotonic_ns, own_tid};

/// The bytes of one line of the book.
const LINE: usize = 512;

/// Which threads go through the door.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shape {
    /// The first thread of the process, which then ends as usual.
    Main,
    /// So many others at once.
    Threads(u64),
    /// The first thread; the process exits right after its last operation.
    Exits,
}

impl Shape {
    pub fn name(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Threads(_) => "threads",
            Self::Exits => "exits",
        }
    }
}

/// What a client does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Client {
    pub door: String,
    pub shape: Shape,
    /// Operations of all threads together.
    pub count: u64,
    pub directory: PathBuf,
}

/// One call in the client's book: CLOCK_MONOTONIC, and 0 or the error's number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which call of the door's operation.
    pub call: usize,
    pub thread: String,
    pub tid: u32,
    pub start_ns: u64,
    pub end_ns: u64,
    pub error: i32,
    pub known: Vec<Known>,
}

impl Entry {
    pub fn duration_ns(&self) -> u64 {
        self.end_ns - self.start_ns
    }

    fn line(&self) -> String {
        let Self { call, thread, tid, start_ns, end_ns, error, known } = self;
        let known: String = known.iter().map(|Known { inode, path }| format!(" {inode} {}", path.display())).collect();
        format!("{call} {thread} {tid} {start_ns} {end_ns} {error}{known}")
    }

    fn parse(line: &str) -> Self {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        let known = words[6..]
            .chunks(2)
            .map(|pair| Known { inode: pair[0].parse().expect("a number"), path: PathBuf::from(pair[1]) });
        Self {
            call: number(0) as usize,
            thread: words[1].to_owned(),
            tid: number(2) as u32,
            start_ns: number(3),
            end_ns: number(4),
            error: number(5) as i32,
            known: known.collect(),
        }
    }
}

/// Reads the book of a client.
pub fn book(log: &str) -> Vec<Entry> {
    log.lines().filter(|line| !line.trim_matches('\0').trim().is_empty()).map(Entry::parse).collect()
}

impl Client {
    /// Runs in a process of its own, which begins when stdin ends: libtest keeps the first thread of this one for itself.
    pub(super) fn perform(self, ready: impl Fn(u32), log: &Path) {
        // SAFETY: what the copy does needs no thread of this process: its locks were free, for only this test runs.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
        if pid == 0 {
            // SAFETY: takes a number, and ends this process with the one that started it.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            let ended = catch_unwind(AssertUnwindSafe(|| self.work(ready, log)));
            std::process::exit(i32::from(ended.is_err()));
        }
        let mut status = 0;
        // SAFETY: the pid is that of our own child, the status ours to be written.
        let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
        assert!(waited == pid && status == 0, "the client ended with {status}");
    }

    fn work(&self, ready: impl Fn(u32), log: &Path) {
        std::fs::write("/proc/self/comm", &self.door).expect("set the process's name");
        let door = Door::named(&self.door);
        let threads = if let Shape::Threads(threads) = self.shape { threads } else { 1 };
        let shares: Vec<u64> =
            (0..threads).map(|own| self.count / threads + u64::from(own < self.count % threads)).collect();
        let lines = door.calls.len() * self.count as usize;
        Page::make(log, lines);
        let page = |own: usize| Page::open(log, lines, door.calls.len() * shares[..own].iter().sum::<u64>() as usize);
        let wait = || {
            ready(own_tid());
            // Not by std's stdin: its lock may have been held by a thread that this process has no copy of.
            std::fs::read("/proc/self/fd/0").expect("read stdin to its end");
        };
        match self.shape {
            Shape::Main | Shape::Exits => self.go(door, 0, shares[0], page(0), wait),
            Shape::Threads(_) => {
                let all = Barrier::new(shares.len() + 1);
                std::thread::scope(|scope| {
                    for (own, share) in shares.iter().enumerate() {
                        let (client, page, all) = (self, &page, &all);
                        let run = move || {
                            client.go(door, own, *share, page(own), || {
                                all.wait();
                            })
                        };
                        let thread = std::thread::Builder::new().name(format!("thread-{own}"));
                        thread.spawn_scoped(scope, run).expect("start a thread of the client");
                    }
                    wait();
                    all.wait();
                });
            }
        }
    }

    /// One thread's share.
    fn go(&self, door: &Door, own: usize, share: u64, mut page: Page, wait: impl FnOnce()) {
        let shape = self.shape.name();
        let site =
            Site { directory: self.directory.clone(), stem: format!("{}.{shape}", door.name), thread: own as u64 };
        let mut means = (door.open)(&site);
        let (tid, known) = (own_tid(), means.known());
        let thread = std::thread::current()
            .name()
            .filter(|_| matches!(self.shape, Shape::Threads(_)))
            .unwrap_or(door.name)
            .to_owned();
        wait();
        for number in 0..share {
            means.prepare(number);
            for call in 0..door.calls.len() {
                let start_ns = monotonic_ns();
                let result = means.call(call);
                let end_ns = monotonic_ns();
                let error = result.err().map_or(0, |error| error.raw_os_error().unwrap_or(-1));
                let (thread, known) = (thread.clone(), known.clone());
                page.note(&Entry { call, thread, tid, start_ns, end_ns, error, known });
            }
        }
        if self.shape == Shape::Exits {
            // SAFETY: no handler runs, nothing is dropped or flushed: this is the next system call after the operation's.
            unsafe { libc::_exit(0) };
        }
    }
}

/// One thread's part of the book.
struct Page {
    mapping: Mapping,
    next: usize,
}

impl Page {
    fn bytes(lines: usize) -> usize {
        (lines * LINE).next_multiple_of(4096)
    }

    /// An empty book, all of its memory there beforehand.
    fn make(log: &Path, lines: usize) {
        std::fs::write(log, " ".repeat(Self::bytes(lines))).expect("make the book");
    }

    fn open(log: &Path, lines: usize, first: usize) -> Self {
        let file: File = OpenOptions::new().read(true).write(true).open(log).expect("open the book");
        Self { mapping: Mapping::new(&[&file], Self::bytes(lines)), next: first }
    }

    fn note(&mut self, entry: &Entry) {
        let line = entry.line();
        assert!(line.len() < LINE, "a line of the book has its place");
        self.mapping.write(format!("{line:width$}\n", width = LINE - 1).as_bytes(), self.next * LINE);
        self.next += 1;
    }
}
