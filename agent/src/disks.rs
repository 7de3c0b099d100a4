//! `disks`: what the watched disks do, interval by interval: their requests, and what is written back to them and why.

use std::collections::HashMap;
use std::io::{StdoutLock, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use fsyncscope_ebpf::settings::Counter;
use fsyncscope_ebpf::slot::{Latencies, Phase};
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::{Disks, Tracing};
use crate::kernel::host::Roots;
use crate::lines::{CLOSED, reader_is_gone};
use crate::names::memory;
use crate::report::{self, DiskReport, Latency};
use crate::start::{Instance, Kernel};
use crate::timeline::WrittenBack;
use crate::tracer::{POLL, Tracer, now_ns};

/// No sync is shown here, so only what hangs for long is worth a detail.
const THRESHOLD: Duration = Duration::from_secs(3600);

/// Shows pictures until a signal or the time ends it; 1 if no disk did anything.
pub async fn disks(options: &Disks) -> anyhow::Result<ExitCode> {
    let roots = Roots::default();
    let _instance = Instance::claim("disks")?;
    let kernel = Kernel::read(&roots)?;
    let tracing = Tracing { threshold: THRESHOLD, open: THRESHOLD, ..Tracing::default() };
    let tracer = Tracer::attach(&kernel, &tracing, &roots)?;
    writeln!(std::io::stderr(), "fsyncscope: watching disks, each from the first sync on it; end with Ctrl-C")?;
    let mut view = View {
        tracer,
        roots,
        json: options.json,
        out: std::io::stdout().lock(),
        former: HashMap::new(),
        from_ns: now_ns(),
        lost: 0,
        shown: 0,
    };
    let mut interrupt = signal(SignalKind::interrupt()).context("could not wait for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("could not wait for SIGTERM")?;
    let end = options.time.map(|time| Instant::now() + time);
    let mut ticks = tokio::time::interval(POLL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut next = Instant::now() + options.every;
    let mut ended = false;
    while !ended {
        ended = tokio::select! {
            _ = ticks.tick() => end.is_some_and(|end| Instant::now() >= end),
            _ = interrupt.recv() => true,
            _ = terminate.recv() => true,
        };
        view.tracer.poll(|_| Ok(()))?;
        if reader_is_gone() {
            anyhow::bail!(CLOSED);
        }
        if ended || Instant::now() >= next {
            next += options.every;
            view.show()?;
        }
    }
    if view.shown > 0 {
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(
        std::io::stderr(),
        "fsyncscope: watching disks: no disk had a sync, so none was watched; let something sync meanwhile, or give more \
         time with --for"
    )?;
    Ok(ExitCode::FAILURE)
}

struct View {
    tracer: Tracer,
    roots: Roots,
    json: bool,
    out: StdoutLock<'static>,
    /// Latencies at the end of the former interval, by disk and place among the disk's.
    former: HashMap<(u32, usize), Latencies>,
    from_ns: u64,
    /// What was lost until the former interval.
    lost: u64,
    /// Pictures shown so far.
    shown: u64,
}

impl View {
    /// A picture of each disk that did something since the last one.
    fn show(&mut self) -> anyhow::Result<()> {
        let now = now_ns();
        let span_ns = now.saturating_sub(std::mem::replace(&mut self.from_ns, now));
        let written = self.tracer.written_back(now)?;
        let cache = memory::page_cache(&self.roots);
        let probes = &self.tracer.probes;
        let counted = [Counter::RequestUntracked, Counter::FlushUntracked, Counter::WrittenUntold];
        let counted = counted.map(|counter| probes.counter(counter)).iter().sum::<u64>();
        let lost = counted + probes.refused_disks() + self.tracer.missed_runs();
        let lost = lost.saturating_sub(std::mem::replace(&mut self.lost, lost));
        let mut shown = 0;
        for (index, dev) in self.tracer.probes.disks() {
            let report = DiskReport { until_ns: now, span_ns, lost, ..self.report(index, dev, &written) };
            if report.latencies.is_empty() && report.written.is_empty() && report.in_flight == 0 {
                continue;
            }
            let offset = self.tracer.unix_offset_ns;
            let text = if self.json {
                report::disk_json(&report, cache.as_ref(), offset).to_string()
            } else {
                report::disk_text(&report, offset)
            };
            writeln!(self.out, "{text}").context(CLOSED)?;
            shown += 1;
        }
        if let (Some(cache), false, true) = (&cache, self.json, shown > 0) {
            writeln!(self.out, "{}", report::page_cache(cache)).context(CLOSED)?;
        }
        self.shown += shown;
        self.out.flush().context(CLOSED)
    }

    fn report(&mut self, index: u32, dev: u32, written: &[WrittenBack]) -> DiskReport {
        let disk = self.tracer.disk(dev);
        DiskReport {
            lower: disk.lower.iter().map(|lower| self.tracer.disk(*lower).name).collect(),
            latencies: self.latencies(index),
            written: written.iter().filter(|written| written.event.disk == dev).cloned().collect(),
            disk,
            in_flight: self.tracer.probes.in_flight(index),
            until_ns: 0,
            span_ns: 0,
            lost: 0,
        }
    }

    /// What came since the former interval.
    fn latencies(&mut self, index: u32) -> Vec<Latency> {
        let mut found = Vec::new();
        for (kind, kind_word) in report::KINDS {
            for (submitter, submitter_word) in report::SUBMITTERS {
                let [queue, device] = [Phase::Queue, Phase::Device].map(|phase| {
                    let now = self.tracer.probes.latencies(index, kind, submitter, phase);
                    let place = (kind as usize * report::SUBMITTERS.len() + submitter as usize) * 2 + phase as usize;
                    let former = self.former.insert((index, place), now);
                    former.map_or(now, |former| since(&former, &now))
                });
                if device.buckets.iter().any(|count| *count != 0) {
                    found.push(Latency { kind: kind_word, submitter: submitter_word, queue, device });
                }
            }
        }
        found
    }
}

fn since(former: &Latencies, now: &Latencies) -> Latencies {
    Latencies {
        buckets: std::array::from_fn(|bucket| now.buckets[bucket].saturating_sub(former.buckets[bucket])),
        sum_ns: now.sum_ns.saturating_sub(former.sum_ns),
        bytes: now.bytes.saturating_sub(former.bytes),
    }
}
