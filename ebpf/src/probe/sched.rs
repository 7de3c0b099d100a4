//! The scheduler's events: where each watched task's time goes, and what ended each of its waits.

use fsyncscope_ebpf::event::{DelayRecord, End, Header, Kind};
use fsyncscope_ebpf::layout::ABSENT;
use fsyncscope_ebpf::part::{BLOCKED, Part};
use fsyncscope_ebpf::settings::Counter;
use fsyncscope_ebpf::slot::{Role, Slot, Stage};

use super::clock::{elapse, snapshot};
use super::maps::{emit, gate, slot};
use super::memory::{Arguments, Memory, Object, field, now_ns, offset, load, peek, setting};
use super::{link, sync};

/// A CPU goes from one task to another. Two tasks that are not watched leave after two loads and one test.
#[inline(always)]
pub fn switched<M: Memory>(context: &impl Arguments) {
    let previous: Object = context.argument(1);
    let next: Object = context.argument(2);
    let previous_tid = field!(M, previous, task_pid: u32);
    let next_tid = field!(M, next, task_pid: u32);
    let out = gate(previous_tid);
    let into = gate(next_tid);
    if out | into == 0 {
        return;
    }
    let now = now_ns();
    if out != 0 && let Some(slot) = slot(out) && slot.tid == previous_tid {
        let preempted: u32 = context.argument::<u32>(0) & 1;
        let state: u64 = if setting!(switch_has_state: u32) != 0 {
            context.argument::<u32>(3) as u64
        } else if offset!(task_state) != ABSENT {
            peek!(previous, task_state: u32) as u64
        } else {
            peek!(previous, task_state_before_5_14: u64)
        };
        switched_out::<M>(out, slot, now, preempted != 0 || state == 0);
    }
    if into != 0 && let Some(slot) = slot(into) && slot.tid == next_tid {
        switched_in(into, slot, now, previous, next);
    }
}

#[inline(always)]
fn switched_out<M: Memory>(index: u32, slot: &mut Slot, now: u64, runnable: bool) {
    let class = if runnable { Part::Preempted as u32 } else { BLOCKED };
    if slot.role == Role::Sync as u32 {
        if slot.stage == Stage::Outside as u32 {
            return;
        }
        if has_left::<M>(slot) {
            if slot.stage == Stage::Returning as u32 {
                sync::send(index, slot, 0);
            } else {
                sync::end_unseen(index, slot, now);
            }
            return;
        }
    }
    elapse(slot, now, Part::Unlinked);
    slot.class = class;
    slot.switches += 1;
    if class != BLOCKED {
        return;
    }
    slot.ended = 0;
    if slot.stage == Stage::Inside as u32
        && let Some(filesystem) = sync::filesystem(slot.filesystem)
        && filesystem.journal != 0
        && filesystem.dev == slot.dev
    {
        snapshot(slot, filesystem.journal, now);
    }
}

/// Whether the thread is no longer in the system call of its sync: what it does now is none of the sync's time.
#[inline(always)]
fn has_left<M: Memory>(slot: &Slot) -> bool {
    if slot.stage == Stage::Inside as u32 && slot.end == End::Event as u32 {
        return false;
    }
    if setting!(has_registers: u32) == 0 {
        return true;
    }
    sync::syscall::<M>() != slot.syscall
}

#[inline(always)]
fn switched_in(index: u32, slot: &mut Slot, now: u64, previous: Object, next: Object) {
    if slot.role == Role::Sync as u32 && slot.stage == Stage::Outside as u32 {
        return;
    }
    let since = slot.since_ns;
    let class = slot.class;
    // Blocked and never seen waking: nothing links this wait.
    elapse(slot, now, Part::Unlinked);
    slot.class = Part::OnCpu as u32;
    slot.running_ns = now;
    if class != BLOCKED && class != Part::OnCpu as u32 && now - since >= setting!(detail_ns: u64) {
        tell_delay(index, slot, since, now, class, previous, next);
    }
}

/// Tells a long run-queue delay with the task that ran just before.
///
/// The scheduler stamps each task's last arrival on a CPU and its last queueing on one clock: their difference says
/// for how much of the delay that task surely ran.
#[inline(always)]
fn tell_delay(index: u32, slot: &Slot, since: u64, now: u64, class: u32, previous: Object, next: Object) {
    let header = Header { kind: Kind::Delay as u32, slot: index, time_ns: now };
    emit::<DelayRecord>(header, Counter::LostDetail, |record| {
        let occupant_tid = peek!(previous, task_pid: u32);
        // SAFETY: the record is reserved ring memory; every field is written.
        unsafe {
            (&raw mut (*record).start_ns).write(since);
            (&raw mut (*record).tid).write(slot.tid);
            (&raw mut (*record).tgid).write(slot.tgid);
            (&raw mut (*record).cpu).write(aya_ebpf::helpers::generated::bpf_get_smp_processor_id());
            (&raw mut (*record).part).write(class);
            (&raw mut (*record).occupant_tid).write(occupant_tid);
            (&raw mut (*record).occupant_tgid).write(peek!(previous, task_tgid: u32));
            (&raw mut (*record).occupant_policy).write(peek!(previous, task_policy: u32));
            (&raw mut (*record).occupant_priority).write(peek!(previous, task_prio: u32));
            (&raw mut (*record).occupant_ns).write(occupancy(previous, next, now - since));
            (&raw mut (*record).occupant).write(peek!(previous, task_comm: [u8; 16]));
        }
    });
}

#[inline(always)]
fn occupancy(previous: Object, next: Object, delay: u64) -> u64 {
    if offset!(task_sched_info) == ABSENT || offset!(sched_info_arrival) == ABSENT || offset!(sched_info_queued) == ABSENT {
        return 0;
    }
    let info = offset!(task_sched_info) as usize;
    let arrived: u64 = load(previous.wrapping_add(info), offset!(sched_info_arrival));
    let queued: u64 = load(next.wrapping_add(info), offset!(sched_info_queued));
    if arrived == 0 || queued == 0 {
        return 0;
    }
    delay.saturating_sub(arrived.saturating_sub(queued))
}

/// A task is being woken. One that is not watched leaves after one load and one test.
#[inline(always)]
pub fn woken<M: Memory>(task: Object) {
    let tid = field!(M, task, task_pid: u32);
    let index = gate(tid);
    if index == 0 {
        return;
    }
    let Some(slot) = slot(index) else { return };
    if slot.tid != tid || slot.class != BLOCKED {
        return;
    }
    let role = slot.role;
    if role == Role::Sync as u32 && slot.stage == Stage::Outside as u32 {
        return;
    }
    let now = now_ns();
    if role == Role::Worker as u32 || slot.stage == Stage::Returning as u32 {
        elapse(slot, now, Part::Unlinked);
    } else {
        link::explain::<M>(index, slot, now, task);
        slot.since_ns = now;
    }
    slot.class = Part::RunQueue as u32;
    slot.woken_ns = now;
}
