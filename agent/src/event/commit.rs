//! A commit of a filesystem's journal: its phases, its size, and what is usual there.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Commit {
    pub tid: u32,
    pub dev: u32,
    pub transaction: u32,
    pub start_ns: u64,
    pub locking_ns: u64,
    pub flushing_ns: u64,
    pub logging_ns: u64,
    pub end_ns: u64,
    /// Blocks of the log that it wrote, 0 where that is not known.
    #[serde(default)]
    pub blocks: u32,
    /// Operations of the filesystem that changed metadata in it.
    #[serde(default)]
    pub operations: u32,
    /// Commits of the same journal before it, since it is watched.
    #[serde(default)]
    pub before: Commits,
}

/// Commits of one journal, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Commits {
    pub count: u64,
    /// Blocks of the log that they wrote.
    pub blocks: u64,
    /// Time of their logging phases.
    pub logging_ns: u64,
}
