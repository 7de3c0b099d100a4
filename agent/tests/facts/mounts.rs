//! Mount tables, and paths of files through them.

use std::path::{Path, PathBuf};

use fsyncscope::kernel::dev::Dev;
use fsyncscope::kernel::mounts::Mounts;

use crate::tree::Tree;

/// Root, a disk of a journal, a bind mount of a directory of it, one of a single file, and a name with a blank.
const TABLE: &str = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
40 27 259:1 / /var/lib/journal rw,noatime shared:2 master:3 - xfs /dev/nvme0n1p1 rw
41 27 259:1 /ledger /pods/ledger rw,noatime - xfs /dev/nvme0n1p1 rw
42 27 254:0 /etc/hosts /pods/1/etc/hosts rw - ext4 /dev/vda rw
43 27 259:2 / /mnt/with\\040blank\\134and\\011tab rw - ext4 /dev/nvme0n1p2 rw
44 27 0:50 /sub /data rw - btrfs /dev/sdb rw
";

fn mounts() -> Mounts {
    Mounts::parse(TABLE.as_bytes())
}

fn path(mounts: &Mounts, major: u32, minor: u32, inside: &str) -> Option<String> {
    let path = mounts.path(Dev { major, minor }, Path::new(inside))?;
    Some(path.to_str().unwrap().to_owned())
}

#[test]
fn reads_every_column() {
    let mounts = mounts();
    assert_eq!((mounts.iter().count(), mounts.dropped()), (7, 0));
    let journal = mounts.iter().nth(2).unwrap();
    assert_eq!(journal.dev, Dev { major: 259, minor: 1 });
    assert_eq!((journal.root.as_path(), journal.point.as_path()), (Path::new("/"), Path::new("/var/lib/journal")));
    assert_eq!((journal.filesystem.as_str(), journal.source.as_path()), ("xfs", Path::new("/dev/nvme0n1p1")));
}

#[test]
fn prefers_the_whole_filesystem() {
    assert_eq!(path(&mounts(), 259, 1, "/ledger/0.log"), Some("/var/lib/journal/ledger/0.log".to_owned()));
    assert_eq!(path(&mounts(), 254, 0, "/etc/hosts"), Some("/etc/hosts".to_owned()));
}

#[test]
fn prefers_the_shortest_mount_point() {
    let table = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 8:2 / /long/way rw - ext4 /dev/sda2 rw\n\
                 3 1 8:2 / /short rw - ext4 /dev/sda2 rw\n";
    assert_eq!(path(&Mounts::parse(table.as_bytes()), 8, 2, "/file"), Some("/short/file".to_owned()));
}

#[test]
fn takes_a_bind_mount_where_nothing_else_shows_the_file() {
    let bound: String =
        TABLE.lines().filter(|line| !line.contains(" /var/lib/journal ")).map(|line| format!("{line}\n")).collect();
    let mounts = Mounts::parse(bound.as_bytes());
    assert_eq!(path(&mounts, 259, 1, "/ledger/0.log"), Some("/pods/ledger/0.log".to_owned()));
    assert_eq!(path(&mounts, 259, 1, "/ledger2/0.log"), None);
    assert_eq!(path(&mounts, 0, 50, "/sub/x"), Some("/data/x".to_owned()));
}

#[test]
fn a_file_bound_by_itself_keeps_its_name() {
    let table = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 8:2 /etc/hosts /hosts rw - ext4 /dev/sda2 rw\n";
    assert_eq!(path(&Mounts::parse(table.as_bytes()), 8, 2, "/etc/hosts"), Some("/hosts".to_owned()));
}

#[test]
fn decodes_escapes() {
    assert_eq!(path(&mounts(), 259, 2, "/a"), Some("/mnt/with blank\\and\ttab/a".to_owned()));
    let odd = Mounts::parse(b"1 0 8:1 / /a\\9\\04\\777 rw - ext4 /dev/sda1 rw\n");
    assert_eq!(odd.iter().next().unwrap().point, PathBuf::from("/a\\9\\04\\777"));
}

#[test]
fn an_unknown_device_has_no_path() {
    assert_eq!(path(&mounts(), 9, 9, "/a"), None);
}

#[test]
fn a_mount_that_another_covers_shows_nothing() {
    // 3 is mounted over the directory that holds 2, and 5 over 4 itself.
    let table = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 8:2 / /a/b rw - ext4 /dev/sda2 rw\n\
                 3 1 8:3 / /a rw - ext4 /dev/sda3 rw\n4 1 8:4 / /c rw - ext4 /dev/sda4 rw\n\
                 5 4 8:5 / /c rw - ext4 /dev/sda5 rw\n6 3 8:6 / /a/b rw - ext4 /dev/sda6 rw\n";
    let mounts = Mounts::parse(table.as_bytes());
    assert_eq!(path(&mounts, 8, 2, "/x"), None);
    assert_eq!(path(&mounts, 8, 3, "/x"), Some("/a/x".to_owned()));
    assert_eq!(path(&mounts, 8, 4, "/x"), None);
    assert_eq!(path(&mounts, 8, 5, "/x"), Some("/c/x".to_owned()));
    assert_eq!(path(&mounts, 8, 6, "/x"), Some("/a/b/x".to_owned()));
}

/// As a machine shows that runs from the archive that its kernel booted with.
#[test]
fn the_kernels_first_mount_is_its_own_parent() {
    let table = "1 1 0:2 / / rw - rootfs rootfs rw\n20 1 8:1 / /data rw - ext4 /dev/sda1 rw\n";
    let mounts = Mounts::parse(table.as_bytes());
    assert_eq!(path(&mounts, 8, 1, "/x"), Some("/data/x".to_owned()));
    assert_eq!(mounts.of_path(Path::new("/data")).unwrap().filesystem, "ext4");
    assert_eq!(mounts.of_path(Path::new("/tmp")).unwrap().filesystem, "rootfs");
}

#[test]
fn tells_the_mount_of_a_path() {
    let mounts = mounts();
    let of = |path: &str| mounts.of_path(Path::new(path)).unwrap().dev.to_string();
    assert_eq!(of("/var/lib/journal/current/1.txn"), "259:1");
    assert_eq!(of("/var/lib/journal2"), "254:0");
}

#[test]
fn counts_lines_it_cannot_read() {
    let mounts =
        Mounts::parse(b"1 0 8:1 / / rw - ext4 /dev/sda1 rw\nnonsense\n2 1 8:2 / /a rw ext4 /dev/sda2 rw\n\xff\n");
    assert_eq!((mounts.iter().count(), mounts.dropped()), (1, 3));
}

#[test]
fn parents_in_a_circle_end() {
    let table = "1 2 8:1 / /a rw - ext4 /dev/sda1 rw\n2 1 8:2 / /a rw - ext4 /dev/sda2 rw\n";
    Mounts::parse(table.as_bytes()).path(Dev { major: 8, minor: 1 }, Path::new("/x"));
}

#[test]
fn loads_a_file_and_says_when_there_is_none() {
    let tree = Tree::new("mounts").file("self/mountinfo", TABLE);
    assert_eq!(Mounts::load(&tree.root().join("self/mountinfo")).unwrap(), mounts());
    let error = Mounts::load(Path::new("/no/such/file")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "reading the mounts at /no/such/file: No such file or directory (os error 2); mount /proc, or run where the \
         process may be looked into"
    );
}
