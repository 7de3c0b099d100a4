//! The actors: a journal that appends and syncs, and a writer that keeps the disk busy. Each is a process of its own.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};

use crate::cli::Actor;

/// Process names, as the report shows them.
pub const JOURNAL: &str = "demo-journal";
pub const WRITER: &str = "demo-writer";

const ENTRY: usize = 4096;
const JOURNAL_BYTES: u64 = 64 << 20;
const THINK: Duration = Duration::from_micros(500);
const CHUNK: usize = 4 << 20;
const WRITER_BYTES: u64 = 128 << 20;

/// An actor at work; ended when dropped.
pub struct Acting {
    child: Child,
}

impl Acting {
    pub fn start(actor: Actor, directory: &Path) -> anyhow::Result<Self> {
        let role = match actor {
            Actor::Journal => "journal",
            Actor::Writer => "writer",
        };
        // The own program, also where it lies below the directory that is hidden by the stage.
        let program = "/proc/self/exe";
        let child = Command::new(program).arg("demo-role").arg(role).arg(directory).stdin(Stdio::piped()).spawn();
        Ok(Self { child: child.context("could not start an actor of the demo")? })
    }

    /// An error if it has ended.
    pub fn check(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("it ended with {status}; read its words above"),
        }
    }
}

impl Drop for Acting {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Plays a role until killed.
pub fn act(actor: Actor, directory: &Path) -> anyhow::Result<ExitCode> {
    // SAFETY: plain prctl calls with constant arguments.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    match actor {
        Actor::Journal => {
            rename(JOURNAL)?;
            // The syncing thread has a name of its own, as a broker's has.
            let path = directory.join("journal").join("0001.log");
            std::fs::create_dir_all(directory.join("journal")).context("could not make the journal's directory")?;
            let thread = std::thread::Builder::new().name("journal-sync".into()).spawn(move || append(&path));
            match thread.context("could not start the syncing thread")?.join() {
                Ok(ended) => ended,
                Err(_) => bail!("the syncing thread panicked"),
            }
        }
        Actor::Writer => {
            rename(WRITER)?;
            rewrite(&directory.join("segment.data"))
        }
    }
}

fn rename(name: &str) -> anyhow::Result<()> {
    std::fs::write("/proc/self/comm", name).context("could not name the process")
}

fn append(path: &Path) -> anyhow::Result<ExitCode> {
    let entry = [0x5a; ENTRY];
    let mut file = File::create(path).with_context(|| format!("could not create {}", path.display()))?;
    loop {
        if file.stream_position()? >= JOURNAL_BYTES {
            file.set_len(0)?;
            file.seek(SeekFrom::Start(0))?;
        }
        file.write_all(&entry)?;
        file.sync_data()?;
        std::thread::sleep(THINK);
    }
}

/// Writes through the page cache and asks for writeback at once, as a ledger that limits its dirty pages does.
fn rewrite(path: &Path) -> anyhow::Result<ExitCode> {
    let chunk = vec![0xa5; CHUNK];
    let mut file = File::create(path).with_context(|| format!("could not create {}", path.display()))?;
    loop {
        if file.stream_position()? >= WRITER_BYTES {
            file.seek(SeekFrom::Start(0))?;
        }
        file.write_all(&chunk)?;
        // SAFETY: the descriptor is open; the call only starts writeback of what was written.
        let started = unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
        if started != 0 {
            return Err(std::io::Error::last_os_error()).context("could not start writeback");
        }
        if file.stream_position()? % (8 * CHUNK as u64) == 0 {
            file.sync_data()?;
        }
    }
}
