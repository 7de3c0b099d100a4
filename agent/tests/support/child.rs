//! Workloads in a process of their own: the test binary starts itself again with one test and a role in its environment.
//! So no second program has to be built or found, and `cargo test --test NAME` alone is enough.
//!
//! The parent holds the child's stdin; when it closes, because the guard was dropped or the parent died, the child ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::client::Client;
use super::interference::{Direct, Hog, Storm, Writer};
use super::journal::Workload;
use super::wait_for;

const ROLE: &str = "FSYNCSCOPE_TEST_ROLE";
const READY: &str = "ready ";

/// What a child does until it is told to stop.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Role {
    Journal(Workload),
    Writer(Writer),
    Direct(Direct),
    Hog(Hog),
    Storm(Storm),
    Client(Client),
}

#[derive(Serialize, Deserialize)]
struct Order {
    role: Role,
    /// The name that the process shows; at most 15 bytes.
    process: String,
    /// Where the truth about what it did is written when it stops.
    log: PathBuf,
}

/// A running child.
pub struct Child {
    process: std::process::Child,
    log: PathBuf,
    worker_tid: u32,
}

impl Child {
    /// Starts a role under a process name and waits until its work has begun. The log must not lie on a disk under test.
    pub fn start(role: Role, process: &str, log: PathBuf) -> Self {
        assert!(process.len() <= 15, "{process} is longer than a process name can be");
        let order = Order { role, process: process.to_owned(), log: log.clone() };
        let order = serde_json::to_string(&order).expect("an order is plain data");
        let mut process = Command::new(std::env::current_exe().expect("find the test binary"))
            .args(["support::child::entry", "--exact", "--nocapture", "--test-threads=1"])
            .env(ROLE, order)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start the test binary again");
        let mut stdout = BufReader::new(process.stdout.take().expect("stdout is a pipe"));
        let mut child = Self { process, log, worker_tid: 0 };
        child.worker_tid = ready_line(&mut stdout).expect("the child ended before it was ready");
        // What else it prints is of no interest, but a full pipe would stop it.
        std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
        child
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The thread that does the work; of a client, its process.
    pub fn worker_tid(&self) -> u32 {
        self.worker_tid
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: the child is not yet waited for, so the number is still its own.
        unsafe { libc::kill(self.pid() as i32, signal) };
    }

    /// Tells it to stop, waits until it has, and gives its log.
    pub fn stop(self) -> String {
        self.stop_within(Duration::from_secs(20))
    }

    /// The same with a limit of the caller's own; what lasts longer is killed.
    pub fn stop_within(mut self, limit: Duration) -> String {
        self.end(limit);
        std::fs::read_to_string(&self.log).expect("read the child's log")
    }

    fn end(&mut self, limit: Duration) {
        drop(self.process.stdin.take());
        let ended = wait_for(limit, || self.process.try_wait().ok().flatten());
        if ended.is_none() {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.process.stdin.is_some() {
            self.end(Duration::from_secs(3));
        }
    }
}

fn ready_line(stdout: &mut impl BufRead) -> Option<u32> {
    let mut line = String::new();
    while stdout.read_line(&mut line).ok()? > 0 {
        // libtest prints the name of the test without a line's end before it.
        if let Some((_, tid)) = line.split_once(READY) {
            return tid.trim().parse().ok();
        }
        line.clear();
    }
    None
}

/// A test by form only: without a role in the environment it has nothing to do.
#[test]
fn entry() {
    let Ok(order) = std::env::var(ROLE) else {
        return;
    };
    let Order { role, process, log } = serde_json::from_str(&order).expect("the parent wrote it");
    std::fs::write("/proc/self/comm", process).expect("set the process's name");
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        told.store(true, Ordering::Relaxed);
    });
    let ready = |tid: u32| {
        let mut stdout = std::io::stdout();
        let _ = write!(stdout, "\n{READY}{tid}\n").and_then(|()| stdout.flush());
    };
    let text = match role {
        Role::Journal(workload) => workload.perform(&stop, ready),
        Role::Writer(writer) => writer.perform(&stop, ready),
        Role::Direct(direct) => direct.perform(&stop, ready),
        Role::Hog(hog) => hog.perform(&stop, ready),
        Role::Storm(storm) => storm.perform(&stop, ready),
        Role::Client(client) => return client.perform(ready, &log),
    };
    std::fs::write(log, text).expect("write the log");
}
