//! The loop behind every command that traces: polls the probes, names what they mention, hands out explained syncs.
//!
//! It is the one place where the rooms meet. It knows no output: what is done with a sync is the caller's.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::time::Duration;

use anyhow::Context;
use fsyncscope_ebpf::settings::Counter;

use crate::attribution::{Explanation, explain};
use crate::cli::Tracing;
use crate::event::{self, Disk, Event, Role, Start, Thread};
use crate::kernel::clock::ClockOffset;
use crate::kernel::host::Roots;
use crate::limits;
use crate::names::Names;
use crate::probes::table::State;
use crate::probes::{Choice, Probes};
use crate::record::{Recorded, Recorder};
use crate::report::OpenSync;
use crate::select::Selectors;
use crate::start::Kernel;
use crate::timeline::{Sync, Timeline, WrittenBack};

mod open;
mod written;

use written::WrittenSoFar;

/// Time between two polls. The ring holds twenty times what a fast journal makes in it.
pub const POLL: Duration = Duration::from_millis(100);
/// What may leave a sync with less evidence than there was; the first counts whole syncs. A torn clock is not among it:
/// that wait is a remainder.
const LOSSES: [Counter; 7] = [
    Counter::LostSync,
    Counter::LostDetail,
    Counter::LostName,
    Counter::RequestUntracked,
    Counter::ExitUnseen,
    Counter::HelperUnwatched,
    Counter::FlushUntracked,
];
const UNWRITABLE: &str = "could not write the recording; free some space or record elsewhere";
const OPEN_EVERY_NS: u64 = 1_000_000_000;

/// What a poll hands out.
#[expect(
    clippy::large_enum_variant,
    reason = "each is handed on once, and a box would cost every fast sync an allocation"
)]
pub enum Outcome {
    /// A sync under the threshold.
    Fast(Sync),
    /// A sync that took at least the threshold.
    Slow(Box<Explanation>),
    /// A sync that has been running for longer than wanted; told again each second.
    Open(Box<OpenSync>),
    /// A thread syncs for the first time.
    Began(Thread),
    /// A thread that synced has ended.
    Ended(Thread),
}

/// Probes at work, and everything that their events need.
pub struct Tracer {
    pub probes: Probes,
    names: Names,
    timeline: Timeline,
    recorder: Option<Recorder<BufWriter<File>>>,
    selectors: Selectors,
    threshold_ns: u64,
    open_ns: u64,
    /// Syncing threads that are wanted, by thread id.
    threads: HashMap<u32, Thread>,
    counted: [u64; LOSSES.len()],
    checked_ns: u64,
    /// Runs of probes that the kernel left out, of which the losses know.
    missed_runs: u64,
    looked_ns: u64,
    oldest_open_ns: u64,
    written: WrittenSoFar,
    pub unix_offset_ns: i64,
    /// Syncs that were told, and of these the wanted ones.
    pub seen: u64,
    pub wanted: u64,
}

impl Tracer {
    /// Attaches the probes as the user wants them. From then on this process yields the CPU to whom it watches: at the
    /// same priority it was seen to hold a journal thread up for 4.5 ms.
    pub fn attach(kernel: &Kernel, options: &Tracing, roots: &Roots) -> anyhow::Result<Self> {
        yield_to_others();
        if let Some(path) = &options.record
            && (path.is_dir() || !path.parent().is_some_and(|parent| parent.as_os_str().is_empty() || parent.is_dir()))
        {
            anyhow::bail!(unwritable(path));
        }
        let selectors = Selectors::compile(&options.selectors)?;
        let probes = kernel.attach(&choice_of(options))?;
        // Only now: a start that is refused must not destroy an older recording.
        let recorder = options.record.as_deref().map(|path| {
            let file = File::create(path).with_context(|| unwritable(path))?;
            anyhow::Ok(Recorder::new(BufWriter::new(file)))
        });
        let threshold_ns = options.threshold.as_nanos() as u64;
        let mut tracer = Self {
            recorder: recorder.transpose()?,
            probes,
            names: Names::new(roots),
            timeline: Timeline::default(),
            selectors,
            threshold_ns,
            open_ns: options.open.as_nanos() as u64,
            threads: HashMap::new(),
            counted: [0; LOSSES.len()],
            checked_ns: now_ns(),
            missed_runs: 0,
            looked_ns: 0,
            oldest_open_ns: 0,
            written: WrittenSoFar::default(),
            unix_offset_ns: unix_offset_ns()?,
            seen: 0,
            wanted: 0,
        };
        let start = Start {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: kernel.host.release.clone().unwrap_or_default(),
            unix_offset_ns: tracer.unix_offset_ns,
            threshold_ns,
            architecture: std::env::consts::ARCH.to_owned(),
        };
        tracer.take(Event::Start(start))?;
        Ok(tracer)
    }

    /// Reads what the probes have told since the last poll.
    pub fn poll(&mut self, mut hand_out: impl FnMut(Outcome) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let mut events = Vec::new();
        self.probes.poll(|bytes| events.push(Event::parse(bytes)));
        // Losses are read after the ring, so that no sync of this poll ended later than the loss that it overlaps.
        let now = now_ns();
        self.probes.attach_what_waits()?;
        self.take_losses(now)?;
        for event in events {
            self.take_event(event, now, &mut hand_out)?;
        }
        if now.saturating_sub(self.looked_ns) >= OPEN_EVERY_NS {
            self.take_missed_runs(now)?;
            self.looked_ns = now;
            self.look_for_open(now, &mut hand_out)?;
        }
        Ok(())
    }

    /// Writes what is left of a recording.
    pub fn finish(&mut self) -> anyhow::Result<()> {
        self.recorder.take().map_or(Ok(()), |recorder| recorder.finish().context(UNWRITABLE))
    }

    /// An error if selectors were given and syncs were seen, but none that they want.
    pub fn check_wanted(&self) -> anyhow::Result<()> {
        if self.selectors.is_empty() || self.wanted > 0 || self.seen == 0 {
            return Ok(());
        }
        anyhow::bail!(
            "none of the {} syncs that were seen fits the selectors; correct --file or --operation, or watch without them",
            self.seen
        )
    }

    /// What was written back from the page cache to the watched disks since the last call, most bytes first. Looks for
    /// the names of the files that matter, which costs a look through all open files.
    pub fn written_back(&mut self, now: u64) -> anyhow::Result<Vec<WrittenBack>> {
        let news = self.written.take(&mut self.probes, now);
        let large = news.iter().filter(|written| written.bytes >= limits::NAMES_WRITTEN_BYTES);
        let files: Vec<(u32, u64)> =
            large.filter_map(event::WrittenBack::file).take(limits::NAMES_WRITTEN_FILES).collect();
        for event in self.names.files_seldom(&files, now) {
            self.take(event)?;
        }
        for written in &news {
            self.take(Event::WrittenBack(written.clone()))?;
        }
        Ok(news.into_iter().map(|written| self.timeline.written_back(written)).collect())
    }

    /// A sentence for each thing that is missing here.
    pub fn lacking(&self, kernel: &Kernel) -> impl Iterator<Item = String> {
        let probes = self.probes.attached().iter().filter_map(|attached| match &attached.state {
            State::Missing(why) => {
                Some(format!("{} is missing ({why}); without it, {}", attached.probe.name, attached.probe.lost))
            }
            _ => None,
        });
        kernel.lacking().map(|row| row.to_string()).chain(probes)
    }

    /// From now on, syncs under this duration are not explained.
    pub fn explain_from(&mut self, threshold_ns: u64) {
        self.threshold_ns = threshold_ns;
    }

    /// Age of the oldest open sync at the last look, 0 if there was none.
    pub fn oldest_open_ns(&self) -> u64 {
        self.oldest_open_ns
    }

    /// What is known of a disk, by `major << 20 | minor`.
    pub fn disk(&self, dev: u32) -> Disk {
        self.timeline.disk(dev)
    }

    fn take_event(
        &mut self,
        event: Event,
        now: u64,
        hand_out: &mut impl FnMut(Outcome) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        match &event {
            Event::Thread(thread) if thread.role == Role::Sync => self.meet(thread, hand_out)?,
            Event::ThreadExit { tid, .. } => {
                if let Some(thread) = self.threads.remove(tid) {
                    hand_out(Outcome::Ended(thread))?;
                }
            }
            _ => {}
        }
        let named = self.names.about(&event, now);
        let sync = self.take(event)?;
        for event in named {
            if let Event::Disk(disk) = &event {
                self.watch_below(disk.dev, &disk.lower)?;
            }
            self.take(event)?;
        }
        sync.map_or(Ok(()), |sync| self.hand_out_sync(sync, now, hand_out))
    }

    /// A thread syncs for the first time, or for the first time under another name. If it is not wanted, it is left out
    /// from then on.
    fn meet(
        &mut self,
        thread: &Thread,
        hand_out: &mut impl FnMut(Outcome) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let process = self.names.process_named(thread.pid, &thread.process);
        if let Some(former) = self.threads.remove(&thread.tid) {
            hand_out(Outcome::Ended(former))?;
        }
        if !self.selectors.wants_thread(&thread.thread, &process) {
            return Ok(self.probes.ignore(thread.slot, thread.generation)?);
        }
        self.threads.insert(thread.tid, thread.clone());
        hand_out(Outcome::Began(thread.clone()))
    }

    fn watch_below(&mut self, upper: u32, lower: &[u32]) -> anyhow::Result<()> {
        for below in lower {
            self.probes.watch_lower(upper, *below)?;
        }
        Ok(())
    }

    fn hand_out_sync(
        &mut self,
        sync: Sync,
        now: u64,
        hand_out: &mut impl FnMut(Outcome) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let known = self.threads.contains_key(&sync.event.doer());
        let wanted = known || self.selectors.wants_thread(&sync.event.thread, &self.names.process(sync.event.pid));
        self.seen += 1;
        if !wanted || !self.selectors.wants_sync(&sync) {
            return Ok(());
        }
        self.wanted += 1;
        if sync.duration_ns() < self.threshold_ns {
            return hand_out(Outcome::Fast(sync));
        }
        let named = self.names.files(&sync.neighbours(), now).into_iter();
        for event in named.chain(self.names.tasks(&sync.strangers(), now)) {
            self.take(event)?;
        }
        hand_out(Outcome::Slow(Box::new(explain(sync, &self.timeline))))
    }

    /// Records an event and puts it into the timeline.
    fn take(&mut self, event: Event) -> anyhow::Result<Option<Sync>> {
        if let Some(recorder) = &mut self.recorder {
            let written = recorder.write(&event);
            let written = written.context(UNWRITABLE)?;
            if written == Recorded::NoRoom {
                self.recorder = None;
                let bytes = limits::RECORD_BYTES_MAX >> 20;
                writeln!(std::io::stderr(), "fsyncscope: the recording has {bytes} MiB and ends here")?;
            }
        }
        Ok(self.timeline.add(event))
    }

    fn take_losses(&mut self, now: u64) -> anyhow::Result<()> {
        let counters = LOSSES.map(|counter| self.probes.counter(counter));
        let new: [u64; LOSSES.len()] = std::array::from_fn(|kind| counters[kind].saturating_sub(self.counted[kind]));
        let (syncs, details) = (new[0], new[1..].iter().sum());
        let lost = counters != self.counted;
        self.counted = counters;
        let from_ns = std::mem::replace(&mut self.checked_ns, now);
        if lost {
            self.take(Event::Lost { from_ns, until_ns: now, syncs, details })?;
        }
        Ok(())
    }

    /// A run that was left out may be a transition of any watched task.
    fn take_missed_runs(&mut self, now: u64) -> anyhow::Result<()> {
        let missed = self.probes.missed_runs();
        let new = missed.saturating_sub(std::mem::replace(&mut self.missed_runs, missed));
        if new > 0 {
            self.take(Event::Lost { from_ns: self.looked_ns, until_ns: now, syncs: 0, details: new })?;
        }
        Ok(())
    }

    /// Runs of probes that the kernel left out since they were attached.
    pub fn missed_runs(&self) -> u64 {
        self.missed_runs
    }
}

fn unwritable(path: &std::path::Path) -> String {
    format!(
        "could not create the recording {}; name a file in a directory that exists and may be written",
        path.display()
    )
}

fn choice_of(options: &Tracing) -> Choice {
    let Tracing { threshold, ring_bytes, raw, syscall_tracepoints, .. } = options;
    let calls = syscall_tracepoints.unwrap_or_default();
    Choice { ring_bytes: *ring_bytes, raw: *raw, calls, ..Choice::for_threshold(threshold.as_nanos() as u64) }
}

fn yield_to_others() {
    const NICE: libc::c_int = 10;
    // SAFETY: a plain system call; lowering the own priority needs no privilege, and failing changes nothing.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
}

fn unix_offset_ns() -> anyhow::Result<i64> {
    let offset = ClockOffset::sample().context("could not compare the clocks")?;
    Ok((offset.unix_ns(0)) as i64)
}

/// CLOCK_MONOTONIC, the clock of the probes.
pub fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec; CLOCK_MONOTONIC is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
