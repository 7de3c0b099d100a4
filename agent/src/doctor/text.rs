//! The report as text of at most 80 columns. It must not decide anything.

use std::fmt::Write as _;

use super::canary::{Ground, Journal, Place};
use super::{CanaryRow, CapabilityRow, Held, Kind, MissingRow, ProbeRow, ProofWord, Report, Verdict};

const COLUMNS: usize = 80;
/// Where the second column begins.
const INDENT: usize = 14;

const HINT: &str = "--canary DIRECTORY has a file of its own synced there, which whoever waits for a journal on that \
                    disk may feel";

pub fn of(report: &Report) -> String {
    let mut out = String::new();
    let path = |path: &Option<std::path::PathBuf>| path.as_ref().map_or("missing".into(), |p| p.display().to_string());
    row(&mut out, "kernel", report.kernel.as_deref().unwrap_or("unknown"));
    row(&mut out, "types", &path(&report.btf));
    row(&mut out, "lockdown", report.lockdown.unwrap_or("not told"));
    row(&mut out, "tracefs", &path(&report.tracefs));
    for (place, capability) in report.capabilities.iter().enumerate() {
        row(&mut out, if place == 0 { "capabilities" } else { "" }, &capability_words(capability));
    }
    for (place, canary) in report.canaries.iter().enumerate() {
        row(&mut out, if place == 0 { "canary" } else { "" }, &canary_words(canary));
    }
    if let Some(price) = &report.syscall_tracepoints {
        row(&mut out, "price", &price.sentence());
    }
    report.canary_problems.iter().for_each(|problem| row(&mut out, "no proof", problem));
    if !report.probes.is_empty() {
        out.push_str("\nprobe                     attached  proven\n");
        report.probes.iter().for_each(|probe| probe_rows(&mut out, probe));
        if report.probes.iter().any(|probe| probe.proof == ProofWord::Untried) {
            out.push_str(&wrapped(HINT, 0, COLUMNS));
        }
    }
    if !report.missing.is_empty() {
        out.push('\n');
        report.missing.iter().for_each(|missing| missing_rows(&mut out, missing));
    }
    // Why nothing can be traced is said once, as the error that ends the command.
    if report.verdict != Verdict::CannotTrace {
        out.push_str(&wrapped(&format!("\n{}", report.sentence), 0, COLUMNS));
    }
    out
}

fn capability_words(row: &CapabilityRow) -> String {
    let CapabilityRow { name, state, lost } = row;
    match (state, lost) {
        (Held::Present, _) => format!("{name:<17} present"),
        (Held::Unneeded, _) => format!("{name:<17} not needed here"),
        (Held::Missing, lost) => format!("{name:<17} missing: {}", lost.unwrap_or_default()),
    }
}

fn canary_words(row: &CanaryRow) -> String {
    let CanaryRow { place: Place { directory, filesystem, journal, disk, ground }, evidence } = row;
    let journal = match journal {
        Journal::Present => " with a journal",
        Journal::Absent => "",
    };
    let disk = disk.as_ref().map_or(String::new(), |disk| format!(" on {disk}"));
    let (told, made) = (evidence.told, evidence.made);
    match ground {
        Ground::Scratch => format!("on {filesystem}{journal}, in memory{disk}: {told} of {made} syncs told"),
        Ground::Asked => {
            format!("in {} ({filesystem}{journal}{disk}): {told} of {made} syncs told", directory.display())
        }
        Ground::Others => format!("none; {told} syncs of others on {filesystem} told"),
    }
}

fn probe_rows(out: &mut String, probe: &ProbeRow) {
    let ProbeRow { name, attached, proof, why, lost } = probe;
    let attached = match attached {
        Kind::Typed => "typed",
        Kind::Raw => "raw",
        Kind::Classic => "classic",
        Kind::Waiting => "waiting",
        Kind::Missing => "missing",
    };
    let word = match proof {
        ProofWord::Proven => "yes: ",
        ProofWord::Failed => "NO: ",
        ProofWord::Untried => "not tried: ",
    };
    let lost = if *proof == ProofWord::Failed || attached == "missing" { format!("; {lost}") } else { String::new() };
    let word = if attached == "missing" { "" } else { word };
    let _ = write!(out, "{name:<25} {attached:<9} ");
    out.push_str(wrapped(&format!("{word}{why}{lost}"), 36, COLUMNS).trim_start());
}

fn missing_rows(out: &mut String, missing: &MissingRow) {
    let MissingRow { what, required, felt: _, reason, lost, advice } = missing;
    let word = if *required { "required" } else { "missing" };
    row(out, word, &format!("{what}: {reason}, so {lost}; {advice}"));
}

fn row(out: &mut String, name: &str, text: &str) {
    let _ = write!(out, "{name:<INDENT$}");
    out.push_str(wrapped(text, INDENT, COLUMNS).trim_start_matches(' '));
}

/// Text in lines of so many columns, all indented, each with its end. A line's own spaces stay where it is not broken;
/// a word that is longer than a line stays whole.
pub fn wrapped(text: &str, indent: usize, columns: usize) -> String {
    let mut out = String::new();
    for paragraph in text.split('\n') {
        let mut line = " ".repeat(indent);
        for word in paragraph.split_inclusive(' ') {
            let used = line.chars().count();
            if used > indent && used + word.trim_end().chars().count() > columns {
                out.push_str(line.trim_end());
                out.push('\n');
                line = " ".repeat(indent);
            }
            line.push_str(word);
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_longer_than_asked_and_no_word_is_lost() {
        let text = "a  column and some words that go on, and a/path/that/is/longer/than/one/line at the end";
        let lines = wrapped(text, 2, 24);
        assert!(lines.starts_with("  a  column and some\n  words"), "{lines}");
        let long = lines.lines().filter(|line| line.len() > 24).collect::<Vec<_>>();
        assert_eq!(long, ["  a/path/that/is/longer/than/one/line"]);
        assert_eq!(lines.split_whitespace().collect::<Vec<_>>(), text.split_whitespace().collect::<Vec<_>>());
    }
}
