//! Bytes from the probes become events; events of the agent itself (names, losses) stand in the same stream.
//!
//! Architecture invariant: everything that the rooms to the right know comes through this stream, so that a recording
//! of it is explained exactly as the live stream was. Pure: no clock, no file; parsing never fails.

use fsyncscope_ebpf::event::{
    CommitRecord, DelayRecord, End, FileRecord, FilesystemRecord, Header, Kind, QueueRecord, SyncRecord,
    ThreadExitRecord, ThreadRecord, WaitRecord,
};
use fsyncscope_ebpf::limits::RECENT;
use fsyncscope_ebpf::part::{Hands, Part};
use fsyncscope_ebpf::slot::{self, Submitter};
use serde::{Deserialize, Serialize};

/// One event. Times are CLOCK_MONOTONIC in ns; devices are `major << 20 | minor`, as the kernel has them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Facts of the machine that a recording was made on; first in the stream.
    Start(Start),
    Sync(Sync),
    Thread(Thread),
    ThreadExit { tid: u32, pid: u32 },
    /// Path inside the filesystem, from its root; without the first `/` if the beginning is not known.
    File { dev: u32, inode: u64, path: String },
    Filesystem { dev: u32, magic: u64, disk: u32 },
    Wait(Box<Wait>),
    Delay(Delay),
    Queue(Box<Queue>),
    Commit(Commit),
    /// Where a file can be opened on this machine, and which processes have it open for writing.
    Path { dev: u32, inode: u64, path: String, writers: Vec<Writer> },
    /// A disk's name and what it is stacked on.
    Disk(Disk),
    /// The function that an address lies in.
    Symbol { address: u64, name: String },
    /// Events were lost between two polls.
    Lost { from_ns: u64, until_ns: u64, syncs: u64, details: u64 },
    /// A sync that still runs.
    Open(Open),
    /// Bytes that this version does not know.
    Unknown { kind: u32 },
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Start {
    pub version: String,
    pub kernel: String,
    /// `unix = monotonic + this`.
    pub unix_offset_ns: i64,
    pub threshold_ns: u64,
    /// Architecture whose system call numbers the syncs carry.
    pub architecture: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sync {
    pub start_ns: u64,
    pub end_ns: u64,
    /// 0 if the return to user mode was not seen.
    pub return_ns: u64,
    pub tid: u32,
    pub pid: u32,
    pub thread: String,
    pub dev: u32,
    pub inode: u64,
    pub datasync: bool,
    pub syscall: i32,
    /// Negative errno, or 0.
    pub result: i32,
    pub end: EndSeen,
    pub hands: Hands,
    pub journal_hands: Hands,
    pub after: [u64; 4],
}

/// How the end of a sync was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndSeen {
    Exactly,
    AtReturn,
    Unseen,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Thread {
    pub tid: u32,
    pub pid: u32,
    pub role: Role,
    pub slot: u32,
    pub cgroup: u64,
    pub thread: String,
    pub process: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Sync,
    Journal,
    Worker,
}

/// A request of a watched disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Request {
    pub allocated_ns: u64,
    /// 0 if it was never given to the driver: a bare flush.
    pub issued_ns: u64,
    pub done_ns: u64,
    /// Where it begins on the disk, in units of 512 bytes.
    #[serde(default)]
    pub sector: u64,
    /// 0 if unknown.
    pub inode: u64,
    pub inode_dev: u32,
    pub bytes: u32,
    pub command: u32,
    pub tid: u32,
    pub comm: String,
    pub submitter: Source,
    /// Writeback reason.
    pub reason: u16,
    /// Requests in flight when it was submitted.
    pub in_flight: u32,
    /// Task in whose context it completed.
    pub done_tid: u32,
}

/// Who submitted a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    Sync,
    Journal,
    Flusher,
    Throttle,
    Worker,
    #[default]
    Other,
}

/// A wait that was long enough to be told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wait {
    pub start_ns: u64,
    pub end_ns: u64,
    pub tid: u32,
    pub pid: u32,
    /// Index of the part that took the last piece of it.
    pub part: u32,
    pub waker_tid: u32,
    pub waker: String,
    /// Address of the waking worker's function.
    pub function: u64,
    pub disk: u32,
    pub request: Option<Request>,
    /// Flush before and after the request: issued, done.
    pub flushes: [[u64; 2]; 2],
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stack: Vec<u64>,
}

/// A run-queue delay that was long enough to be told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Delay {
    pub start_ns: u64,
    pub end_ns: u64,
    pub tid: u32,
    pub pid: u32,
    pub cpu: u32,
    pub preempted: bool,
    /// Who ran on that CPU meanwhile, as far as the CPU remembered, the last one last.
    pub ran: Vec<Ran>,
}

/// A task that ran while another waited for its CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    pub tid: u32,
    pub pid: u32,
    pub name: String,
    pub ns: u64,
}

/// What a disk completed last, oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Queue {
    pub time_ns: u64,
    pub disk: u32,
    pub in_flight: u32,
    pub recent: Vec<Request>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Commit {
    pub tid: u32,
    pub dev: u32,
    pub transaction: u32,
    pub start_ns: u64,
    pub locking_ns: u64,
    pub flushing_ns: u64,
    pub logging_ns: u64,
    pub end_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writer {
    pub pid: u32,
    pub name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    pub dev: u32,
    pub name: String,
    /// Whole disks below it.
    pub lower: Vec<u32>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Open {
    pub tid: u32,
    pub pid: u32,
    pub thread: String,
    pub dev: u32,
    pub inode: u64,
    pub datasync: bool,
    pub syscall: i32,
    pub start_ns: u64,
    pub now_ns: u64,
    pub hands: Hands,
    /// Index of the running part, or `BLOCKED`; and since when.
    pub class: u32,
    pub since_ns: u64,
    /// Functions on its kernel stack, innermost first; of its journal thread's if it waits for that.
    pub stack: Vec<String>,
    pub journal_stack: Vec<String>,
}

impl Event {
    /// One event from its bytes. Bytes of another version give [`Event::Unknown`].
    pub fn parse(bytes: &[u8]) -> Self {
        let Some(header) = read::<Header>(bytes) else { return Self::Unknown { kind: 0 } };
        let unknown = || Self::Unknown { kind: header.kind };
        match header.kind {
            kind if kind == Kind::Sync as u32 => read(bytes).map_or_else(unknown, sync),
            kind if kind == Kind::Thread as u32 => read(bytes).map_or_else(unknown, thread),
            kind if kind == Kind::ThreadExit as u32 => {
                read(bytes).map_or_else(unknown, |ThreadExitRecord { tid, tgid, .. }| Self::ThreadExit { tid, pid: tgid })
            }
            kind if kind == Kind::File as u32 => read(bytes).map_or_else(unknown, |record| file(&record)),
            kind if kind == Kind::Filesystem as u32 => read(bytes)
                .map_or_else(unknown, |FilesystemRecord { dev, magic, disk, .. }| Self::Filesystem { dev, magic, disk }),
            kind if kind == Kind::Wait as u32 => read(bytes).map_or_else(unknown, wait),
            kind if kind == Kind::Delay as u32 => read(bytes).map_or_else(unknown, delay),
            kind if kind == Kind::Queue as u32 => read(bytes).map_or_else(unknown, queue),
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
    Event::Sync(Sync {
        start_ns: record.start_ns,
        end_ns: record.end_ns,
        return_ns: record.return_ns,
        tid: record.tid,
        pid: record.tgid,
        thread: text(&record.comm),
        dev: record.dev,
        inode: record.inode,
        datasync: record.datasync != 0,
        syscall: record.syscall,
        result: record.result,
        end,
        hands: record.hands,
        journal_hands: record.journal_hands,
        after: record.after,
    })
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

fn request(record: &slot::Request) -> Request {
    let submitter = match record.submitter {
        source if source == Submitter::Sync as u16 => Source::Sync,
        source if source == Submitter::Journal as u16 => Source::Journal,
        source if source == Submitter::Flusher as u16 => Source::Flusher,
        source if source == Submitter::Throttle as u16 => Source::Throttle,
        source if source == Submitter::Worker as u16 => Source::Worker,
        _ => Source::Other,
    };
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
        submitter,
        reason: record.reason,
        in_flight: record.in_flight,
        done_tid: record.done_tid,
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
        stack: record.stack.into_iter().take_while(|address| *address != 0).collect(),
    }))
}

fn delay(record: DelayRecord) -> Event {
    Event::Delay(Delay {
        start_ns: record.start_ns,
        end_ns: record.header.time_ns,
        tid: record.tid,
        pid: record.tgid,
        cpu: record.cpu,
        preempted: record.part == Part::Preempted as u32,
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
    for switch in switches.into_iter().filter(|switch| switch.until_ns > record.start_ns && switch.until_ns <= record.header.time_ns) {
        ran.push(Ran { tid: switch.tid, pid: switch.tgid, name: text(&switch.comm), ns: switch.until_ns.saturating_sub(reached) });
        reached = switch.until_ns;
    }
    ran
}

fn queue(record: QueueRecord) -> Event {
    let oldest = record.completed.saturating_sub(RECENT as u64);
    let places = (oldest..record.completed).map(|count| &record.recent[count as usize % RECENT]);
    let recent = places.filter(|entry| entry.done_ns != 0).map(request).collect();
    Event::Queue(Box::new(Queue { time_ns: record.header.time_ns, disk: record.disk, in_flight: record.in_flight, recent }))
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
    })
}
