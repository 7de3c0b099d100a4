//! What an operation is made of where another thread makes it for the client: io_uring, and the kernel's own AIO.

use std::io;
use std::os::fd::AsRawFd;

use io_uring::squeue::Flags;
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{IoUring, opcode};

use super::means::{BYTES, DATA, Known, Means, Site, Written, done};

/// Why there is no io_uring here, or nothing.
pub fn io_uring_missing() -> Option<String> {
    let error = IoUring::new(2).err()?;
    Some(format!("needs io_uring: {error}"))
}

/// What one operation hands to io_uring.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Submitted {
    Fsync,
    /// A write and an fdatasync that begins when the write has ended.
    WriteThenFdatasync,
    /// An fsync that a thread of the kernel's takes from the ring.
    ByKernelThread,
}

/// A file and a ring.
pub struct Ring {
    written: Written,
    ring: IoUring,
    submitted: Submitted,
}

impl Ring {
    pub fn open(site: &Site, submitted: Submitted) -> Box<dyn Means> {
        const IDLE_MS: u32 = 2;
        let ring = match submitted {
            Submitted::ByKernelThread => IoUring::builder().setup_sqpoll(IDLE_MS).build(2),
            Submitted::Fsync | Submitted::WriteThenFdatasync => IoUring::new(2),
        };
        Box::new(Self { written: Written::alone(site), ring: ring.expect("make a ring"), submitted })
    }

    fn fill(&mut self) -> usize {
        let file = Fd(self.written.file.as_raw_fd());
        let entries = match self.submitted {
            Submitted::Fsync | Submitted::ByKernelThread => vec![opcode::Fsync::new(file).build()],
            Submitted::WriteThenFdatasync => {
                let write = opcode::Write::new(file, DATA.as_ptr(), BYTES as u32).offset(self.written.offset);
                let sync = opcode::Fsync::new(file).flags(FsyncFlags::DATASYNC);
                vec![write.build().flags(Flags::IO_LINK), sync.build()]
            }
        };
        // SAFETY: the file is open and the data is static until both are completed, which `call` waits for.
        unsafe { self.ring.submission().push_multiple(&entries) }.expect("the ring has room for one operation");
        entries.len()
    }
}

impl Means for Ring {
    fn known(&self) -> Vec<Known> {
        self.written.known()
    }

    fn prepare(&mut self, number: u64) {
        match self.submitted {
            Submitted::WriteThenFdatasync => self.written.advance(number),
            Submitted::Fsync | Submitted::ByKernelThread => self.written.prepare(number),
        }
    }

    fn call(&mut self, _: usize) -> io::Result<()> {
        let mut left = self.fill();
        self.ring.submit_and_wait(left)?;
        for entry in self.ring.completion() {
            left -= 1;
            if entry.result() < 0 {
                return Err(io::Error::from_raw_os_error(-entry.result()));
            }
        }
        assert_eq!(left, 0, "all that was waited for is there");
        Ok(())
    }
}

/// The operations of `struct iocb` that make durable.
#[derive(Clone, Copy)]
#[repr(u16)]
pub enum Opcode {
    Fsync = 2,
    Fdsync = 3,
}

/// `struct iocb` of `include/uapi/linux/aio_abi.h`, little-endian.
#[repr(C)]
#[derive(Default)]
struct Request {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    length: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_file: u32,
}

/// `struct io_event` of the same file.
#[repr(C)]
#[derive(Default)]
struct Completion {
    data: u64,
    request: u64,
    result: i64,
    second_result: i64,
}

/// A file and a context of the kernel's AIO.
pub struct Aio {
    written: Written,
    context: u64,
    opcode: Opcode,
}

impl Aio {
    pub fn open(site: &Site, opcode: Opcode) -> Box<dyn Means> {
        Box::new(Self { written: Written::alone(site), context: context(), opcode })
    }
}

/// A context of the kernel's AIO that nothing is submitted to: while there is one, the agent looks for its syncs.
pub struct AioInUse(u64);

impl AioInUse {
    pub fn new() -> Self {
        Self(context())
    }
}

impl Drop for AioInUse {
    fn drop(&mut self) {
        // SAFETY: the context is ours and nothing was submitted to it.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

fn context() -> u64 {
    let mut context = 0u64;
    // SAFETY: the kernel writes one word, which is ours.
    done(unsafe { libc::syscall(libc::SYS_io_setup, 1, &raw mut context) }).expect("make a context of AIO");
    context
}

impl Means for Aio {
    fn known(&self) -> Vec<Known> {
        self.written.known()
    }

    fn prepare(&mut self, number: u64) {
        self.written.prepare(number);
    }

    fn call(&mut self, _: usize) -> io::Result<()> {
        let file = self.written.file.as_raw_fd() as u32;
        let mut request = Request { opcode: self.opcode as u16, file, ..Request::default() };
        let requests = [&raw mut request];
        // SAFETY: one request, which outlives its completion: it is waited for below.
        done(unsafe { libc::syscall(libc::SYS_io_submit, self.context, 1, requests.as_ptr()) })?;
        let mut completion = Completion::default();
        let forever = std::ptr::null_mut::<libc::timespec>();
        // SAFETY: the kernel writes one completion, which is ours.
        let result = unsafe { libc::syscall(libc::SYS_io_getevents, self.context, 1, 1, &raw mut completion, forever) };
        done(result)?;
        assert_eq!(result, 1, "the one that was waited for is there");
        if completion.result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-completion.result as i32)) }
    }
}

impl Drop for Aio {
    fn drop(&mut self) {
        // SAFETY: the context is ours and nothing is submitted to it any more.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}
