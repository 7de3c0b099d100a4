//! `demo`: a journal on a scratch disk, a writer that disturbs it, and the worst sync explained.
//!
//! Leaves nothing behind, even if it is killed: the mount lives in a mount namespace of its own, the loop device is
//! freed with its last user, the image has no name, and the actors die with their parent.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::attribution::Explanation;
use crate::cli::{Actor, Demo, DemoRole, Selectors, Tracing};
use crate::kernel::host::Roots;
use crate::lines;
use crate::report;
use crate::scratch::{self, Device, Scratch};
use crate::start::Kernel;
use crate::tracer::{Outcome, POLL, Tracer};
use crate::worst::Worst;

mod actor;

use actor::Acting;

/// Time that the journal has the disk for itself, to see what is usual.
const QUIET: Duration = Duration::from_secs(3);
/// Time with the writer after which the worst sync so far is shown, if its culprit was found.
const DISTURBED: Duration = Duration::from_secs(6);
/// Of the scratch disk, and of the memory over the directory for temporary files.
const IMAGE_BYTES: u64 = 512 << 20;
const DIRECTORY_BYTES: u64 = 1 << 20;
/// Syncs from here on are explained; a spike is the worst of them.
const THRESHOLD: Duration = Duration::from_millis(1);

/// Sets the stage, lets the actors play, prints the worst sync.
pub fn demo(options: &Demo) -> anyhow::Result<ExitCode> {
    let roots = Roots::default();
    let kernel = Kernel::read(&roots)?;
    let stage = set_stage()?;
    let tracing = Tracing {
        threshold: THRESHOLD,
        selectors: Selectors { process: vec![actor::JOURNAL.into()], ..Selectors::default() },
        ..Tracing::default()
    };
    let mut tracer = Tracer::attach(&kernel, &tracing, &roots)?;
    lines::print(&format!("A journal on {} appends 4 KiB and syncs, again and again.", stage.device()))?;
    let mut journal = Acting::start(Actor::Journal, stage.directory())?;
    let quiet = observe(&mut tracer, &mut journal, QUIET, |_| false)?;
    lines::print(&format!("Alone: {}\n", quiet.all.sentence()))?;
    lines::print("Now a second process writes another file on the same disk.")?;
    let _writer = Acting::start(Actor::Writer, stage.directory())?;
    let began = Instant::now();
    let disturbed = observe(&mut tracer, &mut journal, options.time.max(DISTURBED), |seen| {
        began.elapsed() >= DISTURBED && seen.blamed.kept().next().is_some()
    })?;
    lines::print(&format!("Beside the writer: {}\n", disturbed.all.sentence()))?;
    let Some(spike) = disturbed.spike() else {
        anyhow::bail!("no sync took 1 ms in {:?}; the disk is too quiet for a demo, try it with --for 2m", options.time)
    };
    lines::print(&format!(
        "{}\nYour own disk: fsyncscope watch --worst 1 --for 30s",
        report::block(spike, tracer.unix_offset_ns)
    ))?;
    Ok(if disturbed.blamed.kept().next().is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The image is on a real disk; what else belongs to the stage lies in memory, over the directory where the image was.
fn set_stage() -> anyhow::Result<Scratch> {
    scratch::own_mounts()?;
    let parent = std::env::temp_dir();
    let directory = parent.join(format!("fsyncscope-demo-{}", std::process::id()));
    let device = Device::on_disk(&directory.with_extension("img"), &scratch::EXT4, IMAGE_BYTES)?;
    scratch::memory_over(&parent, DIRECTORY_BYTES)?;
    Scratch::mount(device, &scratch::EXT4, directory)
}

/// Plays a role until the parent ends.
pub fn act(options: &DemoRole) -> anyhow::Result<ExitCode> {
    actor::act(options.role, &options.directory)
}

/// What was seen of a scene: the worst of all, and the worst whose culprit is the writer.
struct Seen {
    all: Worst,
    blamed: Worst,
}

fn observe(
    tracer: &mut Tracer,
    journal: &mut Acting,
    time: Duration,
    done: impl Fn(&Seen) -> bool,
) -> anyhow::Result<Seen> {
    let mut seen = Seen { all: Worst::new(1)?, blamed: Worst::new(1)? };
    let end = Instant::now() + time;
    while Instant::now() < end && !done(&seen) {
        std::thread::sleep(POLL);
        journal.check().context("the demo's journal ended")?;
        tracer.poll(|outcome| {
            seen.take(&outcome);
            Ok(())
        })?;
    }
    Ok(seen)
}

impl Seen {
    fn take(&mut self, outcome: &Outcome) {
        self.all.take(outcome);
        if matches!(outcome, Outcome::Slow(slow) if slow.verdict.culprit_class() == actor::WRITER) {
            self.blamed.take(outcome);
        }
    }

    fn spike(&self) -> Option<&Explanation> {
        self.blamed.kept().chain(self.all.kept()).next()
    }
}
