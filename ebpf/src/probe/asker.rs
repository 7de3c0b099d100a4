//! Whose a sync is where a worker does it for another task: io_uring's and Linux AIO's, and since when it is wanted.

use fsyncscope_ebpf::layout::ABSENT;
use fsyncscope_ebpf::slot::{Asker, Door, Role, Slot};

use super::maps::ASKED;
use super::memory::{Memory, Object, Probed, current_tid, field, function, now_ns, offset, peek, setting};
use super::sync::PF_KTHREAD;

/// An io_uring worker, a thread of the process that asked. The same on all kernels that have them.
pub const PF_IO_WORKER: u32 = 0x10;
/// `IORING_OP_FSYNC`.
const OP_FSYNC: u8 = 3;
/// `IORING_FSYNC_DATASYNC`.
const FSYNC_DATASYNC: u32 = 1;

/// io_uring hands a request to its workers, in the context of who asked.
#[inline(always)]
pub fn queued_by_io_uring<M: Memory>(request: Object) {
    if setting!(async_has_request: u32) == 0 || field!(M, request, io_request_opcode: u8) != OP_FSYNC {
        return;
    }
    note::<M>(M::address(request));
}

/// A kernel worker is given work, in the context of who asked.
#[inline(always)]
pub fn queued_as_work<M: Memory>(work: Object) {
    let function = field!(M, work, work_function: u64);
    if function != 0 && function == function!(aio_sync) {
        note::<M>(M::address(work));
    }
}

#[inline(always)]
fn note<M: Memory>(address: u64) {
    let asker = Asker {
        tid: current_tid(),
        tgid: field!(M, M::current(), task_tgid: u32),
        asked_ns: now_ns(),
        comm: aya_ebpf::helpers::bpf_get_current_comm().unwrap_or_default(),
        process: process(M::current()),
        ..Asker::default()
    };
    let _ = ASKED.insert(&address, &asker, 0);
}

/// Name of a task's process.
#[inline(always)]
fn process(task: Object) -> [u8; 16] {
    peek!(peek!(task, task_group_leader: Object), task_comm: [u8; 16])
}

/// The task that an io_uring worker works for; any other task itself.
#[inline(always)]
pub fn master(task: Object) -> Object {
    if peek!(task, task_flags: u32) & (PF_IO_WORKER | PF_KTHREAD) != PF_IO_WORKER {
        return task;
    }
    let worker = io_worker(task);
    let asker = peek!(io_queue(worker), io_queue_task: Object);
    if worker.is_null() || asker.is_null() { task } else { asker }
}

/// What io_uring keeps of one of its workers, null where this kernel does not show it.
#[inline(always)]
fn io_worker(task: Object) -> Object {
    let known = offset!(task_worker_private) != ABSENT
        && offset!(io_worker_work) != ABSENT
        && (offset!(io_worker_queue) != ABSENT || has_node())
        && offset!(io_queue_task) != ABSENT;
    if known { peek!(task, task_worker_private: Object) } else { core::ptr::null() }
}

/// The queue that a worker of io_uring's serves: known to itself, or to what it keeps of its NUMA node.
#[inline(always)]
fn io_queue(worker: Object) -> Object {
    if has_node() {
        return peek!(peek!(worker, io_worker_node: Object), io_node_queue: Object);
    }
    peek!(worker, io_worker_queue: Object)
}

#[inline(always)]
fn has_node() -> bool {
    offset!(io_worker_node) != ABSENT && offset!(io_node_queue) != ABSENT
}

/// What a kernel worker does now.
#[inline(always)]
fn kernel_work(task: Object) -> (u64, u64) {
    let worker = peek!(peek!(task, task_worker_private: Object), kthread_data: Object);
    (peek!(worker, worker_function: u64), peek!(worker, worker_work: u64))
}

/// Whether a kernel thread does a sync that was asked for through Linux AIO.
#[inline(always)]
pub fn does_aio(task: Object) -> bool {
    let known = offset!(task_worker_private) != ABSENT && offset!(worker_work) != ABSENT;
    known && function!(aio_sync) != 0 && kernel_work(task).0 == function!(aio_sync)
}

/// Notes who asked for the sync that begins in an io_uring worker.
#[inline(never)]
pub fn credit_io_uring(slot: &mut Slot, task: Object) -> u32 {
    let asker = master(task);
    let work = peek!(io_worker(task), io_worker_work: u64);
    let request = work.wrapping_sub(offset!(io_request_work) as u64);
    let opcode = peek!(request as Object, io_request_opcode: u8);
    slot.door = Door::IoUring as u32;
    slot.asker = Asker { door: slot.door, ..Asker::default() };
    slot.asker.opcode = opcode as u32;
    slot.asker.tid = peek!(asker, task_pid: u32);
    slot.asker.tgid = peek!(asker, task_tgid: u32);
    slot.asker.comm = peek!(asker, task_comm: [u8; 16]);
    slot.asker.process = process(asker);
    slot.asker.work = work;
    if opcode == OP_FSYNC {
        // Not every filesystem's event says it.
        if offset!(io_request_command) != ABSENT && offset!(io_sync_flags) != ABSENT {
            let command = (request as Object).wrapping_add(offset!(io_request_command) as usize);
            slot.datasync = peek!(command, io_sync_flags: u32) & FSYNC_DATASYNC;
        }
        slot.asker.asked_ns = taken(request).map_or(0, |asked| asked.asked_ns);
    }
    0
}

/// Notes who asked for the sync that begins in a kernel worker, which is a syncing thread for as long as that takes.
#[inline(never)]
pub fn credit_aio(slot: &mut Slot, task: Object) -> u32 {
    let (_, work) = kernel_work(task);
    let asked = taken(work);
    slot.asker = asked.unwrap_or_default();
    slot.door = Door::Aio as u32;
    slot.asker.door = slot.door;
    slot.asker.work = work;
    if offset!(aio_work) != ABSENT && offset!(aio_datasync) != ABSENT {
        let request = work.wrapping_sub(offset!(aio_work) as u64) as Object;
        slot.datasync = peek!(request, aio_datasync: u8) as u32;
    }
    slot.role = Role::Sync as u32;
    0
}

#[inline(always)]
fn taken(address: u64) -> Option<Asker> {
    // SAFETY: entries are written whole, before the work begins.
    let asked = unsafe { ASKED.get(&address) }.copied();
    if asked.is_some() {
        let _ = ASKED.remove(&address);
    }
    asked
}

/// Whether the worker that is the current task has done with the sync that its slot is in.
#[inline(always)]
pub fn is_over(slot: &Slot) -> bool {
    // Not typed: kernels before 5.11 have no typed current task, and this is part of a probe that they load typed.
    let task = Probed::current();
    let work =
        if slot.door == Door::Aio as u32 { kernel_work(task).1 } else { peek!(io_worker(task), io_worker_work: u64) };
    work != slot.asker.work
}
