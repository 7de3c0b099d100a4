//! Faults with a known truth, put under a journal, and what the agent makes of them.

mod support;

use std::time::Duration;

use serde_json::Value;

use support::agent::{Agent, field};
use support::child::{Child, Role};
use support::faults::{EarlyFlusher, Throttle};
use support::found::{FOUND, Found};
use support::interference::{
    Direct, Direction, Growth, Hog, Writer, bursts, bytes_moved, jbd2_thread, overlap_ns, pin_task,
};
use support::journal::{Operation, Place, Workload};
use support::scratch::{Format, LoopFs, Scratch};
use support::verdict::{assert_nobody_blamed, assert_whole, waited_for_cpu_ns};
use support::{Machine, figure, missing, wait_for};

/// The name of the thread in every test; longer than the kernel keeps, as the real one is.
const THREAD: &str = "ForceWriteThread";
/// The CPU that a hog takes; the last of the least machine that the tests run on.
const HOGGED: usize = 1;
// These stand on thirty repetitions (`scripts/spread.sh`, docs/accuracy.md).
/// Share of the clear ones that name the hog; the least was 0.80.
const NAMED: f64 = 0.7;
/// Share of the bursts that are found where it is the thread that waits; the least was 0.966.
const THREADS_FOUND: f64 = 0.93;
/// The same where it is a commit that waits; the least was 0.715.
const HELPERS_FOUND: f64 = 0.6;
/// Share of what a throttle takes that is before the submission, without what the CPU takes meanwhile; the goal.
const BEFORE_SUBMIT: f64 = 0.9;

#[test]
fn a_throttles_delay_lies_before_the_submission() {
    skip_if!(Format::Ext4WithoutJournal.missing().or_else(Throttle::missing));
    let _machine = Machine::lock();
    let scratch = Scratch::new("throttle");
    let disk = LoopFs::alone(&scratch, "disk", Format::Ext4WithoutJournal, 64);
    let mut workload = Workload::new(THREAD, disk.join("1.txn"));
    workload.place = Place::Within(1 << 20);
    let journal = Child::start(Role::Journal(workload), "journal", scratch.join("book"));
    let agent = Agent::watch(&["--threshold", "0", "--process", "journal"]);
    std::thread::sleep(Duration::from_secs(2));
    let control = agent.syncs();
    let throttle = Throttle::write_iops(&disk, 200);
    throttle.add_process(journal.pid());
    // The syncs under way at the change belong to neither side.
    std::thread::sleep(Duration::from_millis(200));
    let from = agent.syncs().len();
    std::thread::sleep(Duration::from_secs(3));
    let throttled = agent.syncs().split_off(from);
    drop(throttle);
    std::thread::sleep(Duration::from_millis(500));
    let from = agent.syncs().len();
    std::thread::sleep(Duration::from_secs(2));
    journal.stop();
    let mut ended = agent.interrupt();
    ended.syncs.iter().for_each(assert_whole);
    let after = ended.syncs.split_off(from);

    let usual = mean(&control, field::duration_ns);
    let usual_before = mean(&control, |sync| field::part_ns(sync, "before_submit"));
    let excess = mean(&throttled, field::duration_ns) - usual;
    let excess_before = mean(&throttled, |sync| field::part_ns(sync, "before_submit")) - usual_before;
    // What the CPU took, by proof of its rows, was not taken by the throttle.
    let of_cpu = mean(&throttled, waited_for_cpu_ns) - mean(&control, waited_for_cpu_ns);
    let counts = [control.len(), throttled.len(), after.len()];
    eprintln!("{counts:?} syncs, {excess:.0} ns more, {excess_before:.0} of it before");
    figure("before_submit", excess_before / excess);
    figure("before_submit.of_disk", excess_before / (excess - of_cpu));
    assert!(excess > 2e6, "the throttle was not felt");
    assert!(excess_before >= BEFORE_SUBMIT * (excess - of_cpu), "{excess_before:.0} of {excess:.0} ns");
    assert_called_throttled(&throttled);
    assert_nobody_blamed(control.iter().chain(&after));
}

#[test]
fn a_direct_writer_beside_a_throttled_journal_is_innocent() {
    const INNOCENT: &str = "segment-writer";
    skip_if!(Format::Ext4WithoutJournal.missing().or_else(Throttle::missing));
    let _machine = Machine::lock();
    let scratch = Scratch::new("innocent");
    let disk = LoopFs::alone(&scratch, "disk", Format::Ext4WithoutJournal, 128);
    let mut workload = Workload::new(THREAD, disk.join("1.txn"));
    workload.place = Place::Within(1 << 20);
    let journal = Child::start(Role::Journal(workload), "journal", scratch.join("book"));
    let writer = Direct {
        file: disk.join("segment.data"),
        direction: Direction::Write,
        chunk: 1 << 20,
        region: 32 << 20,
        pause_us: 300,
    };
    let writer = Child::start(Role::Direct(writer), INNOCENT, scratch.join("writer"));
    // The writer's requests take a millisecond, and some where the CPU is short: what is slower stood behind none of them.
    let agent = Agent::watch(&["--threshold", "40ms", "--process", "journal"]);
    let throttle = Throttle::write_iops(&disk, 200);
    throttle.add_process(journal.pid());
    std::thread::sleep(Duration::from_millis(200));
    let from = agent.syncs().len();
    std::thread::sleep(Duration::from_secs(5));
    let throttled = agent.syncs().split_off(from);
    drop(throttle);
    let names = [INNOCENT.to_owned(), format!("(tid {})", writer.worker_tid())];
    let moved = bytes_moved(&writer.stop());
    journal.stop();
    let ended = agent.interrupt();
    ended.syncs.iter().for_each(assert_whole);
    eprintln!("{} slow syncs beside {} MiB", throttled.len(), moved >> 20);
    // An open file and most of the traffic: all that would make a culprit of it, had it only delayed anybody.
    assert!(moved > 256 << 20, "the writer moved {moved} bytes only");
    let named = throttled.iter().filter(|sync| names.iter().any(|name| sync["culprit"].to_string().contains(name)));
    let named: Vec<String> = named.map(Value::to_string).collect();
    assert!(named.is_empty(), "{} blame the innocent: {named:#?}", named.len());
    assert_called_throttled(&throttled);
}

/// All that was held for long is called throttled, and nothing is called anything else.
fn assert_called_throttled(syncs: &[Value]) {
    // The throttle lets some through at once, and then holds one for tens of milliseconds; the CPU never does.
    let held: Vec<&Value> = syncs.iter().filter(|sync| field::duration_ns(sync) > 40_000_000).collect();
    let called =
        |sync: &&Value| field::text(sync, "/cause") == "throttled" && field::text(sync, "/culprit/class") == "throttle";
    let right = held.iter().filter(|sync| called(sync)).count();
    assert!(held.len() >= 10 && right * 10 >= held.len() * 9, "{right} of {} are called throttled", held.len());
    assert_nobody_blamed(syncs.iter().filter(|sync| !called(sync)));
}

#[test]
fn a_busy_disk_below_is_where_the_time_of_a_stacked_one_went() {
    const NEIGHBOUR: &str = "neighbour";
    skip_if!(Format::Ext4WithoutJournal.missing());
    let _machine = Machine::lock();
    let scratch = Scratch::new("below");
    let lower = LoopFs::alone(&scratch, "lower", Format::Ext4WithoutJournal, 256);
    let disk = LoopFs::stacked(&scratch, "disk", Format::Ext4WithoutJournal, 64, &lower);
    let mut workload = Workload::new(THREAD, disk.join("1.txn"));
    workload.place = Place::Within(1 << 20);
    let journal = Child::start(Role::Journal(workload), "journal", scratch.join("book"));
    let agent = Agent::watch(&["--threshold", "0", "--process", "journal"]);
    std::thread::sleep(Duration::from_secs(3));
    let control = agent.syncs();
    let writer = Direct {
        file: lower.join("segment.data"),
        direction: Direction::Write,
        chunk: 16 << 20,
        region: 128 << 20,
        pause_us: 0,
    };
    let writer = Child::start(Role::Direct(writer), NEIGHBOUR, scratch.join("writer"));
    std::thread::sleep(Duration::from_millis(200));
    let from = agent.syncs().len();
    std::thread::sleep(Duration::from_secs(3));
    let busy = agent.syncs().split_off(from);
    writer.stop();
    journal.stop();
    agent.interrupt().syncs.iter().for_each(assert_whole);

    let part = |name: &'static str| {
        mean(&busy, |sync| field::part_ns(sync, name)) - mean(&control, |sync| field::part_ns(sync, name))
    };
    let excess = mean(&busy, field::duration_ns) - mean(&control, field::duration_ns);
    let below: f64 = ["lower_queue", "lower_device", "lower_flush"].map(part).iter().sum();
    // The kernel threads between the two disks may be kept from a CPU; the rest is what the upper disk does itself.
    let (workers, rest) = (part("worker_run_queue"), part("device") + part("flush_device"));
    let blamed = |sync: &&Value| field::text(sync, "/cause") == "shared_lower_device";
    let named = busy.iter().filter(blamed).filter(|sync| sync["culprit"]["class"] == NEIGHBOUR).count();
    eprintln!(
        "{} syncs, {excess:.0} ns more: {below:.0} below, {workers:.0} of workers, {rest:.0} above; {named} name the neighbour",
        busy.len()
    );
    assert!(excess > 2e6, "the neighbour was not felt");
    assert!(below >= 0.7 * excess && below + workers >= 0.8 * excess && rest <= 0.05 * excess);
    assert!(named * 10 >= busy.len() * 8, "{named} of {} name the neighbour", busy.len());
    assert_nobody_blamed(control.iter().chain(busy.iter().filter(|sync| !blamed(sync))));
}

#[test]
fn a_hogs_bursts_are_the_time_that_a_journal_waits_for_its_cpu() {
    let scratch = Scratch::new("hog");
    // A real disk completes a request in an interrupt, also under a hog. A loop device's completion is a worker's work,
    // which waits for the same CPU, and then it is the worker that is late and not the thread.
    skip_if!(missing(&[]).or_else(|| scratch.not_on_ext4()));
    let _machine = Machine::lock();
    let mut workload = Workload::new(THREAD, scratch.join("1.txn"));
    workload.place = Place::Within(1 << 20);
    let shares = bursts_found(&scratch, workload, |tid| pin_task(tid, HOGGED), "thread_not_scheduled");
    // No upper bound: who else is ready to run on that CPU is waited for too, before and after the burst.
    let found = shares.iter().filter(|share| **share >= FOUND).count();
    assert!(found as f64 >= THREADS_FOUND * shares.len() as f64, "{found} of {}", shares.len());
}

#[test]
fn a_hogs_bursts_are_the_time_that_a_commit_waits_for_its_cpu() {
    skip_if!(Format::Ext4.missing());
    let _machine = Machine::lock();
    let scratch = Scratch::new("helper");
    let disk = LoopFs::new(&scratch, "disk", Format::Ext4, 64);
    let aside = |tid| {
        pin_task(tid, 0);
        pin_task(jbd2_thread(&disk), HOGGED);
    };
    let workload = Workload::new(THREAD, disk.join("1.txn"));
    let shares = bursts_found(&scratch, workload, aside, "helper_not_scheduled");
    // A commit has other CPUs' workers in its chain as well.
    let found = shares.iter().filter(|share| **share >= FOUND).count();
    assert!(found as f64 >= HELPERS_FOUND * shares.len() as f64, "{shares:.2?}");
}

/// Runs a journal beside a hog for 12 s. Gives, for each sync that met a whole burst by the hog's own log, how much of it
/// is in the parts that are waits for a CPU, in rising order. Wants the cause, and the hog named, for most of those that
/// found it.
fn bursts_found(scratch: &Scratch, mut workload: Workload, place: impl FnOnce(u32), cause: &str) -> Vec<f64> {
    let agent = Agent::watch(&["--threshold", "0", "--file", "*/1.txn"]);
    workload.think_us = 20;
    let journal = workload.spawn();
    place(journal.tid());
    let hog = Hog { cpu: HOGGED, burst_ms: 13, interval_ms: 97 };
    let hog = Child::start(Role::Hog(hog), "cpu-hog", scratch.join("hog"));
    std::thread::sleep(Duration::from_secs(12));
    let book = journal.stop();
    let bursts = bursts(&hog.stop());
    let ended = agent.interrupt();
    let shown = of_journal(&ended.syncs);
    shown.iter().for_each(assert_whole);
    let mut found = Found::default();
    for (sync, operation) in paired(&shown, &book) {
        let truth = overlap_ns(&bursts, operation.start_ns, operation.end_ns);
        // A burst may also meet the thread between the end of the sync and the journal's look at the clock.
        if truth >= 10_000_000 && field::duration_ns(sync) >= truth / 2 {
            found.add(sync, truth, cause);
        }
    }
    found.shares.sort_by(f64::total_cmp);
    found.print(cause);
    let Found { shares, clear, named, .. } = found;
    assert!(shares.len() >= 10, "only {} syncs met a burst", shares.len());
    assert!(clear > 0 && named as f64 >= NAMED * clear as f64, "{named} of {clear} name the hog");
    shares
}

#[test]
fn pages_that_the_flusher_took_first_are_waited_for_under_its_name() {
    skip_if!(Format::Ext4WithoutJournal.missing());
    let _machine = Machine::lock();
    let scratch = Scratch::new("flusher");
    let disk = LoopFs::new(&scratch, "disk", Format::Ext4WithoutJournal, 1024);
    let agent = Agent::run(&["--threshold", "5ms", "--file", "*/1.txn"]);
    let before = agent.scrape();
    let early = EarlyFlusher::new(1 << 20);
    let writer = Writer {
        file: disk.join("entry.log"),
        chunk: 1 << 20,
        region: 256 << 20,
        growth: Growth::Rewrite,
        pause_us: 0,
    };
    let writer = Child::start(Role::Writer(writer), "ledger-writer", scratch.join("writer"));
    let mut workload = Workload::new(THREAD, disk.join("1.txn"));
    workload.place = Place::Within(64 << 20);
    workload.bytes = 1 << 18;
    workload.linger_us = 20_000;
    let journal = workload.spawn();
    std::thread::sleep(Duration::from_secs(8));
    let slow = journal.stop().iter().filter(|sync| sync.duration_ns() > 5_000_000).count();
    writer.stop();
    drop(early);
    assert!(slow >= 10, "only {slow} syncs met the flusher");
    let after = agent.scrape();
    let ended = agent.terminate();
    ended.syncs.iter().for_each(assert_whole);
    let rise = |name: &str, labels: &[(&str, &str)]| after.sum(name, labels) - before.sum(name, labels);
    assert!(rise("fsyncscope_sync_part_seconds_total", &[("part", "writeback")]) > 0.05);
    let device = disk.device_name();
    let background = [("device", device), ("reason", "background")];
    assert!(rise("fsyncscope_writeback_bytes_total", &background) > f64::from(16 << 20));
    let waited = ended.syncs.iter().filter(|sync| field::part_ns(sync, "writeback") > 2_000_000);
    let details: Vec<String> = waited.flat_map(writeback_details).collect();
    assert!(details.iter().any(|detail| detail.contains("background")), "no reason among {details:?}");
}

#[test]
fn ten_thousand_quiet_syncs_are_whole_and_nobody_is_blamed() {
    const SYNCS: u64 = 9973;
    skip_if!(Format::Ext4WithoutJournal.missing());
    let _machine = Machine::lock();
    let scratch = Scratch::new("quiet");
    let disk = LoopFs::alone(&scratch, "disk", Format::Ext4WithoutJournal, 64);
    let agent = Agent::watch(&["--threshold", "0", "--file", "*/1.txn"]);
    let mut workload = Workload::new(THREAD, disk.join("1.txn"));
    workload.place = Place::Within(1 << 20);
    workload.think_us = 100;
    workload.count = Some(SYNCS);
    let book = workload.spawn().wait();
    let ended = agent.interrupt();
    let shown = of_journal(&ended.syncs);
    assert_eq!(shown.len() as u64, SYNCS);
    let total: u64 = shown.iter().map(field::duration_ns).sum();
    let remainder: u64 = shown.iter().map(|sync| field::part_ns(sync, "remainder")).sum();
    eprintln!("remainder {:.3} %", 100.0 * remainder as f64 / total as f64);
    for (sync, operation) in paired(&shown, &book) {
        assert_whole(sync);
        assert!(field::duration_ns(sync) <= operation.duration_ns(), "{sync} against {operation:?}");
    }
    assert!(remainder * 100 <= total);
    assert_nobody_blamed(&shown);
}

#[test]
fn what_is_lost_while_the_agent_is_stopped_is_counted() {
    skip_if!(missing(&[]).or_else(|| Format::Ext4WithoutJournal.missing()));
    let _machine = Machine::lock();
    let scratch = Scratch::new("stopped");
    let disk = LoopFs::new(&scratch, "disk", Format::Ext4WithoutJournal, 64);
    let agent = Agent::run(&["--threshold", "0", "--file", "*/1.txn", "--ring-bytes", "65536"]);
    let mut workload = Workload::new(THREAD, disk.join("1.txn"));
    workload.place = Place::Within(1 << 20);
    workload.think_us = 0;
    let journal = workload.spawn();
    std::thread::sleep(Duration::from_secs(1));
    agent.signal(libc::SIGSTOP);
    std::thread::sleep(Duration::from_secs(5));
    agent.signal(libc::SIGCONT);
    std::thread::sleep(Duration::from_secs(1));
    let made = journal.stop().len() as f64;
    let mut counts = (0.0, 0.0);
    let equal = wait_for(Duration::from_secs(5), || {
        let samples = agent.scrape();
        let seen = samples.sum("fsyncscope_sync_duration_seconds_count", &[("thread", &THREAD[..15])]);
        counts = (seen, samples.sum("fsyncscope_events_lost_total", &[("kind", "sync")]));
        (counts.0 + counts.1 == made).then_some(())
    });
    eprintln!("{made} syncs, {} seen, {} lost", counts.0, counts.1);
    assert!(equal.is_some(), "{made} syncs, {} seen, {} lost", counts.0, counts.1);
    assert!(counts.1 > 0.0, "nothing was lost, so nothing was tested");
    let ended = agent.terminate();
    assert!(ended.status.success());
    let overlapping = ended.syncs.iter().filter(|sync| field::number(sync, "/lost_events") > 0);
    assert_eq!(overlapping.filter(|sync| field::text(sync, "/confidence") == "certain").count(), 0);
}

/// Syncs of the journal's own thread: making its file may have synced as well.
fn of_journal(syncs: &[Value]) -> Vec<Value> {
    let own = |sync: &&Value| field::number(sync, "/process/pid") == u64::from(std::process::id());
    syncs.iter().filter(own).filter(|sync| THREAD.starts_with(field::text(sync, "/thread/name"))).cloned().collect()
}

/// Each shown sync with the operation in the journal's own book: both are in the order of one thread.
fn paired<'a>(syncs: &'a [Value], book: &'a [Operation]) -> impl Iterator<Item = (&'a Value, &'a Operation)> {
    assert_eq!(syncs.len(), book.len(), "the agent shows one number of syncs and the journal made another");
    syncs.iter().zip(book)
}

fn mean(syncs: &[Value], number: impl Fn(&Value) -> u64) -> f64 {
    assert!(!syncs.is_empty(), "no sync was shown");
    syncs.iter().map(|sync| number(sync) as f64).sum::<f64>() / syncs.len() as f64
}

/// What is said about the parts of a sync that are waits for writeback.
fn writeback_details(sync: &Value) -> Vec<String> {
    let parts = sync["parts"].as_array().expect("parts is a list");
    let of_writeback = parts.iter().filter(|part| part["name"] == "writeback");
    of_writeback.map(|part| part["detail"].as_str().unwrap_or_default().to_owned()).collect()
}
