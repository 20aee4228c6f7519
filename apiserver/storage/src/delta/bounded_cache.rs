//! A map of bounded size that drops its oldest entries.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// A map whose entries together have at most a limit of weight, and at least one entry.
#[derive(Debug)]
pub(crate) struct BoundedCache<K, V> {
    entries: HashMap<K, (V, usize)>,
    /// The oldest first.
    order: VecDeque<K>,
    weight: usize,
    limit: usize,
}

impl<K: Clone + Eq + Hash, V> BoundedCache<K, V> {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            entries: HashMap::new(),
            order: VecDeque::new(),
            weight: 0,
            limit,
        }
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(value, _)| value)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key).map(|(value, _)| value)
    }

    /// Adds an entry whose key is new.
    pub(crate) fn insert(&mut self, key: K, value: V, weight: usize) {
        self.entries.insert(key.clone(), (value, weight));
        self.order.push_back(key);
        self.weight += weight;
        while self.weight > self.limit
            && self.order.len() > 1
            && let Some(oldest) = self.order.pop_front()
        {
            let dropped = self.entries.remove(&oldest);
            self.weight -= dropped.map_or(0, |(_, weight)| weight);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.order.clear();
        self.weight = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_entries_are_dropped() {
        let mut cache = BoundedCache::new(10);
        for number in 1..=4 {
            cache.insert(number, number * 10, 4);
        }
        assert_eq!((cache.get(&2), cache.get(&3)), (None, Some(&30)));
        cache.insert(5, 50, 100);
        assert_eq!((cache.get(&4), cache.get(&5)), (None, Some(&50)));
        cache.clear();
        assert_eq!((cache.get(&5), cache.weight), (None, 0));
    }
}
