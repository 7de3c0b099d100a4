//! Syncs of whole filesystems, `sync` and `syncfs`: no event of their own begins or ends them, so they begin with the first
//! writeback that they ask for or the filesystem's own event, and end with the return to user mode.
//!
//! A filesystem is visited twice, without and with waiting; what comes after the second visit is the next call. Known by
//! the system call's number: the same events come from unmounting, freezing and others, which are no syncs.

use fsyncscope_ebpf::event::{End, Header, Kind, PortionRecord};
use fsyncscope_ebpf::layout::ABSENT;
use fsyncscope_ebpf::settings::Counter;
use fsyncscope_ebpf::slot::{Role, SYNC_CALLS, Slot, Stage};

use super::maps::emit;
use super::memory::{Memory, Object, field, now_ns, offset};
use super::names;
use super::sync::{PF_KTHREAD, Target, begin, close_former, open_filesystem, syscall};

/// How far a call is: it has asked for writeback, or the filesystem was visited for the first or second time. Zero is for
/// the syncs of files.
const ASKED: u32 = 1;
const FIRST: u32 = 2;
const SECOND: u32 = 3;

/// Writeback of a filesystem is asked for.
#[inline(always)]
pub fn wanted<M: Memory>(super_block: Object) {
    if !super_block.is_null() {
        reached::<M>(super_block, ASKED);
    }
}

/// A filesystem is visited. Where its event does not say for which time, `waits` is not known.
#[inline(always)]
pub fn visited<M: Memory>(super_block: Object, waits: Option<bool>) {
    let pass = match waits {
        Some(true) => SECOND,
        Some(false) => FIRST,
        None => 0,
    };
    reached::<M>(super_block, pass);
}

#[inline(always)]
fn reached<M: Memory>(super_block: Object, pass: u32) {
    let number = syscall();
    let Some(all) = of_all(number) else { return };
    let task = M::current();
    if field!(M, task, task_flags: u32) & PF_KTHREAD != 0 {
        return;
    }
    let Some((index, slot)) = names::admit(task, Role::Sync) else { return };
    let now = now_ns();
    let dev = field!(M, super_block, super_dev: u32);
    let inside = slot.stage == Stage::Inside as u32 && slot.syscall == number && slot.pass != 0;
    // Of a filesystem whose event does not say it, the visits are counted.
    let pass = if pass != 0 {
        pass
    } else if inside && slot.pass >= FIRST {
        SECOND
    } else {
        FIRST
    };
    let goes_on = inside && (all || slot.dev == dev && slot.pass != SECOND) && (pass == SECOND || slot.pass != SECOND);
    if !goes_on {
        close_former(index, slot, now);
        begin(slot, &Target { inode: 0, dev, directory: 0 }, End::Return, now);
        slot.portion_ns = now;
        open_filesystem(index, slot, super_block);
    } else if slot.dev != dev {
        tell_portion(index, slot, now);
        slot.dev = dev;
        slot.portion_ns = now;
        open_filesystem(index, slot, super_block);
    }
    if pass > slot.pass {
        slot.pass = pass;
    }
}

/// Whether a system call syncs all filesystems or one; nothing if it is neither.
#[inline(always)]
fn of_all(number: i32) -> Option<bool> {
    let [all, one] = SYNC_CALLS[(offset!(regs_syscall) == ABSENT) as usize];
    if number == all {
        Some(true)
    } else if number == one {
        Some(false)
    } else {
        None
    }
}

/// A sync of whole filesystems has ended: gives what it is told as, its filesystem or none.
#[inline(always)]
pub fn finish(index: u32, slot: &Slot) -> u32 {
    if of_all(slot.syscall) != Some(true) {
        return slot.dev;
    }
    tell_portion(index, slot, slot.end_ns);
    0
}

#[inline(never)]
fn tell_portion(index: u32, slot: &Slot, until_ns: u64) -> u32 {
    let header = Header { kind: Kind::Portion as u32, slot: index, time_ns: until_ns };
    emit::<PortionRecord>(header, Counter::LostDetail, |record| {
        // SAFETY: the record is reserved ring memory; every field is written.
        unsafe {
            (&raw mut (*record).start_ns).write(slot.portion_ns);
            (&raw mut (*record).tid).write(slot.tid);
            (&raw mut (*record).dev).write(slot.dev);
        }
    }) as u32
}
