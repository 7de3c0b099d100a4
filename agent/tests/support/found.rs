//! How much of a hog's bursts is found in the syncs that met them, and whether the hog is named.

use std::ops::RangeInclusive;

use serde_json::Value;

use super::agent::field;
use super::figure;
use super::verdict::waited_for_cpu_ns;

/// A burst is found where so much of it is in the parts that are waits for a CPU.
pub const FOUND: f64 = 0.9;
/// Where no more than this was waited for, nobody but the hog held the CPU for long.
const CLEAR: RangeInclusive<f64> = FOUND..=1.2;

/// What was found of the bursts that syncs met.
#[derive(Default)]
pub struct Found {
    pub shares: Vec<f64>,
    pub waited_ns: u64,
    pub true_ns: u64,
    pub clear: usize,
    pub named: usize,
}

impl Found {
    /// Takes a sync that met so much of a burst, and whose cause should be this.
    pub fn add(&mut self, sync: &Value, truth: u64, cause: &str) {
        let waited = waited_for_cpu_ns(sync);
        let share = waited as f64 / truth as f64;
        self.shares.push(share);
        self.waited_ns += waited;
        self.true_ns += truth;
        let right = field::text(sync, "/cause") == cause && sync["culprit"].to_string().contains("cpu-hog");
        let is_clear = CLEAR.contains(&share);
        self.clear += usize::from(is_clear);
        self.named += usize::from(is_clear && right);
        if share < 0.5 || is_clear && !right {
            eprintln!(
                "{share:.2}: {} {} {} {}",
                field::text(sync, "/cause"),
                sync["culprit"],
                sync["evidence"],
                sync["parts"]
            );
        }
    }

    /// What `scripts/spread.sh` collects.
    pub fn print(&self, cause: &str) {
        let Self { shares, waited_ns, true_ns, clear, named } = self;
        eprintln!("{} syncs met a burst; share of it that was found: {shares:.2?}", shares.len());
        let (all, found) = (shares.len() as f64, shares.iter().filter(|share| **share >= FOUND).count());
        figure(&format!("{cause}.time"), *waited_ns as f64 / *true_ns as f64);
        figure(&format!("{cause}.found"), found as f64 / all);
        figure(&format!("{cause}.fifth"), shares.get(shares.len() / 5).copied().unwrap_or(0.0));
        figure(&format!("{cause}.clear"), *clear as f64 / all);
        figure(&format!("{cause}.named"), *named as f64 / *clear as f64);
    }
}
