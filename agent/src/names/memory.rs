//! The page cache against its thresholds, and what the agent itself uses.

use std::path::Path;

use crate::event::PageCache;
use crate::kernel::host::Roots;

/// What the agent has used since its start, and its memory now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    pub cpu_seconds: f64,
    pub resident_bytes: u64,
}

/// `None` where the kernel shows no such counters.
pub fn page_cache(roots: &Roots) -> Option<PageCache> {
    let text = std::fs::read_to_string(roots.proc.join("vmstat")).ok()?;
    let page = page_bytes()?;
    let bytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        line.trim().parse::<u64>().ok()?.checked_mul(page)
    };
    Some(PageCache {
        dirty_bytes: bytes("nr_dirty")?,
        writeback_bytes: bytes("nr_writeback")?,
        background_threshold_bytes: bytes("nr_dirty_background_threshold")?,
        threshold_bytes: bytes("nr_dirty_threshold")?,
    })
}

/// `None` if `/proc` does not show this process.
pub fn usage(roots: &Roots) -> Option<Usage> {
    let own = roots.proc.join("self");
    Some(Usage { cpu_seconds: cpu_seconds(&own)?, resident_bytes: resident_bytes(&own)? })
}

/// The name in `stat` may hold blanks and parentheses, so fields are counted behind the last one: state is the first,
/// user and system time are the 12th and 13th, in clock ticks.
fn cpu_seconds(directory: &Path) -> Option<f64> {
    let text = std::fs::read_to_string(directory.join("stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    let mut times = rest.split_ascii_whitespace().skip(11).map(|word| word.parse::<u64>().ok());
    let ticks = times.next()??.saturating_add(times.next()??);
    Some(ticks as f64 / setting(libc::_SC_CLK_TCK)? as f64)
}

fn resident_bytes(directory: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(directory.join("statm")).ok()?;
    text.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(page_bytes()?)
}

fn page_bytes() -> Option<u64> {
    setting(libc::_SC_PAGESIZE)
}

fn setting(name: libc::c_int) -> Option<u64> {
    // SAFETY: it takes a number and touches no memory of ours.
    let value = unsafe { libc::sysconf(name) };
    u64::try_from(value).ok().filter(|value| *value != 0)
}
