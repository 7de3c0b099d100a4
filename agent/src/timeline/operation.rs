//! Which operation a sync is, by the system call that it runs in.

use crate::event::{Sync as Event, Through};

/// `IORING_OP_WRITEV`, `WRITE_FIXED` and `WRITE`.
const WRITES: [u32; 3] = [2, 5, 23];

/// The operation as users know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    Fsync,
    Fdatasync,
    /// A write to a file opened with O_DSYNC.
    ODsync,
    /// A write to a file opened with O_SYNC.
    OSync,
    Msync,
    /// Of one filesystem, and of all.
    Syncfs,
    Sync,
    /// Known only by the tracepoints of their system calls: writeback of a part, and pages given up.
    SyncFileRange,
    Fadvise,
}

impl Operation {
    pub const ALL: [Self; 9] = [
        Self::Fsync,
        Self::Fdatasync,
        Self::ODsync,
        Self::OSync,
        Self::Msync,
        Self::Syncfs,
        Self::Sync,
        Self::SyncFileRange,
        Self::Fadvise,
    ];

    /// From the system call's number, where it is known, or io_uring's; and whether only data must become durable.
    pub fn of(event: &Event, architecture: &str) -> Self {
        let datasync = event.datasync;
        if let Some(asked) = &event.asked {
            return Self::by_data(datasync, asked.through == Through::IoUring && WRITES.contains(&asked.opcode));
        }
        match (architecture, event.syscall) {
            ("x86_64", 74) | ("aarch64", 82) => Self::Fsync,
            ("x86_64", 75) | ("aarch64", 83) => Self::Fdatasync,
            ("x86_64", 26) | ("aarch64", 227) => Self::Msync,
            ("x86_64", 306) | ("aarch64", 267) => Self::Syncfs,
            ("x86_64", 162) | ("aarch64", 81) => Self::Sync,
            ("x86_64", 277) | ("aarch64", 84) => Self::SyncFileRange,
            ("x86_64", 221) | ("aarch64", 223) => Self::Fadvise,
            // write, pwrite64, writev, pwritev, pwritev2
            ("x86_64", 1 | 18 | 20 | 296 | 328) | ("aarch64", 64 | 66 | 68 | 70 | 287) => Self::by_data(datasync, true),
            _ => Self::by_data(datasync, false),
        }
    }

    fn by_data(datasync: bool, write: bool) -> Self {
        match (datasync, write) {
            (true, true) => Self::ODsync,
            (false, true) => Self::OSync,
            (true, false) => Self::Fdatasync,
            (false, false) => Self::Fsync,
        }
    }

    /// Not of whole filesystems.
    pub fn is_of_files(self) -> bool {
        !matches!(self, Self::Syncfs | Self::Sync)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Fsync => "fsync",
            Self::Fdatasync => "fdatasync",
            Self::ODsync => "o_dsync",
            Self::OSync => "o_sync",
            Self::Msync => "msync",
            Self::Syncfs => "syncfs",
            Self::Sync => "sync",
            Self::SyncFileRange => "sync_file_range",
            Self::Fadvise => "fadvise",
        }
    }
}

impl std::fmt::Display for Operation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name())
    }
}
