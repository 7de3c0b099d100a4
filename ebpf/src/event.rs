//! What the probes tell the agent: one record per sync, names once, details only of long waits.

use crate::limits::{PATH, RAN, RECENT, STACK};
use crate::part::Hands;
use crate::slot::{Asker, Commits, Ran, Request};

/// Kind of an event; the first member of its header.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Sync = 1,
    Thread = 2,
    ThreadExit = 3,
    File = 4,
    Wait = 5,
    Delay = 6,
    Queue = 7,
    Commit = 8,
    Filesystem = 9,
    Portion = 10,
}

/// How the end of a sync was seen.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The filesystem's own exit event: exact, with the result.
    Event = 0,
    /// The return to user mode: some microseconds late.
    Return = 1,
    /// It never slept, so its end was not seen; it ended before the time given.
    Unseen = 2,
}

/// First 16 bytes of each event.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// A [`Kind`].
    pub kind: u32,
    /// Slot of the task that it is about.
    pub slot: u32,
    /// CLOCK_MONOTONIC when it was made, in ns.
    pub time_ns: u64,
}

/// One sync, complete.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SyncRecord {
    pub header: Header,
    pub start_ns: u64,
    pub end_ns: u64,
    /// Return to user mode, 0 where it was not seen.
    pub return_ns: u64,
    pub inode: u64,
    pub tid: u32,
    pub tgid: u32,
    /// Kernel's dev_t of the filesystem.
    pub dev: u32,
    pub datasync: u32,
    /// Negative errno, or 0; of an end that had no event only if it is known.
    pub result: i32,
    /// System call number of this machine's architecture, -1 where unknown.
    pub syscall: i32,
    pub switches: u32,
    /// An [`End`].
    pub end: u32,
    pub directory: u32,
    pub result_known: u32,
    pub asker: Asker,
    pub comm: [u8; 16],
    /// Partition of `end_ns - start_ns`.
    pub hands: Hands,
    /// Partition of `hands[Journal]` by the journal thread's own clock.
    pub journal_hands: Hands,
    /// Of `return_ns - end_ns`: on CPU, preempted, woken but not running, blocked.
    pub after: [u64; 4],
}

/// A task is watched from now on.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ThreadRecord {
    pub header: Header,
    pub tid: u32,
    pub tgid: u32,
    /// A [`crate::slot::Role`].
    pub role: u32,
    /// Which of the slot's names this is.
    pub generation: u32,
    pub started_ns: u64,
    pub cgroup: u64,
    pub comm: [u8; 16],
    /// Name of the process's first thread.
    pub process: [u8; 16],
}

/// A watched task has ended.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ThreadExitRecord {
    pub header: Header,
    pub tid: u32,
    pub tgid: u32,
}

/// A file's path inside its filesystem.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FileRecord {
    pub header: Header,
    pub inode: u64,
    pub dev: u32,
    /// Bytes used of `names`.
    pub bytes: u32,
    /// The root was reached; otherwise the path is longer than what is told.
    pub complete: u32,
    pub tgid: u32,
    /// Names from the leaf upwards, each ended by a zero.
    pub names: [u8; PATH],
}

/// A filesystem was synced for the first time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FilesystemRecord {
    pub header: Header,
    pub magic: u64,
    /// Kernel's dev_t.
    pub dev: u32,
    /// `major << 20 | minor` of its disk, 0 where it has none.
    pub disk: u32,
}

/// A watched task was blocked for long.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct WaitRecord {
    pub header: Header,
    pub start_ns: u64,
    pub tid: u32,
    pub tgid: u32,
    pub waker_tid: u32,
    pub waker_tgid: u32,
    /// The [`crate::part::Part`] that took the last piece of it.
    pub part: u32,
    /// `major << 20 | minor` of the request's disk, 0 for none.
    pub disk: u32,
    /// Address of the waking worker's function, 0 if the waker is none.
    pub function: u64,
    pub waker: [u8; 16],
    pub request: Request,
    /// Flush before and after the request: issued, done; 0 for none.
    pub flushes: [[u64; 2]; 2],
    /// Kernel workers that gave these flushes to the driver, 0 for none.
    pub flush_tids: [u32; 2],
    /// Kernel addresses, innermost first, 0-terminated; all 0 if no stack was taken.
    pub stack: [u64; STACK],
}

/// A watched task was runnable for long before it ran.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DelayRecord {
    pub header: Header,
    pub start_ns: u64,
    pub tid: u32,
    pub tgid: u32,
    pub cpu: u32,
    /// CPU that it ran on before: another one means that it may have waited there, behind whoever ran there.
    pub former_cpu: u32,
    pub unused: u32,
    /// [`crate::part::Part::Preempted`] or [`crate::part::Part::RunQueue`].
    pub part: u32,
    /// Tasks that left that CPU while any watched task waited for one: a ring in no order.
    pub ran: [Ran; RAN],
}

/// The requests that a disk completed last, told beside a long wait for it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct QueueRecord {
    pub header: Header,
    pub disk: u32,
    pub in_flight: u32,
    pub completed: u64,
    /// A ring: the newest is at `(completed - 1) % RECENT`.
    pub recent: [Request; RECENT],
}

/// A journal commit that took long.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CommitRecord {
    pub header: Header,
    pub tid: u32,
    pub transaction: u32,
    /// Kernel's dev_t of the filesystem.
    pub dev: u32,
    pub tgid: u32,
    /// Start, locking, flushing, logging; the header's time is its end.
    pub phases: [u64; 4],
    /// Blocks of the log that it wrote, 0 where that is not known.
    pub blocks: u32,
    /// Operations of the filesystem that changed metadata in it.
    pub operations: u32,
    /// Commits of the same journal before it.
    pub before: Commits,
}

/// A sync of all filesystems was at one of them, until the header's time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PortionRecord {
    pub header: Header,
    pub start_ns: u64,
    pub tid: u32,
    /// Kernel's dev_t.
    pub dev: u32,
}

const _: () = assert!(size_of::<Header>() == 16);
const _: () = assert!(size_of::<SyncRecord>() == 16 + 32 + 40 + 64 + 16 + 2 * 136 + 32);
