//! Turns numbers into words: paths and writers of files, names of disks, kernel functions and processes.
//!
//! Reads `/proc` and `/sys`, keeps what it found within bounds, and waits for nothing but the kernel's own tables. Words
//! enter the stream as events, so that a recording explains itself elsewhere. It must not know what a sync is blamed on.

use std::path::{Path, PathBuf};

use crate::event::{Disk, Event, Wait, Writer};
use crate::kernel::dev::Dev;
use crate::kernel::disks::{Device, Disks};
use crate::kernel::host::Roots;
use crate::kernel::symbols::Symbols;
use crate::limits;

mod aged;
mod identity;
pub mod memory;
mod open_files;
mod places;
mod processes;
mod stack;

pub use processes::{Process, running, threads};

use aged::Aged;
use identity::{Links, number};
use open_files::{Holders, Key, OpenFiles, Pace};
use places::{Inside, Others, Place, Places};
use processes::Processes;

/// All names, and what was told of them.
#[derive(Debug)]
pub struct Names {
    proc: PathBuf,
    places: Places,
    /// Files that no mount showed yet.
    pending: Vec<Inside>,
    /// What was told of each file.
    files: Aged<Key, Told>,
    open_files: OpenFiles,
    disks: Disks,
    disks_told: Aged<u32, Disk>,
    functions: Functions,
    processes: Processes,
    /// Threads whose process was told.
    tasks_told: Aged<u32, ()>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    path: String,
    writers: Vec<Writer>,
}

/// Names of kernel functions, read when the first is wanted.
#[derive(Debug)]
struct Functions {
    symbols: Source,
    told: Aged<u64, ()>,
}

#[derive(Debug)]
enum Source {
    Unread(PathBuf),
    Read(Box<Symbols>),
    /// It said why at start, in what doctor and the report show.
    Unreadable,
}

impl Names {
    pub fn new(roots: &Roots) -> Self {
        let Roots { proc, sys } = roots;
        Self {
            proc: proc.clone(),
            places: Places::new(roots),
            pending: Vec::new(),
            files: Aged::new(limits::NAMES_FILES),
            open_files: OpenFiles::new(proc),
            disks: Disks::new(sys),
            disks_told: Aged::new(limits::NAMES_DISKS),
            functions: Functions { symbols: Source::Unread(proc.clone()), told: Aged::new(limits::NAMES_SYMBOLS) },
            processes: Processes::new(proc),
            tasks_told: Aged::new(limits::NAMES_PROCESSES),
        }
    }

    /// Events that name what an event of the probes mentions for the first time. Mostly empty. A file on a filesystem
    /// that was mounted just now is named some events later.
    pub fn about(&mut self, event: &Event, now_ns: u64) -> Vec<Event> {
        let mut told = self.place_pending(now_ns);
        match event {
            Event::Filesystem { disk, .. } if *disk != 0 => told.extend(self.disk(*disk)),
            Event::File { dev, inode, path } => told.extend(self.file((*dev, *inode), path, now_ns)),
            Event::Wait(wait) => told.extend(self.functions.of(wait)),
            _ => {}
        }
        told
    }

    /// Names files beside a slow sync, and the processes that have them open for writing: all of them by one look
    /// through the open files, at most one per second. Nothing for a file that was looked for within ten seconds, for
    /// one that nobody has open, and for one whose filesystem gives its files another device number than its own
    /// (btrfs, overlay).
    pub fn files(&mut self, files: &[(u32, u64)], now_ns: u64) -> Vec<Event> {
        self.named(files, now_ns, Pace::Ours)
    }

    /// The same for a caller that asks seldom: neither side waits for the other.
    pub fn files_seldom(&mut self, files: &[(u32, u64)], now_ns: u64) -> Vec<Event> {
        self.named(files, now_ns, Pace::Callers)
    }

    fn named(&mut self, files: &[Key], now_ns: u64, pace: Pace) -> Vec<Event> {
        let Self { places, open_files, .. } = self;
        let found = open_files.look(files, now_ns, pace, &|path| places.is_remote(path));
        let mut found: Vec<(Key, Holders)> = found.into_iter().collect();
        found.sort_unstable_by_key(|(key, _)| *key);
        let mut others = Others::default();
        found.into_iter().filter_map(|(key, holders)| self.held_file(key, holders, &mut others, now_ns)).collect()
    }

    /// The processes of threads beside a slow sync, unless they were told within ten seconds. A thread that has ended has
    /// none.
    pub fn tasks(&mut self, tids: &[u32], now_ns: u64) -> Vec<Event> {
        let mut told = Vec::new();
        for tid in tids {
            if self.tasks_told.get(tid, now_ns).is_some() {
                continue;
            }
            let Some(pid) = processes::of_thread(&self.proc, *tid) else { continue };
            let holds_ns = now_ns.saturating_add(limits::NAMES_PROCESS_HOLDS_NS);
            self.tasks_told.put(*tid, (), now_ns, holds_ns);
            told.push(Event::Task { tid: *tid, pid, process: self.processes.get(pid).name });
        }
        told
    }

    /// A process as an operator names it; what was last known of it if it has ended.
    pub fn process(&mut self, pid: u32) -> Process {
        self.processes.get(pid)
    }

    /// The same of a process that just said its name.
    pub fn process_named(&mut self, pid: u32, name: &str) -> Process {
        self.processes.get_named(pid, name)
    }

    /// Functions on the kernel stack of a thread, innermost first; empty where that is not permitted.
    pub fn stack_of(&self, tid: u32) -> Vec<String> {
        stack::of(&self.proc, tid)
    }

    /// The disk and all whole disks below it, unless they were told just so.
    fn disk(&mut self, disk: u32) -> Vec<Event> {
        // What is written to a loop device reaches the disk below as pages of the file behind it.
        let Some(device) = self.disks.device(Dev::from_kernel(disk)) else { return Vec::new() };
        let mut open = vec![&device];
        let mut told = Vec::new();
        let mut images = Vec::new();
        while let Some(device) = open.pop() {
            let disk = whole(device);
            if self.disks_told.get_old(&disk.dev) != Some(&disk) {
                self.disks_told.put(disk.dev, disk.clone(), 0, u64::MAX);
                told.push(Event::Disk(disk));
                images.extend(device.disk.backing_file.clone());
            }
            open.extend(device.lower.iter().rev());
        }
        told.extend(images.into_iter().filter_map(|image| self.image(&image)));
        told
    }

    fn image(&mut self, path: &Path) -> Option<Event> {
        if self.places.is_remote(path) {
            return None;
        }
        let (dev, inode) = identity::of(path, Links::Stay).ok()?;
        Some(self.placed((number(dev), inode), path))
    }

    fn file(&mut self, key: Key, path: &str, now_ns: u64) -> Option<Event> {
        if !path.starts_with('/') {
            return None;
        }
        let file = Inside { dev: Dev::from_kernel(key.0), inode: key.1, path: PathBuf::from(path) };
        match self.places.find(&file, now_ns) {
            Place::At(path) => Some(self.placed(key, &path)),
            Place::Nowhere => None,
            Place::Later => {
                if self.pending.len() < limits::NAMES_PENDING {
                    self.pending.push(file);
                }
                None
            }
        }
    }

    /// Files that came while the mount tables were too fresh to be read again; whom the next reading does not show is
    /// given up.
    fn place_pending(&mut self, now_ns: u64) -> Vec<Event> {
        if self.pending.is_empty() || !self.places.refresh(now_ns) {
            return Vec::new();
        }
        let pending = std::mem::take(&mut self.pending);
        let place = |file: Inside| Some(self.placed((number(file.dev), file.inode), &self.places.look_up(&file)?));
        pending.into_iter().filter_map(place).collect()
    }

    /// A file at its place, with the writers that are known of it.
    fn placed(&mut self, key: Key, path: &Path) -> Event {
        let writers = self.files.get_old(&key).map(|told| told.writers.clone()).unwrap_or_default();
        self.tell(key, Told { path: text(path), writers })
    }

    fn held_file(&mut self, key: Key, holders: Holders, others: &mut Others, now_ns: u64) -> Option<Event> {
        let Holders { link, writers } = holders;
        let known = self.files.get_old(&key).cloned();
        let writers: Vec<Writer> =
            writers.into_iter().map(|pid| Writer { pid, name: self.processes.get(pid).name }).collect();
        let path = match (&known, link) {
            // Its last writer is gone: that has to be told, or it stays blamed.
            (Some(known), None) if !known.writers.is_empty() => known.path.clone(),
            (_, None) => return None,
            (_, Some((_, link))) if self.places.shows(&link, Dev::from_kernel(key.0), key.1) => text(&link),
            (_, Some((pid, link))) => {
                let inside = others.inside(&self.proc, pid, &link);
                text(&inside.and_then(|inside| self.place_of(key, inside, now_ns)).unwrap_or(link))
            }
        };
        Some(self.tell(key, Told { path, writers }))
    }

    /// Where a file lies on this machine, if a mount shows it now.
    fn place_of(&mut self, (dev, inode): Key, inside: PathBuf, now_ns: u64) -> Option<PathBuf> {
        match self.places.find(&Inside { dev: Dev::from_kernel(dev), inode, path: inside }, now_ns) {
            Place::At(path) => Some(path),
            Place::Nowhere | Place::Later => None,
        }
    }

    fn tell(&mut self, key: Key, told: Told) -> Event {
        self.files.put(key, told.clone(), 0, u64::MAX);
        let ((dev, inode), Told { path, writers }) = (key, told);
        Event::Path { dev, inode, path, writers }
    }
}

impl Functions {
    fn of(&mut self, wait: &Wait) -> Vec<Event> {
        let addresses = std::iter::once(&wait.function).chain(&wait.stack).copied().filter(|address| *address != 0);
        let mut told = Vec::new();
        for address in addresses {
            if self.told.get(&address, 0).is_some() {
                continue;
            }
            self.told.put(address, (), 0, u64::MAX);
            told.extend(self.symbols.name_of(address).map(|name| Event::Symbol { address, name: name.to_owned() }));
        }
        told
    }
}

impl Source {
    fn name_of(&mut self, address: u64) -> Option<&str> {
        if let Self::Unread(proc) = self {
            *self = Symbols::load(proc).map_or(Self::Unreadable, |symbols| Self::Read(Box::new(symbols)));
        }
        match self {
            Self::Read(symbols) => symbols.name_of(address),
            Self::Unread(_) | Self::Unreadable => None,
        }
    }
}

/// A whole disk, with the whole disks right below it.
fn whole(device: &Device) -> Disk {
    let dev = number(device.disk.dev);
    let mut lower: Vec<u32> =
        device.lower.iter().map(|below| number(below.disk.dev)).filter(|below| *below != dev).collect();
    lower.sort_unstable();
    lower.dedup();
    Disk { dev, name: device.disk.name.clone(), lower, stacked: device.disk.stacked }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
