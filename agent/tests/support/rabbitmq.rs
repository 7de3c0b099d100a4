//! Debian's RabbitMQ with a quorum queue, and its published load tool as the client. Its name server is one of our own,
//! for the one that it would start outlives it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::eyes::{Broker, Through};
use super::java::{BRIEF, Java};
use super::process::{Process, tail};
use super::scratch::{LoopFs, Scratch};
use super::strace::Call;
use super::{free_port, missing, wait_for, wait_for_port};

/// How the write-ahead log of the quorum queues is made durable, in the words of its library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteStrategy {
    /// A write, then fdatasync.
    Default,
    /// Writes to a file that is open with O_SYNC.
    OSync,
}

/// A running node.
pub struct RabbitMq {
    node: Process,
    // Behind the node: fields are dropped in this order.
    _names: Process,
    java: Java,
    settings: Vec<(&'static str, String)>,
    scratch: PathBuf,
    port: u16,
    strategy: WriteStrategy,
}

impl RabbitMq {
    /// Why no RabbitMQ can run here, or nothing.
    pub fn missing() -> Option<String> {
        let none = || programs().is_none().then(|| "needs RabbitMQ's server".to_owned());
        Java::missing().or_else(|| missing(&["epmd"])).or_else(none)
    }

    pub fn start(strategy: WriteStrategy, scratch: &Scratch, disk: &LoopFs) -> Self {
        let java = Java::fetched("rabbitmq", None);
        let (port, names_port) = (free_port(), free_port());
        let settings = settings(scratch, disk, port, names_port);
        let word = if strategy == WriteStrategy::OSync { "o_sync" } else { "default" };
        let advanced = format!("[{{ra, [{{wal_write_strategy, {word}}}]}}].");
        fs::write(scratch.join("advanced.config"), advanced).expect("write RabbitMQ's configuration");
        let mut names = Command::new("epmd");
        names.args(["-address", "127.0.0.1", "-port", &names_port.to_string()]);
        let names = Process::start(names, scratch.join("epmd.log"), libc::SIGTERM);
        assert!(wait_for_port(names_port, Duration::from_secs(10)), "epmd does not listen:\n{}", tail(&names.log()));
        let node = Process::start(program("rabbitmq-server", &settings), scratch.join("rabbitmq.log"), libc::SIGTERM);
        let scratch = scratch.path().to_owned();
        let mut made = Self { node, _names: names, java, settings, scratch, port, strategy };
        let up = wait_for(Duration::from_secs(60), || {
            (made.node.log().contains("completed with") || made.node.ended().is_some()).then_some(())
        });
        assert!(up.is_some() && made.node.ended().is_none(), "RabbitMQ does not run:\n{}", tail(&made.node.log()));
        // A first run makes the queue.
        made.publish(1);
        made
    }

    /// Publishes messages one by one, each confirmed before the next.
    fn publish(&self, messages: u32) {
        let mut command = self.java.command(&self.scratch, &BRIEF);
        command.args(["com.rabbitmq.perf.PerfTest", "--uri", &format!("amqp://guest:guest@127.0.0.1:{}", self.port)]);
        command.args(["--quorum-queue", "--queue", "journal", "--consumers", "0", "--size", "1000", "--confirm", "1"]);
        command.args(["--pmessages", &messages.to_string()]);
        Process::start(command, self.scratch.join("perf-test.log"), libc::SIGTERM).finish(Duration::from_secs(60));
    }
}

/// Everything of it in the scratch and on loopback, but its data on the disk; nothing of the machine's is read.
fn settings(scratch: &Scratch, disk: &LoopFs, port: u16, names_port: u16) -> Vec<(&'static str, String)> {
    let path = |path: PathBuf| path.display().to_string();
    // Beside its home is its cookie, the secret between it and its tools.
    let home = scratch.join("home");
    fs::create_dir(&home).expect("create the home of RabbitMQ");
    vec![
        ("HOME", path(home)),
        ("ERL_EPMD_ADDRESS", "127.0.0.1".to_owned()),
        ("ERL_EPMD_PORT", names_port.to_string()),
        ("RABBITMQ_NODENAME", "journal@localhost".to_owned()),
        ("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1".to_owned()),
        ("RABBITMQ_NODE_PORT", port.to_string()),
        ("RABBITMQ_DIST_PORT", free_port().to_string()),
        ("RABBITMQ_MNESIA_BASE", path(disk.join("rabbitmq"))),
        ("RABBITMQ_LOG_BASE", path(scratch.join("log"))),
        ("RABBITMQ_PID_FILE", path(scratch.join("pid"))),
        ("RABBITMQ_CONF_ENV_FILE", path(scratch.join("none"))),
        ("RABBITMQ_CONFIG_FILE", path(scratch.join("none"))),
        ("RABBITMQ_ADVANCED_CONFIG_FILE", path(scratch.join("advanced.config"))),
        ("RABBITMQ_ENABLED_PLUGINS_FILE", path(scratch.join("none"))),
        // The script becomes the node instead of waiting for it.
        ("RUNNING_UNDER_SYSTEMD", "1".to_owned()),
    ]
}

/// One of its programs with its settings.
fn program(name: &str, settings: &[(&str, String)]) -> Command {
    let mut command = Command::new(programs().expect("checked by missing").join(name));
    command.envs(settings.iter().map(|(name, value)| (*name, value)));
    command
}

/// The directory of the programs themselves; those on the path are wrappers that change the user.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/rabbitmq/lib").ok()?.flatten();
    versions.map(|version| version.path().join("sbin")).find(|programs| programs.join("rabbitmq-server").is_file())
}

impl Broker for RabbitMq {
    fn pids(&self) -> Vec<u32> {
        vec![self.node.pid()]
    }

    fn load(&self) {
        self.publish(200);
    }

    fn writes_through(&self) -> Option<Through> {
        let through = Through { part: ".wal", operation: "o_sync" };
        (self.strategy == WriteStrategy::OSync).then_some(through)
    }

    /// The batches that were written to the log, each of which is made durable once.
    fn counted(&self) -> Option<u64> {
        let mut command = program("rabbitmqctl", &self.settings);
        command.args(["eval", "maps:get(batches, maps:get(ra_log_wal, ra_counters:overview()))."]);
        let log = self.scratch.join("rabbitmqctl.log");
        let said = Process::start(command, log, libc::SIGTERM).finish(Duration::from_secs(60));
        Some(said.trim().parse().unwrap_or_else(|_| panic!("RabbitMQ does not count: {said}")))
    }

    fn counts(&self, call: &Call) -> bool {
        let name = |path: &Path| path.extension().is_some_and(|extension| extension == "wal");
        call.name != "fsync" && call.path.as_deref().is_some_and(|path| name(Path::new(path)))
    }
}
