//! Bytes from the probes become events. Pure; it never fails: what it does not know it says so.

use fsyncscope_ebpf::event::{
    CommitRecord, DelayRecord, End, FileRecord, FilesystemRecord, Header, Kind, PortionRecord, QueueRecord, SyncRecord,
    ThreadExitRecord, ThreadRecord, WaitRecord,
};
use fsyncscope_ebpf::limits::RECENT;
use fsyncscope_ebpf::part::Part;
use fsyncscope_ebpf::slot::{self, Asker, Door, Submitter, Written, WrittenKey};

use super::{
    Asked, Commit, Commits, Delay, EndSeen, Event, Portion, Queue, Ran, Request, Role, Source, Sync, Thread, Through,
    Wait, WrittenBack,
};

/// The thread for which a worker did a sync, where that was not seen.
const UNKNOWN: &str = "unknown";

impl Event {
    /// One event from its bytes. Bytes of another version give [`Event::Unknown`].
    pub fn parse(bytes: &[u8]) -> Self {
        let Some(header) = read::<Header>(bytes) else { return Self::Unknown { kind: 0 } };
        let unknown = || Self::Unknown { kind: header.kind };
        match header.kind {
            kind if kind == Kind::Sync as u32 => read(bytes).map_or_else(unknown, sync),
            kind if kind == Kind::Thread as u32 => read(bytes).map_or_else(unknown, thread),
            kind if kind == Kind::ThreadExit as u32 => read(bytes)
                .map_or_else(unknown, |ThreadExitRecord { tid, tgid, .. }| Self::ThreadExit { tid, pid: tgid }),
            kind if kind == Kind::File as u32 => read(bytes).map_or_else(unknown, |record| file(&record)),
            kind if kind == Kind::Filesystem as u32 => {
                read(bytes).map_or_else(unknown, |FilesystemRecord { dev, magic, disk, .. }| Self::Filesystem {
                    dev,
                    magic,
                    disk,
                })
            }
            kind if kind == Kind::Wait as u32 => read(bytes).map_or_else(unknown, wait),
            kind if kind == Kind::Delay as u32 => read(bytes).map_or_else(unknown, delay),
            kind if kind == Kind::Queue as u32 => read(bytes).map_or_else(unknown, queue),
            kind if kind == Kind::Portion as u32 => {
                read(bytes).map_or_else(unknown, |PortionRecord { header, start_ns, tid, dev }| {
                    Self::Portion(Portion { start_ns, end_ns: header.time_ns, tid, dev })
                })
            }
            kind if kind == Kind::Commit as u32 => read(bytes).map_or_else(unknown, commit),
            _ => unknown(),
        }
    }
}

/// A record from the start of some bytes; `None` if they are too few.
fn read<T: Copy>(bytes: &[u8]) -> Option<T> {
    // SAFETY: the length is checked; records are plain numbers, for which any bits are a value.
    (bytes.len() >= size_of::<T>()).then(|| unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// A name that the kernel ends with a zero.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn sync(record: SyncRecord) -> Event {
    let end = match record.end {
        end if end == End::Event as u32 => EndSeen::Exactly,
        end if end == End::Return as u32 => EndSeen::AtReturn,
        _ => EndSeen::Unseen,
    };
    let asked = asked(&record.asker, record.tid, record.start_ns);
    let by_call = asked.is_none();
    let Asker { asked_ns, tid, tgid, comm, .. } = record.asker;
    Event::Sync(Sync {
        start_ns: if by_call || asked_ns == 0 { record.start_ns } else { asked_ns.min(record.start_ns) },
        end_ns: record.end_ns,
        return_ns: record.return_ns,
        tid: if by_call { record.tid } else { tid },
        pid: if by_call { record.tgid } else { tgid },
        thread: if by_call || tid != 0 { text(if by_call { &record.comm } else { &comm }) } else { UNKNOWN.to_owned() },
        dev: record.dev,
        inode: record.inode,
        datasync: record.datasync != 0,
        syscall: record.syscall,
        result: record.result,
        end,
        hands: record.hands,
        journal_hands: record.journal_hands,
        after: record.after,
        directory: record.directory != 0,
        result_known: record.result_known != 0 && end != EndSeen::Exactly,
        asked,
    })
}

/// Who asked for what a worker did from `begun_ns` on; nothing for a system call.
pub fn asked(asker: &Asker, worker: u32, begun_ns: u64) -> Option<Asked> {
    let through = match asker.door {
        door if door == Door::IoUring as u32 => Through::IoUring,
        door if door == Door::Aio as u32 => Through::Aio,
        _ => return None,
    };
    Some(Asked { through, opcode: asker.opcode, worker, begun_ns, process: text(&asker.process) })
}

fn thread(record: ThreadRecord) -> Event {
    let role = match record.role {
        role if role == slot::Role::Sync as u32 => Role::Sync,
        role if role == slot::Role::Journal as u32 => Role::Journal,
        _ => Role::Worker,
    };
    Event::Thread(Thread {
        tid: record.tid,
        pid: record.tgid,
        role,
        slot: record.header.slot,
        generation: record.generation,
        cgroup: record.cgroup,
        thread: text(&record.comm),
        process: text(&record.process),
    })
}

fn file(record: &FileRecord) -> Event {
    let used = (record.bytes as usize).min(record.names.len());
    let mut names: Vec<String> = record.names[..used].split(|byte| *byte == 0).map(text).collect();
    names.retain(|name| !name.is_empty());
    names.reverse();
    let root = if record.complete != 0 { "/" } else { "" };
    Event::File { dev: record.dev, inode: record.inode, path: format!("{root}{}", names.join("/")) }
}

fn source(submitter: u16) -> Source {
    match submitter {
        source if source == Submitter::Sync as u16 => Source::Sync,
        source if source == Submitter::Journal as u16 => Source::Journal,
        source if source == Submitter::Flusher as u16 => Source::Flusher,
        source if source == Submitter::Throttle as u16 => Source::Throttle,
        source if source == Submitter::Worker as u16 => Source::Worker,
        _ => Source::Other,
    }
}

impl WrittenBack {
    /// What an entry of the probes gained over what it held before.
    pub fn gained(key: &WrittenKey, now: &Written, before: &Written) -> Self {
        Self {
            from_ns: before.last_ns,
            until_ns: now.last_ns,
            disk: key.disk,
            inode: key.inode,
            inode_dev: key.inode_dev,
            submitter: source(key.submitter as u16),
            reason: key.reason as u16,
            tid: now.tid,
            comm: text(&now.comm),
            bytes: now.bytes.saturating_sub(before.bytes),
            requests: now.requests.saturating_sub(before.requests),
        }
    }
}

fn request(record: &slot::Request) -> Request {
    Request {
        allocated_ns: record.allocated_ns,
        issued_ns: record.issued_ns,
        done_ns: record.done_ns,
        sector: record.sector,
        inode: record.inode,
        inode_dev: record.inode_dev,
        bytes: record.bytes,
        command: record.command,
        tid: record.tid,
        comm: text(&record.comm),
        submitter: source(record.submitter),
        reason: record.reason,
        in_flight: record.in_flight,
        done_tid: record.done_tid,
        issued_tid: record.issued_tid,
    }
}

fn wait(record: WaitRecord) -> Event {
    Event::Wait(Box::new(Wait {
        start_ns: record.start_ns,
        end_ns: record.header.time_ns,
        tid: record.tid,
        pid: record.tgid,
        part: record.part,
        waker_tid: record.waker_tid,
        waker: text(&record.waker),
        function: record.function,
        disk: record.disk,
        request: (record.request.allocated_ns != 0).then(|| request(&record.request)),
        flushes: record.flushes,
        flush_tids: record.flush_tids,
        stack: record.stack.into_iter().take_while(|address| *address != 0).collect(),
    }))
}

/// Instead of the name of a process that had ended when it was asked for.
const ENDED: &str = "an ended process";

fn delay(record: DelayRecord) -> Event {
    Event::Delay(Delay {
        start_ns: record.start_ns,
        end_ns: record.header.time_ns,
        tid: record.tid,
        pid: record.tgid,
        cpu: record.cpu,
        preempted: record.part == Part::Preempted as u32,
        moved: record.former_cpu != record.cpu,
        ran: ran(&record),
    })
}

/// Who ran during a delay: each from the switch before it to its own. What came before the oldest switch that the CPU
/// remembered is known only if that switch lies before the delay.
fn ran(record: &DelayRecord) -> Vec<Ran> {
    let mut switches: Vec<&slot::Ran> = record.ran.iter().filter(|ran| ran.until_ns != 0).collect();
    switches.sort_by_key(|ran| ran.until_ns);
    let forgotten = switches.len() == record.ran.len() && switches[0].until_ns > record.start_ns;
    let mut reached = if forgotten { switches.remove(0).until_ns } else { record.start_ns };
    let mut ran = Vec::new();
    for switch in switches
        .into_iter()
        .filter(|switch| switch.until_ns > record.start_ns && switch.until_ns <= record.header.time_ns)
    {
        // A task that has ended meanwhile has no names any more, and its thread id stands for it.
        let ended = switch.tgid == 0 && switch.tid != 0;
        ran.push(Ran {
            tid: switch.tid,
            pid: if ended { switch.tid } else { switch.tgid },
            process: if ended { ENDED.into() } else { text(&switch.process) },
            thread: text(&switch.comm),
            ns: switch.until_ns.saturating_sub(reached),
        });
        reached = switch.until_ns;
    }
    ran
}

fn queue(record: QueueRecord) -> Event {
    let oldest = record.completed.saturating_sub(RECENT as u64);
    let places = (oldest..record.completed).map(|count| &record.recent[count as usize % RECENT]);
    let recent = places.filter(|entry| entry.done_ns != 0).map(request).collect();
    Event::Queue(Box::new(Queue {
        time_ns: record.header.time_ns,
        disk: record.disk,
        in_flight: record.in_flight,
        recent,
    }))
}

fn commit(record: CommitRecord) -> Event {
    let [start_ns, locking_ns, flushing_ns, logging_ns] = record.phases;
    Event::Commit(Commit {
        tid: record.tid,
        dev: record.dev,
        transaction: record.transaction,
        start_ns,
        locking_ns,
        flushing_ns,
        logging_ns,
        end_ns: record.header.time_ns,
        blocks: record.blocks,
        operations: record.operations,
        before: Commits {
            count: record.before.count,
            blocks: record.before.blocks,
            logging_ns: record.before.logging_ns,
        },
    })
}
