//! Bounded metric families: label set -> value, with a hard cap, ageing and removal.
//!
//! Knows the Prometheus client. Must not know which metrics there are.
//! The client's own family has no bound and cannot be searched for the series of a thread, hence this one.

use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Debug};
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

use crate::limits;

use super::table::Row;

/// The agent's monotonic time in nanoseconds, set once per poll: reading a clock per update would cost more than the
/// update.
#[derive(Clone, Debug, Default)]
pub struct Clock(Arc<AtomicU64>);

impl Clock {
    pub fn set(&self, now_ns: u64) {
        self.0.store(now_ns, Ordering::Relaxed);
    }

    pub fn now_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What every label set of the crate can do.
pub trait Labels: Clone + Eq + Hash + Debug + EncodeLabelSet + Send + Sync + 'static {}

impl<L: Clone + Eq + Hash + Debug + EncodeLabelSet + Send + Sync + 'static> Labels for L {}

/// Updates that found no room, by the exposed name of their metric. Names are constants, so this needs no bound.
#[derive(Clone, Debug, Default)]
pub struct Dropped(Arc<Mutex<BTreeMap<&'static str, u64>>>);

impl Dropped {
    pub fn add(&self, metric: &'static str) {
        *self.lock().entry(metric).or_default() += 1;
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, u64>> {
        // An addition is one step, so what a panicking holder left behind is whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EncodeMetric for Dropped {
    fn encode(&self, mut encoder: MetricEncoder) -> Result<(), fmt::Error> {
        for (metric, count) in self.lock().iter() {
            encoder.encode_family(&[("metric", *metric)])?.encode_counter::<NoLabelSet, _, f64>(count, None)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Counter
    }

    fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}

/// One metric: its label sets and their values. Clones share the same values.
pub struct Family<L, M> {
    children: Arc<Mutex<Children<L, M>>>,
    row: Row,
    clock: Clock,
    dropped: Dropped,
}

struct Children<L, M> {
    by_labels: HashMap<L, Child<M>>,
    /// Before this time no series has been idle for long enough: a flood of new label sets searches but once.
    idle_from_ns: u64,
}

impl<L, M> Default for Children<L, M> {
    fn default() -> Self {
        Self { by_labels: HashMap::new(), idle_from_ns: 0 }
    }
}

struct Child<M> {
    value: M,
    touched_ns: u64,
}

impl<L: Labels, M> Family<L, M> {
    pub fn new(row: Row, clock: Clock, dropped: Dropped) -> Self {
        Self { children: Arc::default(), row, clock, dropped }
    }

    /// Changes the value of `labels`, which starts as `fresh()`. Without room the update is dropped and counted.
    pub fn update(&self, labels: &L, fresh: impl FnOnce() -> M, change: impl FnOnce(&mut M)) {
        let now_ns = self.clock.now_ns();
        let mut children = self.lock();
        if let Some(child) = children.by_labels.get_mut(labels) {
            child.touched_ns = now_ns;
            change(&mut child.value);
            return;
        }
        if children.by_labels.len() >= self.row.label_sets_max && !evict_idle(&mut children, now_ns) {
            drop(children);
            self.dropped.add(self.row.name);
            return;
        }
        let mut value = fresh();
        change(&mut value);
        children.by_labels.insert(labels.clone(), Child { value, touched_ns: now_ns });
    }

    /// Removes the label sets that `keep` refuses.
    pub fn retain(&self, mut keep: impl FnMut(&L) -> bool) {
        self.lock().by_labels.retain(|labels, _| keep(labels));
    }

    fn lock(&self) -> MutexGuard<'_, Children<L, M>> {
        // A value is changed in one step, so what a panicking holder left behind is whole.
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes room by removing the series that was idle for the longest time, if that time is long enough.
fn evict_idle<L: Labels, M>(children: &mut Children<L, M>, now_ns: u64) -> bool {
    if now_ns < children.idle_from_ns {
        return false;
    }
    let oldest = children.by_labels.iter().min_by_key(|(_, child)| child.touched_ns);
    let Some((labels, child)) = oldest else { return false };
    // 584 years fit, and one hour is added to the time since boot.
    children.idle_from_ns = child.touched_ns.saturating_add(limits::SERIES_IDLE.as_nanos() as u64);
    if now_ns < children.idle_from_ns {
        return false;
    }
    let labels = labels.clone();
    children.by_labels.remove(&labels);
    true
}

impl<L, M> Clone for Family<L, M> {
    fn clone(&self) -> Self {
        let Self { children, row, clock, dropped } = self;
        Self { children: children.clone(), row: *row, clock: clock.clone(), dropped: dropped.clone() }
    }
}

impl<L, M> Debug for Family<L, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Family").field("row", &self.row).finish_non_exhaustive()
    }
}

impl<L: Labels, M: EncodeMetric + TypedMetric> EncodeMetric for Family<L, M> {
    fn encode(&self, mut encoder: MetricEncoder) -> Result<(), fmt::Error> {
        for (labels, child) in self.lock().by_labels.iter() {
            child.value.encode(encoder.encode_family(labels)?)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        M::TYPE
    }

    fn is_empty(&self) -> bool {
        self.lock().by_labels.is_empty()
    }
}
