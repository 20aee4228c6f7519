//! A map split into shards, each with its own lock, so that keys of different shards do
//! not contend.

use std::collections::HashMap;
use std::hash::Hash;

use ahash::RandomState;
use parking_lot::{Mutex, MutexGuard};

const SHARD_COUNT: usize = 64;

/// A concurrent map. Each key belongs to exactly one shard.
#[derive(Debug)]
pub struct ShardedMap<K, V> {
    shards: Box<[Mutex<HashMap<K, V>>]>,
    hasher: RandomState,
}

impl<K, V> Default for ShardedMap<K, V> {
    fn default() -> Self {
        Self {
            shards: (0..SHARD_COUNT).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
        }
    }
}

impl<K: Hash + Eq, V> ShardedMap<K, V> {
    /// Locks the shard of a key.
    pub fn lock(&self, key: &K) -> MutexGuard<'_, HashMap<K, V>> {
        let hash = self.hasher.hash_one(key) as usize;
        self.shards[hash % SHARD_COUNT].lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_again_while_another_shard_is_locked() {
        let map = ShardedMap::default();
        for key in 0..1000 {
            map.lock(&key).insert(key, key * 2);
        }
        let locked = map.lock(&0);
        let others = (1..1000).filter(|key| !locked.contains_key(key));
        let mut actual = 0;
        for key in others {
            assert_eq!(map.lock(&key).get(&key), Some(&(key * 2)));
            actual += 1;
        }
        assert!(actual > 900, "{actual}");
    }
}
