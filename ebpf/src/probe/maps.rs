//! The probes' memory: the gate, the slots, disks, requests, and the ring to the agent.

use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, LruHashMap, PerCpuArray, RingBuf, Stack};
use fsyncscope_ebpf::event::Header;
use fsyncscope_ebpf::limits::{
    ASKING, DISKS, DISKS_LOWER, FILES, FILESYSTEMS, GATE, RAN, REASONS, REQUESTS, RING, SLOTS, WRITTEN,
};
use fsyncscope_ebpf::settings::Counter;
use fsyncscope_ebpf::slot::{
    Asker, Disk, Filesystem, Kind, Latencies, Phase, Request, Slot, Submitter, Written, WrittenKey,
};

/// Slot of each watched task, by task id modulo the size; 0 for a task that is not watched.
///
/// One load and one test are all that an unwatched task's events cost, so it is plain memory and not a map look-up.
static mut GATE_OF_TASK: [u16; GATE] = [0; GATE];
/// Watched tasks that wait for a CPU now: while there are any, each CPU remembers who leaves it.
static mut WAITING: u32 = 0;
/// Fingerprint of each file whose path was told.
static mut FILE_TOLD: [u64; FILES] = [0; FILES];

/// Entry 0 stays unused.
#[map]
pub static SLOT: Array<Slot> = Array::with_max_entries(SLOTS, 0);
/// Free slots; the agent fills it before anything is attached.
#[map]
pub static FREE: Stack<u32> = Stack::with_max_entries(SLOTS, 0);
/// Generation of the name that the agent does not want, by slot; 0 for none.
#[map]
pub static IGNORED: Array<u32> = Array::with_max_entries(SLOTS, 0);
#[map]
pub static FILESYSTEM: Array<Filesystem> = Array::with_max_entries(FILESYSTEMS, 0);
/// Index of each watched disk plus one, by [`fsyncscope_ebpf::slot::disk_gate`].
#[map]
pub static DISK_GATE: Array<u32> = Array::with_max_entries(1 << 16, 0);
#[map]
pub static DISK: Array<Disk> = Array::with_max_entries(DISKS, 0);
/// Index plus one of the disk below each disk, 0 for none; the agent fills it.
#[map]
pub static LOWER_DISK: Array<u32> = Array::with_max_entries(DISKS, 0);
/// All disks below a disk, at any depth: a bit for the index of each.
#[map]
pub static BELOW: Array<u64> = Array::with_max_entries(DISKS, 0);
/// Free disks; the agent fills it before anything is attached.
#[map]
pub static FREE_DISK: Stack<u32> = Stack::with_max_entries(DISKS_LOWER, 0);
#[map]
pub static REQUEST: Array<Tracked> = Array::with_max_entries(REQUESTS, 0);
#[map]
pub static COMPLETED: PerCpuArray<Completed> = PerCpuArray::with_max_entries(1, 0);
#[map]
pub static LEFT: PerCpuArray<Left> = PerCpuArray::with_max_entries(1, 0);
/// See [`fsyncscope_ebpf::slot::latencies_place`].
#[map]
pub static LATENCIES: Array<Latencies> =
    Array::with_max_entries(DISKS * (Kind::COUNT * Submitter::COUNT * Phase::COUNT) as u32, 0);
/// Bytes written by the flusher, by disk and reason.
#[map]
pub static WRITEBACK: Array<[u64; REASONS]> = Array::with_max_entries(DISKS, 0);
#[map]
pub static WRITTEN_BACK: HashMap<WrittenKey, Written> = HashMap::with_max_entries(WRITTEN, 0);
/// Syncs that a worker is to do, by the address of the io_uring request or of the AIO work.
#[map]
pub static ASKED: LruHashMap<u64, Asker> = LruHashMap::with_max_entries(ASKING, 0);
#[map]
pub static COUNTER: Array<u64> = Array::with_max_entries(Counter::COUNT, 0);
#[map]
pub static EVENTS: RingBuf = RingBuf::with_byte_size(RING, 0);

/// A request in flight.
#[repr(C)]
pub struct Tracked {
    /// Address that the kernel's request is known by, 0 for a free entry.
    pub address: u64,
    pub disk: u32,
    pub unused: u32,
    pub request: Request,
}

/// The last completion that this CPU saw.
#[repr(C)]
pub struct Completed {
    pub done_ns: u64,
    /// The interrupted task: a wake-up by it right after is the completion's.
    pub tid: u32,
    pub disk: u32,
    /// Entry of [`REQUEST`].
    pub entry: u32,
    pub unused: u32,
}

/// Tasks that left a CPU last.
#[repr(C)]
pub struct Left {
    pub next: u64,
    pub ran: [Leaver; RAN],
}

/// A task that left a CPU. Its names are read only for a delay that is told.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Leaver {
    pub until_ns: u64,
    pub tid: u64,
    /// Address of the task. It may be another's by now: then the thread id there differs.
    pub task: u64,
}

/// How many watched tasks wait for a CPU.
#[inline(always)]
pub fn waiting() -> u32 {
    // SAFETY: an aligned word; a late read remembers one switch more or less.
    unsafe { (&raw const WAITING).read_volatile() }
}

/// One more watched task waits for a CPU, or with -1 one less.
#[inline(always)]
pub fn add_waiting(amount: i32) {
    // SAFETY: an aligned word of plain memory, added to atomically.
    unsafe {
        core::intrinsics::atomic_xadd::<u32, u32, { core::intrinsics::AtomicOrdering::Relaxed }>(
            &raw mut WAITING,
            amount as u32,
        )
    };
}

/// Slot of a task, 0 if it is not watched.
#[inline(always)]
pub fn gate(tid: u32) -> u32 {
    // SAFETY: the index is bounded; a torn or late read shows the task as unwatched or as watched, both of which hold.
    unsafe { (&raw const GATE_OF_TASK).cast::<u16>().add(tid as usize & (GATE - 1)).read_volatile() as u32 }
}

/// Opens or closes the gate for a task.
#[inline(always)]
pub fn set_gate(tid: u32, slot: u32) {
    // SAFETY: the index is bounded; a 2-byte store is not torn.
    unsafe { (&raw mut GATE_OF_TASK).cast::<u16>().add(tid as usize & (GATE - 1)).write_volatile(slot as u16) }
}

/// Whether a file's path was told under this fingerprint.
#[inline(always)]
pub fn file_told(key: u64, fingerprint: u64) -> bool {
    // SAFETY: the index is bounded.
    unsafe { (&raw const FILE_TOLD).cast::<u64>().add(key as usize & (FILES - 1)).read_volatile() == fingerprint }
}

/// Remembers that a file's path was told.
#[inline(always)]
pub fn set_file_told(key: u64, fingerprint: u64) {
    // SAFETY: the index is bounded.
    unsafe { (&raw mut FILE_TOLD).cast::<u64>().add(key as usize & (FILES - 1)).write_volatile(fingerprint) }
}

/// A slot by index, for a task that passed the gate.
#[inline(always)]
pub fn slot(index: u32) -> Option<&'static mut Slot> {
    // SAFETY: slots live as long as the map; the scheduler serialises the events of one task.
    SLOT.get_ptr_mut(index).map(|slot| unsafe { &mut *slot })
}

/// The slot of a task, if it is watched and the entry is really its own.
#[inline(always)]
pub fn slot_of(tid: u32) -> Option<(u32, &'static mut Slot)> {
    let index = gate(tid);
    if index == 0 {
        return None;
    }
    let slot = slot(index)?;
    (slot.tid == tid).then_some((index, slot))
}

/// A disk by index.
#[inline(always)]
pub fn disk(index: u32) -> Option<&'static mut Disk> {
    // SAFETY: disks live as long as the map; counters are added to atomically, the rest is evidence that may be torn.
    DISK.get_ptr_mut(index).map(|disk| unsafe { &mut *disk })
}

/// Whether a disk has no requests of its own, both as indices plus one, and another lies below it: what it is given goes
/// down in requests of that one, whose completion wakes who waits for the upper one.
#[inline(always)]
pub fn hands_down_to(upper: u32, lower: u32) -> bool {
    let place = upper.wrapping_sub(1);
    let is_bare = disk(place).is_some_and(|disk| disk.completed == 0);
    is_bare && BELOW.get(place).is_some_and(|below| *below >> (lower.wrapping_sub(1) & (u64::BITS - 1)) & 1 != 0)
}

/// The disk that has the requests of a disk, both as indices plus one: itself, or if it has none the one right below it.
#[inline(always)]
pub fn with_requests(index: u32) -> u32 {
    let place = index.wrapping_sub(1);
    let is_bare = disk(place).is_some_and(|disk| disk.completed == 0);
    match LOWER_DISK.get(place) {
        Some(lower) if is_bare && *lower != 0 => *lower,
        _ => index,
    }
}

/// Adds to a number that other CPUs add to as well.
#[inline(always)]
pub fn add(target: *mut u64, amount: u64) {
    // SAFETY: the target is an aligned map value.
    unsafe { core::intrinsics::atomic_xadd::<u64, u64, { core::intrinsics::AtomicOrdering::Relaxed }>(target, amount) };
}

/// Counts one thing that did not fit.
#[inline(always)]
pub fn count(counter: Counter) {
    if let Some(value) = COUNTER.get_ptr_mut(counter as u32) {
        add(value, 1);
    }
}

/// The agent polls; waking it for each event would cost more than the event.
pub const NO_WAKEUP: u64 = 1;

/// What `bpf_ringbuf_query` is asked for (kernel ABI): bytes that wait for the agent, and bytes in all.
const RING_WAITING: u64 = 0;
const RING_BYTES: u64 = 1;

/// The last quarter of the ring is kept for syncs and names: details are many where syncs are, and worth nothing without.
#[inline(always)]
fn has_room_for_details() -> bool {
    EVENTS.query(RING_WAITING) < EVENTS.query(RING_BYTES) / 4 * 3
}

/// Makes an event in place: reserves it, lets `fill` write every field, sends it. False if the ring had no room for it.
#[inline(always)]
pub fn emit<T: 'static>(header: Header, lost: Counter, fill: impl FnOnce(*mut T)) -> bool {
    if lost as u32 == Counter::LostDetail as u32 && !has_room_for_details() {
        count(lost);
        return false;
    }
    let Some(mut entry) = EVENTS.reserve::<T>(0) else {
        count(lost);
        return false;
    };
    let record = entry.as_mut_ptr();
    // SAFETY: every event begins with its header.
    unsafe { record.cast::<Header>().write(header) };
    fill(record);
    entry.submit(NO_WAKEUP);
    true
}
