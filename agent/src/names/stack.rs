//! The kernel's own picture of where a thread is: `/proc/<tid>/stack`.

use std::path::Path;

use crate::limits;

/// Functions, innermost first; empty if the thread is gone, in user mode, or may not be looked into.
pub fn of(proc: &Path, tid: u32) -> Vec<String> {
    let text = std::fs::read_to_string(proc.join(tid.to_string()).join("stack")).unwrap_or_default();
    text.lines().filter_map(function).take(limits::NAMES_FRAMES).map(str::to_owned).collect()
}

/// The name in `[<0>] name+0x12/0x34 [module]`.
fn function(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("] ")?;
    rest.split(['+', ' ']).next().filter(|name| !name.is_empty() && !name.starts_with("0x"))
}
