//! What requests of a disk usually take, learned from those that were seen beside earlier syncs.

use std::collections::{HashMap, VecDeque};

use crate::event::{Queue, Request, Wait};
use crate::limits;

/// Kind of time that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Write,
    Flush,
}

/// Median device time of one kind on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Baseline {
    pub kind: Kind,
    pub median_ns: u64,
    /// Requests that it stands on.
    pub count: usize,
}

/// Recent device times by disk and kind.
#[derive(Debug, Default)]
pub struct Baselines {
    seen: HashMap<(u32, Kind), VecDeque<u64>>,
    /// Newest completion learned from a queue picture, by disk: pictures overlap.
    newest: HashMap<u32, u64>,
}

impl Baselines {
    /// Learns from the flushes of a wait.
    pub fn learn(&mut self, wait: &Wait) {
        for [issued, done] in wait.flushes {
            if issued != 0 && done > issued {
                self.add(wait.disk, Kind::Flush, done - issued);
            }
        }
    }

    /// Learns from the writes of a queue picture that no earlier one had.
    pub fn learn_queue(&mut self, queue: &Queue) {
        let newest = self.newest.get(&queue.disk).copied().unwrap_or(0);
        let is_new =
            |request: &&Request| request.done_ns > newest && request.issued_ns != 0 && request.command & 1 != 0;
        let times: Vec<(u64, u64)> = queue
            .recent
            .iter()
            .filter(is_new)
            .map(|request| (request.done_ns, request.done_ns.saturating_sub(request.issued_ns)))
            .collect();
        for (done, time) in times {
            self.add(queue.disk, Kind::Write, time);
            let newest = self.newest.entry(queue.disk).or_default();
            *newest = done.max(*newest);
        }
    }

    fn add(&mut self, disk: u32, kind: Kind, ns: u64) {
        if self.seen.len() >= limits::TIMELINE_DISKS && !self.seen.contains_key(&(disk, kind)) {
            return;
        }
        let seen = self.seen.entry((disk, kind)).or_default();
        if seen.len() >= limits::BASELINE_REQUESTS {
            seen.pop_front();
        }
        seen.push_back(ns);
    }

    /// Medians of a disk.
    pub fn of(&self, disk: u32) -> Vec<Baseline> {
        let median = |kind: Kind| {
            let mut times: Vec<u64> = self.seen.get(&(disk, kind))?.iter().copied().collect();
            times.sort_unstable();
            Some(Baseline { kind, median_ns: *times.get(times.len() / 2)?, count: times.len() })
        };
        [Kind::Write, Kind::Flush].into_iter().filter_map(median).collect()
    }
}
