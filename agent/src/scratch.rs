//! Scratch disks: filesystems on loop devices, seen by this process and its children only.
//!
//! Nothing of them outlives the process, however it ends: the mounts are in a mount table of its own, a loop device is
//! freed with its last user, and an image has no name.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

mod loops;

/// How a filesystem is made.
pub struct Format {
    pub filesystem: &'static str,
    mkfs: &'static [&'static str],
    /// The least that it takes, and some room for a journal's files.
    bytes: u64,
}

pub const EXT4: Format = Format {
    filesystem: "ext4",
    mkfs: &["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
    bytes: 64 << 20,
};
pub const XFS: Format = Format { filesystem: "xfs", mkfs: &["mkfs.xfs", "-q", "-f", "-K"], bytes: 320 << 20 };
pub const BTRFS: Format = Format { filesystem: "btrfs", mkfs: &["mkfs.btrfs", "-q", "-f"], bytes: 128 << 20 };

/// A mounted scratch disk; unmounted when dropped.
pub struct Scratch {
    directory: PathBuf,
    device: String,
}

impl Scratch {
    /// Mounts a device on a directory that it makes, in memory that only this process sees.
    pub fn mount(device: Device, format: &Format, directory: PathBuf) -> anyhow::Result<Self> {
        let made = std::fs::create_dir(&directory);
        made.with_context(|| format!("could not create {} in memory", directory.display()))?;
        let how = ["-t", format.filesystem, &device.path].map(OsStr::new);
        tool("mount", &[&how[..], &[directory.as_os_str()]].concat())?;
        Ok(Self { directory, device: device.path })
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn device(&self) -> &str {
        &self.device
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Ok(path) = CString::new(self.directory.as_os_str().as_bytes()) {
            // SAFETY: the path is a string with an end; detaching leaves the mount to its last user.
            unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
        }
        drop(std::fs::remove_dir(&self.directory));
    }
}

/// A loop device over an image without a name. It is freed when neither this process nor a mount holds it.
pub struct Device {
    path: String,
    _held: File,
}

impl Device {
    /// Over a file of so many bytes, past the page cache of the disk below.
    pub fn on_disk(image: &Path, format: &Format, bytes: u64) -> anyhow::Result<Self> {
        let image = unnamed(image)?;
        // SAFETY: a plain call on an open file.
        let allocated = unsafe { libc::fallocate(image.as_raw_fd(), 0, 0, bytes as libc::off_t) };
        ok(allocated).with_context(|| format!("could not make an image of {} MiB in TMPDIR", bytes >> 20))?;
        Self::over(&image, format, loops::DIRECT)
    }

    /// Over a file in memory, which takes as much of that as is written to it.
    pub fn in_memory(image: &Path, format: &Format) -> anyhow::Result<Self> {
        let image = unnamed(image)?;
        image.set_len(format.bytes).context("could not make an image in memory")?;
        Self::over(&image, format, 0)
    }

    fn over(image: &File, format: &Format, flags: u32) -> anyhow::Result<Self> {
        let path = format!("/proc/{}/fd/{}", std::process::id(), image.as_raw_fd());
        let (mkfs, arguments) = format.mkfs.split_first().context("a format has no tool")?;
        let arguments = arguments.iter().map(OsStr::new).chain([OsStr::new(&path)]);
        tool(mkfs, &arguments.collect::<Vec<_>>())?;
        let (path, held) = loops::attach(image, flags)
            .context("could not get a loop device; load the module loop, or run where /dev has its devices")?;
        Ok(Self { path, _held: held })
    }
}

/// A file that loses its name at once.
fn unnamed(path: &Path) -> anyhow::Result<File> {
    let made = File::options().read(true).write(true).create_new(true).open(path);
    let made =
        made.with_context(|| format!("could not make {}; let TMPDIR name a directory with room", path.display()))?;
    std::fs::remove_file(path).with_context(|| format!("could not remove {}", path.display()))?;
    Ok(made)
}

/// Gives this process a mount table that no other sees.
pub fn own_mounts() -> anyhow::Result<()> {
    // SAFETY: plain system calls on constant strings.
    let results = unsafe {
        [
            libc::unshare(libc::CLONE_NEWNS),
            libc::mount(
                c"none".as_ptr(),
                c"/".as_ptr(),
                std::ptr::null(),
                libc::MS_REC | libc::MS_PRIVATE,
                std::ptr::null(),
            ),
        ]
    };
    results
        .into_iter()
        .try_for_each(ok)
        .context("could not make a mount namespace for the scratch disk; run as root, with SYS_ADMIN")
}

/// Lays memory over the directory for temporary files, so that what is made there is gone with this process.
pub fn memory_over(directory: &Path, bytes: u64) -> anyhow::Result<()> {
    let size = format!("size={bytes}");
    let flags = ["-t", "tmpfs", "-o", &size, "fsyncscope-scratch"].map(OsStr::new);
    tool("mount", &[&flags[..], &[directory.as_os_str()]].concat()).map(|_| ())
}

fn tool(name: &str, arguments: &[&OsStr]) -> anyhow::Result<String> {
    let output = Command::new(name)
        .args(arguments)
        .output()
        .with_context(|| format!("could not start {name}; install util-linux and the filesystem's tools"))?;
    if !output.status.success() {
        bail!("{name} failed: {}; check that TMPDIR has room", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn ok(result: libc::c_int) -> std::io::Result<()> {
    if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}
