//! The journal thread's commits: who it is, when it works, and in which phase it is.

use fsyncscope_ebpf::event::{CommitRecord, Header, Kind};
use fsyncscope_ebpf::layout::ABSENT;
use fsyncscope_ebpf::settings::Counter;
use fsyncscope_ebpf::slot::{Commits, Role};

use super::maps::{emit, slot_of};
use super::memory::{Memory, Object, current_tid, now_ns, offset, peek, setting};
use super::{names, sync};

/// Phases of a commit that have an event of their own, in their order.
#[derive(Clone, Copy)]
pub enum Phase {
    /// Waiting for the handles of running operations.
    Locking = 1,
    /// Writing the data of other files that must go first.
    Flushing = 2,
    /// Writing the log.
    Logging = 3,
}

/// A commit begins in the current task, which thereby is known as its filesystem's journal thread.
#[inline(always)]
pub fn started<M: Memory>(journal: Object, transaction: Object) {
    if offset!(journal_fs_device) == ABSENT {
        return;
    }
    let dev = peek!(peek!(journal, journal_fs_device: Object), block_device_dev: u32);
    let Some((index, slot)) = names::watch(M::current(), current_tid(), Role::Journal) else { return };
    if slot.role == Role::Worker as u32 {
        // It was seen to complete a request before it was seen to commit.
        slot.role = Role::Journal as u32;
        slot.told = 0;
    }
    if slot.role != Role::Journal as u32 {
        return;
    }
    names::tell_once(M::current(), index, slot);
    let now = now_ns();
    slot.committing = 1;
    slot.ended = 0;
    slot.phases = [now, 0, 0, 0];
    slot.reason = if offset!(transaction_number) != ABSENT { peek!(transaction, transaction_number: u32) } else { 0 };
    if slot.dev == dev
        && slot.disk != 0
        && sync::filesystem(slot.filesystem).is_some_and(|known| known.journal == index)
    {
        return;
    }
    let place = sync::filesystem_index(dev);
    let Some(known) = sync::filesystem(place) else { return };
    if known.dev != dev {
        // Nobody has synced it yet: its journal waits to be found until then.
        return;
    }
    known.journal = index;
    let (_, log_disk) = sync::watch_disk(peek!(journal, journal_device: Object));
    known.log_disk = log_disk;
    slot.dev = dev;
    slot.filesystem = place;
    slot.disk = known.disk;
    slot.log_disk = log_disk;
}

/// A commit enters a phase.
#[inline(always)]
pub fn entered(phase: Phase) {
    if let Some((_, slot)) = slot_of(current_tid())
        && slot.role == Role::Journal as u32
    {
        slot.phases[phase as usize] = now_ns();
    }
}

/// A commit ends; the wake-ups that follow are of those who waited for it.
#[inline(always)]
pub fn ended(journal: Object, transaction: Object) {
    let Some((index, slot)) = slot_of(current_tid()) else { return };
    if slot.role != Role::Journal as u32 {
        return;
    }
    slot.committing = 0;
    slot.ended = 1;
    let now = now_ns();
    let blocks = blocks_logged(journal, transaction);
    let before = slot.commits;
    slot.commits = Commits {
        count: before.count + 1,
        blocks: before.blocks + blocks,
        logging_ns: before.logging_ns + (now - slot.phases[Phase::Logging as usize].max(slot.phases[0])),
    };
    if now - slot.phases[0] < setting!(detail_ns: u64) {
        return;
    }
    let counted = offset!(transaction_operations) != ABSENT;
    let operations = if counted { peek!(transaction, transaction_operations: u32) } else { 0 };
    let header = Header { kind: Kind::Commit as u32, slot: index, time_ns: now };
    emit::<CommitRecord>(header, Counter::LostDetail, |record| {
        // SAFETY: the record is reserved ring memory; every field is written.
        unsafe {
            (&raw mut (*record).tid).write(slot.tid);
            (&raw mut (*record).transaction).write(slot.reason);
            (&raw mut (*record).dev).write(slot.dev);
            (&raw mut (*record).tgid).write(slot.tgid);
            (&raw mut (*record).phases).write(slot.phases);
            (&raw mut (*record).blocks).write(blocks as u32);
            (&raw mut (*record).operations).write(operations);
            (&raw mut (*record).before).write(before);
        }
    });
}

/// Blocks of the log that a commit wrote: only the journal thread moves the log's head, and it goes round.
#[inline(always)]
fn blocks_logged(journal: Object, transaction: Object) -> u64 {
    let known = [offset!(journal_head), offset!(journal_first), offset!(journal_last), offset!(transaction_log_start)];
    if known.contains(&ABSENT) {
        return 0;
    }
    let (from, until) = (peek!(transaction, transaction_log_start: u64), peek!(journal, journal_head: u64));
    if from <= until {
        return until - from;
    }
    let round = peek!(journal, journal_last: u64).wrapping_sub(peek!(journal, journal_first: u64));
    until.wrapping_add(round).wrapping_sub(from)
}
