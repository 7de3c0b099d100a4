//! Syncs that hang, and what the agent says of them before they end.

mod support;

use std::time::Duration;

use serde_json::Value;

use support::agent::{Agent, field};
use support::child::{Child, Role};
use support::faults::{EarlyFlusher, Frozen, Throttle};
use support::interference::{Growth, Writer, bytes_moved, jbd2_thread};
use support::journal::{Operation, Place, Workload};
use support::scratch::{Format, LoopFs, Scratch, left_of};
use support::verdict::assert_whole;
use support::{Machine, wait_for};

/// The name of the thread in every test; longer than the kernel keeps, as the real one is.
const THREAD: &str = "ForceWriteThread";

#[test]
fn a_sync_behind_a_frozen_filesystem_is_shown_before_it_ends() {
    skip_if!(Format::Ext4.missing());
    let _machine = Machine::lock();
    let scratch = Scratch::new("frozen");
    // A filesystem that is frozen itself stops a write before it is a sync. Below the journal's disk it stops the device.
    let lower = LoopFs::new(&scratch, "lower", Format::Ext4, 256);
    let disk = LoopFs::stacked(&scratch, "disk", Format::Ext4, 64, &lower);
    hangs_and_is_shown(&disk, Workload::new(THREAD, disk.join("1.txn")), |_| Frozen::new(&lower));
}

#[test]
fn a_sync_behind_a_throttle_of_one_write_a_second_is_shown_before_it_ends() {
    skip_if!(Format::Ext4WithoutJournal.missing().or_else(Throttle::missing));
    let _machine = Machine::lock();
    let scratch = Scratch::new("hang");
    let disk = LoopFs::new(&scratch, "disk", Format::Ext4WithoutJournal, 64);
    let mut workload = Workload::new(THREAD, disk.join("1.txn"));
    workload.place = Place::Within(1 << 20);
    // Eight blocks that do not touch become eight writes, so one sync takes eight seconds.
    workload.scatter = 8;
    hangs_and_is_shown(&disk, workload, |tid| {
        let throttle = Throttle::write_iops(&disk, 1);
        throttle.add_thread(tid);
        throttle
    });
}

#[test]
fn a_sync_behind_a_flusher_that_hangs_is_shown_before_it_ends() {
    skip_if!(Format::Ext4.missing());
    let _machine = Machine::lock();
    let scratch = Scratch::new("stuck");
    let path = scratch.path().to_owned();
    let lower = LoopFs::alone(&scratch, "lower", Format::Ext4, 512);
    let disk = LoopFs::stacked(&scratch, "disk", Format::Ext4, 384, &lower);
    let early = EarlyFlusher::new(1 << 20);
    let writer = Writer {
        file: disk.join("entry.log"),
        chunk: 1 << 20,
        region: 256 << 20,
        growth: Growth::Rewrite,
        pause_us: 2000,
    };
    let writer = Child::start(Role::Writer(writer), "ledger-writer", scratch.join("writer"));
    hangs_and_is_shown(&disk, Workload::new(THREAD, disk.join("1.txn")), |_| {
        let frozen = Frozen::new(&lower);
        // The flusher is in the middle of the writer's pages, and the disk takes no more of them.
        let stuck = wait_for(Duration::from_secs(2), || flusher_hangs(&disk).then_some(()));
        assert!(stuck.is_some(), "the disk below is frozen, and the flusher of this one does not wait");
        frozen
    });
    assert!(bytes_moved(&writer.stop()) > 1 << 20);
    drop((early, disk, lower, scratch));
    assert_eq!(left_of(&path), Vec::<String>::new());
}

/// Runs a journal, puts it behind a fault for 4 s, and wants it shown as open within 2 s of its first second.
fn hangs_and_is_shown<F>(disk: &LoopFs, workload: Workload, fault: impl FnOnce(u32) -> F) {
    let agent = Agent::watch(&["--threshold", "500ms", "--file", "*/1.txn"]);
    let journal = workload.spawn();
    std::thread::sleep(Duration::from_millis(300));
    let fault = fault(journal.tid());
    let open = agent.wait_for_sync(Duration::from_secs(3), |sync| sync["open"] == Value::Bool(true));
    // It waits for the same until the fault ends.
    let stack = stack_of(journal.tid());
    std::thread::sleep(Duration::from_secs(1));
    drop(fault);
    let open = open.expect("a sync that hangs was not shown within 2 s of its first second");
    let id = field::number(&open, "/id");
    assert!(field::duration_ns(&open) >= 1_000_000_000, "shown too early: {open}");
    assert_whole(&open);
    assert_waits_for(&open, &stack, disk);
    let ended = agent.wait_for_sync(Duration::from_secs(15), |sync| sync["id"] == id && sync["open"] != true);
    let longest = journal.stop().iter().map(Operation::duration_ns).max().unwrap_or(0);
    let ended = ended.expect("the sync that hung was not shown when it ended");
    assert_whole(&ended);
    eprintln!("at its end: {} {} {} {}", ended["cause"], ended["confidence"], ended["culprit"], ended["evidence"]);
    assert!(field::duration_ns(&ended) > field::duration_ns(&open));
    assert!(field::duration_ns(&ended) <= longest, "{ended} and the journal's own book says {longest} ns");
    assert!(agent.interrupt().status.success());
}

/// What an open sync says that its thread waits for, and its journal's thread, must be on their stacks, which the test
/// reads itself.
fn assert_waits_for(open: &Value, stack: &str, disk: &LoopFs) {
    let said = field::text(open, "/evidence/0");
    eprintln!("{said}");
    let meant = meaning(stack).unwrap_or_else(|| panic!("{said}, and nobody knows what is\n{stack}"));
    assert!(said.ends_with(&format!(" it waits for {meant}")), "{said}, and its stack is\n{stack}");
    if stack.contains("jbd2_log_wait_commit") {
        let said = field::text(open, "/evidence/1");
        let stack = stack_of(jbd2_thread(disk));
        // It has waits of its own that leave no function but the commit itself.
        let meant = meaning(&stack).unwrap_or("something that its stack does not name");
        assert_eq!(said, format!("its journal thread waits for {meant}"), "its stack is\n{stack}");
    }
}

/// What a blocked thread waits for, by the innermost function that says it.
fn meaning(stack: &str) -> Option<&'static str> {
    const MEANINGS: [(&str, &str); 8] = [
        ("jbd2_log_wait_commit", "its journal's commit"),
        ("jbd2_journal_wait_updates", "operations that still hold the transaction"),
        ("folio_wait_writeback", "its pages to be written"),
        ("wait_on_buffer", "a block of the filesystem to be written"),
        ("rq_qos_wait", "writeback throttling of the disk"),
        ("blk_mq_get_tag", "a free request of the disk"),
        ("submit_bio_wait", "a request of the disk"),
        ("blkdev_issue_flush", "a cache flush of the disk"),
    ];
    let named = |line: &str| MEANINGS.iter().find(|(function, _)| line.contains(function)).map(|(_, meaning)| *meaning);
    stack.lines().find_map(named)
}

/// The functions that a thread is blocked in, the innermost first.
fn stack_of(tid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{tid}/stack")).expect("read the stack of a thread")
}

/// True while a kernel worker that flushes this disk is in an uninterruptible sleep.
fn flusher_hangs(disk: &LoopFs) -> bool {
    let (major, minor) = disk.number();
    let processes = std::fs::read_dir("/proc").expect("list processes").flatten();
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    // The kernel shows what a worker works on behind its name.
    let flushes = |name: &str| name.trim_end().ends_with(&format!("+flush-{major}:{minor}"));
    processes.filter(|process| flushes(&read(process.path().join("comm")))).any(|process| {
        read(process.path().join("status")).lines().any(|line| line.starts_with("State:") && line.contains('D'))
    })
}
