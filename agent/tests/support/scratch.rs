//! Scratch directories and scratch filesystems on loop devices, taken down again on every way out, panics included.
//! It must not touch a directory, a mount or a loop device that it did not make.

use std::ffi::CString;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::{find, missing, run, wait_for};

/// What is made on a loop device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Ext4,
    Ext4WithoutJournal,
    Xfs,
    Btrfs,
}

impl Format {
    /// The smallest disk that its tools make one on, and has room for a test's files.
    pub fn mebibytes(self) -> u64 {
        match self {
            Self::Ext4 | Self::Ext4WithoutJournal => 128,
            Self::Xfs => 320,
            Self::Btrfs => 512,
        }
    }

    /// Whether the end of a sync has an event of its own, with the result.
    pub fn tells_ends(self) -> bool {
        matches!(self, Self::Ext4 | Self::Ext4WithoutJournal)
    }

    pub fn program(self) -> &'static str {
        match self {
            Self::Ext4 | Self::Ext4WithoutJournal => "mkfs.ext4",
            Self::Xfs => "mkfs.xfs",
            Self::Btrfs => "mkfs.btrfs",
        }
    }

    fn arguments(self) -> &'static [&'static str] {
        // Lazy initialisation would write in the background for minutes: syncs of nobody on the disk under test.
        const EAGER: &str = "lazy_itable_init=0,lazy_journal_init=0";
        match self {
            Self::Ext4 => &["-q", "-F", "-E", EAGER],
            Self::Ext4WithoutJournal => &["-q", "-F", "-E", EAGER, "-O", "^has_journal"],
            Self::Xfs | Self::Btrfs => &["-q", "-f"],
        }
    }

    /// The name by which the kernel mounts it.
    pub fn kernel_name(self) -> &'static str {
        match self {
            Self::Ext4 | Self::Ext4WithoutJournal => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// Makes one in a file, all of it.
    pub fn make(self, image: &Path, mebibytes: u64) {
        fs::File::create(image).and_then(|file| file.set_len(mebibytes << 20)).expect("create the image");
        run(Command::new(find(self.program()).expect("checked by missing")).args(self.arguments()).arg(image));
    }

    /// Why this filesystem cannot be made here, or nothing.
    pub fn missing(self) -> Option<String> {
        missing(&["losetup", self.program()]).or_else(|| {
            let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
            let knows = known.split_whitespace().any(|word| word == self.kernel_name());
            // A module may still be loaded by the mount itself.
            let module = find("modprobe").is_some();
            (!knows && !module).then(|| format!("needs {} in the kernel", self.kernel_name()))
        })
    }
}

/// A directory of our own, removed with all it holds.
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    pub fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("fsyncscope-{name}-{}-{count}", std::process::id()));
        // create_dir fails on a directory that exists: what we remove later, we made.
        fs::create_dir(&path).unwrap_or_else(|error| panic!("create {}: {error}", path.display()));
        // Brokers that refuse to run as root must be able to reach their part of it.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("open the scratch directory to readers");
        Self { path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Why a journal in the scratch itself is no test of a real disk under ext4, or nothing.
    pub fn not_on_ext4(&self) -> Option<String> {
        let path = c_path(&self.path);
        // SAFETY: an all-zero statfs is a valid value of it, and the call fills it.
        let mut found: libc::statfs = unsafe { std::mem::zeroed() };
        // SAFETY: the path ends with a zero and both outlive the call.
        let result = unsafe { libc::statfs(path.as_ptr(), &raw mut found) };
        let ext4 = result == 0 && found.f_type == libc::EXT4_SUPER_MAGIC;
        (!ext4).then(|| format!("needs ext4 under {}", self.path.display()))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Removing through a mount that somebody left would empty a filesystem instead of a directory.
        if mounts_below(&self.path) {
            eprintln!("{} still holds a mount and is left as it is", self.path.display());
            return;
        }
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// True when something is mounted at or below a path. Our own paths hold no character that mountinfo escapes.
fn mounts_below(path: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts.lines().filter_map(|line| line.split(' ').nth(4)).any(|point| Path::new(point).starts_with(path))
}

/// What is left of a scratch directory and the disks in it: mounts, loop devices, files.
pub fn left_of(path: &Path) -> Vec<String> {
    let mut left = Vec::new();
    if mounts_below(path) {
        left.push(format!("a mount below {}", path.display()));
    }
    for disk in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let image = fs::read_to_string(disk.path().join("loop/backing_file")).unwrap_or_default();
        if Path::new(&image).starts_with(path) {
            left.push(format!("{} on {}", disk.path().display(), image.trim()));
        }
    }
    left.extend(path.exists().then(|| path.display().to_string()));
    left
}

/// A filesystem on a loop device of our own.
pub struct LoopFs {
    device: PathBuf,
    major: u32,
    minor: u32,
    mount: PathBuf,
    image: PathBuf,
    mounted: bool,
    /// The memory that the image lies in; unmounted when all above it is gone.
    memory: Option<Memory>,
}

impl LoopFs {
    /// Makes and mounts a filesystem under a scratch directory. Its image is sparse.
    pub fn new(scratch: &Scratch, name: &str, format: Format, mebibytes: u64) -> Self {
        let image = scratch.join(&format!("{name}.img"));
        Self::from_image(scratch, name, format, mebibytes, image)
    }

    /// The same with the image in memory of its own: a disk that nobody else writes, so that whatever is slow on it is
    /// nobody's doing. The other disks of this kind share the disk below them with the whole machine.
    pub fn alone(scratch: &Scratch, name: &str, format: Format, mebibytes: u64) -> Self {
        Self::short(scratch, name, format, mebibytes, mebibytes)
    }

    /// The same with less memory than the disk claims to have: beyond it, its writes fail.
    pub fn short(scratch: &Scratch, name: &str, format: Format, mebibytes: u64, room: u64) -> Self {
        let memory = Memory::new(scratch.join(&format!("{name}.memory")), room);
        let mut made = Self::from_image(scratch, name, format, mebibytes, memory.point.join("disk.img"));
        made.memory = Some(memory);
        made
    }

    /// The same with the image on another such filesystem: a disk whose lower layer can be frozen or filled.
    pub fn stacked(scratch: &Scratch, name: &str, format: Format, mebibytes: u64, lower: &Self) -> Self {
        let image = lower.join(&format!("{name}.img"));
        Self::from_image(scratch, name, format, mebibytes, image)
    }

    fn from_image(scratch: &Scratch, name: &str, format: Format, mebibytes: u64, image: PathBuf) -> Self {
        let mount = scratch.join(name);
        fs::create_dir(&mount).expect("create the mount point");
        format.make(&image, mebibytes);
        let device = attach(&image);
        let number = fs::metadata(&device).expect("look at the loop device").rdev();
        let (major, minor) = (libc::major(number), libc::minor(number));
        let mut made = Self { device, major, minor, mount, image, mounted: false, memory: None };
        mount_at(&made.device, &made.mount, format.kernel_name(), "");
        made.mounted = true;
        made.open_to_all();
        made
    }

    fn open_to_all(&self) {
        fs::set_permissions(&self.mount, fs::Permissions::from_mode(0o777)).expect("open the mount to all users");
    }

    pub fn device(&self) -> &Path {
        &self.device
    }

    /// The device's name as the block layer has it, like `loop3`.
    pub fn device_name(&self) -> &str {
        self.device.file_name().and_then(|name| name.to_str()).expect("loop devices have plain names")
    }

    /// Major and minor number.
    pub fn number(&self) -> (u32, u32) {
        (self.major, self.minor)
    }

    pub fn path(&self) -> &Path {
        &self.mount
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.mount.join(name)
    }

    /// Has everything written that is dirty on it.
    pub fn write_back(&self) {
        let directory = fs::File::open(&self.mount).expect("open the mount point");
        // SAFETY: the descriptor is open for as long as `directory` lives.
        let result = unsafe { libc::syncfs(directory.as_raw_fd()) };
        assert_eq!(result, 0, "sync {}: {}", self.mount.display(), std::io::Error::last_os_error());
    }

    pub fn image(&self) -> &Path {
        &self.image
    }
}

impl Drop for LoopFs {
    fn drop(&mut self) {
        if self.mounted {
            unmount(&self.mount);
        }
        let _ = Command::new("losetup").arg("-d").arg(&self.device).status();
        let _ = fs::remove_file(&self.image);
        let _ = fs::remove_dir(&self.mount);
    }
}

/// A filesystem in memory, mounted for as long as this lives.
struct Memory {
    point: PathBuf,
}

impl Memory {
    fn new(point: PathBuf, mebibytes: u64) -> Self {
        fs::create_dir(&point).expect("create the mount point");
        // The image is no larger than the disk; the rest is for the filesystem's own use.
        mount_at(Path::new("none"), &point, "tmpfs", &format!("size={}m,mode=755", mebibytes + 1));
        Self { point }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        unmount(&self.point);
        let _ = fs::remove_dir(&self.point);
    }
}

fn mount_at(what: &Path, point: &Path, kind: &str, options: &str) {
    let text = |text: &str| CString::new(text).expect("no zero byte in it");
    let (source, target, kind, options) = (c_path(what), c_path(point), text(kind), text(options));
    // SAFETY: four strings with a zero at their end that outlive the call.
    let result = unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), 0, options.as_ptr().cast()) };
    assert_eq!(result, 0, "mount {}: {}", point.display(), std::io::Error::last_os_error());
}

fn unmount(point: &Path) {
    let target = c_path(point);
    // A process that was just killed may hold the mount for a moment longer, and so does a loop device that is let go.
    // SAFETY: a string with a zero at its end that outlives the call.
    let gone = wait_for(Duration::from_secs(5), || (unsafe { libc::umount2(target.as_ptr(), 0) } == 0).then_some(()));
    if gone.is_none() {
        eprintln!("{} is busy and is detached lazily", point.display());
        // SAFETY: as above.
        unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) };
    }
}

/// Attaches an image to a free loop device, past the page cache of the disk below where that disk allows it.
fn attach(image: &Path) -> PathBuf {
    let mut said = String::new();
    // Two processes may be given the same free device; the one that comes second tries again.
    for attempt in 0..20 {
        let direct = if attempt % 2 == 0 { "--direct-io=on" } else { "--direct-io=off" };
        let output =
            Command::new("losetup").args(["--find", "--show", direct]).arg(image).output().expect("start losetup");
        let shown = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if output.status.success() {
            return PathBuf::from(shown);
        }
        // losetup may have attached the device and only then failed to switch on direct I/O.
        if shown.starts_with("/dev/loop") {
            let _ = Command::new("losetup").args(["-d", &shown]).status();
        }
        said = String::from_utf8_lossy(&output.stderr).into_owned();
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("attach {} to a loop device: {said}", image.display());
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("our own paths hold no zero byte")
}
