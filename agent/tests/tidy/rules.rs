//! The rules of the house that a machine can check, each a function from a source file to complaints.

use crate::source::{Source, item_end};

/// A room of the agent: the first word of a path under `agent/src`.
struct Room {
    name: &'static str,
    /// A room imports only rooms of a lower rank: data walks one way. Rooms of one rank are strangers.
    rank: u8,
    nature: Nature,
}

#[derive(PartialEq)]
enum Nature {
    /// Knows no clock, file, socket, loader or runtime; never fails.
    Pure,
    /// Reads /proc and /sys, and nothing else does but the commands.
    Facts,
    /// Talks to files or sockets that it is handed.
    Edge,
}

const ROOMS: [Room; 10] = [
    Room { name: "limits", rank: 0, nature: Nature::Pure },
    Room { name: "kernel", rank: 1, nature: Nature::Facts },
    Room { name: "event", rank: 2, nature: Nature::Pure },
    Room { name: "timeline", rank: 3, nature: Nature::Pure },
    Room { name: "attribution", rank: 4, nature: Nature::Pure },
    Room { name: "names", rank: 5, nature: Nature::Facts },
    Room { name: "report", rank: 6, nature: Nature::Pure },
    Room { name: "metrics", rank: 6, nature: Nature::Edge },
    Room { name: "record", rank: 6, nature: Nature::Edge },
    Room { name: "probes", rank: 7, nature: Nature::Facts },
];

const LINES_MAX: usize = 400;
const FUNCTION_LINES_MAX: usize = 50;

/// What a pure room must not name.
const IMPURE: [&str; 9] = [
    "std::fs",
    "std::net",
    "std::process",
    "std::thread",
    "std::time::SystemTime",
    "std::time::Instant",
    "tokio",
    "aya",
    "crate::kernel",
];

/// Crates that one room alone may name.
const OWNED: [(&str, &str); 2] = [("aya", "probes"), ("prometheus_client", "metrics")];

/// All complaints about one file, as `path:line: sentence`.
pub fn complaints(source: &Source) -> Vec<String> {
    let mut found = Vec::new();
    opens_with_its_purpose(source, &mut found);
    is_short(source, &mut found);
    says_why_it_is_safe(source, &mut found);
    is_finished(source, &mut found);
    gives_reasons(source, &mut found);
    if !is_test(&source.path) {
        handles_its_errors(source, &mut found);
        has_short_functions(source, &mut found);
    }
    if let Some(name) = room_name(&source.path) {
        keeps_foreign_crates_out(source, name, &mut found);
        if let Some(room) = ROOMS.iter().find(|room| room.name == name) {
            imports_only_to_the_left(source, room, &mut found);
            stays_in_its_nature(source, room, &mut found);
        }
    }
    found
}

fn complain(found: &mut Vec<String>, source: &Source, line: usize, sentence: &str) {
    found.push(format!("{}:{line}: {sentence}", source.path));
}

fn is_test(path: &str) -> bool {
    path.starts_with("agent/tests/") || path.ends_with("/tests.rs") || path.contains("/tests/")
}

/// `agent/src/report/text.rs` and `agent/src/report.rs` lie in the room `report`.
fn room_name(path: &str) -> Option<&str> {
    let inside = path.strip_prefix("agent/src/")?;
    inside.split('/').next().map(|first| first.trim_end_matches(".rs"))
}

fn opens_with_its_purpose(source: &Source, found: &mut Vec<String>) {
    let first = source.text.lines().find(|line| !line.starts_with("#!/"));
    if !first.is_some_and(|line| line.starts_with("//! ")) {
        complain(found, source, 1, "a file opens with `//!`: what it knows, what it must not know");
    }
}

fn is_short(source: &Source, found: &mut Vec<String>) {
    let lines = source.text.lines().count();
    if lines > LINES_MAX {
        complain(found, source, lines, &format!("{lines} lines, at most {LINES_MAX}; one idea per file"));
    }
}

/// The comment stands on the line of the block or right above the statement that holds it.
fn says_why_it_is_safe(source: &Source, found: &mut Vec<String>) {
    let text: Vec<&str> = source.text.lines().collect();
    let code: Vec<&str> = source.code.lines().collect();
    for at in (0..code.len()).filter(|at| has_unsafe_block(code[*at])) {
        let mut above = at;
        let mut explained = text[at].contains("// SAFETY:");
        while above > 0 && !explained {
            above -= 1;
            explained = text[above].contains("// SAFETY:");
            let (written, said) = (code[above].trim(), text[above].trim());
            let is_comment = said.starts_with("//");
            let goes_on = !written.is_empty() && !written.ends_with([';', '}', ',']) && !has_unsafe_block(written);
            if !is_comment && !goes_on {
                break;
            }
        }
        if !explained {
            complain(found, source, at + 1, &format!("`{}` has no `// SAFETY:` above it", text[at].trim()));
        }
    }
}

fn has_unsafe_block(code: &str) -> bool {
    ["unsafe {", "unsafe impl", "unsafe{"].iter().any(|words| code.contains(words))
}

fn is_finished(source: &Source, found: &mut Vec<String>) {
    // Written in two pieces, so that this file does not complain about itself.
    let marks = [concat!("TO", "DO"), concat!("FIX", "ME")];
    for (at, line) in source.text.lines().enumerate().filter(|(_, line)| marks.iter().any(|mark| line.contains(mark))) {
        complain(found, source, at + 1, &format!("`{}` belongs into an issue", line.trim()));
    }
    for (at, line) in source.code.lines().enumerate() {
        if ["dbg!", "todo!", "unimplemented!"].iter().any(|name| line.contains(name)) {
            complain(found, source, at + 1, &format!("`{}` is a leftover of the work", line.trim()));
        }
    }
}

/// A lint is switched off with `reason = "…"`, by `expect` where it always fires and by `allow` where it may not.
fn gives_reasons(source: &Source, found: &mut Vec<String>) {
    for (at, _) in source.code.match_indices("[allow(").chain(source.code.match_indices("[expect(")) {
        let attribute = source.code[at..].split(']').next().unwrap_or_default();
        if !attribute.contains("reason") {
            let line = source.code[..at].matches('\n').count() + 1;
            complain(found, source, line, "a lint is switched off without a reason");
        }
    }
}

fn handles_its_errors(source: &Source, found: &mut Vec<String>) {
    for (at, (line, text)) in source.shipped.lines().zip(source.text.lines()).enumerate() {
        if [".unwrap()", ".expect(", ".unwrap_err()"].iter().any(|call| line.contains(call)) {
            complain(found, source, at + 1, &format!("`{}` may panic; return the error", text.trim()));
        }
    }
}

fn has_short_functions(source: &Source, found: &mut Vec<String>) {
    let starts = source.shipped.match_indices("fn ").map(|(at, _)| at);
    for at in starts.filter(|at| !source.shipped[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_')) {
        let body = &source.shipped[at..item_end(source.shipped.as_bytes(), at)];
        let (lines, name) = (body.lines().count(), body.split(['(', '<']).next().unwrap_or_default());
        if lines > FUNCTION_LINES_MAX {
            let line = source.shipped[..at].matches('\n').count() + 1;
            complain(found, source, line, &format!("`{name}` has {lines} lines, at most {FUNCTION_LINES_MAX}"));
        }
    }
}

fn keeps_foreign_crates_out(source: &Source, room: &str, found: &mut Vec<String>) {
    for (line, path) in source.paths() {
        if let Some((name, owner)) = OWNED.iter().find(|(name, owner)| path == *name && room != *owner) {
            complain(found, source, line, &format!("names {name}, which only the room {owner} knows"));
        }
    }
}

fn imports_only_to_the_left(source: &Source, room: &Room, found: &mut Vec<String>) {
    for (line, path) in source.paths() {
        let Some(imported) = imported_room(&source.path, &path).filter(|imported| *imported != room.name) else {
            continue;
        };
        match ROOMS.iter().find(|other| other.name == imported) {
            Some(other) if other.rank < room.rank => {}
            Some(_) => {
                complain(found, source, line, &format!("{} imports {imported}, which lies to its right", room.name))
            }
            None => complain(found, source, line, &format!("{} imports {imported}, which is no room", room.name)),
        }
    }
}

/// The first word after the crate's root, if the path reaches it by `crate::` or by enough `super::`; a path is seen
/// once for each of its words, so only the one that ends at the room counts.
fn imported_room<'a>(file: &str, path: &'a str) -> Option<&'a str> {
    let (base, name) = path.rsplit_once("::")?;
    let inside = file.strip_prefix("agent/src/")?.trim_end_matches(".rs").trim_end_matches("/mod");
    let ups = base.split("::").filter(|word| *word == "super").count();
    let only_ups = base.split("::").all(|word| word == "super");
    let reaches_root = base == "crate" || (only_ups && ups == inside.split('/').count());
    (reaches_root && name != "super").then_some(name)
}

fn stays_in_its_nature(source: &Source, room: &Room, found: &mut Vec<String>) {
    if room.nature == Nature::Pure {
        for (line, path) in source.paths().iter().filter(|(_, path)| IMPURE.contains(&path.as_str())) {
            complain(found, source, *line, &format!("names {path}, but {} is a pure room", room.name));
        }
    }
    if room.nature != Nature::Facts {
        let roots = ["/proc", "/sys"];
        for (line, text) in source.literals.iter().filter(|(_, text)| roots.iter().any(|root| text.contains(root))) {
            complain(found, source, *line, &format!("{text} is read by kernel, names, probes or a command, not here"));
        }
    }
}

/// Complaints about a text as if it were that file; the purpose is put in front.
#[cfg(test)]
fn about(path: &str, text: &str) -> Vec<String> {
    complaints(&Source::new(path, &format!("//! Purpose.\n{text}\n")))
}

#[test]
fn good_code_is_let_alone() {
    let good = "use crate::event::Event;\nuse crate::limits;\n// SAFETY: the pointer is ours.\nlet a = unsafe { *b };\n\
                let c = d.unwrap_or(1);\n#[expect(dead_code, reason = \"e\")]\nfn f() {}\n#[cfg(test)]\nmod tests { use std::fs; fn g() { h.unwrap(); } }";
    assert_eq!(about("agent/src/timeline/wait.rs", good), [""; 0]);
}

#[test]
fn each_rule_can_fail() {
    let long = "\n".repeat(LINES_MAX);
    let long_function = format!("fn a(b: [u8; 4]) {{{}}}", "\n".repeat(FUNCTION_LINES_MAX));
    let cases = [
        ("ebpf/src/a.rs", long.as_str(), "one idea per file"),
        ("agent/src/main.rs", long_function.as_str(), "has 51 lines"),
        ("ebpf/src/a.rs", "let a = unsafe { b };", "no `// SAFETY:`"),
        ("ebpf/src/a.rs", "// SAFETY: of another.\nlet a = 1;\nlet b =\n    unsafe { c };", "no `// SAFETY:`"),
        ("agent/tests/a.rs", "dbg!(a);", "leftover"),
        ("agent/tests/a.rs", concat!("// TO", "DO: b"), "belongs into an issue"),
        ("agent/src/main.rs", "#[allow(dead_code)]\nfn a() {}", "without a reason"),
        ("agent/src/main.rs", "#[expect(dead_code)]\nfn a() {}", "without a reason"),
        ("agent/src/main.rs", "a.unwrap();", "may panic"),
        ("agent/src/main.rs", "a\n    .expect(\"b\");", "may panic"),
        ("agent/src/watch.rs", "use aya::Ebpf;", "only the room probes"),
        ("agent/src/report.rs", "use prometheus_client::registry;", "only the room metrics"),
        ("agent/src/event.rs", "use crate::timeline::Sync;", "lies to its right"),
        ("agent/src/metrics.rs", "use crate::record::File;", "lies to its right"),
        ("agent/src/attribution/queue.rs", "let a = super::super::report::text();", "lies to its right"),
        ("agent/src/timeline/mod.rs", "use super::report::text;", "lies to its right"),
        ("agent/src/names/pod.rs", "use crate::{cli::Flags, event};", "is no room"),
        ("agent/src/report/text.rs", "use std::{fmt, fs::File};", "pure room"),
        ("agent/src/timeline.rs", "let a = std::time::Instant::now();", "pure room"),
        ("agent/src/attribution/mod.rs", "use crate::kernel::btf;", "pure room"),
        ("agent/src/event.rs", "tokio::spawn(a);", "pure room"),
        ("agent/src/report.rs", "open(\"/proc/self/stat\");", "not here"),
        ("agent/src/record.rs", "open(\"/sys/block\");", "not here"),
    ];
    for (path, text, expected) in cases {
        let found = about(path, text);
        assert!(found.len() == 1 && found[0].contains(expected), "{path}: {text:?} gave {found:?}, not {expected:?}");
    }
    assert_eq!(complaints(&Source::new("agent/src/main.rs", "fn main() {}\n")).len(), 1, "a file without purpose");
}

#[test]
fn a_room_may_name_what_is_its_own() {
    assert_eq!(about("agent/src/probes/load.rs", "use aya::Ebpf;\nlet a = \"/sys/kernel/btf\";"), [""; 0]);
    assert_eq!(
        about("agent/src/metrics.rs", "use prometheus_client::registry;\nuse crate::attribution::Cause;"),
        [""; 0]
    );
    assert_eq!(
        about("agent/src/attribution/queue.rs", "use super::Breakdown;\nuse super::super::timeline::Sync;"),
        [""; 0]
    );
    assert_eq!(about("agent/tests/faults.rs", "a.unwrap();\nlet b = \"/proc\";"), [""; 0]);
}
