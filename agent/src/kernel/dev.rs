//! Number of a device, in the forms that the kernel writes it.

use std::str::FromStr;

/// Major and minor number of a block device, or of a filesystem without one (then the major is 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dev {
    pub major: u32,
    pub minor: u32,
}

impl Dev {
    /// From the kernel's own `dev_t`: 12 bits of major, 20 of minor.
    pub const fn from_kernel(number: u32) -> Self {
        Self { major: number >> 20, minor: number & 0xf_ffff }
    }

    /// From the `st_dev` or `st_rdev` that `stat` gives, which interleaves them.
    pub const fn from_stat(number: u64) -> Self {
        Self { major: libc::major(number), minor: libc::minor(number) }
    }
}

impl std::fmt::Display for Dev {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}:{}", self.major, self.minor)
    }
}

/// What a text that should be `major:minor` holds instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("reading a device number: \"{0}\" is not of the form major:minor, such as 259:0")]
pub struct DevError(String);

impl FromStr for Dev {
    type Err = DevError;

    fn from_str(text: &str) -> Result<Self, DevError> {
        let fail = || DevError(text.to_owned());
        let (major, minor) = text.trim().split_once(':').ok_or_else(fail)?;
        let number = |text: &str| text.parse().map_err(|_| fail());
        Ok(Self { major: number(major)?, minor: number(minor)? })
    }
}
