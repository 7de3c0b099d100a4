//! The result of a sync where no event of the filesystem tells it: what its system call gives, read from the thread's saved
//! registers as that returns to user mode, and the errors that are sure before. What is not sure stays unknown.
//!
//! A thread that never slept in its sync is seen again only later, in another call or in none. So the registers count only
//! if the thread was seen to leave its CPU inside the sync's own call: its next return to user mode is that call's.

use fsyncscope_ebpf::layout::ABSENT;
use fsyncscope_ebpf::slot::{Door, Slot, Stage};

use super::calls::opened;
use super::maps::slot_of;
use super::memory::{Memory, Object, Probed, current_tid, field, offset, peek, registers};
use super::sync;

/// `-EIO` and `-ENOSPC`.
const EIO: i32 = -5;
const ENOSPC: i32 = -28;
/// What stands in the place of the result until there is one.
const ENOSYS: i64 = -38;
/// From here on the kernel's numbers mean that the call begins again, and are no errors of its caller.
const RESTART: i64 = -512;
/// `XFS_OPSTATE_SHUTDOWN`, the same on all kernels that have these bits.
const XFS_SHUTDOWN: u64 = 1 << 2;
/// The errno in the number that the kernel keeps of a file's last error.
const ERRNO: u32 = 4095;

/// A sync begins that no event of its filesystem will end.
#[inline(always)]
pub fn expect(slot: &mut Slot) {
    slot.failing = 0;
    slot.result_known = 0;
    slot.call_seen = 0;
    slot.call = identity(registers());
}

/// Whether a thread that leaves its CPU for the first time is still in the call of its sync.
#[inline(always)]
pub fn is_inside(slot: &mut Slot) -> bool {
    let inside = sync::syscall() == slot.syscall && identity(registers()) == slot.call;
    slot.call_seen = inside as u32;
    inside
}

/// Whether the call has given its result: what the thread waits for now, on its way to user mode, is none of its time.
/// It was stopped, frozen with its control group, or has used up its share of the CPU.
#[inline(always)]
pub fn is_given() -> bool {
    let registers = registers();
    !registers.is_null() && offset!(regs_result) != ABSENT && peek!(registers, regs_result: i64) != ENOSYS
}

/// The call is over, and returns to user mode.
#[inline(always)]
pub fn returned(slot: &mut Slot) {
    if slot.call_seen == 0 || slot.door != Door::Call as u32 || offset!(regs_result) == ABSENT {
        return unseen(slot);
    }
    let result = peek!(registers(), regs_result: i64);
    // What a call that writes has written is no error.
    slot.result = if result < 0 { result as i32 } else { 0 };
    slot.result_known = (result > RESTART) as u32;
}

/// The end is not seen.
#[inline(always)]
pub fn unseen(slot: &mut Slot) {
    slot.result = slot.failing;
    slot.result_known = (slot.failing != 0) as u32;
}

/// What tells a call from another of the same number: where it was made, on what, which file that is, and how many calls
/// the task had written with, which counts as such a call ends. 0 where registers are not offered.
#[inline(always)]
fn identity(registers: Object) -> u64 {
    if registers.is_null() || offset!(regs_place) == ABSENT {
        return 0;
    }
    let place = peek!(registers, regs_place: u64);
    let [first, second] = [peek!(registers, regs_first: u64), peek!(registers, regs_second: u64)];
    let file = opened(first);
    let inode = if file.is_null() { 0 } else { peek!(file, file_inode: u64) };
    let call = place ^ first.rotate_left(17) ^ second.rotate_left(34) ^ inode.rotate_left(9);
    if offset!(task_accounting) == ABSENT || offset!(accounting_writes) == ABSENT {
        return call;
    }
    let accounting = Probed::current().wrapping_add(offset!(task_accounting) as usize);
    call.wrapping_add(peek!(accounting, accounting_writes: u64).rotate_left(51))
}

/// A sync of a file of XFS has begun: with an error of its pages that was not told before, or where the filesystem has been
/// shut down, it can only fail, and need not sleep for that.
#[inline(always)]
pub fn of_xfs_file<M: Memory>(inode: Object) {
    if offset!(xfs_inode_mount) == ABSENT || offset!(xfs_inode_vfs) == ABSENT {
        return;
    }
    let error = written_error(inode.wrapping_add(offset!(xfs_inode_vfs) as usize));
    let mount = field!(M, inode, xfs_inode_mount: Object);
    let is_down = offset!(xfs_state) != ABSENT && peek!(mount, xfs_state: u64) & XFS_SHUTDOWN != 0;
    if (error != 0 || is_down)
        && let Some((_, slot)) = slot_of(current_tid())
        && slot.stage == Stage::Inside as u32
    {
        // Of both, either may come first.
        slot.failing = match (error, is_down) {
            (error, false) => error,
            (0 | EIO, true) => EIO,
            _ => 0,
        };
    }
}

/// The error that a descriptor's next sync of its file gives, as far as it is sure; 0 for none.
#[inline(always)]
fn written_error(inode: Object) -> i32 {
    let registers = registers();
    if registers.is_null() || offset!(regs_first) == ABSENT {
        return 0;
    }
    let file = opened(peek!(registers, regs_first: u64));
    if file.is_null() || peek!(file, file_inode: Object) != inode {
        return 0;
    }
    if offset!(file_error) == ABSENT || offset!(inode_mapping) == ABSENT || offset!(mapping_error) == ABSENT {
        return 0;
    }
    let last = peek!(peek!(inode, inode_mapping: Object), mapping_error: u32);
    let error = -((last & ERRNO) as i32);
    // All others are given as EIO, if this file's own writeback meets them.
    if last != peek!(file, file_error: u32) && (error == EIO || error == ENOSPC) { error } else { 0 }
}
