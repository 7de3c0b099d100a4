//! What a guest is asked to do. A job only does and tells; the host judges.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use fsyncscope::kernel::capability::Capability;
use serde_json::{Value, json};

use super::guest::{disk, mount_disk};
use super::passage::Passage;
use super::stacks;
use super::support::agent::Agent;
use super::support::journal::{Durability, Workload};
use super::support::scratch::Format;
use super::support::wait_for;

pub struct Job {
    pub name: &'static str,
    /// What the disks of the filesystems do at most, so that a sync is spent waiting for them.
    pub writes_a_second: u32,
    pub run: fn() -> Value,
}

/// Syncs of each journal in the next two; primes, so that no batch divides them.
const MANY: u64 = 997;
const FEW: u64 = 41;
pub const MANY_SYNCS: Job = Job { name: "many-syncs", writes_a_second: 1000, run: || journals(MANY) };
pub const FEW_SYNCS: Job = Job { name: "few-syncs", writes_a_second: 100, run: || journals(FEW) };
pub const REQUESTS: Job = Job { name: "requests", writes_a_second: 400, run: requests };
pub const PRIVILEGES: Job = Job { name: "privileges", writes_a_second: 1000, run: privileges };
pub const DOORS: Job = Job { name: "doors", writes_a_second: 0, run: || ALL_DOORS.go() };
pub const NEW_DOORS: Job = Job { name: "new-doors", writes_a_second: 0, run: || NEW_DOORS_OF_TWO.go() };
pub const OLD_DOORS: Job = Job { name: "old-doors", writes_a_second: 0, run: || DOORS_OF_5_10.go() };
pub const STACKS: Job = Job { name: "stacks", writes_a_second: 400, run: stacks::go };
pub const JOBS: [Job; 8] = [MANY_SYNCS, FEW_SYNCS, REQUESTS, PRIVILEGES, DOORS, NEW_DOORS, OLD_DOORS, STACKS];

const ALL_DOORS: Passage = Passage {
    formats: &[Format::Ext4, Format::Ext4WithoutJournal, Format::Xfs, Format::Btrfs],
    count: 17,
    closed: &[],
    unseen: &[],
    system_calls: true,
};
const NEW_DOORS_OF_TWO: Passage = Passage { formats: &[Format::Ext4, Format::Btrfs], ..ALL_DOORS };
/// A ring that a kernel thread empties takes only files that were registered with it there.
const DOORS_OF_5_10: Passage = Passage {
    formats: &[Format::Ext4],
    count: 17,
    // The others' syncs are told there as those of io_uring's workers.
    closed: &["io_uring_sqpoll", "io_uring", "io_uring_linked"],
    unseen: &["aio_fsync", "aio_fdsync", "syncfs", "sync"],
    system_calls: false,
};

const FILESYSTEMS: [&str; 2] = ["ext4", "xfs"];
const WAYS: [(&str, Durability); 3] =
    [("fsync", Durability::Fsync), ("fdatasync", Durability::Fdatasync), ("o_dsync", Durability::DsyncWrite)];

/// On each filesystem, journals that make their bytes durable in three ways, and what the agent tells of them.
fn journals(count: u64) -> Value {
    let places = FILESYSTEMS.map(mount_disk);
    let doctors = FILESYSTEMS.map(|filesystem| doctor(filesystem, &mut agent()));
    let agent = Agent::watch(&["--threshold", "0"]);
    let mut ways = Vec::new();
    for (filesystem, place) in FILESYSTEMS.iter().zip(&places) {
        for (word, durability) in WAYS {
            let thread = format!("{filesystem}-{word}");
            let file = place.join(&thread);
            let mut workload = Workload::new(&thread, file.clone());
            workload.durability = durability;
            workload.count = Some(count);
            let journal = workload.spawn();
            let tid = journal.tid();
            let book = journal.wait();
            let about = std::fs::metadata(&file).expect("look at the journal's file");
            let book: Vec<Value> = book.iter().map(|each| json!([each.start_ns, each.end_ns, each.error])).collect();
            let dev = [libc::major(about.dev()), libc::minor(about.dev())];
            ways.push(json!({
                "filesystem": filesystem, "operation": word, "thread": thread, "tid": tid, "path": file, "inode": about.ino(), "dev": dev,
                "book": book,
            }));
        }
    }
    let all = ways.len() * count as usize;
    wait_for(Duration::from_secs(5), || (agent.printed() >= all).then_some(()));
    let ended = agent.interrupt();
    json!({
        "release": std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim(),
        "doctors": doctors, "ways": ways, "syncs": ended.syncs, "said": ended.said, "status": ended.status.code(),
    })
}

/// What `doctor` says of a filesystem.
fn doctor(filesystem: &str, command: &mut Command) -> Value {
    let output = command.args(["doctor", "--json", "--canary", &format!("/{filesystem}")]).output();
    let output = output.expect("start doctor");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    json!({ "filesystem": filesystem, "report": report, "said": String::from_utf8_lossy(&output.stderr) })
}

fn agent() -> Command {
    Command::new(env!("CARGO_BIN_EXE_fsyncscope"))
}

/// What `disks` tells of requests that merge in every way, and what the kernel counts meanwhile.
fn requests() -> Value {
    let place = mount_disk("ext4");
    let disk = disk("ext4").file_name().expect("a disk has a name").to_string_lossy().into_owned();
    let queue = Path::new("/sys/block").join(&disk).join("queue/scheduler");
    // It makes one request of two.
    std::fs::write(queue, "mq-deadline").expect("choose a scheduler");
    let file = place.join("batches");
    std::fs::write(&file, vec![0; (BATCHES * BLOCK) as usize * ORDER.len()]).expect("fill a file");
    let agent = Agent::disks(&["--every", "1s"]);
    // A disk is watched from the first sync on it.
    File::open(&file).and_then(|file| file.sync_all()).expect("sync a file");
    let before = idle(&disk);
    let from = agent.printed();
    write_batches(&file);
    let mut workload = Workload::new("journal", place.join("journal"));
    workload.count = Some(FEW);
    workload.spawn().wait();
    let after = idle(&disk);
    let pictures = agent.interrupt().syncs.split_off(from);
    json!({ "disk": disk, "before": before, "after": after, "pictures": pictures })
}

const BLOCK: u64 = 4096;
const BATCHES: u64 = 61;
/// Neighbouring blocks in the order in which they are handed in, each batch at once: those that go down are merged in
/// front of the last, and those that come late make two requests one.
const ORDER: [u64; 16] = [3, 2, 1, 0, 8, 6, 12, 7, 5, 4, 15, 14, 13, 9, 10, 11];

/// Writes directly, by Linux AIO.
fn write_batches(path: &Path) {
    let file = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(path).expect("open a file");
    let block = Box::new(Aligned([0x62; BLOCK as usize]));
    let mut context: u64 = 0;
    // SAFETY: the kernel writes the number of a context of ours.
    let result = unsafe { libc::syscall(libc::SYS_io_setup, ORDER.len(), &raw mut context) };
    assert_eq!(result, 0, "set up AIO: {}", std::io::Error::last_os_error());
    for batch in 0..BATCHES {
        let write = |number: &u64| {
            // SAFETY: the struct is plain numbers, for which zero is a value.
            let mut control: libc::iocb = unsafe { std::mem::zeroed() };
            control.aio_lio_opcode = WRITE;
            control.aio_fildes = file.as_raw_fd() as u32;
            control.aio_buf = block.0.as_ptr() as u64;
            control.aio_nbytes = BLOCK;
            control.aio_offset = ((batch * ORDER.len() as u64 + number) * BLOCK) as i64;
            control
        };
        let controls: Vec<libc::iocb> = ORDER.iter().map(write).collect();
        let pointers: Vec<*const libc::iocb> = controls.iter().map(|control| &raw const *control).collect();
        let (count, none) = (pointers.len(), std::ptr::null::<libc::timespec>());
        let mut events = [[0u64; 4]; ORDER.len()];
        // SAFETY: the context is set up; the pointers, what they point to and the block outlive both calls, the second of
        // which waits until all are done; an event is four words.
        let handed = unsafe { libc::syscall(libc::SYS_io_submit, context, count, pointers.as_ptr()) };
        // SAFETY: as above.
        let done = unsafe { libc::syscall(libc::SYS_io_getevents, context, count, count, events.as_mut_ptr(), none) };
        assert_eq!([handed, done], [count as i64; 2], "write by AIO: {}", std::io::Error::last_os_error());
        assert!(events.iter().all(|event| event[2] == BLOCK), "{events:?}");
    }
}

/// `IOCB_CMD_PWRITE` of the kernel's `include/uapi/linux/aio_abi.h`.
const WRITE: u16 = 1;

/// A buffer as direct writes want it.
#[repr(align(4096))]
struct Aligned([u8; BLOCK as usize]);

/// What the kernel has counted of a disk, once nothing happens on it any more: the columns of its `stat`.
fn idle(disk: &str) -> Vec<u64> {
    let path = Path::new("/sys/block").join(disk).join("stat");
    let counts = || -> Vec<u64> {
        let text = std::fs::read_to_string(&path).expect("read the disk's counts");
        text.split_whitespace().map(|word| word.parse().expect("a number")).collect()
    };
    let mut last = counts();
    let settled = || {
        std::thread::sleep(Duration::from_secs(2));
        let now = counts();
        (std::mem::replace(&mut last, now.clone()) == now).then_some(now)
    };
    wait_for(Duration::from_secs(60), settled).expect("the disk is not idle")
}

/// What `doctor` says with few capabilities.
fn privileges() -> Value {
    mount_disk("ext4");
    let of = |names: &[&str]| doctor("ext4", within(&mut agent(), names));
    json!({
        "none": of(&[]), "needed": of(&["BPF", "PERFMON"]), "manifest": of(&manifest()),
        "manifest and SYS_RESOURCE": of(&[&manifest()[..], &["SYS_RESOURCE"]].concat()),
    })
}

/// The capabilities of the manifest's container.
fn manifest() -> Vec<&'static str> {
    let text = include_str!("../../../deploy/daemonset.yaml");
    let list = text.lines().find_map(|line| line.trim().strip_prefix("add: [")?.strip_suffix("]"));
    list.expect("the manifest adds capabilities").split(", ").collect()
}

/// Has a command run as root with these capabilities and no other.
fn within<'a>(command: &'a mut Command, names: &[&str]) -> &'a mut Command {
    let known =
        |name: &&str| Capability::ALL.into_iter().find(|each| each.name() == *name).expect("a capability's name");
    let kept: Vec<i32> = names.iter().map(known).map(|capability| capability as i32).collect();
    let drop = move || {
        // The last ones are not known to every kernel.
        for number in (0..64).filter(|number| !kept.contains(number)) {
            // SAFETY: the call takes numbers.
            unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) };
        }
        Ok(())
    };
    // SAFETY: between fork and exec it only makes system calls.
    unsafe { command.pre_exec(drop) }
}
