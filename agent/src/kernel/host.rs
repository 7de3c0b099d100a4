//! What this machine offers to the agent, and for each thing that it does not: why, what is lost, what to do.
//!
//! Knows the files that tell; must not know which probe wants what. Reading never fails: a fact that is not to be had
//! is `None` and a [`Shortfall`].

use std::path::{Path, PathBuf};

use super::btf;
use super::capability::{Capabilities, Capability};
use super::mounts::Mounts;
use super::shortfall::{self, Shortfall};

/// Where the files are: `/proc` and `/sys`, or trees of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    pub proc: PathBuf,
    pub sys: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self { proc: "/proc".into(), sys: "/sys".into() }
    }
}

/// Facts about the machine and about this process on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Release of the kernel, such as `6.12.9-amd64`. For people: nothing is chosen by it.
    pub release: Option<String>,
    pub lockdown: Option<Lockdown>,
    pub page_bytes: Option<u64>,
    /// CPUs that the kernel keeps per-CPU data for, present or not.
    pub possible_cpus: Option<u32>,
    pub capabilities: Option<Capabilities>,
    pub users: UserNamespace,
    /// The kernel's types, if it shows them.
    pub btf: Option<PathBuf>,
    pub tracefs: Option<PathBuf>,
    pub debugfs: Option<PathBuf>,
    pub cgroups: Cgroups,
    /// The most important first.
    pub shortfalls: Vec<Shortfall>,
}

/// What the kernel forbids even to root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lockdown {
    None,
    /// No writing to the kernel.
    Integrity,
    /// No reading of its memory either, which ends tracing.
    Confidentiality,
}

/// Whether capabilities of this process count for the kernel as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserNamespace {
    Initial,
    Nested,
}

/// Control groups by the filesystems that are mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroups {
    pub mode: CgroupMode,
    /// Mount point of version 2.
    pub unified: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupMode {
    /// Version 2 alone.
    Unified,
    /// Version 1 for controllers, version 2 beside it.
    Hybrid,
    /// Version 1 alone.
    Legacy,
    Absent,
}

impl Host {
    pub fn read(roots: &Roots) -> Self {
        let Roots { proc, sys } = roots;
        let status = std::fs::read_to_string(proc.join("self/status")).unwrap_or_default();
        // Without a mount table nothing counts as mounted, and each thing says so for itself.
        let mounts = Mounts::load(&proc.join("self/mountinfo")).unwrap_or_default();
        let mut host = Self {
            release: line(&proc.join("sys/kernel/osrelease")),
            lockdown: line(&sys.join("kernel/security/lockdown")).and_then(|line| Lockdown::parse(&line)),
            page_bytes: page_bytes(&proc.join("self/auxv")),
            possible_cpus: line(&sys.join("devices/system/cpu/possible")).and_then(|line| count_cpus(&line)),
            capabilities: Capabilities::parse(&status),
            users: user_namespace(&proc.join("self/uid_map")),
            btf: Some(sys.join(btf::KERNEL_FILE)).filter(|path| path.exists()),
            tracefs: mount_point(&mounts, "tracefs"),
            debugfs: mount_point(&mounts, "debugfs"),
            cgroups: Cgroups::of(&mounts),
            shortfalls: Vec::new(),
        };
        host.shortfalls = shortfall::of(&host, roots);
        host
    }

    /// Whether the process has a capability that counts. BPF and PERFMON were split off from SYS_ADMIN, which still
    /// includes them.
    pub fn may(&self, capability: Capability) -> bool {
        let held = self.capabilities.unwrap_or_default();
        let by_admin = matches!(capability, Capability::Bpf | Capability::Perfmon) && held.has(Capability::SysAdmin);
        self.users == UserNamespace::Initial && (held.has(capability) || by_admin)
    }
}

impl Lockdown {
    /// The word in brackets of `none [integrity] confidentiality`.
    fn parse(line: &str) -> Option<Self> {
        let (word, _) = line.split_once('[')?.1.split_once(']')?;
        match word {
            "none" => Some(Self::None),
            "integrity" => Some(Self::Integrity),
            "confidentiality" => Some(Self::Confidentiality),
            _ => None,
        }
    }
}

impl Cgroups {
    fn of(mounts: &Mounts) -> Self {
        let unified = mount_point(mounts, "cgroup2");
        let legacy = mount_point(mounts, "cgroup");
        let mode = match (&unified, &legacy) {
            (Some(_), None) => CgroupMode::Unified,
            (Some(_), Some(_)) => CgroupMode::Hybrid,
            (None, Some(_)) => CgroupMode::Legacy,
            (None, None) => CgroupMode::Absent,
        };
        Self { mode, unified }
    }
}

/// Where a filesystem of this type is mounted first.
fn mount_point(mounts: &Mounts, filesystem: &str) -> Option<PathBuf> {
    mounts.iter().find(|mount| mount.filesystem == filesystem).map(|mount| mount.point.clone())
}

/// The map of the initial namespace gives every id to itself, and nothing else does.
fn user_namespace(path: &Path) -> UserNamespace {
    let map = line(path).unwrap_or_default();
    let words: Vec<&str> = map.split_ascii_whitespace().collect();
    // A kernel without user namespaces has no such file.
    if words.is_empty() || words == ["0", "0", "4294967295"] { UserNamespace::Initial } else { UserNamespace::Nested }
}

/// CPUs in a list such as `0-3,8`.
fn count_cpus(list: &str) -> Option<u32> {
    list.split(',').try_fold(0_u32, |count, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        count.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

/// Page size from the words that the kernel passes to each program: pairs of a key and a value.
fn page_bytes(path: &Path) -> Option<u64> {
    let bytes = std::fs::read(path).ok()?;
    let words: Vec<u64> =
        bytes.chunks_exact(8).filter_map(|word| Some(u64::from_ne_bytes(*word.first_chunk()?))).collect();
    words.chunks_exact(2).find(|pair| pair[0] == libc::AT_PAGESZ).map(|pair| pair[1])
}

fn line(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    text.lines().next().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty())
}
