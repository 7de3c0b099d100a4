//! Copies of the sources, for tests that change and build them. What is built stays for the next run.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard};

/// One build at a time: cargo would let them wait anyway.
static TURN: Mutex<()> = Mutex::new(());

/// A copy of what the agent is built of, and a directory for what is built.
pub struct Copy {
    pub directory: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

impl Copy {
    /// Brings these parts of the project, and what the agent needs to be built.
    pub fn with(parts: &[&str]) -> Self {
        let turn = TURN.lock().unwrap_or_else(|broken| broken.into_inner());
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the agent lies in the workspace");
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("copy");
        let needed = ["Cargo.toml", "Cargo.lock", "agent/Cargo.toml", "agent/build.rs", "agent/src", "ebpf"];
        for name in needed.iter().chain(parts) {
            copy(&workspace.join(name), &directory.join(name));
        }
        Self { directory, _turn: turn }
    }

    /// Cargo in the copy, without the variables that choose how the kernel side is built.
    pub fn cargo(&self, arguments: &[&str]) -> Command {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.current_dir(&self.directory).args(arguments).args(["--quiet", "--locked", "--package", "fsyncscope"]);
        cargo.arg("--target-dir").arg(self.directory.join("target")).env("CARGO_PROFILE_DEV_DEBUG", "0");
        for name in ["FSYNCSCOPE_PROBES_OBJECT", "FSYNCSCOPE_BPF_ROUTE", "BPF_LINKER"] {
            cargo.env_remove(name);
        }
        // The copy has no tools of its own.
        if let Some(linker) = linker() {
            cargo.env("BPF_LINKER", linker);
        }
        cargo
    }

    /// Puts other words in the place of those that stand once in a source.
    pub fn change(&self, source: &str, from: &str, to: &str) {
        let path = self.directory.join(source);
        let text = fs::read_to_string(&path).expect("read a source");
        assert_eq!(text.matches(from).count(), 1, "{source} does not have {from:?} once");
        fs::write(&path, text.replace(from, to)).expect("change a source");
    }
}

/// Brings a file or a directory to where it is wanted, and leaves alone what is there already: cargo goes by times.
fn copy(from: &Path, to: &Path) {
    if !from.is_dir() {
        let wanted = fs::read(from).unwrap_or_else(|error| panic!("read {}: {error}", from.display()));
        if fs::read(to).is_ok_and(|have| have == wanted) {
            return;
        }
        fs::create_dir_all(to.parent().expect("a file lies in a directory")).expect("make a directory");
        return fs::write(to, wanted).expect("write a copy");
    }
    let names = |directory: &Path| -> BTreeSet<_> {
        fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect()
    };
    let wanted = names(from);
    for gone in names(to).difference(&wanted) {
        let path = to.join(gone);
        let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    }
    wanted.iter().for_each(|name| copy(&from.join(name), &to.join(name)));
}

/// As the build script looks for it.
fn linker() -> Option<PathBuf> {
    let given = std::env::var_os("BPF_LINKER").filter(|value| !value.is_empty()).map(PathBuf::from);
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/bin/bpf-linker");
    given.or_else(|| ours.is_file().then_some(ours))
}
