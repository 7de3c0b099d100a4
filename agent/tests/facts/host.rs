//! What a machine offers, from trees that stand for `/proc` and `/sys`.

use fsyncscope::kernel::capability::Capability;
use fsyncscope::kernel::host::{CgroupMode, Host, Lockdown, Roots, UserNamespace};
use fsyncscope::kernel::shortfall::Need;

use crate::tree::Tree;

const MOUNTS: &str = "\
1 0 8:1 / / rw - ext4 /dev/sda1 rw
2 1 0:3 / /sys/kernel/tracing rw - tracefs tracefs rw
3 1 0:4 / /sys/kernel/debug rw - debugfs debugfs rw
4 1 0:5 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw
";

/// A machine that lacks nothing.
fn machine(name: &str) -> Tree {
    let auxv: Vec<u8> = [33_u64, 7, 6, 16384, 0, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
    Tree::new(name)
        .file("proc/self/status", "Name:\ta\nCapInh:\t0000000000000000\nCapEff:\t000001ffffffffff\n")
        .file("proc/self/mountinfo", MOUNTS)
        .file("proc/self/uid_map", "         0          0 4294967295\n")
        .file("proc/self/auxv", auxv)
        .file("proc/sys/kernel/osrelease", "6.12.9-test\n")
        .file("sys/kernel/security/lockdown", "none [integrity] confidentiality\n")
        .file("sys/devices/system/cpu/possible", "0-3,8,10-11\n")
        .file("sys/kernel/btf/vmlinux", "")
}

fn read(tree: &Tree) -> Host {
    Host::read(&Roots { proc: tree.root().join("proc"), sys: tree.root().join("sys") })
}

/// What is missing, with the root of the tree taken out of the words.
fn missing(tree: &Tree) -> Vec<String> {
    let root = tree.root().to_str().unwrap().to_owned();
    read(tree).shortfalls.iter().map(|row| row.to_string().replace(&root, "")).collect()
}

#[test]
fn reads_a_machine_that_lacks_nothing() {
    let tree = machine("whole");
    let host = read(&tree);
    assert_eq!(host.shortfalls, []);
    assert_eq!(host.release.as_deref(), Some("6.12.9-test"));
    assert_eq!(host.lockdown, Some(Lockdown::Integrity));
    assert_eq!(host.page_bytes, Some(16384));
    assert_eq!(host.possible_cpus, Some(7));
    assert_eq!(host.users, UserNamespace::Initial);
    assert_eq!(host.btf, Some(tree.root().join("sys/kernel/btf/vmlinux")));
    assert_eq!(host.tracefs.as_deref(), Some("/sys/kernel/tracing".as_ref()));
    assert_eq!(host.debugfs.as_deref(), Some("/sys/kernel/debug".as_ref()));
    assert_eq!(host.cgroups.mode, CgroupMode::Unified);
    assert_eq!(host.cgroups.unified.as_deref(), Some("/sys/fs/cgroup".as_ref()));
    assert!(Capability::ALL.into_iter().all(|capability| host.may(capability)));
}

#[test]
fn an_empty_machine_names_everything() {
    let tree = Tree::new("empty");
    let rows = read(&tree).shortfalls;
    assert_eq!(rows[0].need, Need::Required);
    assert!(rows[1..].iter().all(|row| row.need == Need::Optional));
    let words: Vec<&str> = rows.iter().map(|row| row.what.as_str()).collect();
    let wanted = [
        "the kernel's type information",
        "the lockdown mode",
        "the list of this process's capabilities",
        "the tracing filesystem",
        "a control group hierarchy",
        "the kernel's release",
        "the page size",
        "the number of CPUs",
    ];
    assert_eq!(words, wanted);
}

#[test]
fn a_missing_capability_says_what_is_lost() {
    // All but SYSLOG.
    let tree = machine("syslog").file("proc/self/status", "CapEff:\t000001fbffffffff\n");
    assert_eq!(
        missing(&tree),
        [
            "capability SYSLOG is missing: this process does not have it, so kernel functions have no addresses: flusher, \
             throttle and loop device are taken for any worker, syncs through Linux AIO are not seen, and stacks have no \
             names; add SYSLOG to the capabilities \
             of the service or container, or run as root of the host"
        ]
    );
    assert_eq!(read(&tree).shortfalls[0].need, Need::Optional);
}

#[test]
fn an_unprivileged_process_lacks_what_is_required_first() {
    let tree = machine("unprivileged").file("proc/self/status", "CapEff:\t0000000000000000\n");
    let rows = read(&tree).shortfalls;
    let words: Vec<(&str, Need)> = rows.iter().map(|row| (row.what.as_str(), row.need)).collect();
    let wanted = [
        ("capability BPF", Need::Required),
        ("capability PERFMON", Need::Required),
        ("capability SYSLOG", Need::Optional),
        ("capability SYS_PTRACE", Need::Optional),
        ("capability DAC_READ_SEARCH", Need::Optional),
        ("capability SYS_RESOURCE", Need::Optional),
    ];
    assert_eq!(words, wanted);
}

#[test]
fn the_administrators_capability_includes_two_others() {
    // SYS_ADMIN alone.
    let host = read(&machine("admin").file("proc/self/status", "CapEff:\t0000000000200000\n"));
    assert!(host.may(Capability::Bpf) && host.may(Capability::Perfmon) && !host.may(Capability::Syslog));
    assert!(host.shortfalls.iter().all(|row| row.need == Need::Optional));
}

#[test]
fn locked_memory_without_a_limit_needs_no_capability() {
    let tree = machine("memory")
        .file("proc/self/status", "CapEff:\t000001fffeffffff\n")
        .file("proc/self/limits", "Limit Soft Limit\nMax locked memory         unlimited   unlimited   bytes\n");
    assert_eq!(missing(&tree), [] as [&str; 0]);
    let tree = machine("little").file("proc/self/status", "CapEff:\t000001fffeffffff\n");
    assert_eq!(read(&tree).shortfalls[0].what, "capability SYS_RESOURCE");
}

#[test]
fn capabilities_in_a_user_namespace_do_not_count() {
    let tree = machine("namespace").file("proc/self/uid_map", "         0     100000      65536\n");
    let host = read(&tree);
    assert_eq!(host.users, UserNamespace::Nested);
    assert!(!host.may(Capability::Bpf));
    assert_eq!((host.shortfalls.len(), host.shortfalls[0].need), (1, Need::Required));
}

#[test]
fn confidentiality_ends_tracing() {
    let tree = machine("confidential").file("sys/kernel/security/lockdown", "none integrity [confidentiality]\n");
    assert_eq!(
        missing(&tree),
        [
            "permission to read kernel memory is missing: the kernel is locked down for confidentiality, so no probe may \
          read a field; boot with lockdown=integrity, or without it"
        ]
    );
}

#[test]
fn a_kernel_without_lockdown_lacks_nothing() {
    let tree = machine("lockless").file("sys/kernel/security/lsm", "capability\n");
    std::fs::remove_file(tree.root().join("sys/kernel/security/lockdown")).unwrap();
    assert_eq!(missing(&tree), [] as [&str; 0]);
    assert_eq!(read(&tree).lockdown, None);
}

#[test]
fn tells_the_modes_of_control_groups() {
    let mode = |name: &str, mounts: &str| read(&machine(name).file("proc/self/mountinfo", mounts)).cgroups;
    let legacy = "1 0 0:5 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
    let hybrid =
        "1 0 0:5 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n2 0 0:6 / /sys/fs/cgroup/unified rw - cgroup2 c rw\n";
    assert_eq!(mode("legacy", legacy).mode, CgroupMode::Legacy);
    assert_eq!(mode("hybrid", hybrid).mode, CgroupMode::Hybrid);
    assert_eq!(mode("hybrid2", hybrid).unified.as_deref(), Some("/sys/fs/cgroup/unified".as_ref()));
    assert_eq!(mode("none", "").mode, CgroupMode::Absent);
}

#[test]
fn nonsense_in_a_file_is_not_a_fact() {
    let tree = machine("nonsense")
        .file("sys/devices/system/cpu/possible", "3-1\n")
        .file("sys/kernel/security/lockdown", "secret\n")
        .file("proc/self/auxv", [1, 2, 3])
        .file("proc/self/status", "CapEff:\tzz\n");
    let host = read(&tree);
    assert_eq!((host.possible_cpus, host.lockdown, host.page_bytes, host.capabilities), (None, None, None, None));
}
