//! How much of the time of real brokers' syncs stays unexplained, quiet and beside a writer on the journal's disk: the
//! rows of docs/accuracy.md. It asserts nothing but that there were syncs, and is in no run of all tests.
//!
//! `scripts/accuracy.sh brokers [SECONDS]` runs it. The sums are of the metric of all syncs, which no full ring touches.

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use support::agent::Agent;
use support::bookie::Bookie;
use support::child::{Child, Role};
use support::etcd::Etcd;
use support::eyes::Broker;
use support::faults::EarlyFlusher;
use support::interference::{Growth, Writer};
use support::java::Java;
use support::kafka::Kafka;
use support::mariadb::{FlushMethod, MariaDb};
use support::metrics::Samples;
use support::postgres::Postgres;
use support::rabbitmq::{RabbitMq, WriteStrategy};
use support::redis::{AppendFsync, Redis};
use support::scratch::{Format, LoopFs, Scratch};
use support::{Machine, zookeeper};

/// Syncs after which a state is measured well enough.
const SYNCS: f64 = 10_000.0;
/// Parts in which the thread itself ran, or waited for a CPU.
const OWN: [&str; 3] = ["on_cpu", "preempted", "run_queue"];

/// For how long a broker is measured in one state, unless it makes enough syncs before.
fn limit() -> Duration {
    let seconds = std::env::var("FSYNCSCOPE_ACCURACY_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(30))
}

/// Starts a broker on a disk of its own, and measures it in both states.
fn measure<B: Broker>(name: &str, start: impl FnOnce(&Scratch, &LoopFs) -> B) {
    let _machine = Machine::lock();
    let scratch = Scratch::new("unexplained");
    let disk = LoopFs::alone(&scratch, "disk", Format::Ext4, 1024);
    let broker = start(&scratch, &disk);
    both_states(name, &scratch, &disk, || broker.load());
}

fn both_states(name: &str, scratch: &Scratch, disk: &LoopFs, load: impl Fn()) {
    let agent = Agent::run(&["--threshold", "10s"]);
    // The first syncs of a filesystem are told before its journal thread is known.
    load();
    row(name, "quiet", &agent, disk, &load);
    let early = EarlyFlusher::new(4 << 20);
    let writer = Writer {
        file: disk.join("other.data"),
        chunk: 1 << 20,
        region: 256 << 20,
        growth: Growth::Rewrite,
        pause_us: 0,
    };
    let writer = Child::start(Role::Writer(writer), "writer", scratch.join("writer"));
    row(name, "disturbed", &agent, disk, &load);
    writer.stop();
    drop(early);
    assert!(agent.terminate().status.success());
}

/// Loads the broker until there were enough syncs or enough time, and prints the shares of their time.
fn row(name: &str, state: &str, agent: &Agent, disk: &LoopFs, load: impl Fn()) {
    let count = |samples: &Samples| samples.sum("fsyncscope_sync_duration_seconds_count", &device(disk));
    let before = agent.scrape();
    let begun = Instant::now();
    let after = loop {
        load();
        let now = agent.scrape();
        if count(&now) - count(&before) >= SYNCS || begun.elapsed() >= limit() {
            break now;
        }
    };
    let part = |labels: &[(&str, &str)]| {
        let labels = [&device(disk)[..], labels].concat();
        let sum = |samples: &Samples| samples.sum("fsyncscope_sync_part_seconds_total", &labels);
        sum(&after) - sum(&before)
    };
    let (syncs, whole, left) = (count(&after) - count(&before), part(&[]), part(&[("part", "remainder")]));
    assert!(syncs > 0.0 && whole > 0.0, "{name} synced nothing");
    let blocked = whole - OWN.iter().map(|own| part(&[("part", own)])).sum::<f64>();
    println!(
        "\n| {name} | {state} | {syncs} | {:.0} | {:.2}% | {:.2}% |",
        1e6 * whole / syncs,
        100.0 * left / whole,
        100.0 * left / blocked
    );
}

fn device(disk: &LoopFs) -> [(&'static str, &str); 1] {
    [("device", disk.device_name())]
}

#[test]
fn postgresql() {
    skip_if!(Postgres::missing());
    measure("PostgreSQL, fdatasync", |scratch, disk| {
        let postgres = Postgres::start(scratch, disk);
        postgres.prepare();
        postgres
    });
}

#[test]
fn redis() {
    skip_if!(Redis::missing());
    measure("Redis, always", |scratch, disk| Redis::start(AppendFsync::Always, scratch, disk));
}

#[test]
fn etcd() {
    skip_if!(Etcd::missing());
    measure("etcd", Etcd::start);
}

#[test]
fn mariadb() {
    skip_if!(MariaDb::missing());
    measure("MariaDB", |scratch, disk| MariaDb::start(FlushMethod::Direct, scratch, disk));
}

#[test]
fn zookeeper() {
    skip_if!(Java::missing());
    measure("ZooKeeper", zookeeper::OnDisk::start);
}

#[test]
fn kafka() {
    skip_if!(Java::missing());
    measure("Kafka, flush.messages=1", Kafka::start);
}

#[test]
fn rabbitmq() {
    skip_if!(RabbitMq::missing());
    measure("RabbitMQ, quorum queue", |scratch, disk| RabbitMq::start(WriteStrategy::Default, scratch, disk));
}

#[test]
fn bookie() {
    skip_if!(Bookie::missing());
    let _machine = Machine::lock();
    let scratch = Scratch::new("unexplained");
    let disk = LoopFs::alone(&scratch, "disk", Format::Ext4, 1024);
    let ledgers = LoopFs::alone(&scratch, "ledgers", Format::Ext4, 1024);
    let bookie = Bookie::start(&scratch, &disk, &ledgers);
    both_states("BookKeeper", &scratch, &disk, || {
        bookie.add(300, 1);
    });
}
