//! What was written back from the page cache, with the names that are known of it.

use super::Timeline;
use crate::event::{self, Disk, Writer};

/// Pages that reached a disk from the page cache.
#[derive(Clone, Debug)]
pub struct WrittenBack {
    pub event: event::WrittenBack,
    pub disk: Disk,
    pub subject: Subject,
    /// Processes that have the file open for writing.
    pub writers: Vec<Writer>,
}

/// What the pages are of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A file; its path is `None` if it is not known.
    File { inode: u64, path: Option<String> },
    /// The filesystem's own blocks.
    Metadata,
    /// Several files in one request, or one that could not be named.
    Unknown,
}

impl Timeline {
    /// Puts names to what was written back.
    pub fn written_back(&self, event: event::WrittenBack) -> WrittenBack {
        let known = self.file(event.inode_dev, event.inode);
        let subject = match event.inode {
            0 => Subject::Unknown,
            _ if event.is_metadata() => Subject::Metadata,
            inode => Subject::File { inode, path: known.map(|known| known.path.clone()) },
        };
        let writers = known.map(|known| known.writers.clone()).unwrap_or_default();
        WrittenBack { disk: self.disk(event.disk), subject, writers, event }
    }
}

impl event::WrittenBack {
    /// Blocks of a filesystem belong to its block device, which has no major number of its own.
    pub fn is_metadata(&self) -> bool {
        self.inode != 0 && self.inode_dev >> 20 == 0
    }

    /// The file, if it is one that may have a name.
    pub fn file(&self) -> Option<(u32, u64)> {
        (self.inode != 0 && !self.is_metadata()).then_some((self.inode_dev, self.inode))
    }
}
