//! This machine: the test's own process is what is named.

use std::fs::OpenOptions;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use fsyncscope::event::Event;
use fsyncscope::kernel::host::Roots;
use fsyncscope::kernel::mounts::Mounts;
use fsyncscope::names::{Names, memory};

use crate::tree::Tree;
use crate::{key, paths};

#[test]
fn a_file_that_this_process_writes_is_named() {
    let tree = Tree::new("machine").file("held", "");
    let path = tree.root().join("held");
    let _held = OpenOptions::new().append(true).open(&path).unwrap();
    let mut names = Names::new(&Roots::default());
    let told = names.files(&[key(&path)], 0);
    let own = (std::process::id(), names.process(std::process::id()).name);
    assert_eq!(paths(&told), [(path.to_str().unwrap(), vec![(own.0, own.1.as_str())])]);
}

#[test]
fn a_file_that_a_child_writes_is_named() {
    let tree = Tree::new("child").file("held", "");
    let path = tree.root().join("held");
    let held = OpenOptions::new().append(true).open(&path).unwrap();
    let mut child = Command::new("sleep").arg("30").stdout(held).spawn().unwrap();
    let told = Names::new(&Roots::default()).files(&[key(&path)], 0);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(paths(&told), [(path.to_str().unwrap(), vec![(child.id(), "sleep")])]);
}

#[test]
fn a_file_is_placed_where_it_can_be_opened() {
    let tree = Tree::new("placed-here").file("file", "");
    let path = tree.root().join("file").canonicalize().unwrap();
    let mounts = Mounts::load(Path::new("/proc/self/mountinfo")).unwrap();
    let mount = mounts.of_path(&path).unwrap();
    let inside = mount.root.join(path.strip_prefix(&mount.point).unwrap());
    let (dev, inode) = (mount.dev.major << 20 | mount.dev.minor, std::fs::metadata(&path).unwrap().ino());
    let mut names = Names::new(&Roots::default());
    let about = |names: &mut Names, inode, path: &Path| {
        names.about(&Event::File { dev, inode, path: path.to_str().unwrap().into() }, 0)
    };
    assert_eq!(paths(&about(&mut names, inode, &inside)), [(path.to_str().unwrap(), vec![])]);
    assert_eq!(about(&mut names, inode + 1, &inside), [], "another file's number at that path");
}

#[test]
fn the_own_process_is_described() {
    let process = Names::new(&Roots::default()).process(std::process::id());
    let executable = std::env::current_exe().unwrap();
    let name = executable.file_name().unwrap().to_str().unwrap();
    assert_eq!(process.executable.as_deref(), Some(executable.as_path()));
    assert!(!process.name.is_empty() && name.starts_with(&process.name), "{process:?}");
}

#[test]
fn memory_of_this_machine_is_plausible() {
    let dirty = memory::page_cache(&Roots::default()).unwrap();
    assert!(dirty.background_threshold_bytes <= dirty.threshold_bytes, "{dirty:?}");
    let usage = memory::usage(&Roots::default()).unwrap();
    assert!(usage.cpu_seconds >= 0.0 && usage.resident_bytes > 100_000, "{usage:?}");
}
