//! The room of names against trees of files that stand for `/proc` and `/sys`, and against this machine's own.

#[path = "names/files.rs"]
mod files;
#[path = "names/machine.rs"]
mod machine;
#[path = "names/places.rs"]
mod places;
#[path = "names/told.rs"]
mod told;
#[path = "facts/tree.rs"]
mod tree;

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use fsyncscope::event::Event;
use fsyncscope::kernel::dev::Dev;
use fsyncscope::kernel::host::Roots;
use fsyncscope::names::Names;

use tree::Tree;

const SECOND: u64 = 1_000_000_000;

fn roots(tree: &Tree) -> Roots {
    Roots { proc: tree.root().join("proc"), sys: tree.root().join("sys") }
}

fn names(tree: &Tree) -> Names {
    Names::new(&roots(tree))
}

/// The number of a file as the kernel has it.
fn key(path: &Path) -> (u32, u64) {
    let facts = std::fs::metadata(path).unwrap();
    let Dev { major, minor } = Dev::from_stat(facts.dev());
    (major << 20 | minor, facts.ino())
}

/// Path and writers of each named file.
fn paths(events: &[Event]) -> Vec<(&str, Vec<(u32, &str)>)> {
    let mut found = Vec::new();
    for event in events {
        let Event::Path { path, writers, .. } = event else { panic!("{event:?} names no file") };
        found.push((path.as_str(), writers.iter().map(|writer| (writer.pid, writer.name.as_str())).collect()));
    }
    found
}
