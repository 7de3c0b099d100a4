//! From evidence to words: whether a probe is proven, and if not, whether that is a fault.

use super::canary::{Evidence, Journal, Place};
use crate::probes::table::{Attached, Shown};

/// What is known of an attached probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// By what.
    Proven(String),
    /// The canary did what the probe waits for, and nothing of it was seen.
    Failed(String),
    /// The canary did not do it.
    Untried(String),
}

/// Judges one attached probe.
pub fn judge(attached: &Attached, place: &Place, evidence: &Evidence) -> Proof {
    let Evidence { made, told, returned, slept, woken, thread_exits, commits, transfers, submitted, .. } = evidence;
    let by = |count: u64, what: &str| match count {
        0 => None,
        count => Some(format!("{count} {what}")),
    };
    let shown = attached.probe.shown_by();
    let found = match shown {
        Shown::ThreadExit => by((*thread_exits).into(), "end of a thread told"),
        Shown::Sleep => by((*slept).into(), "syncs with time off the CPU"),
        Shown::WakeUp => by((*woken).into(), "syncs with a wake-up"),
        Shown::Transfer => by(*transfers, "writes timed"),
        Shown::Submitter => by(*submitted, "writes with their submitter"),
        Shown::Commit if place.journal == Journal::Present => by((*commits).into(), "commits told with all phases"),
        Shown::Return => by((*returned).into(), "returns to user mode dated"),
        Shown::Sync(_) => (evidence.exact > 0).then(|| format!("{} of {made} syncs told", evidence.exact)),
        Shown::SyncStart(_) => (*told > evidence.exact).then(|| format!("{told} of {made} syncs told")),
        Shown::Commit | Shown::Elsewhere => None,
    };
    if evidence.of_another_tid > 0 && matches!(shown, Shown::Sync(_) | Shown::SyncStart(_)) {
        return Proof::Failed("its syncs were told under another thread's number".into());
    }
    // The other probe of the same sync may have been seen where this one was not.
    let short = matches!(shown, Shown::Sync(_)) && evidence.exact > 0 && evidence.exact < *made;
    match found.or_else(|| by_runs(attached, evidence)) {
        Some(how) if short => Proof::Failed(format!("only {how}")),
        Some(how) => Proof::Proven(how),
        None => lack(shown, place, evidence),
    }
}

/// Runs by whatever task prove a probe only where no sync of the canary could tell more.
fn by_runs(attached: &Attached, evidence: &Evidence) -> Option<String> {
    let enough = match attached.probe.shown_by() {
        Shown::Sync(_) | Shown::SyncStart(_) | Shown::ThreadExit => false,
        Shown::Sleep | Shown::WakeUp | Shown::Return => evidence.told == 0,
        // A commit on a fast disk is too short to be told; a disk may not be found.
        Shown::Commit | Shown::Transfer | Shown::Submitter | Shown::Elsewhere => true,
    };
    let runs = evidence.runs.as_ref()?;
    let probe = attached.probe;
    let ran = [probe.name, probe.raw].iter().filter_map(|name| runs.get(*name)).sum::<u64>();
    (enough && ran > 0).then(|| format!("{ran} runs, by whatever task"))
}

fn lack(shown: Shown, place: &Place, evidence: &Evidence) -> Proof {
    let filesystem = place.filesystem.as_str();
    let nothing_told = evidence.told == 0;
    match shown {
        Shown::Sync(wanted) | Shown::SyncStart(wanted) if wanted != filesystem => {
            Proof::Untried(format!("the canary is on {filesystem}"))
        }
        Shown::Sync(_) | Shown::SyncStart(_) => Proof::Failed(format!("0 of {} syncs told", evidence.made)),
        Shown::Commit if place.journal == Journal::Absent => {
            Proof::Untried(format!("this {filesystem} has no such journal"))
        }
        Shown::Elsewhere => Proof::Untried("nothing of its kind happened meanwhile".into()),
        _ if nothing_told => Proof::Untried("no sync of the canary was told, so nothing else can be".into()),
        Shown::WakeUp | Shown::Return if evidence.slept == 0 => Proof::Untried("no sync of the canary slept".into()),
        Shown::Commit => Proof::Failed("the journal's commit was not told".into()),
        Shown::ThreadExit => Proof::Failed("the end of the canary's thread was not told".into()),
        Shown::Sleep => Proof::Failed("no sync of the canary has time off the CPU".into()),
        Shown::WakeUp => Proof::Failed("no sync of the canary has a wake-up".into()),
        Shown::Transfer => Proof::Failed("no write of the canary was timed".into()),
        Shown::Submitter => Proof::Failed("no write of the canary has a submitter".into()),
        Shown::Return => Proof::Failed("no return to user mode was dated; the C library may not use rseq".into()),
    }
}
