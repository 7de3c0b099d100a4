//! A small cache with a bound and an age. It must not know what it keeps; the caller brings the time.

use std::collections::HashMap;
use std::hash::Hash;

/// Keeps values until a time given with each, in ns of the caller's clock.
#[derive(Debug)]
pub struct Aged<K, V> {
    map: HashMap<K, (u64, V)>,
    limit: usize,
}

impl<K: Hash + Eq, V> Aged<K, V> {
    pub fn new(limit: usize) -> Self {
        Self { map: HashMap::new(), limit }
    }

    /// A value that still holds.
    pub fn get(&self, key: &K, now_ns: u64) -> Option<&V> {
        self.map.get(key).filter(|(until_ns, _)| now_ns < *until_ns).map(|(_, value)| value)
    }

    /// A value that may hold no longer.
    pub fn get_old(&self, key: &K) -> Option<&V> {
        self.map.get(key).map(|(_, value)| value)
    }

    /// Where there is no room, what holds no longer goes; if all holds, all goes, since finding out again is cheaper
    /// than keeping an order.
    pub fn put(&mut self, key: K, value: V, now_ns: u64, until_ns: u64) {
        if self.map.len() >= self.limit && !self.map.contains_key(&key) {
            self.map.retain(|_, (until_ns, _)| now_ns < *until_ns);
            if self.map.len() >= self.limit {
                self.map.clear();
            }
        }
        self.map.insert(key, (until_ns, value));
    }
}

#[test]
fn a_value_holds_until_its_time() {
    let mut cache = Aged::new(2);
    cache.put(1, 'a', 0, 10);
    assert_eq!((cache.get(&1, 9), cache.get(&1, 10), cache.get_old(&1)), (Some(&'a'), None, Some(&'a')));
}

#[test]
fn a_full_cache_drops_the_old_before_the_valid() {
    let mut cache = Aged::new(2);
    cache.put(1, 'a', 0, 10);
    cache.put(2, 'b', 0, 30);
    cache.put(3, 'c', 20, 40);
    assert_eq!((cache.get_old(&1), cache.get_old(&2), cache.get_old(&3)), (None, Some(&'b'), Some(&'c')));
    cache.put(4, 'd', 20, 40);
    assert_eq!((cache.get_old(&2), cache.get_old(&3), cache.get_old(&4)), (None, None, Some(&'d')));
}
