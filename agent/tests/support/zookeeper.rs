//! A real ZooKeeper, alone, from the artefacts of the bookie, which needs one, and its own command line as the client.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::eyes::Broker;
use super::java::{BRIEF, Java, fill, path_text};
use super::process::{Process, tail};
use super::scratch::{LoopFs, Scratch};
use super::strace::Call;
use super::{free_port, wait_for, wait_for_port};

/// A running server.
pub struct ZooKeeper {
    server: Process,
    pub port: u16,
}

impl ZooKeeper {
    /// Starts it with its log and snapshots in a directory, and comes back when it listens.
    pub fn start(java: &Java, scratch: &Path, data: &Path) -> Self {
        fs::create_dir(data).expect("create ZooKeeper's directory");
        let port = free_port();
        let text = fill("bookkeeper", "zoo.cfg.in", &[("PORT", &port.to_string()), ("DATA", path_text(data))]);
        let file = scratch.join("zoo.cfg");
        fs::write(&file, text).expect("write ZooKeeper's configuration");
        let mut command = java.command(scratch, &["-Xmx128m", "-Dzookeeper.4lw.commands.whitelist=mntr"]);
        command.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(file);
        let server = Process::start(command, scratch.join("zookeeper.log"), libc::SIGTERM);
        let listens = wait_for_port(port, Duration::from_secs(30));
        assert!(listens, "ZooKeeper does not listen:\n{}", tail(&server.log()));
        Self { server, port }
    }
}

/// A server on a disk of its own, with its client.
pub struct OnDisk {
    zookeeper: ZooKeeper,
    java: Java,
    scratch: PathBuf,
}

impl OnDisk {
    pub fn start(scratch: &Scratch, disk: &LoopFs) -> Self {
        let java = Java::fetched("bookkeeper", None);
        let zookeeper = ZooKeeper::start(&java, scratch.path(), &disk.join("zookeeper"));
        let made = Self { zookeeper, java, scratch: scratch.path().to_owned() };
        // It listens before it serves.
        let serves = wait_for(Duration::from_secs(60), || made.syncs()).is_some();
        assert!(serves, "ZooKeeper does not serve:\n{}", tail(&made.zookeeper.server.log()));
        made
    }

    /// Asked anew where no answer comes: a server that is about to serve may let a question lie.
    fn syncs(&self) -> Option<u64> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.zookeeper.port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
        stream.write_all(b"mntr").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.lines().find_map(|line| line.strip_prefix("zk_cnt_fsynctime")?.trim().parse().ok())
    }

    fn commands(&self) -> PathBuf {
        let creates = "create -s /journal/entry value\n".repeat(200);
        let file = self.scratch.join("zookeeper.commands");
        fs::write(&file, format!("create /journal value\n{creates}quit\n")).expect("write the client's commands");
        file
    }
}

impl Broker for OnDisk {
    fn pids(&self) -> Vec<u32> {
        vec![self.zookeeper.server.pid()]
    }

    fn load(&self) {
        let mut client = self.java.command(&self.scratch, &BRIEF);
        client.args(["org.apache.zookeeper.ZooKeeperMain", "-server"]);
        client.arg(format!("127.0.0.1:{}", self.zookeeper.port));
        let commands = File::open(self.commands()).expect("open the client's commands");
        let log = self.scratch.join("zookeeper-client.log");
        let said = Process::start_reading(client, commands.into(), log, libc::SIGTERM).finish(Duration::from_secs(60));
        // Their parent is there already when it is not the first load.
        let created = said.lines().filter(|line| line.starts_with("Created /journal/entry")).count();
        assert_eq!(created, 200, "{}", tail(&said));
    }

    /// The syncs of the transaction log.
    fn counted(&self) -> Option<u64> {
        let syncs = wait_for(Duration::from_secs(20), || self.syncs());
        Some(syncs.expect("ZooKeeper counts the syncs of its log"))
    }

    fn counts(&self, call: &Call) -> bool {
        call.path.as_deref().is_some_and(|path| path.contains("/version-2/log."))
    }
}
