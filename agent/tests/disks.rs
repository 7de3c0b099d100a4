//! What the command `disks` and the metrics say of requests and writeback, against the kernel's own counts.

mod support;

use std::time::Duration;

use serde_json::Value;

use support::agent::{Agent, field};
use support::child::{Child, Role};
use support::faults::EarlyFlusher;
use support::interference::{Growth, Writer};
use support::journal::{Place, Workload};
use support::scratch::{Format, LoopFs, Scratch};
use support::{Machine, wait_for};

const SYNCS: u64 = 211;

/// What the kernel has counted of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counted {
    writes: u64,
    merges: u64,
    bytes: u64,
    flushes: u64,
}

#[test]
fn every_request_of_a_disk_is_counted_once() {
    for format in [Format::Ext4WithoutJournal, Format::Ext4, Format::Xfs] {
        skip_if!(format.missing());
        let _machine = Machine::lock();
        let scratch = Scratch::new("counted");
        let disk = LoopFs::new(&scratch, "disk", format, 512);
        let mut workload = Workload::new("journal", disk.join("1.txn"));
        workload.place = Place::Within(1 << 20);
        workload.count = Some(SYNCS);
        let agent = Agent::disks(&["--every", "1s"]);
        // A disk is watched from the first sync on it, before which a fresh filesystem may write of itself.
        let mut first = Workload::new("first", disk.join("2.txn"));
        first.count = Some(1);
        first.spawn().wait();
        let before = idle(&disk);
        let from = agent.syncs().len();
        let made = workload.spawn().wait().len() as u64;
        let after = idle(&disk);
        let pictures = agent.interrupt().syncs.split_off(from);
        let told = |kind: &str, submitter: &str, what: &str| sum(&pictures, &disk, kind, submitter, what);
        let (writes, flushes) = (after.writes - before.writes, after.flushes - before.flushes);
        let (told_writes, told_flushes) = (told("write", "", "/count"), told("flush", "", "/count"));
        eprintln!("{format:?}: kernel {writes} and {flushes}, told {told_writes} and {told_flushes}");
        assert_eq!(told("write", "", "/bytes"), after.bytes - before.bytes, "bytes on {format:?}: {pictures:#?}");
        // The kernel counts a flush without data as a write too.
        assert!((told_writes..=told_writes + told_flushes).contains(&writes), "writes on {format:?}");
        // A flush that several requests asked for counts for each of them.
        assert!(told_flushes >= flushes, "flushes on {format:?}");
        if format == Format::Ext4WithoutJournal {
            // The journal's file was filled and synced beforehand.
            assert_eq!((told("flush", "sync", "/count"), flushes), (made + 1, made + 1), "one flush for each sync");
            assert_eq!(told_writes + told_flushes, writes, "all of them without data");
            assert!(told("flush", "sync", "/queue/sum_ns") > 0 && told("flush", "sync", "/device/sum_ns") > 0);
        }
        if format == Format::Ext4 {
            assert!(told("flush", "journal", "/count") > 0, "the journal's commits flush");
        }
    }
}

#[test]
fn flushes_that_overlap_count_for_who_asked() {
    skip_if!(Format::Ext4.missing());
    let _machine = Machine::lock();
    let scratch = Scratch::new("overlap");
    let disk = LoopFs::new(&scratch, "disk", Format::Ext4, 128);
    let agent = Agent::disks(&["--every", "1s"]);
    let mut first = Workload::new("first", disk.join("first.txn"));
    first.count = Some(1);
    first.clone().spawn().wait();
    idle(&disk);
    let (from, before) = (agent.syncs().len(), commits(&disk));
    let journals: Vec<_> = (0..8)
        .map(|number| {
            let mut workload = Workload::new("journal", disk.join(&format!("{number}.txn")));
            (workload.count, workload.think_us) = (Some(SYNCS), 0);
            workload.spawn()
        })
        .collect();
    journals.into_iter().for_each(|journal| drop(journal.wait()));
    idle(&disk);
    let commits = commits(&disk) - before;
    let pictures = agent.interrupt().syncs.split_off(from);
    let told = |submitter: &str| sum(&pictures, &disk, "flush", submitter, "/count");
    eprintln!("{commits} commits, flushes: {} by the journal, {} by syncs", told("journal"), told("sync"));
    // One before the commit's last block and one after it; now and then one more when the log's start is moved.
    assert!((2 * commits..=2 * commits + 4).contains(&told("journal")), "not two flushes for each commit");
    assert!(pictures.iter().all(|picture| picture["lost"] == 0), "something is lost");
}

/// Transactions that the journal of a filesystem has committed.
fn commits(disk: &LoopFs) -> u64 {
    let info = format!("/proc/fs/jbd2/{}-8/info", disk.device_name());
    let text = std::fs::read_to_string(&info).expect("read the journal's counts");
    let first = text.split_whitespace().next().and_then(|word| word.parse().ok());
    first.unwrap_or_else(|| panic!("no number of transactions in {info}: {text}"))
}

#[test]
fn written_back_pages_have_their_file_their_reason_and_their_writer() {
    skip_if!(Format::Ext4WithoutJournal.missing());
    let stage = Stage::set("written");
    let agent = Agent::disks(&["--every", "2s"]);
    let (writer, file) = stage.play(Duration::from_secs(7));
    idle(&stage.disk);
    let pictures = agent.interrupt().syncs;
    let of_disk = |picture: &&Value| field::text(picture, "/device/name") == stage.disk.device_name();
    let rows: Vec<&Value> =
        pictures.iter().filter(of_disk).flat_map(|picture| list(picture, "/written_back")).collect();
    let bytes = |wanted: &dyn Fn(&Value) -> bool| -> u64 {
        rows.iter().filter(|row| wanted(row)).map(|row| field::number(row, "/bytes")).sum()
    };
    let of_file = |row: &Value| row.pointer("/file/path").and_then(Value::as_str) == Some(&file);
    assert!(bytes(&|row| of_file(row) && row["reason"] == "background") > 16 << 20, "{rows:#?}");
    let by_writer = |row: &Value| row.pointer("/writers/0/pid").and_then(Value::as_u64) == Some(writer.into());
    assert!(rows.iter().any(|row| of_file(row) && by_writer(row)), "its writer {writer} is not among {rows:#?}");
    // Nothing but what was written and the filesystem's own blocks: a wrong name is worse than none.
    let is_true = |row: &Value| of_file(row) || row["of"] != "file" || path(row).ends_with("1.txn");
    assert!(rows.iter().all(|row| is_true(row)), "{rows:#?}");
    let by_flusher = |row: &Value| row["submitter"] == "flusher";
    assert_eq!(bytes(&by_flusher), sum(&pictures, &stage.disk, "write", "flusher", "/bytes"), "none is left out");
    let cache = pictures.iter().filter_map(|picture| picture.pointer("/page_cache/background_threshold_bytes"));
    assert!(cache.filter_map(Value::as_u64).any(|bytes| bytes == EARLY), "the threshold is that of the flusher");
}

#[test]
fn the_metric_names_the_class_of_the_file_and_its_writer() {
    skip_if!(Format::Ext4WithoutJournal.missing());
    let stage = Stage::set("class");
    let agent = Agent::run(&[]);
    // The daemon looks for writers every five seconds.
    stage.play(Duration::from_secs(8));
    let labels = [
        ("device", stage.disk.device_name()),
        ("submitter", "flusher"),
        ("reason", "background"),
        ("writer", "ledger-writer"),
    ];
    let name = "fsyncscope_writeback_file_bytes_total";
    let risen =
        wait_for(Duration::from_secs(8), || (agent.scrape().sum(name, &labels) > f64::from(4 << 20)).then_some(()));
    assert!(risen.is_some(), "no such series rose");
    agent.terminate();
}

#[test]
fn a_request_that_was_merged_into_another_does_not_stay_in_flight() {
    skip_if!(Format::Ext4WithoutJournal.missing());
    let stage = Stage::set("merged");
    let scheduler = format!("/sys/block/{}/queue/scheduler", stage.disk.device_name());
    std::fs::write(scheduler, "mq-deadline").expect("a scheduler, which merges requests");
    let agent = Agent::disks(&["--every", "1s"]);
    let path = stage.disk.join("pieces");
    std::fs::write(&path, vec![0; 4 * PIECE]).expect("write the file");
    std::fs::File::open(&path).expect("open the file").sync_all().expect("sync the file");
    let before = idle(&stage.disk);
    (0..ROUNDS).for_each(|_| direct_writes(&path, &[0, 2, 1, 3]));
    let after = idle(&stage.disk);
    let pictures = agent.interrupt().syncs;
    let of_disk: Vec<&Value> =
        pictures.iter().filter(|picture| field::text(picture, "/device/name") == stage.disk.device_name()).collect();
    // Four pieces began as two requests or more and ended as one.
    assert!(after.merges - before.merges >= 3 * ROUNDS, "{after:?} after {before:?}");
    assert_eq!(of_disk.last().expect("a picture")["in_flight"], 0, "{of_disk:#?}");
}

const PIECE: usize = 4096;
const ROUNDS: u64 = 100;

/// Writes pieces of a file past the page cache, submitted at once in this order, and waits for them. Of neighbours that
/// come in another order than they lie, two become requests of their own, and one request when they meet.
fn direct_writes(path: &std::path::Path, order: &[usize]) {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::OpenOptionsExt;
    let file = std::fs::OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(path).expect("open the file");
    let memory = vec![1_u8; 2 * PIECE];
    let data = memory[memory.as_ptr().align_offset(PIECE)..].as_ptr() as u64;
    // `struct iocb`: data, key and flags, operation (PWRITE) and priority, descriptor, buffer, bytes, offset, 16 more.
    let write = (u64::from(file.as_raw_fd() as u32) << 32) | 1;
    let calls: Vec<[u64; 8]> =
        order.iter().map(|place| [0, 0, write, data, PIECE as u64, (place * PIECE) as u64, 0, 0]).collect();
    let pointers: Vec<*const [u64; 8]> = calls.iter().map(|call| &raw const *call).collect();
    let mut context = 0_u64;
    let mut events = vec![[0_u64; 4]; order.len()];
    let count = order.len() as libc::c_long;
    // SAFETY: the numbers of elements are those of the arrays, all of which outlive the calls; the last waits for all.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_io_setup, count, &raw mut context), 0);
        assert_eq!(libc::syscall(libc::SYS_io_submit, context, count, pointers.as_ptr()), count);
        let ended = libc::syscall(libc::SYS_io_getevents, context, count, count, events.as_mut_ptr(), 0_usize);
        assert_eq!(ended, count);
        libc::syscall(libc::SYS_io_destroy, context);
    }
    assert!(events.iter().all(|[_, _, result, _]| *result == PIECE as u64), "{events:?}");
}

/// Dirty bytes above which the flusher starts.
const EARLY: u64 = 1 << 20;

/// A disk with a journal that makes it watched, and a buffered writer.
struct Stage {
    disk: LoopFs,
    scratch: Scratch,
    _machine: Machine,
}

impl Stage {
    fn set(name: &str) -> Self {
        let machine = Machine::lock();
        let scratch = Scratch::new(name);
        let disk = LoopFs::new(&scratch, "disk", Format::Ext4WithoutJournal, 512);
        Self { disk, scratch, _machine: machine }
    }

    /// Writes for some time; gives the writer's process and file.
    fn play(&self, time: Duration) -> (u32, String) {
        let _early = EarlyFlusher::new(EARLY);
        let mut workload = Workload::new("journal", self.disk.join("1.txn"));
        workload.think_us = 50_000;
        let journal = workload.spawn();
        let file = self.disk.join("3a.log");
        let path = file.to_string_lossy().into_owned();
        let writer = Writer { file, chunk: 1 << 18, region: 64 << 20, growth: Growth::Rewrite, pause_us: 20_000 };
        let writer = Child::start(Role::Writer(writer), "ledger-writer", self.scratch.join("writer"));
        let pid = writer.pid();
        std::thread::sleep(time);
        writer.stop();
        journal.stop();
        (pid, path)
    }
}

/// Sum over all pictures of a number of the requests of one kind, and of one submitter or of all.
fn sum(pictures: &[Value], disk: &LoopFs, kind: &str, submitter: &str, what: &str) -> u64 {
    let of_disk = pictures.iter().filter(|picture| field::text(picture, "/device/name") == disk.device_name());
    of_disk
        .flat_map(|picture| list(picture, "/requests"))
        .filter(|row| row["kind"] == kind && (submitter.is_empty() || row["submitter"] == submitter))
        .map(|row| field::number(row, what))
        .sum()
}

fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn path(row: &Value) -> &str {
    row.pointer("/file/path").and_then(Value::as_str).unwrap_or_default()
}

/// Waits until the kernel's counts of a disk stand still, and gives them.
fn idle(disk: &LoopFs) -> Counted {
    let mut former = counted(disk);
    wait_for(Duration::from_secs(60), || {
        std::thread::sleep(Duration::from_millis(1500));
        let now = counted(disk);
        (std::mem::replace(&mut former, now) == now).then_some(now)
    })
    .expect("the disk does not come to rest")
}

fn counted(disk: &LoopFs) -> Counted {
    let text = std::fs::read_to_string("/proc/diskstats").expect("read the counts of disks");
    let line = text.lines().find(|line| line.split_whitespace().nth(2) == Some(disk.device_name()));
    let number = |place: usize| {
        let field = line.and_then(|line| line.split_whitespace().nth(place)).expect("the disk has this count");
        field.parse::<u64>().expect("a count is a number")
    };
    Counted { writes: number(7), merges: number(8), bytes: number(9) * 512, flushes: number(18) }
}
