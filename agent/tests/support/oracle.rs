//! strace as a witness that shares nothing with the agent: it attaches to a process, writes every sync call down, and
//! is asked afterwards. It slows what it watches; its durations are true, its workload is not the one without it.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use super::scratch::Scratch;
use super::strace::Trace;

/// The calls that make something durable, or that belong to a journal's own cache hygiene.
pub const SYNC_CALLS: &str = "fdatasync,fsync,msync,sync_file_range,fadvise64,syncfs,sync";
/// The same with the writes, for files that are open with O_DSYNC or O_SYNC.
pub const SYNC_CALLS_AND_WRITES: &str =
    "fdatasync,fsync,msync,sync_file_range,fadvise64,syncfs,sync,write,pwrite64,writev,pwritev,pwritev2";

/// An strace that is attached to processes, all their threads, and all that they start.
pub struct Oracle {
    strace: Child,
    pids: Vec<u32>,
    output: PathBuf,
}

impl Oracle {
    /// Attaches to one process, and comes back when every thread that exists is traced.
    pub fn attach(scratch: &Scratch, pid: u32, calls: &str) -> Self {
        Self::attach_all(scratch, &[pid], calls)
    }

    /// Attaches to several processes: children that exist already are not followed from their parent.
    pub fn attach_all(scratch: &Scratch, pids: &[u32], calls: &str) -> Self {
        let output = scratch.join(&format!("strace-{}.txt", pids[0]));
        let mut command = Command::new("strace");
        command.args(["-f", "-Y", "-yy", "-T", "-ttt", "-e"]).arg(format!("trace={calls}")).arg("-o").arg(&output);
        for pid in pids {
            command.args(["-p", &pid.to_string()]);
        }
        let mut strace = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("start strace");
        let said = lines(&mut strace);
        let made = Self { strace, pids: pids.to_vec(), output };
        if let Err(said) = attached(&said, pids) {
            panic!("strace did not attach to {pids:?}: {said}");
        }
        made
    }

    /// Lets go of the process and reads what was seen.
    ///
    /// Names of threads are those that /proc has now, where the thread still lives: strace keeps the first name.
    pub fn stop(mut self) -> Trace {
        let maps: String =
            self.pids.iter().filter_map(|pid| fs::read_to_string(format!("/proc/{pid}/maps")).ok()).collect();
        let names = names_of_threads(&self.output);
        interrupt(&self.strace);
        let end = Instant::now() + Duration::from_secs(10);
        while self.strace.try_wait().expect("wait for strace").is_none() {
            assert!(Instant::now() < end, "strace did not let go of {:?} within 10 s", self.pids);
            std::thread::sleep(Duration::from_millis(10));
        }
        let text = fs::read_to_string(&self.output).expect("read what strace wrote");
        let mut trace = Trace::parse(&text);
        for call in &mut trace.calls {
            if let Some(name) = names.get(&call.tid) {
                call.comm.clone_from(name);
            }
            if call.path.is_none() {
                call.path = call.address.and_then(|address| mapped_file(&maps, address));
            }
        }
        trace
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        if matches!(self.strace.try_wait(), Ok(None)) {
            // SIGINT first: a killed strace would leave a stopped thread stopped.
            interrupt(&self.strace);
            std::thread::sleep(Duration::from_millis(200));
            let _ = self.strace.kill();
            let _ = self.strace.wait();
        }
    }
}

fn interrupt(child: &Child) {
    // SAFETY: the child is not yet waited for, so the number is still its own.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
}

/// The lines of strace's stderr, read on a thread of their own for as long as it writes.
fn lines(strace: &mut Child) -> Receiver<String> {
    let stderr = strace.stderr.take().expect("stderr is a pipe");
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    receiver
}

/// Waits for the lines that strace prints once it holds all threads of each process.
fn attached(said: &Receiver<String>, pids: &[u32]) -> Result<(), String> {
    let end = Instant::now() + Duration::from_secs(20);
    let mut waiting: HashSet<String> = pids.iter().map(|pid| format!("strace: Process {pid} attached")).collect();
    let mut all = Vec::new();
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        let Ok(line) = said.recv_timeout(left) else {
            break;
        };
        waiting.retain(|marker| !line.starts_with(marker));
        if waiting.is_empty() {
            return Ok(());
        }
        all.push(line);
    }
    Err(if all.is_empty() { "it said nothing".to_owned() } else { all.join("; ") })
}

/// The present name of each thread that a trace names and that still lives.
fn names_of_threads(output: &Path) -> HashMap<u32, String> {
    let text = fs::read_to_string(output).unwrap_or_default();
    let tids: HashSet<u32> = text.lines().filter_map(|line| line.split_once('<')?.0.trim().parse().ok()).collect();
    tids.into_iter()
        .filter_map(|tid| {
            // /proc/TID answers for every thread, though only leaders are listed.
            let name = fs::read_to_string(format!("/proc/{tid}/comm")).ok()?;
            Some((tid, name.trim_end().to_owned()))
        })
        .collect()
}

/// The file that is mapped at an address, by a process's maps.
fn mapped_file(maps: &str, address: u64) -> Option<String> {
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let start = u64::from_str_radix(start, 16).ok()?;
        let end = u64::from_str_radix(end, 16).ok()?;
        let path = rest.get(rest.find('/')?..)?;
        (start..end).contains(&address).then(|| path.to_owned())
    })
}
