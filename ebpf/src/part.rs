//! The classes of time: every nanosecond of a watched task belongs to exactly one of them.

/// One hand of a task's clock.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Running on a CPU.
    OnCpu = 0,
    /// Runnable, but switched out for another task.
    Preempted = 1,
    /// Woken, but not yet running.
    RunQueue = 2,
    /// Blocked before the request it waits for was allocated: throttle, tags, writeback throttle, splitting.
    BeforeSubmit = 3,
    /// Its request was allocated, but not yet given to the driver.
    Queue = 4,
    /// Its request was with the device.
    Device = 5,
    /// Waiting for its turn in the flush machinery.
    FlushQueue = 6,
    /// A cache flush was with the device.
    FlushDevice = 7,
    /// Its request was done, but the wake-up had not come.
    Completion = 8,
    /// Its pages were being written by the flusher.
    Writeback = 9,
    /// Its request was done, and the worker that finishes it had not been woken.
    WorkerWait = 10,
    /// That worker was woken, but not yet running.
    WorkerRunQueue = 11,
    /// That worker ran.
    Worker = 12,
    /// Waiting for the filesystem's journal thread, whose own clock tells the rest.
    Journal = 13,
    /// Blocked, and woken by another task: known by its waker alone.
    Task = 14,
    /// Blocked, and nothing links the wake-up to a cause.
    Unlinked = 15,
    /// A helper without work to do.
    Idle = 16,
}

impl Part {
    /// Number of hands.
    pub const COUNT: usize = 17;
    /// All of them, by index.
    pub const ALL: [Self; Self::COUNT] = [
        Self::OnCpu,
        Self::Preempted,
        Self::RunQueue,
        Self::BeforeSubmit,
        Self::Queue,
        Self::Device,
        Self::FlushQueue,
        Self::FlushDevice,
        Self::Completion,
        Self::Writeback,
        Self::WorkerWait,
        Self::WorkerRunQueue,
        Self::Worker,
        Self::Journal,
        Self::Task,
        Self::Unlinked,
        Self::Idle,
    ];
}

/// What a task does now: a hand that is running, or blocked with the hand still to be found.
pub const BLOCKED: u32 = u32::MAX;

/// Nanoseconds by [`Part`].
pub type Hands = [u64; Part::COUNT];
