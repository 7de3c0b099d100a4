//! The journal's commit was held by another task's running operation, had to write other files' data first, or was large.
//!
//! Required: a commit whose locking phase (handles of running operations), flushing phase (ordered data) or logging phase
//! (a large log) lies in the sync for at least half of it. A log is large from [`LARGE_BLOCKS`] on: a sync by itself
//! changes a few blocks of metadata. Excluded: time in which the journal thread was not scheduled; of a large log, waits
//! for other files' data, a commit that took much longer than so many blocks usually take there, which is the disk's
//! doing, and one whose requests stood in a crowd.

use super::case::{Case, ms};
use super::cause::{Confidence, Finding};
use super::neighbours;
use crate::event::{Commit, Commits, Wait};
use fsyncscope_ebpf::part::Part;

/// Blocks of a log that is large.
const LARGE_BLOCKS: u32 = 64;
/// Commits that must have been seen before, to know what is usual.
const COMMITS_MIN: u64 = 32;
/// So many times the usual time of a block of the log, and it is not the number of blocks that made it slow.
const SLOWER: u128 = 4;

pub fn consider(case: &Case) -> Option<Finding> {
    let held: u64 = case.sync.commits.iter().map(|commit| inside(case, commit.locking_ns, commit.flushing_ns)).sum();
    let flushed: u64 = case.sync.commits.iter().map(|commit| ordered_ns(case, commit)).sum();
    let unscheduled = case.ns(&["journal_run_queue", "journal_preempted"]);
    let budget = case.sync.event.hands[Part::Journal as usize].saturating_sub(unscheduled);
    // Of the locking phase, only what the journal thread waited for a task that then woke it.
    let handles = case.sync.event.journal_hands[Part::Task as usize];
    let held = held.min(handles).min(budget);
    let logged: u64 = large(case).map(|commit| log_ns(case, commit)).sum::<u64>().min(budget);
    if logged > held.max(flushed) {
        by_size(case, logged)
    } else if held >= flushed {
        by_handle(case, held)
    } else {
        by_data(case, flushed.min(budget))
    }
}

/// Commits whose log was large, and not slower than such a log is there.
fn large<'a>(case: &'a Case) -> impl Iterator<Item = &'a Commit> {
    case.sync.commits.iter().filter(|commit| commit.blocks >= LARGE_BLOCKS && commit.logging_ns != 0).filter(|commit| {
        let Commits { count, blocks, logging_ns } = commit.before;
        let took = u128::from(commit.end_ns.saturating_sub(commit.logging_ns));
        let usual = u128::from(logging_ns) * u128::from(commit.blocks);
        count >= COMMITS_MIN && took * u128::from(blocks) <= usual * SLOWER
    })
}

/// Time of a log inside the sync, without waits for other files' data.
fn log_ns(case: &Case, commit: &Commit) -> u64 {
    inside(case, commit.logging_ns, commit.end_ns).saturating_sub(data_in_log_ns(case, commit))
}

/// Much metadata was changed since the commit before.
fn by_size(case: &Case, explained_ns: u64) -> Option<Finding> {
    let commit = large(case).max_by_key(|commit| commit.blocks)?;
    if neighbours::on_disk(case, case.sync.disk.dev).crowd() {
        return None;
    }
    let Commits { count, blocks, .. } = commit.before;
    let usual = blocks as f64 / count.max(1) as f64;
    Some(Finding {
        explained_ns,
        confidence: Confidence::Likely,
        // Who changed metadata is not seen.
        culprit: None,
        evidence: vec![format!(
            "the commit was large: {} blocks of log, of {} operations, written in {}; the {count} before it had {usual:.0} on average; who made the changes is not seen",
            commit.blocks,
            commit.operations,
            ms(explained_ns)
        )],
        row: None,
    })
}

/// Another task's operation kept the transaction from closing; it then woke the journal thread.
fn by_handle(case: &Case, explained_ns: u64) -> Option<Finding> {
    if explained_ns == 0 {
        return None;
    }
    let waits = case
        .sync
        .journal_waits
        .iter()
        .filter(|wait| wait.request.is_none() && wait.function == 0 && wait.waker_tid != 0)
        .filter(|wait| case.sync.commits.iter().any(|commit| is_locking(commit, wait)));
    let holder = waits.max_by_key(|wait| wait.end_ns.saturating_sub(wait.start_ns))?;
    Some(Finding {
        explained_ns,
        confidence: Confidence::Likely,
        culprit: Some(neighbours::task(case, holder.waker_tid, &holder.waker, " held a handle of the transaction")),
        evidence: vec![format!("the commit waited {} for operations that were still running", ms(explained_ns))],
        row: None,
    })
}

/// Whether the journal thread waited so while it closed the transaction.
fn is_locking(commit: &Commit, wait: &Wait) -> bool {
    commit.locking_ns != 0 && wait.start_ns < commit.flushing_ns && commit.locking_ns < wait.end_ns
}

/// Data of other files had to be written before the log.
fn by_data(case: &Case, explained_ns: u64) -> Option<Finding> {
    let crowd = neighbours::on_disk(case, case.sync.disk.dev);
    if explained_ns == 0 || crowd.foreign_requests == 0 {
        return None;
    }
    Some(Finding {
        explained_ns,
        confidence: Confidence::Likely,
        culprit: crowd.culprit.clone(),
        evidence: vec![
            format!("the commit spent {} on data of other files that must be written first", ms(explained_ns)),
            crowd.sentence(&case.sync.disk.name),
        ],
        row: None,
    })
}

/// Time between submitting ordered data and the first write of the log, as far as another file's data is concerned:
/// the flushing phase, and the waits for other files' data at the start of the logging phase.
fn ordered_ns(case: &Case, commit: &Commit) -> u64 {
    inside(case, commit.flushing_ns, commit.logging_ns) + data_in_log_ns(case, commit)
}

/// Waits for other files' data at the start of the logging phase.
fn data_in_log_ns(case: &Case, commit: &Commit) -> u64 {
    let event = &case.sync.event;
    let of_others = case.sync.journal_waits.iter().filter(|wait| {
        wait.start_ns >= commit.start_ns
            && wait.end_ns <= commit.end_ns
            && wait.request.as_ref().is_some_and(|request| {
                request.inode != 0 && request.inode_dev == event.dev && request.inode != event.inode
            })
    });
    of_others.map(|wait| inside(case, wait.start_ns.max(commit.logging_ns), wait.end_ns)).sum()
}

fn inside(case: &Case, from: u64, until: u64) -> u64 {
    if from == 0 {
        return 0;
    }
    until.min(case.sync.event.end_ns).saturating_sub(from.max(case.sync.event.start_ns))
}
