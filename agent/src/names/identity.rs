//! Which file a path leads to, asked so that a dead server cannot hold the answer back.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::kernel::dev::Dev;

/// Whether a link at the end of the path is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// Wanted for the links of `/proc`, which lead to an open file without a walk.
    Follow,
    Stay,
}

/// Device and inode as `stat` gives them. Network filesystems answer from what they have cached: asking the server may
/// take minutes if it is gone.
pub fn of(path: &Path, links: Links) -> io::Result<(Dev, u64)> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let stay = if links == Links::Stay { libc::AT_SYMLINK_NOFOLLOW } else { 0 };
    let flags = libc::AT_STATX_DONT_SYNC | libc::AT_NO_AUTOMOUNT | stay;
    let mut answer = std::mem::MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the path ends with a zero, and the answer has room for the whole structure.
    let result = unsafe { libc::statx(libc::AT_FDCWD, path.as_ptr(), flags, libc::STATX_INO, answer.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is plain numbers, zeroed before and filled by the call that succeeded.
    let answer = unsafe { answer.assume_init() };
    Ok((Dev { major: answer.stx_dev_major, minor: answer.stx_dev_minor }, answer.stx_ino))
}

/// The number that events carry: the kernel's own `dev_t`.
pub const fn number(dev: Dev) -> u32 {
    dev.major << 20 | dev.minor & 0xf_ffff
}
