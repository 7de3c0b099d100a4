//! The canary: a thread that syncs a file of its own and ends, and what the probes told of it.
//!
//! It syncs nothing but that file, which loses its name before the first write and so is gone with the process. It must
//! not know what a lack of evidence means.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use fsyncscope_ebpf::part::Part;
use fsyncscope_ebpf::slot::{Kind, Phase, Submitter};
use serde::Serialize;

use crate::event::{EndSeen, Event, Sync};
use crate::kernel::dev::Dev;
use crate::kernel::disks::Disks;
use crate::kernel::host::Roots;
use crate::kernel::mounts::Mounts;
use crate::probes::Probes;

/// The thread's name; a tracer that runs beside shows its syncs under it.
const THREAD: &str = "canary";
/// Half of them fdatasync, half fsync: enough that one which never slept does not matter.
const SYNCS: u32 = 8;
/// A frozen filesystem holds a sync for ever.
const SYNCS_TAKE_AT_MOST: Duration = Duration::from_secs(20);
/// The last record is sent when its thread is switched out, within one round of the scheduler.
const RECORDS_TAKE_AT_MOST: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(20);
/// Number of the initial namespace's file, fixed by the kernel (`include/linux/proc_ns.h`, PROC_PID_INIT_INO).
const INITIAL_PIDS: &str = "pid:[4026531836]";

/// A file to be synced and what it lies on.
pub struct Place {
    file: File,
    inode: u64,
    pub directory: PathBuf,
    pub filesystem: String,
    pub journal: Journal,
    /// The disk's name, where there is one.
    pub disk: Option<String>,
}

/// Whether a filesystem has a journal thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Journal {
    Present,
    Absent,
}

/// What was told of the canary.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Evidence {
    /// Syncs that were made.
    pub made: u32,
    /// Syncs that were told, and of these: with another tid, with their exact end, with the return to user mode, with
    /// time off the CPU, with time between a wake-up and the CPU.
    pub told: u32,
    pub of_another_tid: u32,
    pub exact: u32,
    pub returned: u32,
    pub slept: u32,
    pub woken: u32,
    pub thread_exits: u32,
    pub commits: u32,
    /// Writes in the disk's histograms, and of these: submitted by a syncing thread or a journal.
    pub transfers: u64,
    pub submitted: u64,
    /// Runs of each program so far, if the kernel counts them.
    pub runs: Option<HashMap<String, u64>>,
    #[serde(skip)]
    tid: Option<u32>,
    #[serde(skip)]
    dev: u32,
    #[serde(skip)]
    disk: u32,
    #[serde(skip)]
    filesystems: HashMap<u32, u32>,
}

impl Place {
    /// Makes the file.
    pub fn make(directory: &Path, roots: &Roots) -> anyhow::Result<Self> {
        let path = directory.join(format!(".fsyncscope-canary-{}", std::process::id()));
        let advice = "name a directory where files can be made with --canary";
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        let file = file.map_err(|e| anyhow!("making a canary file in {}: {e}; {advice}", directory.display()))?;
        std::fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
        let about = file.metadata().context("looking at the canary file")?;
        let mounts = Mounts::load(&roots.proc.join("self/mountinfo"))?;
        let absolute = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
        let filesystem = mounts.of_path(&absolute).map_or("unknown".into(), |mount| mount.filesystem.clone());
        let device = Disks::new(&roots.sys).device(Dev::from_stat(about.dev()));
        let disk = device.map(|device| device.name);
        let journal = journal_of(disk.as_deref(), roots);
        Ok(Self { file, inode: about.ino(), directory: absolute, filesystem, journal, disk })
    }

    /// Lets the canary fly, and collects what `probes` tell of it.
    pub fn fly(&self, probes: &mut Probes) -> anyhow::Result<Evidence> {
        let mut evidence = Evidence::default();
        let canary = self.spawn()?;
        let started = Instant::now();
        while !canary.is_finished() {
            if started.elapsed() > SYNCS_TAKE_AT_MOST {
                let (directory, limit) = (self.directory.display(), SYNCS_TAKE_AT_MOST.as_secs());
                return Err(anyhow!(
                    "syncing the canary file in {directory}: it has not returned for {limit} s; see whether the \
                     filesystem is frozen or its disk hangs"
                ));
            }
            evidence.collect(probes, self.inode);
            std::thread::sleep(POLL);
        }
        let (tid, synced) = canary.join().map_err(|_| anyhow!("syncing the canary file: its thread was lost"))?;
        synced.with_context(|| format!("syncing the canary file in {}", self.directory.display()))?;
        evidence.made = SYNCS;
        let synced = Instant::now();
        while synced.elapsed() < RECORDS_TAKE_AT_MOST && !evidence.is_complete(self.journal) {
            evidence.collect(probes, self.inode);
            std::thread::sleep(POLL);
        }
        evidence.weigh(probes, tid);
        Ok(evidence)
    }

    fn spawn(&self) -> anyhow::Result<JoinHandle<(u32, std::io::Result<()>)>> {
        let file = self.file.try_clone().context("sharing the canary file")?;
        let work = move || {
            // SAFETY: gettid has no preconditions and cannot fail.
            let tid = unsafe { libc::gettid() };
            (tid.unsigned_abs(), sync_repeatedly(file))
        };
        std::thread::Builder::new().name(THREAD.into()).spawn(work).context("starting the canary")
    }
}

fn sync_repeatedly(mut file: File) -> std::io::Result<()> {
    for round in 0..SYNCS {
        // It grows, so that a journal has something to commit.
        file.write_all(&[b'c'; 4096])?;
        if round % 2 == 0 { file.sync_data()? } else { file.sync_all()? }
    }
    Ok(())
}

/// The kernel shows each journal as `DISK-INODE` or, if it has a disk of its own, `DISK`; that one is not looked for.
fn journal_of(disk: Option<&str>, roots: &Roots) -> Journal {
    let Some(disk) = disk else { return Journal::Absent };
    let entries = std::fs::read_dir(roots.proc.join("fs/jbd2")).into_iter().flatten().flatten();
    let is_of_disk = |name: String| name.strip_prefix(disk).is_some_and(|rest| rest.starts_with('-'));
    let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    if names.any(is_of_disk) { Journal::Present } else { Journal::Absent }
}

impl Evidence {
    fn collect(&mut self, probes: &mut Probes, inode: u64) {
        probes.poll(|bytes| match Event::parse(bytes) {
            Event::Sync(sync) if sync.thread == THREAD && sync.inode == inode => self.add(&sync),
            Event::ThreadExit { tid, .. } if Some(tid) == self.tid => self.thread_exits += 1,
            Event::Commit(commit) if self.dev == 0 || commit.dev == self.dev => {
                let phases = [commit.locking_ns, commit.flushing_ns, commit.logging_ns];
                self.commits += u32::from(phases.iter().all(|phase| *phase != 0));
            }
            // Told before the first sync on it, so its device is looked up at the end.
            Event::Filesystem { dev, disk, .. } => {
                self.filesystems.insert(dev, disk);
            }
            _ => {}
        });
        self.disk = self.filesystems.get(&self.dev).copied().unwrap_or(0);
    }

    fn add(&mut self, sync: &Sync) {
        let hand = |part: Part| sync.hands[part as usize];
        let off_cpu = sync.hands.iter().sum::<u64>() - hand(Part::OnCpu);
        self.tid = Some(sync.tid);
        self.dev = sync.dev;
        self.told += 1;
        self.exact += u32::from(sync.end == EndSeen::Exactly);
        self.returned += u32::from(sync.return_ns != 0 || sync.end == EndSeen::AtReturn);
        self.slept += u32::from(off_cpu > 0);
        self.woken += u32::from(hand(Part::RunQueue) > 0);
    }

    fn is_complete(&self, journal: Journal) -> bool {
        self.told >= self.made && self.thread_exits > 0 && (journal == Journal::Absent || self.commits > 0)
    }

    /// Takes what is not told but counted.
    fn weigh(&mut self, probes: &Probes, tid: u32) {
        // Elsewhere the kernel's number of this thread is not the one that the thread itself sees.
        let initial = std::fs::read_link("/proc/self/ns/pid").is_ok_and(|name| name == Path::new(INITIAL_PIDS));
        if initial && self.tid.is_some_and(|told| told != tid) {
            self.of_another_tid = self.told;
        }
        if let Some((place, _)) = probes.disks().into_iter().find(|(_, dev)| *dev == self.disk && self.disk != 0) {
            let writes =
                |submitter| probes.latencies(place, Kind::Write, submitter, Phase::Device).buckets.iter().sum::<u64>();
            self.submitted = writes(Submitter::Sync) + writes(Submitter::Journal);
            self.transfers = self.submitted + writes(Submitter::Worker) + writes(Submitter::Other);
        }
    }
}
