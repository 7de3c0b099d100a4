//! Debian's etcd, one member, and etcdctl as its client.

use std::process::Command;
use std::time::Duration;

use super::eyes::Broker;
use super::metrics::Samples;
use super::process::{Process, tail};
use super::scratch::{LoopFs, Scratch};
use super::strace::Call;
use super::{client, free_port, http, missing, run, wait_for};

/// A running member, the only one of its cluster.
pub struct Etcd {
    member: Process,
    port: u16,
}

impl Etcd {
    /// Why no etcd can run here, or nothing.
    pub fn missing() -> Option<String> {
        missing(&["etcd", "etcdctl"])
    }

    /// Starts it and comes back when a first write was acknowledged.
    pub fn start(scratch: &Scratch, disk: &LoopFs) -> Self {
        let (port, peer_port) = (free_port(), free_port());
        let client = format!("http://127.0.0.1:{port}");
        let peer = format!("http://127.0.0.1:{peer_port}");
        let mut command = Command::new("etcd");
        command.args(["--name", "one", "--logger", "zap", "--data-dir"]).arg(disk.join("etcd"));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("one={peer}")]);
        let member = Process::start(command, scratch.join("etcd.log"), libc::SIGTERM);
        let made = Self { member, port };
        let first = || made.put("first", 0).output().is_ok_and(|output| output.status.success()).then_some(());
        assert!(
            wait_for(Duration::from_secs(30), first).is_some(),
            "etcd takes no write:\n{}",
            tail(&made.member.log())
        );
        made
    }

    fn put(&self, key: &str, number: u32) -> Command {
        let mut command = client("etcdctl");
        let endpoint = format!("--endpoints=127.0.0.1:{}", self.port);
        command.env("ETCDCTL_API", "3").args([&endpoint, "put", &format!("{key}{number}"), "value"]);
        command
    }
}

impl Broker for Etcd {
    fn pids(&self) -> Vec<u32> {
        vec![self.member.pid()]
    }

    fn load(&self) {
        std::thread::scope(|scope| {
            for client in ["a", "b", "c", "d"] {
                scope.spawn(move || (0..40).for_each(|number| drop(run(&mut self.put(client, number)))));
            }
        });
    }

    /// The syncs of the write-ahead log; those of the backend's file are counted with all else that a commit of it does.
    fn counted(&self) -> Option<u64> {
        let answer = http::get(([127, 0, 0, 1], self.port).into(), "/metrics", "text/plain;version=0.0.4");
        let samples = Samples::parse(&answer.expect("scrape etcd").body);
        let count = samples.only("etcd_disk_wal_fsync_duration_seconds_count", &[]);
        Some(count.expect("etcd counts the syncs of its log") as u64)
    }

    fn counts(&self, call: &Call) -> bool {
        call.path.as_deref().is_some_and(|path| path.ends_with(".wal"))
    }
}
