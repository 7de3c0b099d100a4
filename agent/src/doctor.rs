//! The command `doctor`: what works on this machine, what does not, and what is lost.
//!
//! It must not sync on a journal's disk unless that is asked for: those who wait for the journal would feel it. So its
//! canary acts on scratch disks in memory.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::anyhow;
use serde::Serialize;

use crate::cli;
use crate::kernel::capability::Capability;
use crate::kernel::host::{Host, Lockdown, Roots};
use crate::kernel::shortfall::{Felt, Need, Shortfall};
use crate::kernel::symbols::Addresses;
use crate::lines;
use crate::probes::table::{self, Attached, State};
use crate::probes::{self, Choice};
use crate::start::Kernel;

mod acts;
mod canary;
mod ground;
mod price;
mod proof;
mod text;

use canary::{Evidence, Flight, Place};
use ground::Grounds;
use price::Price;
use proof::Proof;

const NOTHING_TOLD: &str = "nothing proves the probes; name a directory on the journal's type of filesystem with \
                            --canary, and a file of its own there is synced";

/// Everything that the command found; the object that `--json` prints.
#[derive(Debug, Serialize)]
pub struct Report {
    pub verdict: Verdict,
    /// The verdict in words.
    pub sentence: String,
    pub kernel: Option<String>,
    pub btf: Option<PathBuf>,
    /// `None` if the kernel does not say.
    pub lockdown: Option<&'static str>,
    pub tracefs: Option<PathBuf>,
    pub capabilities: Vec<CapabilityRow>,
    pub missing: Vec<MissingRow>,
    /// Where the canary acted, or whom it listened to.
    pub canaries: Vec<CanaryRow>,
    /// Why it could not act somewhere, or nothing was told.
    pub canary_problems: Vec<String>,
    /// What `--syscall-tracepoints` costs, where it was asked for.
    pub syscall_tracepoints: Option<Price>,
    /// Empty if nothing could be attached.
    pub probes: Vec<ProbeRow>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Fine,
    /// Syncs are traced, and something optional is missing, or was not proven.
    Impaired,
    CannotTrace,
}

#[derive(Debug, Serialize)]
pub struct CapabilityRow {
    pub name: &'static str,
    pub state: Held,
    /// What is lost without it, if it is missing.
    pub lost: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Held {
    Present,
    Missing,
    /// It is not there, and nothing that this command looks at lacks it.
    Unneeded,
}

#[derive(Debug, Serialize)]
pub struct MissingRow {
    pub what: String,
    pub required: bool,
    #[serde(skip)]
    felt: Felt,
    pub reason: String,
    pub lost: String,
    pub advice: String,
}

#[derive(Debug, Serialize)]
pub struct CanaryRow {
    #[serde(flatten)]
    pub place: Place,
    #[serde(flatten)]
    pub evidence: Evidence,
}

#[derive(Debug, Serialize)]
pub struct ProbeRow {
    pub name: &'static str,
    pub attached: Kind,
    pub proof: ProofWord,
    /// By what it is proven, or why it is not, or why it is missing.
    pub why: String,
    /// What reports lack without it.
    pub lost: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Typed,
    Raw,
    Classic,
    Waiting,
    Missing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProofWord {
    Proven,
    Failed,
    Untried,
}

/// Examines the machine, prints what it found, and gives 0 if all is fine, 1 if something is missing or unproven, 2 if
/// nothing can be traced.
pub fn doctor(options: &cli::Doctor) -> anyhow::Result<ExitCode> {
    let roots = Roots::default();
    if let Some(directory) = &options.canary {
        ground::check(directory)?;
    }
    let host = Host::read(&roots);
    let mut report = Report::of(&host);
    match examine(&mut report, host, &roots, options) {
        Ok(()) => report.conclude(),
        Err(error) => report.give_up(&error),
    }
    let shown = if options.json { serde_json::to_string_pretty(&report)? } else { text::of(&report) };
    lines::print(&shown)?;
    match report.verdict {
        Verdict::Fine => Ok(ExitCode::SUCCESS),
        Verdict::Impaired => Ok(ExitCode::from(1)),
        Verdict::CannotTrace => Err(anyhow!("{}", report.sentence)),
    }
}

fn examine(report: &mut Report, host: Host, roots: &Roots, options: &cli::Doctor) -> anyhow::Result<()> {
    let kernel = Kernel::with_host(host, roots)?;
    report.add_kernel(&kernel);
    // Counting needs SYS_ADMIN; without it, proof rests on the events alone.
    let counting = probes::count_usage().ok();
    let mut probes = kernel.attach(&Choice::for_threshold(0))?;
    if options.syscall_tracepoints {
        report.syscall_tracepoints = Some(price::measure(&mut probes)?);
    }
    let grounds = Grounds::of(options.canary.as_deref(), probes.attached(), roots);
    let mut flights = Vec::new();
    for place in &grounds.places {
        match place.clone().fly(&mut probes, options.syscall_tracepoints, counting.is_some()) {
            Ok(flight) => flights.push(flight),
            Err(error) => report.canary_problems.push(format!("{error:#}")),
        }
    }
    report.canary_problems.extend(grounds.problems());
    if flights.is_empty() && options.canary.is_none() {
        flights = canary::listen(&mut probes, roots)?;
    }
    let row = |attached| ProbeRow::of(attached, &flights, &grounds.unmade);
    report.probes = probes.attached().iter().map(row).collect();
    report.canaries = flights.into_iter().map(|Flight { place, evidence }| CanaryRow { place, evidence }).collect();
    Ok(())
}

impl Report {
    fn of(host: &Host) -> Self {
        Self {
            verdict: Verdict::CannotTrace,
            sentence: String::new(),
            kernel: host.release.clone(),
            btf: host.btf.clone(),
            lockdown: host.lockdown.map(|mode| match mode {
                Lockdown::None => "none",
                Lockdown::Integrity => "integrity",
                Lockdown::Confidentiality => "confidentiality",
            }),
            tracefs: host.tracefs.clone(),
            capabilities: Capability::ALL.iter().map(|capability| CapabilityRow::of(*capability, host)).collect(),
            missing: host.shortfalls.iter().map(MissingRow::from).collect(),
            canaries: Vec::new(),
            canary_problems: Vec::new(),
            syscall_tracepoints: None,
            probes: Vec::new(),
        }
    }

    fn add_kernel(&mut self, kernel: &Kernel) {
        let may_see = kernel.host.may(Capability::Syslog);
        if let (Addresses::Hidden(hidden), true) = (kernel.symbols.addresses(), may_see) {
            self.add_missing("addresses of kernel functions", hidden.to_string(), "workers and stacks have no names");
        }
        for problem in &kernel.layout.changed {
            self.add_missing("a field of the kernel", problem.to_string(), "what a probe reads there");
        }
    }

    fn add_missing(&mut self, what: &str, reason: String, lost: &str) {
        let advice = "see the reason, or report it with the kernel's release".to_owned();
        let (what, lost) = (what.to_owned(), lost.to_owned());
        self.missing.push(MissingRow { what, required: false, felt: Felt::Reports, reason, lost, advice });
    }

    /// The verdict where the probes are attached.
    fn conclude(&mut self) {
        let used: Vec<&str> = self.canaries.iter().map(|canary| canary.place.filesystem.as_str()).collect();
        if !self.probes.iter().any(|row| row.is_missed(&used)) {
            self.missing.retain(|row| row.felt == Felt::Reports);
            let is_felt = |name: &str| self.missing.iter().any(|row| row.what.ends_with(name));
            for row in self.capabilities.iter_mut().filter(|row| row.state == Held::Missing && !is_felt(row.name)) {
                (row.state, row.lost) = (Held::Unneeded, None);
            }
        }
        let lacks = |row: &&ProbeRow| row.proof == ProofWord::Failed || row.is_missed(&used);
        let (missing, failed) = (self.missing.len(), self.probes.iter().filter(lacks).count());
        let silent = self.canaries.iter().filter(|canary| canary.evidence.told == 0).map(|canary| {
            let Place { directory, filesystem, .. } = &canary.place;
            format!("no sync in {} ({filesystem}) was told", directory.display())
        });
        self.canary_problems.extend(silent.collect::<Vec<_>>());
        let unproven = self.canaries.iter().all(|canary| canary.evidence.told == 0);
        if unproven {
            self.canary_problems.push(NOTHING_TOLD.to_owned());
        }
        self.verdict = if missing + failed == 0 && !unproven { Verdict::Fine } else { Verdict::Impaired };
        self.sentence = match self.verdict {
            Verdict::Fine => format!("syncs are traced; {}", self.counts()),
            _ if unproven => "the probes are attached, but there is no proof that they work".to_owned(),
            _ => format!("syncs are traced; missing: {missing}, probes that failed: {failed}; {}", self.counts()),
        };
    }

    /// How many probes are proven.
    fn counts(&self) -> String {
        let attached = || self.probes.iter().filter(|row| row.attached != Kind::Missing);
        let untried = attached().filter(|row| row.proof == ProofWord::Untried).count();
        let proven = attached().filter(|row| row.proof == ProofWord::Proven).count();
        match untried {
            0 => format!("each of {} probes is proven", attached().count()),
            _ => format!("{proven} of {} probes are proven, {untried} could not be tried", attached().count()),
        }
    }

    fn give_up(&mut self, error: &anyhow::Error) {
        self.verdict = Verdict::CannotTrace;
        self.sentence = format!("{error:#}");
    }
}

impl CapabilityRow {
    fn of(capability: Capability, host: &Host) -> Self {
        let name = capability.name();
        let what = format!("capability {name}");
        let shortfall = host.shortfalls.iter().find(|row| row.what == what);
        let held = host.capabilities.is_some_and(|held| held.has(capability));
        let (state, lost) = match shortfall {
            Some(row) => (Held::Missing, Some(row.lost)),
            None if held => (Held::Present, None),
            None => (Held::Unneeded, None),
        };
        Self { name, state, lost }
    }
}

impl From<&Shortfall> for MissingRow {
    fn from(row: &Shortfall) -> Self {
        let Shortfall { what, need, reason, lost, felt, advice } = row.clone();
        Self { what, required: need == Need::Required, felt, reason, lost: lost.to_owned(), advice }
    }
}

impl ProbeRow {
    fn of(attached: &Attached, flights: &[Flight], unmade: &[(&str, String)]) -> Self {
        let proof = || proof::judge(attached, flights, unmade);
        let (kind, proof) = match &attached.state {
            State::Typed => (Kind::Typed, proof()),
            State::Raw => (Kind::Raw, proof()),
            State::Classic => (Kind::Classic, proof()),
            State::Waiting => (Kind::Waiting, Proof::Untried("attached once a process uses Linux AIO".to_owned())),
            State::Missing(why) => (Kind::Missing, Proof::Untried(why.clone())),
        };
        let (proof, why) = match proof {
            Proof::Proven(how) => (ProofWord::Proven, how),
            Proof::Failed(why) => (ProofWord::Failed, why),
            Proof::Untried(why) => (ProofWord::Untried, why),
        };
        Self { name: attached.probe.name, attached: kind, proof, why, lost: attached.probe.lost }
    }

    /// Whether something is lost because it is missing. Nobody misses the probes of a filesystem that is not in use.
    fn is_missed(&self, used: &[&str]) -> bool {
        let of_filesystem = table::PROBES.iter().any(|probe| {
            let is_used = used.iter().any(|filesystem| probe.name.starts_with(filesystem));
            probe.name == self.name && probe.need == table::Need::Filesystem && !is_used
        });
        self.attached == Kind::Missing && !of_filesystem
    }
}
