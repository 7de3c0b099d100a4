//! The recordings hold the classifier: where one line of it is broken, a golden turns red. One line of each of its files.

use std::process::Output;

#[path = "copies/mod.rs"]
mod copies;

use copies::Copy;

/// What the goldens are read and judged by.
const GOLDENS: [&str; 4] = ["agent/tests/golden", "agent/tests/golden.rs", "agent/examples", "docs/json.md"];

/// A file of the classifier, what stands in it once, and what breaks it.
const MUTANTS: &[(&str, &str, &str)] = &[
    (".rs", "finding.explained_ns.saturating_mul(2) >= whole", "finding.explained_ns >= whole"),
    ("/breakdown.rs", "breakdown.add(&journal, &journal_below, 1)", "breakdown.add(&journal, &journal_below, 0)"),
    ("/case.rs", "(self.ran_ns.saturating_mul(2) >= self.delayed_ns)", "(self.ran_ns >= self.delayed_ns * 2)"),
    ("/cause.rs", "rows.iter().max_by_key(|row| row.ns)", "rows.iter().min_by_key(|row| row.ns)"),
    ("/device_slow.rs", "const SLOWER: u64 = 4;", "const SLOWER: u64 = 1;"),
    ("/flusher_writeback.rs", "reason.is_some() && by_writer.is_none()", "reason.is_none() && by_writer.is_none()"),
    ("/helper_not_scheduled.rs", "if helpers == 0 || helpers <= own", "if helpers == 0 || helpers > own"),
    ("/intervals.rs", "last.1 = last.1.max(until)", "last.1 = until"),
    ("/journal_commit.rs", "const LARGE_BLOCKS: u32 = 64;", "const LARGE_BLOCKS: u32 = 63;"),
    ("/neighbours.rs", "let own = request.inode == event.inode &&", "let own = request.inode != event.inode &&"),
    ("/queue_behind.rs", "let certain = in_line && !starved", "let certain = in_line && starved"),
    ("/shared_lower_device.rs", ".filter(|(_, crowd)| crowd.crowd())", ".filter(|(_, crowd)| !crowd.crowd())"),
    ("/stack.rs", "functions.iter().skip(2)", "functions.iter().skip(1)"),
    ("/stacked.rs", "below[row] += take(length(&with_it), part);", "below[row] += take(0, part);"),
    ("/thread_not_scheduled.rs", "own == 0 || own < helpers", "own == 0 || own > helpers"),
    ("/throttled.rs", "request.submitter == Source::Throttle", "request.submitter != Source::Throttle"),
];

fn goldens(copy: &Copy) -> Output {
    copy.cargo(&["test", "--test", "golden", "every_recording_is_explained_as_it_was"]).output().expect("start cargo")
}

#[test]
fn one_broken_line_of_the_classifier_turns_a_golden_red() {
    let copy = Copy::with(&GOLDENS);
    let whole = goldens(&copy);
    assert!(whole.status.success(), "{}", String::from_utf8_lossy(&whole.stdout));
    let mut survivors = Vec::new();
    for (file, from, to) in MUTANTS {
        let source = format!("agent/src/attribution{file}");
        copy.change(&source, from, to);
        let output = goldens(&copy);
        copy.change(&source, to, from);
        let said = String::from_utf8_lossy(&output.stdout);
        let red = said.contains("test result: FAILED");
        assert!(red || output.status.success(), "{source} is no program: {}", String::from_utf8_lossy(&output.stderr));
        if !red {
            survivors.push(format!("{source}: {to}"));
        }
    }
    assert!(survivors.is_empty(), "no golden sees {survivors:#?}");
}
