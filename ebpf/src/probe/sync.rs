//! Begin and end of each sync, its record, and the return to user mode after it.

use fsyncscope_ebpf::event::{End, FilesystemRecord, Header, Kind, SyncRecord};
use fsyncscope_ebpf::layout::ABSENT;
use fsyncscope_ebpf::limits::FILESYSTEMS;
use fsyncscope_ebpf::part::Part;
use fsyncscope_ebpf::settings::Counter;
use fsyncscope_ebpf::slot::{Asker, Door, Filesystem, Role, Slot, Stage, disk_gate};

use super::asker::{self, PF_IO_WORKER};
use super::clock::{copy, elapse};
use super::maps::{DISK_GATE, FILESYSTEM, FREE_DISK, add, count, disk, emit, slot_of};
use super::memory::{Memory, Object, current_tid, field, now_ns, offset, peek, registers, setting};
use super::{names, result, whole};

/// A task of the kernel's own, on all kernels that are supported.
pub const PF_KTHREAD: u32 = 0x0020_0000;
/// The bits of a mode that say what a file is, and those of a directory.
const FILE_TYPE: u16 = 0o170_000;
const DIRECTORY: u16 = 0o040_000;
/// `s_magic` of btrfs, which has no block device of its own.
const BTRFS_MAGIC: u64 = 0x9123_683e;

/// What a sync is of.
pub struct Target {
    /// 0 for a whole filesystem.
    pub inode: u64,
    /// Kernel's dev_t of the filesystem.
    pub dev: u32,
    pub directory: u32,
}

/// A sync begins in the current task.
#[inline(always)]
pub fn enter<M: Memory>(inode: Object, file: Object, datasync: u32, end: End) {
    let task = M::current();
    let flags = field!(M, task, task_flags: u32);
    // A kernel thread's own sync is a loop device's flush: part of the device time of the disk above.
    let role = if flags & PF_KTHREAD == 0 { Role::Sync } else { Role::Worker };
    if flags & PF_KTHREAD != 0 && !asker::does_aio(task) {
        return;
    }
    let Some((index, slot)) = names::admit(task, role) else { return };
    let now = now_ns();
    close_former(index, slot, now);
    let super_block = field!(M, inode, inode_super: Object);
    let directory = field!(M, inode, inode_mode: u16) & FILE_TYPE == DIRECTORY;
    let target = Target {
        inode: field!(M, inode, inode_number: u64),
        dev: field!(M, super_block, super_dev: u32),
        directory: directory as u32,
    };
    begin(slot, &target, end, now);
    slot.datasync = datasync;
    if flags & PF_KTHREAD != 0 {
        asker::credit_aio(slot, task);
    } else if flags & PF_IO_WORKER != 0 {
        asker::credit_io_uring(slot, task);
    }
    open_filesystem(index, slot, peek!(inode, inode_super: Object));
    if !file.is_null() {
        names::tell_file(index, slot, file);
    }
}

/// Ends what a former sync of this thread left open.
#[inline(always)]
pub fn close_former(index: u32, slot: &mut Slot, now: u64) {
    if slot.stage == Stage::Returning as u32 {
        send(index, slot, 0);
    } else if slot.stage == Stage::Inside as u32 {
        if slot.end == End::Event as u32 {
            count(Counter::ExitUnseen);
        } else {
            end_unseen(index, slot, now);
        }
    }
}

#[inline(always)]
pub fn begin(slot: &mut Slot, target: &Target, end: End, now: u64) {
    for hand in 0..Part::COUNT {
        // SAFETY: in bounds; volatile keeps the loop from becoming a call.
        unsafe {
            slot.hands.as_mut_ptr().add(hand).write_volatile(0);
            slot.journal_hands.as_mut_ptr().add(hand).write_volatile(0);
        }
    }
    slot.after = [0; 4];
    slot.door = Door::Call as u32;
    slot.inode = target.inode;
    slot.dev = target.dev;
    slot.datasync = 0;
    slot.directory = target.directory;
    slot.pass = 0;
    slot.end = end as u32;
    slot.result = 0;
    slot.switches = 0;
    slot.syscall = syscall();
    slot.own.done_ns = 0;
    slot.snapshot_of = 0;
    slot.class = Part::OnCpu as u32;
    slot.start_ns = now;
    slot.end_ns = 0;
    slot.since_ns = now;
    slot.stage = Stage::Inside as u32;
    if end as u32 != End::Event as u32 {
        result::expect(slot);
    }
}

/// System call number of the current task, -1 where unknown.
#[inline(always)]
pub fn syscall() -> i32 {
    let registers = registers();
    if registers.is_null() {
        return -1;
    }
    if offset!(regs_syscall) != fsyncscope_ebpf::layout::ABSENT {
        peek!(registers, regs_syscall: u64) as i32
    } else if offset!(regs_syscall_arm64) != fsyncscope_ebpf::layout::ABSENT {
        peek!(registers, regs_syscall_arm64: i32)
    } else {
        -1
    }
}

/// Finds the filesystem's disk and journal; at its first sync, begins to watch the disk.
#[inline(always)]
pub fn open_filesystem(index: u32, slot: &mut Slot, super_block: Object) {
    let place = filesystem_index(slot.dev);
    let Some(known) = filesystem(place) else { return };
    slot.filesystem = place;
    if known.dev != slot.dev || known.told == 0 {
        if known.dev != slot.dev {
            known.dev = slot.dev;
            known.journal = 0;
            known.log_disk = 0;
        }
        let (dev, disk) = watch_disk(block_device(super_block));
        known.disk = disk;
        known.told = tell_filesystem(index, slot, peek!(super_block, super_magic: u64), dev) as u32;
    }
    slot.disk = known.disk;
    slot.log_disk = known.log_disk;
}

/// Where a filesystem is remembered.
#[inline(always)]
pub fn filesystem_index(dev: u32) -> u32 {
    (dev ^ dev >> 15) & (FILESYSTEMS - 1)
}

/// A remembered filesystem by place.
#[inline(always)]
pub fn filesystem(place: u32) -> Option<&'static mut Filesystem> {
    // SAFETY: filesystems live as long as the map; each word is read and written whole.
    FILESYSTEM.get_ptr_mut(place).map(|filesystem| unsafe { &mut *filesystem })
}

/// The block device of a filesystem; of those on several, the one that was opened last.
#[inline(always)]
fn block_device(super_block: Object) -> Object {
    let is_btrfs = peek!(super_block, super_magic: u64) == BTRFS_MAGIC && offset!(btrfs_block_device) != ABSENT;
    if !is_btrfs {
        return peek!(super_block, super_bdev: Object);
    }
    let devices = peek!(peek!(super_block, super_private: Object), btrfs_devices: Object);
    peek!(peek!(devices, btrfs_latest: Object), btrfs_block_device: Object)
}

#[inline(always)]
fn tell_filesystem(index: u32, slot: &Slot, magic: u64, disk: u32) -> bool {
    let header = Header { kind: Kind::Filesystem as u32, slot: index, time_ns: slot.start_ns };
    emit::<FilesystemRecord>(header, Counter::LostName, |record| {
        // SAFETY: the record is reserved ring memory; every field is written.
        unsafe {
            (&raw mut (*record).magic).write(magic);
            (&raw mut (*record).dev).write(slot.dev);
            (&raw mut (*record).disk).write(disk);
        }
    })
}

/// Begins to watch the disk of a block device. Gives its `major << 20 | minor` and its index plus one, 0 for none.
#[inline(always)]
pub fn watch_disk(block_device: Object) -> (u32, u32) {
    if block_device.is_null() {
        return (0, 0);
    }
    let whole = peek!(block_device, block_device_disk: Object);
    let dev = peek!(whole, disk_major: u32) << 20 | peek!(whole, disk_first_minor: u32);
    let Some(gate) = DISK_GATE.get_ptr_mut(disk_gate(dev)) else { return (dev, 0) };
    // SAFETY: an aligned word of the map.
    let open = unsafe { gate.read_volatile() };
    if open != 0 {
        let is_own = disk(open - 1).is_some_and(|disk| disk.dev == dev);
        if !is_own {
            count(Counter::DiskUntracked);
        }
        return (dev, if is_own { open } else { 0 });
    }
    let Ok(Some(place)) = FREE_DISK.pop() else {
        count(Counter::DiskUntracked);
        return (dev, 0);
    };
    if let Some(fresh) = disk(place) {
        fresh.dev = dev;
        // SAFETY: as above. Of two first syncs at once one's place stays unused.
        unsafe { gate.write_volatile(place + 1) };
    }
    (dev, place + 1)
}

/// A sync ends in the current task, seen by the filesystem's own event.
#[inline(always)]
pub fn leave(result: i32) {
    let Some((index, slot)) = slot_of(current_tid()) else { return };
    if slot.stage != Stage::Inside as u32 {
        return;
    }
    let now = now_ns();
    elapse(slot, now, Part::Unlinked);
    slot.end_ns = now;
    slot.result = result;
    slot.stage = Stage::Returning as u32;
    // A worker never returns to user mode.
    if setting!(has_return: u32) == 0 || slot.door != Door::Call as u32 {
        send(index, slot, 0);
    }
}

/// The call of a sync that no event ends has given its result, and its thread is not back in user mode yet.
#[inline(always)]
pub fn give(slot: &mut Slot, now: u64) {
    elapse(slot, now, Part::Unlinked);
    slot.end_ns = now;
    result::returned(slot);
    slot.stage = Stage::Returning as u32;
}

/// The current task returns to user mode after having slept.
#[inline(always)]
pub fn returned(tid: u32) {
    let Some((index, slot)) = slot_of(tid) else { return };
    if slot.stage == Stage::Outside as u32 {
        return;
    }
    let now = now_ns();
    let ends = slot.stage == Stage::Inside as u32 && slot.end != End::Event as u32;
    if ends && syscall() != slot.syscall {
        // From what interrupted it in user mode, or from another call.
        end_unseen(index, slot, now);
        return;
    }
    elapse(slot, now, Part::Unlinked);
    if ends {
        slot.end_ns = now;
        result::returned(slot);
    } else if slot.stage == Stage::Inside as u32 {
        return;
    }
    slot.returns = 1;
    send(index, slot, now);
}

/// The thread is somewhere else by now: its sync had ended at some time since it last came to a CPU. What is sure of it is
/// the time until then, which is none if it never slept: the rest may be user mode.
///
/// A worker has done with it some microseconds ago: it takes other work at once, or sleeps. And a thread that slept and
/// was not seen to return is in the same system call, which syncs one file after the other.
#[inline(always)]
pub fn end_unseen(index: u32, slot: &mut Slot, now: u64) {
    let stays = slot.returns != 0 && slot.switches != 0 && syscall() == slot.syscall;
    if slot.door != Door::Call as u32 || stays {
        elapse(slot, now, Part::Unlinked);
        slot.end_ns = now;
    } else {
        slot.end_ns = slot.since_ns;
        slot.end = End::Unseen as u32;
    }
    result::unseen(slot);
    send(index, slot, 0);
}

/// Sends the record of a sync that has ended.
#[inline(never)]
pub fn send(index: u32, slot: &mut Slot, return_ns: u64) -> u32 {
    slot.stage = Stage::Outside as u32;
    let dev = if slot.pass != 0 { whole::finish(index, slot) } else { slot.dev };
    if slot.door == Door::Aio as u32 {
        slot.role = Role::Worker as u32;
    }
    let header = Header { kind: Kind::Sync as u32, slot: index, time_ns: slot.end_ns };
    if let Some(made) = super::maps::COUNTER.get_ptr_mut(Counter::Syncs as u32) {
        add(made, 1);
    }
    emit::<SyncRecord>(header, Counter::LostSync, |record| {
        // SAFETY: the record is reserved ring memory; every field is written.
        unsafe {
            (&raw mut (*record).start_ns).write(slot.start_ns);
            (&raw mut (*record).end_ns).write(slot.end_ns);
            (&raw mut (*record).return_ns).write(return_ns);
            (&raw mut (*record).inode).write(slot.inode);
            (&raw mut (*record).tid).write(slot.tid);
            (&raw mut (*record).tgid).write(slot.tgid);
            (&raw mut (*record).dev).write(dev);
            (&raw mut (*record).datasync).write(slot.datasync);
            (&raw mut (*record).result).write(slot.result);
            (&raw mut (*record).syscall).write(slot.syscall);
            (&raw mut (*record).switches).write(slot.switches);
            (&raw mut (*record).end).write(slot.end);
            (&raw mut (*record).directory).write(slot.directory);
            let unknown = slot.end != End::Event as u32 && slot.result_known == 0;
            (&raw mut (*record).result_known).write(!unknown as u32);
            let by_call = slot.door == Door::Call as u32;
            (&raw mut (*record).asker).write(if by_call { Asker::default() } else { slot.asker });
            (&raw mut (*record).comm).write(aya_ebpf::helpers::bpf_get_current_comm().unwrap_or_default());
            (&raw mut (*record).after).write(slot.after);
            copy(&mut (*record).hands, &slot.hands);
            copy(&mut (*record).journal_hands, &slot.journal_hands);
        }
    }) as u32
}
