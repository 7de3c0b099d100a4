//! The syncing thread was runnable, but did not run.
//!
//! Required: its own run-queue time, more than its helpers'; theirs counts with it, since it is the same shortage. The
//! culprit is the process that ran for most of that time on the CPU that it waited for.

use super::case::{Case, HELPER_CPU, OWN_CPU, ms};
use super::cause::{Confidence, Finding};

pub fn consider(case: &Case) -> Option<Finding> {
    let (own, helpers) = (case.ns(&OWN_CPU), case.ns(&HELPER_CPU));
    if own == 0 || own < helpers {
        return None;
    }
    let occupant = case.occupant(&OWN_CPU, case.sync.delays.iter());
    let alone = own.saturating_mul(2) >= case.sync.duration_ns();
    let confidence = occupant.as_ref().filter(|_| alone).map_or(Confidence::Likely, |occupant| occupant.confidence());
    let mut evidence = vec![format!("the thread was ready to run for {} and did not get a CPU", ms(own))];
    evidence.extend(occupant.as_ref().and_then(|occupant| occupant.evidence()));
    Some(Finding {
        explained_ns: own + helpers,
        confidence,
        evidence,
        culprit: occupant.and_then(|occupant| occupant.culprit()),
        row: case.largest(&OWN_CPU),
    })
}
