//! What must be true of what a guest found.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::stacks;
use super::support::agent::field::{duration_ns, number, part_ns, parts, text};
use super::support::verdict::assert_whole;

/// Nobody misses the probes of one that is not in use.
const FILESYSTEMS: [&str; 3] = ["ext4_", "xfs_", "btrfs_"];

/// What a kernel gives to the agent.
pub struct Expected {
    /// Probes that are raw tracepoints; those that are not named have types.
    pub raw: &'static [&'static str],
    pub missing: &'static [&'static str],
    /// Whether a write to a file opened O_DSYNC can be told from a call of fdatasync.
    pub system_calls: bool,
}

impl Expected {
    /// Whether the syncs of a filesystem are seen.
    fn sees(&self, filesystem: &str) -> bool {
        !self.missing.iter().any(|probe| probe.starts_with(filesystem))
    }

    fn kind(&self, probe: &str) -> &'static str {
        match probe {
            probe if self.raw.contains(&probe) => "raw",
            probe if self.missing.contains(&probe) => "missing",
            _ => "typed",
        }
    }
}

/// `doctor` finds each probe attached as it must be, and proves what can be proven on either filesystem.
pub fn probes_are_attached(found: &Value, expected: &Expected) {
    for doctor in list(found, "doctors") {
        let report = &doctor["report"];
        for probe in list(report, "probes") {
            assert_eq!(text(probe, "/attached"), expected.kind(text(probe, "/name")), "{probe}");
            assert!(expected.kind(text(probe, "/name")) == "missing" || probe["proof"] != "failed", "{probe}");
        }
        if expected.sees(text(doctor, "/filesystem")) {
            let lacks = expected.missing.iter().any(|probe| !FILESYSTEMS.iter().any(|of| probe.starts_with(of)));
            assert_eq!(report["verdict"], if lacks { "impaired" } else { "fine" }, "{doctor}");
        }
    }
}

/// Each sync of each journal is told once, with its file, disk, result and a whole, and no other is.
pub fn every_sync_is_told(found: &Value, expected: &Expected) {
    assert_eq!(found["status"], 0, "{}", found["said"]);
    let mut all = 0;
    for way in list(found, "ways").iter().filter(|way| expected.sees(text(way, "/filesystem"))) {
        let (syncs, book) = (syncs_of(found, way), list(way, "book"));
        assert_eq!(syncs.len(), book.len(), "{}", text(way, "/thread"));
        for (sync, operation) in syncs.iter().zip(book) {
            check(sync, operation, way, expected);
        }
        all += book.len();
    }
    assert_eq!(list(found, "syncs").len(), all, "others were told");
}

fn check(sync: &Value, operation: &Value, way: &Value, expected: &Expected) {
    assert_whole(sync);
    let [start_ns, end_ns] = [number(operation, "/0"), number(operation, "/1")];
    assert_eq!(number(operation, "/2"), 0, "the workload itself failed");
    assert!(duration_ns(sync) <= end_ns - start_ns, "{sync} against {operation}");
    assert_eq!(number(sync, "/file/inode"), number(way, "/inode"), "{sync}");
    assert_eq!([&sync["device"]["major"], &sync["device"]["minor"]], [&way["dev"][0], &way["dev"][1]], "{sync}");
    assert_eq!([&sync["process"]["pid"], &sync["thread"]["tid"]], [&json!(1), &way["tid"]], "{sync}");
    assert_eq!(number(sync, "/lost_events"), 0, "{sync}");
    if way["filesystem"] == "xfs" {
        // Its event does not say whether only data must be durable, and it has none for the end: the return has the result.
        let word = text(way, "/operation").replace("o_dsync", "o_sync");
        let awake = parts(sync).iter().all(|(name, _)| *name == "on_cpu");
        let result = if sync["after_ns"].is_null() || awake { sync["result"].clone() } else { json!(0) };
        assert!(result.is_null() || result == 0, "{sync}");
        assert_eq!([&sync["operation"], &sync["result"]], [&json!(word), &result], "{sync}");
    } else {
        let own = text(way, "/operation");
        let word = if expected.system_calls { own } else { own.strip_prefix("o_dsync").map_or(own, |_| "fdatasync") };
        assert_eq!([&sync["operation"], &sync["result"]], [&json!(word), &json!(0)], "{sync}");
        assert_eq!(sync["file"]["path"], way["path"], "{sync}");
    }
}

/// A sync shows time of its own request or of the journal's with the device, unless it did not sleep for it.
pub fn most_syncs_have_their_request(found: &Value, expected: &Expected) {
    for way in list(found, "ways").iter().filter(|way| expected.sees(text(way, "/filesystem"))) {
        let syncs = syncs_of(found, way);
        let has_request = |sync: &&&Value| parts(sync).iter().any(|(name, _)| name.ends_with("device"));
        let linked = syncs.iter().filter(has_request).count();
        eprintln!("{}: {linked} of {} have a request", text(way, "/thread"), syncs.len());
        assert!(linked * 2 > syncs.len(), "{}: only {linked} of {}", text(way, "/thread"), syncs.len());
    }
}

/// Of the time in which the syncs of a filesystem waited for something else than a CPU of their own, little has no cause.
/// The threads of XFS's log are not followed.
pub fn little_is_unexplained(found: &Value) {
    let mut sums: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
    for way in list(found, "ways") {
        let [remainder, waited] = sums.entry(text(way, "/filesystem")).or_default();
        for (name, ns) in syncs_of(found, way).into_iter().flat_map(parts) {
            *remainder += if name == "remainder" { ns } else { 0 };
            *waited += if ["on_cpu", "preempted", "run_queue"].contains(&name) { 0 } else { ns };
        }
    }
    let share = |filesystem| {
        let [remainder, waited] = sums[filesystem];
        remainder as f64 / waited as f64
    };
    let (ext4, xfs) = (share("ext4"), share("xfs"));
    eprintln!("unexplained of the time waited: {:.2} % on ext4, {:.1} % on xfs", ext4 * 100.0, xfs * 100.0);
    assert!(ext4 < 0.05 && xfs < 0.3);
}

/// Each call of each door is told once and right, and its duration is the client's own.
pub fn every_door_is_counted(found: &Value) {
    let mut wrong = Vec::new();
    for on in list(found, "found") {
        let disk = text(on, "/disk");
        eprintln!("{disk}: {} of {} records, {} s", on["told"], on["owed"], on["seconds"]);
        wrong.extend(list(on, "wrong").iter().map(|sentence| format!("{disk}: {sentence}")));
        for row in list(on, "distances") {
            let line = format!("{disk} {:24} {}", text(row, "/cell"), text(row, "/distance"));
            eprintln!("{line}");
            if row["allowed"] != true {
                wrong.push(format!("durations lie too far apart: {line}"));
            }
        }
        wrong
            .extend(list(on, "said").iter().filter(|_| on["owed"] != on["told"]).map(|line| format!("{disk}: {line}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The time of a device that has no requests of its own is that of the disk below, and its own delay.
pub fn stacks_are_opened(found: &Value) {
    for stack in list(found, "stacks") {
        let name = format!("{} on {}", text(stack, "/target"), text(stack, "/disk"));
        let of = |thread: &str| -> Vec<&Value> {
            let own = |sync: &&Value| sync["thread"]["name"] == thread && sync["open"] == Value::Bool(false);
            list(stack, "syncs").iter().filter(own).collect()
        };
        let syncs = of("journal");
        let sum = |names: &[&str]| -> u64 {
            syncs.iter().copied().flat_map(parts).filter(|(part, _)| names.contains(part)).map(|(_, ns)| ns).sum()
        };
        let whole: u64 = syncs.iter().copied().map(duration_ns).sum();
        let [unexplained, upper] = [sum(&["remainder"]), sum(&["device"])].map(|ns| ns as f64 / whole as f64);
        let below = sum(&["lower_device", "journal_lower_device"]) as f64 / whole as f64;
        eprintln!("{name}: {upper:.3} with the mapper, {below:.3} with the disk below, {unexplained:.3} unexplained");
        assert_eq!(syncs.len(), list(stack, "book").len(), "{name}");
        assert!(unexplained < 0.2, "{name}");
        if stack["target"] == "delay" {
            let held = |sync: &&&Value| part_ns(sync, "device") >= stacks::DELAY_MS * 1_000_000;
            let held = syncs.iter().filter(held).count();
            assert!(held * 4 > syncs.len() * 3, "{name}: the delay is seen in {held} syncs only");
        } else {
            assert!(below > 0.1, "{name}");
        }
        // A journal that was aborted makes its filesystem read-only, before the sync or in it.
        let word = match number(&stack["failed"][0], "/2") as i32 {
            libc::EIO => "EIO",
            libc::EROFS => "EROFS",
            error => panic!("{name}: the journal ended with {error}"),
        };
        let told = of("failing").into_iter().all(|sync| sync["result"] == word);
        assert!(told, "{name}: {:?} for {word}", of("failing"));
    }
}

/// Requests, bytes and flushes are those that the kernel counts, and none is left in flight.
pub fn every_request_is_counted_once(found: &Value) {
    // Columns of the disk's `stat`, as the kernel documents them.
    let [writes, merges, sectors, flushes] =
        [4, 5, 6, 15].map(|column| number(&found["after"][column], "") - number(&found["before"][column], ""));
    let pictures = list(found, "pictures");
    let sum = |kind: &str, what: &str| -> u64 {
        let rows = pictures.iter().flat_map(|picture| list(picture, "requests"));
        rows.filter(|row| row["kind"] == kind).map(|row| number(row, what)).sum()
    };
    eprintln!("{writes} writes, {merges} merges, {flushes} flushes");
    assert!(merges > writes, "nothing was merged: {found}");
    assert_eq!([sum("write", "/count"), sum("write", "/bytes")], [writes, sectors * 512], "{pictures:#?}");
    assert!(sum("flush", "/count") >= flushes, "{pictures:#?}");
    let last = pictures.last().expect("there is a picture");
    assert_eq!([&last["in_flight"], &last["lost"]], [&json!(0), &json!(0)], "{last}");
}

/// The manifest's capabilities give all, the two that are needed give every sync, and none give one sentence.
pub fn privileges_suffice(found: &Value) {
    let report = |of: &str| &found[of]["report"];
    assert_eq!(report("manifest")["verdict"], "fine", "{}", found["manifest"]);
    let [made, exact] = ["made", "exact"].map(|what| number(report("needed"), &format!("/canaries/0/{what}")));
    assert_eq!(report("needed")["verdict"], "impaired", "{}", found["needed"]);
    assert!(made > 0 && made == exact, "{}", found["needed"]);
    // Without SYSLOG no worker is known by its function, so that one of AIO is not.
    let failed = list(report("needed"), "probes").iter().filter(|probe| probe["proof"] == "failed");
    let failed: Vec<&str> = failed.map(|probe| text(probe, "/name")).collect();
    assert_eq!(failed, ["workqueue_queue_work"], "{}", found["needed"]);
    assert_eq!(report("none")["verdict"], "cannot_trace", "{}", found["none"]);
    assert_eq!(text(&found["none"], "/said").trim().lines().count(), 1, "{}", found["none"]);
}

/// Where maps count as locked memory, they do not fit into the usual limit without the capability to raise it.
pub fn maps_need_locked_memory(found: &Value) {
    let report = |of: &str| &found[of]["report"];
    assert_eq!(report("manifest")["verdict"], "cannot_trace", "{}", found["manifest"]);
    let lacks = |row: &Value| row["what"] == "capability SYS_RESOURCE";
    assert!(list(report("manifest"), "missing").iter().any(lacks), "{}", found["manifest"]);
    let with = "manifest and SYS_RESOURCE";
    // Nobody knows there for whom a worker works, so two probes are missing.
    assert_eq!(report(with)["verdict"], "impaired", "{}", found[with]);
    assert_eq!(report(with)["canaries"][0]["told"], report(with)["canaries"][0]["made"], "{}", found[with]);
}

fn syncs_of<'a>(found: &'a Value, way: &Value) -> Vec<&'a Value> {
    let own = |sync: &&Value| sync["thread"]["name"] == way["thread"] && sync["open"] == Value::Bool(false);
    list(found, "syncs").iter().filter(own).collect()
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().unwrap_or_else(|| panic!("{name} is no list in {value}"))
}
