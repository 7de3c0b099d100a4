//! The test support tested by itself: a fault that does not happen, or a witness that miscounts, would make every other
//! test worthless.

mod support;

use std::fs;
use std::time::Duration;

use support::bookie::{Bookie, FORCE_WRITE};
use support::child::{Child, Role};
use support::faults::{EarlyFlusher, Frozen, Throttle};
use support::interference::{Direct, Direction, Growth, Hog, Writer, bursts, bytes_moved, overlap_ns};
use support::journal::{Durability, Place, Workload, book};
use support::oracle::{Oracle, SYNC_CALLS, SYNC_CALLS_AND_WRITES};
use support::postgres::Postgres;
use support::scratch::{Format, LoopFs, Scratch, left_of};
use support::{Machine, missing, realtime_minus_monotonic_ns, wait_for};

#[test]
fn a_scratch_disk_leaves_nothing_behind() {
    for format in [Format::Ext4, Format::Ext4WithoutJournal, Format::Xfs, Format::Btrfs] {
        if let Some(why) = format.missing() {
            support::skipped(&why);
            continue;
        }
        let scratch = Scratch::new("disk");
        let path = scratch.path().to_owned();
        let disk = LoopFs::new(&scratch, "disk", format, format.mebibytes());
        let alone = LoopFs::alone(&scratch, "alone", format, format.mebibytes());
        for disk in [&disk, &alone] {
            fs::write(disk.join("file"), "x").expect("write to the new filesystem");
            let backing = format!("/sys/block/{}/loop/backing_file", disk.device_name());
            let image = disk.image().to_str().expect("scratch paths are plain");
            assert_eq!(fs::read_to_string(&backing).expect("it is attached").trim(), image);
        }
        assert_eq!(left_of(&path).len(), 4, "a mount, two devices and a directory: {:?}", left_of(&path));
        drop((disk, alone, scratch));
        assert_eq!(left_of(&path), Vec::<String>::new());
    }
}

#[test]
fn a_disk_in_memory_is_gone_after_a_panic() {
    skip_if!(Format::Ext4.missing());
    let scratch = Scratch::new("panic");
    let path = scratch.path().to_owned();
    let panicked = std::panic::catch_unwind(move || {
        let disk = LoopFs::alone(&scratch, "disk", Format::Ext4, 64);
        fs::write(disk.join("file"), "x").expect("write to the new filesystem");
        panic!("as a test that fails");
    });
    assert!(panicked.is_err());
    assert_eq!(left_of(&path), Vec::<String>::new());
}

#[test]
fn a_journals_book_agrees_with_strace() {
    skip_if!(missing(&["strace"]).or_else(|| Format::Ext4.missing()));
    let _machine = Machine::lock();
    let scratch = Scratch::new("book");
    let disk = LoopFs::new(&scratch, "disk", Format::Ext4, 64);
    for (durability, place, call) in [
        (Durability::Fdatasync, Place::Append, "fdatasync"),
        (Durability::Fsync, Place::Append, "fsync"),
        (Durability::DsyncWrite, Place::Append, "pwrite64"),
        (Durability::SyncWrite, Place::Within(1 << 20), "pwrite64"),
        (Durability::Msync, Place::Within(1 << 20), "msync"),
    ] {
        let file = disk.join(&format!("{durability:?}.txn"));
        let mut workload = Workload::new("ForceWriteThread", file);
        workload.durability = durability;
        workload.place = place;
        let journal = Child::start(Role::Journal(workload), "journal", scratch.join("book"));
        let calls = if call == "pwrite64" { SYNC_CALLS_AND_WRITES } else { SYNC_CALLS };
        let oracle = Oracle::attach(&scratch, journal.pid(), calls);
        std::thread::sleep(Duration::from_millis(600));
        let (pid, tid) = (journal.pid(), journal.worker_tid());
        let seen = support::monotonic_ns();
        let trace = oracle.stop();
        let book = book(&journal.stop());
        let ahead = realtime_minus_monotonic_ns();
        let path = format!("{durability:?}.txn");
        let seen_calls: Vec<_> = trace.select("ForceWriteThrea", call, &path).collect();
        assert!(seen_calls.len() >= 10, "{durability:?}: only {} calls", seen_calls.len());
        assert!(seen_calls.iter().all(|call| call.tid == tid && call.tid != pid));
        // Every call in the book between the first and the last that strace saw, and no other.
        let first = seen_calls[0].start_unix_ns - ahead;
        let inside = book.iter().filter(|sync| sync.end_ns > first && sync.end_ns < seen).count();
        assert!(inside.abs_diff(seen_calls.len()) <= 1, "{durability:?}: {inside} and {}", seen_calls.len());
    }
}

#[test]
fn a_hog_logs_its_bursts_and_a_thread_on_its_cpu_feels_them() {
    skip_if!(missing(&[]));
    let _machine = Machine::lock();
    let scratch = Scratch::new("hog");
    let hog = Hog { cpu: 1, burst_ms: 13, interval_ms: 50 };
    let hog = Child::start(Role::Hog(hog), "hog", scratch.join("hog"));
    // A thread that asks for the clock all the time, on the same CPU: gaps are bursts, if the log is true.
    let gaps = std::thread::spawn(|| {
        support::interference::pin(1);
        let end = support::monotonic_ns() + 1_000_000_000;
        let (mut last, mut gaps) = (support::monotonic_ns(), Vec::new());
        while last < end {
            let now = support::monotonic_ns();
            if now - last > 10_000_000 {
                gaps.push((last, now));
            }
            last = now;
        }
        gaps
    });
    let gaps = gaps.join().expect("the thread beside the hog");
    let bursts = bursts(&hog.stop());
    assert!(bursts.len() >= 15, "only {} bursts in a second", bursts.len());
    assert!(bursts.iter().all(|burst| burst.end_ns - burst.start_ns >= 13_000_000));
    let felt =
        bursts.iter().filter(|burst| gaps.iter().any(|(start, end)| *start <= burst.start_ns && burst.end_ns <= *end));
    assert!(felt.count() * 10 >= (bursts.len() - 2) * 9, "{} gaps for {} bursts", gaps.len(), bursts.len());
    let burst = bursts[0];
    assert_eq!(overlap_ns(&bursts, burst.start_ns + 1, burst.end_ns), burst.end_ns - burst.start_ns - 1);
}

#[test]
fn a_frozen_lower_filesystem_holds_a_sync_until_it_is_thawed() {
    skip_if!(Format::Ext4.missing());
    let scratch = Scratch::new("freeze");
    let lower = LoopFs::new(&scratch, "lower", Format::Ext4, 256);
    let disk = LoopFs::stacked(&scratch, "disk", Format::Ext4, 64, &lower);
    let journal = Workload::new("ForceWriteThread", disk.join("1.txn")).spawn();
    std::thread::sleep(Duration::from_millis(100));
    let frozen = Frozen::new(&lower);
    std::thread::sleep(Duration::from_millis(1200));
    drop(frozen);
    std::thread::sleep(Duration::from_millis(50));
    let longest = journal.stop().iter().map(|sync| sync.duration_ns()).max();
    assert!(longest.is_some_and(|ns| ns > 1_000_000_000), "the longest sync took {longest:?} ns");
}

#[test]
fn a_throttle_is_felt_by_the_journal_and_gone_afterwards() {
    skip_if!(Format::Ext4WithoutJournal.missing().or_else(Throttle::missing));
    let _machine = Machine::lock();
    let scratch = Scratch::new("throttle");
    let disk = LoopFs::new(&scratch, "disk", Format::Ext4WithoutJournal, 64);
    let mut workload = Workload::new("ForceWriteThread", disk.join("1.txn"));
    workload.place = Place::Within(1 << 20);
    workload.think_us = 0;
    let journal = Child::start(Role::Journal(workload), "journal", scratch.join("book"));
    let throttle = Throttle::write_iops(&disk, 20);
    throttle.add_process(journal.pid());
    let start = support::monotonic_ns();
    std::thread::sleep(Duration::from_secs(2));
    let end = support::monotonic_ns();
    drop(throttle);
    std::thread::sleep(Duration::from_millis(2100));
    let book = book(&journal.stop());
    let during = book.iter().filter(|sync| sync.start_ns > start && sync.end_ns < end).count();
    // An fdatasync here is one write and perhaps one flush, which counts too; a busy machine makes fewer.
    assert!((5..=50).contains(&during), "{during} syncs in two seconds");
    let after = book.iter().filter(|sync| sync.start_ns > end + 100_000_000).count();
    assert!(after > 2 * during, "{during} syncs with the throttle, only {after} without");
}

#[test]
fn neighbours_move_bytes_under_their_own_names() {
    skip_if!(Format::Ext4.missing());
    let _machine = Machine::lock();
    let scratch = Scratch::new("neighbours");
    let disk = LoopFs::new(&scratch, "disk", Format::Ext4, 128);
    let before = fs::read_to_string("/proc/sys/vm/dirty_background_ratio").expect("read the ratio");
    let early = EarlyFlusher::new(4 << 20);
    let writer =
        Writer { file: disk.join("ledger"), chunk: 1 << 16, region: 32 << 20, growth: Growth::Regrow, pause_us: 500 };
    let writer = Child::start(Role::Writer(writer), "ledger-writer", scratch.join("writer"));
    let direct =
        Direct { file: disk.join("scan"), direction: Direction::Read, chunk: 1 << 16, region: 8 << 20, pause_us: 500 };
    let reader = Child::start(Role::Direct(direct), "catchup-reader", scratch.join("reader"));
    let name = |pid: u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    assert_eq!(name(writer.pid()).trim(), "ledger-writer");
    assert_eq!(name(reader.pid()).trim(), "catchup-reader");
    // Sectors written, the seventh number of the disk's counters: nobody syncs, so the flusher it was.
    let written = || {
        let text = fs::read_to_string(format!("/sys/block/{}/stat", disk.device_name())).unwrap_or_default();
        text.split_whitespace().nth(6).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0)
    };
    let at_start = written();
    let flushed = wait_for(Duration::from_secs(8), || (written() > at_start + 16_384).then_some(()));
    assert!(flushed.is_some(), "the flusher wrote {} sectors", written() - at_start);
    assert!(bytes_moved(&writer.stop()) > 8 << 20);
    assert!(bytes_moved(&reader.stop()) > 1 << 20);
    drop(early);
    assert_eq!(fs::read_to_string("/proc/sys/vm/dirty_background_ratio").expect("read the ratio"), before);
}

#[test]
fn a_bookie_counts_its_journal_syncs_as_strace_does() {
    skip_if!(Bookie::missing().or_else(|| missing(&["strace"])));
    let _machine = Machine::lock();
    let scratch = Scratch::new("bookie");
    let journal = LoopFs::new(&scratch, "journal", Format::Ext4, 512);
    let ledgers = LoopFs::new(&scratch, "ledgers", Format::Ext4, 512);
    let bookie = Bookie::start(&scratch, &journal, &ledgers);
    let counted_before = bookie.journal_syncs();
    let oracle = Oracle::attach(&scratch, bookie.pid(), SYNC_CALLS);
    let single = bookie.add(1000, 1);
    let grouped = bookie.add(5000, 64);
    let counted = bookie.journal_syncs() - counted_before;
    let trace = oracle.stop();
    let errors = bookie.errors();
    bookie.stop();
    let of_journal = |name| trace.select(FORCE_WRITE, name, ".txn").count() as u64;
    eprintln!("{single:?} {grouped:?}: strace {}, bookie {counted}", of_journal("fdatasync"));
    for (key, count) in trace.counts() {
        eprintln!("{count:6} {} {} {}", key.comm, key.name, key.path);
    }
    assert_eq!(of_journal("fdatasync"), counted);
    // An add at a time is a sync at a time; many under way share theirs.
    assert!((1000..6000).contains(&counted), "{counted} syncs");
    let on_journal = trace.calls.iter().filter(|call| {
        call.name == "fdatasync" && call.path.as_ref().is_some_and(|path| path.starts_with(path_of(&journal)))
    });
    assert_eq!(on_journal.count() as u64, counted, "something else syncs on the journal's disk");
    // A sync that finds everything durable already has nothing to drop either.
    let dropped = of_journal("fadvise64");
    assert!(dropped <= counted && dropped * 10 > counted * 9, "{dropped}: the bookie cannot reach its descriptors");
    assert!(trace.calls.iter().any(|call| {
        call.name == "fsync" && call.path.as_ref().is_some_and(|path| path.starts_with(path_of(&ledgers)))
    }));
    assert_eq!(errors, Vec::<String>::new());
}

#[test]
fn a_program_is_found_while_it_is_held_and_not_afterwards() {
    skip_if!(missing(&[]));
    let program = support::bpf::load_nothing();
    let held = support::bpf::programs_of(std::process::id());
    assert_eq!(held.len(), 1, "{held:?}");
    assert!(held.iter().all(|id| support::bpf::exists(*id)));
    drop(program);
    // The kernel frees a program a grace period after its last descriptor.
    let gone = wait_for(Duration::from_secs(5), || (!support::bpf::exists(*held.first()?)).then_some(()));
    assert!(gone.is_some(), "{held:?} stays");
}

#[test]
fn postgresql_syncs_its_log_once_or_less_a_transaction() {
    skip_if!(Postgres::missing().or_else(|| missing(&["strace"])).or_else(|| Format::Ext4.missing()));
    let _machine = Machine::lock();
    let scratch = Scratch::new("postgres");
    let disk = LoopFs::new(&scratch, "disk", Format::Ext4, 512);
    let postgres = Postgres::start(&scratch, &disk);
    postgres.prepare();
    let oracle = Oracle::attach_all(&scratch, &postgres.pids(), SYNC_CALLS);
    postgres.bench(4, 100);
    let trace = oracle.stop();
    let wal = postgres.wal();
    let syncs: Vec<_> = trace
        .calls
        .iter()
        .filter(|call| {
            call.name == "fdatasync" && call.path.as_deref().is_some_and(|path| path.starts_with(text(&wal)))
        })
        .collect();
    let backends: std::collections::HashSet<u32> = syncs.iter().map(|call| call.tid).collect();
    eprintln!("{} syncs of the log by {} processes", syncs.len(), backends.len());
    assert!((100..=420).contains(&syncs.len()), "{} syncs", syncs.len());
    assert!(backends.len() >= 4);
    assert!(syncs.iter().all(|call| call.comm == "postgres"));
    assert_eq!(postgres.ask("show wal_sync_method"), "fdatasync");
    postgres.stop();
}

fn path_of(disk: &LoopFs) -> &str {
    text(disk.path())
}

fn text(path: &std::path::Path) -> &str {
    path.to_str().expect("scratch paths are plain")
}
