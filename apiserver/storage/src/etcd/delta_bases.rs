//! The bases that a process knows: their content, the group of similar values to which each belongs,
//! and those that no further value may use.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use machinery::base_group::BaseGroup;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::delta_value::BaseName;
use crate::delta::{BoundedCache, DeltaOptions};
use crate::encryption::is_encrypted;

/// Bytes of bases in memory: those of 1,000 templates of 30 KiB.
const BASE_CACHE_BYTES: usize = 32 << 20;
/// Groups whose bases are remembered. A forgotten one is learned again from the values that are
/// read.
const MAX_GROUPS: usize = 1 << 16;
/// Names of retired bases that are remembered.
const MAX_RETIRED: usize = 1 << 12;
/// Larger values are stored whole, so that a base and its first delta fit into one request.
const MAX_DELTA_VALUE_BYTES: usize = 1 << 20;

/// The bases of one group. The lock is held while a base is added, so that of concurrent writes
/// only one adds it.
pub(super) type LockedBaseGroup = Arc<tokio::sync::Mutex<BaseGroup<BaseName>>>;

/// The knowledge that one process has of the bases in etcd.
pub(super) struct DeltaBases {
    options: DeltaOptions,
    /// Values are stored as deltas from then on; unset: they are not.
    writes_from: OnceLock<Instant>,
    groups: Mutex<BoundedCache<String, LockedBaseGroup>>,
    contents: Mutex<BoundedCache<BaseName, Bytes>>,
    retired: Mutex<BoundedCache<BaseName, ()>>,
}

impl DeltaBases {
    pub(super) fn new(options: DeltaOptions) -> Self {
        Self {
            options,
            writes_from: OnceLock::new(),
            groups: Mutex::new(BoundedCache::new(MAX_GROUPS)),
            contents: Mutex::new(BoundedCache::new(BASE_CACHE_BYTES)),
            retired: Mutex::new(BoundedCache::new(MAX_RETIRED)),
        }
    }

    /// Lets values be stored as deltas after `delay`.
    pub(super) fn enable_writes(&self, delay: Duration) {
        let _ = self.writes_from.set(Instant::now() + delay);
    }

    /// The group of a value that is to be stored as a delta, with the prefix of its key.
    pub(super) fn writable_group(
        &self,
        key: &str,
        value: &[u8],
    ) -> Option<(&str, LockedBaseGroup)> {
        let enabled = self
            .writes_from
            .get()
            .is_some_and(|at| Instant::now() >= *at);
        let sizes = self.options.minimum_bytes..=MAX_DELTA_VALUE_BYTES;
        if !enabled || !sizes.contains(&value.len()) || is_encrypted(value) {
            return None;
        }
        let prefix = self.options.prefix_of(key)?;
        Some((prefix, self.group(self.options.group(key)?)))
    }

    fn group(&self, name: String) -> LockedBaseGroup {
        let mut groups = self.groups.lock();
        if let Some(group) = groups.get(&name) {
            return Arc::clone(group);
        }
        let group = LockedBaseGroup::new(BaseGroup::new(Vec::new()).into());
        groups.insert(name, Arc::clone(&group), 1);
        group
    }

    /// Learns from a value that was read which base its group has.
    pub(super) fn observe(&self, key: &str, base: &BaseName) {
        if self.options.prefix_of(key) != Some(base.prefix()) || self.is_retired(base) {
            return;
        }
        let Some(name) = self.options.group(key) else {
            return;
        };
        // A locked group is just getting a base.
        if let Ok(mut group) = self.group(name).try_lock()
            && !group.bases().contains(base)
        {
            group.record_use(base.clone());
        }
    }

    fn is_retired(&self, base: &BaseName) -> bool {
        self.retired.lock().get(base).is_some()
    }

    /// Remembers that no further value may use a base.
    pub(super) fn retire(&self, group: &mut BaseGroup<BaseName>, base: &BaseName) {
        group.retain(|other| other != base);
        let mut retired = self.retired.lock();
        if retired.get(base).is_none() {
            retired.insert(base.clone(), (), 1);
        }
    }

    /// The content of a base, if it is in memory.
    pub(super) fn content(&self, base: &BaseName) -> Option<Bytes> {
        self.contents.lock().get(base).cloned()
    }

    pub(super) fn insert_content(&self, base: &BaseName, content: &[u8]) {
        let mut contents = self.contents.lock();
        if contents.get(base).is_none() {
            // The buffer of a request or response may be larger than the value.
            let content = Bytes::copy_from_slice(content);
            let weight = content.len();
            contents.insert(base.clone(), content, weight);
        }
    }
}
