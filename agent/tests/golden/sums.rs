//! Any record of a sync, however wrong its clocks, has a breakdown that sums exactly, and nothing panics on the way.

use fsyncscope::attribution::{Explanation, explain};
use fsyncscope::event::{
    Asked, Commit, Commits, Delay, Disk, EndSeen, Event, Open, Queue, Ran, Request, Role, Source, Start, Sync, Thread,
    Through, Wait,
};
use fsyncscope::report;
use fsyncscope::timeline::Timeline;
use fsyncscope_ebpf::part::{Hands, Part};

/// Numbers without a pattern, the same in every run.
pub struct Random(pub u64);

impl Random {
    /// The mixing of splitmix64: each step of a fixed width gives 64 well-mixed bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }

    /// A time of any size: the number of its bits is as random as the bits.
    fn time(&mut self) -> u64 {
        let bits = self.below(65);
        self.next().checked_shr(64 - bits as u32).unwrap_or(0)
    }

    /// Times by part that sum to a whole, or hardly anything that does.
    fn hands(&mut self, whole: u64) -> Hands {
        let mut hands = [0; Part::COUNT];
        match self.below(4) {
            0 => hands = std::array::from_fn(|_| self.time()),
            1 => {
                let only = self.below(Part::COUNT as u64) as usize;
                hands[only] = self.time();
            }
            _ => {
                let mut left = whole;
                for hand in &mut hands {
                    *hand = if self.one_in(2) { self.below(left) } else { 0 };
                    left -= *hand;
                }
                let last = self.below(Part::COUNT as u64) as usize;
                hands[last] += left;
            }
        }
        hands
    }
}

const DISK: u32 = 7 << 20;
const LOWER: u32 = 8 << 20;
const TID: u32 = 20;
const JOURNAL: u32 = 30;
const WORKER: u32 = 40;

fn sync(random: &mut Random) -> Sync {
    // Times of up to two years: the clock begins with the machine. Hands may be anything.
    let start_ns = if random.one_in(8) { random.time() >> 8 } else { 1_000_000_000 };
    let whole = random.time() >> if random.one_in(8) { 8 } else { 24 };
    let hands = random.hands(whole);
    Sync {
        start_ns,
        end_ns: if random.one_in(16) { random.time() >> 8 } else { start_ns.saturating_add(whole) },
        return_ns: if random.one_in(2) { 0 } else { random.time() },
        tid: TID,
        pid: TID,
        thread: "ForceWriteThrea".into(),
        dev: DISK,
        inode: 12,
        datasync: random.one_in(2),
        syscall: random.next() as i32,
        result: random.below(200) as i32 - 150,
        end: [EndSeen::Exactly, EndSeen::AtReturn, EndSeen::Unseen][random.below(3) as usize],
        journal_hands: random.hands(hands[Part::Journal as usize]),
        hands,
        after: std::array::from_fn(|_| random.time()),
        directory: random.one_in(8),
        result_known: random.one_in(2),
        asked: asked(random),
    }
}

/// That a worker did it, which may have begun at any time.
fn asked(random: &mut Random) -> Option<Asked> {
    random.one_in(4).then(|| Asked {
        through: if random.one_in(2) { Through::IoUring } else { Through::Aio },
        opcode: random.next() as u32,
        worker: WORKER,
        begun_ns: random.time(),
        process: "broker".into(),
    })
}

/// A time from somewhere around a sync, and one not before it.
fn span(random: &mut Random, sync: &Sync) -> (u64, u64) {
    let length = sync.end_ns.saturating_sub(sync.start_ns);
    let from = sync.start_ns.saturating_sub(length / 4).saturating_add(random.below(length));
    (from, from.saturating_add(random.below(length)))
}

fn request(random: &mut Random, sync: &Sync) -> Request {
    let (allocated_ns, issued_ns) = span(random, sync);
    let sources = [Source::Sync, Source::Journal, Source::Flusher, Source::Throttle, Source::Worker, Source::Other];
    Request {
        allocated_ns,
        issued_ns: if random.one_in(4) { 0 } else { issued_ns },
        done_ns: span(random, sync).1.max(issued_ns),
        inode: random.below(16),
        sector: random.next(),
        inode_dev: if random.one_in(3) { 0 } else { DISK },
        bytes: random.next() as u32,
        command: random.next() as u32,
        tid: [TID, JOURNAL, WORKER, 50][random.below(4) as usize],
        comm: "writer".into(),
        submitter: sources[random.below(6) as usize],
        reason: random.below(12) as u16,
        in_flight: random.next() as u32,
        done_tid: [0, WORKER][random.below(2) as usize],
        issued_tid: [0, WORKER][random.below(2) as usize],
    }
}

fn detail(random: &mut Random, sync: &Sync) -> Event {
    let ((start_ns, end_ns), tid) = (span(random, sync), [TID, JOURNAL, WORKER][random.below(3) as usize]);
    match random.below(5) {
        0 | 1 => Event::Wait(Box::new(Wait {
            start_ns,
            end_ns,
            tid,
            pid: tid,
            part: random.next() as u32,
            waker_tid: [0, JOURNAL, 50][random.below(3) as usize],
            waker: "waker".into(),
            function: random.below(2),
            disk: DISK,
            request: random.one_in(2).then(|| request(random, sync)),
            flushes: std::array::from_fn(|_| <[u64; 2]>::from(span(random, sync))),
            flush_tids: [0, WORKER],
            stack: Vec::new(),
        })),
        2 => {
            let ran = Ran {
                tid: 60,
                pid: 60,
                process: "cpu-hog".into(),
                thread: "cpu-hog".into(),
                ns: random.below(1 << 40),
            };
            Event::Delay(Delay {
                start_ns,
                end_ns,
                tid,
                pid: tid,
                cpu: 1,
                preempted: random.one_in(2),
                moved: random.one_in(2),
                ran: vec![ran],
            })
        }
        3 => Event::Queue(Box::new(Queue {
            time_ns: end_ns,
            disk: [DISK, LOWER][random.below(2) as usize],
            in_flight: 3,
            recent: (0..random.below(20)).map(|_| request(random, sync)).collect(),
        })),
        _ => {
            let [locking_ns, flushing_ns, logging_ns] = std::array::from_fn(|_| span(random, sync).1);
            Event::Commit(Commit {
                tid: JOURNAL,
                dev: DISK,
                transaction: 1,
                start_ns,
                locking_ns,
                flushing_ns,
                logging_ns,
                end_ns,
                blocks: random.below(1000) as u32,
                operations: 7,
                before: Commits {
                    count: random.below(100),
                    blocks: random.below(10_000),
                    logging_ns: random.below(1 << 40),
                },
            })
        }
    }
}

/// Who is who, on a disk that stands on another one in every second round.
fn machine(round: u64) -> Timeline {
    let mut timeline = Timeline::default();
    timeline.add(Event::Start(Start { architecture: "x86_64".into(), ..Start::default() }));
    let lower = if round.is_multiple_of(2) { vec![LOWER] } else { Vec::new() };
    timeline.add(Event::Disk(Disk { dev: DISK, name: "loop0".into(), lower, stacked: round.is_multiple_of(3) }));
    for (tid, role) in [(TID, Role::Sync), (JOURNAL, Role::Journal), (WORKER, Role::Worker)] {
        let (thread, process) = ("thread".into(), "process".into());
        timeline.add(Event::Thread(Thread {
            tid,
            pid: tid,
            role,
            slot: tid,
            generation: 1,
            cgroup: 1,
            thread,
            process,
        }));
    }
    timeline
}

fn explained(random: &mut Random, round: u64) -> Explanation {
    let mut timeline = machine(round);
    let sync = sync(random);
    for _ in 0..random.below(12) {
        timeline.add(detail(random, &sync));
    }
    if random.one_in(4) {
        timeline.add(Event::Lost { from_ns: 0, until_ns: sync.end_ns, syncs: 1, details: random.below(9) });
    }
    let sync = timeline.add(Event::Sync(sync)).expect("a sync completes itself");
    explain(sync, &timeline)
}

#[test]
fn any_sync_has_rows_that_sum_to_its_duration() {
    let mut random = Random(1);
    for round in 0..20_000 {
        let explanation = explained(&mut random, round);
        let (sync, breakdown) = (&explanation.sync, &explanation.breakdown);
        assert_eq!(breakdown.sum_ns(), sync.duration_ns(), "round {round}: {:?}", sync.event);
        assert_eq!(breakdown.whole_ns, sync.duration_ns());
        let certain = explanation.verdict.confidence == fsyncscope::attribution::Confidence::Certain;
        assert!(!(certain && sync.lost_events > 0), "round {round}: certain in spite of a loss");
        let object = report::json(&explanation, 1);
        assert_eq!(object["duration_ns"].as_u64(), Some(sync.duration_ns()));
        let block = report::block(&explanation, 1);
        let (rows, whole) = crate::rows(&block).expect("a block has rows");
        let tenths: u64 = rows.iter().map(|row| row.1).sum();
        assert!(
            tenths == whole.1 || sync.duration_ns() == 0,
            "round {round}: {tenths} tenths of a per cent in\n{block}"
        );
    }
}

#[test]
fn any_open_sync_has_rows_that_sum_to_its_age() {
    let mut random = Random(2);
    for round in 0..20_000 {
        let Sync { start_ns, end_ns, tid, pid, thread, dev, inode, datasync, syscall, hands, .. } = sync(&mut random);
        let open = Open {
            tid,
            pid,
            thread,
            dev,
            inode,
            datasync,
            syscall,
            start_ns,
            now_ns: end_ns,
            hands,
            class: if random.one_in(2) { u32::MAX } else { random.below(20) as u32 },
            in_flight: None,
            directory: false,
            asked: None,
            since_ns: random.time(),
            stack: Vec::new(),
            journal_stack: Vec::new(),
        };
        let shown = report::open_sync(&open, &machine(round));
        assert_eq!(shown.breakdown.sum_ns(), shown.sync.duration_ns(), "round {round}: {open:?}");
        assert!(report::open_json(&shown, 1)["open"].as_bool() == Some(true));
    }
}
