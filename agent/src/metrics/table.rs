//! Every metric of the agent: its exposed name, its help, and how many label sets it may have.
//!
//! docs/metrics.md says the same to readers; a test compares the two.

use crate::limits;

/// One metric.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// As it is exposed, with unit and suffix.
    pub name: &'static str,
    /// Without a full stop; the client adds it.
    pub help: &'static str,
    pub label_sets_max: usize,
}

pub const SYNC_DURATION: Row = Row {
    name: "fsyncscope_sync_duration_seconds",
    help: "Wall time of syncs from kernel entry to exit",
    label_sets_max: limits::SYNC_LABEL_SETS_MAX,
};
pub const PERCENTILES: Row = Row {
    name: "fsyncscope_sync_latency_percentile_seconds",
    help: "Percentiles of each thread's syncs over the last minute",
    label_sets_max: limits::PERCENTILE_LABEL_SETS_MAX,
};
pub const PARTS: Row = Row {
    name: "fsyncscope_sync_part_seconds_total",
    help: "Wall time of all syncs by the part it was spent in",
    label_sets_max: limits::PART_LABEL_SETS_MAX,
};
pub const SPIKES: Row = Row {
    name: "fsyncscope_spikes_total",
    help: "Syncs over the threshold by cause and class of culprit",
    label_sets_max: limits::SPIKE_LABEL_SETS_MAX,
};
pub const ERRORS: Row = Row {
    name: "fsyncscope_sync_errors_total",
    help: "Syncs that returned an error",
    label_sets_max: limits::ERROR_LABEL_SETS_MAX,
};
pub const OPEN: Row = Row {
    name: "fsyncscope_sync_open_seconds",
    help: "Age of the oldest sync that still runs, 0 if none",
    label_sets_max: 1,
};
pub const BLOCK_QUEUE: Row = Row {
    name: "fsyncscope_block_queue_seconds",
    help: "Time of requests from their start to issue, of flushes from when they were due",
    label_sets_max: limits::BLOCK_LABEL_SETS_MAX,
};
pub const BLOCK_DEVICE: Row = Row {
    name: "fsyncscope_block_device_seconds",
    help: "Time of requests from issue to completion",
    label_sets_max: limits::BLOCK_LABEL_SETS_MAX,
};
pub const WRITEBACK: Row = Row {
    name: "fsyncscope_writeback_bytes_total",
    help: "Bytes that the flusher wrote back, by the reason it was started for",
    label_sets_max: limits::WRITEBACK_LABEL_SETS_MAX,
};
pub const WRITTEN_FILES: Row = Row {
    name: "fsyncscope_writeback_file_bytes_total",
    help: "Bytes of each class of files that reached a disk from the page cache, by who submitted them",
    label_sets_max: limits::WRITTEN_LABEL_SETS_MAX,
};
pub const DIRTY: Row = Row { name: "fsyncscope_dirty_bytes", help: "Dirty bytes in the page cache", label_sets_max: 1 };
pub const DIRTY_BACKGROUND_THRESHOLD: Row = Row {
    name: "fsyncscope_dirty_background_threshold_bytes",
    help: "Dirty bytes above which the flusher starts",
    label_sets_max: 1,
};
pub const DIRTY_THRESHOLD: Row =
    Row { name: "fsyncscope_dirty_threshold_bytes", help: "Dirty bytes near which writers wait", label_sets_max: 1 };
pub const UNDER_WRITEBACK: Row =
    Row { name: "fsyncscope_under_writeback_bytes", help: "Bytes under writeback now", label_sets_max: 1 };
pub const PROBES: Row = Row {
    name: "fsyncscope_probe_attached",
    help: "1 if the probe is at work, 0 if it is missing",
    label_sets_max: limits::PROBE_LABEL_SETS_MAX,
};
pub const LOST: Row = Row {
    name: "fsyncscope_events_lost_total",
    help: "Events that the kernel side could not hand over",
    label_sets_max: limits::FIXED_LABEL_SETS_MAX,
};
pub const UNWATCHED: Row = Row {
    name: "fsyncscope_syncs_unwatched_total",
    help: "Syncs of threads beyond the bound on watched threads",
    label_sets_max: 1,
};
pub const AGENT_CPU: Row = Row {
    name: "fsyncscope_agent_cpu_seconds_total",
    help: "CPU time of the agent itself, without its probes",
    label_sets_max: 1,
};
pub const AGENT_RESIDENT: Row =
    Row { name: "fsyncscope_agent_resident_bytes", help: "Resident memory of the agent", label_sets_max: 1 };
pub const DROPPED: Row = Row {
    name: "fsyncscope_series_dropped_total",
    help: "Updates that were dropped because their metric was full",
    label_sets_max: limits::FIXED_LABEL_SETS_MAX,
};
pub const BUILD: Row = Row { name: "fsyncscope_build_info", help: "Version of the agent", label_sets_max: 1 };
