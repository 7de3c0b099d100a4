//! The ways to the kernel side (CONTRIBUTING.md): what builds the object anew and what does not, an object that is given,
//! the two compilers, and what a wrong choice is told. Each build is of a copy of the sources.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::SystemTime;

use serde_json::Value;

#[path = "copies/mod.rs"]
mod copies;

use copies::Copy;

/// Debian's compiler and its sources (rust-web-src).
const COMPILER: &str = "/usr/bin/rustc";
const SOURCES: &str = "/usr/lib/rustlib/src/rust/library/core";

/// The object of the agent that is tested.
const OWN: &str = env!("FSYNCSCOPE_PROBES");

/// A copy whose agent is checked, not built.
struct Checked(Copy);

impl Checked {
    fn new() -> Self {
        Self(Copy::with(&[]))
    }

    /// Checks the agent, which builds the probes first, with variables of the environment.
    fn check(&self, variables: &[(&str, &OsStr)]) -> Output {
        let mut cargo = self.0.cargo(&["check", "--lib", "--message-format=json"]);
        cargo.envs(variables.iter().copied()).output().expect("start cargo")
    }

    /// The object that a check made or took.
    fn object(&self, variables: &[(&str, &OsStr)]) -> PathBuf {
        let output = self.check(variables);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "the check failed: {said}");
        let told = String::from_utf8_lossy(&output.stdout);
        let messages = told.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let named = messages.filter(|message| message["reason"] == "build-script-executed").find_map(|message| {
            let pairs = message["env"].as_array()?.iter();
            pairs.filter(|pair| pair[0] == "FSYNCSCOPE_PROBES").find_map(|pair| Some(PathBuf::from(pair[1].as_str()?)))
        });
        named.expect("the build script names its object")
    }

    /// The sentence with which a check is refused.
    fn refusal(&self, variables: &[(&str, &OsStr)]) -> String {
        let output = self.check(variables);
        assert!(!output.status.success(), "it was not refused");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

fn made(object: &Path) -> SystemTime {
    fs::metadata(object).and_then(|about| about.modified()).expect("look at the object")
}

/// The names of the programs: global functions.
fn programs(object: &Path) -> BTreeSet<String> {
    let output = Command::new("readelf").args(["--syms", "--wide"]).arg(object).output().expect("start readelf");
    let told = String::from_utf8_lossy(&output.stdout);
    let columns = told.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let global = columns.filter(|columns| columns.len() == 8 && columns[3] == "FUNC" && columns[4] == "GLOBAL");
    global.map(|columns| columns[7].to_owned()).collect()
}

#[test]
fn only_a_change_of_its_own_sources_builds_the_object_anew() {
    let copy = Checked::new();
    let object = copy.object(&[]);
    let first = made(&object);
    assert!(programs(&object).len() > 40, "{:?}", programs(&object));
    copy.0.change("agent/src/cli.rs", "//! The command line", "//! The line");
    assert_eq!(copy.object(&[]), object);
    assert_eq!(made(&object), first, "a change of the agent built the object anew");
    copy.0.change("ebpf/src/limits.rs", "//! ", "//! Changed. ");
    assert_eq!(copy.object(&[]), object);
    assert!(made(&object) > first, "a change of the probes did not build the object anew");
}

#[test]
fn an_object_that_is_given_needs_no_compiler() {
    let copy = Checked::new();
    let given = copy.0.directory.join("given");
    fs::copy(OWN, &given).expect("copy the object");
    let nowhere = OsStr::new("/nowhere");
    for path in [given.as_os_str(), OsStr::new("given")] {
        let taken = copy.object(&[("FSYNCSCOPE_PROBES_OBJECT", path), ("BPF_LINKER", nowhere)]);
        assert_eq!(taken, given.canonicalize().expect("it is there"));
    }
    let refused = copy.refusal(&[("FSYNCSCOPE_PROBES_OBJECT", nowhere)]);
    assert!(refused.contains("reading FSYNCSCOPE_PROBES_OBJECT=/nowhere failed"), "{refused}");
    assert!(refused.contains("name an object built by this project or unset it"), "{refused}");
}

#[test]
fn a_route_that_there_is_not_is_refused() {
    let refused = Checked::new().refusal(&[("FSYNCSCOPE_BPF_ROUTE", OsStr::new("gcc"))]);
    assert!(refused.contains("FSYNCSCOPE_BPF_ROUTE=gcc is no route; set it to debian or nightly"), "{refused}");
}

/// A nightly with rust-src is not to be had everywhere: Debian's compiler stands for it, which is allowed unstable features
/// and builds core from its own sources, as nightly does.
#[test]
fn the_route_of_nightly_gives_the_same_programs() {
    assert!(
        Path::new(COMPILER).exists() && Path::new(SOURCES).exists(),
        "rustc-web or rust-web-src is missing: make setup"
    );
    let copy = Checked::new();
    let bin = copy.0.directory.join("bin");
    fs::create_dir_all(&bin).expect("make a directory");
    let stand_in = bin.join("rustup");
    let script = format!(
        "#!/bin/sh\n[ \"$1 $2\" = \"run nightly\" ] || exit 9\ntool=$3\nshift 3\nexport RUSTC_BOOTSTRAP=1 RUSTC={COMPILER}\n\
         [ $tool = cargo ] && exec {} \"$@\"\nexec {COMPILER} \"$@\"\n",
        env!("CARGO")
    );
    fs::write(&stand_in, script).expect("write a script");
    fs::set_permissions(&stand_in, fs::Permissions::from_mode(0o755)).expect("make it a program");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([bin].into_iter().chain(std::env::split_paths(&path))).expect("a path");
    let object = copy.object(&[("FSYNCSCOPE_BPF_ROUTE", OsStr::new("nightly")), ("PATH", &path)]);
    let built = object.with_file_name("deps");
    assert_eq!(programs(&object), programs(Path::new(OWN)));
    let core = fs::read_dir(&built).into_iter().flatten().flatten();
    let core = core.filter(|file| file.file_name().to_string_lossy().starts_with("libcore-")).count();
    assert!(core > 0, "core was not built from its sources");
}
