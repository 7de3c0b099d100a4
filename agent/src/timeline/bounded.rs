//! Memory of what was told, bounded: the oldest goes first.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use crate::limits;

/// A map that drops what was put first when it is full.
#[derive(Debug)]
pub struct Bounded<K, V> {
    map: HashMap<K, V>,
    order: VecDeque<K>,
}

impl<K, V> Default for Bounded<K, V> {
    fn default() -> Self {
        Self { map: HashMap::new(), order: VecDeque::new() }
    }
}

impl<K: Hash + Eq + Copy, V> Bounded<K, V> {
    pub fn put(&mut self, key: K, value: V) {
        if self.map.insert(key, value).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > limits::TIMELINE_NAMES
            && let Some(oldest) = self.order.pop_front()
        {
            self.map.remove(&oldest);
        }
    }

    pub fn get(&self, key: &K) -> Option<&V> {
        self.map.get(key)
    }

    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.map.keys()
    }
}
