//! What shows that a probe works: what a canary does, and what is told of it.

use serde::Serialize;

/// One thing that the canary's thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// fdatasync and fsync of a file, by turns.
    Syncs,
    /// fsync of the directory.
    Directory,
    IoUring,
    Aio,
    /// syncfs, after a write into the page cache.
    Whole,
    /// Two requests that the disk's scheduler makes one.
    Merge,
    SyncFileRange,
    Fadvise,
    /// A sync under another name.
    Renamed,
}

impl Act {
    pub fn words(self) -> &'static str {
        match self {
            Self::Syncs => "fdatasync and fsync",
            Self::Directory => "fsync of a directory",
            Self::IoUring => "fsync through io_uring",
            Self::Aio => "fsync through Linux AIO",
            Self::Whole => "syncfs",
            Self::Merge => "two requests made one",
            Self::SyncFileRange => "sync_file_range",
            Self::Fadvise => "posix_fadvise",
            Self::Renamed => "fsync under a new thread name",
        }
    }
}

/// What shows that a probe works, when a thread syncs a file and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// The end of the thread is told.
    ThreadExit,
    /// A sync's time is not all on a CPU.
    Sleep,
    /// A sync has time between a wake-up and a CPU.
    WakeUp,
    /// The disk's histograms hold a transfer.
    Transfer,
    /// They know who submitted it.
    Submitter,
    /// The journal's commit is told with its phases.
    Commit,
    /// A sync's return to user mode is dated.
    Return,
    /// Syncs on this filesystem are told with their exact end.
    Sync(&'static str),
    /// Syncs on this filesystem are told.
    SyncStart(&'static str),
    /// What the canary does is told as what it is, on this type of filesystem if on one.
    Act(Act, Option<&'static str>),
    /// It runs while the canary does this; what it tells is told by others too.
    RunsIn(Act),
}

impl Shown {
    /// The type of filesystem on which alone it can be shown.
    pub fn filesystem(self) -> Option<&'static str> {
        match self {
            Self::Sync(filesystem) | Self::SyncStart(filesystem) => Some(filesystem),
            Self::Act(_, filesystem) => filesystem,
            _ => None,
        }
    }
}
