//! Mounts of one mount namespace, and the path of a file that is known by its device and its place in the filesystem.
//!
//! Knows the format of `/proc/<pid>/mountinfo`. The namespace is the caller's choice: an agent in a container sees the
//! host's paths through `/proc/1/mountinfo`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::dev::Dev;
use super::limits;

#[derive(Debug, thiserror::Error)]
#[error("reading the mounts at {path}: {source}; mount /proc, or run where the process may be looked into")]
pub struct MountsError {
    path: PathBuf,
    source: std::io::Error,
}

/// One mounted filesystem, or one directory or file of it that is bound elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    id: u32,
    parent: u32,
    pub dev: Dev,
    /// Directory inside the filesystem that is mounted; `/` unless it is a bind mount, a subvolume or a container's.
    pub root: PathBuf,
    pub point: PathBuf,
    pub filesystem: String,
    /// Device, share or word that was mounted.
    pub source: PathBuf,
}

/// All mounts of one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mounts {
    mounts: Vec<Mount>,
    /// Lines that could not be read, or that lie beyond the limit.
    dropped: usize,
}

impl Mounts {
    /// Reads a file of the mountinfo format.
    pub fn load(path: &Path) -> Result<Self, MountsError> {
        let bytes = std::fs::read(path).map_err(|source| MountsError { path: path.to_owned(), source })?;
        Ok(Self::parse(&bytes))
    }

    pub fn parse(bytes: &[u8]) -> Self {
        let mut this = Self::default();
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            match Mount::parse(line) {
                Some(mount) if this.mounts.len() < limits::MOUNTS => this.mounts.push(mount),
                _ => this.dropped += 1,
            }
        }
        this
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Mount> {
        self.mounts.iter()
    }

    pub fn dropped(&self) -> usize {
        self.dropped
    }

    /// Path of a file from its filesystem's device and its path inside that filesystem. Of several mounts that show the
    /// file, one of the whole filesystem is preferred, then the one with the shortest mount point. `None` if no mount
    /// of this namespace shows it.
    pub fn path(&self, dev: Dev, inside: &Path) -> Option<PathBuf> {
        let shows = |mount: &&Mount| mount.dev == dev && inside.starts_with(&mount.root) && self.is_visible(mount);
        let best = self.mounts.iter().filter(shows).min_by_key(|mount| {
            (mount.root != Path::new("/"), mount.point.as_os_str().len(), mount.point.as_os_str())
        })?;
        let below = inside.strip_prefix(&best.root).ok()?;
        // Joining an empty path would append a slash to the name of a file that is bound by itself.
        Some(if below.as_os_str().is_empty() { best.point.clone() } else { best.point.join(below) })
    }

    /// The mount through which a path is seen.
    pub fn of_path(&self, path: &Path) -> Option<&Mount> {
        let holds = |mount: &&Mount| path.starts_with(&mount.point) && self.is_visible(mount);
        self.mounts.iter().filter(holds).max_by_key(|mount| mount.point.as_os_str().len())
    }

    /// Whether a walk from the root comes to this mount, and stays on it. The order of the lines does not tell: a root
    /// that was switched to stands after what it carries. Parents do: what is mounted over a mount is its child.
    fn is_visible(&self, mount: &Mount) -> bool {
        let mut children = self.mounts.iter().filter(|child| child.parent == mount.id && child.id != mount.id);
        !children.any(|child| child.point == mount.point) && self.is_reached(mount)
    }

    /// Whether nothing else mounted in any of the parents catches the walk on its way here.
    fn is_reached(&self, mount: &Mount) -> bool {
        let mut reached = mount;
        for _ in 0..limits::MOUNT_DEPTH {
            // The parent of the first mount is outside the namespace; the kernel's very first is its own.
            let is_parent = |parent: &&Mount| parent.id == reached.parent && parent.id != reached.id;
            let Some(parent) = self.mounts.iter().find(is_parent) else { return true };
            let mut others = self.mounts.iter().filter(|other| other.parent == parent.id && other.id != reached.id);
            if others.any(|other| other.id != parent.id && reached.point.starts_with(&other.point)) {
                return false;
            }
            reached = parent;
        }
        false
    }
}

impl Mount {
    /// `36 35 98:0 /root /point options [tag]... - type source options`
    fn parse(line: &[u8]) -> Option<Self> {
        let mut words = line.split(|byte| *byte == b' ');
        let id = number(words.next()?)?;
        let parent = number(words.next()?)?;
        let dev = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
        let root = unescape(words.next()?);
        let point = unescape(words.next()?);
        words.by_ref().find(|word| *word == b"-")?;
        let filesystem = String::from_utf8_lossy(words.next()?).into_owned();
        // A source may be empty.
        let source = unescape(words.next().unwrap_or_default());
        Some(Self { id, parent, dev, root, point, filesystem, source })
    }
}

fn number(word: &[u8]) -> Option<u32> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// The kernel writes blanks, newlines, backslashes and `#` as a backslash and three octal digits.
fn unescape(word: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let [first, tail @ ..] = rest {
        match rest {
            [b'\\', high @ b'0'..=b'3', middle @ b'0'..=b'7', low @ b'0'..=b'7', after @ ..] => {
                bytes.push((high - b'0') << 6 | (middle - b'0') << 3 | (low - b'0'));
                rest = after;
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}
