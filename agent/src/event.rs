//! Bytes from the probes become events; events of the agent itself (names, losses) stand in the same stream.
//!
//! Architecture invariant: everything that the rooms to the right know comes through this stream, so that a recording
//! of it is explained exactly as the live stream was. Pure: no clock, no file; parsing never fails.

use fsyncscope_ebpf::part::Hands;
use serde::{Deserialize, Serialize};

mod commit;
mod parse;

pub use commit::{Commit, Commits};
pub use parse::asked;

/// One event. Times are CLOCK_MONOTONIC in ns; devices are `major << 20 | minor`, as the kernel has them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Facts of the machine that a recording was made on; first in the stream.
    Start(Start),
    Sync(Sync),
    Thread(Thread),
    ThreadExit {
        tid: u32,
        pid: u32,
    },
    /// Path inside the filesystem, from its root; without the first `/` if the beginning is not known.
    File {
        dev: u32,
        inode: u64,
        path: String,
    },
    Filesystem {
        dev: u32,
        magic: u64,
        disk: u32,
    },
    Wait(Box<Wait>),
    Delay(Delay),
    Queue(Box<Queue>),
    Commit(Commit),
    /// Where a file can be opened on this machine, and which processes have it open for writing.
    Path {
        dev: u32,
        inode: u64,
        path: String,
        writers: Vec<Writer>,
    },
    /// The process of a thread that is not watched, but whose requests or wake-ups stand beside a slow sync.
    Task {
        tid: u32,
        pid: u32,
        process: String,
    },
    /// A disk's name and what it is stacked on.
    Disk(Disk),
    /// The function that an address lies in.
    Symbol {
        address: u64,
        name: String,
    },
    /// Events were lost between two polls.
    Lost {
        from_ns: u64,
        until_ns: u64,
        syncs: u64,
        details: u64,
    },
    /// A sync of all filesystems was at one of them.
    Portion(Portion),
    /// A sync that still runs.
    Open(Open),
    /// Pages of a file reached a disk from the page cache.
    WrittenBack(WrittenBack),
    /// Bytes that this version does not know.
    Unknown {
        kind: u32,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Start {
    pub version: String,
    pub kernel: String,
    /// `unix = monotonic + this`.
    pub unix_offset_ns: i64,
    pub threshold_ns: u64,
    /// Architecture whose system call numbers the syncs carry.
    pub architecture: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sync {
    pub start_ns: u64,
    pub end_ns: u64,
    /// 0 if the return to user mode was not seen.
    pub return_ns: u64,
    pub tid: u32,
    pub pid: u32,
    pub thread: String,
    pub dev: u32,
    pub inode: u64,
    pub datasync: bool,
    pub syscall: i32,
    /// Negative errno, or 0; of an end that had no event only if it is known.
    pub result: i32,
    pub end: EndSeen,
    pub hands: Hands,
    pub journal_hands: Hands,
    pub after: [u64; 4],
    /// The inode is a directory's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub directory: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub result_known: bool,
    /// Nothing where the thread did it itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Asked>,
}

/// Part of the time of a sync of all filesystems.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Portion {
    pub start_ns: u64,
    pub end_ns: u64,
    pub tid: u32,
    /// The filesystem's.
    pub dev: u32,
}

/// A worker did a sync for the thread that it is told of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    pub through: Through,
    /// io_uring's operation.
    pub opcode: u32,
    /// The worker, and when it began: the sync began when it was asked for, where that was seen.
    pub worker: u32,
    pub begun_ns: u64,
    /// Process of the thread that asked; empty where it is not known.
    pub process: String,
}

/// How a worker was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Through {
    IoUring,
    Aio,
}

impl Through {
    pub fn word(self) -> &'static str {
        match self {
            Self::IoUring => "io_uring",
            Self::Aio => "aio",
        }
    }
}

impl Sync {
    /// The task whose clock its parts are of.
    pub fn doer(&self) -> u32 {
        self.asked.as_ref().map_or(self.tid, |asked| asked.worker)
    }

    /// When that task began.
    pub fn begun_ns(&self) -> u64 {
        self.asked.as_ref().map_or(self.start_ns, |asked| asked.begun_ns)
    }
}

/// How the end of a sync was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndSeen {
    Exactly,
    AtReturn,
    Unseen,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Thread {
    pub tid: u32,
    pub pid: u32,
    pub role: Role,
    pub slot: u32,
    /// Which of the slot's names this is.
    #[serde(default)]
    pub generation: u32,
    pub cgroup: u64,
    pub thread: String,
    pub process: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Sync,
    Journal,
    Worker,
}

/// A request of a watched disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Request {
    pub allocated_ns: u64,
    /// 0 if it was never given to the driver: a bare flush.
    pub issued_ns: u64,
    pub done_ns: u64,
    /// Where it begins on the disk, in units of 512 bytes.
    #[serde(default)]
    pub sector: u64,
    /// 0 if unknown.
    pub inode: u64,
    pub inode_dev: u32,
    pub bytes: u32,
    pub command: u32,
    pub tid: u32,
    pub comm: String,
    pub submitter: Source,
    /// Writeback reason.
    pub reason: u16,
    /// Requests in flight when it was submitted.
    pub in_flight: u32,
    /// Task in whose context it completed.
    pub done_tid: u32,
    /// The kernel worker that gave it to the driver, 0 if whoever submitted it did.
    #[serde(default)]
    pub issued_tid: u32,
}

/// Who submitted a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    Sync,
    Journal,
    Flusher,
    Throttle,
    Worker,
    #[default]
    Other,
}

/// A wait that was long enough to be told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wait {
    pub start_ns: u64,
    pub end_ns: u64,
    pub tid: u32,
    pub pid: u32,
    /// Index of the part that took the last piece of it.
    pub part: u32,
    pub waker_tid: u32,
    pub waker: String,
    /// Address of the waking worker's function.
    pub function: u64,
    pub disk: u32,
    pub request: Option<Request>,
    /// Flush before and after the request: issued, done.
    pub flushes: [[u64; 2]; 2],
    /// Kernel workers that gave these flushes to the driver, 0 for none.
    #[serde(default)]
    pub flush_tids: [u32; 2],
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stack: Vec<u64>,
}

/// A run-queue delay that was long enough to be told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Delay {
    pub start_ns: u64,
    pub end_ns: u64,
    pub tid: u32,
    pub pid: u32,
    pub cpu: u32,
    pub preempted: bool,
    /// It ran on another CPU before, and may have waited there.
    #[serde(default)]
    pub moved: bool,
    /// Who ran on that CPU meanwhile, as far as the CPU remembered, the last one last.
    pub ran: Vec<Ran>,
}

/// A task that ran while another waited for its CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    pub tid: u32,
    pub pid: u32,
    pub process: String,
    pub thread: String,
    pub ns: u64,
}

/// What a disk completed last, oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Queue {
    pub time_ns: u64,
    pub disk: u32,
    pub in_flight: u32,
    pub recent: Vec<Request>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writer {
    pub pid: u32,
    pub name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    pub dev: u32,
    pub name: String,
    /// Whole disks below it.
    pub lower: Vec<u32>,
    /// It is made of other disks or of a file, also where those are not known, as behind an image in memory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stacked: bool,
}

impl Disk {
    /// Whether its device time is that of kernel threads and of what lies below.
    pub fn is_stacked(&self) -> bool {
        self.stacked || !self.lower.is_empty()
    }
}

/// Pages of one file that reached a disk from the page cache between two looks at what the probes add up; those that a
/// sync wrote itself are not among them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WrittenBack {
    pub from_ns: u64,
    pub until_ns: u64,
    pub disk: u32,
    /// As a [`Request`] has them.
    pub inode: u64,
    pub inode_dev: u32,
    pub submitter: Source,
    /// Writeback reason if the flusher submitted it.
    pub reason: u16,
    /// The last task that submitted any.
    pub tid: u32,
    pub comm: String,
    pub bytes: u64,
    pub requests: u64,
}

/// The page cache of the machine against the thresholds that its writers meet, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageCache {
    pub dirty_bytes: u64,
    /// Under writeback now.
    pub writeback_bytes: u64,
    /// Dirty bytes above which the flusher starts.
    pub background_threshold_bytes: u64,
    /// Dirty bytes near which writers are made to wait.
    pub threshold_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Open {
    pub tid: u32,
    pub pid: u32,
    pub thread: String,
    pub dev: u32,
    pub inode: u64,
    pub datasync: bool,
    pub syscall: i32,
    pub start_ns: u64,
    pub now_ns: u64,
    pub hands: Hands,
    /// Index of the running part, or `BLOCKED`; and since when.
    pub class: u32,
    pub since_ns: u64,
    /// Requests in flight on the filesystem's disk, where that is watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u32>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub directory: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Asked>,
    /// Functions on its kernel stack, innermost first; of its journal thread's if it waits for that.
    pub stack: Vec<String>,
    pub journal_stack: Vec<String>,
}
