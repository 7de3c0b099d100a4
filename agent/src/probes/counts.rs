//! What the probes add up by themselves: latencies of requests, and what was written back from the page cache.

use std::os::fd::{AsFd, AsRawFd};

use aya::maps::{HashMap, MapData};
use aya::programs::Program;
use fsyncscope_ebpf::limits::REASONS;
use fsyncscope_ebpf::slot::{Kind, Latencies, Phase, Submitter, Written, WrittenKey, latencies_place};

use super::Probes;

pub const LATENCIES_WORDS: usize = size_of::<Latencies>() / 8;
const KEY_WORDS: usize = size_of::<WrittenKey>() / 8;
const WRITTEN_WORDS: usize = size_of::<Written>() / 8;

pub type WrittenBack = HashMap<MapData, [u64; KEY_WORDS], [u64; WRITTEN_WORDS]>;

impl Probes {
    /// Latencies of a disk's requests since load; the disk by its index.
    pub fn latencies(&self, disk: u32, kind: Kind, submitter: Submitter, phase: Phase) -> Latencies {
        let place = latencies_place(disk, kind, submitter as u32, phase);
        let words = self.latencies.get(&place, 0).unwrap_or([0; LATENCIES_WORDS]);
        // SAFETY: latencies are plain numbers of exactly this size, and any bits are a value of them.
        unsafe { words.as_ptr().cast::<Latencies>().read() }
    }

    /// Requests of a disk that have begun and are not done.
    pub fn in_flight(&self, disk: u32) -> u32 {
        self.disks.get(&disk, 0).map_or(0, |words| (words[0] >> 32) as u32)
    }

    /// Bytes that the flusher wrote to a disk since load, by reason.
    pub fn writeback_bytes(&self, disk: u32) -> [u64; REASONS] {
        self.writeback.get(&disk, 0).unwrap_or([0; REASONS])
    }

    /// What was written back of each file since its entry was made, in no order.
    pub fn written_back(&self) -> Vec<(WrittenKey, Written)> {
        let entries = self.written_back.iter().filter_map(Result::ok);
        let typed = |(key, written): ([u64; KEY_WORDS], [u64; WRITTEN_WORDS])| {
            // SAFETY: both are plain numbers of exactly these sizes, and any bits are a value of them.
            unsafe { (key.as_ptr().cast::<WrittenKey>().read(), written.as_ptr().cast::<Written>().read()) }
        };
        entries.map(typed).collect()
    }

    /// Events that the kernel kept from a program because it was running on that CPU already.
    pub fn missed_runs(&self) -> u64 {
        let of_program = |program: &Program| {
            let descriptor = program.fd().ok()?.as_fd().as_raw_fd();
            let facts = std::fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}")).ok()?;
            let line = facts.lines().find_map(|line| line.strip_prefix("recursion_misses:"))?;
            line.trim().parse::<u64>().ok()
        };
        self.ebpf.programs().filter_map(|(_, program)| of_program(program)).sum()
    }

    /// Takes away the entry of a file that is idle, so that others have room.
    pub fn forget_written_back(&mut self, key: &WrittenKey) {
        // SAFETY: a key is plain numbers of exactly this size without padding.
        let words = unsafe { (&raw const *key).cast::<[u64; KEY_WORDS]>().read() };
        // If it is gone already, that is as good.
        let _ = self.written_back.remove(&words);
    }
}
