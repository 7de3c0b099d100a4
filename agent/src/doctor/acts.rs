//! What the canary does: each act is what some probes wait for. It must not know what a lack of evidence means.

use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use crate::aio::{self, Opcode};
use crate::probes::shown::Act;
use anyhow::Context;
use io_uring::{IoUring, opcode, types::Fd};

/// The thread's name; a tracer that runs beside shows its syncs under it. The other is what it names itself at last.
pub const THREAD: &str = "canary";
pub const RENAMED: &CStr = c"canary-renamed";
/// Half of them fdatasync, half fsync: enough that one which never slept does not matter.
pub const SYNCS: u32 = 8;
const PAGE: usize = 4096;
/// Two pages that adjoin, and one far away.
const MERGED: [u64; 3] = [0, 2 << 20, PAGE as u64];
const MERGED_WITHIN: usize = 3 << 20;
const MERGE_TRIES: u32 = 64;

/// What is done where a directory was asked for: nothing that others on its disk would feel more than a sync.
pub const OF_FILES: [Act; 5] = [Act::Syncs, Act::Directory, Act::IoUring, Act::Aio, Act::Renamed];
/// What is done on a scratch disk besides.
pub const OF_DISK: [Act; 2] = [Act::Whole, Act::Merge];
/// What is done where the tracepoints of these calls are attached.
pub const CALLS: [Act; 2] = [Act::SyncFileRange, Act::Fadvise];

/// The thread that acts when it is told to.
pub struct Canary {
    tell: Sender<Act>,
    done: Receiver<io::Result<()>>,
    thread: JoinHandle<()>,
    pub tid: u32,
}

impl Canary {
    pub fn start(stage: Stage) -> anyhow::Result<Self> {
        let (tell, told) = channel();
        let (send, done) = channel();
        let (name, named) = channel();
        let work = move || {
            // SAFETY: gettid has no preconditions and cannot fail.
            let tid = unsafe { libc::gettid() };
            let heard = name.send(tid.unsigned_abs()).is_ok();
            while let (true, Ok(act)) = (heard, told.recv()) {
                if send.send(stage.perform(act)).is_err() {
                    break;
                }
            }
        };
        let thread = std::thread::Builder::new().name(THREAD.into()).spawn(work).context("starting the canary")?;
        let tid = named.recv().context("starting the canary")?;
        Ok(Self { tell, done, thread, tid })
    }

    /// Lets it begin an act.
    pub fn begin(&self, act: Act) -> anyhow::Result<()> {
        self.tell.send(act).context("the canary's thread was lost")
    }

    /// What became of the act, if it is over.
    pub fn ended(&self) -> Option<io::Result<()>> {
        self.done.try_recv().ok()
    }

    /// Lets the thread end.
    pub fn end(self) {
        drop(self.tell);
        drop(self.thread.join());
    }
}

/// What the thread acts on.
pub struct Stage {
    pub file: File,
    pub directory: PathBuf,
    /// The disk's name, where it is a scratch disk.
    pub disk: Option<String>,
}

impl Stage {
    fn perform(&self, act: Act) -> io::Result<()> {
        let file = self.file.as_raw_fd();
        match act {
            Act::Merge => return self.merge(),
            Act::Directory => return self.sync_directory(),
            Act::Syncs => return (0..SYNCS).try_for_each(|round| self.append().and_then(|()| self.sync(round))),
            _ => self.append()?,
        }
        match act {
            Act::IoUring => self.sync_by_ring(),
            Act::Aio => aio::Context::new()?.sync(file, Opcode::Fsync),
            // SAFETY: a plain call on an open file.
            Act::Whole => done(unsafe { libc::syncfs(file) }),
            // SAFETY: the same.
            Act::SyncFileRange => done(unsafe { libc::sync_file_range(file, 0, 0, libc::SYNC_FILE_RANGE_WRITE) }),
            // SAFETY: the same.
            Act::Fadvise => done(unsafe { -libc::posix_fadvise(file, 0, 0, libc::POSIX_FADV_DONTNEED) }),
            _ => {
                // SAFETY: the name is a string with an end.
                done(unsafe { libc::prctl(libc::PR_SET_NAME, RENAMED.as_ptr()) })?;
                self.file.sync_all()
            }
        }
    }

    /// The file grows, so that a journal has something to commit.
    fn append(&self) -> io::Result<()> {
        (&self.file).write_all(&[b'c'; PAGE])
    }

    fn sync(&self, round: u32) -> io::Result<()> {
        if round.is_multiple_of(2) { self.file.sync_data() } else { self.file.sync_all() }
    }

    fn sync_directory(&self) -> io::Result<()> {
        drop(unnamed(&self.directory)?);
        File::open(&self.directory)?.sync_all()
    }

    fn sync_by_ring(&self) -> io::Result<()> {
        let mut ring = IoUring::new(2)?;
        let entry = opcode::Fsync::new(Fd(self.file.as_raw_fd())).build();
        // SAFETY: the file stays open until the request is completed, which is waited for.
        unsafe { ring.submission().push(&entry) }.map_err(io::Error::other)?;
        ring.submit_and_wait(1)?;
        let result = ring.completion().next().map_or(-libc::EIO, |entry| entry.result());
        if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
    }

    /// Of three writes of one batch the first and the last adjoin; between them lies another, so that they become
    /// requests of their own, which only a scheduler makes one.
    fn merge(&self) -> io::Result<()> {
        let disk = self.disk.as_deref().ok_or_else(|| io::Error::other("only tried on a scratch disk"))?;
        let _scheduler = Scheduler::set(Path::new("/sys/block").join(disk).join("queue/scheduler"), "mq-deadline")?;
        let file = unnamed(&self.directory)?;
        file.write_all_at(&vec![b'm'; MERGED_WITHIN], 0)?;
        file.sync_all()?;
        let again = format!("/proc/self/fd/{}", file.as_raw_fd());
        let direct = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(again)?;
        let pages = Pages([[b'm'; PAGE]; 3]);
        let writes: [_; 3] = std::array::from_fn(|at| (&pages.0[at][..], MERGED[at]));
        let (context, before) = (aio::Context::new()?, merged(disk)?);
        // A worker may take the first one before the last one comes.
        for _ in 0..MERGE_TRIES {
            context.write(direct.as_raw_fd(), &writes)?;
            if merged(disk)? > before {
                return Ok(());
            }
        }
        Err(io::Error::other("the disk's scheduler merged nothing"))
    }
}

/// Direct writes need whole pages.
#[repr(align(4096))]
struct Pages([[u8; PAGE]; 3]);

/// Writes that the kernel has merged on a disk.
fn merged(disk: &str) -> io::Result<u64> {
    const WRITES_MERGED: usize = 5;
    let counts = std::fs::read_to_string(Path::new("/sys/block").join(disk).join("stat"))?;
    let merged = counts.split_whitespace().nth(WRITES_MERGED).and_then(|count| count.parse().ok());
    merged.ok_or_else(|| io::Error::other("the disk does not count"))
}

/// A file without a name.
pub fn unnamed(directory: &Path) -> io::Result<File> {
    let path = directory.join(format!(".fsyncscope-canary-{}", std::process::id()));
    let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// A disk's scheduler; the former one again when dropped.
struct Scheduler {
    setting: PathBuf,
    former: String,
}

impl Scheduler {
    fn set(setting: PathBuf, wanted: &str) -> io::Result<Self> {
        let all = std::fs::read_to_string(&setting)?;
        let former = all.split(['[', ']']).nth(1).unwrap_or("none").to_owned();
        std::fs::write(&setting, wanted)?;
        Ok(Self { setting, former })
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        drop(std::fs::write(&self.setting, &self.former));
    }
}

fn done(result: libc::c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        error if error < -1 => Err(io::Error::from_raw_os_error(-error)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Syncs of an act that the probes tell.
pub fn made(act: Act) -> u32 {
    match act {
        Act::Syncs => SYNCS,
        Act::Merge => 0,
        _ => 1,
    }
}
