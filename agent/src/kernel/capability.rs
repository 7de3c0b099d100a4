//! Privileges of this process that the agent has a use for.

/// A capability by its number in the kernel's `include/uapi/linux/capability.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Capability {
    DacReadSearch = 2,
    SysPtrace = 19,
    SysAdmin = 21,
    SysResource = 24,
    Syslog = 34,
    Perfmon = 38,
    Bpf = 39,
}

impl Capability {
    pub const ALL: [Self; 7] = [
        Self::Bpf,
        Self::Perfmon,
        Self::SysAdmin,
        Self::Syslog,
        Self::SysPtrace,
        Self::DacReadSearch,
        Self::SysResource,
    ];

    /// Its name as container configurations write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DacReadSearch => "DAC_READ_SEARCH",
            Self::SysPtrace => "SYS_PTRACE",
            Self::SysAdmin => "SYS_ADMIN",
            Self::SysResource => "SYS_RESOURCE",
            Self::Syslog => "SYSLOG",
            Self::Perfmon => "PERFMON",
            Self::Bpf => "BPF",
        }
    }
}

/// The effective capabilities of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    mask: u64,
}

impl Capabilities {
    /// From the text of `/proc/<pid>/status`; `None` if it does not tell.
    pub fn parse(status: &str) -> Option<Self> {
        let digits = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        Some(Self { mask: u64::from_str_radix(digits.trim(), 16).ok()? })
    }

    pub const fn has(self, capability: Capability) -> bool {
        self.mask >> capability as u8 & 1 == 1
    }

    /// Capabilities out of [`Capability::ALL`] that the process lacks.
    pub fn missing(self) -> impl Iterator<Item = Capability> {
        Capability::ALL.into_iter().filter(move |capability| !self.has(*capability))
    }
}
