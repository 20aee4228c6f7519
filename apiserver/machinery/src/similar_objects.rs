//! Holds what similar objects have in common once: the bytes of an object are its difference from
//! one of them, its base, and are put together when they are read.
//!
//! [`SimilarObjects::share`] chooses the base among the last ones of the object's group. Objects of
//! a group resemble each other, as the Works of one template do in the namespaces of all clusters.
//!
//! Invariants: a base is whole and never changed. It is dropped with the last object that refers to
//! it, since groups refer to it weakly. No object is shared that does not give its bytes again.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::base_group::{BaseGroup, ShortestDelta};
use crate::object::Object;
use crate::shared_bytes::{Base, ObjectBytes};

/// Smaller objects are not shared.
const MIN_SHARED_BYTES: usize = 512;
/// Groups without a base are removed when there are twice as many as after the last time, and at
/// least this many.
const MIN_GROUPS_TO_PURGE: usize = 1024;

/// A base that lives as long as an object refers to it.
struct WeakBase(Weak<Base>);

impl WeakBase {
    fn is_used(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl PartialEq for WeakBase {
    fn eq(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

struct BaseGroups {
    by_name: BTreeMap<Box<str>, BaseGroup<WeakBase>>,
    purge_at: usize,
}

impl BaseGroups {
    const fn new() -> Self {
        Self {
            by_name: BTreeMap::new(),
            purge_at: MIN_GROUPS_TO_PURGE,
        }
    }

    fn group(&mut self, name: &str) -> &mut BaseGroup<WeakBase> {
        if self.by_name.len() >= self.purge_at {
            self.by_name
                .retain(|_, group| group.bases().iter().any(WeakBase::is_used));
            self.purge_at = (2 * self.by_name.len()).max(MIN_GROUPS_TO_PURGE);
        }
        let group = self.by_name.entry(name.into());
        group.or_insert_with(|| BaseGroup::new(Vec::new()))
    }
}

/// The bases of objects that resemble each other, by group.
pub struct SimilarObjects(Mutex<BaseGroups>);

impl Default for SimilarObjects {
    fn default() -> Self {
        Self::new()
    }
}

impl SimilarObjects {
    pub const fn new() -> Self {
        Self(Mutex::new(BaseGroups::new()))
    }

    /// The same object with its bytes as a difference, if it resembles one of its group. Objects
    /// that share bytes already, and small ones, stay as they are.
    pub fn share(&self, group: &str, object: Object) -> Object {
        let bytes = match object.encoded() {
            ObjectBytes::Own(bytes) if bytes.len() >= MIN_SHARED_BYTES => bytes.clone(),
            _ => return object,
        };
        let mut shortest = ShortestDelta::new(&bytes);
        for base in self.bases(group) {
            let content = base.bytes.clone();
            if shortest.try_base(base, &content) {
                break;
            }
        }
        let shortest = shortest.finish();
        let mut groups = self.0.lock();
        let group = groups.group(group);
        let accepted = shortest.filter(|(_, delta)| group.accept(delta.len(), bytes.len()));
        let (base, encoded) = match accepted {
            Some((base, delta)) => {
                let encoded = ObjectBytes::Difference {
                    base: Arc::clone(&base),
                    delta: delta.into(),
                    length: bytes.len(),
                };
                (base, encoded)
            }
            None => {
                let labels = Arc::clone(&object.meta().labels);
                let base = Arc::new(Base { bytes, labels });
                (Arc::clone(&base), ObjectBytes::Base(base))
            }
        };
        group.retain(WeakBase::is_used);
        group.record_use(WeakBase(Arc::downgrade(&base)));
        drop(groups);
        let own = &object.meta().labels;
        let labels = if *own == base.labels {
            &base.labels
        } else {
            own
        };
        let labels = Arc::clone(labels);
        object.with_shared(encoded, labels)
    }

    /// Forgets all groups. Objects that share bytes keep their bases.
    pub fn clear(&self) {
        *self.0.lock() = BaseGroups::new();
    }

    fn bases(&self, group: &str) -> Vec<Arc<Base>> {
        let groups = self.0.lock();
        let group = groups.by_name.get(group);
        let bases = group.into_iter().flat_map(BaseGroup::bases);
        bases.filter_map(|base| base.0.upgrade()).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn work(cluster: usize, content: usize, status: usize) -> Object {
        let fields: Vec<String> = (0..60)
            .map(|n| format!(r#""field-{n}":"value {}""#, n * 7919 + content))
            .collect();
        let text = format!(
            r#"{{"metadata":{{"annotations":{{"cluster":"{cluster}"}},"name":"w","namespace":"ns-{cluster}"}},"spec":{{{}}},"status":"{}"}}"#,
            fields.join(","),
            "s".repeat(200 * status),
        );
        Object::from_stored(text.as_bytes(), 7).unwrap()
    }

    fn live_bases(objects: &SimilarObjects) -> usize {
        let groups = objects.0.lock();
        let bases = groups.by_name.values().flat_map(BaseGroup::bases);
        bases.filter(|base| base.is_used()).count()
    }

    proptest! {
        /// Objects come, are replaced and go in any order.
        #[test]
        fn shared_objects_give_the_bytes_that_they_had(
            steps in vec((0..8_usize, 0..6_usize, 0..3_usize, any::<bool>()), 1..60),
        ) {
            let similar = SimilarObjects::new();
            let mut live: BTreeMap<usize, (Object, Object)> = BTreeMap::new();
            for (cluster, content, status, is_deleted) in steps {
                if is_deleted {
                    live.remove(&cluster);
                } else {
                    let own = work(cluster, content, status);
                    let shared = similar.share("w", own.clone());
                    live.insert(cluster, (own, shared));
                }
                for (own, shared) in live.values() {
                    prop_assert_eq!(shared.bytes(), own.bytes());
                    prop_assert_eq!(shared.served_len(), own.served_len());
                    prop_assert_eq!(shared.annotation("cluster"), own.annotation("cluster"));
                    let (newer, own) = (shared.with_revision(9), own.with_revision(9));
                    prop_assert_eq!(newer.unwrap().bytes(), own.unwrap().bytes());
                }
            }
            live.clear();
            prop_assert_eq!(live_bases(&similar), 0);
        }
    }

    #[test]
    fn a_status_that_all_objects_get_becomes_a_part_of_the_base() {
        let similar = SimilarObjects::new();
        let objects = |status| {
            let all = (0..100).map(move |cluster| work(cluster, 0, status));
            all.map(|object| similar.share("w", object))
                .collect::<Vec<_>>()
        };
        let (old, new) = (objects(0), objects(2));
        assert!((2..=4).contains(&live_bases(&similar)));
        let last = &new[90..];
        assert!(last.iter().all(|object| object.memory_bytes() < 100));
        drop((old, new));
        assert_eq!(live_bases(&similar), 0);
    }

    #[test]
    fn small_and_unrelated_objects_are_kept_whole() {
        let similar = SimilarObjects::new();
        let small = Object::from_stored(br#"{"metadata":{"name":"a"}}"#, 1).unwrap();
        let shared = similar.share("w", small.clone());
        assert!(shared.ptr_eq(&small) && live_bases(&similar) == 0);
        let first = similar.share("w", work(1, 0, 0));
        let noise: String = (0..900_u32)
            .map(|n| format!("{:x}", n.wrapping_mul(0x9e37_79b9)))
            .collect();
        let text = format!(r#"{{"metadata":{{"name":"w"}},"data":"{noise}"}}"#);
        let other = similar.share("w", Object::from_stored(text.as_bytes(), 1).unwrap());
        assert_eq!(other.memory_bytes(), other.encoded_len());
        assert_eq!(
            (first.encoded_len(), live_bases(&similar)),
            (first.memory_bytes(), 2)
        );
    }

    #[test]
    fn groups_without_objects_are_removed() {
        let similar = SimilarObjects::new();
        let kept = similar.share("kept", work(0, 0, 0));
        for group in 0..3 * MIN_GROUPS_TO_PURGE {
            drop(similar.share(&group.to_string(), work(0, 0, 0)));
        }
        let groups = similar.0.lock();
        assert!(groups.by_name.len() <= MIN_GROUPS_TO_PURGE);
        assert!(groups.by_name.contains_key("kept"));
        drop(groups);
        similar.clear();
        assert!(similar.0.lock().by_name.is_empty());
        assert_eq!(kept.bytes(), work(0, 0, 0).bytes());
    }
}
