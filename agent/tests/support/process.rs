//! A server under test as a process: its output in a file, a signal to end it, no way to outlive the test.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use super::wait_for;

/// A running server. It dies with the thread that started it, so it must be held by that thread.
pub struct Process {
    child: Child,
    log: PathBuf,
    /// What asks it to end cleanly.
    polite: i32,
}

impl Process {
    /// Starts a command with stdout and stderr in a file.
    pub fn start(command: Command, log: PathBuf, polite: i32) -> Self {
        Self::start_reading(command, Stdio::null(), log, polite)
    }

    /// The same with something to read at stdin.
    pub fn start_reading(mut command: Command, stdin: Stdio, log: PathBuf, polite: i32) -> Self {
        let file = File::create(&log).expect("create a log");
        let same = file.try_clone().expect("share the log");
        command.stdin(stdin).stdout(file).stderr(same);
        // SAFETY: between fork and exec only prctl is called, which is async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            })
        };
        let child = command.spawn().unwrap_or_else(|error| panic!("start {command:?}: {error}"));
        Self { child, log, polite }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub fn log_path(&self) -> &Path {
        &self.log
    }

    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits until it ends by itself.
    pub fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        wait_for(limit, || self.ended())
    }

    /// Waits until a client ends by itself, and gives what it said; one that fails or takes longer fails the test.
    pub fn finish(mut self, limit: Duration) -> String {
        let status = self.wait(limit);
        let log = self.log();
        let success = status.is_some_and(|status| status.success());
        assert!(success, "{} ended with {status:?}:\n{}", self.log.display(), tail(&log));
        log
    }

    /// Asks it to end, and kills it after 10 s.
    pub fn stop(&mut self) {
        if self.ended().is_some() {
            return;
        }
        // SAFETY: it was not yet waited for, so the number is still its own.
        unsafe { libc::kill(self.child.id() as i32, self.polite) };
        if self.wait(Duration::from_secs(10)).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The last lines of a log, for the message of a failed test.
pub fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}
