//! Linux AIO, as much of it as a canary and the tests need: the kernel's own interface, since the C library has none.

use std::io;
use std::os::fd::RawFd;

/// The operations of `struct iocb` (`include/uapi/linux/aio_abi.h`) that are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Opcode {
    Write = 1,
    Fsync = 2,
    Fdsync = 3,
}

/// `struct iocb` of that file, little-endian.
#[repr(C)]
#[derive(Clone, Copy, Default)]
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
#[derive(Clone, Copy, Default)]
struct Completion {
    data: u64,
    request: u64,
    result: i64,
    second_result: i64,
}

/// Requests of one batch at most.
const BATCH: usize = 8;

/// A context, of the whole process; destroyed when dropped.
pub struct Context(u64);

impl Context {
    pub fn new() -> io::Result<Self> {
        let mut context = 0u64;
        // SAFETY: the kernel writes one word, which is ours.
        done(unsafe { libc::syscall(libc::SYS_io_setup, BATCH, &raw mut context) })?;
        Ok(Self(context))
    }

    /// Has a file synced, and waits for it.
    pub fn sync(&self, file: RawFd, opcode: Opcode) -> io::Result<()> {
        self.run(&mut [Request { opcode: opcode as u16, file: file as u32, ..Request::default() }])
    }

    /// Hands in writes of one batch, each of data at an offset, and waits for all.
    pub fn write(&self, file: RawFd, writes: &[(&[u8], u64)]) -> io::Result<()> {
        let request = |(data, offset): &(&[u8], u64)| Request {
            opcode: Opcode::Write as u16,
            file: file as u32,
            buffer: data.as_ptr() as u64,
            length: data.len() as u64,
            offset: *offset as i64,
            ..Request::default()
        };
        self.run(&mut writes.iter().map(request).collect::<Vec<_>>())
    }

    fn run(&self, requests: &mut [Request]) -> io::Result<()> {
        let pointers: Vec<*mut Request> = requests.iter_mut().map(|request| request as *mut Request).collect();
        // SAFETY: the requests and their data outlive their completions, which are waited for below.
        let submitted = done(unsafe { libc::syscall(libc::SYS_io_submit, self.0, pointers.len(), pointers.as_ptr()) })?;
        for _ in 0..submitted {
            self.wait()?;
        }
        if submitted as usize == requests.len() { Ok(()) } else { Err(io::ErrorKind::Interrupted.into()) }
    }

    fn wait(&self) -> io::Result<()> {
        let mut completion = Completion::default();
        let forever = std::ptr::null_mut::<libc::timespec>();
        // io_uring's work for this thread interrupts the wait.
        // SAFETY: the kernel writes one completion, which is ours.
        while let Err(error) =
            done(unsafe { libc::syscall(libc::SYS_io_getevents, self.0, 1, 1, &raw mut completion, forever) })
        {
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        if completion.result < 0 { Err(io::Error::from_raw_os_error(-completion.result as i32)) } else { Ok(()) }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context is ours and nothing is submitted to it any more.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

fn done(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
