//! The canary's flight: what it did on a filesystem, and what the probes told of it; or what they told of others.
//!
//! It must not know what a lack of evidence means.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use fsyncscope_ebpf::part::Part;
use fsyncscope_ebpf::slot::{Kind, Phase, Submitter};
use serde::Serialize;

use super::acts::{self, Canary, Stage};
use crate::aio;
use crate::event::{EndSeen, Event, Sync, Through};
use crate::kernel::dev::Dev;
use crate::kernel::disks::Disks;
use crate::kernel::host::Roots;
use crate::kernel::mounts::Mounts;
use crate::probes::Probes;
use crate::probes::shown::Act;
use crate::timeline::Operation;

/// A frozen filesystem holds a sync for ever.
const ACT_TAKES_AT_MOST: Duration = Duration::from_secs(20);
/// The last record is sent when its thread is switched out, within one round of the scheduler.
const RECORDS_TAKE_AT_MOST: Duration = Duration::from_secs(2);
/// Time for which others are listened to, where there can be no canary.
const LISTENING: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(10);
/// Number of the initial namespace's file, fixed by the kernel (`include/linux/proc_ns.h`, PROC_PID_INIT_INO).
const INITIAL_PIDS: &str = "pid:[4026531836]";

/// Where it flies.
#[derive(Clone, Debug, Serialize)]
pub struct Place {
    pub directory: PathBuf,
    pub filesystem: String,
    pub journal: Journal,
    /// The disk's name, where there is one.
    pub disk: Option<String>,
    pub ground: Ground,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ground {
    /// A disk of its own, in memory.
    Scratch,
    /// A directory that was asked for.
    Asked,
    /// Nothing was synced: others were listened to.
    Others,
}

/// Whether a filesystem has a journal thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Journal {
    Present,
    Absent,
}

/// What was told.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Evidence {
    /// Plain syncs that were made.
    pub made: u32,
    /// Of these, how many were told, and of the told ones: with another tid, with their exact end, with the return to
    /// user mode, with time off the CPU, with time between a wake-up and the CPU.
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
    /// Each act that was tried.
    pub acts: BTreeMap<Act, Outcome>,
    #[serde(skip)]
    tid: Option<u32>,
    #[serde(skip)]
    dev: u32,
    #[serde(skip)]
    disk: u32,
    #[serde(skip)]
    filesystems: HashMap<u32, u32>,
}

/// What became of an act.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// Syncs of it that were told; of one that a worker did, only with the time of its request.
    pub told: u32,
    /// Runs of each program during it, by whatever task, if the kernel counts them.
    pub runs: Option<HashMap<String, u64>>,
    /// Why it could not be done.
    pub problem: Option<String>,
}

/// A place, and what was told there.
pub struct Flight {
    pub place: Place,
    pub evidence: Evidence,
}

impl Place {
    pub fn of(directory: &Path, ground: Ground, roots: &Roots) -> anyhow::Result<Self> {
        let mounts = Mounts::load(&roots.proc.join("self/mountinfo"))?;
        let absolute = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
        let filesystem = mounts.of_path(&absolute).map_or("unknown".into(), |mount| mount.filesystem.clone());
        let about = std::fs::metadata(directory).context("looking at the canary's directory")?;
        let dev = Dev::from_stat(std::os::unix::fs::MetadataExt::dev(&about));
        let disk = Disks::new(&roots.sys).device(dev).map(|device| device.name);
        Ok(Self { directory: absolute, filesystem, journal: journal_of(disk.as_deref(), roots), disk, ground })
    }

    /// Lets the canary act there, and collects what `probes` tell of it.
    pub fn fly(self, probes: &mut Probes, calls: bool, counted: bool) -> anyhow::Result<Flight> {
        let refused = |e| {
            anyhow!(
                "making a canary file in {}: {e}; name a directory where files can be made with --canary",
                self.directory.display()
            )
        };
        let file = acts::unnamed(&self.directory).map_err(refused)?;
        let mut flying = Flying {
            inode: std::os::unix::fs::MetadataExt::ino(&file.metadata()?),
            act: Act::Syncs,
            evidence: Evidence::default(),
        };
        let disk = self.disk.clone().filter(|_| self.ground == Ground::Scratch);
        let canary = Canary::start(Stage { file, directory: self.directory.clone(), disk })?;
        // While there is a context, the probe of AIO's work is attached.
        let aio = aio::Context::new();
        probes.attach_what_waits()?;
        for act in self.acts(calls) {
            let before = counted.then(|| runs(probes));
            let problem = flying.act(act, &canary, probes, &self)?;
            let outcome = flying.evidence.acts.entry(act).or_default();
            outcome.problem = problem;
            outcome.runs = before.map(|before| more_than(&before, runs(probes)));
        }
        drop(aio);
        let tid = canary.tid;
        canary.end();
        flying.collect_until(probes, |evidence| evidence.thread_exits > 0);
        flying.evidence.weigh(probes, tid);
        Ok(Flight { place: self, evidence: flying.evidence })
    }

    fn acts(&self, calls: bool) -> Vec<Act> {
        let of_disk = match self.ground {
            Ground::Scratch => &acts::OF_DISK[..],
            Ground::Asked | Ground::Others => &[],
        };
        let of_disk = of_disk.iter().filter(|act| **act != Act::Merge || self.filesystem == "ext4");
        let calls = if calls { &acts::CALLS[..] } else { &[] };
        let mut acts: Vec<Act> = acts::OF_FILES.iter().chain(of_disk).chain(calls).copied().collect();
        acts.sort_unstable();
        acts
    }
}

/// The kernel shows each journal as `DISK-INODE` or, if it has a disk of its own, `DISK`; that one is not looked for.
fn journal_of(disk: Option<&str>, roots: &Roots) -> Journal {
    let Some(disk) = disk else { return Journal::Absent };
    let entries = std::fs::read_dir(roots.proc.join("fs/jbd2")).into_iter().flatten().flatten();
    let is_of_disk = |name: String| name.strip_prefix(disk).is_some_and(|rest| rest.starts_with('-'));
    let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    if names.any(is_of_disk) { Journal::Present } else { Journal::Absent }
}

fn runs(probes: &Probes) -> HashMap<String, u64> {
    probes.usage().into_iter().map(|usage| (usage.name, usage.runs)).collect()
}

fn more_than(before: &HashMap<String, u64>, mut after: HashMap<String, u64>) -> HashMap<String, u64> {
    after.retain(|name, runs| {
        *runs -= before.get(name).copied().unwrap_or(0).min(*runs);
        *runs > 0
    });
    after
}

/// A flight that is not over.
struct Flying {
    inode: u64,
    act: Act,
    evidence: Evidence,
}

impl Flying {
    /// Has one thing done and waits until it is told. Gives why it could not be done.
    fn act(&mut self, act: Act, canary: &Canary, probes: &mut Probes, place: &Place) -> anyhow::Result<Option<String>> {
        self.act = act;
        canary.begin(act)?;
        let began = Instant::now();
        let result = loop {
            if let Some(result) = canary.ended() {
                break result;
            }
            if began.elapsed() > ACT_TAKES_AT_MOST {
                let (what, directory, limit) = (act.words(), place.directory.display(), ACT_TAKES_AT_MOST.as_secs());
                return Err(anyhow!(
                    "{what} in {directory}: it has not returned for {limit} s; see whether the filesystem is frozen or \
                     its disk hangs"
                ));
            }
            self.collect(probes);
            std::thread::sleep(POLL);
        };
        if let Err(error) = result {
            return match act {
                Act::Syncs => {
                    Err(error).with_context(|| format!("syncing a canary file in {}", place.directory.display()))
                }
                _ => Ok(Some(error.to_string())),
            };
        }
        if act == Act::Syncs {
            self.evidence.made = acts::SYNCS;
        }
        let commits = place.journal == Journal::Present && act == Act::Syncs;
        self.collect_until(probes, |evidence| {
            let told = evidence.acts.get(&act).map_or(0, |outcome| outcome.told);
            told >= acts::made(act) && (!commits || evidence.commits > 0)
        });
        Ok(None)
    }

    fn collect_until(&mut self, probes: &mut Probes, done: impl Fn(&Evidence) -> bool) {
        let began = Instant::now();
        self.collect(probes);
        while !done(&self.evidence) && began.elapsed() < RECORDS_TAKE_AT_MOST {
            std::thread::sleep(POLL);
            self.collect(probes);
        }
    }

    fn collect(&mut self, probes: &mut Probes) {
        let Self { inode, act, evidence } = self;
        probes.poll(|bytes| match Event::parse(bytes) {
            Event::Sync(sync) if is_of(*act, &sync, *inode) => evidence.add_act(*act, &sync),
            event => evidence.add_other(&event),
        });
        evidence.disk = evidence.filesystems.get(&evidence.dev).copied().unwrap_or(0);
    }
}

/// Whether a sync that was told is the canary's own, of this act.
fn is_of(act: Act, sync: &Sync, inode: u64) -> bool {
    let operation = Operation::of(sync, std::env::consts::ARCH);
    let asked = sync.asked.as_ref().map(|asked| asked.through);
    let own = match act {
        Act::Renamed => sync.thread.as_bytes() == acts::RENAMED.to_bytes(),
        _ => sync.thread == acts::THREAD,
    };
    let own = own && (act == Act::Directory || act == Act::Whole || sync.inode == inode);
    own && match act {
        Act::Syncs | Act::Renamed => asked.is_none() && !sync.directory && operation.is_of_files(),
        Act::Directory => sync.directory,
        // Without the event of the request it would begin with its worker's work.
        Act::IoUring => asked == Some(Through::IoUring) && sync.start_ns < sync.begun_ns(),
        Act::Aio => asked == Some(Through::Aio) && sync.start_ns < sync.begun_ns(),
        Act::Whole => operation == Operation::Syncfs,
        Act::SyncFileRange => operation == Operation::SyncFileRange,
        Act::Fadvise => operation == Operation::Fadvise,
        Act::Merge => false,
    }
}

/// Listens to the syncs of others, by the type of their filesystems.
pub fn listen(probes: &mut Probes, roots: &Roots) -> anyhow::Result<Vec<Flight>> {
    let mounts = Mounts::load(&roots.proc.join("self/mountinfo"))?;
    let mut heard: BTreeMap<String, (PathBuf, Evidence)> = BTreeMap::new();
    let began = Instant::now();
    while began.elapsed() < LISTENING {
        probes.poll(|bytes| {
            let Event::Sync(sync) = Event::parse(bytes) else { return };
            let Some(mount) = mounts.iter().find(|mount| mount.dev == Dev::from_kernel(sync.dev)) else { return };
            let (_, evidence) =
                heard.entry(mount.filesystem.clone()).or_insert((mount.point.clone(), Evidence::default()));
            evidence.add(&sync);
            evidence.made = if evidence.exact > 0 { evidence.exact } else { evidence.told };
        });
        std::thread::sleep(POLL);
    }
    let flight = |(filesystem, (directory, evidence))| Flight {
        place: Place { directory, filesystem, journal: Journal::Absent, disk: None, ground: Ground::Others },
        evidence,
    };
    Ok(heard.into_iter().map(flight).collect())
}

impl Evidence {
    fn add_act(&mut self, act: Act, sync: &Sync) {
        self.acts.entry(act).or_default().told += 1;
        if act == Act::Syncs {
            self.add(sync);
        }
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

    fn add_other(&mut self, event: &Event) {
        match event {
            Event::ThreadExit { tid, .. } if Some(*tid) == self.tid => self.thread_exits += 1,
            Event::Commit(commit) if self.dev == 0 || commit.dev == self.dev => {
                let phases = [commit.locking_ns, commit.flushing_ns, commit.logging_ns];
                self.commits += u32::from(phases.iter().all(|phase| *phase != 0));
            }
            // Told before the first sync on it, so its device is looked up at the end.
            Event::Filesystem { dev, disk, .. } => {
                self.filesystems.insert(*dev, *disk);
            }
            _ => {}
        }
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
