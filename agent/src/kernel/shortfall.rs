//! What the machine lacks, in words: one row for each thing, with the reason, the loss and the remedy.

use super::capability::Capability;
use super::host::{CgroupMode, Host, Lockdown, Roots, UserNamespace};

/// One thing that is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortfall {
    /// The thing, such as `capability SYSLOG`.
    pub what: String,
    pub need: Need,
    /// What was seen.
    pub reason: String,
    /// What does not work without it.
    pub lost: &'static str,
    pub felt: Felt,
    pub advice: String,
}

/// Where the lack of a thing is felt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Felt {
    /// Only where a probe is refused: once all are attached, nothing is lost.
    Attaching,
    /// In what is told of syncs, or everywhere.
    Reports,
}

/// Whether the agent works without the thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    Required,
    Optional,
}

impl std::fmt::Display for Shortfall {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { what, need: _, reason, lost, felt: _, advice } = self;
        write!(formatter, "{what} is missing: {reason}, so {lost}; {advice}")
    }
}

/// All that a host lacks, what is required first.
pub(super) fn of(host: &Host, roots: &Roots) -> Vec<Shortfall> {
    let mut rows = Vec::new();
    rows.extend(types(host, roots));
    rows.extend(lockdown(host, roots));
    rows.extend(capabilities(host, roots));
    rows.extend(mounted(host));
    rows.extend(readings(host, roots));
    rows.sort_by_key(|row| row.need);
    rows
}

fn types(host: &Host, roots: &Roots) -> Option<Shortfall> {
    host.btf.is_none().then(|| Shortfall {
        what: "the kernel's type information".to_owned(),
        need: Need::Required,
        reason: format!("{} is not there", roots.sys.join(super::btf::KERNEL_FILE).display()),
        lost: "the probes cannot find a single field",
        felt: Felt::Reports,
        advice: "mount /sys, or run a kernel built with CONFIG_DEBUG_INFO_BTF=y".to_owned(),
    })
}

fn lockdown(host: &Host, roots: &Roots) -> Option<Shortfall> {
    let row = |what: &str, need, reason, lost, advice: &str| Shortfall {
        what: what.to_owned(),
        need,
        reason,
        lost,
        felt: Felt::Attaching,
        advice: advice.to_owned(),
    };
    match host.lockdown {
        Some(Lockdown::Confidentiality) => Some(row(
            "permission to read kernel memory",
            Need::Required,
            "the kernel is locked down for confidentiality".to_owned(),
            "no probe may read a field",
            "boot with lockdown=integrity, or without it",
        )),
        Some(Lockdown::None | Lockdown::Integrity) => None,
        // Nothing is wrong if the kernel has no lockdown: then its directory is mounted and the file is not in it.
        None if is_mounted(roots) => None,
        None => Some(row(
            "the lockdown mode",
            Need::Optional,
            format!("{} is not mounted", roots.sys.join("kernel/security").display()),
            "a lockdown would show only as probes that the kernel refuses",
            "mount it with mount -t securityfs securityfs /sys/kernel/security",
        )),
    }
}

fn is_mounted(roots: &Roots) -> bool {
    let entries = std::fs::read_dir(roots.sys.join("kernel/security"));
    entries.is_ok_and(|mut entries| entries.next().is_some())
}

fn capabilities(host: &Host, roots: &Roots) -> Vec<Shortfall> {
    let Some(held) = host.capabilities else {
        return vec![Shortfall {
            what: "the list of this process's capabilities".to_owned(),
            need: Need::Optional,
            reason: format!("{} cannot be read", roots.proc.join("self/status").display()),
            lost: "a privilege that is missing would show only as an error later",
            felt: Felt::Reports,
            advice: "mount /proc".to_owned(),
        }];
    };
    if host.users == UserNamespace::Nested {
        return vec![Shortfall {
            what: "privilege over the kernel".to_owned(),
            need: Need::Required,
            reason: "this process runs in a user namespace, where capabilities do not count for the kernel".to_owned(),
            lost: "no probe can be loaded",
            felt: Felt::Attaching,
            advice: "run it in the host's user namespace, in Kubernetes with hostUsers: true".to_owned(),
        }];
    }
    held.missing().filter(|capability| !host.may(*capability)).filter_map(|each| capability(each, roots)).collect()
}

fn capability(capability: Capability, roots: &Roots) -> Option<Shortfall> {
    let (need, lost) = match capability {
        Capability::Bpf => (Need::Required, "no probe can be loaded"),
        Capability::Perfmon => (Need::Required, "no probe may read a field or be attached"),
        // It is asked for only in place of BPF and PERFMON, which have rows of their own.
        Capability::SysAdmin => return None,
        Capability::Syslog => (
            Need::Optional,
            "kernel functions have no addresses: flusher, throttle and loop device are taken for any worker, syncs \
             through Linux AIO are not seen, and stacks have no names",
        ),
        Capability::SysPtrace => (
            Need::Optional,
            "executables and open files of other processes are not seen: no selection by executable, no writers",
        ),
        Capability::DacReadSearch => (
            Need::Optional,
            "open files of other users' processes are not seen, nor files in directories that are theirs alone",
        ),
        // Where locked memory has no limit nothing has to be raised.
        Capability::SysResource if is_memory_unlimited(roots) => return None,
        Capability::SysResource => {
            (Need::Optional, "kernels that count maps as locked memory (before 5.11) refuse large ones")
        }
    };
    let name = capability.name();
    let felt = if capability == Capability::SysResource { Felt::Attaching } else { Felt::Reports };
    Some(Shortfall {
        what: format!("capability {name}"),
        need,
        reason: "this process does not have it".to_owned(),
        lost,
        felt,
        advice: format!("add {name} to the capabilities of the service or container, or run as root of the host"),
    })
}

fn is_memory_unlimited(roots: &Roots) -> bool {
    let limits = std::fs::read_to_string(roots.proc.join("self/limits")).unwrap_or_default();
    let rest = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"));
    rest.is_some_and(|rest| rest.trim_start().starts_with("unlimited"))
}

fn mounted(host: &Host) -> Vec<Shortfall> {
    let mut rows = Vec::new();
    // Where debugfs is mounted, the kernel mounts tracefs below it at the first look.
    if host.tracefs.is_none() && host.debugfs.is_none() {
        rows.push(Shortfall {
            what: "the tracing filesystem".to_owned(),
            need: Need::Optional,
            reason: "neither tracefs nor debugfs is mounted".to_owned(),
            lost: "tracepoints that have no type information cannot be attached",
            felt: Felt::Attaching,
            advice: "mount it with mount -t tracefs tracefs /sys/kernel/tracing".to_owned(),
        });
    }
    if host.cgroups.mode == CgroupMode::Absent {
        rows.push(Shortfall {
            what: "a control group hierarchy".to_owned(),
            need: Need::Optional,
            reason: "neither cgroup2 nor cgroup is mounted".to_owned(),
            lost: "processes cannot be chosen or named by their cgroup or pod",
            felt: Felt::Reports,
            advice: "mount it with mount -t cgroup2 cgroup2 /sys/fs/cgroup".to_owned(),
        });
    }
    rows
}

/// Plain numbers that every kernel shows: without one of them the file tree is not what it should be.
fn readings(host: &Host, roots: &Roots) -> Vec<Shortfall> {
    let proc = |file: &str| roots.proc.join(file).display().to_string();
    let sys = |file: &str| roots.sys.join(file).display().to_string();
    let rows = [
        (
            host.release.is_none(),
            "the kernel's release",
            proc("sys/kernel/osrelease"),
            "reports do not name the kernel",
        ),
        (host.page_bytes.is_none(), "the page size", proc("self/auxv"), "4096 bytes are assumed"),
        (
            host.possible_cpus.is_none(),
            "the number of CPUs",
            sys("devices/system/cpu/possible"),
            "per-CPU values cannot be read",
        ),
    ];
    let row = |(missing, what, file, lost): (bool, &str, String, &'static str)| {
        missing.then(|| Shortfall {
            what: what.to_owned(),
            need: Need::Optional,
            reason: format!("{file} cannot be read"),
            lost,
            felt: Felt::Reports,
            advice: "mount /proc and /sys where this process runs".to_owned(),
        })
    };
    rows.into_iter().filter_map(row).collect()
}
