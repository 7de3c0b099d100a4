//! Processes: name, executable, control group; and the list of those that run.
//!
//! Reads only what the kernel answers at once: `cmdline` and `maps` wait for the memory lock of the process, which a
//! process that hangs may hold.

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::limits;

use super::aged::Aged;

/// A process as an operator names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Name of its first thread, at most 15 bytes; empty if the process was gone before it was asked.
    pub name: String,
    /// `None` for kernel threads, and where the process may not be looked into.
    pub executable: Option<PathBuf>,
    /// Path in the hierarchy of control groups: version 2's, or where that has none, a controller's.
    pub cgroup: Option<String>,
}

impl Process {
    /// `None` if there is no such process.
    pub fn read(proc: &Path, pid: u32) -> Option<Self> {
        let directory = proc.join(pid.to_string());
        let name = comm(&directory)?;
        let executable = std::fs::read_link(directory.join("exe")).ok().map(|path| without_deleted(&path));
        let cgroup = std::fs::read_to_string(directory.join("cgroup")).ok().and_then(|text| cgroup(&text));
        Some(Self { name, executable, cgroup })
    }
}

/// Remembers processes for some seconds, and those that ended until their room is wanted.
#[derive(Debug)]
pub struct Processes {
    proc: PathBuf,
    known: Aged<u32, Process>,
    started: Instant,
}

impl Processes {
    pub fn new(proc: &Path) -> Self {
        Self { proc: proc.to_owned(), known: Aged::new(limits::NAMES_PROCESSES), started: Instant::now() }
    }

    pub fn get(&mut self, pid: u32) -> Process {
        let now_ns = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if let Some(process) = self.known.get(&pid, now_ns) {
            return process.clone();
        }
        self.read(pid, now_ns)
    }

    /// The same, read anew if what is remembered has another name: the process has executed another program since. Of one
    /// that has ended already, the name is all there is.
    pub fn get_named(&mut self, pid: u32, name: &str) -> Process {
        let process = self.get(pid);
        if process.name == name {
            return process;
        }
        let now_ns = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let process = self.read(pid, now_ns);
        if !process.name.is_empty() {
            return process;
        }
        let gone = Process { name: name.to_owned(), ..process };
        self.known.put(pid, gone.clone(), now_ns, now_ns.saturating_add(limits::NAMES_PROCESS_HOLDS_NS));
        gone
    }

    fn read(&mut self, pid: u32, now_ns: u64) -> Process {
        let read = Process::read(&self.proc, pid);
        let process = read.or_else(|| self.known.get_old(&pid).cloned()).unwrap_or_default();
        self.known.put(pid, process.clone(), now_ns, now_ns.saturating_add(limits::NAMES_PROCESS_HOLDS_NS));
        process
    }
}

/// The process that a thread belongs to; `None` if it has ended.
pub fn of_thread(proc: &Path, tid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(proc.join(tid.to_string()).join("status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

/// Numbers of all processes, rising.
pub fn running(proc: &Path) -> Vec<u32> {
    numbers(proc)
}

/// Names of all threads of a process, as the kernel has them.
pub fn threads(proc: &Path, pid: u32) -> Vec<String> {
    let tasks = proc.join(pid.to_string()).join("task");
    numbers(&tasks).into_iter().filter_map(|tid| comm(&tasks.join(tid.to_string()))).collect()
}

/// A path of `/proc` without the mark that the kernel sets behind the name of a file that is gone.
pub fn without_deleted(path: &Path) -> PathBuf {
    path.to_str().and_then(|text| text.strip_suffix(" (deleted)")).map_or_else(|| path.to_owned(), PathBuf::from)
}

fn numbers(directory: &Path) -> Vec<u32> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut numbers: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

fn comm(directory: &Path) -> Option<String> {
    let bytes = std::fs::read(directory.join("comm")).ok()?;
    Some(String::from_utf8_lossy(bytes.strip_suffix(b"\n").unwrap_or(&bytes)).into_owned())
}

/// Lines are `number:controllers:path`; version 2's has number 0. On a host with both versions it may stay at the root.
fn cgroup(text: &str) -> Option<String> {
    let lines = || {
        text.lines().filter_map(|line| line.split_once(':').and_then(|(id, rest)| Some((id, rest.split_once(':')?.1))))
    };
    let unified = lines().find(|(id, _)| *id == "0").map(|(_, path)| path);
    let path = unified.filter(|path| *path != "/").or_else(|| lines().map(|(_, path)| path).find(|path| *path != "/"));
    path.or(unified).or_else(|| lines().next().map(|(_, path)| path)).map(str::to_owned)
}
