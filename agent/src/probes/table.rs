//! The table of probes: what each is for, and what is lost without it.
//!
//! Architecture invariant: a tracepoint is named here and nowhere else in the agent.

use fsyncscope_ebpf::layout::Layout;

use super::shown::{Act, Shown};

/// One tracepoint that a program attaches to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The tracepoint, which is also the name of its typed program.
    pub name: &'static str,
    /// Name of the raw tracepoint program.
    pub raw: &'static str,
    pub need: Need,
    /// What reports lack if it is missing, as the end of the sentence "without it, ...".
    pub lost: &'static str,
}

impl Probe {
    pub fn shown_by(&self) -> Shown {
        match self.name {
            "sched_process_exit" => Shown::ThreadExit,
            "sched_switch" => Shown::Sleep,
            "sched_waking" => Shown::WakeUp,
            "block_rq_issue" | "block_rq_complete" => Shown::Transfer,
            "block_io_start" | "block_getrq" => Shown::Submitter,
            "rseq_update" => Shown::Return,
            "ext4_sync_file_enter" | "ext4_sync_file_exit" => Shown::Sync("ext4"),
            "btrfs_sync_file" => Shown::SyncStart("btrfs"),
            "xfs_file_fsync" => Shown::SyncStart("xfs"),
            "xfs_dir_fsync" => Shown::Act(Act::Directory, Some("xfs")),
            "ext4_sync_fs" => Shown::Act(Act::Whole, Some("ext4")),
            "xfs_fs_sync_fs" => Shown::Act(Act::Whole, Some("xfs")),
            "btrfs_sync_fs" => Shown::Act(Act::Whole, Some("btrfs")),
            "task_rename" => Shown::Act(Act::Renamed, None),
            "io_uring_queue_async_work" => Shown::Act(Act::IoUring, None),
            "workqueue_queue_work" => Shown::Act(Act::Aio, None),
            "block_rq_merge" => Shown::RunsIn(Act::Merge),
            name if name.ends_with("sync_file_range") => Shown::Act(Act::SyncFileRange, None),
            name if name.ends_with("fadvise64") => Shown::Act(Act::Fadvise, None),
            name if name.starts_with("jbd2_") => Shown::Commit,
            // writeback_start, writeback_queue
            _ => Shown::RunsIn(Act::Whole),
        }
    }
}

impl Probe {
    /// Place in the table of kernel facts of the row without which it would tell nonsense, or nothing: not every kernel has
    /// it, or describes the types of modules.
    pub fn reads(&self) -> Option<usize> {
        let row = |owner, name| Layout::FIELDS.iter().position(|field| field.owner == owner && field.name == name);
        match self.name {
            "xfs_file_fsync" | "xfs_dir_fsync" => row("xfs_inode", "i_vnode"),
            "xfs_fs_sync_fs" => row("xfs_mount", "m_super"),
            "btrfs_sync_file" => row("btrfs_device", "bdev"),
            "btrfs_sync_fs" => row("btrfs_fs_info", "sb"),
            // Without it nobody knows for whom a worker works (until 5.16).
            "io_uring_queue_async_work" | "workqueue_queue_work" => row("task_struct", "worker_private"),
            _ => None,
        }
    }
}

/// Whether the tracer is of use without a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    Required,
    Optional,
    /// Attached only where the kernel lacks the tracepoint of this other probe, whose place in the list it then takes.
    InPlaceOf(&'static str),
    /// One of the filesystems that can be traced; at least one of them is required.
    Filesystem,
    /// Taxes all work of the kernel's workers, so it is attached once a process uses Linux AIO.
    Aio,
    /// Taxes all system calls of the node, so it is attached only when it is asked for.
    Call,
}

const fn probe(name: &'static str, raw: &'static str, need: Need, lost: &'static str) -> Probe {
    Probe { name, raw, need, lost }
}

/// All probes, in the order in which they are attached: those that begin a sync come last, so that the first sync that
/// is seen is seen whole; one that stands in for another comes after that.
pub const PROBES: &[Probe] = &[
    probe("sched_process_exit", "sched_process_exit_raw", Need::Required, "ended threads would fill the table"),
    probe("sched_switch", "sched_switch_raw", Need::Required, "no sync can be broken down"),
    probe("sched_waking", "sched_waking_raw", Need::Required, "no wait can be explained"),
    probe("block_rq_complete", "block_rq_complete_raw", Need::Required, "no wait can be linked to a request"),
    probe("block_rq_issue", "block_rq_issue_raw", Need::Required, "queue and device time cannot be told apart"),
    probe(
        "block_io_start",
        "block_io_start_raw",
        Need::Optional,
        "no request can be linked, nor its submitter and file named",
    ),
    probe(
        "block_getrq",
        "block_getrq_raw",
        Need::InPlaceOf("block_io_start"),
        "no request can be linked, nor its submitter and file named",
    ),
    probe(
        "block_rq_merge",
        "block_rq_merge_raw",
        Need::Optional,
        "a request that is merged into another counts as open",
    ),
    probe("task_rename", "task_rename_raw", Need::Optional, "a thread keeps the name that it had at its first sync"),
    probe(
        "io_uring_queue_async_work",
        "io_uring_queued_raw",
        Need::Optional,
        "syncs through io_uring begin with their worker's work",
    ),
    probe("writeback_start", "writeback_start_raw", Need::Optional, "the reason of a writeback stays unknown"),
    probe("jbd2_commit_locking", "jbd2_locking_raw", Need::Optional, "commits are not told by phase"),
    probe("jbd2_commit_flushing", "jbd2_flushing_raw", Need::Optional, "commits are not told by phase"),
    probe("jbd2_commit_logging", "jbd2_logging_raw", Need::Optional, "commits are not told by phase"),
    probe(
        "jbd2_end_commit",
        "jbd2_end_commit_raw",
        Need::Optional,
        "waits for the journal thread are taken for others",
    ),
    probe(
        "jbd2_start_commit",
        "jbd2_start_commit_raw",
        Need::Optional,
        "waits for the journal thread stay unexplained",
    ),
    probe(
        "rseq_update",
        "rseq_update_raw",
        Need::Optional,
        "time after the sync is unseen, and syncs on xfs and btrfs have no end",
    ),
    probe("ext4_sync_file_exit", "ext4_sync_file_exit_raw", Need::Filesystem, "syncs on ext4 are not seen"),
    probe("ext4_sync_file_enter", "ext4_sync_file_enter_raw", Need::Filesystem, "syncs on ext4 are not seen"),
    probe(
        "workqueue_queue_work",
        "workqueue_queued_raw",
        Need::Aio,
        "nobody knows who asked for a sync through Linux AIO, nor when",
    ),
    probe(
        "writeback_queue",
        "writeback_queue_raw",
        Need::Optional,
        "a sync of whole filesystems begins after its first wait for writeback",
    ),
    probe("btrfs_sync_fs", "btrfs_sync_fs_raw", Need::Filesystem, "sync and syncfs are not seen on btrfs"),
    probe("xfs_fs_sync_fs", "xfs_fs_sync_fs_raw", Need::Filesystem, "sync and syncfs are not seen on xfs"),
    probe("ext4_sync_fs", "ext4_sync_fs_raw", Need::Filesystem, "sync and syncfs are not seen on ext4"),
    probe("btrfs_sync_file", "btrfs_sync_file_raw", Need::Filesystem, "syncs on btrfs are not seen"),
    probe("xfs_dir_fsync", "xfs_dir_fsync_raw", Need::Filesystem, "syncs of directories on xfs are not seen"),
    probe("xfs_file_fsync", "xfs_file_fsync_raw", Need::Filesystem, "syncs on xfs are not seen"),
];

/// Which system calls are traced by their own tracepoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls([bool; Self::NAMES.len()]);

impl Calls {
    /// Words of the operations, in the order of [`CALLS`].
    pub const NAMES: [&str; 2] = ["sync_file_range", "fadvise"];
    pub const ALL: Self = Self([true; Self::NAMES.len()]);

    /// From words with commas between, or `all`.
    pub fn named(text: &str) -> Option<Self> {
        if text == "all" {
            return Some(Self::ALL);
        }
        let mut calls = Self::default();
        for word in text.split(',') {
            calls.0[Self::NAMES.iter().position(|name| *name == word)?] = true;
        }
        Some(calls)
    }

    /// The tracepoints of those that are wanted.
    pub fn probes(self) -> impl Iterator<Item = &'static Probe> {
        CALLS.iter().zip(self.0).filter(|(_, wanted)| *wanted).flat_map(|(probes, _)| probes)
    }
}

/// Probes on the way in and out of a system call: its programs have the tracepoints' names.
const CALLS: [[Probe; 2]; Calls::NAMES.len()] = [
    [
        probe("sys_exit_sync_file_range", "", Need::Call, "sync_file_range is not traced"),
        probe("sys_enter_sync_file_range", "", Need::Call, "sync_file_range is not traced"),
    ],
    [
        probe("sys_exit_fadvise64", "", Need::Call, "posix_fadvise is not traced"),
        probe("sys_enter_fadvise64", "", Need::Call, "posix_fadvise is not traced"),
    ],
];

/// A program that does nothing, on a tracepoint that one of the probes is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor {
    /// The tracepoint.
    pub event: &'static str,
    pub typed: &'static str,
    pub raw: &'static str,
    /// It is the floor of the probes whose names begin so.
    pub probes: &'static str,
}

/// The floors, each probe's being the first that fits: a program costs more where its instructions and the task's
/// data are cold in the caches, so the block layer's rare events have a floor of their own.
pub const FLOORS: &[Floor] = &[
    Floor { event: "block_rq_issue", typed: "floor_issue", raw: "floor_issue_raw", probes: "block_" },
    Floor { event: "sched_switch", typed: "floor_switch", raw: "floor_switch_raw", probes: "" },
];

/// How a probe is attached, or why it is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// With typed pointers.
    Typed,
    /// As a raw tracepoint.
    Raw,
    /// As a classic tracepoint.
    Classic,
    /// Until there is a need for it.
    Waiting,
    /// The sentence says why.
    Missing(String),
}

/// A probe and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    pub probe: &'static Probe,
    pub state: State,
}
