//! `watch --worst`: the slowest syncs of a while, and no others.

mod support;

use serde_json::Value;

use support::Machine;
use support::agent::{Agent, field};
use support::journal::{Operation, Workload};
use support::scratch::{Format, LoopFs, Scratch};
use support::verdict::assert_whole;

/// A client's own time of a sync is longer by what it waits for a CPU after it, so its order may differ by a few.
const OUT_OF_ORDER: usize = 20;

#[test]
fn the_slowest_syncs_are_shown_at_the_end() {
    const SHOWN: usize = 5;
    skip_if!(Format::Ext4.missing());
    let _machine = Machine::lock();
    let scratch = Scratch::new("worst");
    let disk = LoopFs::new(&scratch, "disk", Format::Ext4, 64);
    let agent = Agent::watch(&["--worst", &SHOWN.to_string(), "--file", "*/1.txn"]);
    let mut workload = Workload::new("ForceWriteThread", disk.join("1.txn"));
    workload.count = Some(997);
    let mut own: Vec<u64> = workload.spawn().wait().iter().map(Operation::duration_ns).collect();
    assert_eq!(agent.printed(), 0, "nothing before the end");
    let ended = agent.interrupt();
    ended.syncs.iter().for_each(assert_whole);
    let shown: Vec<u64> = ended.syncs.iter().map(field::duration_ns).collect();
    own.sort_unstable_by(|one, other| other.cmp(one));
    assert_eq!(shown.len(), SHOWN);
    assert!(shown.is_sorted_by(|one, next| one >= next), "the slowest first: {shown:?}");
    for (place, shown_ns) in shown.iter().enumerate() {
        let (most, least) = (own[place], own[place + OUT_OF_ORDER]);
        assert!((least..=most).contains(shown_ns), "{shown:?} of {:?}", &own[..SHOWN + OUT_OF_ORDER]);
    }
    let names = |sync: &Value| field::text(sync, "/thread/name") == "ForceWriteThrea";
    assert!(ended.syncs.iter().all(names) && ended.said.iter().any(|said| said.contains("997 syncs seen, 5 shown")));
}
