//! Where files lie on their disk, as their filesystem tells it: the oracle for what a request really carries.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

/// _IOWR('f', 11, struct fiemap) of include/uapi/linux/fs.h.
const FS_IOC_FIEMAP: libc::c_ulong = 0xc020_660b;
/// Data that has no place yet is written first.
const FIEMAP_FLAG_SYNC: u32 = 1;
const EXTENTS_MAX: usize = 64;

/// struct fiemap_extent.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

/// struct fiemap with room for its extents.
#[repr(C)]
struct Map {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [Extent; EXTENTS_MAX],
}

/// Bytes of a disk and the inode that they belong to.
#[derive(Clone, Copy, Debug)]
struct Owned {
    from: u64,
    until: u64,
    inode: u64,
}

/// Whose bytes a piece of a disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// One of the files, whole.
    File(u64),
    /// More than one of them, or only in part.
    Several,
    /// None of them: the filesystem itself, its journal, or a file that was not asked for.
    Nobody,
}

/// The places of some files on one disk.
#[derive(Debug, Default)]
pub struct Extents(Vec<Owned>);

impl Extents {
    /// Adds a file; it must lie on the disk as it is, without a partition between, and must not move any more.
    pub fn add(&mut self, file: &File) {
        let mut map = Map {
            start: 0,
            length: u64::MAX,
            flags: FIEMAP_FLAG_SYNC,
            mapped_extents: 0,
            extent_count: EXTENTS_MAX as u32,
            reserved: 0,
            extents: [Extent::default(); EXTENTS_MAX],
        };
        // SAFETY: the map outlives the call and has room for as many extents as it says.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut map) };
        assert_eq!(result, 0, "ask where a file lies: {}", std::io::Error::last_os_error());
        let inode = file.metadata().expect("look at the file").ino();
        let extents = &map.extents[..map.mapped_extents as usize];
        assert!(!extents.is_empty() && extents.len() < EXTENTS_MAX, "{} extents of inode {inode}", extents.len());
        self.0.extend(extents.iter().map(|extent| Owned {
            from: extent.physical,
            until: extent.physical + extent.length,
            inode,
        }));
    }

    /// Whose these bytes of the disk are.
    pub fn owner(&self, from: u64, until: u64) -> Owner {
        let mut owned = 0;
        let mut inodes: Vec<u64> = Vec::new();
        for piece in self.0.iter().filter(|piece| piece.from < until && from < piece.until) {
            owned += piece.until.min(until) - piece.from.max(from);
            inodes.push(piece.inode);
        }
        inodes.sort_unstable();
        inodes.dedup();
        match inodes[..] {
            [] => Owner::Nobody,
            [inode] if owned == until - from => Owner::File(inode),
            _ => Owner::Several,
        }
    }
}
