//! From evidence to words: whether a probe is proven, and if not, whether that is a fault.

use super::canary::{Evidence, Flight, Ground, Journal, Place};
use crate::probes::shown::{Act, Shown};
use crate::probes::table::Attached;

const SILENT: &str = "no sync of the canary was told, so nothing else can be";

/// What is known of an attached probe, the weakest first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Proof {
    /// Nobody did what the probe waits for.
    Untried(String),
    /// By what.
    Proven(String),
    /// The canary did what the probe waits for, and nothing of it was seen.
    Failed(String),
}

/// Judges one attached probe by all flights: one failure is a fault, wherever the probe was seen at work.
pub fn judge(attached: &Attached, flights: &[Flight], unmade: &[(&str, String)]) -> Proof {
    let shown = attached.probe.shown_by();
    let by_flight = flights.iter().map(|flight| judge_by(attached, shown, flight));
    let known = by_flight.reduce(|one, other| if other.rank() > one.rank() { other } else { one });
    let missing = shown.filesystem().and_then(|wanted| unmade.iter().find(|(filesystem, _)| *filesystem == wanted));
    match (known, missing) {
        (Some(known @ (Proof::Proven(_) | Proof::Failed(_))), _) => known,
        (_, Some((filesystem, _))) => Proof::Untried(format!("there is no canary on {filesystem}")),
        (Some(untried), None) => untried,
        (None, None) => Proof::Untried("nobody synced anything".into()),
    }
}

impl Proof {
    fn rank(&self) -> u8 {
        match self {
            Self::Untried(_) => 0,
            Self::Proven(_) => 1,
            Self::Failed(_) => 2,
        }
    }
}

fn judge_by(attached: &Attached, shown: Shown, flight: &Flight) -> Proof {
    let Flight { place, evidence } = flight;
    if let Some(wanted) = shown.filesystem().filter(|wanted| *wanted != place.filesystem) {
        return Proof::Untried(format!("needs syncs on {wanted}"));
    }
    if evidence.of_another_tid > 0 && matches!(shown, Shown::Sync(_) | Shown::SyncStart(_)) {
        return Proof::Failed("its syncs were told under another thread's number".into());
    }
    let whose = if place.ground == Ground::Others { " of others" } else { "" };
    // The other probe of the same sync may have been seen where this one was not.
    let short = matches!(shown, Shown::Sync(_)) && evidence.exact > 0 && evidence.exact < evidence.made;
    match found(shown, place, evidence).or_else(|| by_runs(attached, shown, evidence)) {
        Some(how) if short => Proof::Failed(format!("only {how}")),
        Some(how) => Proof::Proven(format!("{how}{whose}")),
        None if place.ground == Ground::Others => Proof::Untried("the syncs of others did not show it".into()),
        None => lack(shown, place, evidence),
    }
}

/// What was told that only this probe can have seen.
fn found(shown: Shown, place: &Place, evidence: &Evidence) -> Option<String> {
    let Evidence { made, told, returned, slept, woken, thread_exits, commits, transfers, submitted, exact, .. } =
        evidence;
    let by = |count: u64, what: &str| (count > 0).then(|| format!("{count} {what}"));
    match shown {
        Shown::ThreadExit => by((*thread_exits).into(), "end of a thread told"),
        Shown::Sleep => by((*slept).into(), "syncs with time off the CPU"),
        Shown::WakeUp => by((*woken).into(), "syncs with a wake-up"),
        Shown::Transfer => by(*transfers, "writes timed"),
        Shown::Submitter => by(*submitted, "writes with their submitter"),
        Shown::Commit if place.journal == Journal::Present => by((*commits).into(), "commits told with all phases"),
        Shown::Return => by((*returned).into(), "returns to user mode dated"),
        Shown::Sync(_) => (*exact > 0).then(|| format!("{exact} of {made} syncs told")),
        Shown::SyncStart(_) => (told > exact).then(|| format!("{told} of {made} syncs told")),
        Shown::Act(act, _) => {
            evidence.acts.get(&act).filter(|outcome| outcome.told > 0).map(|_| format!("{} told", act.words()))
        }
        Shown::Commit | Shown::RunsIn(_) => None,
    }
}

/// Runs by whatever task prove a probe only where no sync of the canary could tell more.
fn by_runs(attached: &Attached, shown: Shown, evidence: &Evidence) -> Option<String> {
    let during = |acts: &[Act]| {
        let of_act = |act: &Act| evidence.acts.get(act)?.runs.as_ref();
        let of_probe = |name: &&str| acts.iter().filter_map(of_act).filter_map(|runs| runs.get(*name)).sum::<u64>();
        [attached.probe.name, attached.probe.raw].iter().map(of_probe).sum::<u64>()
    };
    let all: Vec<Act> = evidence.acts.keys().copied().collect();
    let (runs, when) = match shown {
        Shown::RunsIn(act) => (during(&[act]), format!("during {}", act.words())),
        Shown::Sync(_) | Shown::SyncStart(_) | Shown::ThreadExit | Shown::Act(..) => return None,
        Shown::Sleep | Shown::WakeUp | Shown::Return if evidence.told > 0 => return None,
        // A commit on a fast disk is too short to be told; a disk may not be found.
        _ => (during(&all), "by whatever task".to_owned()),
    };
    (runs > 0).then(|| format!("runs {when}: {runs}"))
}

fn lack(shown: Shown, place: &Place, evidence: &Evidence) -> Proof {
    match shown {
        Shown::RunsIn(act) => lack_of(act, true, evidence),
        Shown::Act(act, _) if evidence.told > 0 => lack_of(act, false, evidence),
        Shown::Sync(_) | Shown::SyncStart(_) => Proof::Failed(format!("0 of {} syncs told", evidence.made)),
        Shown::Commit if place.journal == Journal::Absent => {
            Proof::Untried(format!("this {} has no such journal", place.filesystem))
        }
        _ if evidence.told == 0 => Proof::Untried(SILENT.into()),
        Shown::WakeUp | Shown::Return if evidence.slept == 0 => Proof::Untried("no sync of the canary slept".into()),
        Shown::Commit => Proof::Failed("the journal's commit was not told".into()),
        Shown::ThreadExit => Proof::Failed("the end of the canary's thread was not told".into()),
        Shown::Sleep => Proof::Failed("no sync of the canary has time off the CPU".into()),
        Shown::WakeUp => Proof::Failed("no sync of the canary has a wake-up".into()),
        Shown::Transfer => Proof::Failed("no write of the canary was timed".into()),
        Shown::Submitter => Proof::Failed("no write of the canary has a submitter".into()),
        Shown::Return => Proof::Failed("no return to user mode was dated; the C library may not use rseq".into()),
        Shown::Act(..) => Proof::Untried(SILENT.into()),
    }
}

fn lack_of(act: Act, counted: bool, evidence: &Evidence) -> Proof {
    let what = act.words();
    match evidence.acts.get(&act) {
        None => Proof::Untried(format!("{what}: only done on a scratch disk")),
        Some(outcome) => match &outcome.problem {
            Some(problem) => Proof::Untried(format!("{what}: {problem}")),
            None if counted && outcome.runs.is_none() => {
                Proof::Untried("the kernel's count of runs, which would show it, needs SYS_ADMIN".into())
            }
            None => Proof::Failed(format!("{what} was done and not seen")),
        },
    }
}
