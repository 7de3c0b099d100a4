//! Whether the file that a request is said to carry is the file whose blocks it writes, by the filesystem's own word.
//!
//! A request without a name is no fault; a request with a wrong name would accuse the innocent.

mod support;

use std::collections::{BTreeMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::BufReader;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use fsyncscope::event::{Event, Request, Source};
use fsyncscope::record;

use support::agent::Agent;
use support::extents::{Extents, Owner};
use support::scratch::{Format, LoopFs, Scratch};
use support::{Machine, own_tid};

const PAGE: usize = 4096;
/// Distance of pages that must not become one request.
const APART: u64 = 64 << 10;
/// Pages of a file of scattered pages.
const SCATTERED: u64 = 32;
/// Small files that a flusher writes together.
const SMALL: usize = 16;
/// Bytes of the long file: more than one piece of page-cache writeback has, and no more than one request may have.
const LONG: u64 = 1152 << 10;
const ROUNDS: u64 = 150;
const WRITE: u32 = 1;

/// What is written, and so what the truth is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Case {
    /// Through the page cache, made durable by fdatasync.
    Buffered,
    /// Past the page cache, from anonymous memory.
    DirectAnonymous,
    /// Past the page cache, from pages of another file's cache.
    DirectMapped,
    /// Past the page cache, from pages of another file's cache that are themselves being written back.
    DirectMappedBusy,
    /// The other file of the two cases above.
    Buffer,
    /// Neighbouring pages of one long file, flushed.
    Merged,
    /// Neighbouring small files, flushed: some requests carry more than one of them.
    MergedFiles,
    /// Inodes, directories, bitmaps and the journal.
    Metadata,
}

/// What the requests of one case were said to carry.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    right: u64,
    none: u64,
    wrong: u64,
    /// Without a name and by another thread than the one that wrote.
    stray: u64,
}

/// One scratch disk with the files of all cases, allocated and in their last place.
struct Stage {
    extents: Extents,
    cases: BTreeMap<u64, Case>,
    buffered: File,
    /// Three files that are open past the page cache.
    direct: [File; 3],
    buffer: File,
    long: File,
    small: Vec<File>,
    /// Small writes and syncs on it make the agent tell what the disk completed last.
    witness: File,
    /// Last, so that no file is open any more when it is unmounted.
    disk: LoopFs,
}

impl Stage {
    fn new(scratch: &Scratch) -> Self {
        let disk = LoopFs::new(scratch, "disk", Format::Ext4, 256);
        let (mut extents, mut cases) = (Extents::default(), BTreeMap::new());
        let mut file = |case: Case, name: &str, bytes: u64| {
            let file = filled(&disk.join(name), bytes);
            extents.add(&file);
            cases.insert(file.metadata().unwrap().ino(), case);
            file
        };
        let scattered = SCATTERED * APART;
        let buffered = file(Case::Buffered, "buffered", scattered);
        let witness = file(Case::Buffered, "witness", scattered);
        let direct = [Case::DirectAnonymous, Case::DirectMapped, Case::DirectMappedBusy].map(|case| {
            let name = format!("{case:?}");
            file(case, &name, scattered);
            OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(disk.join(&name)).unwrap()
        });
        let buffer = file(Case::Buffer, "buffer", SCATTERED * PAGE as u64);
        let long = file(Case::Merged, "long", LONG);
        let small = (0..SMALL).map(|number| file(Case::MergedFiles, &format!("small-{number}"), PAGE as u64)).collect();
        Self { extents, cases, buffered, direct, buffer, long, small, witness, disk }
    }

    fn testify(&self, round: u64) {
        self.witness.write_all_at(&[0x77; PAGE], round % SCATTERED * APART).unwrap();
        self.witness.sync_data().unwrap();
    }

    /// Lets the flusher write what is dirty.
    fn flush(&self) {
        // SAFETY: the descriptor is open.
        assert_eq!(unsafe { libc::syncfs(self.witness.as_raw_fd()) }, 0);
    }
}

fn filled(path: &Path, bytes: u64) -> File {
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap();
    file.write_all_at(&vec![0x66; bytes as usize], 0).unwrap();
    file.sync_all().unwrap();
    file
}

fn buffered(stage: &Stage) {
    for round in 0..ROUNDS {
        stage.buffered.write_all_at(&[0x62; PAGE], round % SCATTERED * APART).unwrap();
        stage.buffered.sync_data().unwrap();
    }
}

fn direct(stage: &Stage) {
    let [anonymous, mapped, busy] = &stage.direct;
    let buffer = &stage.buffer;
    let memory = Pages::new(None);
    let pages = Pages::new(Some(buffer));
    for round in 0..ROUNDS {
        let place = round % SCATTERED;
        memory.write_to(anonymous, 0, place * APART);
        pages.write_to(mapped, place, place * APART);
        stage.testify(round);
        buffer.write_all_at(&[round as u8; PAGE], place * PAGE as u64).unwrap();
        let (start, bytes) = ((place * PAGE as u64) as i64, PAGE as i64);
        // SAFETY: the descriptor is open and the rest are numbers.
        unsafe { libc::sync_file_range(buffer.as_raw_fd(), start, bytes, libc::SYNC_FILE_RANGE_WRITE) };
        pages.write_to(busy, place, place * APART);
        stage.testify(round);
    }
}

fn merged(stage: &Stage) {
    for round in 0..ROUNDS / 3 {
        for page in 0..LONG / PAGE as u64 {
            stage.long.write_all_at(&[round as u8; PAGE], page * PAGE as u64).unwrap();
        }
        stage.flush();
        stage.testify(round);
        for file in &stage.small {
            file.write_all_at(&[round as u8; PAGE], 0).unwrap();
        }
        stage.flush();
        stage.testify(round);
    }
}

fn metadata(stage: &Stage) {
    for round in 0..ROUNDS / 3 {
        let directory = stage.disk.join(&format!("directory-{round}"));
        std::fs::create_dir(&directory).unwrap();
        for number in 0..20 {
            File::create(directory.join(number.to_string())).unwrap();
        }
        File::open(&directory).unwrap().sync_all().unwrap();
        stage.testify(round);
        stage.flush();
        stage.testify(round);
    }
}

/// A page of memory for each scattered page: a file's own, or anonymous.
struct Pages {
    start: *mut u8,
}

impl Pages {
    const BYTES: usize = SCATTERED as usize * PAGE;

    fn new(file: Option<&File>) -> Self {
        let (flags, descriptor) =
            file.map_or((libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1), |file| (libc::MAP_SHARED, file.as_raw_fd()));
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing of ours.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), Self::BYTES, protection, flags, descriptor, 0) };
        assert_ne!(start, libc::MAP_FAILED, "map: {}", std::io::Error::last_os_error());
        Self { start: start.cast() }
    }

    /// Writes one of the pages to a file, without a copy between.
    fn write_to(&self, file: &File, page: u64, offset: u64) {
        assert!(page < SCATTERED);
        // SAFETY: the page lies in the mapping, which lives as long as `self`.
        let source = unsafe { self.start.add(page as usize * PAGE) };
        // SAFETY: as above; the kernel reads one page from there.
        let written = unsafe { libc::pwrite(file.as_raw_fd(), source.cast(), PAGE, offset as i64) };
        assert_eq!(written, PAGE as isize, "write: {}", std::io::Error::last_os_error());
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, whole, and nothing refers to it any more.
        unsafe { libc::munmap(self.start.cast(), Self::BYTES) };
    }
}

/// The writes of one disk in a recording, each once: a request stands in the picture of each wait that it preceded.
fn writes(recording: &Path, disk: u32) -> Vec<Request> {
    let mut seen = HashSet::new();
    let mut writes = Vec::new();
    for event in record::read(BufReader::new(File::open(recording).unwrap())) {
        let requests = match event.unwrap() {
            Event::Queue(queue) if queue.disk == disk => queue.recent,
            Event::Wait(wait) if wait.disk == disk => wait.request.into_iter().collect(),
            _ => Vec::new(),
        };
        let carries = |request: &Request| request.command & 0xff == WRITE && request.bytes > 0 && request.done_ns > 0;
        for request in requests.into_iter().filter(carries) {
            if seen.insert((request.allocated_ns, request.sector, request.tid)) {
                writes.push(request);
            }
        }
    }
    writes
}

/// Compares each request's name with the owner of its blocks.
fn judge(stage: &Stage, writes: &[Request], tid: u32) -> BTreeMap<Case, Tally> {
    let (major, minor) = stage.disk.number();
    let disk = major << 20 | minor;
    let mut tallies: BTreeMap<Case, Tally> = BTreeMap::new();
    for request in writes {
        let from = request.sector * 512;
        let owner = stage.extents.owner(from, from + u64::from(request.bytes));
        let (case, truth) = match owner {
            Owner::File(inode) => (stage.cases[&inode], Some((disk, inode))),
            Owner::Several => (Case::MergedFiles, None),
            // The filesystem's own blocks are cached under the inode of the block device, which is its number.
            Owner::Nobody => (Case::Metadata, Some((0, u64::from(disk)))),
        };
        let tally = tallies.entry(case).or_default();
        // Block devices lie on a filesystem that no disk has; its number is 0 and something.
        let dev = if owner == Owner::Nobody { request.inode_dev >> 20 } else { request.inode_dev };
        if request.inode == 0 {
            tally.none += 1;
            tally.stray += u64::from(request.tid != tid || request.submitter != Source::Other);
        } else if truth == Some((dev, request.inode)) {
            tally.right += 1;
        } else {
            tally.wrong += 1;
            eprintln!("{case:?}: {owner:?} is called {request:?}");
        }
    }
    tallies
}

#[test]
fn no_request_is_called_by_the_name_of_another_file() {
    names_are_true(&[]);
}

#[test]
fn nor_is_one_by_raw_probes() {
    names_are_true(&["--raw"]);
}

fn names_are_true(arguments: &[&str]) {
    skip_if!(Format::Ext4.missing());
    let _machine = Machine::lock();
    let scratch = Scratch::new("requests");
    let recording = scratch.join("recording");
    let stage = Stage::new(&scratch);
    let agent = Agent::watch(&[&["--threshold", "0", "--record", recording.to_str().unwrap()], arguments].concat());
    buffered(&stage);
    direct(&stage);
    merged(&stage);
    metadata(&stage);
    assert!(agent.interrupt().status.success());

    let (major, minor) = stage.disk.number();
    let writes = writes(&recording, major << 20 | minor);
    let tallies = judge(&stage, &writes, own_tid());
    println!("{:<18} right  none wrong", "case");
    for (case, Tally { right, none, wrong, stray: _ }) in &tallies {
        println!("{:<18} {right:>5} {none:>5} {wrong:>5}", format!("{case:?}"));
    }
    for (case, tally) in &tallies {
        assert_eq!(tally.wrong, 0, "{case:?}");
    }
    let of = |case: Case| tallies.get(&case).copied().unwrap_or_default();
    for case in [Case::Buffered, Case::Buffer, Case::Merged] {
        assert!(of(case).right > 0, "{case:?} is never named");
    }
    let whole = writes.iter().any(|request| u64::from(request.bytes) == LONG && request.inode != 0);
    assert!(whole, "no request took the whole of the long file, so no merged one was looked at");
    for case in [Case::DirectAnonymous, Case::DirectMapped, Case::DirectMappedBusy] {
        let Tally { none, stray, .. } = of(case);
        assert!(none > 0 && stray == 0, "{case:?}: its thread submits it, and it has no name: {:?}", of(case));
    }
    assert!(of(Case::MergedFiles).none > 0, "no request carried two files");
    assert!(of(Case::Metadata).none > 0 && of(Case::Metadata).right > 0);
}
