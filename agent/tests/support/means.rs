//! What an operation is made of where the client's own thread makes it: a file and what is done with it before and at the
//! call. Only what a call does is timed.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use super::mapping::Mapping;

/// What each operation writes; then there is something to make durable.
pub const BYTES: usize = 4096;
/// A file is written from its beginning to here, then emptied: the files of a matrix fit on a small disk.
const REGION: u64 = 256 << 10;
pub const DATA: [u8; BYTES] = [0x6a; BYTES];

/// Where one thread's files lie.
pub struct Site {
    pub directory: PathBuf,
    pub stem: String,
    /// Which thread of its process.
    pub thread: u64,
}

impl Site {
    fn path(&self, number: usize) -> PathBuf {
        self.directory.join(format!("{}.{}.{number}", self.stem, self.thread))
    }

    /// The same for all threads.
    fn shared_path(&self) -> PathBuf {
        self.directory.join(&self.stem)
    }
}

/// A file or directory as the book names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    pub inode: u64,
    pub path: PathBuf,
}

impl Known {
    fn of(file: &File, path: PathBuf) -> Self {
        Self { inode: file.metadata().expect("look at the client's file").ino(), path }
    }
}

/// What a thread goes through a door with.
pub trait Means {
    /// What its records are about.
    fn known(&self) -> Vec<Known>;

    /// Makes something that is not durable yet; not timed.
    fn prepare(&mut self, number: u64);

    /// Makes one call of the operation; timed.
    fn call(&mut self, number: usize) -> io::Result<()>;
}

/// What is done with a file that was written.
pub type Step = fn(&Written) -> io::Result<()>;

/// How the bytes come into the file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Filled {
    Before,
    AfterFallocate,
    /// By the call itself, with these flags of pwritev2.
    ByCall(i32),
}

/// A file that grows by each operation.
pub struct Written {
    pub file: File,
    path: PathBuf,
    filled: Filled,
    steps: &'static [Step],
    /// Where this thread's part of the file begins; of a file of its own, nothing.
    part: Option<u64>,
    /// Where the bytes of the present operation begin.
    pub offset: u64,
}

impl Written {
    /// Written by plain writes, then each step is one call.
    pub fn before(site: &Site, steps: &'static [Step]) -> Box<dyn Means> {
        Box::new(Self::open(site, 0, Filled::Before, steps))
    }

    /// The same in one file of all threads, each in its own part of it: what one does, others sync meanwhile.
    pub fn shared(site: &Site, steps: &'static [Step]) -> Box<dyn Means> {
        let path = site.shared_path();
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
        let file = file.expect("create the client's file");
        let part = Some(site.thread * REGION);
        Box::new(Self { file, path, filled: Filled::Before, steps, part, offset: 0 })
    }

    /// The same, and the blocks of each write are allocated before it.
    pub fn allocated(site: &Site, steps: &'static [Step]) -> Box<dyn Means> {
        Box::new(Self::open(site, 0, Filled::AfterFallocate, steps))
    }

    /// The write is the call, with flags of open and flags of pwritev2.
    pub fn by_call(site: &Site, open: i32, write: i32) -> Box<dyn Means> {
        Box::new(Self::open(site, open, Filled::ByCall(write), &[]))
    }

    /// A file that is filled before each call by somebody else than these steps.
    pub fn alone(site: &Site) -> Self {
        Self::open(site, 0, Filled::Before, &[])
    }

    fn open(site: &Site, flags: i32, filled: Filled, steps: &'static [Step]) -> Self {
        let path = site.path(0);
        let file = OpenOptions::new().write(true).create_new(true).custom_flags(flags).open(&path);
        Self { file: file.expect("create the client's file"), path, filled, steps, part: None, offset: 0 }
    }

    /// Goes on to the next place, without a write.
    pub fn advance(&mut self, number: u64) {
        self.offset = self.part.unwrap_or_default() + number * BYTES as u64 % REGION;
        if self.offset == 0 && self.part.is_none() {
            self.file.set_len(0).expect("empty the client's file");
        }
    }

    fn write(&self) -> io::Result<()> {
        self.file.write_all_at(&DATA, self.offset)
    }

    fn write_with(&self, flags: i32) -> io::Result<()> {
        let part = libc::iovec { iov_base: DATA.as_ptr().cast_mut().cast(), iov_len: BYTES };
        // SAFETY: one part, which outlives the call and is only read.
        let written = unsafe { libc::pwritev2(self.file.as_raw_fd(), &raw const part, 1, self.offset as i64, flags) };
        assert!(written < 0 || written as usize == BYTES, "a short write is another operation");
        done(written as i64)
    }

    pub fn fsync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    pub fn fdatasync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    pub fn syncfs(&self) -> io::Result<()> {
        // SAFETY: the descriptor is open for as long as the file lives.
        done(unsafe { libc::syncfs(self.file.as_raw_fd()) }.into())
    }

    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: sync has no preconditions and cannot fail.
        unsafe { libc::sync() };
        Ok(())
    }

    pub fn sync_file_range(&self) -> io::Result<()> {
        let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        // SAFETY: the descriptor is open for as long as the file lives.
        let result = unsafe { libc::sync_file_range(self.file.as_raw_fd(), self.offset as i64, BYTES as i64, flags) };
        done(result.into())
    }

    pub fn drop_from_cache(&self) -> io::Result<()> {
        let (offset, length) = (self.offset as i64, BYTES as i64);
        // SAFETY: the descriptor is open for as long as the file lives.
        let error = unsafe { libc::posix_fadvise(self.file.as_raw_fd(), offset, length, libc::POSIX_FADV_DONTNEED) };
        if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
    }

    fn fallocate(&self) -> io::Result<()> {
        // SAFETY: the descriptor is open for as long as the file lives.
        done(unsafe { libc::fallocate(self.file.as_raw_fd(), 0, self.offset as i64, BYTES as i64) }.into())
    }
}

impl Means for Written {
    fn known(&self) -> Vec<Known> {
        vec![Known::of(&self.file, self.path.clone())]
    }

    fn prepare(&mut self, number: u64) {
        self.advance(number);
        if self.filled == Filled::AfterFallocate {
            self.fallocate().expect("allocate blocks of the client's file");
        }
        if !matches!(self.filled, Filled::ByCall(_)) {
            self.write().expect("write the client's file");
        }
    }

    fn call(&mut self, number: usize) -> io::Result<()> {
        match self.filled {
            Filled::ByCall(0) => self.write(),
            Filled::ByCall(flags) => self.write_with(flags),
            Filled::Before | Filled::AfterFallocate => self.steps[number](self),
        }
    }
}

/// Files that are mapped side by side, changed through the mapping and made durable by one msync.
pub struct Mapped {
    mapping: Mapping,
    known: Vec<Known>,
}

impl Mapped {
    pub fn open(site: &Site, files: usize) -> Box<dyn Means> {
        let open = |number| {
            let path = site.path(number);
            let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
            let file = file.expect("create the client's file");
            file.write_all_at(&vec![0x30; REGION as usize], 0).expect("fill the client's file");
            (Known::of(&file, path), file)
        };
        let (known, files): (Vec<Known>, Vec<File>) = (0..files).map(open).unzip();
        Box::new(Self { mapping: Mapping::new(&files.iter().collect::<Vec<_>>(), REGION as usize), known })
    }
}

impl Means for Mapped {
    fn known(&self) -> Vec<Known> {
        self.known.clone()
    }

    fn prepare(&mut self, number: u64) {
        for file in 0..self.known.len() as u64 {
            let offset = file * REGION + number * BYTES as u64 % REGION;
            // Other bytes than those of the last round.
            self.mapping.write(&[number as u8; BYTES], offset as usize);
        }
    }

    fn call(&mut self, _: usize) -> io::Result<()> {
        self.mapping.sync(0, self.known.len() * REGION as usize)
    }
}

/// A directory in which an entry was made or renamed.
pub struct Directory {
    directory: File,
    known: Known,
}

impl Directory {
    pub fn open(site: &Site) -> Box<dyn Means> {
        let path = site.path(0);
        fs::create_dir(&path).expect("create the client's directory");
        let directory = File::open(&path).expect("open the client's directory");
        let known = Known::of(&directory, path);
        Box::new(Self { directory, known })
    }
}

impl Means for Directory {
    fn known(&self) -> Vec<Known> {
        vec![self.known.clone()]
    }

    fn prepare(&mut self, number: u64) {
        let [fresh, kept] = ["fresh", "kept"].map(|name| self.known.path.join(name));
        let changed = if number.is_multiple_of(2) { File::create(&fresh).map(drop) } else { fs::rename(&fresh, &kept) };
        changed.expect("change the client's directory");
    }

    fn call(&mut self, _: usize) -> io::Result<()> {
        self.directory.sync_all()
    }
}

/// What a system call's result says.
pub fn done(result: i64) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
