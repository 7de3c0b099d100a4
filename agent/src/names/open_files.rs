//! Who has a file open: one look through the descriptors of all processes for many files at once.
//!
//! Nothing here may wait. A descriptor's link and facts come from the kernel's own tables; only a file whose inode
//! number fits is looked at, and that without asking a server. A file that is written through a mapping after its
//! descriptor was closed is not found: the list of mappings waits for the memory lock of its process.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::limits;

use super::aged::Aged;
use super::identity::{self, Links};
use super::processes;

/// A file by the kernel's `dev_t` and its inode.
pub type Key = (u32, u64);

/// Who has one file open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    /// The file's path as a process sees it.
    pub link: Option<(u32, PathBuf)>,
    /// Processes that have it open for writing.
    pub writers: Vec<u32>,
}

/// How often may be looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Once per second, however often a spike asks.
    Ours,
    /// The caller asks seldom enough; others need not wait for it.
    Callers,
}

/// Looks at most once per second, and remembers for which files it did.
#[derive(Debug)]
pub struct OpenFiles {
    proc: PathBuf,
    looked: Aged<Key, ()>,
    last_ns: Option<u64>,
    /// Where the last look ran out of time: the last process that it saw.
    resume: Option<u32>,
}

/// One look: what is wanted, and what was found.
struct Look<'a> {
    proc: &'a Path,
    inodes: HashSet<u64>,
    found: HashMap<Key, Holders>,
    started: Instant,
    /// A link that leads through a filesystem that may not answer.
    is_remote: &'a dyn Fn(&Path) -> bool,
}

impl OpenFiles {
    pub fn new(proc: &Path) -> Self {
        Self { proc: proc.to_owned(), looked: Aged::new(limits::NAMES_FILES), last_ns: None, resume: None }
    }

    /// Holders of those files that were not looked for lately; a file that nobody has open has none.
    pub fn look(
        &mut self,
        files: &[Key],
        now_ns: u64,
        pace: Pace,
        is_remote: &dyn Fn(&Path) -> bool,
    ) -> HashMap<Key, Holders> {
        let wanted = self.wanted(files, now_ns);
        let too_soon = self.last_ns.is_some_and(|last| now_ns < last.saturating_add(limits::NAMES_SCAN_EVERY_NS));
        if wanted.is_empty() || pace == Pace::Ours && too_soon {
            return HashMap::new();
        }
        if pace == Pace::Ours {
            self.last_ns = Some(now_ns);
        }
        let inodes = wanted.iter().map(|(_, inode)| *inode).collect();
        let found = wanted.iter().map(|key| (*key, Holders::default())).collect();
        let mut look = Look { proc: &self.proc, inodes, found, started: Instant::now(), is_remote };
        self.resume = look.through_all(self.resume);
        // A look that ran out of time holds only until the next one, which begins where it ended.
        let holds_ns = if self.resume.is_none() { limits::NAMES_SCAN_HOLDS_NS } else { limits::NAMES_SCAN_EVERY_NS };
        let mut found = look.found;
        for key in wanted {
            self.looked.put(key, (), now_ns, now_ns.saturating_add(holds_ns));
        }
        if self.resume.is_some() {
            found.retain(|_, holders| *holders != Holders::default());
        }
        found
    }

    fn wanted(&self, files: &[Key], now_ns: u64) -> HashSet<Key> {
        let fresh = files.iter().filter(|key| self.looked.get(key, now_ns).is_none());
        fresh.copied().take(limits::NAMES_SCAN_FILES).collect()
    }
}

impl Look<'_> {
    /// Goes through the processes, beginning behind one; the last process seen if time ran out.
    fn through_all(&mut self, resume: Option<u32>) -> Option<u32> {
        let mut pids = processes::running(self.proc);
        // At most the length, as turning wants it.
        let begin = resume.map_or(0, |last| pids.partition_point(|pid| *pid <= last));
        pids.rotate_left(begin);
        for pid in pids {
            self.through(pid);
            if self.is_late() {
                return Some(pid);
            }
        }
        None
    }

    fn through(&mut self, pid: u32) {
        let directory = self.proc.join(pid.to_string());
        for entry in std::fs::read_dir(directory.join("fd")).into_iter().flatten().flatten() {
            if self.is_late() {
                return;
            }
            let Ok(link) = std::fs::read_link(entry.path()) else { continue };
            // Sockets, pipes and the like have no path, and are most of what a server has open.
            if link.is_absolute() {
                self.descriptor(pid, &directory.join("fdinfo").join(entry.file_name()), &entry.path(), link);
            }
        }
    }

    fn descriptor(&mut self, pid: u32, facts: &Path, descriptor: &Path, link: PathBuf) {
        let Some(facts) = Facts::read(facts) else { return };
        let fits = match facts.inode {
            Some(inode) => self.inodes.contains(&inode),
            // Kernels before 5.14 do not say the inode.
            None => !(self.is_remote)(&link),
        };
        if !fits {
            return;
        }
        let Ok((dev, inode)) = identity::of(descriptor, Links::Follow) else { return };
        let Some(holders) = self.found.get_mut(&(identity::number(dev), inode)) else { return };
        if facts.access == Access::Write
            && !holders.writers.contains(&pid)
            && holders.writers.len() < limits::NAMES_WRITERS
        {
            holders.writers.push(pid);
        }
        let is_gone = |path: &Path| processes::without_deleted(path) != path;
        if holders.link.as_ref().is_none_or(|(_, known)| is_gone(known) && !is_gone(&link)) {
            holders.link = Some((pid, link));
        }
    }

    fn is_late(&self) -> bool {
        self.started.elapsed() > limits::NAMES_SCAN_TIME
    }
}

/// What `fdinfo` says of a descriptor.
struct Facts {
    access: Access,
    inode: Option<u64>,
}

#[derive(PartialEq)]
enum Access {
    Read,
    Write,
}

impl Facts {
    fn read(path: &Path) -> Option<Self> {
        let mut text = [0; limits::NAMES_FDINFO_BYTES];
        let length = File::open(path).ok()?.read(&mut text).ok()?;
        Self::parse(&String::from_utf8_lossy(&text[..length]))
    }

    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let flags = i32::from_str_radix(field("flags:")?, 8).ok()?;
        let writes = matches!(flags & libc::O_ACCMODE, libc::O_WRONLY | libc::O_RDWR);
        let access = if writes { Access::Write } else { Access::Read };
        Some(Self { access, inode: field("ino:").and_then(|inode| inode.parse().ok()) })
    }
}
