//! The block that a person reads: rows that sum to 100 %, the culprit under its row, the verdict as a sentence.

use std::fmt::Write;

use super::OpenSync;
use crate::attribution::{Breakdown, Cause, Confidence, Explanation, Row};
use crate::timeline::Sync;

/// Of a terminal.
const COLUMNS: usize = 80;
const WIDTH: usize = 76;
const TITLE: usize = 48;
/// Rows below this fraction are shown as one.
const SMALL: u64 = 1000;
const FOLDED: &str = "everything else, each under 0.1 %";

/// A slow sync.
pub fn block(explanation: &Explanation, unix_offset_ns: i64) -> String {
    let Explanation { sync, breakdown, verdict } = explanation;
    let mut out = head(sync, unix_offset_ns, "");
    rows(&mut out, breakdown);
    after(&mut out, sync);
    let culprit = verdict.culprit.as_ref().map(|culprit| format!(": {}", culprit.text)).unwrap_or_default();
    let sure = match verdict.confidence {
        Confidence::Unknown => String::new(),
        other => format!(" ({})", other.word()),
    };
    wrap(&mut out, "  verdict  ", &format!("{}{sure}: {}{culprit}", verdict.cause.word(), sentence(verdict.cause)));
    for fact in &verdict.evidence {
        wrap(&mut out, "  because  ", fact);
    }
    out
}

/// A sync that still runs.
pub fn open_block(open: &OpenSync, unix_offset_ns: i64) -> String {
    let mut out = head(&open.sync, unix_offset_ns, "STILL OPEN ");
    for fact in &open.evidence {
        wrap(&mut out, "  now      ", fact);
    }
    out
}

fn head(sync: &Sync, unix_offset_ns: i64, state: &str) -> String {
    let event = &sync.event;
    let mut out = String::new();
    let milliseconds = ((sync.duration_ns() + 500) / 1000) as f64 / 1e3;
    let who =
        if sync.process == event.thread { sync.process.clone() } else { format!("{} {}", sync.process, event.thread) };
    let through = event.asked.as_ref().map(|asked| format!(" through {}", asked.through.word())).unwrap_or_default();
    let line = format!("{state}{milliseconds:.3} ms  {}{through}  {who}", sync.operation);
    let numbers = format!("(pid {}, tid {})", event.pid, event.tid);
    let fits = line.chars().count() + 1 + numbers.len() <= COLUMNS;
    let _ = writeln!(out, "{line}{}{numbers}", if fits { " " } else { "\n  " });
    if sync.operation.is_of_files() {
        let path = sync.file.path.as_deref().unwrap_or("path not known");
        let kind = if event.directory { "directory, " } else { "" };
        wrap(&mut out, "  file     ", &format!("{path} ({kind}inode {})", sync.file.inode));
    }
    let on: Vec<&str> = sync.lower.iter().map(|disk| disk.name.as_str()).collect();
    let stacked = if on.is_empty() { String::new() } else { format!(", on {}", on.join(", ")) };
    let _ = writeln!(out, "  device   {}{stacked}", sync.disk.name);
    if !sync.filesystems.is_empty() {
        let visits = sync.filesystems.iter().map(|(disk, ns)| format!("{} {:.3} ms", disk.name, *ns as f64 / 1e6));
        wrap(&mut out, "  visited  ", &visits.collect::<Vec<_>>().join(", "));
    }
    let _ = writeln!(out, "  began    {}", utc((event.start_ns as i64).saturating_add(unix_offset_ns)));
    if let Some(error) = sync.error() {
        let _ = writeln!(out, "  failed   {}", super::errno_name(error));
    }
    out
}

fn rows(out: &mut String, breakdown: &Breakdown) {
    let whole_us = (breakdown.whole_ns + 500) / 1000;
    let small = |row: &&Row| row.ns.saturating_mul(SMALL) < breakdown.whole_ns && row.culprit.is_none();
    let (small, mut shown): (Vec<&Row>, Vec<&Row>) = breakdown.rows.iter().partition(small);
    let folded = Row { name: "", title: FOLDED, ns: small.iter().map(|row| row.ns).sum(), note: None, culprit: None };
    match small.as_slice() {
        [] => {}
        [only] => shown.push(only),
        _ => shown.push(&folded),
    }
    let values: Vec<u64> = shown.iter().map(|row| row.ns).collect();
    let (microseconds, tenths) = (apportion(&values, whole_us), apportion(&values, 1000));
    for ((row, us), tenths) in shown.iter().zip(&microseconds).zip(&tenths) {
        line(out, row.title, *us, *tenths);
        if let Some(note) = &row.note {
            wrap(out, "      ", note);
        }
        if let Some(culprit) = &row.culprit {
            wrap(out, "      <- ", culprit);
        }
    }
    line(out, "whole", whole_us, 1000);
}

fn line(out: &mut String, title: &str, us: u64, tenths: u64) {
    let _ = writeln!(out, "  {title:<TITLE$}{:>12.3} ms{:>7.1} %", us as f64 / 1e3, tenths as f64 / 10.0);
}

fn after(out: &mut String, sync: &Sync) {
    let tail = sync.event.return_ns.saturating_sub(sync.event.end_ns);
    if sync.event.return_ns != 0 && tail >= 100_000 {
        let _ = writeln!(out, "  then {:.3} ms until it was back in user mode", tail as f64 / 1e6);
    }
}

/// Divides a total in proportion to values, in whole units that sum to it: the largest remainders are rounded up.
fn apportion(values: &[u64], total: u64) -> Vec<u64> {
    let sum: u128 = values.iter().map(|value| u128::from(*value)).sum();
    if sum == 0 {
        return vec![0; values.len()];
    }
    let exact = |value: &u64| u128::from(*value) * u128::from(total);
    let mut shares: Vec<u64> = values.iter().map(|value| (exact(value) / sum) as u64).collect();
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(exact(&values[*index]) % sum));
    let missing = total - shares.iter().sum::<u64>();
    for index in order.into_iter().take(missing as usize) {
        shares[index] += 1;
    }
    shares
}

fn sentence(cause: Cause) -> &'static str {
    match cause {
        Cause::DeviceSlow => "the device was slow",
        Cause::QueueBehind => "its requests stood behind another's",
        Cause::Throttled => "a limit held its requests back",
        Cause::FlusherWriteback => "its pages were under writeback by the flusher",
        Cause::JournalCommit => "the journal's commit was held up",
        Cause::HelperNotScheduled => "a kernel thread that it waited for got no CPU",
        Cause::ThreadNotScheduled => "the thread itself got no CPU",
        Cause::SharedLowerDevice => "the disk below was busy with others",
        Cause::Unknown => "no cause has the evidence that it needs",
    }
}

/// A line with a label, broken between words at the width of a terminal.
pub(super) fn wrap(out: &mut String, label: &str, text: &str) {
    let mut line = label.to_owned();
    let indent = " ".repeat(label.len());
    let mut fresh = true;
    for word in text.split(' ') {
        if !fresh && line.chars().count() + 1 + word.chars().count() > WIDTH {
            let _ = writeln!(out, "{line}");
            line.clone_from(&indent);
            fresh = true;
        }
        if !fresh {
            line.push(' ');
        }
        line.push_str(word);
        fresh = false;
    }
    let _ = writeln!(out, "{line}");
}

/// A time of day in UTC from nanoseconds since 1970, by the proleptic Gregorian calendar.
pub(super) fn utc(unix_ns: i64) -> String {
    let seconds = unix_ns.div_euclid(1_000_000_000);
    let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days are counted from 1 March of the year 0, so that a leap day is the last of its year.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let micro = unix_ns.rem_euclid(1_000_000_000) / 1000;
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{micro:06} UTC")
}

#[cfg(test)]
mod tests {
    use super::{apportion, utc};

    #[test]
    fn shares_sum_to_the_total() {
        assert_eq!(apportion(&[1, 1, 1], 1000), [334, 333, 333]);
        assert_eq!(apportion(&[0, 0], 1000), [0, 0]);
        assert_eq!(apportion(&[999_999, 1], 1000), [1000, 0]);
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(utc(0), "1970-01-01 00:00:00.000000 UTC");
        assert_eq!(utc(951_782_400_123_456_789), "2000-02-29 00:00:00.123456 UTC");
        assert_eq!(utc(1_796_083_199_000_000_000), "2026-11-30 23:59:59.000000 UTC");
    }
}
