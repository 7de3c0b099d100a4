//! The table of probes: what each is for, and what is lost without it.
//!
//! Architecture invariant: a tracepoint is named here and nowhere else in the agent.

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

/// Whether the tracer is of use without a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    Required,
    Optional,
    /// One of the filesystems that can be traced; at least one of them is required.
    Filesystem,
}

const fn probe(name: &'static str, raw: &'static str, need: Need, lost: &'static str) -> Probe {
    Probe { name, raw, need, lost }
}

/// All probes, in the order in which they are attached: those that begin a sync come last, so that the first sync that
/// is seen is seen whole.
pub const PROBES: &[Probe] = &[
    probe("sched_process_exit", "sched_process_exit_raw", Need::Required, "ended threads would fill the table"),
    probe("sched_switch", "sched_switch_raw", Need::Required, "no sync can be broken down"),
    probe("sched_waking", "sched_waking_raw", Need::Required, "no wait can be explained"),
    probe("block_rq_complete", "block_rq_complete_raw", Need::Required, "no wait can be linked to a request"),
    probe("block_rq_issue", "block_rq_issue_raw", Need::Required, "queue and device time cannot be told apart"),
    probe("block_io_start", "block_io_start_raw", Need::Optional, "no request can be linked, nor its submitter and file named"),
    probe("writeback_start", "writeback_start_raw", Need::Optional, "the reason of a writeback stays unknown"),
    probe("jbd2_commit_locking", "jbd2_locking_raw", Need::Optional, "commits are not told by phase"),
    probe("jbd2_commit_flushing", "jbd2_flushing_raw", Need::Optional, "commits are not told by phase"),
    probe("jbd2_commit_logging", "jbd2_logging_raw", Need::Optional, "commits are not told by phase"),
    probe("jbd2_end_commit", "jbd2_end_commit_raw", Need::Optional, "waits for the journal thread are taken for others"),
    probe("jbd2_start_commit", "jbd2_start_commit_raw", Need::Optional, "waits for the journal thread stay unexplained"),
    probe("rseq_update", "rseq_update_raw", Need::Optional, "time after the sync is unseen, and syncs on xfs have no end"),
    probe("ext4_sync_file_exit", "ext4_sync_file_exit_raw", Need::Filesystem, "syncs on ext4 are not seen"),
    probe("ext4_sync_file_enter", "ext4_sync_file_enter_raw", Need::Filesystem, "syncs on ext4 are not seen"),
    probe("xfs_file_fsync", "xfs_file_fsync_raw", Need::Filesystem, "syncs on xfs are not seen"),
];

/// How a probe is attached, or why it is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// With typed pointers.
    Typed,
    /// As a raw tracepoint.
    Raw,
    /// The sentence says why.
    Missing(String),
}

/// A probe and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    pub probe: &'static Probe,
    pub state: State,
}
