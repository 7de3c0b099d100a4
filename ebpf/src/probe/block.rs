//! The block layer's events: each request of a watched disk from its allocation to its end, and the flush machine.

use fsyncscope_ebpf::layout::ABSENT;
use fsyncscope_ebpf::limits::{BUCKETS, FLUSHES, REASON_UNKNOWN, RECENT};
use fsyncscope_ebpf::settings::Counter;
use fsyncscope_ebpf::slot::{Disk, Flush, Kind, Phase, Request, Role, Stage, Submitter, disk_gate, latencies_place};

use super::link::{FLUSH_LEGS, PF_WQ_WORKER, flush_legs, worker_function};
use super::maps::{COMPLETED, DISK_GATE, LATENCIES, add, count, disk, gate, slot_of};
use super::memory::{Memory, Object, current_tid, field, function, now_ns, offset, peek};
use super::page::{file_of, merged};
use super::request::{find, find_address, take};
use super::sync::PF_KTHREAD;
use super::{names, writeback};

const OPERATION: u32 = 0xff;
const WRITE: u32 = 1;
const FLUSH: u32 = 2;
/// `REQ_IDLE`, the same on all kernels that are supported: direct writes have it and the journal's, writeback never.
const IDLE: u32 = 1 << 15;

/// Index of a request's disk plus one, if it is watched.
#[inline(always)]
fn watched_disk<M: Memory>(request: Object) -> Option<(u32, &'static mut Disk)> {
    if offset!(queue_disk) != ABSENT {
        watched::<M>(field!(M, field!(M, request, request_queue: Object), queue_disk: Object))
    } else if offset!(request_disk) != ABSENT {
        watched::<M>(field!(M, request, request_disk: Object))
    } else {
        None
    }
}

/// The same of a bio.
#[inline(always)]
fn watched_disk_of_bio<M: Memory>(bio: Object) -> Option<(u32, &'static mut Disk)> {
    if offset!(bio_device) != ABSENT {
        watched::<M>(field!(M, field!(M, bio, bio_device: Object), block_device_disk: Object))
    } else if offset!(bio_disk) != ABSENT {
        watched::<M>(field!(M, bio, bio_disk: Object))
    } else {
        None
    }
}

#[inline(always)]
fn watched<M: Memory>(whole: Object) -> Option<(u32, &'static mut Disk)> {
    if whole.is_null() {
        return None;
    }
    let dev = field!(M, whole, disk_major: u32) << 20 | field!(M, whole, disk_first_minor: u32);
    let index = *DISK_GATE.get(disk_gate(dev))?;
    if index == 0 {
        return None;
    }
    let disk = disk(index - 1)?;
    (disk.dev == dev).then_some((index, disk))
}

/// A request starts, in the context of whoever submits it.
#[inline(always)]
pub fn started<M: Memory>(request: Object) {
    let Some((index, disk)) = watched_disk::<M>(request) else { return };
    let Some(about) = begin(index, disk, M::address(request)) else { return };
    about.sector = field!(M, request, request_sector: u64);
    about.bytes = field!(M, request, request_bytes: u32);
    about.command = field!(M, request, request_command: u32);
    note_submitter::<M>(about, || peek!(request, request_bio: Object));
}

/// The same where it is told with its bio, before the request has taken that over.
#[inline(always)]
pub fn started_with<M: Memory>(bio: Object) {
    let Some((index, disk)) = watched_disk_of_bio::<M>(bio) else { return };
    let Some(about) = begin(index, disk, M::address(bio)) else { return };
    about.sector = M::read::<u64>(bio, offset!(bio_place) + offset!(place_sector));
    about.bytes = M::read::<u32>(bio, offset!(bio_place) + offset!(place_bytes));
    about.command = field!(M, bio, bio_command: u32);
    note_submitter::<M>(about, || bio);
}

/// Takes an entry for a request that starts.
#[inline(always)]
fn begin(index: u32, disk: &mut Disk, address: u64) -> Option<&'static mut Request> {
    let Some(entry) = take(address) else {
        count(Counter::RequestUntracked);
        return None;
    };
    // An entry of the same address is left over from a request whose end was not seen: it counts already.
    let left_over = entry.address == address && entry.request.done_ns == 0;
    entry.address = address;
    entry.disk = index;
    entry.request.in_flight = disk.in_flight;
    if !left_over {
        add_in_flight(disk, 1);
    }
    // The request's own start time is set after this event since 6.14 or so: here it may still be its former use's.
    entry.request.allocated_ns = now_ns();
    entry.request.issued_ns = 0;
    entry.request.done_ns = 0;
    Some(&mut entry.request)
}

/// Notes who submits a request, and whose pages it carries.
#[inline(always)]
fn note_submitter<M: Memory>(about: &mut Request, bio: impl FnOnce() -> Object) {
    about.tid = current_tid();
    about.comm = aya_ebpf::helpers::bpf_get_current_comm().unwrap_or_default();
    let (submitter, reason) = submitter::<M>(about.tid);
    about.submitter = submitter as u16;
    about.reason = reason;
    about.inode = 0;
    about.inode_dev = 0;
    let is_cache = about.command & IDLE == 0 || hands_down::<M>();
    if about.command & OPERATION == WRITE && about.bytes != 0 && is_cache {
        (about.inode, about.inode_dev) = file_of(bio());
    }
}

/// Whether the current task is a loop device's worker: what it writes directly are the pages that the disk above was
/// given, so they name that disk's file.
#[inline(always)]
fn hands_down<M: Memory>() -> bool {
    let function = worker_function::<M>(M::current());
    function != 0 && (function == function!(loop_worker) || function == function!(loop_worker_root))
}

/// Who submits a request: the current task, by its role or its work function.
#[inline(always)]
fn submitter<M: Memory>(tid: u32) -> (Submitter, u16) {
    let function = worker_function::<M>(M::current());
    if function != 0 {
        if function == function!(flusher) {
            return (Submitter::Flusher, slot_of(tid).map_or(REASON_UNKNOWN, |(_, slot)| slot.reason) as u16);
        }
        return (if function == function!(throttle_dispatch) { Submitter::Throttle } else { Submitter::Worker }, 0);
    }
    match slot_of(tid) {
        Some((_, slot)) if slot.role == Role::Journal as u32 => (Submitter::Journal, 0),
        Some((_, slot)) if slot.stage == Stage::Inside as u32 => (Submitter::Sync, 0),
        // A thread of the kernel's own carries others' requests down, as those of RAID and encryption do.
        _ if field!(M, M::current(), task_flags: u32) & PF_KTHREAD != 0 => (Submitter::Worker, 0),
        _ => (Submitter::Other, 0),
    }
}

/// A request became part of another one, with which it will be done.
#[inline(always)]
pub fn absorbed<M: Memory>(request: Object) {
    let Some((_, disk)) = watched_disk::<M>(request) else { return };
    if let Some((_, entry)) = find::<M>(request) {
        entry.address = 0;
        // What is left over from a request that was done is in flight no more.
        if entry.request.done_ns == 0 {
            add_in_flight(disk, -1);
        }
    }
}

#[inline(always)]
fn add_in_flight(disk: &mut Disk, amount: i32) {
    let target = &raw mut disk.in_flight;
    // SAFETY: an aligned word of a map value.
    unsafe {
        core::intrinsics::atomic_xadd::<u32, u32, { core::intrinsics::AtomicOrdering::Relaxed }>(target, amount as u32)
    };
}

/// A request is given to the driver.
#[inline(always)]
pub fn issued<M: Memory>(request: Object) {
    if watched_disk::<M>(request).is_none() {
        return;
    }
    let now = now_ns();
    if field!(M, request, request_command: u32) & OPERATION == FLUSH {
        // Each hardware queue has a flush request of its own, and they overlap.
        let address = M::address(request);
        let Some(entry) = take(address) else {
            count(Counter::RequestUntracked);
            return;
        };
        entry.address = address;
        entry.request.issued_ns = now;
        entry.request.done_ns = 0;
        note_issuer::<M>(&mut entry.request);
    } else if let Some((_, entry)) = find::<M>(request) {
        entry.request.issued_ns = now;
        note_issuer::<M>(&mut entry.request);
        let bytes = field!(M, request, request_bytes: u32);
        // Fewer bytes are the rest of a request that is given to the driver once more.
        if bytes > entry.request.bytes {
            merged(&mut entry.request, request, bytes);
        }
    }
}

/// A kernel worker that gives a request to the driver is a helper: while it was ready and did not run, the request stood
/// in no line.
#[inline(always)]
fn note_issuer<M: Memory>(about: &mut Request) {
    about.issued_tid = 0;
    about.issuer_woken_ns = 0;
    about.issuer_running_ns = 0;
    let task = M::current();
    if field!(M, task, task_flags: u32) & PF_WQ_WORKER == 0 {
        return;
    }
    let tid = current_tid();
    if let Some((_, worker)) = names::watch(task, tid, Role::Worker) {
        about.issued_tid = tid;
        about.issuer_woken_ns = worker.woken_ns;
        about.issuer_running_ns = worker.running_ns;
    }
}

/// A request, or one step of it in the flush machine, is complete.
#[inline(always)]
pub fn completed<M: Memory>(request: Object) {
    let Some((index, disk)) = watched_disk::<M>(request) else { return };
    let now = now_ns();
    if field!(M, request, request_command: u32) & OPERATION == FLUSH {
        let Some((_, entry)) = find_address(M::address(request)) else { return };
        entry.address = 0;
        let Request { issued_ns, issued_tid, issuer_woken_ns, issuer_running_ns, .. } = entry.request;
        let flush = Flush { issued_ns, done_ns: now, issuer_woken_ns, issuer_running_ns, issued_tid, unused: 0 };
        disk.flushes[disk.flushed as usize & (FLUSHES - 1)] = flush;
        disk.flushed += 1;
        return;
    }
    let Some((place, entry)) = find::<M>(request) else { return };
    note_completion(place, index, now);
    watch_completer::<M>();
    let first = entry.request.done_ns == 0;
    let carried = entry.request.issued_ns != 0;
    if first {
        entry.request.done_ns = now;
        entry.request.done_tid = current_tid();
        remember(disk, &entry.request);
        add_in_flight(disk, -1);
    }
    if first && carried {
        finish_transfer(index, disk, &entry.request);
    }
    // A request of the flush machine completes once with its data and once as a whole.
    let asks_flush = entry.request.command & FLUSH_LEGS != 0;
    if !first || !carried || !asks_flush {
        entry.address = 0;
        if asks_flush {
            finish_flushes(index, disk, &entry.request);
        }
    }
}

/// A kernel thread that completes requests, such as ksoftirqd, is a helper: its run queue is the waiter's.
#[inline(always)]
fn watch_completer<M: Memory>() {
    let tid = current_tid();
    if tid != 0 && gate(tid) == 0 {
        let task = M::current();
        if field!(M, task, task_flags: u32) & PF_KTHREAD != 0 {
            names::watch(task, tid, Role::Worker);
        }
    }
}

#[inline(always)]
fn note_completion(place: u32, index: u32, now: u64) {
    if let Some(last) = COMPLETED.get_ptr_mut(0) {
        // SAFETY: this CPU's own element.
        let last = unsafe { &mut *last };
        last.done_ns = now;
        last.tid = current_tid();
        last.disk = index;
        last.entry = place;
    }
}

/// Keeps a completed request beside its disk, as a witness of what ran there.
#[inline(always)]
fn remember(disk: &mut Disk, request: &Request) {
    let place = disk.completed as usize & (RECENT - 1);
    copy(&raw mut disk.recent[place], request);
    disk.completed += 1;
}

/// Data went to or came from the device: tells its submitter, and adds it up.
#[inline(always)]
fn finish_transfer(index: u32, disk: &Disk, request: &Request) {
    if request.submitter == Submitter::Sync as u16
        && let Some((_, slot)) = slot_of(request.tid)
        && slot.stage == Stage::Inside as u32
    {
        copy(&raw mut slot.own, request);
    }
    let kind = if request.command & 1 != 0 { Kind::Write } else { Kind::Read };
    if request.command & OPERATION == WRITE && request.command & IDLE == 0 {
        writeback::wrote(index, disk, request);
    }
    observe(index, kind, request, Phase::Queue, request.issued_ns.saturating_sub(request.allocated_ns), 0);
    observe(index, kind, request, Phase::Device, request.done_ns.saturating_sub(request.issued_ns), request.bytes);
}

/// A request that asked for flushes is complete with them: adds up each, for whoever submitted it.
#[inline(always)]
fn finish_flushes(index: u32, disk: &Disk, request: &Request) {
    let mut legs = [Flush::default(); 2];
    flush_legs(disk, request, &mut legs);
    let [before, after] = legs;
    if before.done_ns != 0 {
        observe(index, Kind::Flush, request, Phase::Queue, before.issued_ns.saturating_sub(request.allocated_ns), 0);
        observe(index, Kind::Flush, request, Phase::Device, before.done_ns.saturating_sub(before.issued_ns), 0);
    }
    if before.done_ns | after.done_ns == 0 && disk.flushed != 0 {
        count(Counter::FlushUntracked);
    }
    if after.done_ns != 0 {
        observe(index, Kind::Flush, request, Phase::Queue, after.issued_ns.saturating_sub(request.done_ns), 0);
        observe(index, Kind::Flush, request, Phase::Device, after.done_ns.saturating_sub(after.issued_ns), 0);
    }
}

#[inline(always)]
fn copy(to: *mut Request, from: &Request) {
    for word in 0..size_of::<Request>() / 8 {
        // SAFETY: both are whole requests.
        unsafe {
            to.cast::<u64>().add(word).write_volatile((&raw const *from).cast::<u64>().add(word).read_volatile())
        };
    }
}

/// Adds one latency to those of a disk.
#[inline(always)]
fn observe(index: u32, kind: Kind, request: &Request, phase: Phase, ns: u64, bytes: u32) {
    let place = latencies_place(index - 1, kind, request.submitter as u32, phase);
    let Some(latencies) = LATENCIES.get_ptr_mut(place) else { return };
    let mut bucket = 0;
    let mut limit = 1000u64;
    while ns >= limit && bucket < BUCKETS - 1 {
        limit <<= 1;
        bucket += 1;
    }
    // SAFETY: the bucket is in bounds; the entry lives as long as the map.
    unsafe {
        add((&raw mut (*latencies).buckets).cast::<u64>().add(bucket), 1);
        add(&raw mut (*latencies).sum_ns, ns);
        if bytes != 0 {
            add(&raw mut (*latencies).bytes, bytes as u64);
        }
    }
}
