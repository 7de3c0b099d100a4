//! Every bound of the agent in one place, each with its reason. What overflows a bound is counted and shown.

use std::time::Duration;

// ---- Metrics. One row is (metric, label sets, series per label set); metrics.rs asserts the sum.

/// Series that one agent may cost its Prometheus: a thousand nodes then stay near ten million, which one large server
/// still holds. The label sets below are shares of it, so that a flood in one metric never starves another.
pub const SERIES_MAX: usize = 12_000;

/// Sync threads x operations x file classes on one node: 64 journals with four classes each.
pub const SYNC_LABEL_SETS_MAX: usize = 256;

/// Threads whose last minute is kept as a histogram of about 5 KiB per ten seconds: 4 MiB at most.
pub const PERCENTILE_LABEL_SETS_MAX: usize = 128;

/// About 30 parts on at most a dozen journal disks.
pub const PART_LABEL_SETS_MAX: usize = 384;

/// Nine causes; the culprit is a process name of the node, so this one overflows where processes come and go.
pub const SPIKE_LABEL_SETS_MAX: usize = 256;

/// A failing disk fails every process on it with one or two errors.
pub const ERROR_LABEL_SETS_MAX: usize = 64;

/// Five disks x three kinds x six submitters, a few over; each set costs 26 series, twice, because queue and device are
/// two metrics.
pub const BLOCK_LABEL_SETS_MAX: usize = 96;

/// Nine reasons on sixteen devices.
pub const WRITEBACK_LABEL_SETS_MAX: usize = 144;

/// Rows of the probe table, with room to grow.
pub const PROBE_LABEL_SETS_MAX: usize = 64;

/// Kinds of loss, and metrics that can overflow: both are lists in the source.
pub const FIXED_LABEL_SETS_MAX: usize = 32;

/// A full metric gives the place of the series that was idle for the longest time to a new one, but only if nothing
/// reached it for this long: a dashboard of the last hour loses nothing.
pub const SERIES_IDLE: Duration = Duration::from_secs(3600);

/// Bytes of one label value. Longer ones are cut: Prometheus keeps every value in memory for as long as its series.
pub const LABEL_BYTES_MAX: usize = 128;

/// Buckets of one native histogram: at a growth of 1.09 a bucket, 160 reach over six decades before resolution halves.
pub const NATIVE_BUCKETS_MAX: usize = 160;

// ---- The HTTP endpoint.

/// Connections answered at a time. Two Prometheus servers, a probe and a person need four; the rest wait in the
/// kernel's backlog and cost the agent nothing.
pub const HTTP_CONNECTIONS_MAX: usize = 16;

/// From accept to the last byte of the answer. Prometheus gives up after 10 s by default.
pub const HTTP_CONNECTION: Duration = Duration::from_secs(10);

/// A client that has not sent its request by then is broken or hostile.
pub const HTTP_HEADER: Duration = Duration::from_secs(3);

/// Bytes buffered for one request; Prometheus sends under 1 KiB. This is also the least that hyper accepts.
pub const HTTP_HEADER_BYTES_MAX: usize = 8192;

/// Header lines of one request; Prometheus sends six.
pub const HTTP_HEADERS_MAX: usize = 64;

/// Pause after a failed accept: long enough to spare the CPU, short enough for the next scrape.
pub const HTTP_ACCEPT_RETRY: Duration = Duration::from_millis(100);

// ---- The timeline: what it keeps for the syncs to come. Each holds some seconds of the busiest journal that was seen.

/// Long waits. At a threshold of 1 ms a journal under a writer makes about 2,000 a second.
pub const TIMELINE_WAITS: usize = 4096;
/// Long run-queue delays; rarer than waits.
pub const TIMELINE_DELAYS: usize = 2048;
/// Long commits: one or two a slow sync.
pub const TIMELINE_COMMITS: usize = 512;
/// Pictures of a disk's queue, of 3 KiB each.
pub const TIMELINE_QUEUES: usize = 512;
/// Losses: one per poll at most.
pub const TIMELINE_LOSSES: usize = 256;
/// Threads: twice what the probes can watch, since an exit may be lost.
pub const TIMELINE_THREADS: usize = 2048;
/// Filesystems, as many as the probes remember.
pub const TIMELINE_FILESYSTEMS: usize = 256;
/// Disks with baselines of their own, two kinds each.
pub const TIMELINE_DISKS: usize = 128;
/// Names of files and of kernel functions, each.
pub const TIMELINE_NAMES: usize = 4096;
/// Requests that a disk's baseline stands on: a few seconds, so that it follows the disk's day.
pub const BASELINE_REQUESTS: usize = 512;
