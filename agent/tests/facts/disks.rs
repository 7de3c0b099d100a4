//! Block devices of trees that stand for `/sys`.

use std::path::Path;

use fsyncscope::kernel::dev::Dev;
use fsyncscope::kernel::disks::{Device, Disks, Queue, WriteCache};

use crate::tree::Tree;

/// Files of a disk or partition, and the link by its number.
fn block(tree: Tree, dev: &str, path: &str) -> Tree {
    tree.file(&format!("devices/{path}/dev"), format!("{dev}\n"))
        .link(&format!("dev/block/{dev}"), &format!("../../devices/{path}"))
}

/// An NVMe disk with one partition, a second disk, and a mapped device over the partition and the second disk.
fn machine(name: &str) -> Tree {
    let tree = block(Tree::new(name), "259:0", "nvme0n1")
        .file("devices/nvme0n1/queue/write_cache", "write back\n")
        .file("devices/nvme0n1/queue/fua", "1\n")
        .file("devices/nvme0n1/queue/scheduler", "[none] mq-deadline kyber\n")
        .file("devices/nvme0n1/queue/rotational", "0\n")
        .file("devices/nvme0n1/queue/nr_requests", "1023\n")
        .file("devices/nvme0n1/queue/wbt_lat_usec", "2000\n")
        .file("devices/nvme0n1/nvme0n1p1/partition", "1\n");
    let tree = block(tree, "259:1", "nvme0n1/nvme0n1p1");
    let tree = block(tree, "8:0", "sda").file("devices/sda/queue/write_cache", "write through\n");
    block(tree, "252:0", "virtual/dm-0")
        .link("devices/virtual/dm-0/slaves/nvme0n1p1", "../../../nvme0n1/nvme0n1p1")
        .link("devices/virtual/dm-0/slaves/sda", "../../../sda")
}

fn device(tree: &Tree, dev: &str) -> Option<Device> {
    Disks::new(tree.root()).device(dev.parse().unwrap())
}

fn names(device: &Device) -> Vec<&str> {
    device.disks().iter().map(|disk| disk.name.as_str()).collect()
}

#[test]
fn a_partition_has_the_queue_of_its_disk() {
    let tree = machine("partition");
    let found = device(&tree, "259:1").unwrap();
    assert_eq!((found.name.as_str(), found.disk.name.as_str()), ("nvme0n1p1", "nvme0n1"));
    assert_eq!(found.disk.dev, Dev { major: 259, minor: 0 });
    let wanted = Queue {
        write_cache: Some(WriteCache::Back),
        fua: Some(true),
        scheduler: Some("none".to_owned()),
        rotational: Some(false),
        requests: Some(1023),
        throttle_target_us: Some(2000),
    };
    assert_eq!(found.disk.queue, wanted);
    assert_eq!(found.lower, []);
}

#[test]
fn what_the_kernel_does_not_show_is_none() {
    let tree = machine("silent");
    let queue = device(&tree, "8:0").unwrap().disk.queue;
    assert_eq!(queue, Queue { write_cache: Some(WriteCache::Through), ..Queue::default() });
}

#[test]
fn a_mapped_device_stands_on_its_parts() {
    let tree = machine("mapped");
    let found = device(&tree, "252:0").unwrap();
    let lower: Vec<&str> = found.lower.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(lower, ["sda", "nvme0n1p1"]);
    assert_eq!(names(&found), ["dm-0", "sda", "nvme0n1"]);
}

#[test]
fn a_loop_device_stands_on_the_disk_of_its_file() {
    let tree = block(machine("loop"), "7:0", "virtual/loop0")
        .file("devices/virtual/loop0/loop/backing_file", "/images/a disk.img\n");
    let file_dev =
        |_: &str, path: &Path| (path == Path::new("/images/a disk.img")).then_some(Dev { major: 252, minor: 0 });
    let found = Disks::with_files(tree.root(), file_dev).device("7:0".parse().unwrap()).unwrap();
    assert_eq!(found.disk.backing_file.as_deref(), Some(Path::new("/images/a disk.img")));
    assert_eq!(names(&found), ["loop0", "dm-0", "sda", "nvme0n1"]);
    let lost = Disks::with_files(tree.root(), |_, _| None).device("7:0".parse().unwrap()).unwrap();
    assert_eq!(lost.lower, []);
    assert!(lost.disk.stacked, "what lies below is not known, but something does");
    assert!(!device(&tree, "8:0").unwrap().disk.stacked);
}

/// As in a container of Podman, which masks the directory of links by number.
#[test]
fn a_device_is_found_by_its_name_where_the_links_by_number_are_hidden() {
    let tree = Tree::new("hidden")
        .file("dev/block/.masked", "")
        .file("devices/sda/dev", "8:0\n")
        .file("devices/sdb/dev", "8:16\n")
        .link("class/block/sda", "../../devices/sda")
        .link("class/block/sdb", "../../devices/sdb");
    assert_eq!(device(&tree, "8:16").unwrap().disk.name, "sdb");
    assert_eq!(device(&tree, "8:32"), None);
}

#[test]
fn devices_in_a_circle_end() {
    let tree = block(Tree::new("circle"), "252:1", "virtual/dm-1");
    let tree = block(tree, "252:2", "virtual/dm-2")
        .link("devices/virtual/dm-1/slaves/dm-1", "../../dm-1")
        .link("devices/virtual/dm-1/slaves/dm-2", "../../dm-2")
        .link("devices/virtual/dm-2/slaves/dm-1", "../../dm-1");
    assert_eq!(names(&device(&tree, "252:1").unwrap()), ["dm-1", "dm-2"]);
}

#[test]
fn a_device_that_is_gone_is_none() {
    let tree = machine("gone");
    assert_eq!(device(&tree, "9:9"), None);
    assert_eq!(device(&tree, "0:50"), None);
}

#[test]
fn numbers_are_read_in_each_of_their_forms() {
    assert_eq!("259:3\n".parse(), Ok(Dev { major: 259, minor: 3 }));
    assert_eq!(Dev::from_kernel(254 << 20 | 17), Dev { major: 254, minor: 17 });
    assert_eq!(Dev::from_stat(0x0010_0301), Dev { major: 3, minor: 0x101 });
    assert_eq!(Dev { major: 8, minor: 16 }.to_string(), "8:16");
    assert_eq!(
        "259".parse::<Dev>().unwrap_err().to_string(),
        "reading a device number: \"259\" is not of the form major:minor, such as 259:0"
    );
}
