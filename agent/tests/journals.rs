//! Real journals, each under its real client: what the agent tells of them is what strace and the broker itself count,
//! call by call.

mod support;

use support::etcd::Etcd;
use support::eyes::{Seen, both_eyes};
use support::java::Java;
use support::kafka::Kafka;
use support::mariadb::{FlushMethod, MariaDb};
use support::missing;
use support::postgres::Postgres;
use support::rabbitmq::{RabbitMq, WriteStrategy};
use support::redis::{AppendFsync, Redis};
use support::scratch::Format;
use support::zookeeper;

/// Why no broker can be compared here, or nothing.
fn unable(broker: Option<String>) -> Option<String> {
    missing(&["strace"]).or_else(|| Format::Ext4.missing()).or(broker)
}

/// PostgreSQL's four backends wait for each of their hundred commits and more.
fn postgresql(method: &'static str, call: &str) -> Seen {
    let seen = both_eyes("postgres", 512, |scratch, disk| {
        let postgres = Postgres::syncing_by(method, scratch, disk);
        postgres.prepare();
        postgres
    });
    assert!(seen.of(call, "/pg_wal/0").len() >= 100);
    seen
}

#[test]
fn postgresql_by_fsync() {
    skip_if!(unable(Postgres::missing()));
    postgresql("fsync", "fsync");
}

#[test]
fn postgresql_by_fdatasync() {
    skip_if!(unable(Postgres::missing()));
    let seen = postgresql("fdatasync", "fdatasync");
    assert!(seen.of("fsync", "/xlogtemp.").len() >= 2, "no new segment");
    assert!(seen.of("fsync", "/pg_wal/0").len() >= 2, "no old segment under a new name");
}

#[test]
fn postgresql_by_open_datasync() {
    skip_if!(unable(Postgres::missing()));
    postgresql("open_datasync", "pwrite64");
}

#[test]
fn postgresql_by_open_sync() {
    skip_if!(unable(Postgres::missing()));
    postgresql("open_sync", "pwrite64");
}

#[test]
fn redis_that_syncs_always() {
    skip_if!(unable(Redis::missing()));
    let seen = both_eyes("redis", 64, |scratch, disk| Redis::start(AppendFsync::Always, scratch, disk));
    assert!(seen.of("fdatasync", ".incr.aof").len() >= 2000);
}

#[test]
fn redis_that_syncs_every_second() {
    skip_if!(unable(Redis::missing()));
    let seen = both_eyes("redis", 64, |scratch, disk| Redis::start(AppendFsync::Everysec, scratch, disk));
    assert!(seen.of("fdatasync", ".incr.aof").len() >= 2);
}

#[test]
fn etcd() {
    skip_if!(unable(Etcd::missing()));
    let seen = both_eyes("etcd", 512, Etcd::start);
    assert!(seen.of("fdatasync", ".wal").len() >= 40);
    assert!(seen.of("fdatasync", "/snap/db").len() >= 2);
}

#[test]
fn mariadb() {
    skip_if!(unable(MariaDb::missing()));
    let seen = both_eyes("mariadb", 512, |scratch, disk| MariaDb::start(FlushMethod::Direct, scratch, disk));
    assert!(seen.of("fdatasync", "/ib_logfile0").len() >= 100);
    assert!(seen.of("fdatasync", "-bin.").len() >= 100);
}

#[test]
fn mariadb_that_writes_through() {
    skip_if!(unable(MariaDb::missing()));
    let seen = both_eyes("mariadb", 512, |scratch, disk| MariaDb::start(FlushMethod::Dsync, scratch, disk));
    assert!(seen.of("pwrite64", "/ib_logfile0").len() >= 100);
    assert!(seen.of("fdatasync", "-bin.").len() >= 100);
}

#[test]
fn zookeeper() {
    skip_if!(unable(Java::missing()));
    let seen = both_eyes("zookeeper", 256, zookeeper::OnDisk::start);
    assert!(seen.of("fdatasync", "/version-2/log.").len() >= 200);
}

#[test]
fn kafka_that_flushes_after_every_message() {
    skip_if!(unable(Java::missing()));
    let seen = both_eyes("kafka", 512, Kafka::start);
    for (call, file) in
        [("fsync", ".log"), ("fsync", ".index"), ("fsync", ".timeindex"), ("msync", ".index"), ("msync", ".timeindex")]
    {
        assert!(seen.of(call, &format!("/journal-0/00000000000000000000{file}")).len() >= 100, "{call} of {file}");
    }
}

#[test]
fn rabbitmqs_quorum_queue() {
    skip_if!(unable(RabbitMq::missing()));
    let seen = both_eyes("rabbitmq", 256, |scratch, disk| RabbitMq::start(WriteStrategy::Default, scratch, disk));
    assert!(seen.of("fdatasync", ".wal").len() >= 200);
}

#[test]
fn rabbitmqs_quorum_queue_by_o_sync() {
    skip_if!(unable(RabbitMq::missing()));
    let seen = both_eyes("rabbitmq", 256, |scratch, disk| RabbitMq::start(WriteStrategy::OSync, scratch, disk));
    assert!(seen.of("writev", ".wal").len() >= 200);
}
