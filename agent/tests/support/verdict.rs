//! What every test demands of a sync that the agent tells: rows that make up the whole, and nobody blamed without proof.

use serde_json::Value;

use super::agent::field;

/// The parts of a sync make up the whole, to the nanosecond.
pub fn is_whole(sync: &Value) -> bool {
    let sum: u64 = field::parts(sync).iter().map(|(_, ns)| ns).sum();
    sum == field::duration_ns(sync)
}

pub fn assert_whole(sync: &Value) {
    assert!(is_whole(sync), "{sync}");
}

/// The parts of a sync in which somebody was ready to run and had no CPU: the thread, a worker, the journal's thread.
pub fn waited_for_cpu_ns(sync: &Value) -> u64 {
    let parts = field::parts(sync).into_iter();
    parts.filter(|(name, _)| name.ends_with("run_queue") || name.ends_with("preempted")).map(|(_, ns)| ns).sum()
}

/// True where a cause is named, as certain or as likely, that a fault of the test's own did not bring about.
///
/// Others on this machine may take the CPU away at any time, and to say so is right, but only where the sync's own rows
/// prove it: half of it and more was waiting for a CPU.
pub fn is_blamed(sync: &Value) -> bool {
    let of_cpu = ["thread_not_scheduled", "helper_not_scheduled"].contains(&field::text(sync, "/cause"));
    let proven = of_cpu && waited_for_cpu_ns(sync) * 2 >= field::duration_ns(sync);
    field::text(sync, "/confidence") != "unknown" && !proven
}

/// Nobody and nothing is blamed for any of these syncs: no fault was made.
pub fn assert_nobody_blamed<'a>(syncs: impl IntoIterator<Item = &'a Value>) {
    let blamed: Vec<String> = syncs.into_iter().filter(|sync| is_blamed(sync)).map(Value::to_string).collect();
    assert!(blamed.is_empty(), "{} blamed without a reason: {blamed:#?}", blamed.len());
}
