//! The newcomer's first command: one explained spike within a minute, and nothing left of it.

mod support;

use std::process::Command;
use std::time::{Duration, Instant};

use support::{Machine, missing};

/// Loop devices and mounts of the demo, and its files.
fn leftovers() -> Vec<String> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounted = mounts.lines().filter(|line| line.contains("fsyncscope-demo")).map(str::to_owned);
    let loops = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let backing = loops.filter_map(|disk| std::fs::read_to_string(disk.path().join("loop/backing_file")).ok());
    let files = std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    let files = files.map(|file| file.file_name().to_string_lossy().into_owned());
    mounted.chain(backing).chain(files).filter(|name| name.contains("fsyncscope-demo")).collect()
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
    let row = text.lines().skip_while(|line| !line.trim_start().starts_with("<- demo-writer"));
    assert!(row.count() > 0, "the writer stands under its row: {text}");
    let shares = text.lines().filter(|line| line.starts_with("  ") && line.trim_end().ends_with('%'));
    let shares: Vec<i64> =
        shares.filter_map(|line| line.split_whitespace().rev().nth(1)?.replace('.', "").parse().ok()).collect();
    let (whole, rows) = shares.split_last().expect("a block with rows");
    assert_eq!((*whole, rows.iter().sum::<i64>()), (1000, 1000), "{text}");
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
    std::thread::sleep(Duration::from_secs(2));
    demo.kill().expect("kill the demo");
    demo.wait().expect("the demo ends");
    let empty = support::wait_for(Duration::from_secs(10), || {
        leftovers().iter().all(|name| name.starts_with("fsyncscope-demo")).then_some(())
    });
    assert!(empty.is_some(), "a mount or a loop device is left: {:?}", leftovers());
    for name in leftovers() {
        // An empty directory is all that a sudden death may leave.
        std::fs::remove_dir(std::env::temp_dir().join(name)).expect("an empty directory");
    }
}
