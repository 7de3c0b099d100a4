//! `demo`: a journal on a scratch disk, a writer that disturbs it, and the worst sync explained.
//!
//! Leaves nothing behind, even if it is killed: the mount lives in a mount namespace of its own, the loop device is
//! freed with its last user, the image has no name, and the actors die with their parent.

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::attribution::Explanation;
use crate::cli::{Actor, Demo, DemoRole, Selectors, Tracing};
use crate::kernel::host::Roots;
use crate::report;
use crate::start::Kernel;
use crate::tracer::{Outcome, POLL, Tracer};

mod actor;
mod stage;

use actor::Acting;
use stage::Stage;

/// Time that the journal has the disk for itself, to see what is usual.
const QUIET: Duration = Duration::from_secs(3);
/// Time with the writer after which the worst sync so far is shown, if its culprit was found.
const DISTURBED: Duration = Duration::from_secs(6);
/// Syncs from here on are explained; a spike is the worst of them.
const THRESHOLD: Duration = Duration::from_millis(1);

/// Sets the stage, lets the actors play, prints the worst sync.
pub fn demo(options: &Demo) -> anyhow::Result<ExitCode> {
    let roots = Roots::default();
    let kernel = Kernel::read(&roots)?;
    let stage = Stage::set()?;
    let tracing = Tracing {
        threshold: THRESHOLD,
        selectors: Selectors { process: vec![actor::JOURNAL.into()], ..Selectors::default() },
        ..Tracing::default()
    };
    let mut tracer = Tracer::attach(&kernel, &tracing, &roots)?;
    say(&format!("A journal on {} appends 4 KiB and syncs, again and again.", stage.device()))?;
    let mut journal = Acting::start(Actor::Journal, stage.directory())?;
    let quiet = observe(&mut tracer, &mut journal, QUIET, |_| false)?;
    say(&format!("Alone: {}\n", quiet.sentence()))?;
    say("Now a second process writes another file on the same disk.")?;
    let _writer = Acting::start(Actor::Writer, stage.directory())?;
    let began = Instant::now();
    let disturbed = observe(&mut tracer, &mut journal, options.time.max(DISTURBED), |seen| {
        began.elapsed() >= DISTURBED && seen.blamed.is_some()
    })?;
    say(&format!("Beside the writer: {}\n", disturbed.sentence()))?;
    let Some(spike) = disturbed.blamed.as_ref().or(disturbed.worst.as_ref()) else {
        anyhow::bail!("no sync took 1 ms in {:?}; the disk is too quiet for a demo, try it with --for 2m", options.time)
    };
    say(&format!("{}\nYour own disk: fsyncscope watch", report::block(spike, tracer.unix_offset_ns)))?;
    Ok(if disturbed.blamed.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn say(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).context("could not write to stdout; keep its reader open")
}

/// Plays a role until the parent ends.
pub fn act(options: &DemoRole) -> anyhow::Result<ExitCode> {
    actor::act(options.role, &options.directory)
}

/// What was seen of a scene.
#[derive(Default)]
struct Seen {
    durations_ns: Vec<u64>,
    worst: Option<Explanation>,
    /// The worst whose culprit is the writer.
    blamed: Option<Explanation>,
}

fn observe(
    tracer: &mut Tracer,
    journal: &mut Acting,
    time: Duration,
    done: impl Fn(&Seen) -> bool,
) -> anyhow::Result<Seen> {
    let mut seen = Seen::default();
    let end = Instant::now() + time;
    while Instant::now() < end && !done(&seen) {
        std::thread::sleep(POLL);
        journal.check().context("the demo's journal ended")?;
        tracer.poll(|outcome| {
            seen.take(outcome);
            Ok(())
        })?;
    }
    Ok(seen)
}

impl Seen {
    fn take(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Fast(sync) => self.durations_ns.push(sync.duration_ns()),
            Outcome::Slow(slow) => {
                self.durations_ns.push(slow.sync.duration_ns());
                if slow.verdict.culprit_class() == actor::WRITER {
                    keep_worse(&mut self.blamed, &slow);
                }
                keep_worse(&mut self.worst, &slow);
            }
            Outcome::Open(_) | Outcome::Began(_) | Outcome::Ended(_) => {}
        }
    }

    fn sentence(&self) -> String {
        let mut durations = self.durations_ns.clone();
        durations.sort_unstable();
        let (Some(median), Some(worst)) = (durations.get(durations.len() / 2), durations.last()) else {
            return "no sync was seen".into();
        };
        format!(
            "{} syncs, half of them under {:.2} ms, the worst {:.2} ms.",
            durations.len(),
            *median as f64 / 1e6,
            *worst as f64 / 1e6
        )
    }
}

fn keep_worse(kept: &mut Option<Explanation>, other: &Explanation) {
    if kept.as_ref().is_none_or(|kept| kept.sync.duration_ns() < other.sync.duration_ns()) {
        *kept = Some(other.clone());
    }
}
