//! A stacked disk's time opened: as far as a disk below was with it, that is the disk below's; as far as the kernel threads
//! that serve the stack wanted a CPU, it is their run queue. What is left is the stacked disk's own.
//!
//! Known from the long waits alone: shorter ones keep their time with the device.

use fsyncscope_ebpf::part::{Hands, Part};
use fsyncscope_ebpf::slot::PREFLUSH;

use super::intervals::{common, length, merged};
use crate::event::{Request, Source, Wait};
use crate::timeline::Sync;

/// Word and title of each row of a disk below, as the thread's own and as its journal thread's.
pub const BELOW: [[(&str, &str); 2]; 3] = [
    [("lower_queue", "block queue, disk below"), ("journal_lower_queue", "journal: block queue, disk below")],
    [("lower_device", "device, disk below"), ("journal_lower_device", "journal: device, disk below")],
    [("lower_flush", "device flush, disk below"), ("journal_lower_flush", "journal: device flush, disk below")],
];
const QUEUE: usize = 0;
const DEVICE: usize = 1;
const FLUSH: usize = 2;

/// Times at which disks below had requests of the kernel threads that serve a stack.
struct Busy {
    queue: Vec<(u64, u64)>,
    device: Vec<(u64, u64)>,
}

/// Moves device time of a stacked disk out of its hands: gives what belongs to the rows of [`BELOW`], and what its
/// servants waited for a CPU while no disk below was with a request of theirs to the workers' run queue.
pub fn open(hands: &mut Hands, waits: &[Wait], sync: &Sync) -> [u64; BELOW.len()] {
    let mut below = [0; BELOW.len()];
    if !sync.disk.is_stacked() {
        return below;
    }
    let delays = sync.worker_delays.iter().filter(|delay| sync.servants.contains(&delay.tid));
    let delayed = merged(delays.map(|delay| (delay.start_ns, delay.end_ns)).collect());
    let busy = Busy::of(sync);
    // The flusher's requests are in a hand of their own.
    let flushed = |wait: &&Wait| wait.request.as_ref().is_some_and(|request| request.submitter == Source::Flusher);
    let served = waits.iter().filter(|wait| !flushed(wait));
    for (wait, (service, part)) in served.flat_map(|wait| services(wait).map(move |service| (wait, service))) {
        let mut take = |ns: u64, part: Part| {
            let taken = ns.min(hands[part as usize]);
            hands[part as usize] -= taken;
            taken
        };
        let row = if part == Part::Device { DEVICE } else { FLUSH };
        if is_below(wait, sync) {
            below[row] += take(service.1 - service.0, part);
            continue;
        }
        let with_it = common(&busy.device, &[service]);
        let in_line = common(&busy.queue, &[service]);
        let late = common(&delayed, &[service]);
        let without = |times: &[(u64, u64)], others: &[(u64, u64)]| length(times) - length(&common(times, others));
        let worker_ns = without(&late, &with_it);
        let queue_ns = without(&in_line, &merged([with_it.clone(), late].concat()));
        below[row] += take(length(&with_it), part);
        below[QUEUE] += take(queue_ns, part);
        let moved = take(worker_ns, part);
        hands[Part::WorkerRunQueue as usize] += moved;
    }
    for wait in waits.iter().filter(|wait| is_below(wait, sync) && !flushed(wait)) {
        let Some(request) = &wait.request else { continue };
        let (from, until) = (request.allocated_ns.max(wait.start_ns), request.issued_ns.min(wait.end_ns));
        let taken = until.saturating_sub(from).min(hands[Part::Queue as usize]);
        hands[Part::Queue as usize] -= taken;
        below[QUEUE] += taken;
    }
    below
}

/// Whether a wait's request is one of a disk below: the sync's own has none.
fn is_below(wait: &Wait, sync: &Sync) -> bool {
    sync.lower.iter().any(|disk| disk.dev == wait.disk)
}

impl Busy {
    fn of(sync: &Sync) -> Self {
        let requests = sync.queues.iter().filter(|queue| queue.disk != sync.disk.dev).flat_map(|queue| &queue.recent);
        let served: Vec<&Request> = requests.filter(|request| sync.servants.contains(&request.tid)).collect();
        // What such a request waits for before it is issued is a flush; a bare flush is never issued itself.
        let began = |request: &Request| {
            let flushes = request.issued_ns == 0 || request.command & PREFLUSH != 0;
            if flushes { request.allocated_ns } else { request.issued_ns }
        };
        Self {
            queue: merged(served.iter().map(|request| (request.allocated_ns, began(request))).collect()),
            device: merged(served.iter().map(|request| (began(request), request.done_ns)).collect()),
        }
    }
}

/// Times at which a wait's request, and the flushes around it, were with the device.
fn services(wait: &Wait) -> impl Iterator<Item = ((u64, u64), Part)> {
    let request = wait.request.iter().map(|request| ((request.issued_ns, request.done_ns), Part::Device));
    let flushes = wait.flushes.iter().map(|[issued, done]| ((*issued, *done), Part::FlushDevice));
    let inside = |from: u64, until: u64| (from.max(wait.start_ns), until.min(wait.end_ns));
    let times: Vec<_> = request.chain(flushes).filter(|((issued, _), _)| *issued != 0).collect();
    let clipped = times.into_iter().map(move |((from, until), part)| (inside(from, until), part));
    clipped.filter(|((from, until), _)| from < until)
}
