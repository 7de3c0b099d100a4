//! Fills every metric as a node under load would: a journal whose syncs are mostly fast and sometimes slow.

use fsyncscope::event::PageCache;
use fsyncscope::metrics::{BlockLabels, Metrics, ProbeState, SyncLabels, WrittenLabels, file_class};
use fsyncscope_ebpf::slot::Phase;

const PARTS: [&str; 6] = ["on_cpu", "run_queue", "queue", "device", "flush_device", "remainder"];

/// The load after `step` steps; call it with 1, 2, 3, .. and counters rise.
pub fn fill(metrics: &Metrics, step: u64) {
    metrics.tick(step * 100_000_000);
    syncs(metrics, step);
    blocks(metrics, step);
    metrics.set_writeback_bytes("loop0", "background", step * 4096);
    metrics.set_writeback_bytes("loop0", "periodic", step * 512);
    let written = WrittenLabels {
        device: "loop0".into(),
        submitter: "flusher",
        reason: "background",
        file_class: file_class("/bk/ledgers/current/3a.log"),
        writer: "java".into(),
    };
    metrics.add_written_back(&written, 4096);
    metrics.set_page_cache(PageCache {
        dirty_bytes: (step % 50 + 1) << 20,
        background_threshold_bytes: 64 << 20,
        threshold_bytes: 128 << 20,
        writeback_bytes: (step % 7 + 1) << 16,
    });
    metrics.set_open_seconds(if step.is_multiple_of(40) { 1.5 } else { 0.0 });
    for probe in ["ext4_sync_file_enter", "sched_switch", "block_rq_complete"] {
        metrics.set_probe(probe, ProbeState::Attached);
    }
    metrics.set_probe("jbd2_run_stats", ProbeState::Missing);
    metrics.set_lost("detail", step / 10);
    metrics.set_unwatched(step / 5);
    metrics.set_agent_usage(step as f64 * 0.001, 12 << 20);
}

fn syncs(metrics: &Metrics, step: u64) {
    for (process, thread, operation, path, device) in [
        ("java", "ForceWriteThrea", "fdatasync", "/bk/journal/current/18f3a9c2b1e.txn", "loop0"),
        ("postgres", "postgres", "fdatasync", "/pg/pg_wal/000000010000000000000001", "loop1"),
    ] {
        let labels = SyncLabels {
            process: process.into(),
            thread: thread.into(),
            operation,
            file_class: file_class(path),
            device: device.into(),
        };
        let slow = step.is_multiple_of(20);
        let duration_ns = if slow { 180_000_000 } else { 700_000 + step % 13 * 50_000 };
        metrics.observe_sync(&labels, duration_ns);
        for (i, part) in PARTS.into_iter().enumerate() {
            metrics.add_part(part, device, duration_ns * (i as u64 + 1) / 21);
        }
        if slow {
            metrics.spike("queue_behind", "dd", device);
            metrics.spike("journal_commit", "journal", device);
            metrics.sync_error("EIO", device, process);
        }
    }
}

fn blocks(metrics: &Metrics, step: u64) {
    for (kind, submitter) in [("write", "sync"), ("write", "flusher"), ("flush", "journal"), ("read", "other")] {
        let labels = BlockLabels { device: "loop0".into(), kind, submitter };
        let buckets: Vec<u64> = (0..24).map(|i| if (5..12).contains(&i) { step * (12 - i) } else { 0 }).collect();
        metrics.set_block_histogram(&labels, Phase::Queue, &buckets, step * 1_000_000);
        metrics.set_block_histogram(&labels, Phase::Device, &buckets, step * 3_000_000);
    }
}

/// Drops something, so that the metric that counts it exists too.
pub fn overflow(metrics: &Metrics) {
    for i in 0..=fsyncscope::limits::SPIKE_LABEL_SETS_MAX {
        metrics.spike("device_slow", &format!("process-{i}"), "loop9");
    }
}
