//! What the agent measured, as Prometheus metrics. docs/metrics.md is the catalogue; a test compares the two.
//!
//! Only this room names the Prometheus client. Its inputs are plain data, and it knows no clock: `tick` brings the time.
//! Every metric has a bound on its label sets; what finds no room is counted in `fsyncscope_series_dropped_total`.

mod encode;
mod family;
mod file_class;
mod labels;
mod percentiles;
mod table;
mod values;

use std::time::Duration;

use fsyncscope_ebpf::slot::Phase;
use prometheus_client::metrics::histogram::{Histogram, NativeHistogramConfig};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry, Unit};

use crate::event::PageCache;
use crate::limits;

pub use encode::Format;
pub use file_class::file_class;
pub use labels::{BlockLabels, SyncLabels, WrittenLabels};
pub use values::LOG2_BUCKETS;

use family::{Clock, Dropped, Family, Labels};
use labels::{
    ErrorLabels, LossLabels, NoLabels, PartLabels, ProbeLabels, SpikeLabels, ThreadLabels, WritebackLabels, clean,
};
use percentiles::{Percentiles, Recorded};
use table::Row;
use values::{Count, Level, Log2Histogram, Seconds, SecondsRead, seconds};

/// Bounds of the classic buckets of syncs, in seconds: from a fast NVMe flush to a disk that hangs.
const SYNC_BOUNDS: [f64; 17] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// Growth of the native buckets at most; the schema picks 1.09, so a quantile is off by less than five per cent.
const NATIVE_GROWTH: f64 = 1.1;

/// Series of one classic histogram beside its finite buckets: +Inf, sum and count.
const HISTOGRAM_EXTRA: usize = 3;

/// One number, one series: open, unwatched, CPU, resident, build, and the four of the page cache.
const SINGLE_SERIES: usize = 9;

/// The bound of the whole follows from the bounds of the metrics.
const _: () = assert!(
    limits::SYNC_LABEL_SETS_MAX * (SYNC_BOUNDS.len() + HISTOGRAM_EXTRA)
        + limits::PERCENTILE_LABEL_SETS_MAX * 5
        + limits::PART_LABEL_SETS_MAX
        + limits::SPIKE_LABEL_SETS_MAX
        + limits::ERROR_LABEL_SETS_MAX
        + limits::BLOCK_LABEL_SETS_MAX * 2 * (LOG2_BUCKETS - 1 + HISTOGRAM_EXTRA)
        + limits::WRITEBACK_LABEL_SETS_MAX
        + limits::WRITTEN_LABEL_SETS_MAX
        + limits::PROBE_LABEL_SETS_MAX
        + limits::FIXED_LABEL_SETS_MAX * 2
        + SINGLE_SERIES
        <= limits::SERIES_MAX
);

/// Whether a probe is at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeState {
    Attached,
    Missing,
}

/// All metrics of the agent. Shared by reference: every method takes `&self`, and none blocks for longer than one
/// exposition takes.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    clock: Clock,
    dropped: Dropped,
    sync_duration: Family<SyncLabels, Histogram>,
    percentiles: Percentiles,
    parts: Family<PartLabels, Seconds>,
    spikes: Family<SpikeLabels, Count>,
    errors: Family<ErrorLabels, Count>,
    open: Family<NoLabels, Level>,
    block_queue: Family<BlockLabels, Log2Histogram>,
    block_device: Family<BlockLabels, Log2Histogram>,
    writeback: Family<WritebackLabels, Count>,
    written_files: Family<WrittenLabels, Count>,
    dirty: Family<NoLabels, Level>,
    dirty_background_threshold: Family<NoLabels, Level>,
    dirty_threshold: Family<NoLabels, Level>,
    under_writeback: Family<NoLabels, Level>,
    probes: Family<ProbeLabels, Level>,
    lost: Family<LossLabels, Count>,
    unwatched: Family<NoLabels, Count>,
    agent_cpu: Family<NoLabels, SecondsRead>,
    agent_resident: Family<NoLabels, Level>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    pub fn new() -> Self {
        let mut shelf = Shelf::new();
        let s = &mut shelf;
        let metrics = Self {
            sync_duration: s.family(table::SYNC_DURATION),
            percentiles: s.percentiles(),
            parts: s.family(table::PARTS),
            spikes: s.family(table::SPIKES),
            errors: s.family(table::ERRORS),
            open: s.family(table::OPEN),
            block_queue: s.family(table::BLOCK_QUEUE),
            block_device: s.family(table::BLOCK_DEVICE),
            writeback: s.family(table::WRITEBACK),
            written_files: s.family(table::WRITTEN_FILES),
            dirty: s.family(table::DIRTY),
            dirty_background_threshold: s.family(table::DIRTY_BACKGROUND_THRESHOLD),
            dirty_threshold: s.family(table::DIRTY_THRESHOLD),
            under_writeback: s.family(table::UNDER_WRITEBACK),
            probes: s.family(table::PROBES),
            lost: s.family(table::LOST),
            unwatched: s.family(table::UNWATCHED),
            agent_cpu: s.family(table::AGENT_CPU),
            agent_resident: s.family(table::AGENT_RESIDENT),
            clock: shelf.clock,
            dropped: shelf.dropped,
            registry: shelf.registry,
        };
        metrics.start_at_zero();
        metrics
    }

    /// Series that must exist before the first event, or `increase` over them misses it.
    fn start_at_zero(&self) {
        self.set_open_seconds(0.0);
        self.set_unwatched(0);
        for kind in
            ["sync", "detail", "name", "request", "clock", "exit", "run", "disk", "helper", "flush", "writeback"]
        {
            self.set_lost(kind, 0);
        }
    }

    /// Sets the time, in nanoseconds of any monotonic clock. To be called at least once per second; without it no
    /// percentile is ever forgotten and no idle series gives way.
    pub fn tick(&self, now_ns: u64) {
        self.clock.set(now_ns);
    }

    /// One sync that ended.
    pub fn observe_sync(&self, labels: &SyncLabels, duration_ns: u64) {
        let labels = labels.cleaned();
        self.sync_duration.update(&labels, sync_histogram, |histogram| histogram.observe(seconds(duration_ns)));
        let SyncLabels { process, thread, device, .. } = &*labels;
        let thread = ThreadLabels { process: process.clone(), thread: thread.clone(), device: device.clone() };
        if self.percentiles.record(thread, duration_ns) == Recorded::NoRoom {
            self.dropped.add(table::PERCENTILES.name);
        }
    }

    /// Time that syncs spent in one part of their breakdown.
    pub fn add_part(&self, part: &'static str, device: &str, ns: u64) {
        let labels = PartLabels { part, device: clean(device) };
        self.parts.update(&labels, Seconds::default, |time| time.ns = time.ns.saturating_add(ns));
    }

    /// One sync over the threshold. `culprit_class` is a process name, "journal", "flusher", "device" or "none".
    pub fn spike(&self, cause: &str, culprit_class: &str, device: &str) {
        let labels = SpikeLabels { cause: clean(cause), culprit: clean(culprit_class), device: clean(device) };
        self.spikes.update(&labels, Count::default, |count| count.0 += 1);
    }

    /// One sync that failed; `error` is the errno's name, such as EIO.
    pub fn sync_error(&self, error: &str, device: &str, process: &str) {
        let labels = ErrorLabels { error: clean(error), device: clean(device), process: clean(process) };
        self.errors.update(&labels, Count::default, |count| count.0 += 1);
    }

    /// Age of the oldest sync that still runs; 0 if none does.
    pub fn set_open_seconds(&self, age: f64) {
        set_level(&self.open, age);
    }

    /// Takes over one histogram of the kernel side, cumulative since load: bucket 0 counts requests under 1 us, bucket
    /// i those from 2^(i-1) to 2^i us, the last all longer ones.
    pub fn set_block_histogram(&self, labels: &BlockLabels, phase: Phase, buckets: &[u64], sum_ns: u64) {
        let BlockLabels { device, kind, submitter } = labels;
        let labels = BlockLabels { device: clean(device), kind, submitter };
        let family = match phase {
            Phase::Queue => &self.block_queue,
            Phase::Device => &self.block_device,
        };
        family.update(&labels, Log2Histogram::default, |histogram| histogram.set(buckets, sum_ns));
    }

    /// Bytes written back since load, by the kernel's word for the reason.
    pub fn set_writeback_bytes(&self, device: &str, reason: &str, cumulative: u64) {
        let labels = WritebackLabels { device: clean(device), reason: clean(reason) };
        self.writeback.update(&labels, Count::default, |count| count.0 = cumulative);
    }

    /// Pages that reached a disk from the page cache.
    pub fn add_written_back(&self, labels: &WrittenLabels, bytes: u64) {
        let WrittenLabels { device, submitter, reason, file_class, writer } = labels;
        let labels = WrittenLabels {
            device: clean(device),
            submitter,
            reason,
            file_class: clean(file_class),
            writer: clean(writer),
        };
        self.written_files.update(&labels, Count::default, |count| count.0 = count.0.saturating_add(bytes));
    }

    pub fn set_page_cache(&self, cache: PageCache) {
        let PageCache { dirty_bytes, background_threshold_bytes, threshold_bytes, writeback_bytes } = cache;
        set_level(&self.dirty, dirty_bytes as f64);
        set_level(&self.dirty_background_threshold, background_threshold_bytes as f64);
        set_level(&self.dirty_threshold, threshold_bytes as f64);
        set_level(&self.under_writeback, writeback_bytes as f64);
    }

    pub fn set_probe(&self, probe: &str, state: ProbeState) {
        let level = match state {
            ProbeState::Attached => 1.0,
            ProbeState::Missing => 0.0,
        };
        self.probes.update(&ProbeLabels { probe: clean(probe) }, Level::default, |value| value.0 = level);
    }

    /// Events lost since load: see docs/metrics.md for the kinds.
    pub fn set_lost(&self, kind: &str, cumulative: u64) {
        self.lost.update(&LossLabels { kind: clean(kind) }, Count::default, |count| count.0 = cumulative);
    }

    /// Syncs since load of threads beyond the bound on watched threads.
    pub fn set_unwatched(&self, cumulative: u64) {
        self.unwatched.update(&NoLabels, Count::default, |count| count.0 = cumulative);
    }

    /// What the agent itself has used: CPU seconds since its start, and bytes of memory now.
    pub fn set_agent_usage(&self, cpu_seconds: f64, resident_bytes: u64) {
        self.agent_cpu.update(&NoLabels, SecondsRead::default, |value| value.0 = cpu_seconds);
        set_level(&self.agent_resident, resident_bytes as f64);
    }

    /// Removes the series of a thread name of which no thread is left in that process.
    pub fn forget_thread(&self, process: &str, thread: &str) {
        let (process, thread) = (clean(process), clean(thread));
        self.sync_duration.retain(|labels| labels.process != process || labels.thread != thread);
        self.percentiles.retain(|labels| labels.process != process || labels.thread != thread);
    }

    /// All metrics in the format that an Accept header asks for, with its content type.
    pub fn encode(&self, accept: &str) -> anyhow::Result<(&'static str, Vec<u8>)> {
        let format = Format::accepted(accept);
        Ok((format.content_type(), format.write(&self.registry)?))
    }
}

fn set_level(family: &Family<NoLabels, Level>, level: f64) {
    family.update(&NoLabels, Level::default, |value| value.0 = level);
}

fn sync_histogram() -> Histogram {
    let native = NativeHistogramConfig::new(NATIVE_GROWTH)
        .max_buckets(limits::NATIVE_BUCKETS_MAX)
        .min_reset_duration(Duration::from_secs(3600));
    Histogram::new_classic_and_native(SYNC_BOUNDS, native)
}

/// Where metrics are registered while they are made.
struct Shelf {
    registry: Registry,
    clock: Clock,
    dropped: Dropped,
}

impl Shelf {
    fn new() -> Self {
        let mut shelf = Self { registry: Registry::default(), clock: Clock::default(), dropped: Dropped::default() };
        shelf.register(table::BUILD, Info::new([("version", env!("CARGO_PKG_VERSION"))]));
        let dropped = shelf.dropped.clone();
        shelf.register(table::DROPPED, dropped);
        shelf
    }

    /// Registers a metric under its exposed name, of which the client wants the unit and the suffix apart.
    fn register(&mut self, row: Row, metric: impl Metric) {
        let Row { name, help, label_sets_max: _ } = row;
        let stem = ["_total", "_info"].iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name);
        let units = [("_seconds", Unit::Seconds), ("_bytes", Unit::Bytes)];
        match units.into_iter().find_map(|(suffix, unit)| Some((stem.strip_suffix(suffix)?, unit))) {
            Some((stem, unit)) => self.registry.register_with_unit(stem, help, unit, metric),
            None => self.registry.register(stem, help, metric),
        }
    }

    fn family<L: Labels, M>(&mut self, row: Row) -> Family<L, M>
    where
        Family<L, M>: Metric,
    {
        let family = Family::new(row, self.clock.clone(), self.dropped.clone());
        self.register(row, family.clone());
        family
    }

    fn percentiles(&mut self) -> Percentiles {
        let percentiles = Percentiles::new(self.clock.clone());
        self.register(table::PERCENTILES, percentiles.clone());
        percentiles
    }
}
