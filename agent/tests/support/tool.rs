//! Runs the tools of Debian's package prometheus.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// Whether a program of this name is on the path. If not, says so in the words that the CI looks for.
pub fn is_installed(program: &str, test: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&paths).any(|directory| directory.join(program).is_file());
    if !found {
        println!("skipped: {test}: {program} is not installed (Debian package prometheus)");
    }
    found
}

pub fn run(program: &str, arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the tool starts");
    child.stdin.take().expect("its stdin").write_all(input).expect("the tool reads");
    child.wait_with_output().expect("the tool ends")
}

/// What a tool said, for the message of an assertion.
pub fn said(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A path in the repository.
pub fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

pub fn read(path: &str) -> String {
    let path = repository(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
