//! What the guest boots from: one archive in memory that holds the test program as /init, the agent at its own path,
//! dmsetup and the libraries that they need, with a kernel's modules behind it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::fetch::Fetched;
use super::support::{find, run};

/// Where the guest finds the modules.
pub const MODULES: &str = "/modules";
/// Directories of the guest that nothing is put into beforehand.
const EMPTY: [&str; 4] = ["dev", "proc", "sys", "tmp"];

/// Makes the archive in a directory of the caller's.
pub fn make(kernel: &Fetched, directory: &Path) -> PathBuf {
    let tree = directory.join("tree");
    for name in EMPTY {
        fs::create_dir_all(tree.join(name)).expect("make a directory of the guest");
    }
    let test = std::env::current_exe().expect("find the test program");
    let agent = PathBuf::from(env!("CARGO_BIN_EXE_fsyncscope"));
    strip(&test, &tree.join("init"));
    strip(&agent, &inside(&tree, &agent));
    let mapper = find("dmsetup").expect("the machine has looked for it");
    fs::copy(&mapper, inside(&tree, &mapper)).expect("copy a program");
    let libraries: BTreeSet<PathBuf> =
        [&test, &agent, &mapper].into_iter().flat_map(|program| libraries(program)).collect();
    for library in libraries {
        fs::copy(&library, inside(&tree, &library)).expect("copy a library");
    }
    let modules = inside(&tree, &Path::new(MODULES).join("list"));
    fs::remove_dir(modules.parent().expect("it has a directory")).expect("make way for the modules");
    run(Command::new("cp").arg("--recursive").arg(&kernel.modules).arg(tree.join(&MODULES[1..])));
    let archive = directory.join("archive");
    let pack = "find . | cpio --create --format=newc --quiet --file \"$0\"";
    run(Command::new("sh").args(["-c", pack]).arg(&archive).current_dir(&tree));
    archive
}

/// Where a file of this machine's stands in the guest's tree; makes the way to it.
fn inside(tree: &Path, file: &Path) -> PathBuf {
    let place = tree.join(file.strip_prefix("/").expect("the path is absolute"));
    fs::create_dir_all(place.parent().expect("a file lies in a directory")).expect("make a directory of the guest");
    place
}

/// Copies a program without what a debugger wants, which is most of it.
fn strip(from: &Path, to: &Path) {
    run(Command::new("strip").args(["--strip-debug", "-o"]).arg(to).arg(from));
}

/// The libraries of a program, its loader among them.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let words = run(Command::new("ldd").arg(program));
    words.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
}
