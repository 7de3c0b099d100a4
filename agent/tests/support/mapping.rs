//! Files in memory: one shared mapping of one file, or of several that lie side by side.

use std::fs::File;
use std::os::fd::AsRawFd;

/// A shared mapping of the beginnings of files, one right behind the other.
pub struct Mapping {
    start: *mut u8,
    length: usize,
}

impl Mapping {
    /// Maps so many bytes of each file, which must be whole pages.
    pub fn new(files: &[&File], each: usize) -> Self {
        assert_eq!(each % 4096, 0, "a file ends where the next one's pages begin");
        let length = each * files.len();
        let start = map(std::ptr::null_mut(), length, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1);
        let made = Self { start: start.cast(), length };
        for (number, file) in files.iter().enumerate() {
            let place = made.start.wrapping_add(number * each).cast();
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            map(place, each, protection, libc::MAP_SHARED | libc::MAP_FIXED, file.as_raw_fd());
        }
        made
    }

    pub fn write(&mut self, data: &[u8], offset: usize) {
        assert!(offset + data.len() <= self.length, "the write lies in the mapping");
        // SAFETY: the range was just checked to lie in the mapping, which nothing else borrows.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), self.start.add(offset), data.len()) };
    }

    pub fn sync(&self, offset: usize, length: usize) -> std::io::Result<()> {
        assert!(offset + length <= self.length, "the range lies in the mapping");
        let first = offset & !4095;
        // SAFETY: the range begins on a page of the mapping and ends in it.
        let result = unsafe { libc::msync(self.start.add(first).cast(), offset + length - first, libc::MS_SYNC) };
        if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, whole, and nothing refers to it any more.
        unsafe { libc::munmap(self.start.cast(), self.length) };
    }
}

fn map(place: *mut libc::c_void, length: usize, protection: i32, flags: i32, file: i32) -> *mut libc::c_void {
    // SAFETY: the place is of the kernel's choice, or lies in a mapping that was just reserved for this.
    let start = unsafe { libc::mmap(place, length, protection, flags, file, 0) };
    assert_ne!(start, libc::MAP_FAILED, "map a file: {}", std::io::Error::last_os_error());
    start
}
