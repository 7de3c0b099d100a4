//! `run`: the daemon. Metrics for Prometheus, one line of JSON per spike, a health page.

use std::collections::HashMap;
use std::io::Write;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context;
use fsyncscope_ebpf::settings::Counter;
use fsyncscope_ebpf::slot::{Latencies, Phase};
use tokio::signal::unix::{SignalKind, signal};

use crate::attribution::{Breakdown, writeback_reason, writer_class};
use crate::cli::Run;
use crate::event::Thread;
use crate::kernel::host::Roots;
use crate::lines::{CLOSED, Lines, Put};
use crate::metrics::{BlockLabels, Metrics, ProbeState, SyncLabels, WrittenLabels, file_class};
use crate::names::memory;
use crate::probes::table::State;
use crate::start::{Instance, Kernel};
use crate::timeline::{Subject, Sync};
use crate::tracer::{Outcome, POLL, Tracer, now_ns};
use crate::{report, serve};

/// Time between two readings of what is cumulative in the kernel.
const COLLECT: Duration = Duration::from_secs(1);
/// Time between two readings of what was written back, each of which may look through all open files.
const COLLECT_WRITTEN: Duration = Duration::from_secs(5);
/// A poll that is this late means that the daemon does not get to run: it is not healthy.
const STALLED: Duration = Duration::from_secs(10);
const LOST: [(&str, Counter); 9] = [
    ("sync", Counter::LostSync),
    ("detail", Counter::LostDetail),
    ("name", Counter::LostName),
    ("request", Counter::RequestUntracked),
    ("clock", Counter::Torn),
    ("exit", Counter::ExitUnseen),
    ("helper", Counter::HelperUnwatched),
    ("flush", Counter::FlushUntracked),
    ("writeback", Counter::WrittenUntold),
];

/// Traces until a signal ends it.
pub async fn run(options: &Run) -> anyhow::Result<ExitCode> {
    let roots = Roots::default();
    let _instance = Instance::claim("run")?;
    let listener = serve::bind(options.listen)?;
    let kernel = Kernel::read(&roots)?;
    let tracer = Tracer::attach(&kernel, &options.tracing, &roots)?;
    let mut daemon = Daemon::new(tracer, options, roots.clone())?;
    if let Err(why) = crate::select::Selectors::compile(&options.tracing.selectors)?.check_present(&roots) {
        say(&format!("{why:#}; waiting for it to appear"))?;
    }
    daemon.announce(&kernel, options)?;
    let polled = Arc::new(Mutex::new(Instant::now()));
    let seen = polled.clone();
    let health: serve::Health = Arc::new(move || {
        let age = seen.lock().map(|seen| seen.elapsed()).unwrap_or(STALLED);
        if age < STALLED { Ok(()) } else { Err(format!("the last poll was {} s ago", age.as_secs())) }
    });
    let mut interrupt = signal(SignalKind::interrupt()).context("could not wait for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("could not wait for SIGTERM")?;
    let server = serve::serve(listener, daemon.metrics.clone(), health, std::future::pending());
    tokio::pin!(server);
    let mut ticks = tokio::time::interval(POLL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
            ended = &mut server => { ended?; break }
        }
        daemon.poll()?;
        if let Ok(mut polled) = polled.lock() {
            *polled = Instant::now();
        }
    }
    daemon.poll()?;
    daemon.tracer.finish()?;
    daemon.output.out.finish();
    Ok(ExitCode::SUCCESS)
}

struct Daemon {
    tracer: Tracer,
    metrics: Arc<Metrics>,
    output: Output,
    collected: Option<Instant>,
    /// When it was last collected what was written back.
    written: Instant,
    roots: Roots,
}

/// What the daemon counts and prints of the syncs that it is handed.
struct Output {
    metrics: Arc<Metrics>,
    out: Lines,
    unix_offset_ns: i64,
    lines_a_second: u32,
    lines: u32,
    suppressed: u64,
    second_ns: u64,
    /// Living threads by process and thread name: the last one takes the series with it.
    living: HashMap<(String, String), u32>,
    /// Names whose last thread has ended, and when: their series stay until a last scrape had its chance.
    ended: HashMap<(String, String), u64>,
    keep_series_ns: u64,
}

impl Daemon {
    fn new(tracer: Tracer, options: &Run, roots: Roots) -> anyhow::Result<Self> {
        let metrics = Arc::new(Metrics::new());
        let output = Output {
            metrics: metrics.clone(),
            out: Lines::to(std::io::stdout()).context("could not start the thread that writes lines")?,
            unix_offset_ns: tracer.unix_offset_ns,
            lines_a_second: options.lines,
            lines: 0,
            suppressed: 0,
            second_ns: 0,
            living: HashMap::new(),
            ended: HashMap::new(),
            keep_series_ns: options.keep_series.as_nanos() as u64,
        };
        Ok(Self { tracer, metrics, output, collected: None, written: Instant::now(), roots })
    }

    fn announce(&self, kernel: &Kernel, options: &Run) -> anyhow::Result<()> {
        self.tracer.lacking(kernel).try_for_each(|row| say(&row))?;
        say(&format!(
            "watching syncs of {:?} and more; metrics on http://{}/metrics",
            options.tracing.threshold, options.listen
        ))
    }

    fn poll(&mut self) -> anyhow::Result<()> {
        let Self { tracer, metrics, output, collected, .. } = self;
        let now = now_ns();
        metrics.tick(now);
        output.new_second(now)?;
        tracer.poll(|outcome| output.take(outcome))?;
        if collected.is_none_or(|collected| collected.elapsed() >= COLLECT) {
            *collected = Some(Instant::now());
            self.collect();
        }
        if self.written.elapsed() >= COLLECT_WRITTEN {
            self.written = Instant::now();
            self.collect_written()?;
        }
        Ok(())
    }

    /// Reads what is cumulative: in the kernel, of the page cache, of the agent itself.
    fn collect(&self) {
        let Self { tracer, metrics, roots, .. } = self;
        let probes = &tracer.probes;
        for attached in probes.attached() {
            // One that waits for its need is no loss.
            let state =
                if matches!(attached.state, State::Missing(_)) { ProbeState::Missing } else { ProbeState::Attached };
            metrics.set_probe(attached.probe.name, state);
        }
        for (kind, counter) in LOST {
            metrics.set_lost(kind, probes.counter(counter));
        }
        metrics.set_lost("run", tracer.missed_runs());
        metrics.set_lost("disk", probes.refused_disks());
        metrics.set_unwatched(probes.counter(Counter::Unwatched));
        metrics.set_open_seconds(tracer.oldest_open_ns() as f64 / 1e9);
        for (index, dev) in probes.disks() {
            self.collect_disk(index, &tracer.disk(dev).name);
        }
        if let Some(cache) = memory::page_cache(roots) {
            metrics.set_page_cache(cache);
        }
        if let Some(usage) = memory::usage(roots) {
            metrics.set_agent_usage(usage.cpu_seconds, usage.resident_bytes);
        }
    }

    fn collect_disk(&self, index: u32, device: &str) {
        let Self { tracer, metrics, .. } = self;
        for (kind, kind_word) in report::KINDS {
            for (submitter, word) in report::SUBMITTERS {
                for phase in [Phase::Queue, Phase::Device] {
                    let Latencies { buckets, sum_ns, bytes: _ } =
                        tracer.probes.latencies(index, kind, submitter, phase);
                    if buckets.iter().any(|count| *count != 0) {
                        let labels = BlockLabels { device: device.into(), kind: kind_word, submitter: word };
                        metrics.set_block_histogram(&labels, phase, &buckets, sum_ns);
                    }
                }
            }
        }
        for (reason, bytes) in
            tracer.probes.writeback_bytes(index).into_iter().enumerate().filter(|(_, bytes)| *bytes != 0)
        {
            metrics.set_writeback_bytes(device, writeback_reason(reason as u16), bytes);
        }
    }

    /// Whose pages were written back since the last call.
    fn collect_written(&mut self) -> anyhow::Result<()> {
        for written in self.tracer.written_back(now_ns())? {
            let labels = WrittenLabels {
                device: written.disk.name.clone(),
                submitter: report::submitter(written.event.submitter),
                reason: report::reason(&written.event).unwrap_or("none"),
                file_class: match &written.subject {
                    Subject::File { path: Some(path), .. } => file_class(path),
                    Subject::Metadata => "metadata".into(),
                    Subject::File { path: None, .. } | Subject::Unknown => "unknown".into(),
                },
                writer: writer_class(&written.writers).into(),
            };
            self.metrics.add_written_back(&labels, written.event.bytes);
        }
        Ok(())
    }
}

impl Output {
    fn take(&mut self, outcome: Outcome) -> anyhow::Result<()> {
        match outcome {
            Outcome::Fast(sync) => self.count(&sync, &Breakdown::of(&sync)),
            Outcome::Slow(slow) => {
                self.count(&slow.sync, &slow.breakdown);
                self.metrics.spike(slow.verdict.cause.word(), slow.verdict.culprit_class(), &slow.sync.disk.name);
                self.print(report::json(&slow, self.unix_offset_ns).to_string())?;
            }
            Outcome::Open(open) => self.print(report::open_json(&open, self.unix_offset_ns).to_string())?,
            Outcome::Began(thread) => self.begin(thread),
            Outcome::Ended(thread) => self.end(thread),
        }
        Ok(())
    }

    fn count(&mut self, sync: &Sync, breakdown: &Breakdown) {
        let path = sync.file.path.as_deref().unwrap_or("unknown");
        let labels = SyncLabels {
            process: sync.process.clone(),
            thread: sync.event.thread.clone(),
            operation: sync.operation.name(),
            file_class: file_class(path),
            device: sync.disk.name.clone(),
        };
        self.metrics.observe_sync(&labels, sync.duration_ns());
        for row in &breakdown.rows {
            self.metrics.add_part(row.name, &sync.disk.name, row.ns);
        }
        if let Some(error) = sync.error() {
            self.metrics.sync_error(&report::errno_name(error), &sync.disk.name, &sync.process);
        }
    }

    fn begin(&mut self, thread: Thread) {
        let name = (thread.process, thread.thread);
        self.ended.remove(&name);
        *self.living.entry(name).or_default() += 1;
    }

    fn end(&mut self, thread: Thread) {
        let name = (thread.process, thread.thread);
        match self.living.get_mut(&name) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                self.living.remove(&name);
                self.ended.insert(name, self.second_ns);
            }
        }
    }

    /// Gives up the series of names whose last thread ended some time ago.
    fn forget(&mut self, now_ns: u64) {
        let Self { ended, metrics, keep_series_ns, .. } = self;
        ended.retain(|(process, thread), since_ns| {
            let keep = now_ns.saturating_sub(*since_ns) < *keep_series_ns;
            if !keep {
                metrics.forget_thread(process, thread);
            }
            keep
        });
    }

    /// A line, unless this second has had its share; what is left out is told at the next second.
    fn print(&mut self, line: String) -> anyhow::Result<()> {
        if self.lines >= self.lines_a_second {
            self.suppressed += 1;
            return Ok(());
        }
        match self.out.put(line) {
            Put::Queued => self.lines += 1,
            Put::Full => self.suppressed += 1,
            Put::Closed => anyhow::bail!(CLOSED),
        }
        Ok(())
    }

    fn new_second(&mut self, now_ns: u64) -> anyhow::Result<()> {
        if now_ns.saturating_sub(self.second_ns) < 1_000_000_000 {
            return Ok(());
        }
        self.second_ns = now_ns;
        self.lines = 0;
        self.forget(now_ns);
        match std::mem::take(&mut self.suppressed) {
            0 => Ok(()),
            count => say(&format!(
                "{count} more spikes in the last second are counted but not printed; raise --lines or --threshold"
            )),
        }
    }
}

fn say(sentence: &str) -> anyhow::Result<()> {
    writeln!(std::io::stderr(), "fsyncscope: {sentence}").context("could not write to stderr")
}
