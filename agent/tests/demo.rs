//! The newcomer's first command: one explained spike within a minute, and nothing left of it.

mod support;

use std::process::Command;
use std::time::{Duration, Instant};

use support::{Machine, missing, remains, wait_for};

/// Loop devices and mounts of the demo, its processes, and its files.
fn leftovers() -> Vec<String> {
    remains("fsyncscope-demo").into_iter().chain(actors()).collect()
}

/// The demo's processes that play a role.
fn actors() -> Vec<String> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let names = processes.filter_map(|process| std::fs::read_to_string(process.path().join("comm")).ok());
    names
        .map(|name| name.trim().to_owned())
        .filter(|name| ["demo-journal", "demo-writer"].contains(&name.as_str()))
        .collect()
}

/// Microseconds and tenths of a percent of a row of a block; a sentence may end with a percentage as well.
fn row(line: &str) -> Option<(i64, i64)> {
    let number = |word: &str| word.replace('.', "").parse().ok();
    let words: Vec<&str> = line.split_whitespace().rev().take(4).collect();
    let is_row = matches!(words[..], ["%", _, "ms", _]);
    is_row.then(|| Some((number(words[3])?, number(words[1])?))).flatten()
}

#[test]
fn the_demo_explains_a_spike_and_leaves_nothing() {
    skip_if!(missing(&["mkfs.ext4", "losetup", "mount", "fallocate"]));
    let _machine = Machine::lock();
    let began = Instant::now();
    let output = Command::new(env!("CARGO_BIN_EXE_fsyncscope")).arg("demo").output().expect("start the demo");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(began.elapsed() < Duration::from_secs(60), "a spike within a minute");
    assert!(text.contains("journal/0001.log"), "the journal's file is named: {text}");
    let above: Vec<&str> = text.lines().take_while(|line| !line.starts_with("      <- demo-writer ")).collect();
    let below = text.lines().skip(above.len()).filter_map(row).count();
    assert!(above.iter().any(|line| row(line).is_some()) && below > 0, "the writer stands under its row: {text}");
    let verdict = text.split("\n  verdict  ").nth(1).and_then(|rest| rest.split("\n  because  ").next());
    assert!(verdict.is_some_and(|verdict| verdict.contains("demo-writer ")), "the writer is the culprit: {text}");
    let rows: Vec<(i64, i64)> = text.lines().filter_map(row).collect();
    let (whole, parts) = rows.split_last().expect("a block with rows");
    let sum = parts.iter().fold((0, 0), |sum, row| (sum.0 + row.0, sum.1 + row.1));
    assert_eq!((whole.1, sum), (1000, *whole), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "80 columns: {text}");
    assert_eq!(leftovers(), Vec::<String>::new());
}

#[test]
fn a_demo_that_is_killed_leaves_nothing() {
    skip_if!(missing(&["mkfs.ext4", "losetup", "mount", "fallocate"]));
    let _machine = Machine::lock();
    let mut demo = Command::new(env!("CARGO_BIN_EXE_fsyncscope"))
        .arg("demo")
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("start the demo");
    // Everything is there by now: a disk, the probes, both actors.
    let plays = wait_for(Duration::from_secs(60), || actors().contains(&"demo-writer".to_owned()).then_some(()));
    assert!(plays.is_some(), "the demo does not play");
    demo.kill().expect("kill the demo");
    demo.wait().expect("the demo ends");
    let empty = wait_for(Duration::from_secs(10), || leftovers().is_empty().then_some(()));
    assert!(empty.is_some(), "a mount, a loop device, a process or a directory is left: {:?}", leftovers());
}
