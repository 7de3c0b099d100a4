//! Block devices: names, whole disks, what they are stacked on, and how their queues are set.
//!
//! Knows `/sys/dev/block` and `/sys/class/block`. Must not know requests or syncs. The kernel gives no order in which a stacked device uses
//! those below it, so what lies below is a set.

use std::collections::BTreeSet;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::dev::Dev;
use super::limits;

/// A block device as a filesystem names it: a disk or a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    pub dev: Dev,
    pub name: String,
    /// The disk that owns the queue; for a partition, the one it is on.
    pub disk: Disk,
    /// Devices that the disk is stacked on: parts of a device mapper or RAID device, or the device that holds a loop
    /// device's file.
    pub lower: Vec<Device>,
}

/// A whole disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    pub dev: Dev,
    pub name: String,
    pub queue: Queue,
    /// The file behind a loop device.
    pub backing_file: Option<PathBuf>,
    /// It is made of other devices or of a file, whether those are known or not.
    pub stacked: bool,
}

/// Settings of a disk's queue that shape a sync; `None` where the kernel does not show one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    pub write_cache: Option<WriteCache>,
    /// Whether the device writes a block past its cache at once; otherwise the kernel flushes after the write.
    pub fua: Option<bool>,
    /// The scheduler in use.
    pub scheduler: Option<String>,
    pub rotational: Option<bool>,
    /// Requests that may be in the queue.
    pub requests: Option<u32>,
    /// Read latency that writeback throttling defends, in microseconds; 0 if it is off.
    pub throttle_target_us: Option<u64>,
}

/// Directories that sysfs gives to the disks of the drivers that make disks of others.
const STACKED: [&str; 4] = ["loop", "dm", "md", "bcache"];

/// Whether a completed write may still be lost with the power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteCache {
    /// It may, so a sync has to flush.
    Back,
    /// It may not, so the kernel drops flushes.
    Through,
}

/// Device of the filesystem that holds the file behind a loop device, by the loop device's name and the file's path.
pub type FileDev = fn(&str, &Path) -> Option<Dev>;

/// Reads block devices under a prefix that stands for `/sys`.
#[derive(Clone, Debug)]
pub struct Disks {
    sys_root: PathBuf,
    file_dev: FileDev,
}

impl Disks {
    pub fn new(sys_root: &Path) -> Self {
        Self::with_files(sys_root, block_dev_of_file)
    }

    /// With another answer to where a loop device's file is: for a tree that is not this machine's.
    pub fn with_files(sys_root: &Path, file_dev: FileDev) -> Self {
        Self { sys_root: sys_root.to_owned(), file_dev }
    }

    /// Describes a device and what it is stacked on; `None` if it is not a block device, or gone.
    pub fn device(&self, dev: Dev) -> Option<Device> {
        let mut budget = limits::STACKED_DEVICES;
        self.stacked(dev, limits::STACK_DEPTH, &mut budget)
    }

    fn stacked(&self, dev: Dev, depth: usize, budget: &mut usize) -> Option<Device> {
        *budget = budget.checked_sub(1)?;
        let own = self.directory(dev)?;
        let whole = if own.join("partition").exists() { own.parent()?.to_owned() } else { own.clone() };
        let disk = Disk {
            dev: read(&whole, "dev")?.parse().ok()?,
            name: name(&whole)?,
            queue: Queue::read(&whole.join("queue")),
            backing_file: read(&whole, "loop/backing_file").map(PathBuf::from),
            stacked: STACKED.iter().any(|driver| whole.join(driver).is_dir()),
        };
        let mut lower = Vec::new();
        if let Some(depth) = depth.checked_sub(1) {
            let below = self.below(&whole, &disk).into_iter();
            lower.extend(below.filter(|below| *below != disk.dev).filter_map(|dev| self.stacked(dev, depth, budget)));
        }
        Some(Device { dev, name: name(&own)?, disk, lower })
    }

    /// Devices right below a whole disk, in the order of their numbers.
    fn below(&self, whole: &Path, disk: &Disk) -> BTreeSet<Dev> {
        let entries = std::fs::read_dir(whole.join("slaves")).into_iter().flatten().flatten();
        let slaves = entries.filter_map(|entry| read(&entry.path(), "dev")?.parse().ok());
        let file = disk.backing_file.as_deref().and_then(|file| (self.file_dev)(&disk.name, file));
        slaves.chain(file).take(limits::STACKED_DEVICES).collect()
    }

    /// Where sysfs keeps a device, with the link that its number is followed.
    fn directory(&self, dev: Dev) -> Option<PathBuf> {
        let numbered = self.sys_root.join("dev/block").join(dev.to_string()).canonicalize().ok();
        numbered.or_else(|| self.listed(dev))
    }

    /// The same by a look through the names: Podman hides the links by number from its containers.
    fn listed(&self, dev: Dev) -> Option<PathBuf> {
        let names = std::fs::read_dir(self.sys_root.join("class/block")).ok()?;
        let number = dev.to_string();
        let found =
            names.flatten().map(|entry| entry.path()).find(|path| read(path, "dev").is_some_and(|dev| dev == number));
        found?.canonicalize().ok()
    }
}

impl Device {
    /// All whole disks of the stack, from this device's own down, each once.
    pub fn disks(&self) -> Vec<&Disk> {
        let mut disks: Vec<&Disk> = Vec::new();
        let mut open = vec![self];
        while let Some(device) = open.pop() {
            if disks.iter().all(|disk| disk.dev != device.disk.dev) {
                disks.push(&device.disk);
            }
            open.extend(device.lower.iter().rev());
        }
        disks
    }
}

impl Queue {
    fn read(directory: &Path) -> Self {
        let flag = |file| match read(directory, file).as_deref() {
            Some("0") => Some(false),
            Some("1") => Some(true),
            _ => None,
        };
        let write_cache = match read(directory, "write_cache").as_deref() {
            Some("write back") => Some(WriteCache::Back),
            Some("write through") => Some(WriteCache::Through),
            _ => None,
        };
        Self {
            write_cache,
            fua: flag("fua"),
            scheduler: read(directory, "scheduler").and_then(|line| chosen(&line)),
            rotational: flag("rotational"),
            requests: read(directory, "nr_requests").and_then(|text| text.parse().ok()),
            throttle_target_us: read(directory, "wbt_lat_usec").and_then(|text| text.parse().ok()),
        }
    }
}

/// The word in brackets of `none [mq-deadline] bfq`; without brackets the only word there is.
fn chosen(line: &str) -> Option<String> {
    let word = line.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(word, _)| word);
    word.or(Some(line).filter(|line| !line.is_empty() && !line.contains(' '))).map(str::to_owned)
}

fn name(directory: &Path) -> Option<String> {
    Some(directory.file_name()?.to_str()?.to_owned())
}

fn read(directory: &Path, file: &str) -> Option<String> {
    let text = std::fs::read_to_string(directory.join(file)).ok()?;
    Some(text.trim_end().to_owned())
}

/// Block device of the filesystem that holds a loop device's file. The loop device itself knows it even if the file has
/// no name any more; without its node, the file's path does. Filesystems of several devices show a number that is no
/// block device's: what lies below those stays unknown.
fn block_dev_of_file(name: &str, path: &Path) -> Option<Dev> {
    let told = dev_told_by_loop(&Path::new("/dev").join(name));
    let dev = told.map_or_else(|| Some(Dev::from_stat(std::fs::metadata(path).ok()?.dev())), Some)?;
    (dev.major != 0).then_some(dev)
}

/// Asks a loop device for the number of its file's filesystem.
fn dev_told_by_loop(node: &Path) -> Option<Dev> {
    const LOOP_GET_STATUS64: libc::Ioctl = 0x4c05;
    /// `struct loop_info64` has 232 bytes; its first word is the number, in the form that `stat` gives.
    const WORDS: usize = 29;
    let device = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(node).ok()?;
    let mut status = [0u64; WORDS];
    // SAFETY: the descriptor is open, and the kernel writes as much as the structure holds.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, status.as_mut_ptr()) };
    (result == 0).then(|| Dev::from_stat(status[0]))
}
