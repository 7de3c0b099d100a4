//! Explains a wait at its end: by the request that completed on this CPU, the journal thread, or the worker that woke.

use aya_ebpf::helpers::generated::bpf_probe_read_kernel as copy_bytes;
use fsyncscope_ebpf::event::{Header, Kind, QueueRecord, WaitRecord};
use fsyncscope_ebpf::layout::ABSENT;
use fsyncscope_ebpf::limits::{COMPLETION_NS, FLUSHES, RECENT, REQUESTS, STACK};
use fsyncscope_ebpf::part::Part;
use fsyncscope_ebpf::settings::Counter;
use fsyncscope_ebpf::slot::{Disk, Flush, PREFLUSH, Request, Role, Slot, Submitter};

use super::clock::{Cut, add_difference};
use super::maps::{COMPLETED, LOWER_DISK, REQUEST, disk, emit, hands_down_to, slot_of, with_requests};
use super::memory::{Memory, Object, current_tid, field, function, offset, peek, setting};
use super::{names, sync};

pub const PF_WQ_WORKER: u32 = 0x20;
/// `REQ_FUA | REQ_PREFLUSH`, the same on all kernels that are supported.
pub const FLUSH_LEGS: u32 = 1 << 17 | PREFLUSH;
/// Completed requests that are searched for the one that a worker finished.
const SEARCHED: u64 = 8;
const NONE: *const Request = core::ptr::null();

/// What is known of the waker.
struct Waker {
    task: Object,
    tid: u32,
    /// Work function of a kernel worker, 0 for another task.
    function: u64,
}

/// What a wait was found to be.
struct Found {
    part: Part,
    request: *const Request,
    /// Index of the request's disk plus one.
    disk: u32,
    /// What the time before the request is.
    before: Part,
    legs: [Flush; 2],
}

/// Hands out a wait that ends now, and tells it if it was long.
#[inline(always)]
pub fn explain<M: Memory>(index: u32, slot: &mut Slot, now: u64, task: Object) {
    if slot.role == Role::Journal as u32 && slot.committing == 0 {
        slot.hands[Part::Idle as usize] += now - slot.since_ns;
        return;
    }
    let waker_task = M::current();
    let waker = Waker { task: waker_task, tid: current_tid(), function: worker_function::<M>(waker_task) };
    let found = attribute(slot, now, &waker);
    if now - slot.since_ns >= setting!(detail_ns: u64) {
        let header = Header { kind: Kind::Wait as u32, slot: index, time_ns: now };
        tell_wait::<M>(slot, &header, task, &waker, &found);
        if !found.request.is_null() {
            tell_queues(index, now, found.disk.wrapping_sub(1));
        }
    }
}

#[inline(always)]
fn attribute(slot: &mut Slot, now: u64, waker: &Waker) -> Found {
    let mut cut = Cut { hands: &raw mut slot.hands, reached_ns: slot.since_ns, end_ns: now };
    let mut found =
        Found { part: Part::Unlinked, request: NONE, disk: 0, before: Part::BeforeSubmit, legs: [Flush::default(); 2] };
    let helper = slot_of(waker.tid);
    completed_here(slot, now, waker.tid, &mut found);
    if let Some((index, helper)) = &helper
        && helper.role == Role::Journal as u32
        && slot.role == Role::Sync as u32
        && (helper.ended != 0 || found.request.is_null())
        && sync::filesystem(slot.filesystem).is_some_and(|filesystem| filesystem.journal == *index)
    {
        cut.finish(Part::Journal);
        if slot.snapshot_of == *index {
            add_difference(slot, helper, now);
        }
        found.request = NONE;
        found.part = Part::Journal;
    } else if !found.request.is_null() {
        cut_by_request(&mut cut, &mut found, now);
        cut.finish(Part::Completion);
    } else if waker.function != 0 && waker.function == function!(flusher) {
        // It has done what it was asked for, or has let go of the inode.
        found.part = Part::Writeback;
        cut.finish(found.part);
    } else if waker.function != 0 {
        cut_by_worker(slot, &mut cut, now, helper.map(|(_, helper)| &*helper), &mut found);
    } else {
        found.part = if waker.tid == 0 { Part::Unlinked } else { Part::Task };
        cut.finish(found.part);
    }
    found
}

/// The request whose completion is waking the task: the last one on this CPU, if the same task was interrupted by it,
/// it is recent, ended inside the wait and belongs to a disk of the task's filesystem, or to one below that has no requests
/// of its own.
#[inline(always)]
fn completed_here(slot: &Slot, now: u64, waker_tid: u32, found: &mut Found) {
    let Some(last) = COMPLETED.get_ptr_mut(0) else { return };
    // SAFETY: this CPU's own element.
    let last = unsafe { &*last };
    let fits =
        last.done_ns >= slot.since_ns && last.tid == waker_tid && now - last.done_ns <= COMPLETION_NS && last.disk != 0;
    let is_own = last.disk == slot.disk || last.disk == slot.log_disk;
    if fits
        && (is_own || hands_down_to(slot.disk, last.disk))
        && last.entry < REQUESTS
        && let Some(tracked) = REQUEST.get_ptr(last.entry)
    {
        // SAFETY: a map value. Its entry is taken again only by a request that starts, which this CPU does later.
        found.request = unsafe { &raw const (*tracked).request };
        found.disk = last.disk;
        if !is_own {
            found.before = Part::Device;
        }
    }
}

/// Cuts a wait at the request's own stamps, its flush legs included, up to `until_ns`.
#[inline(always)]
fn cut_by_request(cut: &mut Cut, found: &mut Found, until_ns: u64) {
    // SAFETY: points into a map value that lives as long as the map.
    let request = unsafe { &*found.request };
    let end_ns = cut.end_ns;
    cut.end_ns = until_ns;
    if request.submitter == Submitter::Flusher as u16 {
        cut.finish(Part::Writeback);
        cut.end_ns = end_ns;
        found.part = Part::Writeback;
        return;
    }
    let mut flushes = false;
    if request.command & FLUSH_LEGS != 0
        && let Some(disk) = disk(found.disk.wrapping_sub(1))
    {
        flush_legs(disk, request, &mut found.legs);
        // A disk that writes through its cache is never flushed.
        flushes = disk.flushed != 0;
    }
    let [before, after] = &found.legs;
    // A throttle holds it before the upper disk has it.
    let throttled = request.submitter == Submitter::Throttle as u16;
    cut.advance(request.allocated_ns, if throttled { Part::BeforeSubmit } else { found.before });
    flush(cut, before);
    // A request that wants a flush before its data, and of which none is known, was not only in line.
    let unknown = request.command & PREFLUSH != 0 && before.done_ns == 0 && flushes;
    let line = if unknown { Part::Unlinked } else { Part::Queue };
    cut.advance_to_issue(request.issued_ns, line, request.issuer_woken_ns, request.issuer_running_ns);
    cut.advance(request.done_ns, Part::Device);
    flush(cut, after);
    cut.end_ns = end_ns;
    found.part = if before.done_ns | after.done_ns != 0 { Part::FlushDevice } else { Part::Device };
}

/// Cuts a wait at a flush.
#[inline(always)]
fn flush(cut: &mut Cut, leg: &Flush) {
    cut.advance_to_issue(leg.issued_ns, Part::FlushQueue, leg.issuer_woken_ns, leg.issuer_running_ns);
    cut.advance(leg.done_ns, Part::FlushDevice);
}

/// The flushes before and after a request that asks for them: of the disk's last, those that fit its stamps. A flush
/// serves only who asked before it was given to the driver.
#[inline(always)]
pub fn flush_legs(disk: &Disk, request: &Request, legs: &mut [Flush; 2]) {
    let mut back = 1;
    while back <= FLUSHES as u64 {
        let candidate = &disk.flushes[disk.flushed.wrapping_sub(back) as usize & (FLUSHES - 1)];
        back += 1;
        if candidate.done_ns == 0 {
            break;
        }
        if candidate.issued_ns < request.allocated_ns {
            continue;
        }
        if request.issued_ns != 0 && candidate.issued_ns >= request.done_ns && request.done_ns != 0 {
            // The first after its data.
            legs[1] = *candidate;
        } else if request.issued_ns == 0 || candidate.done_ns <= request.issued_ns {
            // The last before its data. A bare flush has no data: what has just been done is its own.
            legs[0] = *candidate;
            break;
        }
    }
}

/// Cuts a wait that a worker ended: the request that led there, the time until the worker was woken, until it ran, and
/// its run. A worker that was not watched when the wait began has no history: that time is a remainder.
#[inline(always)]
fn cut_by_worker(slot: &Slot, cut: &mut Cut, now: u64, worker: Option<&Slot>, found: &mut Found) {
    let from = slot.since_ns;
    found.disk = with_requests(slot.disk);
    if found.disk != slot.disk {
        found.before = Part::Device;
    }
    if slot.own.done_ns >= from && slot.own.done_ns <= now {
        found.request = &raw const slot.own;
    } else if let Some(disk) = disk(found.disk.wrapping_sub(1)) {
        let mut back = 1;
        while back <= SEARCHED {
            let candidate = &disk.recent[disk.completed.wrapping_sub(back) as usize & (RECENT - 1)];
            if candidate.inode == slot.inode
                && candidate.inode_dev == slot.dev
                && candidate.done_ns >= from
                && candidate.done_ns <= now
            {
                found.request = candidate;
                break;
            }
            back += 1;
        }
    }
    let mut until_worker = Part::Unlinked;
    if !found.request.is_null() {
        // SAFETY: points into a map value that lives as long as the map.
        let done_ns = unsafe { (*found.request).done_ns };
        cut_by_request(cut, found, done_ns);
        until_worker = Part::WorkerWait;
    }
    match worker {
        Some(worker) if worker.running_ns != 0 => {
            cut.advance(worker.woken_ns, until_worker);
            cut.advance(worker.running_ns, Part::WorkerRunQueue);
            cut.finish(Part::Worker);
            found.part = Part::Worker;
        }
        _ => {
            cut.finish(Part::Unlinked);
            found.part = Part::Unlinked;
        }
    }
}

/// Work function that a task runs now, 0 if it is no kernel worker. A worker seen here is watched from now on.
#[inline(always)]
pub fn worker_function<M: Memory>(task: Object) -> u64 {
    if field!(M, task, task_flags: u32) & PF_WQ_WORKER == 0 || offset!(worker_function) == ABSENT {
        return 0;
    }
    let private = if offset!(task_worker_private) != ABSENT {
        peek!(task, task_worker_private: Object)
    } else {
        peek!(task, task_set_child_tid: Object)
    };
    let worker = peek!(private, kthread_data: Object);
    let function = peek!(worker, worker_function: u64);
    if function != 0 {
        names::watch(task, current_tid(), Role::Worker);
    }
    function
}

#[inline(never)]
fn tell_wait<M: Memory>(slot: &Slot, header: &Header, task: Object, waker: &Waker, found: &Found) {
    let (header, now) = (*header, header.time_ns);
    emit::<WaitRecord>(header, Counter::LostDetail, |record| {
        // SAFETY: the record is reserved ring memory; every field is written.
        unsafe {
            (&raw mut (*record).start_ns).write(slot.since_ns);
            (&raw mut (*record).tid).write(slot.tid);
            (&raw mut (*record).tgid).write(slot.tgid);
            (&raw mut (*record).waker_tid).write(waker.tid);
            (&raw mut (*record).waker_tgid).write(peek!(waker.task, task_tgid: u32));
            (&raw mut (*record).part).write(found.part as u32);
            (&raw mut (*record).disk).write(disk(found.disk.wrapping_sub(1)).map_or(0, |disk| disk.dev));
            (&raw mut (*record).function).write(waker.function);
            (&raw mut (*record).waker).write(peek!(waker.task, task_comm: [u8; 16]));
            let [before, after] = &found.legs;
            let stamps = [[before.issued_ns, before.done_ns], [after.issued_ns, after.done_ns]];
            (&raw mut (*record).flushes).write(stamps);
            (&raw mut (*record).flush_tids).write([before.issued_tid, after.issued_tid]);
            for word in 0..size_of::<Request>() / 8 {
                (&raw mut (*record).request).cast::<u64>().add(word).write_volatile(0);
            }
            if !found.request.is_null() {
                copy_bytes((&raw mut (*record).request).cast(), size_of::<Request>() as u32, found.request.cast());
            }
            let stack = (&raw mut (*record).stack).cast::<u64>();
            for frame in 0..STACK {
                stack.add(frame).write_volatile(0);
            }
            if setting!(stack_ns: u64) != 0 && now - slot.since_ns >= setting!(stack_ns: u64) {
                M::stack(task, stack.cast(), size_of::<[u64; STACK]>() as u32);
            }
        }
    });
}

/// Tells what a disk completed last, and the one below it.
#[inline(always)]
fn tell_queues(index: u32, now: u64, place: u32) {
    if let Some(disk) = disk(place) {
        tell_queue(index, now, disk);
    }
    if let Some(lower) = LOWER_DISK.get(place)
        && *lower != 0
        && let Some(disk) = disk(*lower - 1)
    {
        tell_queue(index, now, disk);
    }
}

#[inline(never)]
fn tell_queue(index: u32, now: u64, disk: &Disk) {
    let header = Header { kind: Kind::Queue as u32, slot: index, time_ns: now };
    emit::<QueueRecord>(header, Counter::LostDetail, |record| {
        // SAFETY: the record is reserved ring memory; every field is written.
        unsafe {
            (&raw mut (*record).disk).write(disk.dev);
            (&raw mut (*record).in_flight).write(disk.in_flight);
            (&raw mut (*record).completed).write(disk.completed);
            let bytes = size_of::<[Request; RECENT]>() as u32;
            copy_bytes((&raw mut (*record).recent).cast(), bytes, (&raw const disk.recent).cast());
        }
    });
}
