//! Page-cache writeback: for which reason the flusher writes, and whose pages reach a disk through whom.

use fsyncscope_ebpf::layout::ABSENT;
use fsyncscope_ebpf::limits::REASONS;
use fsyncscope_ebpf::settings::Counter;
use fsyncscope_ebpf::slot::{Disk, Request, Role, Submitter, Written, WrittenKey};

use super::maps::{WRITEBACK, WRITTEN_BACK, add, count, slot_of};
use super::memory::{Memory, Object, current_tid, offset, peek};
use super::names;

/// Insert only: `BPF_NOEXIST`.
const FRESH: u64 = 1;

/// A flusher begins a round of writeback; its reason stays with it until the next one.
#[inline(always)]
pub fn started<M: Memory>(work: Object) {
    if offset!(writeback_reason) == ABSENT {
        return;
    }
    names::watch(M::current(), current_tid(), Role::Worker);
    if let Some((_, slot)) = slot_of(current_tid()) {
        slot.reason = peek!(work, writeback_reason: u32);
    }
}

/// Pages of the page cache have reached a disk. Those that a sync wrote itself are not added up: it names its file.
#[inline(always)]
pub fn wrote(index: u32, disk: &Disk, request: &Request) {
    let submitter = request.submitter as u32;
    if submitter == Submitter::Sync as u32 {
        return;
    }
    if submitter == Submitter::Flusher as u32
        && let Some(reasons) = WRITEBACK.get_ptr_mut(index - 1)
    {
        let reason = request.reason as usize & (REASONS - 1);
        // SAFETY: the place is in bounds; the entry lives as long as the map.
        unsafe { add((&raw mut *reasons).cast::<u64>().add(reason), request.bytes as u64) };
    }
    let Request { inode, inode_dev, reason, .. } = *request;
    let key = WrittenKey { inode, inode_dev, disk: disk.dev, submitter, reason: reason as u32 };
    // Without room for another file, its bytes go to those of files that are not known.
    if !add_to(&key, request) && !add_to(&WrittenKey { inode: 0, inode_dev: 0, ..key }, request) {
        count(Counter::WrittenUntold);
    }
}

#[inline(always)]
fn add_to(key: &WrittenKey, request: &Request) -> bool {
    if WRITTEN_BACK.get_ptr(key).is_none() {
        // Another CPU may be first, which is as good.
        let _ = WRITTEN_BACK.insert(key, Written::default(), FRESH);
    }
    let Some(written) = WRITTEN_BACK.get_ptr_mut(key) else { return false };
    // SAFETY: a map value; counts are added to atomically, the rest tells of one of the last requests.
    unsafe {
        add(&raw mut (*written).bytes, request.bytes as u64);
        add(&raw mut (*written).requests, 1);
        (*written).last_ns = request.done_ns;
        (*written).tid = request.tid;
        (*written).comm = request.comm;
    }
    true
}
