//! The table of requests in flight, and what a request is known by: its address, or that of its bio where it is the bio
//! that its start is told with. A flush request has no bio and is known by its address everywhere.

use fsyncscope_ebpf::limits::{MERGED_BIOS, REQUESTS};

use super::maps::{REQUEST, Tracked};
use super::memory::{Memory, Object, now_ns, offset, peek, setting};

/// The last step of a request, a flush, comes sooner than this after its data.
const STALE_NS: u64 = 60_000_000_000;

/// Finds the entry of a request that carries data, or asks for a flush of its own.
#[inline(always)]
pub fn find<M: Memory>(request: Object) -> Option<(u32, &'static mut Tracked)> {
    if setting!(begins_with_bio: u32) == 0 {
        return find_address(M::address(request));
    }
    // A bio that was merged in front of the others has no entry. Until the request has ended, its bios are its own alone.
    // Behind more of them the entry is not found, and stays until its bio's address is used again.
    let mut bio = peek!(request, request_bio: u64);
    let mut looked = 0;
    while bio != 0 && looked < MERGED_BIOS {
        if let Some(found) = find_address(bio) {
            return Some(found);
        }
        bio = peek!(bio as Object, bio_next: u64);
        looked += 1;
    }
    None
}

/// Finds an entry by the address that it was taken for: one of two places.
#[inline(always)]
pub fn find_address(address: u64) -> Option<(u32, &'static mut Tracked)> {
    let first = (address >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let place = first as u32 & (REQUESTS - 1);
    let other = place ^ 1;
    let entry = entry_at(place)?;
    if entry.address == address {
        return Some((place, entry));
    }
    let entry = entry_at(other)?;
    (entry.address == address).then_some((other, entry))
}

#[inline(always)]
fn entry_at(place: u32) -> Option<&'static mut Tracked> {
    // SAFETY: entries live as long as the map; a request's events come one after the other.
    REQUEST.get_ptr_mut(place).map(|entry| unsafe { &mut *entry })
}

/// Takes an entry for a request that starts, over a stale one of the same address if there is one.
#[inline(always)]
pub fn take(address: u64) -> Option<&'static mut Tracked> {
    if let Some((_, entry)) = find_address(address) {
        return Some(entry);
    }
    let first = (address >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let place = first as u32 & (REQUESTS - 1);
    let entry = entry_at(place)?;
    if is_free(entry) {
        return Some(entry);
    }
    let entry = entry_at(place ^ 1)?;
    is_free(entry).then_some(entry)
}

/// Whether nobody waits for an entry any more: a request that was done long ago, whose last step was not seen.
#[inline(always)]
fn is_free(entry: &Tracked) -> bool {
    let done_ns = entry.request.done_ns;
    entry.address == 0 || done_ns != 0 && now_ns().saturating_sub(done_ns) > STALE_NS
}
