//! `watch`: each slow sync as it ends, or the slowest at the end, as a block of text or a line of JSON.

use std::io::{StdoutLock, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use fsyncscope_ebpf::settings::Counter;
use tokio::signal::unix::{SignalKind, signal};

use crate::attribution::Explanation;
use crate::cli::Watch;
use crate::kernel::host::Roots;
use crate::lines::{CLOSED, reader_is_gone};
use crate::report;
use crate::start::{Instance, Kernel};
use crate::tracer::{Outcome, POLL, Tracer};
use crate::worst::Worst;

/// Traces until a signal, the time or the count ends it.
pub async fn watch(options: &Watch) -> anyhow::Result<ExitCode> {
    let roots = Roots::default();
    let _instance = Instance::claim("watch")?;
    crate::select::Selectors::compile(&options.tracing.selectors)?.check_present(&roots)?;
    let kernel = Kernel::read(&roots)?;
    let mut tracing = options.tracing.clone();
    if options.worst.is_some() {
        tracing.threshold = Duration::ZERO;
    }
    let mut tracer = Tracer::attach(&kernel, &tracing, &roots)?;
    announce(&kernel, &tracer, options)?;
    let mut view = View {
        out: std::io::stdout().lock(),
        json: options.json,
        worst: options.worst.map(Worst::new).transpose()?,
        left: options.count,
        shown: 0,
        unix_offset_ns: tracer.unix_offset_ns,
    };
    let mut interrupt = signal(SignalKind::interrupt()).context("could not wait for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("could not wait for SIGTERM")?;
    let end = options.time.map(|time| Instant::now() + time);
    let mut ticks = tokio::time::interval(POLL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while view.left != Some(0) && end.is_none_or(|end| Instant::now() < end) {
        let ended = tokio::select! {
            _ = ticks.tick() => false,
            _ = interrupt.recv() => true,
            _ = terminate.recv() => true,
        };
        tracer.poll(|outcome| view.take(outcome))?;
        if let Some(worst) = &view.worst {
            tracer.explain_from(worst.least_ns());
        }
        view.out.flush().context(CLOSED)?;
        if reader_is_gone() {
            anyhow::bail!(CLOSED);
        }
        if ended {
            break;
        }
    }
    view.show_worst()?;
    tracer.finish()?;
    tracer.check_wanted()?;
    sum_up(&tracer, view.shown)?;
    Ok(ExitCode::SUCCESS)
}

/// How many there were, and how many more of which nothing is known.
fn sum_up(tracer: &Tracer, shown: u64) -> std::io::Result<()> {
    let [lost, unwatched] = [Counter::LostSync, Counter::Unwatched].map(|counter| tracer.probes.counter(counter));
    let more = if lost + unwatched > 0 {
        format!("; {lost} more were lost, and {unwatched} of threads beyond the bound not watched")
    } else {
        String::new()
    };
    writeln!(std::io::stderr(), "fsyncscope: {} syncs seen, {shown} shown{more}", tracer.wanted)
}

/// Says once that everything is attached, and what is missing.
fn announce(kernel: &Kernel, tracer: &Tracer, options: &Watch) -> anyhow::Result<()> {
    let mut err = std::io::stderr().lock();
    tracer.lacking(kernel).try_for_each(|row| writeln!(err, "fsyncscope: {row}"))?;
    let threshold = options.tracing.threshold;
    let end = options.time.map_or("with Ctrl-C".to_owned(), |time| format!("after {time:?} or with Ctrl-C"));
    match options.worst {
        Some(number) => {
            writeln!(err, "fsyncscope: watching all syncs; the {number} slowest are shown at the end, {end}")
        }
        None => writeln!(err, "fsyncscope: watching syncs of {threshold:?} and more; end with Ctrl-C"),
    }?;
    Ok(())
}

struct View {
    out: StdoutLock<'static>,
    json: bool,
    /// Instead of each as it ends.
    worst: Option<Worst>,
    left: Option<u64>,
    shown: u64,
    unix_offset_ns: i64,
}

impl View {
    fn take(&mut self, outcome: Outcome) -> anyhow::Result<()> {
        if self.left == Some(0) {
            return Ok(());
        }
        match (&outcome, &mut self.worst) {
            (Outcome::Open(open), _) => {
                let offset = self.unix_offset_ns;
                let told = if self.json {
                    report::open_json(open, offset).to_string()
                } else {
                    report::open_block(open, offset)
                };
                writeln!(self.out, "{told}").context(CLOSED)
            }
            (_, Some(worst)) => {
                worst.take(&outcome);
                Ok(())
            }
            (Outcome::Slow(slow), None) => {
                self.left = self.left.map(|left| left - 1);
                self.show(slow)
            }
            _ => Ok(()),
        }
    }

    fn show(&mut self, slow: &Explanation) -> anyhow::Result<()> {
        let offset = self.unix_offset_ns;
        let told = if self.json { report::json(slow, offset).to_string() } else { report::block(slow, offset) };
        self.shown += 1;
        writeln!(self.out, "{told}").context(CLOSED)
    }

    fn show_worst(&mut self) -> anyhow::Result<()> {
        let Some(worst) = self.worst.take() else { return Ok(()) };
        worst.kept().try_for_each(|slow| self.show(slow))?;
        if !self.json {
            writeln!(self.out, "{}", worst.sentence()).context(CLOSED)?;
        }
        self.out.flush().context(CLOSED)
    }
}
