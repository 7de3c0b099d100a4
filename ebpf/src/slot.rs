//! What the kernel keeps of each watched task and disk. The agent reads it only to show what is open.

use crate::limits::{BUCKETS, FLUSHES, RECENT};
use crate::part::Hands;

/// Why a task is watched.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It syncs.
    Sync = 1,
    /// It commits a filesystem's journal.
    Journal = 2,
    /// A kernel worker that submits requests or finishes them.
    Worker = 3,
}

/// Where a syncing thread is.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Outside = 0,
    /// Inside a sync.
    Inside = 1,
    /// The sync has ended in the kernel; the return to user mode was not seen yet.
    Returning = 2,
}

/// How a sync was asked for.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// A system call of the thread that does it.
    Call = 0,
    /// An io_uring request, done by one of io_uring's workers.
    IoUring = 1,
    /// A Linux AIO request, done by a kernel worker.
    Aio = 2,
}

/// `__NR_sync` and `__NR_syncfs`, by whether this machine's registers are those of x86-64 or of arm64.
pub const SYNC_CALLS: [[i32; 2]; 2] = [[162, 306], [81, 267]];

/// Who asked for a sync that a worker does.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Asker {
    /// A [`Door`]; for a call the rest is not used.
    pub door: u32,
    /// io_uring's operation.
    pub opcode: u32,
    /// The thread that asked, 0 where it is not known.
    pub tid: u32,
    pub tgid: u32,
    /// When it was handed to the worker, 0 where that was not seen.
    pub asked_ns: u64,
    /// Address of the work: while the worker has another one, this sync is over.
    pub work: u64,
    pub comm: [u8; 16],
    /// Name of its process's first thread.
    pub process: [u8; 16],
}

/// Who submitted a request.
#[repr(u16)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitter {
    /// A thread inside a sync.
    Sync = 0,
    /// A journal thread.
    Journal = 1,
    /// Page-cache writeback.
    Flusher = 2,
    /// A block throttle's dispatcher: whose request it was is not known here.
    Throttle = 3,
    /// Another kernel worker: a loop device's, or a filesystem's.
    Worker = 4,
    /// Any other task.
    Other = 5,
}

impl Submitter {
    pub const COUNT: usize = 6;
}

/// `REQ_PREFLUSH` in a request's command, the same on all kernels that are supported: it wants a flush before its data.
pub const PREFLUSH: u32 = 1 << 18;

/// One request of a watched disk. Times are CLOCK_MONOTONIC in ns, 0 for "not yet".
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Request {
    pub allocated_ns: u64,
    pub issued_ns: u64,
    pub done_ns: u64,
    /// Inode whose page is first in the request, 0 where unknown (direct, flush); see `inode_dev`.
    pub inode: u64,
    pub sector: u64,
    /// Kernel's dev_t of that inode's filesystem; of the block device's own (major 0) for filesystem metadata.
    pub inode_dev: u32,
    pub bytes: u32,
    /// `cmd_flags`: the operation in the low 8 bits, flags above.
    pub command: u32,
    /// Task that submitted it.
    pub tid: u32,
    pub submitter: u16,
    /// Writeback reason if the flusher submitted it.
    pub reason: u16,
    /// Requests in flight on the disk when it was submitted.
    pub in_flight: u32,
    /// Task in whose context it completed.
    pub done_tid: u32,
    /// The kernel worker that gave it to the driver, 0 if whoever submitted it did.
    pub issued_tid: u32,
    /// When that worker was woken last, and when it ran then.
    pub issuer_woken_ns: u64,
    pub issuer_running_ns: u64,
    pub comm: [u8; 16],
}

/// Whose pages of the page cache reached a disk, through whom, and why: what is added up for it is a [`Written`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WrittenKey {
    /// As a [`Request`] has them; 0 for a file that is not known.
    pub inode: u64,
    pub inode_dev: u32,
    /// `major << 20 | minor`.
    pub disk: u32,
    /// A [`Submitter`], but never a sync: that names its file itself.
    pub submitter: u32,
    pub reason: u32,
}

/// Pages of one file that reached a disk, since the entry was made.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Written {
    pub bytes: u64,
    pub requests: u64,
    /// When the last of them was done.
    pub last_ns: u64,
    /// The last task that submitted any.
    pub tid: u32,
    pub unused: u32,
    pub comm: [u8; 16],
}

/// Latencies of a disk's requests of one kind and one submitter, in buckets of powers of two of a microsecond.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Latencies {
    /// Bucket 0 is below 1 us, bucket i from 2^(i-1) to 2^i us, the last is open.
    pub buckets: [u64; BUCKETS],
    pub sum_ns: u64,
    /// What they carried; told with the device's time alone.
    pub bytes: u64,
}

/// What a latency is of.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read = 0,
    Write = 1,
    /// A cache flush, once for each request that asked for it.
    Flush = 2,
}

impl Kind {
    pub const COUNT: usize = 3;
}

/// Which time of a request.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Before the driver has it.
    Queue = 0,
    /// With the driver and the device.
    Device = 1,
}

impl Phase {
    pub const COUNT: usize = 2;
}

/// Place of a disk's latencies in their table; the disk by its index.
pub const fn latencies_place(disk: u32, kind: Kind, submitter: u32, phase: Phase) -> u32 {
    ((disk * Kind::COUNT as u32 + kind as u32) * Submitter::COUNT as u32 + submitter) * Phase::COUNT as u32
        + phase as u32
}

/// A task that left a CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Ran {
    pub until_ns: u64,
    pub tid: u32,
    pub tgid: u32,
    pub comm: [u8; 16],
    /// Name of its process's first thread.
    pub process: [u8; 16],
}

/// A cache flush that a disk has done, with whom gave it to the driver as a [`Request`] has it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Flush {
    pub issued_ns: u64,
    pub done_ns: u64,
    pub issuer_woken_ns: u64,
    pub issuer_running_ns: u64,
    pub issued_tid: u32,
    pub unused: u32,
}

/// A watched disk.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Disk {
    /// `major << 20 | minor`; 0 for a free entry.
    pub dev: u32,
    pub in_flight: u32,
    /// Number of flushes done so far; the next one goes to `flushes[flushed % FLUSHES]`.
    pub flushed: u64,
    pub flushes: [Flush; FLUSHES],
    /// Number of requests completed so far; the next one goes to `recent[completed % RECENT]`.
    pub completed: u64,
    pub recent: [Request; RECENT],
}

/// Place of a disk in the table of gates, by `major << 20 | minor`: spread, since minors of one driver go up by 16 or 256.
pub const fn disk_gate(dev: u32) -> u32 {
    dev.wrapping_mul(0x9e37_79b1) >> 16
}

/// A filesystem that was synced, by its device number.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Filesystem {
    /// Kernel's dev_t, 0 for a free entry.
    pub dev: u32,
    /// Index of its disk, 0 for none.
    pub disk: u32,
    /// Index of the disk of its journal.
    pub log_disk: u32,
    /// Slot of its journal thread, 0 while none was seen.
    pub journal: u32,
    /// The agent was told of it.
    pub told: u32,
    pub unused: u32,
}

/// A watched task.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    pub tid: u32,
    pub tgid: u32,
    pub role: u32,
    pub stage: u32,
    /// The running hand, or [`crate::part::BLOCKED`].
    pub class: u32,
    /// Index of the filesystem's disk, and of its journal's.
    pub disk: u32,
    pub log_disk: u32,
    /// Index into the table of filesystems.
    pub filesystem: u32,
    /// Since when `class` holds.
    pub since_ns: u64,
    /// The last wake-up and the switch-in after it.
    pub woken_ns: u64,
    pub running_ns: u64,
    pub start_ns: u64,
    pub end_ns: u64,
    pub inode: u64,
    /// Kernel's dev_t of the filesystem.
    pub dev: u32,
    /// System call number, -1 where unknown.
    pub syscall: i32,
    pub datasync: u32,
    pub result: i32,
    pub switches: u32,
    /// Writeback reason of a flusher, or number of the transaction of a journal thread.
    pub reason: u32,
    /// A journal thread is inside a commit; it has ended one and not slept since.
    pub committing: u32,
    pub ended: u32,
    /// How the end of this sync will be seen: an [`crate::event::End`].
    pub end: u32,
    /// How it was asked for: a [`Door`]. But for a call, `asker` says more.
    pub door: u32,
    /// The agent was told of this task.
    pub told: u32,
    /// Counts the names that this slot had, of all its tasks: what the agent refuses is one of them. From 1.
    pub generation: u32,
    pub unused: u32,
    /// The inode that is synced is a directory's.
    pub directory: u32,
    /// Of a sync of whole filesystems: how far it is, see the probe; and since when it is at the one of `dev`.
    pub pass: u32,
    /// Its return to user mode was seen once, so it is seen whenever the thread has slept.
    pub returns: u32,
    pub portion_ns: u64,
    /// Journal thread that `snapshot` is of, 0 for none.
    pub snapshot_of: u32,
    /// CPU that it last ran on.
    pub cpu: u32,
    pub hands: Hands,
    /// Of the time after the end: on CPU, preempted, woken but not running, blocked.
    pub after: [u64; 4],
    /// Difference of the journal thread's clock over this sync's waits for it.
    pub journal_hands: Hands,
    /// The journal thread's clock when the running wait began.
    pub snapshot: Hands,
    /// Time at which the journal thread, if it was blocked then, had blocked before that: to be taken off again.
    pub snapshot_blocked_ns: u64,
    /// Last data request of this thread that completed.
    pub own: Request,
    /// Phases of the running commit: start, locking, flushing, logging.
    pub phases: [u64; 4],
    pub asker: Asker,
    /// Commits of this thread so far.
    pub commits: Commits,
    /// What tells the sync's system call from another of the same number: see the probe. Kept, as the three that follow,
    /// where no event of the filesystem tells the result.
    pub call: u64,
    /// It was seen to sleep, or to be put aside, inside that call.
    pub call_seen: u32,
    /// Negative errno that the sync will give, as far as its end is not seen.
    pub failing: i32,
    /// `result` is what the call gave.
    pub result_known: u32,
    pub unused_last: u32,
}

/// Commits of a journal thread, added up: what is usual there.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Commits {
    pub count: u64,
    /// Blocks of the log that they wrote.
    pub blocks: u64,
    /// Time of their logging phases.
    pub logging_ns: u64,
}

impl Slot {
    /// 8-byte words of a slot.
    pub const WORDS: usize = size_of::<Self>() / 8;
}
const _: () = assert!(
    size_of::<Slot>().is_multiple_of(8)
        && size_of::<Disk>().is_multiple_of(8)
        && size_of::<Request>().is_multiple_of(8)
);
