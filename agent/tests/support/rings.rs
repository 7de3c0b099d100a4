//! What an operation is made of where another thread makes it for the client: io_uring, and the kernel's own AIO.

use std::io;
use std::os::fd::AsRawFd;

use io_uring::squeue::Flags;
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{IoUring, opcode};

use fsyncscope::aio::{Context, Opcode};

use super::means::{BYTES, DATA, Known, Means, Site, Written};

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

/// A file and a context of the kernel's AIO.
pub struct Aio {
    written: Written,
    context: Context,
    opcode: Opcode,
}

impl Aio {
    pub fn open(site: &Site, opcode: Opcode) -> Box<dyn Means> {
        Box::new(Self { written: Written::alone(site), context: context(), opcode })
    }
}

/// While there is a context, the agent looks for its syncs.
pub fn context() -> Context {
    Context::new().expect("make a context of AIO")
}

impl Means for Aio {
    fn known(&self) -> Vec<Known> {
        self.written.known()
    }

    fn prepare(&mut self, number: u64) {
        self.written.prepare(number);
    }

    fn call(&mut self, _: usize) -> io::Result<()> {
        self.context.sync(self.written.file.as_raw_fd(), self.opcode)
    }
}
