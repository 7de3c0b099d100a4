//! Percentiles of each thread's syncs over a sliding minute, for those who look without a Prometheus of their own.
//!
//! Knows hdrhistogram and the Prometheus client. Time enters as a number of nanoseconds.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hdrhistogram::Histogram;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;

use crate::limits;

use super::family::Clock;
use super::labels::{PercentileLabels, ThreadLabels};

/// The minute is six windows of ten seconds; the oldest is forgotten as a whole.
const WINDOW_NS: u64 = 10_000_000_000;
const WINDOWS: usize = 6;

/// Two significant digits: an error of one per cent, and 5 KiB instead of 50 a window.
const SIGNIFICANT_DIGITS: u8 = 2;

/// Label value and quantile. The last is the true maximum.
const PERCENTILES: [(&str, f64); 5] = [("50", 0.5), ("90", 0.9), ("99", 0.99), ("99.9", 0.999), ("100", 1.0)];

/// Whether a sync found a place.
#[derive(Debug, PartialEq, Eq)]
pub enum Recorded {
    Kept,
    NoRoom,
}

/// All threads' windows. Clones share them.
#[derive(Clone, Debug)]
pub struct Percentiles {
    threads: Arc<Mutex<HashMap<ThreadLabels, Minute>>>,
    clock: Clock,
}

impl Percentiles {
    pub fn new(clock: Clock) -> Self {
        Self { threads: Arc::default(), clock }
    }

    pub fn record(&self, labels: ThreadLabels, duration_ns: u64) -> Recorded {
        let now_ns = self.clock.now_ns();
        let mut threads = self.lock();
        if threads.len() >= limits::PERCENTILE_LABEL_SETS_MAX && !threads.contains_key(&labels) {
            threads.retain(|_, minute| !minute.is_over(now_ns));
            if threads.len() >= limits::PERCENTILE_LABEL_SETS_MAX {
                return Recorded::NoRoom;
            }
        }
        threads.entry(labels).or_default().record(now_ns, duration_ns);
        Recorded::Kept
    }

    pub fn retain(&self, mut keep: impl FnMut(&ThreadLabels) -> bool) {
        self.lock().retain(|labels, _| keep(labels));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ThreadLabels, Minute>> {
        // A histogram is changed by one addition, so what a panicking holder left behind is whole.
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EncodeMetric for Percentiles {
    fn encode(&self, mut encoder: MetricEncoder) -> Result<(), fmt::Error> {
        let now_ns = self.clock.now_ns();
        let mut threads = self.lock();
        threads.retain(|_, minute| !minute.is_over(now_ns));
        for (thread, minute) in threads.iter() {
            let Some(all) = minute.sum(now_ns) else { continue };
            for (percentile, quantile) in PERCENTILES {
                let seconds = all.value_at_quantile(quantile) as f64 / 1e6;
                encoder.encode_family(&PercentileLabels { thread, percentile })?.encode_gauge(&seconds)?;
            }
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }

    fn is_empty(&self) -> bool {
        let now_ns = self.clock.now_ns();
        self.lock().values().all(|minute| minute.is_over(now_ns))
    }
}

/// The last six windows of one thread, in microseconds. A window's place is its number modulo six.
#[derive(Debug, Default)]
struct Minute {
    windows: [Option<(u64, Histogram<u32>)>; WINDOWS],
}

impl Minute {
    fn record(&mut self, now_ns: u64, duration_ns: u64) {
        let number = now_ns / WINDOW_NS;
        let place = &mut self.windows[(number % WINDOWS as u64) as usize];
        if place.as_ref().is_none_or(|(held, _)| *held != number) {
            // Two digits are always within what hdrhistogram accepts; were it to refuse, the window stays empty.
            *place = Histogram::new(SIGNIFICANT_DIGITS).ok().map(|fresh| (number, fresh));
        }
        if let Some((_, histogram)) = place {
            // Rounded up: a sync never looks shorter than it was. The histogram grows by itself, so it refuses nothing.
            let _grown = histogram.record(duration_ns.div_ceil(1000));
        }
    }

    fn sum(&self, now_ns: u64) -> Option<Histogram<u32>> {
        let mut all: Option<Histogram<u32>> = None;
        for (_, window) in self.windows.iter().flatten().filter(|(number, _)| is_recent(*number, now_ns)) {
            match &mut all {
                None => all = Some(window.clone()),
                Some(all) => all.add(window).ok()?,
            }
        }
        all.filter(|all| !all.is_empty())
    }

    fn is_over(&self, now_ns: u64) -> bool {
        !self.windows.iter().flatten().any(|(number, _)| is_recent(*number, now_ns))
    }
}

fn is_recent(number: u64, now_ns: u64) -> bool {
    (now_ns / WINDOW_NS).saturating_sub(number) < WINDOWS as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn the_minute_slides() {
        let mut minute = Minute::default();
        for i in 1..=1000 {
            minute.record(SECOND, i * 1_000_000);
        }
        let all = minute.sum(SECOND).unwrap();
        for (quantile, ms) in [(0.5, 500.0), (0.99, 990.0), (0.999, 999.0), (1.0, 1000.0)] {
            let found = all.value_at_quantile(quantile) as f64 / 1000.0;
            assert!((found - ms).abs() / ms < 0.011, "{quantile}: {found} ms for {ms} ms");
        }
        minute.record(55 * SECOND, 1_000_000);
        assert_eq!(minute.sum(59 * SECOND).unwrap().len(), 1001);
        assert_eq!(minute.sum(60 * SECOND).unwrap().len(), 1, "the first window is over");
        assert!(!minute.is_over(109 * SECOND) && minute.is_over(110 * SECOND));
        assert!(minute.sum(110 * SECOND).is_none());
    }

    #[test]
    fn a_hang_of_an_hour_is_recorded() {
        let mut minute = Minute::default();
        minute.record(0, 3600 * SECOND);
        assert!(minute.sum(0).unwrap().max() >= 3_600_000_000);
    }

    #[test]
    fn threads_without_room_are_refused_until_others_are_over() {
        let clock = Clock::default();
        let percentiles = Percentiles::new(clock.clone());
        let labels = |i: usize| ThreadLabels { process: "p".into(), thread: i.to_string(), device: "d".into() };
        for i in 0..limits::PERCENTILE_LABEL_SETS_MAX {
            assert_eq!(percentiles.record(labels(i), 1), Recorded::Kept);
        }
        assert_eq!(percentiles.record(labels(1_000_000), 1), Recorded::NoRoom);
        clock.set(61 * SECOND);
        assert_eq!(percentiles.record(labels(1_000_000), 1), Recorded::Kept);
    }
}
