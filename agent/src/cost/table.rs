//! The measurement as a table of at most 80 columns, with a sentence for each column that needs one.

use std::fmt::Write;

use super::{Cost, FloorRow, ProgramRow};

/// Explains what the numbers are and are not.
const NOTES: &str = "\
ns/run   as the kernel counts it, with what any program costs on such an event
floor    that cost alone: an empty program beside it, in the same time; of
         block_rq_issue for block_*, of sched_switch for all others
net      ns/run - floor
insns    instructions that the kernel's verifier walked through at load
Runs are those of the whole host: switches and wake-ups of tasks that sync
nothing count too, and leave after the first test. A busy machine has more.";

pub fn of(cost: &Cost) -> String {
    let mut out = String::new();
    let Cost { seconds, syncs, floors, programs, .. } = cost;
    let _ = writeln!(out, "{syncs} syncs in {seconds:.1} s\n");
    let _ = writeln!(
        out,
        "{:<20}{:>10}{:>10}{:>8}{:>7}{:>7}{:>9}{:>7}",
        "program", "runs", "runs/sync", "ns/run", "floor", "net", "net/sync", "insns"
    );
    programs.iter().for_each(|program| program_row(&mut out, program));
    out.push('\n');
    for FloorRow { event, runs, ns_per_run } in floors {
        let _ = writeln!(out, "an empty program on {event}: {ns_per_run:.0} ns/run over {runs} runs");
    }
    totals(&mut out, cost);
    let _ = writeln!(out, "\n{NOTES}");
    out
}

fn program_row(out: &mut String, row: &ProgramRow) {
    let ProgramRow { program, runs, ns_per_run, floor_ns_per_run, net_ns_per_run, .. } = row;
    let name = program.trim_end_matches("_raw");
    let (runs_per_sync, net) = (number(row.runs_per_sync, 1), number(row.net_ns_per_sync, 0));
    let _ = writeln!(
        out,
        "{name:<20}{runs:>10}{runs_per_sync:>10}{ns_per_run:>8.0}{floor_ns_per_run:>7.0}{net_ns_per_run:>7.0}{net:>9}{:>7}",
        row.verified_instructions
    );
}

fn totals(out: &mut String, cost: &Cost) {
    if let (Some(runs), Some(gross), Some(net)) = (cost.runs_per_sync, cost.gross_ns_per_sync, cost.net_ns_per_sync) {
        let (gross, net) = (gross / 1000.0, net / 1000.0);
        let _ = writeln!(out, "each sync: {runs:.1} runs, {gross:.1} us as the kernel counts it, {net:.1} us net");
    }
    let _ = writeln!(out, "all programs: {:.2} % of one CPU", 100.0 * cost.gross_share_of_a_cpu);
}

/// A number, or a dash where there is none.
fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or("-".into(), |value| format!("{value:.decimals$}"))
}
