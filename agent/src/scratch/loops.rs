//! Attaching a loop device that frees itself: in one call, so that no moment is left in which a sudden death leaves it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// The kernel asks the file past the page cache (`LO_FLAGS_DIRECT_IO` of `include/uapi/linux/loop.h`).
pub const DIRECT: u32 = 16;
/// It is freed with its last user (`LO_FLAGS_AUTOCLEAR`).
const AUTOCLEAR: u32 = 4;
/// `LOOP_CTL_GET_FREE` and `LOOP_CONFIGURE` (since 5.8).
const GET_FREE: libc::c_ulong = 0x4c82;
const CONFIGURE: libc::c_ulong = 0x4c0a;
/// Another process may take the free device first.
const TRIES: u32 = 16;

/// `struct loop_config` of the same file, with its `struct loop_info64` as words.
#[repr(C)]
struct Config {
    file: u32,
    block_bytes: u32,
    /// Device, inode, device, offset, size limit.
    of_status: [u64; 5],
    number: u32,
    encryption: [u32; 2],
    flags: u32,
    names: [u8; 160],
    reserved: [u64; 10],
}

/// Its path, and what holds it until it is mounted.
pub fn attach(image: &File, flags: u32) -> io::Result<(String, File)> {
    let control = File::options().read(true).write(true).open("/dev/loop-control")?;
    let mut config = Config {
        file: image.as_raw_fd() as u32,
        block_bytes: 0,
        of_status: [0; 5],
        number: 0,
        encryption: [0; 2],
        flags: AUTOCLEAR | flags,
        names: [0; 160],
        reserved: [0; 10],
    };
    let mut refused = io::ErrorKind::ResourceBusy.into();
    for _ in 0..TRIES {
        // SAFETY: it takes no argument and gives a number.
        let number = unsafe { libc::ioctl(control.as_raw_fd(), GET_FREE) };
        super::ok(number)?;
        let path = format!("/dev/loop{number}");
        let device = File::options().read(true).write(true).open(&path)?;
        // SAFETY: the kernel reads one configuration, which is ours.
        match super::ok(unsafe { libc::ioctl(device.as_raw_fd(), CONFIGURE, &raw mut config) }) {
            Ok(()) => return Ok((path, device)),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}
