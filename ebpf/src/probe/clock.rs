//! A watched task's clock: at each of its transitions, the time since the last one goes to exactly one hand.
//!
//! Architecture invariant: `advance` and `finish` together hand out all of `[since, now]`, whatever the stamps say, so
//! that the hands of a sync sum to its wall time.

use fsyncscope_ebpf::part::{BLOCKED, Hands, Part};
use fsyncscope_ebpf::settings::Counter;
use fsyncscope_ebpf::slot::{Slot, Stage};

use super::maps::{count, slot};

/// Hands out a wait piece by piece, in the order of time.
pub struct Cut {
    pub hands: *mut Hands,
    /// Everything before this is handed out.
    pub reached_ns: u64,
    pub end_ns: u64,
}

impl Cut {
    /// Gives the time up to `until_ns` to a part; a stamp before what is reached, or 0, gives nothing.
    #[inline(always)]
    pub fn advance(&mut self, until_ns: u64, part: Part) {
        let until_ns = if until_ns > self.end_ns { self.end_ns } else { until_ns };
        if until_ns > self.reached_ns {
            // SAFETY: the hands belong to a slot, which outlives the cut; nothing else refers to them meanwhile.
            unsafe { (*self.hands)[part as usize] += until_ns - self.reached_ns };
            self.reached_ns = until_ns;
        }
    }
    /// Gives the time until something was given to the driver to a part, but for the time in which the worker that gave it
    /// was ready and did not run.
    #[inline(always)]
    pub fn advance_to_issue(&mut self, issued_ns: u64, part: Part, woken_ns: u64, running_ns: u64) {
        if running_ns <= issued_ns {
            self.advance(woken_ns, part);
            self.advance(running_ns, Part::WorkerRunQueue);
        }
        self.advance(issued_ns, part);
    }
    /// Gives the rest to a part.
    #[inline(always)]
    pub fn finish(&mut self, part: Part) {
        self.advance(self.end_ns, part);
    }
}

/// Gives the time since the last transition to the running part, or to `blocked` if the task was blocked.
#[inline(always)]
pub fn elapse(slot: &mut Slot, now_ns: u64, blocked: Part) {
    let spent = now_ns.saturating_sub(slot.since_ns);
    let class = slot.class;
    slot.since_ns = now_ns;
    if slot.stage == Stage::Returning as u32 {
        let hand = if class < 3 { class as usize } else { 3 };
        slot.after[hand & 3] += spent;
        return;
    }
    let part = if class == BLOCKED { blocked as u32 } else { class };
    if (part as usize) < Part::COUNT {
        slot.hands[part as usize] += spent;
    }
}

/// Copies a journal thread's clock into a sync's snapshot, its running part included.
///
/// The copy is not atomic: when the clock moved meanwhile it is made once more, and if it moved again there is none, so
/// that this wait is a remainder.
#[inline(always)]
pub fn snapshot(sync: &mut Slot, journal: u32, now_ns: u64) {
    let Some(helper) = slot(journal) else { return };
    sync.snapshot_of = 0;
    for _ in 0..2 {
        // SAFETY: a plain map value, read anew on purpose.
        let since = unsafe { (&raw const helper.since_ns).read_volatile() };
        let class = helper.class;
        copy(&mut sync.snapshot, &helper.hands);
        let pending = now_ns.saturating_sub(since);
        sync.snapshot_blocked_ns = 0;
        if class == BLOCKED {
            sync.snapshot_blocked_ns = pending;
        } else if (class as usize) < Part::COUNT {
            sync.snapshot[class as usize] += pending;
        }
        // SAFETY: as above.
        if unsafe { (&raw const helper.since_ns).read_volatile() } == since {
            sync.snapshot_of = journal;
            return;
        }
    }
    count(Counter::Torn);
}

/// Adds the journal thread's clock difference since the snapshot to a sync that this thread now wakes.
#[inline(always)]
pub fn add_difference(sync: &mut Slot, helper: &Slot, now_ns: u64) {
    // What the journal thread had been blocked for before the snapshot comes back in its hands as a whole: it is taken
    // off in the order in which a wait is cut.
    let mut excess = sync.snapshot_blocked_ns;
    macro_rules! hands {
        ($($part:ident),*) => { $({
            let gained = gained(helper, sync, Part::$part);
            let off = if excess < gained { excess } else { gained };
            excess -= off;
            sync.journal_hands[Part::$part as usize] += gained - off;
        })* };
    }
    hands!(
        Idle,
        BeforeSubmit,
        FlushQueue,
        FlushDevice,
        Queue,
        Device,
        Task,
        Writeback,
        Unlinked,
        WorkerWait,
        WorkerRunQueue,
        Worker,
        Completion
    );
    sync.journal_hands[Part::OnCpu as usize] +=
        gained(helper, sync, Part::OnCpu) + now_ns.saturating_sub(helper.since_ns);
    sync.journal_hands[Part::Preempted as usize] += gained(helper, sync, Part::Preempted);
    sync.journal_hands[Part::RunQueue as usize] += gained(helper, sync, Part::RunQueue);
    if excess != 0 {
        count(Counter::Torn);
    }
}

#[inline(always)]
fn gained(helper: &Slot, sync: &Slot, part: Part) -> u64 {
    helper.hands[part as usize].saturating_sub(sync.snapshot[part as usize])
}

/// Copies hands word by word: the compiler must not call a memcpy that the target lacks.
#[inline(always)]
pub fn copy(to: &mut Hands, from: &Hands) {
    for hand in 0..Part::COUNT {
        // SAFETY: both are in bounds; volatile keeps the loop from becoming a call.
        unsafe { to.as_mut_ptr().add(hand).write_volatile(from.as_ptr().add(hand).read_volatile()) };
    }
}
