//! The scheduler's events: where each watched task's time goes, and what ended each of its waits.

use aya_ebpf::helpers::generated::bpf_get_smp_processor_id;
use fsyncscope_ebpf::event::{DelayRecord, End, Header, Kind};
use fsyncscope_ebpf::layout::ABSENT;
use fsyncscope_ebpf::limits::RAN;
use fsyncscope_ebpf::part::{BLOCKED, Part};
use fsyncscope_ebpf::settings::Counter;
use fsyncscope_ebpf::slot::{Door, Ran, Role, Slot, Stage};

use super::clock::{elapse, snapshot};
use super::maps::{LEFT, Leaver, add_waiting, emit, gate, slot, waiting};
use super::memory::{Arguments, Memory, Object, field, now_ns, offset, peek, setting};
use super::{asker, link, result, sync};

/// A CPU goes from one task to another. Two tasks that are not watched leave after three loads and two tests, unless a
/// watched task waits for a CPU.
#[inline(always)]
pub fn switched<M: Memory>(context: &impl Arguments) {
    let previous: Object = context.argument(1);
    let next: Object = context.argument(2);
    let previous_tid = field!(M, previous, task_pid: u32);
    let next_tid = field!(M, next, task_pid: u32);
    let out = gate(previous_tid);
    let into = gate(next_tid);
    if out | into == 0 && waiting() == 0 {
        return;
    }
    let now = now_ns();
    if waiting() != 0 {
        remember(previous, previous_tid, now);
    }
    if out != 0
        && let Some(slot) = slot(out)
        && slot.tid == previous_tid
    {
        let preempted: u32 = context.argument::<u32>(0) & 1;
        let state: u64 = if setting!(switch_has_state: u32) != 0 {
            context.argument::<u32>(3) as u64
        } else if offset!(task_state) != ABSENT {
            peek!(previous, task_state: u32) as u64
        } else {
            peek!(previous, task_state_before_5_14: u64)
        };
        switched_out(out, slot, now, preempted != 0 || state == 0);
    }
    if into != 0
        && let Some(slot) = slot(into)
        && slot.tid == next_tid
    {
        switched_in(into, slot, now);
    }
}

#[inline(always)]
fn switched_out(index: u32, slot: &mut Slot, now: u64, runnable: bool) {
    let class = if runnable { Part::Preempted as u32 } else { BLOCKED };
    if slot.role == Role::Sync as u32 {
        if slot.stage == Stage::Outside as u32 {
            return;
        }
        if has_left(slot) {
            if slot.stage == Stage::Returning as u32 {
                sync::send(index, slot, 0);
            } else {
                sync::end_unseen(index, slot, now);
            }
            return;
        }
        let by_return = slot.stage == Stage::Inside as u32 && slot.end != End::Event as u32;
        if by_return && slot.door == Door::Call as u32 && result::is_given() {
            sync::give(slot, now);
        }
    }
    elapse(slot, now, Part::Unlinked);
    slot.switches += 1;
    // SAFETY: the helper takes no argument.
    slot.cpu = unsafe { bpf_get_smp_processor_id() };
    if class != BLOCKED {
        slot.class = class;
        add_waiting(1);
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
    // Last, since a waker on another CPU acts on it.
    slot.class = class;
}

/// Whether the thread is no longer in the system call of its sync: what it does now is none of the sync's time.
#[inline(always)]
fn has_left(slot: &mut Slot) -> bool {
    if slot.stage == Stage::Inside as u32 && slot.end == End::Event as u32 {
        return false;
    }
    if slot.door != Door::Call as u32 {
        return asker::is_over(slot);
    }
    if setting!(has_registers: u32) == 0 {
        return true;
    }
    if slot.stage == Stage::Inside as u32 && slot.switches == 0 {
        return !result::is_inside(slot);
    }
    sync::syscall() != slot.syscall
}

#[inline(always)]
fn switched_in(index: u32, slot: &mut Slot, now: u64) {
    if slot.role == Role::Sync as u32 && slot.stage == Stage::Outside as u32 {
        return;
    }
    let since = slot.since_ns;
    let class = slot.class;
    // Blocked and never seen waking: nothing links this wait.
    elapse(slot, now, Part::Unlinked);
    slot.class = Part::OnCpu as u32;
    slot.running_ns = now;
    if class == BLOCKED || class == Part::OnCpu as u32 {
        return;
    }
    add_waiting(-1);
    if now - since >= setting!(detail_ns: u64) {
        tell_delay(index, slot, since, now, class);
    }
}

/// Remembers who leaves this CPU, for the watched task that waits for it.
#[inline(always)]
fn remember(previous: Object, tid: u32, now: u64) {
    let Some(left) = LEFT.get_ptr_mut(0) else { return };
    // SAFETY: this CPU's own element; the place is bounded. A volatile store keeps a typed pointer a whole word.
    unsafe {
        let place = (&raw mut (*left).ran).cast::<Leaver>().add((*left).next as usize & (RAN - 1));
        (*left).next += 1;
        (*place).until_ns = now;
        (*place).tid = tid as u64;
        (&raw mut (*place).task).cast::<Object>().write_volatile(previous);
    }
}

/// Tells a long run-queue delay with the tasks that left the CPU meanwhile.
#[inline(never)]
fn tell_delay(index: u32, slot: &Slot, since: u64, now: u64, class: u32) {
    let Some(left) = LEFT.get_ptr(0) else { return };
    let header = Header { kind: Kind::Delay as u32, slot: index, time_ns: now };
    emit::<DelayRecord>(header, Counter::LostDetail, |record| {
        // SAFETY: the record is reserved ring memory; every field is written.
        unsafe {
            (&raw mut (*record).start_ns).write(since);
            (&raw mut (*record).tid).write(slot.tid);
            (&raw mut (*record).tgid).write(slot.tgid);
            (&raw mut (*record).cpu).write(bpf_get_smp_processor_id());
            (&raw mut (*record).part).write(class);
            (&raw mut (*record).former_cpu).write(slot.cpu);
            (&raw mut (*record).unused).write(0);
            for place in 0..RAN {
                let ran = (&raw mut (*record).ran).cast::<Ran>().add(place);
                name(ran, (&raw const (*left).ran).cast::<Leaver>().add(place));
            }
        }
    });
}

/// Writes who left the CPU, with the names that the task has now: none if it has ended and its memory is another's.
#[inline(always)]
fn name(ran: *mut Ran, leaver: *const Leaver) {
    // SAFETY: both are places of whole arrays; every field is written.
    unsafe {
        let Leaver { until_ns, tid, task } = *leaver;
        let task = task as Object;
        let known = peek!(task, task_pid: u32) as u64 == tid;
        (*ran).until_ns = until_ns;
        (*ran).tid = tid as u32;
        (*ran).tgid = if known { peek!(task, task_tgid: u32) } else { 0 };
        (*ran).comm = if known { peek!(task, task_comm: [u8; 16]) } else { [0; 16] };
        (*ran).process =
            if known { peek!(peek!(task, task_group_leader: Object), task_comm: [u8; 16]) } else { [0; 16] };
    }
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
    add_waiting(1);
}
