//! The slowest syncs of a while, beside how long the others took.

use anyhow::Context;
use hdrhistogram::Histogram;

use crate::attribution::Explanation;
use crate::tracer::Outcome;

/// What is printed of it has three digits.
const SIGNIFICANT_DIGITS: u8 = 3;
/// Anything longer counts as so long.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Keeps the slowest of what it is given.
pub struct Worst<T = Explanation> {
    keep: usize,
    /// With its nanoseconds; the slowest first.
    kept: Vec<(u64, T)>,
    /// Nanoseconds of all.
    durations: Histogram<u64>,
    longest_ns: u64,
}

impl Worst {
    pub fn take(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Fast(sync) => self.count(sync.duration_ns()),
            Outcome::Slow(slow) => self.add(slow.sync.duration_ns(), slow),
            Outcome::Open(_) | Outcome::Began(_) | Outcome::Ended(_) => {}
        }
    }
}

impl<T: Clone> Worst<T> {
    pub fn new(keep: usize) -> anyhow::Result<Self> {
        let durations =
            Histogram::new_with_max(LONGEST_NS, SIGNIFICANT_DIGITS).context("could not make a histogram")?;
        Ok(Self { keep, kept: Vec::new(), durations, longest_ns: 0 })
    }

    fn count(&mut self, duration_ns: u64) {
        self.durations.saturating_record(duration_ns);
        self.longest_ns = self.longest_ns.max(duration_ns);
    }

    fn add(&mut self, duration_ns: u64, sync: &T) {
        self.count(duration_ns);
        let place = self.kept.partition_point(|(kept_ns, _)| *kept_ns >= duration_ns);
        if place < self.keep {
            self.kept.insert(place, (duration_ns, sync.clone()));
            self.kept.truncate(self.keep);
        }
    }

    /// Nanoseconds that a sync must take to be kept.
    pub fn least_ns(&self) -> u64 {
        let is_full = self.kept.len() >= self.keep;
        self.kept.last().filter(|_| is_full).map_or(0, |(last_ns, _)| *last_ns)
    }

    /// The slowest first.
    pub fn kept(&self) -> impl Iterator<Item = &T> {
        self.kept.iter().map(|(_, sync)| sync)
    }

    pub fn sentence(&self) -> String {
        let ms = |ns: u64| ns as f64 / 1e6;
        match self.durations.len() {
            0 => "no sync was seen".into(),
            number => format!(
                "{number} syncs, half of them under {:.2} ms, the worst {:.2} ms.",
                ms(self.durations.value_at_quantile(0.5)),
                ms(self.longest_ns),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worst(keep: usize, durations_ms: &[u64]) -> Worst<u64> {
        let mut worst = Worst::new(keep).expect("a histogram");
        durations_ms.iter().for_each(|ms| worst.add(ms * 1_000_000, ms));
        worst
    }

    #[test]
    fn the_slowest_are_kept_whenever_they_came() {
        let durations_ms = [5, 900, 1, 7, 2];
        let two = worst(2, &durations_ms);
        assert_eq!((two.kept().copied().collect(), two.least_ns()), (vec![900, 7], 7_000_000));
        assert_eq!(two.sentence(), "5 syncs, half of them under 5.00 ms, the worst 900.00 ms.");
        let all = worst(9, &durations_ms);
        assert_eq!((all.kept().count(), all.least_ns()), (5, 0), "until there are enough, each is kept");
        assert_eq!(worst(2, &[]).sentence(), "no sync was seen");
    }
}
