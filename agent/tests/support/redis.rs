//! Debian's Redis with its append-only file on a disk, and redis-benchmark as the load.

use std::process::Command;
use std::time::{Duration, Instant};

use super::eyes::Broker;
use super::process::{Process, tail};
use super::scratch::{LoopFs, Scratch};
use super::strace::Call;
use super::{client, free_port, missing, run, wait_for, wait_for_port};

/// When the append-only file is synced, in Redis's own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendFsync {
    /// By the thread that answers clients, before it answers.
    Always,
    /// By a thread of its own, about once a second while something is written.
    Everysec,
}

/// A running server.
pub struct Redis {
    server: Process,
    port: u16,
    append_fsync: AppendFsync,
}

impl Redis {
    /// Why no Redis can run here, or nothing.
    pub fn missing() -> Option<String> {
        missing(&["redis-server", "redis-cli", "redis-benchmark"])
    }

    pub fn start(append_fsync: AppendFsync, scratch: &Scratch, disk: &LoopFs) -> Self {
        let port = free_port();
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "yes"]);
        command.args(["--appendfsync", &format!("{append_fsync:?}").to_lowercase(), "--dir"]).arg(disk.path());
        let server = Process::start(command, scratch.join("redis.log"), libc::SIGTERM);
        assert!(wait_for_port(port, Duration::from_secs(20)), "Redis does not listen:\n{}", tail(&server.log()));
        Self { server, port, append_fsync }
    }

    fn client(&self, program: &str) -> Command {
        let mut command = client(program);
        command.args(["-h", "127.0.0.1", "-p", &self.port.to_string()]);
        command
    }

    fn ask(&self, words: &[&str]) -> String {
        run(self.client("redis-cli").args(words))
    }

    fn set(&self, clients: u32, requests: u32) {
        let (clients, requests) = (clients.to_string(), requests.to_string());
        run(self.client("redis-benchmark").args(["-q", "-t", "set", "-c", &clients, "-n", &requests]));
    }

    /// Has the file rewritten by a child of the server, which syncs it and is gone when this returns.
    fn rewrite(&self) {
        self.ask(&["bgrewriteaof"]);
        let done = || {
            let told = self.ask(&["info", "persistence"]);
            let waits = told.contains("aof_rewrite_in_progress:1") || told.contains("aof_rewrite_scheduled:1");
            (!waits).then_some(())
        };
        wait_for(Duration::from_secs(20), done).expect("the rewrite of the append-only file does not end");
    }
}

impl Broker for Redis {
    fn pids(&self) -> Vec<u32> {
        vec![self.server.pid()]
    }

    fn load(&self) {
        let begun = Instant::now();
        match self.append_fsync {
            AppendFsync::Always => {
                self.set(1, 1000);
                self.rewrite();
                self.set(1, 1000);
            }
            AppendFsync::Everysec => {
                while begun.elapsed() < Duration::from_secs(4) {
                    self.set(4, 500);
                }
            }
        }
    }

    /// The writes that it executed: one client waits for each, so each has a sync of its own.
    fn counted(&self) -> Option<u64> {
        if self.append_fsync != AppendFsync::Always {
            return None;
        }
        let told = self.ask(&["info", "commandstats"]);
        let calls = told.lines().find_map(|line| line.strip_prefix("cmdstat_set:calls=")?.split(',').next());
        calls.map_or(Some(0), |calls| calls.parse().ok())
    }

    fn counts(&self, call: &Call) -> bool {
        call.tid == self.server.pid() && call.path.as_deref().is_some_and(|path| path.ends_with(".incr.aof"))
    }
}
