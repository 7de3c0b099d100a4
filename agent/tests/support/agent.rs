//! The agent under test as its users meet it: a command line, lines of JSON, a port with metrics.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use super::metrics::Samples;
use super::{free_port, http, wait_for};

/// The word that the agent prints on stderr once every probe is attached and proven.
const WATCHING: &str = "fsyncscope: watching";

/// A running agent; killed when dropped.
pub struct Agent {
    process: std::process::Child,
    port: Option<u16>,
    lines: Arc<Mutex<Vec<String>>>,
    said: Arc<Mutex<Vec<String>>>,
    readers: Vec<std::thread::JoinHandle<()>>,
}

/// What an agent left when it ended.
pub struct Ended {
    pub status: ExitStatus,
    pub syncs: Vec<Value>,
    pub said: Vec<String>,
}

impl Agent {
    /// Starts `watch --json` with more arguments and waits until it watches.
    pub fn watch(arguments: &[&str]) -> Self {
        let mut all = vec!["watch", "--json"];
        all.extend(arguments);
        Self::start(&all, None).watching()
    }

    /// Starts `run` on a free port with more arguments and waits until it watches.
    pub fn run(arguments: &[&str]) -> Self {
        let port = free_port();
        let address = format!("127.0.0.1:{port}");
        let mut all = vec!["run", "--listen", &address];
        all.extend(arguments);
        Self::start(&all, Some(port)).watching()
    }

    /// Starts `disks --json` with more arguments and waits until it watches.
    pub fn disks(arguments: &[&str]) -> Self {
        let mut all = vec!["disks", "--json"];
        all.extend(arguments);
        Self::start(&all, None).watching()
    }

    /// Starts it with any arguments and does not wait.
    pub fn start(arguments: &[&str], port: Option<u16>) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_fsyncscope"))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("start the agent");
        let lines = Arc::default();
        let said = Arc::default();
        let readers = vec![
            collect(process.stdout.take().expect("stdout is a pipe"), &lines),
            collect(process.stderr.take().expect("stderr is a pipe"), &said),
        ];
        Self { process, port, lines, said, readers }
    }

    fn watching(mut self) -> Self {
        // Loading means verifying every program, on a machine that may be busy building.
        let ready = wait_for(Duration::from_secs(60), || {
            let ready = self.said().iter().any(|line| line.contains(WATCHING));
            let ended = self.process.try_wait().ok().flatten();
            (ready || ended.is_some()).then_some(ready)
        });
        assert_eq!(ready, Some(true), "the agent does not watch; it said: {}", self.said().join("; "));
        self
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The lines of its stderr so far.
    pub fn said(&self) -> Vec<String> {
        self.said.lock().expect("no reader panics").clone()
    }

    /// The syncs that it printed so far. A line that is not JSON is a fault of the agent.
    pub fn syncs(&self) -> Vec<Value> {
        parsed(&self.lines.lock().expect("no reader panics"))
    }

    /// How many syncs it printed so far.
    pub fn printed(&self) -> usize {
        self.lines.lock().expect("no reader panics").len()
    }

    /// Waits until a printed sync is one that the caller looks for.
    pub fn wait_for_sync(&self, limit: Duration, mut wanted: impl FnMut(&Value) -> bool) -> Option<Value> {
        wait_for(limit, || self.syncs().into_iter().find(|sync| wanted(sync)))
    }

    /// One scrape of /metrics.
    pub fn scrape(&self) -> Samples {
        let port = self.port.expect("only `run` has a port");
        let answer =
            http::get(([127, 0, 0, 1], port).into(), "/metrics", "text/plain;version=0.0.4").expect("scrape the agent");
        assert_eq!(answer.status, 200, "{}", answer.body);
        Samples::parse(&answer.body)
    }

    pub fn port(&self) -> Option<u16> {
        self.port
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: the child is not yet waited for, so the number is still its own.
        unsafe { libc::kill(self.pid() as i32, signal) };
    }

    /// Ends it by SIGINT, as a user at a terminal does, and collects what it printed.
    pub fn interrupt(self) -> Ended {
        self.end(libc::SIGINT)
    }

    /// Ends it by SIGTERM, as an init system or a node does.
    pub fn terminate(self) -> Ended {
        self.end(libc::SIGTERM)
    }

    /// Ends it by a signal; an agent that is still there after 30 s has failed: on an emulated processor beside others that
    /// take the host's time, ten may be too few.
    pub fn end(mut self, signal: i32) -> Ended {
        self.signal(signal);
        let status = wait_for(Duration::from_secs(30), || self.process.try_wait().ok().flatten());
        let status = status.unwrap_or_else(|| panic!("the agent did not end within 30 s of signal {signal}"));
        self.ended(status)
    }

    /// Waits until it ends by itself, by `--for` or `--count` or by an error.
    pub fn wait(mut self, limit: Duration) -> Ended {
        let status = wait_for(limit, || self.process.try_wait().ok().flatten());
        let status = status.unwrap_or_else(|| panic!("the agent did not end within {limit:?}"));
        self.ended(status)
    }

    fn ended(&mut self, status: ExitStatus) -> Ended {
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
        Ended { status, syncs: self.syncs(), said: self.said() }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn parsed(lines: &[String]) -> Vec<Value> {
    lines
        .iter()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("not JSON ({error}): {line}")))
        .collect()
}

fn collect(from: impl Read + Send + 'static, into: &Arc<Mutex<Vec<String>>>) -> std::thread::JoinHandle<()> {
    let into = Arc::clone(into);
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            into.lock().expect("no test panics while it holds the lines").push(line);
        }
    })
}

/// The fields of a sync that tests ask for most. Each panics with the object where the contract is broken.
pub mod field {
    use serde_json::Value;

    fn at<'a>(sync: &'a Value, pointer: &str) -> &'a Value {
        sync.pointer(pointer).unwrap_or_else(|| panic!("no {pointer} in {sync}"))
    }

    pub fn number(sync: &Value, pointer: &str) -> u64 {
        at(sync, pointer).as_u64().unwrap_or_else(|| panic!("{pointer} is no number in {sync}"))
    }

    pub fn text<'a>(sync: &'a Value, pointer: &str) -> &'a str {
        at(sync, pointer).as_str().unwrap_or_else(|| panic!("{pointer} is no text in {sync}"))
    }

    pub fn duration_ns(sync: &Value) -> u64 {
        number(sync, "/duration_ns")
    }

    /// Each part's name and nanoseconds.
    pub fn parts(sync: &Value) -> Vec<(&str, u64)> {
        let parts = at(sync, "/parts").as_array().unwrap_or_else(|| panic!("parts is no list in {sync}"));
        parts.iter().map(|part| (text(part, "/name"), number(part, "/ns"))).collect()
    }

    /// The nanoseconds of the parts of one name.
    pub fn part_ns(sync: &Value, name: &str) -> u64 {
        parts(sync).iter().filter(|(have, _)| *have == name).map(|(_, ns)| ns).sum()
    }
}
