//! Disks, functions, processes, stacks and memory of a tree.

use std::path::PathBuf;

use fsyncscope::event::PageCache;
use fsyncscope::event::{Disk, Event, Wait};
use fsyncscope::names::memory;
use fsyncscope::names::{self, Process};

use crate::tree::Tree;
use crate::{names, roots};

const MAPPED: u32 = 252 << 20;
const SDA: u32 = 8 << 20;
const NVME: u32 = 259 << 20;

fn block(tree: Tree, dev: &str, path: &str) -> Tree {
    tree.file(&format!("sys/devices/{path}/dev"), format!("{dev}\n"))
        .link(&format!("sys/dev/block/{dev}"), &format!("../../devices/{path}"))
}

/// A mapped device over a partition of one disk, and over another disk.
fn disks(name: &str) -> Tree {
    let tree = block(Tree::new(name), "259:0", "nvme0n1").file("sys/devices/nvme0n1/nvme0n1p1/partition", "1\n");
    let tree = block(block(tree, "259:1", "nvme0n1/nvme0n1p1"), "8:0", "sda");
    block(tree, "252:0", "dm-0")
        .link("sys/devices/dm-0/slaves/nvme0n1p1", "../../nvme0n1/nvme0n1p1")
        .link("sys/devices/dm-0/slaves/sda", "../../sda")
}

fn disk(dev: u32, name: &str, lower: &[u32]) -> Event {
    Event::Disk(Disk { dev, name: name.to_owned(), lower: lower.to_vec(), stacked: false })
}

#[test]
fn a_filesystem_names_its_disk_and_those_below() {
    let tree = disks("disks");
    let mut names = names(&tree);
    let filesystem = Event::Filesystem { dev: MAPPED, magic: 0xef53, disk: MAPPED };
    let told = names.about(&filesystem, 0);
    assert_eq!(told, [disk(MAPPED, "dm-0", &[SDA, NVME]), disk(SDA, "sda", &[]), disk(NVME, "nvme0n1", &[])]);
    assert_eq!(names.about(&filesystem, 1), [], "told already");
    std::fs::remove_file(tree.root().join("sys/devices/dm-0/slaves/sda")).unwrap();
    assert_eq!(names.about(&filesystem, 2), [disk(MAPPED, "dm-0", &[NVME])], "its stack has changed");
}

#[test]
fn a_filesystem_without_a_disk_names_none() {
    let tree = disks("diskless");
    assert_eq!(names(&tree).about(&Event::Filesystem { dev: 40, magic: 1, disk: 0 }, 0), []);
    assert_eq!(names(&tree).about(&Event::Filesystem { dev: 40, magic: 1, disk: 9 << 20 }, 0), []);
}

fn wait(function: u64, stack: &[u64]) -> Event {
    Event::Wait(Box::new(Wait {
        start_ns: 0,
        end_ns: 1,
        tid: 1,
        pid: 1,
        part: 0,
        waker_tid: 2,
        waker: "kworker/0:1H".into(),
        function,
        disk: 0,
        request: None,
        flushes: [[0; 2]; 2],
        flush_tids: [0; 2],
        stack: stack.to_vec(),
    }))
}

fn symbol(address: u64, name: &str) -> Event {
    Event::Symbol { address, name: name.to_owned() }
}

#[test]
fn each_address_is_named_once() {
    let tree =
        Tree::new("symbols").file("proc/kallsyms", "1000 T blk_mq_run_work_fn\n2000 t jbd2_log_wait_commit\t[jbd2]\n");
    let mut names = names(&tree);
    let told = names.about(&wait(0x1000, &[0x2004, 0x2004, 0]), 0);
    assert_eq!(told, [symbol(0x1000, "blk_mq_run_work_fn"), symbol(0x2004, "jbd2_log_wait_commit")]);
    assert_eq!(names.about(&wait(0x1000, &[0x2008]), 0), [symbol(0x2008, "jbd2_log_wait_commit")]);
}

#[test]
fn hidden_addresses_and_missing_symbols_name_nothing() {
    let hidden = Tree::new("hidden").file("proc/kallsyms", "0 T blk_mq_run_work_fn\n");
    assert_eq!(names(&hidden).about(&wait(0x1000, &[]), 0), []);
    assert_eq!(names(&Tree::new("symbolless")).about(&wait(0x1000, &[]), 0), []);
}

#[test]
fn a_thread_has_the_name_of_its_process_for_ten_seconds() {
    let tree = Tree::new("threads")
        .file("proc/57/status", "Name:\tdirect-writer\nTgid:\t50\nPid:\t57\n")
        .file("proc/50/comm", "segment-server\n");
    let mut names = names(&tree);
    let told = Event::Task { tid: 57, pid: 50, process: "segment-server".into() };
    assert_eq!(names.tasks(&[57, 58], 0), std::slice::from_ref(&told), "58 has ended");
    assert_eq!(names.tasks(&[57], 9_999_999_999), []);
    assert_eq!(names.tasks(&[57], 10_000_000_000), [told]);
}

#[test]
fn a_process_has_a_name_an_executable_and_a_cgroup() {
    let tree = Tree::new("process")
        .file("proc/7/comm", "java\n")
        .link("proc/7/exe", "/opt/jdk/bin/java (deleted)")
        .file("proc/7/cgroup", "0::/kubepods/pod1/c\n");
    let wanted = Process {
        name: "java".into(),
        executable: Some("/opt/jdk/bin/java".into()),
        cgroup: Some("/kubepods/pod1/c".into()),
    };
    let mut known = names(&tree);
    assert_eq!(known.process(7), wanted);
    std::fs::remove_dir_all(tree.root().join("proc/7")).unwrap();
    assert_eq!(known.process(7), wanted, "remembered after its end");
    assert_eq!(names(&tree).process(7), Process::default());
    let mut told = names(&tree);
    assert_eq!(told.process_named(7, "short").name, "short", "it ended before anybody asked, and had said its name");
    assert_eq!(told.process(7).name, "short");
}

#[test]
fn on_a_host_of_both_versions_the_cgroup_is_where_the_process_is() {
    let of = |text: &str| {
        let tree = Tree::new("cgroup").file("proc/7/comm", "a\n").file("proc/7/cgroup", text);
        names(&tree).process(7).cgroup
    };
    assert_eq!(of("9:name=systemd:/system.slice/a\n0::/\n").as_deref(), Some("/system.slice/a"));
    assert_eq!(of("4:cpu,cpuacct:/docker/b\n3:memory:/docker/b\n").as_deref(), Some("/docker/b"));
    assert_eq!(of("0::/\n").as_deref(), Some("/"));
    assert_eq!(of(""), None);
}

#[test]
fn threads_and_processes_are_listed() {
    let tree = Tree::new("running")
        .file("proc/7/comm", "a\n")
        .file("proc/7/task/7/comm", "a\n")
        .file("proc/7/task/8/comm", "b c\n")
        .file("proc/12/comm", "d\n")
        .file("proc/uptime", "1\n");
    let proc: PathBuf = roots(&tree).proc;
    assert_eq!(names::running(&proc), [7, 12]);
    assert_eq!(names::threads(&proc, 7), ["a", "b c"]);
}

#[test]
fn a_stack_is_functions_from_inside_outwards() {
    let stack = "[<0>] jbd2_log_wait_commit+0xe1/0x150 [jbd2]\n[<0>] ext4_sync_file+0x19e/0x3a0\n[<0>] 0xffffffff\n";
    let tree = Tree::new("stack").file("proc/7/stack", stack).file("proc/8/stack", "[<0>] a+0x1/0x2\n".repeat(40));
    assert_eq!(names(&tree).stack_of(7), ["jbd2_log_wait_commit", "ext4_sync_file"]);
    assert_eq!(names(&tree).stack_of(8).len(), 16);
    assert_eq!(names(&tree).stack_of(9), [""; 0]);
}

#[test]
fn memory_is_counted_in_bytes() {
    let tree = Tree::new("memory")
        .file("proc/vmstat", "nr_dirty 3\nnr_dirty_threshold 90\nnr_dirty_background_threshold 40\nnr_writeback 2\nnr_writeback_temp 7\n")
        .file("proc/self/stat", "5 (a) b) R 1 2 3 4 5 6 7 8 9 10 150 50 0 0\n")
        .file("proc/self/statm", "900 10 5 1 0 3 0\n");
    let dirty = memory::page_cache(&roots(&tree)).unwrap();
    let page = dirty.dirty_bytes / 3;
    assert!(page >= 4096 && page.is_power_of_two(), "{dirty:?}");
    let wanted = PageCache {
        dirty_bytes: 3 * page,
        writeback_bytes: 2 * page,
        background_threshold_bytes: 40 * page,
        threshold_bytes: 90 * page,
    };
    assert_eq!(dirty, wanted);
    let usage = memory::usage(&roots(&tree)).unwrap();
    assert_eq!((usage.cpu_seconds, usage.resident_bytes), (2.0, 10 * page));
    assert_eq!(memory::page_cache(&roots(&Tree::new("memoryless"))), None);
}
