//! What the agent tells the probes before they are loaded; frozen from then on.

/// Frozen settings.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Waits, run-queue delays and commits shorter than this are not told one by one, in ns.
    pub detail_ns: u64,
    /// Waits at least this long are told with a stack, in ns; 0 for never.
    pub stack_ns: u64,
    /// `sched_switch` has the previous state as its fourth argument (since 5.18).
    pub switch_has_state: u32,
    /// `block_rq_issue` has the queue as its first argument (until 5.10).
    pub issue_has_queue: u32,
    /// The start of a request is told by `block_getrq`, which has its bio and not the request, since there is no
    /// `block_io_start` (until 6.4).
    pub begins_with_bio: u32,
    /// `block_getrq` has the queue as its first argument (until 5.10).
    pub getrq_has_queue: u32,
    /// `rseq_update` is attached, so the return to user mode is dated.
    pub has_return: u32,
    /// `io_uring_queue_async_work` begins with the request (since 5.17).
    pub async_has_request: u32,
    /// The helpers that give a task's user registers and its stack exist (since 5.15).
    pub has_registers: u32,
    pub unused: u32,
}

impl Settings {
    /// What the object file holds before the agent fills it.
    pub const UNSET: Self = Self {
        detail_ns: u64::MAX,
        stack_ns: 0,
        switch_has_state: 0,
        issue_has_queue: 0,
        begins_with_bio: 0,
        getrq_has_queue: 0,
        has_return: 0,
        async_has_request: 0,
        has_registers: 0,
        unused: 0,
    };
}

/// Counters of what did not fit, one number each for the whole host.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Sync records that found the ring full.
    LostSync = 0,
    /// Waits, run-queue delays, commits and queue pictures that found the ring full.
    LostDetail = 1,
    /// Names of threads, files and disks that found the ring full; told again at the next chance.
    LostName = 2,
    /// Syncs of threads beyond the bound.
    Unwatched = 3,
    /// Requests that found no place in the table.
    RequestUntracked = 4,
    /// A thread entered a sync while its former one had not ended: an exit was not seen.
    ExitUnseen = 5,
    /// Clocks of journal threads that moved each time they were read: those waits are remainders.
    Torn = 6,
    /// Sync records made.
    Syncs = 7,
    /// Requests of the page cache that found no entry to be added to, neither their file's nor that of unknown files.
    WrittenUntold = 8,
    /// Disks that found no place: their requests are not linked.
    DiskUntracked = 9,
    /// Kernel threads that would have explained waits and found no place, each time that one was met.
    HelperUnwatched = 10,
    /// Flushes that a request asked for and that are not among the disk's last.
    FlushUntracked = 11,
}

impl Counter {
    /// Number of counters.
    pub const COUNT: u32 = 12;
}

const _: () =
    assert!(size_of::<Settings>() == 2 * 8 + 8 * 4, "settings cross the border as whole words without padding");
