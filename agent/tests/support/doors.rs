//! The doors: every way to ask the kernel for durability, one row each. A row knows how one operation is made and what
//! may be said of it; it must not know who goes through the door, nor which doors the agent sees.

use super::means::{Directory, Mapped, Means, Site, Written};
use super::rings::{Aio, Ring, Submitted};
use super::scratch::Format;
use fsyncscope::aio::Opcode;

/// What a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// One record for each file of the means, in their order.
    Files,
    /// The same, and the record says that it is a directory.
    Directory,
    /// A filesystem: a record with a device and without a file.
    Filesystem,
    /// All of them: a record without either.
    Machine,
}

/// How much of the call's time is the record's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// All but the way in and out.
    Whole,
    /// What the client cannot see the limits of: a call that does more than sync, or one whose begin has no event.
    Within,
}

/// Who is told as the one that asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// The client's thread.
    Thread,
    /// A worker does it for the client's thread.
    Worker,
    /// The kernel's thread that takes it from the client's ring: the process is known, and not the thread.
    Process,
}

/// One call of an operation, which the client times, and what the agent tells of it.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The operation that its record names.
    pub word: &'static str,
    pub about: About,
    pub span: Span,
    /// The system call that goes through the door, as strace names it.
    pub system_call: &'static str,
}

impl Call {
    /// Whether the end of it has an event of its own, with the result: the filesystem's, or the system call's.
    pub fn tells_end(&self, format: Format) -> bool {
        matches!(self.word, "sync_file_range" | "fadvise") || format.tells_ends()
    }
}

/// One door.
pub struct Door {
    /// At most 15 bytes: the client's process is named so.
    pub name: &'static str,
    /// How many operations a test makes: prime, so that no batch divides it.
    pub count: u64,
    /// The flag of the agent without which it is not seen.
    pub flag: Option<&'static str>,
    /// Each operation makes these calls, in this order.
    pub calls: &'static [Call],
    pub asker: Asker,
    pub open: fn(&Site) -> Box<dyn Means>,
}

impl Door {
    pub fn named(name: &str) -> &'static Self {
        DOORS.iter().find(|door| door.name == name).unwrap_or_else(|| panic!("no door is named {name}"))
    }
}

const COUNT: u64 = 997;
/// Of a call that writes back all filesystems of the machine.
const FEW: u64 = 97;
const SYSCALLS: Option<&str> = Some("--syscall-tracepoints");

pub const DOORS: [Door; 19] = [
    door("fsync", &[file("fsync", "fsync")], |site| Written::before(site, &[Written::fsync])),
    door("fdatasync", &[file("fdatasync", "fdatasync")], |site| Written::before(site, &[Written::fdatasync])),
    door("o_dsync", &[file("o_dsync", "pwrite64")], |site| Written::by_call(site, libc::O_DSYNC, 0)),
    door("o_sync", &[file("o_sync", "pwrite64")], |site| Written::by_call(site, libc::O_SYNC, 0)),
    door("rwf_dsync", &[file("o_dsync", "pwritev2")], |site| Written::by_call(site, 0, libc::RWF_DSYNC)),
    door("rwf_sync", &[file("o_sync", "pwritev2")], |site| Written::by_call(site, 0, libc::RWF_SYNC)),
    door("msync", &[file("msync", "msync")], |site| Mapped::open(site, 1)),
    // A record for each file.
    door("msync_two", &[file("msync", "msync")], |site| Mapped::open(site, 2)),
    door("fallocate", &[file("fdatasync", "fdatasync")], |site| Written::allocated(site, &[Written::fdatasync])),
    door("directory", &[Call { about: About::Directory, ..file("fsync", "fsync") }], Directory::open),
    door("syncfs", &[Call { about: About::Filesystem, ..file("syncfs", "syncfs") }], |site| {
        Written::before(site, &[Written::syncfs])
    }),
    Door {
        count: FEW,
        ..door("sync", &[Call { about: About::Machine, span: Span::Within, ..file("sync", "sync") }], |site| {
            Written::before(site, &[Written::sync])
        })
    },
    Door {
        flag: SYSCALLS,
        ..door("sync_file_range", &[file("sync_file_range", "sync_file_range")], |site| {
            Written::before(site, &[Written::sync_file_range])
        })
    },
    // What a broker does with its journal: durable first, then out of the page cache, while other threads sync the file.
    Door {
        flag: SYSCALLS,
        ..door("fadvise", &[file("fdatasync", "fdatasync"), file("fadvise", "fadvise64")], |site| {
            Written::shared(site, &[Written::fdatasync, Written::drop_from_cache])
        })
    },
    asked("io_uring", Asker::Worker, &[file("fsync", "io_uring_enter")], |site| Ring::open(site, Submitted::Fsync)),
    asked(
        "io_uring_linked",
        Asker::Worker,
        &[Call { span: Span::Within, ..file("fdatasync", "io_uring_enter") }],
        |site| Ring::open(site, Submitted::WriteThenFdatasync),
    ),
    asked("io_uring_sqpoll", Asker::Process, &[file("fsync", "io_uring_enter")], |site| {
        Ring::open(site, Submitted::ByKernelThread)
    }),
    asked("aio_fsync", Asker::Worker, &[file("fsync", "io_submit")], |site| Aio::open(site, Opcode::Fsync)),
    asked("aio_fdsync", Asker::Worker, &[file("fdatasync", "io_submit")], |site| Aio::open(site, Opcode::Fdsync)),
];

/// A row whose operations are as many as usual and seen without a flag.
const fn door(name: &'static str, calls: &'static [Call], open: fn(&Site) -> Box<dyn Means>) -> Door {
    Door { name, count: COUNT, flag: None, calls, asker: Asker::Thread, open }
}

/// One that a worker goes through for the client.
const fn asked(name: &'static str, asker: Asker, calls: &'static [Call], open: fn(&Site) -> Box<dyn Means>) -> Door {
    Door { asker, ..door(name, calls, open) }
}

/// A call that is one sync of a file and nothing else, but for a write of one page.
const fn file(word: &'static str, system_call: &'static str) -> Call {
    Call { word, about: About::Files, span: Span::Whole, system_call }
}
