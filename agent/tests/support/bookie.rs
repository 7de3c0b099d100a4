//! A real BookKeeper from its published artefacts: ZooKeeper, one bookie with its journal on one disk and its ledgers on
//! another, and its own client. Everything listens on loopback, on ports that were free.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::java::{BRIEF, Java, fill, path_text};
use super::metrics::Samples;
use super::process::{Process, tail};
use super::scratch::{Format, LoopFs, Scratch};
use super::zookeeper::ZooKeeper;
use super::{free_port, http, missing, run, wait_for, wait_for_port};

/// The thread that syncs the journal, as the kernel shows it up to JDK 25.
pub const FORCE_WRITE: &str = "ForceWriteThrea";

/// A bookie that takes adds.
pub struct Bookie {
    bookie: Process,
    // Behind the bookie: fields are dropped in this order, and a bookie without ZooKeeper does not end well.
    _zookeeper: ZooKeeper,
    java: Java,
    scratch: PathBuf,
    journal: PathBuf,
    metadata: String,
    metrics_port: u16,
}

/// What one run of the client took.
#[derive(Clone, Debug)]
pub struct Added {
    pub entries: u64,
    pub seconds: f64,
    pub median_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
}

/// A client that is adding entries.
pub struct Adding {
    client: Process,
}

impl Bookie {
    /// Why no bookie can run here, or nothing.
    pub fn missing() -> Option<String> {
        Java::missing().or_else(|| missing(&["losetup"])).or_else(|| Format::Ext4.missing())
    }

    /// Starts everything and comes back when a first entry was added.
    pub fn start(scratch: &Scratch, journal: &LoopFs, ledgers: &LoopFs) -> Self {
        let java = Java::fetched("bookkeeper", Some("Client.java"));
        let directory = scratch.path().to_owned();
        let zookeeper = ZooKeeper::start(&java, &directory, &directory.join("zookeeper"));
        let (port, metrics_port) = (free_port(), free_port());
        let journal = journal.join("bk");
        let configuration = fill(
            "bookkeeper",
            "bk.conf.in",
            &[
                ("PORT", &port.to_string()),
                ("ZOOKEEPER", &zookeeper.port.to_string()),
                ("METRICS", &metrics_port.to_string()),
                ("JOURNAL", path_text(&journal)),
                ("LEDGERS", path_text(&ledgers.join("bk"))),
            ],
        );
        let file = directory.join("bk.conf");
        fs::write(&file, configuration).expect("write the bookie's configuration");
        let bookie = server(&java, &directory, &file);
        let listens =
            wait_for_port(port, Duration::from_secs(60)) && wait_for_port(metrics_port, Duration::from_secs(30));
        assert!(listens, "the bookie does not listen:\n{}", tail(&bookie.log()));
        let metadata = format!("zk+hierarchical://127.0.0.1:{}/ledgers", zookeeper.port);
        let made = Self { bookie, _zookeeper: zookeeper, java, scratch: directory, journal, metadata, metrics_port };
        made.first_add();
        made
    }

    /// The first client after the start may come too early; the bookie counts as started when one succeeds.
    fn first_add(&self) {
        for attempt in 0.. {
            let mut client = self.start_adding(1, 1);
            if client.client.wait(Duration::from_secs(30)).is_some_and(|status| status.success()) {
                return;
            }
            let logs = (tail(&client.client.log()), tail(&self.bookie.log()));
            assert!(attempt < 5, "no add succeeds; the client:\n{}\nthe bookie:\n{}", logs.0, logs.1);
        }
    }

    pub fn pid(&self) -> u32 {
        self.bookie.pid()
    }

    /// The directory that holds the journal's files.
    pub fn journal(&self) -> PathBuf {
        self.journal.join("current")
    }

    /// Adds entries of 1 KiB, so many under way at once, and waits for the last.
    pub fn add(&self, entries: u64, window: u32) -> Added {
        self.start_adding(entries, window).wait(Duration::from_secs(120))
    }

    /// Begins to add entries of 1 KiB.
    pub fn start_adding(&self, entries: u64, window: u32) -> Adding {
        let mut command = self.java.command(&self.scratch, &BRIEF);
        command.args(["Client", &self.metadata, &entries.to_string(), "1024", &window.to_string()]);
        Adding { client: Process::start(command, self.scratch.join("client.log"), libc::SIGTERM) }
    }

    /// How many journal syncs the bookie itself has counted, successful ones and failed ones.
    ///
    /// The thread counts a sync after it returned from it, so the number is read until it stands still.
    pub fn journal_syncs(&self) -> u64 {
        let mut last = self.scraped_syncs();
        wait_for(Duration::from_secs(10), || {
            std::thread::sleep(Duration::from_millis(200));
            let now = self.scraped_syncs();
            let still = now == last;
            last = now;
            still.then_some(now)
        })
        .expect("the bookie's count of journal syncs does not stand still")
    }

    fn scraped_syncs(&self) -> u64 {
        self.scrape().sum("bookie_journal_JOURNAL_SYNC_count", &[]) as u64
    }

    /// The bookie's own metrics.
    pub fn scrape(&self) -> Samples {
        let answer = http::get(([127, 0, 0, 1], self.metrics_port).into(), "/metrics", "text/plain;version=0.0.4")
            .expect("scrape the bookie");
        assert_eq!(answer.status, 200);
        Samples::parse(&answer.body)
    }

    /// The lines of its log that report an error. At its first start it looks for marks that cannot be there yet.
    pub fn errors(&self) -> Vec<String> {
        let log = self.bookie.log();
        let bad = log.lines().filter(|line| line.contains("ERROR") && !line.contains("lastMark"));
        bad.map(str::to_owned).collect()
    }

    /// Ends the bookie and then its ZooKeeper. Ask for errors before: its own shutdown is a race that it may log.
    pub fn stop(mut self) {
        self.bookie.stop();
    }
}

impl Adding {
    /// Waits for the last add; one failed add fails the test.
    pub fn wait(mut self, limit: Duration) -> Added {
        let status = self.client.wait(limit);
        let log = self.client.log();
        assert!(status.is_some_and(|status| status.success()), "the client ended with {status:?}:\n{}", tail(&log));
        let line = log.lines().find(|line| line.starts_with("added ")).expect("a client that succeeds says so");
        let value = |key: &str| -> f64 {
            let word = line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
            word.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no {key} in {line}"))
        };
        Added {
            entries: value("entries") as u64,
            seconds: value("seconds"),
            median_ms: value("median_ms"),
            p99_ms: value("p99_ms"),
            max_ms: value("max_ms"),
        }
    }

    /// True while it still adds.
    pub fn runs(&mut self) -> bool {
        self.client.ended().is_none()
    }
}

/// Makes the new cluster known to ZooKeeper and starts its one bookie.
fn server(java: &Java, scratch: &Path, configuration: &Path) -> Process {
    let mut shell = java.command(scratch, &["-Xmx128m"]);
    shell.args(["org.apache.bookkeeper.bookie.BookieShell", "-conf"]).arg(configuration).arg("initnewcluster");
    run(&mut shell);
    // Without this opening the bookie cannot read a descriptor's number, and its fadvise is silently dead.
    let opens = "--add-opens=java.base/java.io=ALL-UNNAMED";
    let mut command = java.command(scratch, &["-Xms256m", "-Xmx256m", "-XX:MaxDirectMemorySize=256m", opens]);
    command.args(["org.apache.bookkeeper.server.Main", "--conf"]).arg(configuration);
    Process::start(command, scratch.join("bookie.log"), libc::SIGTERM)
}
