//! Bytes as the ring hands them over: each record becomes its event, and whatever else comes is an unknown event.

use fsyncscope::event::{Delay, EndSeen, Event, Portion, Ran, Request, Role, Source};
use fsyncscope_ebpf::event::{
    CommitRecord, DelayRecord, FileRecord, FilesystemRecord, Header, Kind, PortionRecord, QueueRecord, SyncRecord,
    ThreadExitRecord, ThreadRecord, WaitRecord,
};
use fsyncscope_ebpf::limits::{PATH, RAN, RECENT, STACK};
use fsyncscope_ebpf::part::Part;
use fsyncscope_ebpf::slot;

use crate::sums::Random;

/// The bytes of a record, as the probes write them.
fn bytes<T: Copy>(record: &T) -> Vec<u8> {
    // SAFETY: records are repr(C) without padding, so every byte of one is initialised.
    unsafe { std::slice::from_raw_parts((&raw const *record).cast::<u8>(), size_of::<T>()) }.to_vec()
}

fn header(kind: Kind) -> Header {
    Header { kind: kind as u32, slot: 7, time_ns: 9_000 }
}

fn name<const N: usize>(text: &str) -> [u8; N] {
    std::array::from_fn(|index| text.as_bytes().get(index).copied().unwrap_or(0))
}

fn sync() -> SyncRecord {
    SyncRecord {
        header: header(Kind::Sync),
        start_ns: 1_000,
        end_ns: 8_000,
        return_ns: 8_500,
        inode: 13,
        tid: 22,
        tgid: 21,
        dev: 8 << 20 | 1,
        datasync: 1,
        result: -5,
        syscall: 75,
        switches: 3,
        end: 0,
        directory: 0,
        result_known: 1,
        asker: slot::Asker::default(),
        comm: name("ForceWriteThread"),
        hands: std::array::from_fn(|hand| hand as u64),
        journal_hands: std::array::from_fn(|hand| 100 + hand as u64),
        after: [1, 2, 3, 4],
    }
}

fn thread(role: u32) -> ThreadRecord {
    let (comm, process) = (name("ForceWriteThrea"), name("java"));
    let header = header(Kind::Thread);
    ThreadRecord { header, tid: 22, tgid: 21, role, generation: 3, started_ns: 5, cgroup: 77, comm, process }
}

/// A file by its names from the leaf upwards, each with a zero behind it.
fn file(names: &str, complete: u32) -> FileRecord {
    let header = header(Kind::File);
    FileRecord { header, inode: 13, dev: 8, bytes: names.len() as u32, complete, tgid: 21, names: name(names) }
}

fn request(number: u64) -> slot::Request {
    slot::Request {
        allocated_ns: 1_000 + number,
        issued_ns: 2_000 + number,
        done_ns: 3_000 + number,
        inode: number,
        sector: 8,
        inode_dev: 8,
        bytes: 4096,
        command: 1,
        tid: 30,
        submitter: slot::Submitter::Flusher as u16,
        reason: 3,
        in_flight: 4,
        done_tid: 31,
        issued_tid: 32,
        issuer_woken_ns: 1_500 + number,
        issuer_running_ns: 1_600 + number,
        comm: name("kworker/u4:1"),
    }
}

fn wait(request: slot::Request) -> WaitRecord {
    let mut stack = [0; STACK];
    stack[..2].copy_from_slice(&[0xffff_ffff_8100_0000, 0xffff_ffff_8100_1000]);
    WaitRecord {
        header: header(Kind::Wait),
        start_ns: 2_000,
        tid: 22,
        tgid: 21,
        waker_tid: 31,
        waker_tgid: 31,
        part: Part::Device as u32,
        disk: 7 << 20,
        function: 0xffff_ffff_8200_0000,
        waker: name("kworker/1:1H"),
        request,
        flushes: [[1, 2], [3, 4]],
        flush_tids: [5, 6],
        stack,
    }
}

fn switch(until_ns: u64, tid: u32) -> slot::Ran {
    slot::Ran { until_ns, tid, tgid: tid, comm: name("hog-thread"), process: name("cpu-hog") }
}

/// A delay from 1,000 to 9,000 with the switches that its CPU remembered.
fn delay(switches: &[(u64, u32)]) -> DelayRecord {
    let ran =
        std::array::from_fn(|index| switches.get(index).map_or(switch(0, 0), |(until, tid)| switch(*until, *tid)));
    DelayRecord {
        header: header(Kind::Delay),
        start_ns: 1_000,
        tid: 22,
        tgid: 21,
        cpu: 1,
        former_cpu: 1,
        unused: 0,
        part: Part::Preempted as u32,
        ran,
    }
}

fn queue(completed: u64) -> QueueRecord {
    let recent =
        std::array::from_fn(
            |place| if (place as u64) < completed { request(place as u64) } else { slot::Request::default() },
        );
    QueueRecord { header: header(Kind::Queue), disk: 7 << 20, in_flight: 2, completed, recent }
}

fn commit() -> CommitRecord {
    CommitRecord {
        header: header(Kind::Commit),
        tid: 40,
        transaction: 6,
        dev: 8,
        tgid: 40,
        phases: [1, 2, 3, 4],
        blocks: 5,
        operations: 6,
        before: slot::Commits { count: 7, blocks: 8, logging_ns: 9 },
    }
}

fn filesystem() -> FilesystemRecord {
    FilesystemRecord { header: header(Kind::Filesystem), magic: 0xef53, dev: 8, disk: 7 << 20 }
}

/// One record of each kind.
fn portion() -> PortionRecord {
    PortionRecord { header: header(Kind::Portion), start_ns: 2_000, tid: 22, dev: 8 << 20 | 1 }
}

fn every_kind() -> Vec<(Kind, Vec<u8>)> {
    let exit = ThreadExitRecord { header: header(Kind::ThreadExit), tid: 22, tgid: 21 };
    vec![
        (Kind::Sync, bytes(&sync())),
        (Kind::Thread, bytes(&thread(1))),
        (Kind::ThreadExit, bytes(&exit)),
        (Kind::File, bytes(&file("1.txn\0current\0", 1))),
        (Kind::Wait, bytes(&wait(request(1)))),
        (Kind::Delay, bytes(&delay(&[(2_000, 50)]))),
        (Kind::Queue, bytes(&queue(5))),
        (Kind::Commit, bytes(&commit())),
        (Kind::Filesystem, bytes(&filesystem())),
        (Kind::Portion, bytes(&portion())),
    ]
}

#[test]
fn a_whole_record_is_known_and_any_beginning_of_it_is_not() {
    for (kind, whole) in every_kind() {
        assert!(!matches!(Event::parse(&whole), Event::Unknown { .. }), "{kind:?}");
        let longer = [whole.as_slice(), &[0xff; 24]].concat();
        assert_eq!(Event::parse(&longer), Event::parse(&whole), "a newer {kind:?} has more behind what is known");
        for length in 0..whole.len() {
            let known = if length < size_of::<Header>() { 0 } else { kind as u32 };
            assert_eq!(Event::parse(&whole[..length]), Event::Unknown { kind: known }, "{length} bytes of {kind:?}");
        }
    }
}

#[test]
fn any_bytes_are_an_event() {
    let mut random = Random(0x5eed);
    let kinds: Vec<(u32, usize)> = every_kind().into_iter().map(|(kind, whole)| (kind as u32, whole.len())).collect();
    for _ in 0..500 {
        for (kind, length) in &kinds {
            let mut garbage: Vec<u8> = (0..*length).map(|_| random.next() as u8).collect();
            garbage[..4].copy_from_slice(&kind.to_ne_bytes());
            let event = Event::parse(&garbage);
            assert!(!matches!(event, Event::Unknown { .. }), "kind {kind}");
            let text = serde_json::to_string(&event).expect("an event is plain data");
            assert_eq!(serde_json::from_str::<Event>(&text).expect("it was just written"), event);
        }
    }
    let future = [&99_u32.to_ne_bytes()[..], &[1; 400]].concat();
    assert_eq!(Event::parse(&future), Event::Unknown { kind: 99 });
}

#[test]
fn a_workers_sync_is_told_of_who_asked() {
    let asker = slot::Asker {
        door: slot::Door::IoUring as u32,
        opcode: 3,
        tid: 33,
        tgid: 31,
        asked_ns: 400,
        work: 5,
        comm: name("submitter"),
        process: name("broker"),
    };
    let told = |asker: slot::Asker| match Event::parse(&bytes(&SyncRecord { asker, directory: 1, ..sync() })) {
        Event::Sync(event) => event,
        other => panic!("{other:?}"),
    };
    let event = told(asker);
    assert_eq!((event.tid, event.pid, event.thread.as_str(), event.directory), (33, 31, "submitter", true));
    assert_eq!((event.start_ns, event.begun_ns(), event.end_ns, event.doer()), (400, 1_000, 8_000, 22));
    let asked = event.asked.expect("a worker did it");
    assert_eq!((asked.through.word(), asked.opcode, asked.process.as_str()), ("io_uring", 3, "broker"));
    // When it was asked for was not seen, or is later than its begin: another's.
    for asked_ns in [0, 1_001] {
        let event = told(slot::Asker { asked_ns, door: slot::Door::Aio as u32, ..asker });
        assert_eq!((event.start_ns, event.begun_ns()), (1_000, 1_000));
        assert_eq!(event.asked.map(|asked| asked.through.word()), Some("aio"));
    }
    let event = told(slot::Asker { door: slot::Door::Call as u32, ..asker });
    assert_eq!((event.tid, event.start_ns, event.begun_ns(), event.asked), (22, 1_000, 1_000, None));
}

#[test]
fn a_portion_keeps_every_number() {
    let told = Portion { start_ns: 2_000, end_ns: 9_000, tid: 22, dev: 8 << 20 | 1 };
    assert_eq!(Event::parse(&bytes(&portion())), Event::Portion(told));
}

#[test]
fn a_sync_keeps_every_number() {
    let Event::Sync(event) = Event::parse(&bytes(&sync())) else { panic!("no sync") };
    let record = sync();
    assert_eq!((event.start_ns, event.end_ns, event.return_ns), (1_000, 8_000, 8_500));
    assert_eq!((event.tid, event.pid, event.thread.as_str()), (22, 21, "ForceWriteThread"));
    assert_eq!((event.dev, event.inode, event.datasync), (8 << 20 | 1, 13, true));
    assert_eq!((event.syscall, event.result, event.end), (75, -5, EndSeen::Exactly));
    assert_eq!((event.hands, event.journal_hands, event.after), (record.hands, record.journal_hands, record.after));
    for (end, seen) in [(1, EndSeen::AtReturn), (2, EndSeen::Unseen), (77, EndSeen::Unseen)] {
        let Event::Sync(event) = Event::parse(&bytes(&SyncRecord { end, datasync: 0, ..sync() })) else {
            panic!("{end}")
        };
        assert_eq!((event.end, event.datasync, event.result_known), (seen, false, true));
    }
}

#[test]
fn a_thread_has_its_names_and_its_role() {
    for (number, role) in [(1, Role::Sync), (2, Role::Journal), (3, Role::Worker), (9, Role::Worker)] {
        let Event::Thread(event) = Event::parse(&bytes(&thread(number))) else { panic!("no thread") };
        assert_eq!((event.tid, event.pid, event.role, event.slot, event.cgroup), (22, 21, role, 7, 77));
        assert_eq!((event.thread.as_str(), event.process.as_str()), ("ForceWriteThrea", "java"));
    }
}

#[test]
fn a_path_is_turned_round_and_says_where_it_begins() {
    let path = |record: &FileRecord| match Event::parse(&bytes(record)) {
        Event::File { dev: 8, inode: 13, path } => path,
        other => panic!("{other:?}"),
    };
    assert_eq!(path(&file("1.txn\0current\0bookkeeper\0", 1)), "/bookkeeper/current/1.txn");
    assert_eq!(path(&file("1.txn\0current\0", 0)), "current/1.txn");
    assert_eq!(path(&file("", 1)), "/");
    let beyond = FileRecord { bytes: u32::MAX, names: [b'a'; PATH], ..file("", 0) };
    assert_eq!(path(&beyond), "a".repeat(PATH));
}

#[test]
fn a_wait_has_its_request_only_if_there_was_one() {
    let Event::Wait(event) = Event::parse(&bytes(&wait(request(1)))) else { panic!("no wait") };
    assert_eq!((event.start_ns, event.end_ns, event.tid, event.pid), (2_000, 9_000, 22, 21));
    assert_eq!((event.waker_tid, event.waker.as_str(), event.function), (31, "kworker/1:1H", 0xffff_ffff_8200_0000));
    assert_eq!((event.part, event.disk, event.flushes), (Part::Device as u32, 7 << 20, [[1, 2], [3, 4]]));
    assert_eq!(event.stack, [0xffff_ffff_8100_0000, 0xffff_ffff_8100_1000]);
    let wanted = Request {
        allocated_ns: 1_001,
        issued_ns: 2_001,
        done_ns: 3_001,
        inode: 1,
        sector: 8,
        inode_dev: 8,
        bytes: 4096,
        command: 1,
        tid: 30,
        comm: "kworker/u4:1".into(),
        submitter: Source::Flusher,
        reason: 3,
        in_flight: 4,
        done_tid: 31,
        issued_tid: 32,
    };
    assert_eq!(event.request, Some(wanted));
    assert_eq!(event.flush_tids, [5, 6]);
    let Event::Wait(event) = Event::parse(&bytes(&wait(slot::Request::default()))) else { panic!("no wait") };
    assert_eq!(event.request, None);
}

#[test]
fn every_submitter_has_its_word() {
    let words = [
        Source::Sync,
        Source::Journal,
        Source::Flusher,
        Source::Throttle,
        Source::Worker,
        Source::Other,
        Source::Other,
    ];
    for (number, source) in words.into_iter().enumerate() {
        let record = wait(slot::Request { submitter: number as u16, ..request(1) });
        let Event::Wait(event) = Event::parse(&bytes(&record)) else { panic!("no wait") };
        assert_eq!(event.request.map(|request| request.submitter), Some(source));
    }
}

fn ran(switches: &[(u64, u32)]) -> Vec<(u32, u64)> {
    let Event::Delay(Delay { start_ns: 1_000, end_ns: 9_000, preempted: true, cpu: 1, ran, .. }) =
        Event::parse(&bytes(&delay(switches)))
    else {
        panic!("no such delay")
    };
    let named = |ran: &Ran| ran.process == "cpu-hog" && ran.thread == "hog-thread" && ran.pid == ran.tid;
    assert!(ran.iter().all(named), "{ran:?}");
    ran.iter().map(|ran| (ran.tid, ran.ns)).collect()
}

#[test]
fn who_ran_is_known_from_switch_to_switch() {
    assert_eq!(ran(&[]), []);
    assert_eq!(ran(&[(9_000, 50)]), [(50, 8_000)]);
    assert_eq!(ran(&[(5_000, 51), (3_000, 50), (9_000, 52)]), [(50, 2_000), (51, 2_000), (52, 4_000)], "in any order");
    assert_eq!(
        ran(&[(500, 49), (1_000, 50), (4_000, 51), (9_500, 52)]),
        [(51, 3_000)],
        "what lies outside is none of it"
    );
}

/// A CPU remembers a number of switches. When all of them lie in the delay, what came before the oldest is not known.
#[test]
fn more_switches_than_a_cpu_remembers_hide_the_first() {
    let full: Vec<(u64, u32)> = (0..RAN as u64).map(|index| (2_000 + index * 100, 50 + index as u32)).collect();
    let found = ran(&full);
    assert_eq!(found.len(), RAN - 1);
    assert_eq!(found[0], (51, 100), "the oldest ran for an unknown time, and so counts for nothing");
    let mut older = full.clone();
    older[0].0 = 900;
    assert_eq!(ran(&older)[0], (51, 1_100), "the oldest lies before the delay, so the next one ran from its start");
}

#[test]
fn a_queue_is_told_oldest_first() {
    let inodes = |completed: u64| match Event::parse(&bytes(&queue(completed))) {
        Event::Queue(queue) => queue.recent.iter().map(|request| request.inode).collect::<Vec<u64>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(inodes(0), [0_u64; 0]);
    assert_eq!(inodes(3), [0, 1, 2]);
    let turned = inodes(RECENT as u64 + 5);
    assert_eq!((turned.len(), turned[0], turned[RECENT - 1]), (RECENT, 5, 4));
}

#[test]
fn the_rest_keeps_every_number() {
    let Event::Commit(event) = Event::parse(&bytes(&commit())) else { panic!("no commit") };
    assert_eq!((event.tid, event.dev, event.transaction), (40, 8, 6));
    assert_eq!(
        (event.start_ns, event.locking_ns, event.flushing_ns, event.logging_ns, event.end_ns),
        (1, 2, 3, 4, 9_000)
    );
    assert_eq!((event.blocks, event.operations), (5, 6));
    assert_eq!((event.before.count, event.before.blocks, event.before.logging_ns), (7, 8, 9));
    assert_eq!(Event::parse(&bytes(&filesystem())), Event::Filesystem { dev: 8, magic: 0xef53, disk: 7 << 20 });
    let exit = ThreadExitRecord { header: header(Kind::ThreadExit), tid: 22, tgid: 21 };
    assert_eq!(Event::parse(&bytes(&exit)), Event::ThreadExit { tid: 22, pid: 21 });
}
