//! A real Kafka from its published artefacts: one node that is broker and controller, a flush after every message, and
//! its own tool as the load.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::eyes::Broker;
use super::java::{BRIEF, Java, fill, path_text};
use super::process::{Process, tail};
use super::scratch::{LoopFs, Scratch};
use super::strace::Call;
use super::{free_port, wait_for_port};

const TOPIC: &str = "journal";

/// A running node.
pub struct Kafka {
    node: Process,
    java: Java,
    scratch: PathBuf,
    server: String,
}

impl Kafka {
    /// Starts it and makes a topic of one partition.
    pub fn start(scratch: &Scratch, disk: &LoopFs) -> Self {
        let java = Java::fetched("kafka", Some("Flushes.java"));
        let port = free_port();
        let settings = fill(
            "kafka",
            "server.properties.in",
            &[
                ("PORT", &port.to_string()),
                ("CONTROLLER", &free_port().to_string()),
                ("DATA", path_text(&disk.join("kafka"))),
            ],
        );
        let file = scratch.join("server.properties");
        fs::write(&file, settings).expect("write Kafka's configuration");
        let mut format = java.command(scratch.path(), &BRIEF);
        format
            .args(["kafka.tools.StorageTool", "format", "--standalone", "-t", "fsyncscopeTestClusterAA", "-c"])
            .arg(&file);
        Process::start(format, scratch.join("kafka-format.log"), libc::SIGTERM).finish(Duration::from_secs(60));
        let mut command = java.command(scratch.path(), &["-Xms256m", "-Xmx256m"]);
        command.arg("kafka.Kafka").arg(file);
        let node = Process::start(command, scratch.join("kafka.log"), libc::SIGTERM);
        let listens = wait_for_port(port, Duration::from_secs(60));
        assert!(listens, "Kafka does not listen:\n{}", tail(&node.log()));
        let made = Self { node, java, scratch: scratch.path().to_owned(), server: format!("127.0.0.1:{port}") };
        made.tool("TopicCommand", &["--create", "--partitions", "1", "--replication-factor", "1"]);
        made
    }

    /// Runs one of Kafka's tools on the topic to its end.
    fn tool(&self, name: &str, arguments: &[&str]) -> String {
        let mut command = self.java.command(&self.scratch, &BRIEF);
        command.arg(format!("org.apache.kafka.tools.{name}"));
        command.args(["--bootstrap-server", &self.server, "--topic", TOPIC]).args(arguments);
        self.finish(command, name)
    }

    fn finish(&self, command: Command, name: &str) -> String {
        let log: PathBuf = self.scratch.join(format!("{name}.log"));
        Process::start(command, log, libc::SIGTERM).finish(Duration::from_secs(60))
    }
}

impl Broker for Kafka {
    fn pids(&self) -> Vec<u32> {
        vec![self.node.pid()]
    }

    /// One message at a time: each is a batch of its own.
    fn load(&self) {
        let size = ["--num-records", "100", "--producer-acks", "all", "--record-size", "1024"];
        self.tool("EndToEndLatency", &size);
    }

    /// The flushes of segments, of the topic and of the node's own metadata.
    fn counted(&self) -> Option<u64> {
        let mut command = self.java.command(&self.scratch, &BRIEF);
        command.args(["Flushes", &self.node.pid().to_string()]);
        let said = self.finish(command, "Flushes");
        let count = said.lines().find_map(|line| line.strip_prefix("flushes ")?.parse().ok());
        Some(count.unwrap_or_else(|| panic!("Kafka does not count: {said}")))
    }

    /// A flush syncs the log, the index and the index by time, one after the other.
    fn counts(&self, call: &Call) -> bool {
        call.name == "fsync" && call.path.as_deref().is_some_and(|path| path.ends_with(".timeindex"))
    }
}
