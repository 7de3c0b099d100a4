//! Open files of processes that are made of files.

use crate::tree::Tree;
use crate::{SECOND, key, names, paths, roots};

use fsyncscope::event::Event;
use fsyncscope::names::Names;

const READ_ONLY: &str = "pos:\t0\nflags:\t0100000\nmnt_id:\t24\n";
const READ_WRITE: &str = "pos:\t0\nflags:\t0100002\nmnt_id:\t24\n";

/// Processes 7 and 9 have the ledger open for writing, 8 for reading; 7 has a socket too.
fn machine(name: &str) -> Tree {
    let tree = Tree::new(name).file("data/ledger", "").file("data/other", "");
    let ledger = tree.root().join("data/ledger");
    let (link, (_, inode)) = (ledger.to_str().unwrap().to_owned(), key(&ledger));
    tree.file("proc/7/comm", "java\n")
        .link("proc/7/fd/4", "socket:[4711]")
        .link("proc/7/fd/5", &link)
        .file("proc/7/fdinfo/5", format!("{READ_WRITE}ino:\t{inode}\n"))
        .link("proc/7/fd/6", &link)
        .file("proc/7/fdinfo/6", format!("{READ_WRITE}ino:\t{inode}\n"))
        .file("proc/8/comm", "tail\n")
        .link("proc/8/fd/3", &link)
        .file("proc/8/fdinfo/3", format!("{READ_ONLY}ino:\t{inode}\n"))
        .file("proc/9/comm", "old kernel\n")
        .link("proc/9/fd/3", &link)
        .file("proc/9/fdinfo/3", READ_WRITE)
}

#[test]
fn writers_are_named_with_the_path() {
    let tree = machine("writers");
    let ledger = tree.root().join("data/ledger");
    let told = names(&tree).files(&[key(&ledger)], 0);
    assert_eq!(paths(&told), [(ledger.to_str().unwrap(), vec![(7, "java"), (9, "old kernel")])]);
}

#[test]
fn a_reader_gives_a_path_only() {
    let tree = machine("reader");
    let [ledger, other] = ["data/ledger", "data/other"].map(|path| tree.root().join(path));
    for pid in ["7", "9"] {
        std::fs::remove_dir_all(tree.root().join("proc").join(pid)).unwrap();
    }
    assert_eq!(paths(&names(&tree).files(&[key(&ledger), key(&other)], 0)), [(ledger.to_str().unwrap(), vec![])]);
}

#[test]
fn the_same_inode_of_another_device_is_another_file() {
    let tree = machine("device");
    let (dev, inode) = key(&tree.root().join("data/ledger"));
    assert_eq!(names(&tree).files(&[(dev + 1, inode)], 0), []);
}

#[test]
fn what_was_found_holds_for_ten_seconds_and_so_does_nothing() {
    let tree = machine("holds");
    let [ledger, other] = ["data/ledger", "data/other"].map(|path| tree.root().join(path));
    let mut names = names(&tree);
    let found = names.files(&[key(&ledger), key(&other)], 0);
    assert_eq!(found.len(), 1);
    let inode = key(&other).1;
    let tree = tree
        .file("proc/5/comm", "late\n")
        .link("proc/5/fd/1", other.to_str().unwrap())
        .file("proc/5/fdinfo/1", format!("{READ_WRITE}ino:\t{inode}\n"));
    assert_eq!(names.files(&[key(&ledger), key(&other)], 9 * SECOND), []);
    std::fs::remove_dir_all(tree.root().join("proc/7")).unwrap();
    let found = names.files(&[key(&ledger), key(&other)], 10 * SECOND);
    assert_eq!(writers(&found), [5, 9], "{found:?}");
}

#[test]
fn who_asks_seldom_waits_for_nobody_and_nobody_for_him() {
    let tree = machine("seldom");
    let [ledger, other] = ["data/ledger", "data/other"].map(|path| key(&tree.root().join(path)));
    let mut both = names(&tree);
    assert_eq!(both.files(&[other], 0), []);
    assert_eq!(both.files_seldom(&[ledger], SECOND - 1).len(), 1);
    let mut both = names(&tree);
    assert_eq!(both.files_seldom(&[other], 0), []);
    assert_eq!(both.files(&[ledger], 1).len(), 1);
}

#[test]
fn one_look_per_second() {
    let tree = machine("once");
    let [ledger, other] = ["data/ledger", "data/other"].map(|path| key(&tree.root().join(path)));
    let mut names = names(&tree);
    assert_eq!(names.files(&[other], 0), []);
    assert_eq!(names.files(&[ledger], SECOND - 1), [], "too soon");
    assert_eq!(names.files(&[ledger], SECOND).len(), 1);
}

#[test]
fn the_end_of_the_last_writer_is_told() {
    let tree = machine("end");
    let ledger = tree.root().join("data/ledger");
    let mut names = names(&tree);
    assert_eq!(names.files(&[key(&ledger)], 0).len(), 1);
    std::fs::remove_dir_all(tree.root().join("proc")).unwrap();
    assert_eq!(paths(&names.files(&[key(&ledger)], 20 * SECOND)), [(ledger.to_str().unwrap(), vec![])]);
    assert_eq!(names.files(&[key(&ledger)], 40 * SECOND), []);
}

#[test]
fn a_path_of_a_container_is_turned_into_the_machine_s() {
    let tree = machine("container");
    let ledger = tree.root().join("data/ledger");
    let (dev, inode) = key(&ledger);
    // The process sees the filesystem's directory /volumes/1 at /data; the machine sees all of it at /kubelet.
    std::fs::remove_file(tree.root().join("proc/7/fd/5")).unwrap();
    std::fs::remove_file(tree.root().join("proc/7/fd/6")).unwrap();
    let numbers = format!("{}:{}", dev >> 20, dev & 0xf_ffff);
    let tree = tree
        .file(
            "proc/1/mountinfo",
            format!("1 0 0:1 / / rw - tmpfs a rw\n2 1 {numbers} / /kubelet rw - ext4 /dev/sdb rw\n"),
        )
        .file("proc/8/mountinfo", "1 0 0:2 / / rw - overlay a rw\n")
        .file("proc/9/mountinfo", "1 0 0:2 / / rw - overlay a rw\n");
    let link = ledger.to_str().unwrap();
    let point = ledger.parent().unwrap().to_str().unwrap();
    let tree = tree
        .file(
            "proc/7/mountinfo",
            format!("1 0 0:2 / / rw - overlay a rw\n2 1 {numbers} /volumes/1 {point} rw - ext4 /dev/sdb rw\n"),
        )
        .link("proc/7/fd/8", link)
        .file("proc/7/fdinfo/8", format!("{READ_WRITE}ino:\t{inode}\n"));
    let told = names(&tree).files(&[(dev, inode)], 0);
    assert_eq!(paths(&told), [("/kubelet/volumes/1/ledger", vec![(7, "java"), (9, "old kernel")])]);
}

#[test]
fn a_file_placed_later_keeps_its_writers() {
    let tree = machine("keeps");
    let ledger = tree.root().join("data/ledger");
    let (dev, inode) = key(&ledger);
    let table = format!("1 0 {}:{} / / rw - ext4 /dev/sda rw\n", dev >> 20, dev & 0xf_ffff);
    let tree = tree.file("proc/1/mountinfo", table);
    let mut names = Names::new(&roots(&tree));
    names.files(&[(dev, inode)], 0);
    let told = names.about(&Event::File { dev, inode, path: "/ledger".into() }, 0);
    assert_eq!(paths(&told), [("/ledger", vec![(7, "java"), (9, "old kernel")])]);
}

fn writers(events: &[Event]) -> Vec<u32> {
    let mut pids: Vec<u32> =
        paths(events).iter().flat_map(|(_, writers)| writers.iter().map(|(pid, _)| *pid)).collect();
    pids.sort_unstable();
    pids
}
