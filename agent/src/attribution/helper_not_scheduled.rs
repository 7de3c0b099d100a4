//! A kernel thread that the sync waited for was runnable, but did not run: the journal thread, or a worker.
//!
//! Required: run-queue time on the helper's own clock, of a worker before it gave a request or a flush to the driver, or
//! of a stacked disk's worker inside the request that it served, more than the thread's own; that counts with it, since
//! it is the same shortage. Excluded: delays of kernel threads that neither woke the sync nor served, or gave to the
//! driver, a request that it waited for.

use super::case::{Case, HELPER_CPU, OWN_CPU, ms};
use super::cause::{Confidence, Finding};
use crate::event::Wait;

pub fn consider(case: &Case) -> Option<Finding> {
    let (own, helpers) = (case.ns(&OWN_CPU), case.ns(&HELPER_CPU));
    if helpers == 0 || helpers <= own {
        return None;
    }
    let issued = |wait: &Wait| wait.request.as_ref().map_or(0, |request| request.issued_tid);
    let helped = |tid: u32| {
        case.waits().any(|wait| wait.waker_tid == tid || wait.flush_tids.contains(&tid) || issued(wait) == tid)
    };
    let workers =
        case.sync.worker_delays.iter().filter(|delay| case.sync.servants.contains(&delay.tid) || helped(delay.tid));
    let occupant = case.occupant(&HELPER_CPU, case.sync.journal_delays.iter().chain(workers));
    let alone = helpers.saturating_mul(2) >= case.sync.duration_ns();
    let confidence = occupant.as_ref().filter(|_| alone).map_or(Confidence::Likely, |occupant| occupant.confidence());
    let ready = |who: &str, ns: u64| {
        (ns.saturating_mul(20) >= helpers)
            .then(|| format!("{who} was ready to run for {} and did not get a CPU", ms(ns)))
    };
    let mut evidence: Vec<String> = Vec::new();
    evidence.extend(ready("the journal thread", case.ns(&HELPER_CPU[..2])));
    evidence.extend(ready("a kernel worker", case.ns(&HELPER_CPU[2..])));
    evidence.extend(ready("the thread itself", own));
    evidence.extend(occupant.as_ref().and_then(|occupant| occupant.evidence()));
    Some(Finding {
        explained_ns: own + helpers,
        confidence,
        culprit: occupant.and_then(|occupant| occupant.culprit()),
        evidence,
        row: case.largest(&HELPER_CPU),
    })
}
