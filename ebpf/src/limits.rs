//! Bounds of everything that the probes keep in kernel memory, each with its reason.

/// Threads and helper threads watched at once. A node rarely has more than a few hundred threads that sync; one more
/// than this is counted as "other", never traced halfway. Costs about 1 KiB each.
pub const SLOTS: u32 = 1024;
/// Entries of the gate, one per task id modulo this; two watched tasks that share an entry cannot both be watched, the
/// second is counted as "other". 256 Ki covers eight times the default pid_max of a small host.
pub const GATE: usize = 1 << 18;
/// Disks watched at once. The first half is taken by the probes when a filesystem is first synced, the second half by
/// the agent for the disks below.
pub const DISKS: u32 = 64;
/// First disk index that belongs to the agent.
pub const DISKS_LOWER: u32 = 32;
/// Filesystems remembered by device number, direct-mapped; a collision costs a look-up, never a wrong answer.
pub const FILESYSTEMS: u32 = 256;
/// Requests in flight on all watched disks, direct-mapped with two tries; one that finds no place is counted.
pub const REQUESTS: u32 = 1 << 13;
/// Pieces of a merged request that are looked at to see whether they are one file's; a longer one stays without a name.
/// A file's own pages come in pieces of a megabyte, so more pieces than this are mostly many small files.
pub const MERGED_BIOS: u32 = 8;
/// Flushes that each disk remembers, to find those that a request asked for: more than overlap on a disk of many hardware
/// queues.
pub const FLUSHES: usize = 8;
/// Syncs that io_uring's and AIO's workers have not begun; the one that was used least is forgotten: when it was asked for
/// is then not known.
pub const ASKING: u32 = 4096;
/// Completed requests that each disk remembers, to show what ran beside a slow sync.
pub const RECENT: usize = 32;
/// Files whose path was already told to the agent, direct-mapped; forgetting one costs telling it again.
pub const FILES: usize = 1 << 12;
/// Bytes of a file's path inside its filesystem, leaf first; a longer one is told truncated.
pub const PATH: usize = 1024;
/// Directory levels of that path.
pub const PATH_DEPTH: usize = 16;
/// Bytes of one name in that path; NAME_MAX of Linux and its final zero.
pub const NAME: usize = 256;
/// Frames of a stack that refines a long wait: enough to pass the scheduler and name the waiting function's caller.
pub const STACK: usize = 16;
/// Switches that each CPU remembers while a watched task waits for it.
pub const RAN: usize = 16;
/// Buckets of a latency histogram: powers of two of a microsecond, the last one open (4.2 s and more).
pub const BUCKETS: usize = 24;
/// Writeback reasons that the kernel has, with room for new ones.
pub const REASONS: usize = 16;
/// Files whose writeback is added up at once; more are added up together, as a file that is not known. The agent takes
/// away those that are idle.
pub const WRITTEN: u32 = 1 << 10;
/// Of a flusher that began before anybody looked: none of the kernel's.
pub const REASON_UNKNOWN: u32 = REASONS as u32 - 1;
/// Bytes of the ring buffer; 4 MiB hold about 10,000 syncs, twenty times what a fast journal makes in a poll.
pub const RING: u32 = 4 << 20;
/// A wake-up within this time of a completion on the same CPU, by the same task, is that completion's.
pub const COMPLETION_NS: u64 = 1_000_000;
