//! The values that metrics hold: counts, seconds, gauges and the kernel's histograms.
//!
//! Knows the Prometheus client. Times are whole nanoseconds until the moment they are shown, so nothing drifts.

use std::fmt;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// A counter of things.
#[derive(Debug, Default)]
pub struct Count(pub u64);

/// A counter of time, kept in nanoseconds and shown in seconds.
#[derive(Debug, Default)]
pub struct Seconds {
    pub ns: u64,
}

/// A counter of time that is already in seconds.
#[derive(Debug, Default)]
pub struct SecondsRead(pub f64);

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct Level(pub f64);

/// Buckets of one of the kernel side's histograms: bucket 0 counts requests under 1 us, bucket i those from 2^(i-1) to
/// 2^i us, the last one all that took longer too.
pub const LOG2_BUCKETS: usize = 24;

/// A cumulative histogram as the kernel side keeps it.
#[derive(Debug, Default)]
pub struct Log2Histogram {
    pub buckets: [u64; LOG2_BUCKETS],
    pub sum_ns: u64,
}

impl Log2Histogram {
    /// Takes over what the kernel counted. Buckets beyond the known ones are added to the last: none is lost.
    pub fn set(&mut self, buckets: &[u64], sum_ns: u64) {
        self.buckets = [0; LOG2_BUCKETS];
        for (i, count) in buckets.iter().enumerate() {
            let bucket = &mut self.buckets[i.min(LOG2_BUCKETS - 1)];
            *bucket = bucket.saturating_add(*count);
        }
        self.sum_ns = sum_ns;
    }

    /// Upper bound in seconds and count of each bucket. The kernel's bounds exclude what Prometheus' bounds include;
    /// the difference is a request that took a whole power of two of microseconds to the nanosecond.
    fn classic(&self) -> [(f64, u64); LOG2_BUCKETS] {
        let mut classic = [(f64::INFINITY, 0); LOG2_BUCKETS];
        for (i, (slot, count)) in classic.iter_mut().zip(self.buckets).enumerate() {
            let bound = if i + 1 < LOG2_BUCKETS { (1u64 << i) as f64 / 1e6 } else { f64::INFINITY };
            *slot = (bound, count);
        }
        classic
    }
}

/// Nanoseconds as seconds; exact to the nanosecond for more than 100 days.
pub fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Says of what type a value is and how it is written.
macro_rules! encode_value {
    ($($value:ty, $kind:ident => |$this:ident, $encoder:ident| $encode:expr;)*) => {$(
        impl TypedMetric for $value {
            const TYPE: MetricType = MetricType::$kind;
        }

        impl EncodeMetric for $value {
            fn encode(&self, mut $encoder: MetricEncoder) -> Result<(), fmt::Error> {
                let $this = self;
                $encode
            }

            fn metric_type(&self) -> MetricType {
                Self::TYPE
            }
        }
    )*};
}

encode_value! {
    Count, Counter => |this, encoder| encoder.encode_counter::<NoLabelSet, _, f64>(&this.0, None);
    Seconds, Counter => |this, encoder| encoder.encode_counter::<NoLabelSet, _, f64>(&seconds(this.ns), None);
    SecondsRead, Counter => |this, encoder| encoder.encode_counter::<NoLabelSet, _, f64>(&this.0, None);
    Level, Gauge => |this, encoder| encoder.encode_gauge(&this.0);
    Log2Histogram, Histogram => |this, encoder| {
        let buckets = this.classic();
        let count = buckets.iter().map(|(_, count)| count).sum();
        encoder.encode_histogram::<NoLabelSet>(seconds(this.sum_ns), count, &buckets, None)
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_buckets_keep_every_request() {
        let mut histogram = Log2Histogram::default();
        histogram.set(&(1..=30).collect::<Vec<u64>>(), 7);
        let classic = histogram.classic();
        assert_eq!(classic.iter().map(|(_, count)| count).sum::<u64>(), (1..=30).sum::<u64>());
        assert_eq!(classic[0], (0.000_001, 1));
        assert_eq!(classic[10], (0.001_024, 11));
        assert_eq!(classic[LOG2_BUCKETS - 1].0, f64::INFINITY);
        histogram.set(&[5], 1);
        assert_eq!(histogram.classic()[1].1, 0, "an update replaces what was there");
    }
}
