//! Requests of others on a sync's disks while it waited: whose they were, and how much of the wait they overlap.

use std::collections::{BTreeMap, HashSet};

use super::case::Case;
use super::cause::Culprit;
use super::intervals::{common, length, merged};
use crate::event::{Queue, Request, Source, Writer};

/// What identifies a neighbour: the file, or the submitting task where no file is known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    File(u32, u64),
    Task(u32, String),
    /// Pages of several files, or of one that could not be named.
    Flusher,
}

/// All requests of one neighbour.
#[derive(Clone, Debug, Default)]
pub struct Share {
    pub requests: u64,
    pub bytes: u64,
    pub flushed_by_kernel: bool,
}

/// Foreign requests that ran while the sync waited for a request of its own.
pub struct Neighbours {
    /// The heaviest neighbour.
    pub culprit: Option<Culprit>,
    pub foreign_requests: u64,
    pub foreign_bytes: u64,
    pub own_bytes: u64,
    /// Part of the sync's request waits during which a foreign request was in flight.
    pub covered_ns: u64,
    /// All of the sync's long request waits.
    pub waited_ns: u64,
    /// At the end of some wait the disk held requests that were not the sync's own, and that none of its pictures shows.
    pub holds_others: bool,
    /// Most requests that were in flight when one of the sync's own was submitted.
    pub depth: u32,
}

/// Examines one disk, by `major << 20 | minor`.
pub fn on_disk(case: &Case, disk: u32) -> Neighbours {
    let windows = windows(case);
    let mut seen = HashSet::new();
    let mut shares: BTreeMap<Key, Share> = BTreeMap::new();
    let mut busy: Vec<(u64, u64)> = Vec::new();
    let mut own: Vec<&Request> = Vec::new();
    for request in case.sync.queues.iter().filter(|queue| queue.disk == disk).flat_map(|queue| &queue.recent) {
        let overlaps = windows.iter().any(|(from, until)| request.allocated_ns < *until && *from < request.done_ns);
        if !overlaps || !seen.insert((request.allocated_ns, request.tid, request.done_ns, request.bytes)) {
            continue;
        }
        match foreign(case, request) {
            Some(key) => {
                let share = shares.entry(key).or_default();
                share.requests += 1;
                share.bytes += u64::from(request.bytes);
                share.flushed_by_kernel |= request.submitter == Source::Flusher;
                busy.push((request.allocated_ns, request.done_ns));
            }
            None => own.push(request),
        }
    }
    let heaviest = shares.iter().max_by_key(|(_, share)| (share.bytes, share.requests));
    Neighbours {
        culprit: heaviest.map(|(key, share)| culprit(case, key, share)),
        foreign_requests: shares.values().map(|share| share.requests).sum(),
        foreign_bytes: shares.values().map(|share| share.bytes).sum(),
        own_bytes: own.iter().map(|request| u64::from(request.bytes)).sum(),
        holds_others: case.sync.queues.iter().any(|queue| queue.disk == disk && holds_others(queue, &own)),
        covered_ns: length(&common(&windows, &merged(busy))),
        waited_ns: length(&windows),
        depth: case
            .waits()
            .filter_map(|wait| wait.request.as_ref())
            .map(|request| request.in_flight)
            .max()
            .unwrap_or(0),
    }
}

impl Neighbours {
    /// Whether others carried most of the traffic for most of the wait.
    pub fn crowd(&self) -> bool {
        self.foreign_requests >= 2
            && self.foreign_bytes >= self.own_bytes.saturating_mul(2).max(1)
            && self.covered_ns.saturating_mul(2) >= self.waited_ns
            && self.waited_ns > 0
    }

    /// Whether others had any traffic there that mattered, so that a slow request is no proof of a slow device.
    pub fn present(&self) -> bool {
        self.holds_others || self.foreign_requests > 0 && self.covered_ns.saturating_mul(4) >= self.waited_ns
    }

    pub fn sentence(&self, disk: &str) -> String {
        format!(
            "{} requests of others ({} KiB, against {} KiB of its own) ran on {disk} during {:.0} % of its waits",
            self.foreign_requests,
            self.foreign_bytes >> 10,
            self.own_bytes >> 10,
            100.0 * self.covered_ns as f64 / self.waited_ns.max(1) as f64
        )
    }
}

/// Whether a disk holds more at the time of a picture than what later turned out to be the sync's own.
fn holds_others(queue: &Queue, own: &[&Request]) -> bool {
    let held = own.iter().filter(|request| request.allocated_ns < queue.time_ns && queue.time_ns < request.done_ns);
    u64::from(queue.in_flight) > held.count() as u64
}

/// Times at which the sync or its journal thread waited for a request, in order and merged.
fn windows(case: &Case) -> Vec<(u64, u64)> {
    let waits = case.waits().filter(|wait| wait.request.is_some()).map(|wait| (wait.start_ns, wait.end_ns));
    let (start, end) = (case.sync.event.start_ns, case.sync.event.end_ns);
    merged(waits.map(|(from, until)| (from.max(start), until.min(end))).filter(|(from, until)| from < until).collect())
}

/// Whose request it is, if it is surely not the sync's own.
///
/// A kernel worker's request without a file may carry the sync's own metadata down a stack: it counts as its own.
fn foreign(case: &Case, request: &Request) -> Option<Key> {
    let event = &case.sync.event;
    let is_metadata = request.inode_dev >> 20 == 0;
    if request.inode != 0 && !is_metadata {
        let own = request.inode == event.inode && request.inode_dev == event.dev;
        return (!own).then_some(Key::File(request.inode_dev, request.inode));
    }
    if request.inode == 0 && request.submitter == Source::Flusher {
        return Some(Key::Flusher);
    }
    let by_task = matches!(request.submitter, Source::Other | Source::Sync) && request.tid != event.doer();
    (by_task && !is_metadata_of(request)).then(|| Key::Task(request.tid, request.comm.clone()))
}

/// A write of the filesystem's own blocks by whoever happened to be there.
fn is_metadata_of(request: &Request) -> bool {
    request.inode != 0 && request.inode_dev >> 20 == 0
}

/// One word for the processes that have a file open for writing.
pub fn writer_class(writers: &[Writer]) -> &str {
    match writers {
        [] => "none",
        [first, rest @ ..] if rest.iter().all(|writer| writer.name == first.name) => &first.name,
        _ => "several",
    }
}

/// A thread that is known by its number and name, under its process's name if that is known.
pub fn task(case: &Case, tid: u32, thread: &str, did: &str) -> Culprit {
    match case.names.process_of(tid) {
        Some(Writer { pid, name }) if name == thread => Culprit::new(name, format!("{name} (pid {pid}){did}")),
        Some(Writer { pid, name }) => Culprit::new(name, format!("{name} (pid {pid}, thread {thread}){did}")),
        None => Culprit::new(thread, format!("{thread} (tid {tid}){did}")),
    }
}

fn culprit(case: &Case, key: &Key, share: &Share) -> Culprit {
    let amount = format!("{} requests, {} KiB", share.requests, share.bytes >> 10);
    let via = if share.flushed_by_kernel { ", written back by the flusher" } else { "" };
    match key {
        Key::Flusher => Culprit::new("flusher", format!("the flusher, for files that are not known: {amount}")),
        Key::Task(tid, comm) => task(case, *tid, comm, &format!(": {amount}")),
        Key::File(dev, inode) => {
            let known = case.names.file(*dev, *inode);
            let path = known.map_or_else(
                || format!("inode {inode} of {}", case.names.disk_of(*dev).name),
                |known| known.path.clone(),
            );
            let writers = known.map(|known| known.writers.as_slice()).unwrap_or_default();
            match writers {
                [] => Culprit::new("none", format!("a writer of {path} that is not known: {amount}{via}")),
                [only] => {
                    Culprit::new(&only.name, format!("{} (pid {}) writing {path}: {amount}{via}", only.name, only.pid))
                }
                [first, ..] => Culprit::new(
                    writer_class(writers),
                    format!("one of {} writers of {path}, such as {}: {amount}{via}", writers.len(), first.name),
                ),
            }
        }
    }
}
