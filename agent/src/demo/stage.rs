//! The scratch disk of the demo: a loop device with a journalled ext4, seen by this process and its children only.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

const IMAGE_BYTES: &str = "512M";

/// A mounted scratch disk; unmounted and removed when dropped.
pub struct Stage {
    directory: PathBuf,
    device: String,
}

impl Stage {
    pub fn set() -> anyhow::Result<Self> {
        own_mounts().context("could not make a mount namespace for the scratch disk; run as root")?;
        let directory = std::env::temp_dir().join(format!("fsyncscope-demo-{}", std::process::id()));
        let mut stage = Self { directory, device: String::new() };
        let image = stage.directory.with_extension("img");
        let attached = Self::attach(&image);
        // The loop device keeps the image open; its name is not needed.
        drop(std::fs::remove_file(&image));
        stage.device = attached?;
        stage.mount().map(|()| stage)
    }

    /// Makes the image and its loop device.
    fn attach(image: &Path) -> anyhow::Result<String> {
        tool("fallocate", &["--length".as_ref(), IMAGE_BYTES.as_ref(), image.as_os_str()])?;
        let lazy = "lazy_itable_init=0,lazy_journal_init=0";
        tool("mkfs.ext4", &["-q".as_ref(), "-F".as_ref(), "-E".as_ref(), lazy.as_ref(), image.as_os_str()])?;
        let shown = ["--find".as_ref(), "--show".as_ref(), "--direct-io=on".as_ref(), image.as_os_str()];
        Ok(tool("losetup", &shown)?.trim().to_owned())
    }

    fn mount(&self) -> anyhow::Result<()> {
        let Self { directory, device } = self;
        let mounted = own_directory(directory).and_then(|()| tool("mount", &[device.as_ref(), directory.as_os_str()]));
        // With a user, this only marks the device to be freed with its last one.
        tool("losetup", &["--detach".as_ref(), device.as_ref()])?;
        mounted.map(|_| ())
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn device(&self) -> &str {
        &self.device
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Ok(path) = CString::new(self.directory.as_os_str().as_bytes()) {
            // SAFETY: the path is a string with an end; detaching leaves the mount to its last user.
            unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
        }
        drop(std::fs::remove_dir(&self.directory));
    }
}

/// Makes the directory where no other process sees it, so that a sudden death leaves not even its name: over the directory
/// for temporary files lies one in memory, in this process's own mount table.
fn own_directory(directory: &Path) -> anyhow::Result<()> {
    let parent = directory.parent().unwrap_or(Path::new("/tmp"));
    let flags = ["-t", "tmpfs", "-o", "size=1m", "fsyncscope-demo"].map(OsStr::new);
    tool("mount", &[&flags[..], &[parent.as_os_str()]].concat())?;
    std::fs::create_dir(directory).with_context(|| format!("could not create {} in memory", directory.display()))
}

/// Gives this process a mount table that no other sees.
fn own_mounts() -> std::io::Result<()> {
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
    if results == [0, 0] { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

fn tool(name: &str, arguments: &[&OsStr]) -> anyhow::Result<String> {
    let output = Command::new(name)
        .args(arguments)
        .output()
        .with_context(|| format!("could not start {name}; install util-linux and e2fsprogs"))?;
    if !output.status.success() {
        bail!(
            "{name} failed: {}; check that loop devices are to be had and that TMPDIR has 1 GiB free",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
