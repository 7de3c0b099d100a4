//! The command `cost`: what the probes cost on this machine now, beside programs that do nothing.
//!
//! The kernel's own count includes what any program costs on such an event. That floor is measured in the same window
//! by an empty program on the same kind of event, and taken off; what is left is what the probe's work costs.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use fsyncscope_ebpf::settings::Counter;
use serde::Serialize;

use crate::cli;
use crate::kernel::host::Roots;
use crate::lines;
use crate::probes::table::{FLOORS, Floor};
use crate::probes::{self, Choice, Probes, Usage};
use crate::start::{Instance, Kernel};

mod table;

/// The ring is emptied as often as the daemon does.
const POLL: Duration = Duration::from_millis(100);
/// The first syncs of each thread and file are told with names, which the later ones are not.
const WARM_UP: Duration = Duration::from_millis(300);

/// What was measured; the object that `--json` prints. Times in ns as the kernel counts them, net = without the floor.
#[derive(Debug, Serialize)]
pub struct Cost {
    pub seconds: f64,
    /// Syncs of the whole host that were told in this time.
    pub syncs: u64,
    pub floors: Vec<FloorRow>,
    /// Those that ran, the dearest first.
    pub programs: Vec<ProgramRow>,
    /// `None` without syncs.
    pub runs_per_sync: Option<f64>,
    pub gross_ns_per_sync: Option<f64>,
    pub net_ns_per_sync: Option<f64>,
    /// Time of all programs as a share of this time on one CPU.
    pub gross_share_of_a_cpu: f64,
}

/// A program that does nothing.
#[derive(Debug, Serialize)]
pub struct FloorRow {
    pub event: &'static str,
    pub runs: u64,
    pub ns_per_run: f64,
}

#[derive(Debug, Serialize)]
pub struct ProgramRow {
    pub program: String,
    pub runs: u64,
    pub ns_per_run: f64,
    /// Of the empty program that is nearest to it.
    pub floor_ns_per_run: f64,
    pub net_ns_per_run: f64,
    pub runs_per_sync: Option<f64>,
    pub net_ns_per_sync: Option<f64>,
    /// Instructions that the verifier walked through.
    pub verified_instructions: u32,
}

/// Measures and prints; 1 if there was no sync to measure.
pub fn cost(options: &cli::Cost) -> anyhow::Result<ExitCode> {
    let _instance = Instance::claim("cost")?;
    let kernel = Kernel::read(&Roots::default())?;
    let advice = "run it as root, or add the capability SYS_ADMIN, which counting needs";
    let _counting = probes::count_usage().map_err(|e| anyhow!("{e}; {advice}"))?;
    let mut probes = kernel.attach(&Choice::for_threshold(Duration::from_millis(10).as_nanos() as u64))?;
    probes.attach_floors()?;
    let cost = measure(&mut probes, options.time);
    drop(probes);
    let shown = if options.json { serde_json::to_string_pretty(&cost)? } else { table::of(&cost) };
    lines::print(&shown)?;
    if cost.syncs > 0 {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!(
        "fsyncscope: measuring the cost of a sync: there was none in {:.0} s; let something sync meanwhile, or give more \
         time with --for",
        cost.seconds
    );
    Ok(ExitCode::from(1))
}

fn measure(probes: &mut Probes, time: Duration) -> Cost {
    empty(probes, WARM_UP);
    let started = Instant::now();
    let before = probes.usage();
    let syncs = probes.counter(Counter::Syncs);
    empty(probes, time);
    let usage = probes.usage().into_iter().map(|usage| since(&before, usage)).collect();
    Cost::of(usage, probes.counter(Counter::Syncs) - syncs, started.elapsed())
}

/// Lets time pass and throws away what is told meanwhile.
fn empty(probes: &mut Probes, time: Duration) {
    let started = Instant::now();
    while let Some(rest) = time.checked_sub(started.elapsed()) {
        std::thread::sleep(rest.min(POLL));
        probes.poll(|_| ());
    }
}

/// A program's usage without what it had used before.
fn since(before: &[Usage], now: Usage) -> Usage {
    let Usage { name, runs, ns, instructions } = now;
    let (runs_before, ns_before) = before.iter().find(|old| old.name == name).map_or((0, 0), |old| (old.runs, old.ns));
    Usage { name, runs: runs.saturating_sub(runs_before), ns: ns.saturating_sub(ns_before), instructions }
}

impl Cost {
    fn of(usage: Vec<Usage>, syncs: u64, time: Duration) -> Self {
        let (floors, probes): (Vec<Usage>, Vec<Usage>) = usage.into_iter().partition(|usage| floor_of(usage).is_some());
        let floor_rows: Vec<FloorRow> = floors.iter().filter_map(FloorRow::of).collect();
        let mut programs: Vec<ProgramRow> = probes
            .iter()
            .filter(|usage| usage.runs > 0)
            .map(|usage| ProgramRow::of(usage, &floor_rows, syncs))
            .collect();
        programs.sort_by(|a, b| (b.net_ns_per_run * b.runs as f64).total_cmp(&(a.net_ns_per_run * a.runs as f64)));
        let gross = probes.iter().map(|usage| usage.ns).sum::<u64>() as f64;
        let net = programs.iter().map(|row| row.net_ns_per_run * row.runs as f64).sum::<f64>();
        let runs = probes.iter().map(|usage| usage.runs).sum::<u64>() as f64;
        Self {
            seconds: time.as_secs_f64(),
            syncs,
            floors: floor_rows,
            programs,
            runs_per_sync: per(runs, syncs),
            gross_ns_per_sync: per(gross, syncs),
            net_ns_per_sync: per(net, syncs),
            gross_share_of_a_cpu: gross / time.as_nanos().max(1) as f64,
        }
    }
}

fn per(amount: f64, syncs: u64) -> Option<f64> {
    (syncs > 0).then(|| amount / syncs as f64)
}

/// The floor that a program is.
fn floor_of(usage: &Usage) -> Option<&'static Floor> {
    FLOORS.iter().find(|floor| [floor.typed, floor.raw].contains(&usage.name.as_str()))
}

impl FloorRow {
    fn of(usage: &Usage) -> Option<Self> {
        let ns_per_run = usage.ns as f64 / usage.runs.max(1) as f64;
        Some(Self { event: floor_of(usage)?.event, runs: usage.runs, ns_per_run })
    }
}

impl ProgramRow {
    fn of(usage: &Usage, floors: &[FloorRow], syncs: u64) -> Self {
        let Usage { name, runs, ns, instructions } = usage;
        let ns_per_run = *ns as f64 / (*runs).max(1) as f64;
        let floor = FLOORS.iter().find(|floor| name.starts_with(floor.probes)).map_or("", |floor| floor.event);
        let floor = floors.iter().find(|row| row.event == floor).map_or(0.0, |row| row.ns_per_run);
        // On few runs chance may put an empty program above one that leaves early: that one then costs nothing.
        let net_ns_per_run = (ns_per_run - floor).max(0.0);
        Self {
            program: name.clone(),
            runs: *runs,
            ns_per_run,
            floor_ns_per_run: floor,
            net_ns_per_run,
            runs_per_sync: per(*runs as f64, syncs),
            net_ns_per_sync: per(net_ns_per_run * *runs as f64, syncs),
            verified_instructions: *instructions,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(name: &str, runs: u64, ns: u64) -> Usage {
        Usage { name: name.into(), runs, ns, instructions: 7 }
    }

    #[test]
    fn each_program_loses_the_floor_of_its_own_kind() {
        let usage = vec![
            usage("floor_switch", 100, 5_000),
            usage("floor_issue", 10, 900),
            usage("sched_switch", 100, 8_000),
            usage("block_rq_issue", 10, 2_900),
            usage("sched_waking", 10, 100),
            usage("xfs_file_fsync", 0, 0),
        ];
        let cost = Cost::of(usage, 10, Duration::from_secs(1));
        let row = |name: &str| cost.programs.iter().find(|row| row.program == name).unwrap();
        assert_eq!(row("sched_switch").net_ns_per_run, 30.0);
        assert_eq!(row("sched_switch").net_ns_per_sync, Some(300.0));
        assert_eq!(row("block_rq_issue").net_ns_per_run, 200.0);
        assert_eq!(row("sched_waking").net_ns_per_run, 0.0);
        assert_eq!(cost.programs.len(), 3);
        assert_eq!(cost.programs[0].program, "sched_switch");
        assert_eq!((cost.runs_per_sync, cost.gross_ns_per_sync), (Some(12.0), Some(1100.0)));
        assert_eq!(cost.net_ns_per_sync, Some(500.0));
        assert_eq!(Cost::of(Vec::new(), 0, Duration::from_secs(1)).runs_per_sync, None);
    }
}
