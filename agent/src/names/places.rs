//! Where a file of a filesystem can be opened: the mount tables of the first process and of the agent itself.
//!
//! A place is checked by a look at it, because a path inside a filesystem may be another's: an overlay shows its own
//! path for a file that lies in the filesystem below it (kernels before 6.5), and there may be such a file there too.
//! The look finds names that the sync itself brought into the kernel's cache; through a remote filesystem none is done.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::kernel::dev::Dev;
use crate::kernel::host::Roots;
use crate::kernel::mounts::Mounts;
use crate::limits;

use super::identity::{self, Links};

/// Filesystems that may wait for a server or a daemon when a path leads through them.
const REMOTE: [&str; 12] =
    ["nfs", "nfs4", "cifs", "smb3", "ceph", "9p", "afs", "autofs", "lustre", "ocfs2", "gfs2", "glusterfs"];

/// Whether a file was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    At(PathBuf),
    Nowhere,
    /// Not in the tables, which are too fresh to be read again: worth another try later.
    Later,
}

/// A file by its number and its path inside the filesystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inside {
    pub dev: Dev,
    pub inode: u64,
    pub path: PathBuf,
}

/// The mount tables, the first process's first: an agent in a container wants the paths of the host.
#[derive(Debug)]
pub struct Places {
    proc: PathBuf,
    tables: Vec<Table>,
    read_ns: Option<u64>,
}

#[derive(Debug)]
struct Table {
    mounts: Mounts,
    /// Link to the root directory that its paths start from.
    root: PathBuf,
}

impl Places {
    pub fn new(roots: &Roots) -> Self {
        Self { proc: roots.proc.clone(), tables: Table::read_all(&roots.proc), read_ns: None }
    }

    pub fn find(&mut self, file: &Inside, now_ns: u64) -> Place {
        if let Some(path) = self.look_up(file) {
            return Place::At(path);
        }
        if !self.refresh(now_ns) {
            return Place::Later;
        }
        self.look_up(file).map_or(Place::Nowhere, Place::At)
    }

    /// Reads the tables again, unless that was done just now.
    pub fn refresh(&mut self, now_ns: u64) -> bool {
        if self.read_ns.is_some_and(|read_ns| now_ns < read_ns.saturating_add(limits::NAMES_MOUNTS_NS)) {
            return false;
        }
        self.read_ns = Some(now_ns);
        self.tables = Table::read_all(&self.proc);
        true
    }

    /// The place in the tables as they are.
    pub fn look_up(&self, file: &Inside) -> Option<PathBuf> {
        self.tables.iter().find_map(|table| table.place(file))
    }

    /// Whether a path leads through a filesystem that may not answer.
    pub fn is_remote(&self, path: &Path) -> bool {
        self.tables.iter().any(|table| table.is_remote(path))
    }

    /// Whether a path is surely the file's, on this machine as the agent or the first process sees it.
    pub fn shows(&self, path: &Path, dev: Dev, inode: u64) -> bool {
        self.tables
            .iter()
            .any(|table| !table.is_remote(path) && table.look_at(path).is_some_and(|found| found == Ok((dev, inode))))
    }
}

/// Tables of other processes, read while one list of files is named.
#[derive(Debug, Default)]
pub struct Others(Vec<(u32, Mounts)>);

impl Others {
    /// A path as a process sees it, turned into the path inside the filesystem.
    pub fn inside(&mut self, proc: &Path, pid: u32, path: &Path) -> Option<PathBuf> {
        if self.0.iter().all(|(known, _)| *known != pid) {
            if self.0.len() >= limits::NAMES_OTHER_TABLES {
                return None;
            }
            let mounts = Mounts::load(&proc.join(pid.to_string()).join("mountinfo")).unwrap_or_default();
            self.0.push((pid, mounts));
        }
        let (_, mounts) = self.0.iter().find(|(known, _)| *known == pid)?;
        let mount = mounts.of_path(path)?;
        Some(mount.root.join(path.strip_prefix(&mount.point).ok()?))
    }
}

impl Table {
    /// A table that cannot be read shows no file; doctor says which privilege is missing. Where the first process and
    /// the agent see the same, the agent's own root is taken: to walk from another process's needs a privilege.
    fn read_all(proc: &Path) -> Vec<Self> {
        let [first, own] = ["1", "self"].map(|process| {
            let directory = proc.join(process);
            Some(Self { mounts: Mounts::load(&directory.join("mountinfo")).ok()?, root: directory.join("root") })
        });
        let first = first.filter(|first| own.as_ref().is_none_or(|own| own.mounts != first.mounts));
        first.into_iter().chain(own).collect()
    }

    fn place(&self, file: &Inside) -> Option<PathBuf> {
        let path = self.mounts.path(file.dev, &file.path)?;
        (self.is_remote(&path) || self.leads_to(&path, file)).then_some(path)
    }

    fn is_remote(&self, path: &Path) -> bool {
        let remote = |filesystem: &str| REMOTE.contains(&filesystem) || filesystem.starts_with("fuse");
        self.mounts.iter().any(|mount| remote(&mount.filesystem) && path.starts_with(&mount.point))
    }

    /// What may not be looked at is believed: without the privilege for it every path would be lost.
    fn leads_to(&self, path: &Path, file: &Inside) -> bool {
        match self.look_at(path) {
            // A filesystem without a disk of its own may give each of its parts a number that the tables do not have.
            Some(Ok((dev, inode))) => inode == file.inode && (dev == file.dev || file.dev.major == 0),
            Some(Err(error)) => error == ErrorKind::PermissionDenied,
            None => true,
        }
    }

    /// What lies at a path of this table; `None` if its root may not be walked from.
    fn look_at(&self, path: &Path) -> Option<Result<(Dev, u64), ErrorKind>> {
        identity::of(&self.root, Links::Follow).ok()?;
        let below = path.strip_prefix("/").unwrap_or(path);
        Some(identity::of(&self.root.join(below), Links::Stay).map_err(|error| error.kind()))
    }
}
