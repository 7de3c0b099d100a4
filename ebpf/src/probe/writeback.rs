//! The flusher: for which reason it writes. What it writes is told by its requests.

use fsyncscope_ebpf::layout::ABSENT;
use fsyncscope_ebpf::slot::Role;

use super::maps::slot_of;
use super::memory::{Memory, Object, current_tid, offset, peek};
use super::names;

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
