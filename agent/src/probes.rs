//! Loads, attaches and reads the probes. The only room that names aya.
//!
//! Everything is held by file descriptors of this process: when it ends, however it ends, the kernel detaches all.

use std::os::fd::OwnedFd;

use aya::maps::{Array, Map, MapData, RingBuf, Stack};
use aya::{Ebpf, EbpfLoader};
use fsyncscope_ebpf::layout::{ABSENT, Functions, Layout};
use fsyncscope_ebpf::limits::{DISKS, DISKS_LOWER, REASONS, RING, SLOTS};
use fsyncscope_ebpf::settings::{Counter, Settings};
use fsyncscope_ebpf::slot::{Disk, Filesystem, Slot, disk_gate};

use crate::kernel::btf::Btf;

mod attach;
mod counts;
pub mod shown;
pub mod table;

use table::{Attached, FLOORS, State};

/// The object file, aligned as an ELF reader wants it.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);
static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(env!("FSYNCSCOPE_PROBES")));

/// What the kernel offers to the probes, found by the kernel room.
pub struct Facts<'a> {
    pub btf: &'a Btf,
    /// Values of [`Layout::FIELDS`], in their order.
    pub layout: &'a [u32],
    /// Values of [`Functions::SYMBOLS`], in their order.
    pub functions: &'a [u64],
}

/// What the user chose.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// Waits shorter than this are not told one by one, in ns.
    pub detail_ns: u64,
    /// Waits at least this long are told with a stack, in ns.
    pub stack_ns: u64,
    /// Bytes of the ring, a power of two of pages.
    pub ring_bytes: u32,
    /// Load the raw programs even where typed ones would do; to test them.
    pub raw: bool,
    /// System calls that are traced by their own tracepoints.
    pub calls: table::Calls,
}

impl Choice {
    /// Details for syncs slower than a threshold: waits of an eighth of it, stacks for those that matter to it.
    pub fn for_threshold(threshold_ns: u64) -> Self {
        Self {
            detail_ns: (threshold_ns / 8).clamp(50_000, 10_000_000),
            stack_ns: (threshold_ns / 4).max(1_000_000),
            ring_bytes: RING,
            raw: false,
            calls: table::Calls::default(),
        }
    }
}

/// Why the probes cannot run; the sentence says what to do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ProbesError(String);

/// Runs and nanoseconds of one program since it was loaded, where the kernel counts them.
#[derive(Clone, Debug)]
pub struct Usage {
    pub name: String,
    pub runs: u64,
    pub ns: u64,
    pub instructions: u32,
}

/// The loaded and attached probes.
pub struct Probes {
    ebpf: Ebpf,
    ring: RingBuf<MapData>,
    slots: Array<MapData, [u64; Slot::WORDS]>,
    ignored: Array<MapData, u32>,
    counters: Array<MapData, u64>,
    disks: Array<MapData, [u64; size_of::<Disk>() / 8]>,
    disk_gate: Array<MapData, u32>,
    filesystems: Array<MapData, [u64; size_of::<Filesystem>() / 8]>,
    lower_disk: Array<MapData, u32>,
    below: Array<MapData, u64>,
    latencies: Array<MapData, [u64; counts::LATENCIES_WORDS]>,
    writeback: Array<MapData, [u64; REASONS]>,
    written_back: counts::WrittenBack,
    /// Held, since a program that is loaded later names them by their descriptors.
    _free: [Stack<MapData, u32>; 2],
    attached: Vec<Attached>,
    raw: bool,
    lower_disks: u32,
    refused_disks: u64,
}

impl Probes {
    /// Loads the object for this kernel and attaches every probe that it has.
    pub fn attach(facts: &Facts, choice: &Choice) -> Result<Self, ProbesError> {
        let mut ebpf = load(facts, choice)?;
        let mut free: Stack<_, u32> = map(&mut ebpf, "FREE")?;
        for slot in (1..SLOTS).rev() {
            free.push(slot, 0).map_err(|e| failed("filling the table of free slots", &e))?;
        }
        let mut free_disks: Stack<_, u32> = map(&mut ebpf, "FREE_DISK")?;
        for disk in (0..DISKS_LOWER).rev() {
            free_disks.push(disk, 0).map_err(|e| failed("filling the table of free disks", &e))?;
        }
        let mut attached = attach::all(&mut ebpf, facts, choice)?;
        attached.extend(attach::calls(&mut ebpf, choice.calls)?);
        Ok(Self {
            ring: RingBuf::try_from(take(&mut ebpf, "EVENTS")?).map_err(|e| failed("mapping the ring buffer", &e))?,
            slots: map(&mut ebpf, "SLOT")?,
            ignored: map(&mut ebpf, "IGNORED")?,
            counters: map(&mut ebpf, "COUNTER")?,
            disks: map(&mut ebpf, "DISK")?,
            disk_gate: map(&mut ebpf, "DISK_GATE")?,
            filesystems: map(&mut ebpf, "FILESYSTEM")?,
            lower_disk: map(&mut ebpf, "LOWER_DISK")?,
            below: map(&mut ebpf, "BELOW")?,
            latencies: map(&mut ebpf, "LATENCIES")?,
            writeback: map(&mut ebpf, "WRITEBACK")?,
            written_back: map(&mut ebpf, "WRITTEN_BACK")?,
            ebpf,
            _free: [free, free_disks],
            attached,
            raw: choice.raw,
            lower_disks: 0,
            refused_disks: 0,
        })
    }

    /// Attaches what waits for a process to use Linux AIO, if one does.
    pub fn attach_what_waits(&mut self) -> Result<(), ProbesError> {
        let waits = |attached: &Attached| attached.state == State::Waiting;
        if !self.attached.iter().any(waits) || !aio_in_use() {
            return Ok(());
        }
        let kernel = kernel_types()?;
        for attached in self.attached.iter_mut().filter(|attached| waits(attached)) {
            attached.state = attach::one(&mut self.ebpf, attached.probe, &kernel, self.raw);
        }
        Ok(())
    }

    /// Attaches tracepoints of system calls.
    pub fn attach_calls(&mut self, calls: table::Calls) -> Result<(), ProbesError> {
        let attached = attach::calls(&mut self.ebpf, calls)?;
        self.attached.extend(attached);
        Ok(())
    }

    /// What became of each probe.
    pub fn attached(&self) -> &[Attached] {
        &self.attached
    }

    /// Attaches the programs that do nothing, each of the kind that its probe is of, to be counted beside the others.
    pub fn attach_floors(&mut self) -> Result<(), ProbesError> {
        let kernel = kernel_types()?;
        for floor in FLOORS {
            let of_event = |attached: &&Attached| attached.probe.name == floor.event;
            let raw = self.attached.iter().find(of_event).is_none_or(|attached| attached.state == State::Raw);
            let attached = if raw {
                attach::raw(&mut self.ebpf, floor.raw, floor.event)
            } else {
                attach::typed(&mut self.ebpf, floor.typed, floor.event, &kernel)
            };
            attached.map_err(|why| ProbesError(format!("attaching an empty program to {}: {why}", floor.event)))?;
        }
        Ok(())
    }

    /// Hands every event that waits in the ring to `take`, oldest first.
    pub fn poll(&mut self, mut take: impl FnMut(&[u8])) {
        while let Some(event) = self.ring.next() {
            take(&event);
        }
    }

    /// What did not fit so far.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters.get(&(counter as u32), 0).unwrap_or(0)
    }

    /// A copy of a slot, to show what is open; `None` if it is free.
    pub fn slot(&self, index: u32) -> Option<Slot> {
        let words = self.slots.get(&index, 0).ok()?;
        // SAFETY: a slot is plain numbers of exactly this size, and any bits are a value of it.
        let slot = unsafe { words.as_ptr().cast::<Slot>().read() };
        (slot.tid != 0).then_some(slot)
    }

    /// The journal thread of a syncing thread's filesystem, if one was seen.
    pub fn journal_of(&self, slot: &Slot) -> Option<u32> {
        let words = self.filesystems.get(&slot.filesystem, 0).ok()?;
        // SAFETY: a filesystem is plain numbers of exactly this size, and any bits are a value of it.
        let filesystem = unsafe { words.as_ptr().cast::<Filesystem>().read() };
        let journal =
            (filesystem.dev == slot.dev && filesystem.journal != 0).then(|| self.slot(filesystem.journal))??;
        Some(journal.tid)
    }

    /// Leaves a thread out from its next sync on, as long as it has the name of this generation.
    pub fn ignore(&mut self, slot: u32, generation: u32) -> Result<(), ProbesError> {
        self.ignored.set(slot, generation, 0).map_err(|e| failed("leaving a thread out", &e))
    }

    /// Watches the disk below a watched one, both by `major << 20 | minor`. False if there is no room.
    pub fn watch_lower(&mut self, upper: u32, dev: u32) -> Result<bool, ProbesError> {
        let Some(above) = self.place_of(upper) else { return Ok(false) };
        let place = match self.place_of(dev) {
            Some(place) => place,
            None if DISKS_LOWER + self.lower_disks < DISKS && self.gate(dev)? == 0 => self.add_disk(dev)?,
            None => {
                self.refused_disks += 1;
                return Ok(false);
            }
        };
        self.lower_disk.set(above, place + 1, 0).map_err(|e| failed("watching a lower disk", &e))?;
        self.stack(above, place)?;
        Ok(true)
    }

    /// Notes that a disk and all below it lie below another and all above that.
    fn stack(&mut self, above: u32, place: u32) -> Result<(), ProbesError> {
        let below = |place| self.below.get(&place, 0).map_err(|e| failed("reading the stack of disks", &e));
        let all = (0..DISKS).map(below).collect::<Result<Vec<u64>, _>>()?;
        let added = 1 << place | all[place as usize];
        for (upper, bits) in (0..).zip(all).filter(|(upper, bits)| *upper == above || bits >> above & 1 != 0) {
            self.below.set(upper, bits | added, 0).map_err(|e| failed("stacking disks", &e))?;
        }
        Ok(())
    }

    /// Disks that found no place, upper and lower: their requests are not linked.
    pub fn refused_disks(&self) -> u64 {
        self.counter(Counter::DiskUntracked) + self.refused_disks
    }

    fn place_of(&self, dev: u32) -> Option<u32> {
        self.disks().into_iter().find(|(_, known)| *known == dev).map(|(place, _)| place)
    }

    fn gate(&self, dev: u32) -> Result<u32, ProbesError> {
        self.disk_gate.get(&disk_gate(dev), 0).map_err(|e| failed("reading the table of disks", &e))
    }

    fn add_disk(&mut self, dev: u32) -> Result<u32, ProbesError> {
        let place = DISKS_LOWER + self.lower_disks;
        let mut words = [0u64; size_of::<Disk>() / 8];
        words[0] = u64::from(dev);
        self.disks.set(place, words, 0).map_err(|e| failed("watching a lower disk", &e))?;
        self.disk_gate.set(disk_gate(dev), place + 1, 0).map_err(|e| failed("watching a lower disk", &e))?;
        self.lower_disks += 1;
        Ok(place)
    }

    /// Index and `major << 20 | minor` of each watched disk.
    pub fn disks(&self) -> Vec<(u32, u32)> {
        let dev = |index: &u32| Some((*index, (self.disks.get(index, 0).ok()?[0] & 0xffff_ffff) as u32));
        (0..DISKS).filter_map(|index| dev(&index)).filter(|(_, dev)| *dev != 0).collect()
    }

    /// Runs and time of each attached program; all zero unless [`count_usage`] is held.
    pub fn usage(&self) -> Vec<Usage> {
        let info = |(name, program): (&str, &aya::programs::Program)| {
            let info = program.info().ok()?;
            Some(Usage {
                name: name.to_owned(),
                runs: info.run_count(),
                ns: info.run_time().as_nanos() as u64,
                instructions: info.verified_instruction_count().unwrap_or(0),
            })
        };
        self.ebpf.programs().filter_map(info).collect()
    }
}

/// Has the kernel count runs and time of programs until the descriptor is dropped.
pub fn count_usage() -> Result<OwnedFd, ProbesError> {
    aya::sys::enable_stats(aya::sys::Stats::RunTime)
        .map_err(|e| failed("having the kernel count the cost of programs", &e))
}

fn load(facts: &Facts, choice: &Choice) -> Result<Ebpf, ProbesError> {
    let arguments = |name: &str| facts.btf.tracepoint_arguments(name);
    let settings = Settings {
        detail_ns: choice.detail_ns,
        stack_ns: choice.stack_ns,
        switch_has_state: arguments("sched_switch").is_some_and(|arguments| arguments.len() >= 4) as u32,
        issue_has_queue: arguments("block_rq_issue").is_some_and(|arguments| arguments.len() >= 2) as u32,
        async_has_request: arguments("io_uring_queue_async_work").is_some_and(|arguments| arguments.len() == 2) as u32,
        begins_with_bio: arguments("block_io_start").is_none() as u32,
        getrq_has_queue: arguments("block_getrq").is_some_and(|arguments| arguments.len() >= 2) as u32,
        has_return: arguments("rseq_update").is_some() as u32,
        has_registers: facts.btf.enumerator("bpf_func_id", "BPF_FUNC_task_pt_regs").is_some() as u32,
        unused: 0,
    };
    let words = words(&settings);
    let mut layout = facts.layout.to_vec();
    layout.resize(Layout::FIELDS.len(), ABSENT);
    let mut functions = facts.functions.to_vec();
    functions.resize(Functions::SYMBOLS.len(), 0);
    EbpfLoader::new()
        .override_global("LAYOUT", &layout[..], true)
        .override_global("FUNCTIONS", &functions[..], true)
        .override_global("SETTINGS", &words[..], true)
        .map_max_entries("EVENTS", choice.ring_bytes)
        .load(&OBJECT.0)
        .map_err(|e| failed("loading the probes", &e))
}

fn kernel_types() -> Result<aya::Btf, ProbesError> {
    aya::Btf::from_sys_fs().map_err(|e| failed("reading the kernel's type information", &e))
}

fn words(settings: &Settings) -> Vec<u64> {
    let words = size_of::<Settings>() / 8;
    // SAFETY: settings are plain numbers without padding, a whole number of words.
    unsafe { std::slice::from_raw_parts((&raw const *settings).cast::<u64>(), words) }.to_vec()
}

/// Whether any process has set up a queue of Linux AIO. Where the kernel does not say, none has.
fn aio_in_use() -> bool {
    std::fs::read_to_string("/proc/sys/fs/aio-nr").is_ok_and(|count| count.trim() != "0")
}

fn take(ebpf: &mut Ebpf, name: &str) -> Result<Map, ProbesError> {
    ebpf.take_map(name)
        .ok_or_else(|| ProbesError(format!("the object has no map {name}; build it from the same source as the agent")))
}

fn map<M>(ebpf: &mut Ebpf, name: &str) -> Result<M, ProbesError>
where
    M: TryFrom<Map, Error = aya::maps::MapError>,
{
    M::try_from(take(ebpf, name)?).map_err(|e| failed("opening a map of the probes", &e))
}

fn failed(what: &str, error: &(dyn std::error::Error + 'static)) -> ProbesError {
    ProbesError(format!("{what} failed: {}", reason(error)))
}

/// An error with its causes in one line; of a verifier's log, the end, where it says what it refused.
fn reason(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let more = next.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = next.source();
    }
    const STATISTICS: [&str; 3] = ["verification time", "stack depth", "processed"];
    let told = |line: &&str| !line.is_empty() && !STATISTICS.iter().any(|statistic| line.starts_with(statistic));
    let lines: Vec<&str> = text.lines().map(str::trim).filter(told).collect();
    match lines.len() {
        0..=3 => lines.join(" "),
        count => format!("{} ... {}", lines[0], lines[count - 3..].join(" ")),
    }
}
