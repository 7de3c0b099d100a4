//! Faults that are switched on for as long as a guard lives: a frozen filesystem, a throttled disk, an early flusher.
//! Every guard puts back what it found.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::scratch::LoopFs;
use super::wait_for;

// _IOWR('X', 119, int) and _IOWR('X', 120, int) of include/uapi/linux/fs.h.
const FIFREEZE: libc::c_ulong = 0xc004_5877;
const FITHAW: libc::c_ulong = 0xc004_5878;

/// A filesystem that takes no write until this is dropped; it borrows it, so that it cannot be unmounted before.
pub struct Frozen<'a> {
    directory: File,
    _filesystem: &'a LoopFs,
}

impl<'a> Frozen<'a> {
    pub fn new(filesystem: &'a LoopFs) -> Self {
        let directory = File::open(filesystem.path()).expect("open the mount point");
        // SAFETY: FIFREEZE ignores its argument, and the descriptor is open.
        let result = unsafe { libc::ioctl(directory.as_raw_fd(), FIFREEZE, 0) };
        assert_eq!(result, 0, "freeze {}: {}", filesystem.path().display(), std::io::Error::last_os_error());
        Self { directory, _filesystem: filesystem }
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        // SAFETY: as FIFREEZE.
        let result = unsafe { libc::ioctl(self.directory.as_raw_fd(), FITHAW, 0) };
        if result != 0 {
            eprintln!("thaw a scratch filesystem: {}", std::io::Error::last_os_error());
        }
    }
}

const BLKIO: &str = "/sys/fs/cgroup/blkio";

/// A cgroup of its own whose writes to one disk are limited. Only requests that a member submits itself are: an
/// fdatasync's data is, a commit by the journal's thread and writeback by a flusher are not.
pub struct Throttle {
    group: PathBuf,
    number: (u32, u32),
}

impl Throttle {
    /// Why requests cannot be throttled here, or nothing.
    pub fn missing() -> Option<String> {
        let control = Path::new(BLKIO).join("cgroup.procs");
        // The root of the hierarchy has no limits; a group that is made there has.
        (!control.exists()).then(|| "needs the blkio controller of cgroup v1".to_owned())
    }

    pub fn write_iops(filesystem: &LoopFs, limit: u32) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let group = Path::new(BLKIO).join(format!("fsyncscope-{}-{count}", std::process::id()));
        fs::create_dir(&group).expect("create a blkio cgroup");
        let made = Self { group, number: filesystem.number() };
        made.limit(limit);
        made
    }

    /// Changes the limit; 0 lifts it.
    pub fn limit(&self, limit: u32) {
        let (major, minor) = self.number;
        fs::write(self.group.join("blkio.throttle.write_iops_device"), format!("{major}:{minor} {limit}"))
            .expect("limit a cgroup's writes");
    }

    /// Moves a process with all its threads under the limit.
    pub fn add_process(&self, pid: u32) {
        fs::write(self.group.join("cgroup.procs"), pid.to_string()).expect("move a process to a cgroup");
    }

    /// Moves one thread under the limit.
    pub fn add_thread(&self, tid: u32) {
        fs::write(self.group.join("tasks"), tid.to_string()).expect("move a thread to a cgroup");
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        let (major, minor) = self.number;
        // The limit goes first, or what is queued under it would outlive the group.
        let _ = fs::write(self.group.join("blkio.throttle.write_iops_device"), format!("{major}:{minor} 0"));
        let gone = wait_for(Duration::from_secs(5), || {
            let members = fs::read_to_string(self.group.join("tasks")).unwrap_or_default();
            for member in members.lines() {
                let _ = fs::write(Path::new(BLKIO).join("tasks"), member);
            }
            fs::remove_dir(&self.group).ok()
        });
        if gone.is_none() {
            eprintln!("{} could not be removed", self.group.display());
        }
    }
}

const BACKGROUND_BYTES: &str = "/proc/sys/vm/dirty_background_bytes";
const BACKGROUND_RATIO: &str = "/proc/sys/vm/dirty_background_ratio";

/// A low threshold of dirty bytes above which the flusher begins. It holds for the whole machine.
pub struct EarlyFlusher {
    bytes: String,
    ratio: String,
}

impl EarlyFlusher {
    pub fn new(bytes: u64) -> Self {
        let read = |path| fs::read_to_string(path).expect("read a threshold of dirty pages").trim().to_owned();
        let made = Self { bytes: read(BACKGROUND_BYTES), ratio: read(BACKGROUND_RATIO) };
        fs::write(BACKGROUND_BYTES, bytes.to_string()).expect("lower the threshold of dirty pages");
        made
    }
}

impl Drop for EarlyFlusher {
    fn drop(&mut self) {
        // Only one of the two is in force and the other reads 0; to write one is to clear the other.
        let result = if self.bytes == "0" {
            fs::write(BACKGROUND_RATIO, &self.ratio)
        } else {
            fs::write(BACKGROUND_BYTES, &self.bytes)
        };
        if let Err(error) = result {
            eprintln!("put back the threshold of dirty pages: {error}");
        }
    }
}
