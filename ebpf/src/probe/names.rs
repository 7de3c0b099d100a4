//! Tells the agent names once: of a thread when it is first watched, of a file when it is first synced.

use aya_ebpf::helpers::generated::{bpf_get_current_cgroup_id, bpf_probe_read_kernel_str};
use fsyncscope_ebpf::event::{End, FileRecord, Header, Kind, ThreadExitRecord, ThreadRecord};
use fsyncscope_ebpf::limits::{NAME, PATH, PATH_DEPTH, REASON_UNKNOWN, SLOTS};
use fsyncscope_ebpf::part::Part;
use fsyncscope_ebpf::settings::Counter;
use fsyncscope_ebpf::slot::{Commits, Role, Slot, Stage};

use super::maps::{FREE, IGNORED, count, emit, file_told, gate, set_file_told, set_gate, slot, slot_of};
use super::memory::{Object, current_tid, load, now_ns, offset, peek};

/// Watches the current task in a role, or says that there is no room.
#[inline(always)]
pub fn watch(task: Object, tid: u32, role: Role) -> Option<(u32, &'static mut Slot)> {
    if let Some(found) = slot_of(tid) {
        return Some(found);
    }
    if gate(tid) != 0 {
        refused(role as u32);
        return None;
    }
    let index = create(task, tid, role as u32);
    if index == 0 { None } else { Some((index, slot(index)?)) }
}

/// The slot of the current task, which begins a sync: told to the agent, and not if the agent does not want it.
#[inline(always)]
pub fn admit(task: Object, role: Role) -> Option<(u32, &'static mut Slot)> {
    let Some((index, slot)) = watch(task, current_tid(), role) else {
        count(Counter::Unwatched);
        return None;
    };
    if IGNORED.get(index).is_some_and(|generation| *generation == slot.generation) {
        return None;
    }
    tell_once(task, index, slot);
    Some((index, slot))
}

/// A task finds no place. Of a thread that syncs each sync is counted; what a helper would explain stays a remainder.
#[inline(always)]
fn refused(role: u32) {
    if role != Role::Sync as u32 {
        count(Counter::HelperUnwatched);
    }
}

/// Gives the current task a slot; 0 if there is no room. Not inlined, so that what runs always stays small in the cache.
#[inline(never)]
fn create(task: Object, tid: u32, role: u32) -> u32 {
    let free = FREE.pop().ok().flatten().filter(|index| *index != 0 && *index < SLOTS);
    let Some((index, fresh)) = free.and_then(|index| Some((index, slot(index)?))) else {
        refused(role);
        return 0;
    };
    fresh.generation += 1;
    fresh.tid = tid;
    fresh.tgid = peek!(task, task_tgid: u32);
    fresh.role = role;
    fresh.stage = Stage::Outside as u32;
    fresh.class = Part::OnCpu as u32;
    fresh.since_ns = now_ns();
    fresh.woken_ns = 0;
    fresh.running_ns = 0;
    fresh.committing = 0;
    fresh.ended = 0;
    fresh.reason = REASON_UNKNOWN;
    fresh.own.done_ns = 0;
    fresh.returns = 0;
    fresh.commits = Commits::default();
    for hand in 0..Part::COUNT {
        // SAFETY: in bounds; volatile keeps the loop from becoming a call.
        unsafe { fresh.hands.as_mut_ptr().add(hand).write_volatile(0) };
    }
    fresh.snapshot_of = 0;
    set_gate(tid, index);
    tell(task, index, fresh);
    index
}

/// Tells the agent of the current task, unless it was told before: the ring may have been full.
#[inline(always)]
pub fn tell_once(task: Object, index: u32, slot: &mut Slot) {
    if slot.told == 0 {
        tell(task, index, slot);
    }
}

#[inline(always)]
fn tell(task: Object, index: u32, slot: &mut Slot) {
    slot.told = tell_thread(task, index, slot) as u32;
}

#[inline(always)]
fn tell_thread(task: Object, index: u32, slot: &Slot) -> bool {
    let header = Header { kind: Kind::Thread as u32, slot: index, time_ns: slot.since_ns };
    emit::<ThreadRecord>(header, Counter::LostName, |record| {
        // A worker of io_uring goes by the name of the thread that it works for.
        let task = super::asker::master(task);
        let leader = peek!(task, task_group_leader: Object);
        // SAFETY: the record is reserved ring memory; every field is written.
        unsafe {
            (&raw mut (*record).tid).write(slot.tid);
            (&raw mut (*record).tgid).write(slot.tgid);
            (&raw mut (*record).role).write(slot.role);
            (&raw mut (*record).generation).write(slot.generation);
            (&raw mut (*record).started_ns).write(peek!(task, task_start_time: u64));
            (&raw mut (*record).cgroup).write(bpf_get_current_cgroup_id());
            (&raw mut (*record).comm).write(peek!(task, task_comm: [u8; 16]));
            (&raw mut (*record).process).write(peek!(leader, task_comm: [u8; 16]));
        }
    })
}

/// A task gets another name, by its own wish or because it executes another program: it is told again at its next sync,
/// and the agent judges anew whether it is wanted. What it refused is the former name, also if it hears of that later.
#[inline(always)]
pub fn renamed(tid: u32) {
    let Some((_, slot)) = slot_of(tid) else { return };
    slot.told = 0;
    slot.generation += 1;
}

/// Forgets a task that ends.
#[inline(always)]
pub fn exit(tid: u32) {
    let Some((index, slot)) = slot_of(tid) else { return };
    if slot.stage == Stage::Returning as u32 {
        super::sync::send(index, slot, 0);
    }
    if slot.stage == Stage::Inside as u32 && slot.end != End::Event as u32 {
        super::sync::end_unseen(index, slot, now_ns());
    }
    slot.stage = Stage::Outside as u32;
    if slot.role == Role::Journal as u32
        && let Some(filesystem) = super::sync::filesystem(slot.filesystem)
        && filesystem.journal == index
    {
        filesystem.journal = 0;
    }
    set_gate(tid, 0);
    let header = Header { kind: Kind::ThreadExit as u32, slot: index, time_ns: now_ns() };
    emit::<ThreadExitRecord>(header, Counter::LostName, |record| {
        // SAFETY: the record is reserved ring memory; every field is written.
        unsafe {
            (&raw mut (*record).tid).write(tid);
            (&raw mut (*record).tgid).write(slot.tgid);
        }
    });
    slot.tid = 0;
    if FREE.push(index, 0).is_err() {
        count(Counter::Unwatched);
    }
}

/// Tells a file's path unless it was told under the same name.
#[inline(always)]
pub fn tell_file(index: u32, slot: &Slot, file: Object) {
    let dentry: Object = load(file.wrapping_add(offset!(file_path) as usize), offset!(path_dentry));
    let name_hash: u64 = load(dentry.wrapping_add(offset!(dentry_name) as usize), offset!(qstr_hash_len));
    let key = (slot.inode ^ (slot.dev as u64) << 7).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    // The hash covers the name and which directory it is in, so that a file that is renamed is told again. A directory
    // keeps its place in memory under another name, so its own counts as well; of those above it the price is too high.
    let above = peek!(dentry, dentry_parent: Object);
    let above_hash: u64 = load(above.wrapping_add(offset!(dentry_name) as usize), offset!(qstr_hash_len));
    let fingerprint = name_hash ^ above_hash.rotate_left(16) ^ slot.inode.rotate_left(32) ^ slot.dev as u64;
    if file_told(key, fingerprint) {
        return;
    }
    if tell_path(index, slot, dentry) != 0 {
        set_file_told(key, fingerprint);
    }
}

#[inline(never)]
fn tell_path(index: u32, slot: &Slot, dentry: Object) -> u32 {
    let header = Header { kind: Kind::File as u32, slot: index, time_ns: slot.start_ns };
    emit::<FileRecord>(header, Counter::LostName, |record| write_path(record, slot, dentry)) as u32
}

#[inline(always)]
fn write_path(record: *mut FileRecord, slot: &Slot, leaf: Object) {
    let mut dentry = leaf;
    let mut used = 0usize;
    let mut complete = 0u32;
    for _ in 0..PATH_DEPTH {
        let parent = peek!(dentry, dentry_parent: Object);
        if parent == dentry || parent.is_null() {
            complete = 1;
            break;
        }
        if used > PATH - NAME {
            break;
        }
        let name: Object = load(dentry.wrapping_add(offset!(dentry_name) as usize), offset!(qstr_name));
        // SAFETY: `used` is at most PATH - NAME, so NAME bytes fit behind it.
        let read = unsafe {
            let place = (&raw mut (*record).names).cast::<u8>().add(used);
            bpf_probe_read_kernel_str(place.cast(), NAME as u32, name.cast())
        };
        if read <= 0 || read > NAME as i64 {
            break;
        }
        used += read as usize;
        dentry = parent;
    }
    // SAFETY: the record is reserved ring memory; names beyond `bytes` are not read by the agent.
    unsafe {
        (&raw mut (*record).inode).write(slot.inode);
        (&raw mut (*record).dev).write(slot.dev);
        (&raw mut (*record).bytes).write(used as u32);
        (&raw mut (*record).complete).write(complete);
        (&raw mut (*record).tgid).write(slot.tgid);
    }
}
