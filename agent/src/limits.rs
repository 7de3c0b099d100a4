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

/// Classes of files that are written back, by submitter, reason and writer: a ledger's files are one class.
pub const WRITTEN_LABEL_SETS_MAX: usize = 256;

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
/// Visits of filesystems by `sync` that are kept until it ends: two for each filesystem of a machine with many.
pub const TIMELINE_PORTIONS: usize = 1024;
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

// ---- Names: what is read from /proc and /sys, how often, and what is kept of it.

/// Mount tables are read again at most this often: a node of Kubernetes has thousands of lines, some 10 ms of reading.
pub const NAMES_MOUNTS_NS: u64 = 1_000_000_000;
/// Files that wait for the next reading of the mount tables: more than a second brings of new ones.
pub const NAMES_PENDING: usize = 256;
/// Files whose place was told, as many as the timeline keeps.
pub const NAMES_FILES: usize = TIMELINE_NAMES;
/// Addresses told: a quarter of what the timeline keeps, so that it never forgets one that counts as told.
pub const NAMES_SYMBOLS: usize = TIMELINE_NAMES / 4;
/// Disks told, as many as the timeline keeps.
pub const NAMES_DISKS: usize = TIMELINE_DISKS;
/// Open files of all processes are looked through at most this often.
pub const NAMES_SCAN_EVERY_NS: u64 = 1_000_000_000;
/// What that found holds for this long, and so does that it found nothing: a writer lives longer than a spike.
pub const NAMES_SCAN_HOLDS_NS: u64 = 10_000_000_000;
/// One look through them ends here, and the next goes on behind it: as long as the pause between two polls, in which
/// the ring fills by a twentieth.
pub const NAMES_SCAN_TIME: Duration = Duration::from_millis(100);
/// Files looked for at a time: all that the pictures of eight queues can hold.
pub const NAMES_SCAN_FILES: usize = 256;
/// Mount tables of other processes read for one list of files, since each may take 10 ms: the files of further processes
/// keep the path that those see.
pub const NAMES_OTHER_TABLES: usize = 8;
/// Writers named per file: a file of more is a log of forked workers, and any of them stands for all.
pub const NAMES_WRITERS: usize = 16;
/// Files that were written back and are named at one look, those of most bytes first.
pub const NAMES_WRITTEN_FILES: usize = 32;
/// Only files of which so much was written back since the last look are looked for.
pub const NAMES_WRITTEN_BYTES: u64 = 1 << 20;
/// A file of which nothing was written back for so long gives its place in the probes' table to another.
pub const WRITTEN_IDLE_NS: u64 = 30_000_000_000;
/// Threads beside a slow sync whose processes are looked for: one small file each.
pub const NAMES_TASKS: usize = 16;
/// Processes whose name is kept.
pub const NAMES_PROCESSES: usize = 1024;
/// A process may execute another program, and its number may pass to another process.
pub const NAMES_PROCESS_HOLDS_NS: u64 = 10_000_000_000;
/// Bytes of a descriptor's facts that are read: access mode and inode stand in the first hundred.
pub const NAMES_FDINFO_BYTES: usize = 512;
/// Frames of a kernel stack, as many as the probes take.
pub const NAMES_FRAMES: usize = 16;

// ---- Recordings.

/// Bytes of a recording; then it ends, and says so. A broker's disk must never be filled by what watches it; at a
/// threshold of 10 ms this is days of a busy journal.
pub const RECORD_BYTES_MAX: u64 = 1 << 30;

// ---- `watch --worst`.

/// Explained syncs that are kept until the end, of some KiB each.
pub const WORST_MAX: usize = 100;

// ---- The daemon's lines.

/// Lines that wait for a slow reader of stdout, of about 2 KiB each. More are dropped and counted.
pub const LINES_WAITING: usize = 256;
/// Time that the end of the daemon waits for the last lines to be read.
pub const LINES_FINISH: Duration = Duration::from_secs(1);
