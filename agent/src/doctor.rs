//! The command `doctor`: what works on this machine, what does not, and what is lost.
//!
//! It traces its own canary and nothing else. It must not sync any file but that one: a sync on a watched journal is
//! felt by those who wait for it.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::anyhow;
use serde::Serialize;

use crate::cli;
use crate::kernel::capability::Capability;
use crate::kernel::host::{Host, Lockdown, Roots};
use crate::kernel::shortfall::{Felt, Need, Shortfall};
use crate::kernel::symbols::Addresses;
use crate::probes::table::{self, Attached, State};
use crate::probes::{self, Choice, Probes};
use crate::start::Kernel;

mod canary;
mod price;
mod proof;
mod text;

use canary::{Evidence, Journal, Place};
use price::Price;
use proof::Proof;

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
    pub canary: Option<CanaryRow>,
    /// Why there was no canary, or no proof by it.
    pub canary_problem: Option<String>,
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
    pub directory: PathBuf,
    pub filesystem: String,
    pub journal: Journal,
    pub disk: Option<String>,
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
    let place = match &options.canary {
        // A directory that was asked for must do; the usual one need not.
        Some(directory) => Ok(Place::make(directory, &roots)?),
        None => Place::make(&std::env::temp_dir(), &roots),
    };
    let host = Host::read(&roots);
    let mut report = Report::of(&host);
    match examine(&mut report, host, &roots, place, options.syscall_tracepoints) {
        Ok(()) => report.conclude(),
        Err(error) => report.give_up(&error),
    }
    let shown = if options.json { serde_json::to_string_pretty(&report)? } else { text::of(&report) };
    text::print(&shown)?;
    match report.verdict {
        Verdict::Fine => Ok(ExitCode::SUCCESS),
        Verdict::Impaired => Ok(ExitCode::from(1)),
        Verdict::CannotTrace => Err(anyhow!("{}", report.sentence)),
    }
}

fn examine(
    report: &mut Report,
    host: Host,
    roots: &Roots,
    place: anyhow::Result<Place>,
    price: bool,
) -> anyhow::Result<()> {
    let kernel = Kernel::with_host(host, roots)?;
    report.add_kernel(&kernel);
    // Counting needs SYS_ADMIN; without it, proof rests on the events alone.
    let counting = probes::count_usage().ok();
    let mut probes = kernel.attach(&Choice::for_threshold(0))?;
    let flown = place.and_then(|place| {
        let mut evidence = place.fly(&mut probes)?;
        evidence.runs = counting.as_ref().map(|_| runs(&probes));
        Ok((place, evidence))
    });
    let flown = match flown {
        Ok(flown) => Some(flown),
        Err(error) => {
            report.canary_problem = Some(format!("{error:#}"));
            None
        }
    };
    if price {
        report.syscall_tracepoints = Some(price::measure(&mut probes)?);
    }
    report.probes = probes.attached().iter().map(|attached| ProbeRow::of(attached, flown.as_ref())).collect();
    report.canary = flown.map(|(place, evidence)| CanaryRow::of(place, evidence));
    Ok(())
}

fn runs(probes: &Probes) -> std::collections::HashMap<String, u64> {
    probes.usage().into_iter().map(|usage| (usage.name, usage.runs)).collect()
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
            canary: None,
            canary_problem: None,
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
        let filesystem = self.canary.as_ref().map_or("", |canary| canary.filesystem.as_str());
        if !self.probes.iter().any(|row| row.is_missed(filesystem)) {
            self.missing.retain(|row| row.felt == Felt::Reports);
            let is_felt = |name: &str| self.missing.iter().any(|row| row.what.ends_with(name));
            for row in self.capabilities.iter_mut().filter(|row| row.state == Held::Missing && !is_felt(row.name)) {
                (row.state, row.lost) = (Held::Unneeded, None);
            }
        }
        let lacks = |row: &&ProbeRow| row.proof == ProofWord::Failed || row.is_missed(filesystem);
        let (missing, probes) = (self.missing.len(), self.probes.iter().filter(lacks).count());
        if let Some(canary) = self.canary.as_ref().filter(|canary| canary.evidence.told == 0) {
            let CanaryRow { directory, filesystem, .. } = canary;
            self.canary_problem = Some(format!(
                "no sync in {} ({filesystem}) was told; name a directory on the journal's type of filesystem with \
                 --canary",
                directory.display()
            ));
        }
        let unproven = self.canary_problem.is_some();
        self.verdict = if missing + probes == 0 && !unproven { Verdict::Fine } else { Verdict::Impaired };
        self.sentence = match self.verdict {
            Verdict::Fine => "syncs are traced, and every probe that could be proven here is".to_owned(),
            _ if unproven => "the probes are attached, but there is no proof that they work".to_owned(),
            _ => format!("syncs are traced; missing: {missing}, probes that failed: {probes}"),
        };
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

impl CanaryRow {
    fn of(place: Place, evidence: Evidence) -> Self {
        let Place { directory, filesystem, journal, disk, .. } = place;
        Self { directory, filesystem, journal, disk, evidence }
    }
}

impl ProbeRow {
    fn of(attached: &Attached, flown: Option<&(Place, Evidence)>) -> Self {
        let proof = || match flown {
            Some((place, evidence)) => proof::judge(attached, place, evidence),
            None => Proof::Untried("there was no canary".to_owned()),
        };
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
    fn is_missed(&self, filesystem: &str) -> bool {
        let of_filesystem = table::PROBES.iter().any(|probe| {
            probe.name == self.name && probe.need == table::Need::Filesystem && !probe.name.starts_with(filesystem)
        });
        self.attached == Kind::Missing && !of_filesystem
    }
}
