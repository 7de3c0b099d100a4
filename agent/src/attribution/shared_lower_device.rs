//! The sync's disk stands on another one that others kept busy, though its own queue was not crowded.
//!
//! Required: a stacked disk, and on the one below most of the traffic during the waits was another's. Excluded by its
//! place in the table: a crowd on the sync's own disk, and time for which kernel threads of the stack had no CPU, which
//! is no longer device time here. Never certain.

use super::case::{Case, INSIDE};
use super::cause::{Confidence, Finding};
use super::neighbours;

pub fn consider(case: &Case) -> Option<Finding> {
    let crowds = case.sync.lower.iter().map(|disk| (disk, neighbours::on_disk(case, disk.dev)));
    let (disk, crowd) = crowds.filter(|(_, crowd)| crowd.crowd()).max_by_key(|(_, crowd)| crowd.foreign_bytes)?;
    Some(Finding {
        explained_ns: case.ns(&INSIDE),
        confidence: Confidence::Likely,
        evidence: vec![format!("{} stands on {}", case.sync.disk.name, disk.name), crowd.sentence(&disk.name)],
        culprit: crowd.culprit,
        row: case.largest(&INSIDE),
    })
}
