//! Where files lie, by the mount tables of a tree.

use fsyncscope::event::Event;

use crate::tree::Tree;
use crate::{SECOND, names, paths};

const JOURNAL: u32 = 259 << 20 | 1;
const LOOP: u32 = 7 << 20;
const TABLE: &str = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 259:1 / /journal rw - ext4 /dev/nvme0n1p1 rw\n";

fn file(dev: u32, path: &str) -> Event {
    Event::File { dev, inode: 12, path: path.to_owned() }
}

#[test]
fn a_file_is_placed_by_its_mount() {
    let tree = Tree::new("placed").file("proc/1/mountinfo", TABLE);
    let told = names(&tree).about(&file(JOURNAL, "/current/1.txn"), 0);
    assert_eq!(told, [Event::Path { dev: JOURNAL, inode: 12, path: "/journal/current/1.txn".into(), writers: vec![] }]);
}

#[test]
fn without_the_first_process_the_own_table_counts() {
    let tree = Tree::new("own").file("proc/self/mountinfo", TABLE);
    assert_eq!(paths(&names(&tree).about(&file(JOURNAL, "/1.txn"), 0)), [("/journal/1.txn", vec![])]);
}

#[test]
fn a_path_whose_beginning_is_unknown_is_not_placed() {
    let tree = Tree::new("unknown").file("proc/1/mountinfo", TABLE);
    assert_eq!(names(&tree).about(&file(JOURNAL, "deep/1.txn"), 0), []);
}

#[test]
fn a_filesystem_mounted_since_is_read_at_most_once_per_second() {
    let tree = Tree::new("since").file("proc/1/mountinfo", TABLE);
    let mut names = names(&tree);
    assert_eq!(names.about(&file(LOOP, "/a"), 0), [], "no mount shows it yet");
    let table = format!("{TABLE}3 1 7:0 / /scratch rw - ext4 /dev/loop0 rw\n");
    let _tree = tree.file("proc/1/mountinfo", table);
    assert_eq!(names.about(&file(LOOP, "/b"), SECOND / 2), [], "the table was read half a second ago");
    let other = Event::ThreadExit { tid: 1, pid: 1 };
    assert_eq!(names.about(&other, SECOND - 1), []);
    assert_eq!(paths(&names.about(&other, SECOND)), [("/scratch/b", vec![])], "it is named by a later event");
    assert_eq!(names.about(&other, 3 * SECOND), [], "and that is told once");
}

#[test]
fn another_file_at_that_place_is_not_named() {
    // An overlay shows its own path for a file of the filesystem below; a file of that path lies on the machine too.
    let tree = Tree::new("other").file("proc/1/mountinfo", TABLE).file("proc/1/root/journal/1.txn", "");
    assert_eq!(names(&tree).about(&file(JOURNAL, "/1.txn"), 0), []);
    assert_eq!(names(&tree).about(&file(JOURNAL, "/gone"), 0), []);
}

#[test]
fn a_remote_filesystem_is_not_asked() {
    // The tree has no such file, so a look at it would refuse the path.
    let table =
        format!("{TABLE}4 1 0:50 / /far rw - nfs4 server:/ rw\n5 4 259:2 / /far/disk rw - ext4 /dev/nvme1n1 rw\n");
    let tree = Tree::new("remote").file("proc/1/mountinfo", table).file("proc/1/root/readme", "");
    let told = names(&tree).about(&file(259 << 20 | 2, "/1.txn"), 0);
    assert_eq!(paths(&told), [("/far/disk/1.txn", vec![])]);
}
