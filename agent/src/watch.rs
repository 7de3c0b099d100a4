//! `watch`: each slow sync as it ends, as a block of text or a line of JSON.

use std::io::{StdoutLock, Write};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context;
use fsyncscope_ebpf::settings::Counter;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::Watch;
use crate::kernel::host::Roots;
use crate::lines::reader_is_gone;
use crate::report;
use crate::start::{Instance, Kernel};
use crate::tracer::{Outcome, POLL, Tracer};

/// Traces until a signal, the time or the count ends it.
pub async fn watch(options: &Watch) -> anyhow::Result<ExitCode> {
    let roots = Roots::default();
    let _instance = Instance::claim("watch")?;
    crate::select::Selectors::compile(&options.tracing.selectors)?.check_present(&roots)?;
    let kernel = Kernel::read(&roots)?;
    let mut tracer = Tracer::attach(&kernel, &options.tracing, &roots)?;
    announce(&kernel, &tracer, options)?;
    let mut view = View {
        out: std::io::stdout().lock(),
        json: options.json,
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
        tracer.poll(|outcome| view.show(outcome))?;
        view.out.flush().context(CLOSED)?;
        if reader_is_gone() {
            anyhow::bail!(CLOSED);
        }
        if ended {
            break;
        }
    }
    tracer.finish()?;
    tracer.check_wanted()?;
    let (shown, wanted) = (view.shown, tracer.wanted);
    let [lost, unwatched] = [Counter::LostSync, Counter::Unwatched].map(|counter| tracer.probes.counter(counter));
    let more = if lost + unwatched > 0 {
        format!("; {lost} more were lost, and {unwatched} of threads beyond the bound not watched")
    } else {
        String::new()
    };
    writeln!(std::io::stderr(), "fsyncscope: {wanted} syncs seen, {shown} shown{more}")?;
    Ok(ExitCode::SUCCESS)
}

const CLOSED: &str = "could not write to stdout; keep its reader open, or use --count";

/// Says once that everything is attached, and what is missing.
fn announce(kernel: &Kernel, tracer: &Tracer, options: &Watch) -> anyhow::Result<()> {
    let mut err = std::io::stderr().lock();
    for row in kernel.lacking() {
        writeln!(err, "fsyncscope: {row}")?;
    }
    for attached in tracer.probes.attached() {
        if let crate::probes::table::State::Missing(why) = &attached.state {
            writeln!(
                err,
                "fsyncscope: {} is missing ({why}); without it, {}",
                attached.probe.name, attached.probe.lost
            )?;
        }
    }
    let threshold = options.tracing.threshold;
    writeln!(err, "fsyncscope: watching syncs of {threshold:?} and more; end with Ctrl-C")?;
    Ok(())
}

struct View {
    out: StdoutLock<'static>,
    json: bool,
    left: Option<u64>,
    shown: u64,
    unix_offset_ns: i64,
}

impl View {
    fn show(&mut self, outcome: Outcome) -> anyhow::Result<()> {
        if self.left == Some(0) {
            return Ok(());
        }
        let offset = self.unix_offset_ns;
        let line = match (&outcome, self.json) {
            (Outcome::Slow(slow), true) => report::json(slow, offset).to_string(),
            (Outcome::Slow(slow), false) => report::block(slow, offset),
            (Outcome::Open(open), true) => report::open_json(open, offset).to_string(),
            (Outcome::Open(open), false) => report::open_block(open, offset),
            (Outcome::Fast(_) | Outcome::Began(_) | Outcome::Ended(_), _) => return Ok(()),
        };
        writeln!(self.out, "{line}").context(CLOSED)?;
        self.shown += u64::from(matches!(outcome, Outcome::Slow(_)));
        if let (Outcome::Slow(_), Some(left)) = (&outcome, &mut self.left) {
            *left -= 1;
        }
        Ok(())
    }
}
