//! Real brokers under the agent, counted by witnesses that know nothing of it.

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use support::agent::{Agent, field};
use support::bookie::{Bookie, FORCE_WRITE};
use support::child::{Child, Role};
use support::faults::EarlyFlusher;
use support::interference::{Growth, Writer};
use support::oracle::{Oracle, SYNC_CALLS};
use support::postgres::Postgres;
use support::scratch::{Format, LoopFs, Scratch};
use support::verdict::{assert_nobody_blamed, assert_whole, is_blamed, waited_for_cpu_ns};
use support::{Machine, bpf, missing, unix_ns, wait_for};

/// The name of the process that disturbs a journal.
const WRITER: &str = "ledger-writer";
/// What a writer can do to a journal, seen by the journal thread's stacks: waits for its own pages' requests, and for a
/// commit.
const OF_WRITER: [&str; 3] = ["queue_behind", "flusher_writeback", "journal_commit"];
/// What it cannot do. To wait for a CPU is another matter: who held that is named as well.
const OF_NOBODY: [&str; 3] = ["throttled", "device_slow", "shared_lower_device"];

/// A bookie with the disks that it stands on. Fields are dropped in this order.
struct Stand {
    bookie: Bookie,
    journal: LoopFs,
    _ledgers: LoopFs,
    scratch: Scratch,
}

impl Stand {
    fn new(name: &str) -> Self {
        Self::on(name, LoopFs::new)
    }

    /// On disks that nobody else writes.
    fn alone(name: &str) -> Self {
        Self::on(name, LoopFs::alone)
    }

    fn on(name: &str, disk: fn(&Scratch, &str, Format, u64) -> LoopFs) -> Self {
        let scratch = Scratch::new(name);
        let journal = disk(&scratch, "journal", Format::Ext4, 1024);
        let ledgers = disk(&scratch, "ledgers", Format::Ext4, 1024);
        let bookie = Bookie::start(&scratch, &journal, &ledgers);
        Self { bookie, journal, _ledgers: ledgers, scratch }
    }
}

#[test]
fn every_journal_sync_of_a_bookie_is_seen_as_strace_and_the_bookie_count_it() {
    skip_if!(Bookie::missing().or_else(|| missing(&["strace"])));
    let _machine = Machine::lock();
    let stand = Stand::new("bookie");
    let bookie = &stand.bookie;
    let agent = Agent::watch(&["--threshold", "0", "--process", "java", "--thread", "ForceWriteThread"]);
    // The bookie is idle before the first add and after the last, so the three windows hold the same syncs.
    let counted_before = bookie.journal_syncs();
    let oracle = Oracle::attach(&stand.scratch, bookie.pid(), SYNC_CALLS);
    bookie.add(1000, 1);
    bookie.add(5000, 64);
    let counted = bookie.journal_syncs() - counted_before;
    let trace = oracle.stop();
    let ended = agent.interrupt();
    assert!(ended.status.success(), "{}", ended.said.join("; "));

    let traced: Vec<_> = trace.select(FORCE_WRITE, "fdatasync", ".txn").collect();
    let seen: Vec<&Value> = ended.syncs.iter().filter(|sync| of_journal(sync)).collect();
    eprintln!("bookie {counted}, strace {}, agent {}", traced.len(), seen.len());
    assert_eq!(traced.len() as u64, counted);
    assert_eq!(seen.len() as u64, counted);
    let (major, minor) = stand.journal.number();
    for (sync, call) in seen.iter().zip(&traced) {
        assert_whole(sync);
        assert_eq!(field::text(sync, "/operation"), "fdatasync");
        assert_eq!(field::number(sync, "/process/pid"), u64::from(bookie.pid()));
        assert_eq!(field::number(sync, "/thread/tid"), u64::from(call.tid));
        assert_eq!(field::number(sync, "/device/major"), u64::from(major));
        assert_eq!(field::number(sync, "/device/minor"), u64::from(minor));
        assert_eq!(field::number(sync, "/result"), 0);
        assert_eq!(field::number(sync, "/lost_events"), 0);
        assert_eq!(file_name(field::text(sync, "/file/path")), file_name(call.path.as_deref().unwrap_or_default()));
        // strace measures from outside and rounds to microseconds: its call is never the shorter one.
        assert!(field::duration_ns(sync) <= call.duration_ns + 1000, "{sync} against {call:?}");
    }
    assert_eq!(stand.bookie.errors(), Vec::<String>::new());
}

#[test]
fn a_writer_on_the_journals_disk_is_named_while_it_writes_and_at_no_other_time() {
    skip_if!(Bookie::missing());
    let _machine = Machine::lock();
    let stand = Stand::alone("writer");
    let flags = ["--threshold", "2ms", "--lines", "1000", "--process", "java", "--thread", "ForceWriteThread"];
    let agent = Agent::run(&flags);
    let mut adding = stand.bookie.start_adding(1_000_000, 1);
    // The JVMs compile at first, and compete with the journal for the CPU.
    std::thread::sleep(Duration::from_secs(8));
    let quiet_until = agent.syncs().len();
    let spikes = |causes: &[&str], culprit: &[(&str, &str)]| -> f64 {
        let samples = agent.scrape();
        let of = |cause: &&str| samples.sum("fsyncscope_spikes_total", &[&[("cause", *cause)], culprit].concat());
        causes.iter().map(of).sum()
    };
    let blamed = || spikes(&OF_WRITER, &[("culprit", WRITER)]);
    let confident = || spikes(&OF_WRITER, &[]) + spikes(&OF_NOBODY, &[]);
    assert_eq!(confident(), 0.0, "a cause is named before the writer writes");

    let early = EarlyFlusher::new(4 << 20);
    let writer = Writer {
        file: stand.journal.join("entry.log"),
        chunk: 1 << 20,
        region: 256 << 20,
        growth: Growth::Rewrite,
        pause_us: 0,
    };
    let writer = Child::start(Role::Writer(writer), WRITER, stand.scratch.join("writer"));
    let first = wait_for(Duration::from_secs(20), || (agent.syncs().len() > quiet_until).then(Instant::now));
    assert!(first.is_some(), "no spike in 20 s of a writer on the journal's disk");
    let named = wait_for(Duration::from_secs(5), || (blamed() > 0.0).then_some(()));
    let last = agent.syncs().pop().unwrap_or_default();
    assert!(named.is_some(), "not named within 5 s of the first spike; the last one: {last}");
    std::thread::sleep(Duration::from_secs(3));
    let disturbed_until = agent.syncs().len();
    let tid = writer.worker_tid();
    writer.stop();
    drop(early);

    // What it left dirty would be written back up to half a minute later.
    stand.journal.write_back();
    std::thread::sleep(Duration::from_secs(1));
    let quiet_from = agent.syncs().len();
    let confident_before = confident();
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(confident(), confident_before, "a cause is named after the writer's end");
    assert_eq!(spikes(&OF_NOBODY, &[("culprit", WRITER)]), 0.0, "the writer is named for what it cannot do");
    assert!(adding.runs(), "the client ended early");
    let ended = agent.terminate();
    assert!(ended.status.success(), "{}", ended.said.join("; "));
    ended.syncs.iter().for_each(assert_whole);
    assert_nobody_blamed(ended.syncs[..quiet_until].iter().chain(&ended.syncs[quiet_from..]));
    assert_writer_is_named(&ended.syncs[quiet_until..disturbed_until], tid);
    assert_eq!(stand.bookie.errors(), Vec::<String>::new());
}

/// The writer on the journal's disk is the culprit of syncs that were slow beside it, by a cause that it can have, and
/// nobody else is the culprit of any.
fn assert_writer_is_named(disturbed: &[Value], tid: u32) {
    // Where the writer of a request is not known, nobody is named, or the flusher.
    let known = [Value::Null, WRITER.into(), "flusher".into(), "none".into()];
    // What the CPU made slow, by proof of its rows, is another matter, whoever held the CPU.
    let by_cpu = |sync: &&Value| waited_for_cpu_ns(sync) * 2 >= field::duration_ns(sync);
    let of_disk: Vec<&Value> = disturbed.iter().filter(|sync| !by_cpu(sync)).collect();
    let named: Vec<&&Value> = of_disk.iter().filter(|sync| sync["culprit"]["class"] == WRITER).collect();
    eprintln!(
        "{} slow syncs beside the writer, {} of the disk, {} name it",
        disturbed.len(),
        of_disk.len(),
        named.len()
    );
    assert!(named.len() >= 5, "only {} of {} name the writer", named.len(), of_disk.len());
    // One that holds a handle of the journal's transaction is named as a thread.
    let holder = format!("(tid {tid})");
    let fits = |sync: &Value| {
        let culprit = known.contains(&sync["culprit"]["class"]) || sync["culprit"].to_string().contains(&holder);
        culprit && OF_WRITER.contains(&field::text(sync, "/cause"))
    };
    let wrong: Vec<&&Value> = of_disk.iter().filter(|sync| is_blamed(sync) && !fits(sync)).collect();
    assert!(wrong.is_empty(), "another cause or culprit than a writer's: {wrong:#?}");
}

#[test]
fn twenty_sudden_deaths_leave_no_program_and_no_error_of_the_bookie() {
    skip_if!(Bookie::missing());
    let _machine = Machine::lock();
    let stand = Stand::new("deaths");
    let mut adding = stand.bookie.start_adding(1_000_000, 8);
    let mut loaded = 0;
    for death in 0..20_u64 {
        let agent = Agent::start(&["run", "--listen", "127.0.0.1:0", "--threshold", "1ms"], None);
        // Moments that repeat from run to run and follow no rhythm, from the first instruction to well after the start.
        std::thread::sleep(Duration::from_millis(death * death * 7919 % 2500));
        // Stopped first, so that what is read is what it holds when it dies.
        agent.signal(libc::SIGSTOP);
        std::thread::sleep(Duration::from_millis(20));
        let programs = bpf::programs_of(agent.pid());
        loaded += usize::from(!programs.is_empty());
        agent.signal(libc::SIGKILL);
        let gone = wait_for(Duration::from_secs(5), || programs.iter().all(|id| !bpf::exists(*id)).then_some(()));
        assert!(gone.is_some(), "programs stay after death {death}: {programs:?}");
    }
    assert!(loaded >= 5, "only {loaded} of 20 agents held a program when they died");
    assert!(adding.runs(), "the client ended");
    // Asked before the client is killed: the bookie logs a connection that breaks as an error of its own.
    assert_eq!(stand.bookie.errors(), Vec::<String>::new());
    drop(adding);
    let before = stand.bookie.journal_syncs();
    stand.bookie.add(100, 1);
    assert!(stand.bookie.journal_syncs() > before);
}

#[test]
fn every_sync_of_postgresqls_log_is_seen_with_its_backend_and_file() {
    skip_if!(Postgres::missing().or_else(|| missing(&["strace"])).or_else(|| Format::Ext4.missing()));
    let _machine = Machine::lock();
    let scratch = Scratch::new("postgres");
    let disk = LoopFs::new(&scratch, "disk", Format::Ext4, 512);
    let postgres = Postgres::start(&scratch, &disk);
    postgres.prepare();
    let agent = Agent::watch(&["--threshold", "0", "--process", "postgres", "--operation", "fdatasync"]);
    let oracle = Oracle::attach_all(&scratch, &postgres.pids(), SYNC_CALLS);
    let first_ns = unix_ns();
    postgres.bench(4, 100);
    let last_ns = unix_ns();
    let trace = oracle.stop();
    let ended = agent.interrupt();
    let during = |ns: u64| first_ns <= ns && ns <= last_ns;

    // Counted by process and file: a sync that is given to the wrong backend is as bad as one that is missed.
    let mut traced = BTreeMap::new();
    for call in trace.calls.iter().filter(|call| call.name == "fdatasync" && during(call.start_unix_ns)) {
        let path = call.path.as_deref().unwrap_or_default();
        *traced.entry((u64::from(call.tid), file_name(path))).or_insert(0) += 1;
    }
    let mut seen = BTreeMap::new();
    for sync in ended.syncs.iter().filter(|sync| during(field::number(sync, "/time_unix_ns"))) {
        assert_whole(sync);
        let key = (field::number(sync, "/thread/tid"), file_name(field::text(sync, "/file/path")));
        *seen.entry(key).or_insert(0) += 1;
    }
    eprintln!("strace {traced:?}");
    assert_eq!(seen, traced);
    let backends = traced.keys().map(|(tid, _)| tid).collect::<std::collections::BTreeSet<_>>();
    assert!(backends.len() >= 4, "pgbench had four backends: {backends:?}");
    postgres.stop();
}

/// True for a sync of the bookie's journal thread on a file of its journal.
fn of_journal(sync: &Value) -> bool {
    field::text(sync, "/thread/name").starts_with("ForceWr") && field::text(sync, "/file/path").ends_with(".txn")
}

fn file_name(path: &str) -> &str {
    Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or(path)
}
