//! The inside of the machine: this program as /init. It mounts what a job needs, loads modules, does the job, writes what
//! was found to a raw disk and ends the machine. A panic ends it too: the kernel does not outlive its first process.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::image::MODULES;
use super::jobs::JOBS;
use super::support::scratch::Format;
use super::support::wait_for;

/// The variable that holds a job's name.
pub const JOB: &str = "FSYNCSCOPE_GUEST_JOB";
/// The test that is /init.
pub const ENTRY: &str = "guest::entry";
/// The disks with a filesystem, by serial number.
pub const DISKS: [(&str, Format); 4] =
    [("ext4", Format::Ext4), ("bare", Format::Ext4WithoutJournal), ("xfs", Format::Xfs), ("btrfs", Format::Btrfs)];
/// Serial number of the disk that takes what was found.
pub const ANSWER: &str = "answer";
/// Some kernels look for NVMe disks while the first process runs already.
const DISKS_TAKE_AT_MOST: Duration = Duration::from_secs(20);

/// A test by form only: outside of a guest it has nothing to do.
#[test]
fn entry() {
    let Ok(name) = std::env::var(JOB) else { return };
    assert_eq!(std::process::id(), 1, "{JOB} is for a guest");
    let job = JOBS.iter().find(|job| job.name == name).unwrap_or_else(|| panic!("there is no job {name}"));
    for (kind, place) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")] {
        mount(kind, kind, Path::new(place));
    }
    mount("tracefs", "tracefs", Path::new("/sys/kernel/tracing"));
    mount("securityfs", "securityfs", Path::new("/sys/kernel/security"));
    mount("cgroup2", "cgroup2", Path::new("/sys/fs/cgroup"));
    load_modules();
    let found = (job.run)().to_string();
    let mut disk = File::options().write(true).open(disk(ANSWER)).expect("open the disk for the answer");
    disk.write_all(found.as_bytes()).expect("write the answer");
    disk.sync_all().expect("write the answer");
    // SAFETY: the call takes a number; the machine is ours alone.
    unsafe { libc::reboot(libc::RB_AUTOBOOT) };
}

/// Mounts the disk of a serial number, and gives the place.
pub fn mount_disk(serial: &str) -> PathBuf {
    let (_, format) = DISKS.into_iter().find(|(name, _)| *name == serial).expect("the disk has a filesystem");
    let place = Path::new("/").join(serial);
    fs::create_dir(&place).expect("make a place for a disk");
    mount(&disk(serial).to_string_lossy(), format.kernel_name(), &place);
    place
}

/// Mounts what is named, as a filesystem of this kind.
pub fn mount(what: &str, kind: &str, place: &Path) {
    let word = |text: &str| CString::new(text).expect("no zero byte");
    let (what, kind, target) = (word(what), word(kind), word(&place.to_string_lossy()));
    // SAFETY: the words end with a zero and outlive the call.
    let result = unsafe { libc::mount(what.as_ptr(), target.as_ptr(), kind.as_ptr(), 0, std::ptr::null()) };
    assert_eq!(result, 0, "mount {what:?} at {}: {}", place.display(), std::io::Error::last_os_error());
}

pub fn unmount(place: &Path) {
    let place = CString::new(place.to_string_lossy().as_bytes()).expect("no zero byte");
    // SAFETY: the word ends with a zero and outlives the call.
    let result = unsafe { libc::umount2(place.as_ptr(), 0) };
    assert_eq!(result, 0, "unmount {place:?}: {}", std::io::Error::last_os_error());
}

fn load_modules() {
    let entries = fs::read_dir(MODULES).expect("list the modules");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry of a directory").path()).collect();
    files.sort();
    for path in files {
        let file = File::open(&path).expect("open a module");
        // SAFETY: the descriptor is open and the text ends with a zero; both outlive the call.
        let result = unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), c"".as_ptr(), 0) };
        // A module for another processor says that there is no such device.
        let error = std::io::Error::last_os_error();
        assert!(result == 0 || error.raw_os_error() == Some(libc::ENODEV), "load {}: {error}", path.display());
    }
}

/// The disk of a serial number.
pub fn disk(serial: &str) -> PathBuf {
    let is_it = |name: &str| {
        let told = fs::read_to_string(Path::new("/sys/block").join(name).join("device/serial"));
        told.is_ok_and(|told| told.trim() == serial)
    };
    let find = || {
        let mut names = fs::read_dir("/sys/block").ok()?.flatten().map(|entry| entry.file_name());
        let name = names.find(|name| is_it(&name.to_string_lossy()))?;
        Some(Path::new("/dev").join(name)).filter(|node| node.exists())
    };
    wait_for(DISKS_TAKE_AT_MOST, find).unwrap_or_else(|| panic!("there is no disk {serial}"))
}
