//! Puts events together: each sync with the waits, delays, commits and queue pictures that lie in it.
//!
//! Pure: time enters as a field of an event. It never fails: what is not known is absent. Everything is bounded; what a
//! bound pushes out is old, and a sync that needed it is explained with less.

use std::collections::{HashMap, VecDeque};

use crate::event::{
    self, Commit, Delay, Disk, EndSeen, Event, Portion, Queue, Role, Source, Start, Thread, Wait, Writer,
};
use crate::limits;

mod baseline;
mod bounded;
mod operation;
mod written;

use bounded::Bounded;

pub use baseline::{Baseline, Kind};
pub use operation::Operation;
pub use written::{Subject, WrittenBack};

/// What stands for the disk of a sync of all filesystems.
const ALL: &str = "all";

/// One sync with everything that is known of it.
#[derive(Clone, Debug)]
pub struct Sync {
    /// Counts syncs of this stream from 1.
    pub id: u64,
    pub event: event::Sync,
    pub operation: Operation,
    pub process: String,
    pub file: File,
    /// The disk of the filesystem, and those below it.
    pub disk: Disk,
    pub lower: Vec<Disk>,
    /// Waits and delays of the thread itself, of its journal thread, and of kernel workers, that overlap the sync.
    pub waits: Vec<Wait>,
    pub journal_waits: Vec<Wait>,
    pub delays: Vec<Delay>,
    pub journal_delays: Vec<Delay>,
    pub worker_delays: Vec<Delay>,
    pub commits: Vec<Commit>,
    pub queues: Vec<Queue>,
    /// Events lost while it ran, or between the polls around it.
    pub lost_events: u64,
    /// What requests of its disks usually take.
    pub baselines: Vec<Baseline>,
    /// Kernel threads that were seen to serve its disk where that is a stacked one: they completed its requests, or made
    /// requests below.
    pub servants: Vec<u32>,
    /// Of a sync of all filesystems: how long it was at those of each disk, in ns.
    pub filesystems: Vec<(Disk, u64)>,
}

/// The file of a sync.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct File {
    pub inode: u64,
    /// Where it can be opened, or its path inside the filesystem, or nothing.
    pub path: Option<String>,
}

/// What is known of a file by its number.
#[derive(Clone, Debug, Default)]
pub struct KnownFile {
    pub path: String,
    pub writers: Vec<Writer>,
    /// The path is one of this machine, not only inside its filesystem.
    pub placed: bool,
}

/// Keeps what later syncs need, and hands out each sync when its record comes.
#[derive(Debug, Default)]
pub struct Timeline {
    start: Start,
    syncs: u64,
    threads: HashMap<u32, Thread>,
    files: Bounded<(u32, u64), KnownFile>,
    filesystems: HashMap<u32, u32>,
    disks: HashMap<u32, Disk>,
    /// Processes of threads that are not watched.
    tasks: Bounded<u32, Writer>,
    symbols: Bounded<u64, String>,
    waits: VecDeque<Wait>,
    delays: VecDeque<Delay>,
    commits: VecDeque<Commit>,
    queues: VecDeque<Queue>,
    losses: VecDeque<(u64, u64, u64)>,
    portions: VecDeque<Portion>,
    /// Numbers of syncs that were seen open, by thread and start.
    open: Bounded<(u32, u64), u64>,
    baselines: baseline::Baselines,
    servants: Bounded<(u32, u32), ()>,
}

impl Timeline {
    /// Takes an event; gives the sync that it completes, if it does.
    pub fn add(&mut self, event: Event) -> Option<Sync> {
        match event {
            Event::Sync(sync) => return Some(self.complete(sync)),
            Event::Start(start) => self.start = start,
            Event::Thread(thread) => self.add_thread(thread),
            Event::ThreadExit { tid, .. } => drop(self.threads.remove(&tid)),
            Event::File { dev, inode, path } => {
                self.files.put((dev, inode), KnownFile { path, ..KnownFile::default() })
            }
            Event::Path { dev, inode, path, writers } => {
                self.files.put((dev, inode), KnownFile { path, writers, placed: true });
            }
            Event::Filesystem { dev, disk, .. } => self.add_filesystem(dev, disk),
            Event::Task { tid, pid, process } => self.tasks.put(tid, Writer { pid, name: process }),
            Event::Disk(disk) => drop(self.disks.insert(disk.dev, disk)),
            Event::Symbol { address, name } => self.symbols.put(address, name),
            Event::Wait(wait) => {
                self.baselines.learn(&wait);
                keep(&mut self.waits, *wait, limits::TIMELINE_WAITS);
            }
            Event::Delay(delay) => keep(&mut self.delays, delay, limits::TIMELINE_DELAYS),
            Event::Commit(commit) => keep(&mut self.commits, commit, limits::TIMELINE_COMMITS),
            Event::Queue(queue) => {
                self.baselines.learn_queue(&queue);
                self.learn_servants(&queue);
                keep(&mut self.queues, *queue, limits::TIMELINE_QUEUES);
            }
            Event::Lost { from_ns, until_ns, syncs, details } => {
                keep(&mut self.losses, (from_ns, until_ns, syncs + details), limits::TIMELINE_LOSSES);
            }
            Event::Portion(portion) => keep(&mut self.portions, portion, limits::TIMELINE_PORTIONS),
            Event::Open(open) => self.number(open.tid, open.start_ns),
            // Told as they come: no sync is explained by them.
            Event::WrittenBack(_) | Event::Unknown { .. } => {}
        }
        None
    }

    /// Facts of the machine.
    pub fn start(&self) -> &Start {
        &self.start
    }

    /// What is known of a file.
    pub fn file(&self, dev: u32, inode: u64) -> Option<&KnownFile> {
        self.files.get(&(dev, inode))
    }

    /// The function that an address lies in.
    pub fn symbol(&self, address: u64) -> Option<&str> {
        self.symbols.get(&address).map(String::as_str)
    }

    /// A watched task.
    pub fn thread(&self, tid: u32) -> Option<&Thread> {
        self.threads.get(&tid)
    }

    /// The process of a thread that is not watched.
    pub fn process_of(&self, tid: u32) -> Option<&Writer> {
        self.tasks.get(&tid)
    }

    /// Name of a disk; its numbers where the name is not known.
    pub fn disk(&self, dev: u32) -> Disk {
        let unnamed = || Disk { dev, name: format!("{}:{}", dev >> 20, dev & 0xf_ffff), ..Disk::default() };
        self.disks.get(&dev).cloned().unwrap_or_else(unnamed)
    }

    /// The disk of a filesystem, or what the filesystem's own number says.
    pub fn disk_of(&self, dev: u32) -> Disk {
        if dev == 0 {
            return Disk { name: ALL.to_owned(), ..Disk::default() };
        }
        self.disk(self.filesystems.get(&dev).copied().filter(|disk| *disk != 0).unwrap_or(dev))
    }

    fn add_thread(&mut self, thread: Thread) {
        if self.threads.len() < limits::TIMELINE_THREADS || self.threads.contains_key(&thread.tid) {
            self.threads.insert(thread.tid, thread);
        }
    }

    fn add_filesystem(&mut self, dev: u32, disk: u32) {
        if self.filesystems.len() < limits::TIMELINE_FILESYSTEMS || self.filesystems.contains_key(&dev) {
            self.filesystems.insert(dev, disk);
        }
    }

    /// Gives a sync its number when it is first seen, open or ended.
    fn number(&mut self, tid: u32, start_ns: u64) {
        if self.open.get(&(tid, start_ns)).is_none() {
            self.syncs += 1;
            self.open.put((tid, start_ns), self.syncs);
        }
    }

    /// Number of an open sync.
    pub fn number_of(&self, tid: u32, start_ns: u64) -> u64 {
        self.open.get(&(tid, start_ns)).copied().unwrap_or(0)
    }

    fn complete(&mut self, event: event::Sync) -> Sync {
        let mut id = self.number_of(event.tid, event.start_ns);
        if id == 0 {
            self.syncs += 1;
            id = self.syncs;
        }
        let mut sync = self.named(id, event);
        if sync.operation == Operation::Sync {
            sync.filesystems = self.visited_by(&sync.event);
        }
        sync.lost_events = self.lost_in(sync.event.start_ns, sync.event.end_ns);
        if sync.duration_ns() >= self.start.threshold_ns {
            self.add_details(&mut sync);
            sync.lost_events += self.forgotten_since(sync.event.start_ns);
        }
        sync
    }

    /// A sync with the names that are known of it, without details.
    pub fn named(&self, id: u64, event: event::Sync) -> Sync {
        let disk = self.disk_of(event.dev);
        let asker = event.asked.as_ref().map(|asked| asked.process.clone());
        let process = asker.or_else(|| Some(self.threads.get(&event.tid)?.process.clone()));
        let path = self.files.get(&(event.dev, event.inode)).map(|known| known.path.clone());
        Sync {
            id,
            operation: Operation::of(&event, &self.start.architecture),
            process: process.filter(|name| !name.is_empty()).unwrap_or_else(|| event.thread.clone()),
            file: File { inode: event.inode, path },
            lower: disk.lower.iter().map(|dev| self.disk(*dev)).collect(),
            disk,
            waits: Vec::new(),
            journal_waits: Vec::new(),
            delays: Vec::new(),
            journal_delays: Vec::new(),
            worker_delays: Vec::new(),
            commits: Vec::new(),
            queues: Vec::new(),
            lost_events: 0,
            baselines: Vec::new(),
            servants: Vec::new(),
            filesystems: Vec::new(),
            event,
        }
    }

    /// How long a sync of all filesystems was at each disk, in the order of its visits.
    fn visited_by(&self, event: &event::Sync) -> Vec<(Disk, u64)> {
        let inside = |portion: &&Portion| {
            portion.tid == event.tid && portion.start_ns >= event.start_ns && portion.end_ns <= event.end_ns
        };
        let mut visited: Vec<(Disk, u64)> = Vec::new();
        for portion in self.portions.iter().filter(inside) {
            let (disk, ns) = (self.disk_of(portion.dev), portion.end_ns.saturating_sub(portion.start_ns));
            match visited.iter_mut().find(|(known, _)| known.dev == disk.dev) {
                Some((_, sum)) => *sum += ns,
                None => visited.push((disk, ns)),
            }
        }
        visited
    }

    fn learn_servants(&mut self, queue: &Queue) {
        for request in &queue.recent {
            let submitter = (request.submitter == Source::Worker).then_some(request.tid);
            for tid in [submitter, Some(request.done_tid)].into_iter().flatten().filter(|tid| *tid != 0) {
                self.servants.put((queue.disk, tid), ());
            }
        }
    }

    /// Kinds of details of which some that ended after a time were pushed out by newer ones.
    fn forgotten_since(&self, start_ns: u64) -> u64 {
        let oldest = [
            (self.waits.len() == limits::TIMELINE_WAITS, self.waits.front().map(|wait| wait.end_ns)),
            (self.delays.len() == limits::TIMELINE_DELAYS, self.delays.front().map(|delay| delay.end_ns)),
            (self.commits.len() == limits::TIMELINE_COMMITS, self.commits.front().map(|commit| commit.end_ns)),
            (self.queues.len() == limits::TIMELINE_QUEUES, self.queues.front().map(|queue| queue.time_ns)),
        ];
        oldest.into_iter().filter(|(full, end)| *full && end.is_some_and(|end_ns| end_ns > start_ns)).count() as u64
    }

    fn lost_in(&self, start_ns: u64, end_ns: u64) -> u64 {
        self.losses
            .iter()
            .filter(|(from, until, _)| *from <= end_ns && start_ns <= *until)
            .map(|(_, _, count)| count)
            .sum()
    }

    fn add_details(&self, sync: &mut Sync) {
        let (start, end, tid, dev) = (sync.event.begun_ns(), sync.event.end_ns, sync.event.doer(), sync.event.dev);
        let overlaps = |from: u64, until: u64| from < end && start < until;
        sync.waits =
            self.waits.iter().filter(|wait| wait.tid == tid && overlaps(wait.start_ns, wait.end_ns)).cloned().collect();
        sync.commits = self
            .commits
            .iter()
            .filter(|commit| commit.dev == dev && overlaps(commit.start_ns, commit.end_ns))
            .cloned()
            .collect();
        let is_journal = |tid: u32| self.threads.get(&tid).is_some_and(|thread| thread.role == Role::Journal);
        let wakers = sync.waits.iter().map(|wait| wait.waker_tid).filter(|tid| is_journal(*tid));
        let journal = sync.commits.iter().map(|commit| commit.tid).chain(wakers).next();
        let of_journal = |tid: u32| Some(tid) == journal;
        sync.journal_waits = self
            .waits
            .iter()
            .filter(|wait| of_journal(wait.tid) && overlaps(wait.start_ns, wait.end_ns))
            .cloned()
            .collect();
        for delay in self.delays.iter().filter(|delay| overlaps(delay.start_ns, delay.end_ns)) {
            let place = match self.threads.get(&delay.tid).map(|thread| thread.role) {
                _ if delay.tid == tid => &mut sync.delays,
                _ if of_journal(delay.tid) => &mut sync.journal_delays,
                Some(Role::Worker) => &mut sync.worker_delays,
                _ => continue,
            };
            place.push(delay.clone());
        }
        let concerned = |disk: u32| disk == sync.disk.dev || sync.lower.iter().any(|lower| lower.dev == disk);
        sync.queues = self
            .queues
            .iter()
            .filter(|queue| concerned(queue.disk) && queue.time_ns >= start && queue.time_ns <= end)
            .cloned()
            .collect();
        sync.baselines = self.baselines.of(sync.disk.dev);
        if sync.disk.is_stacked() {
            let serves = |(disk, _): &&(u32, u32)| concerned(*disk);
            sync.servants = self.servants.keys().filter(serves).map(|(_, tid)| *tid).collect();
        }
    }
}

impl Sync {
    /// Wall time in the kernel, in ns.
    pub fn duration_ns(&self) -> u64 {
        self.event.end_ns.saturating_sub(self.event.start_ns)
    }

    /// Files of other requests beside it, by device and inode: whose names an explanation wants.
    pub fn neighbours(&self) -> Vec<(u32, u64)> {
        let mut files: Vec<(u32, u64)> = self
            .queues
            .iter()
            .flat_map(|queue| &queue.recent)
            .chain(self.waits.iter().chain(&self.journal_waits).filter_map(|wait| wait.request.as_ref()))
            .filter(|request| request.inode != 0 && request.inode_dev >> 20 != 0)
            .map(|request| (request.inode_dev, request.inode))
            .collect();
        files.sort_unstable();
        files.dedup();
        files
    }

    /// Threads whose own requests or wake-ups stand beside it: whose processes an explanation wants.
    pub fn strangers(&self) -> Vec<u32> {
        let requests = self.queues.iter().flat_map(|queue| &queue.recent);
        let direct =
            requests.filter(|request| request.inode == 0 && matches!(request.submitter, Source::Other | Source::Sync));
        let wakers = self.journal_waits.iter().filter(|wait| wait.request.is_none() && wait.function == 0);
        let tids = direct.map(|request| request.tid).chain(wakers.map(|wait| wait.waker_tid));
        let mut tids: Vec<u32> = tids.filter(|tid| *tid != 0 && *tid != self.event.tid).collect();
        tids.sort_unstable();
        tids.dedup();
        tids.truncate(limits::NAMES_TASKS);
        tids
    }

    /// Negative errno, or 0; nothing where it is not known.
    pub fn result(&self) -> Option<i32> {
        let known = self.event.end == EndSeen::Exactly || self.event.result_known;
        known.then_some(self.event.result)
    }
    /// Negative errno with which it failed.
    pub fn error(&self) -> Option<i32> {
        self.result().filter(|result| *result < 0)
    }
}

/// Appends, and drops the oldest beyond a bound.
fn keep<T>(queue: &mut VecDeque<T>, item: T, limit: usize) {
    if queue.len() >= limit {
        queue.pop_front();
    }
    queue.push_back(item);
}
