//! Distance between the clock that the kernel stamps events with and the one on the wall.

/// How far the wall clock is ahead of the monotonic clock. It changes when the wall clock is set, so a daemon samples
/// it again from time to time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    /// `unix_ns = monotonic_ns + offset_ns`.
    pub offset_ns: i64,
    /// The offset is right within this much to either side.
    pub uncertainty_ns: u64,
}

#[derive(Debug, thiserror::Error)]
#[error("reading the clocks: {0}; this is a defect of the kernel or of the sandbox around it")]
pub struct ClockError(std::io::Error);

/// Samples taken: one of them is not interrupted, and that is the tightest.
const SAMPLES: usize = 16;

impl ClockOffset {
    /// Reads the wall clock between two readings of the monotonic clock, and keeps the tightest of several tries.
    pub fn sample() -> Result<Self, ClockError> {
        let mut best: Option<Self> = None;
        for _ in 0..SAMPLES {
            let before = now_ns(libc::CLOCK_MONOTONIC)?;
            let wall = now_ns(libc::CLOCK_REALTIME)?;
            let after = now_ns(libc::CLOCK_MONOTONIC)?;
            let sample = Self::between(before, wall, after);
            if best.is_none_or(|best| sample.uncertainty_ns < best.uncertainty_ns) {
                best = Some(sample);
            }
        }
        best.ok_or_else(|| ClockError(std::io::ErrorKind::InvalidData.into()))
    }

    /// The offset from a wall time that was read between two monotonic times.
    pub fn between(before_ns: i64, wall_ns: i64, after_ns: i64) -> Self {
        let width = after_ns.saturating_sub(before_ns).max(0);
        let middle = before_ns.saturating_add(width / 2);
        Self { offset_ns: wall_ns.saturating_sub(middle), uncertainty_ns: (width / 2 + width % 2).unsigned_abs() }
    }

    /// Time since 1970 of a monotonic time; 0 for what would lie before.
    pub fn unix_ns(&self, monotonic_ns: u64) -> u64 {
        monotonic_ns.saturating_add_signed(self.offset_ns)
    }
}

fn now_ns(clock: libc::clockid_t) -> Result<i64, ClockError> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of our own that outlives the call.
    let status = unsafe { libc::clock_gettime(clock, &raw mut time) };
    if status != 0 {
        return Err(ClockError(std::io::Error::last_os_error()));
    }
    Ok(time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec))
}
