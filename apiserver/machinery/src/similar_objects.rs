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

use crate::delta_codec;
use crate::object::Object;
use crate::shared_bytes::{Base, ObjectBytes};

/// Smaller objects are not shared.
const MIN_SHARED_BYTES: usize = 512;
/// The most bases of a group that an object is compared with: the content that clusters are at
/// and the one before, each without and with a status.
const MAX_GROUP_BASES: usize = 4;
/// The bytes of a difference that hold what is each object's own: names, uid, times.
const INTRINSIC_DELTA_BYTES: usize = 128;
/// A difference of this part of the object is good: no other base is tried.
const GOOD_DELTA_DIVISOR: usize = 8;
/// Groups without a base are removed when there are twice as many as after the last time, and at
/// least this many.
const MIN_GROUPS_TO_PURGE: usize = 1024;

/// The bases of one group.
#[derive(Default)]
struct BaseGroup {
    /// The last used one first.
    bases: Vec<Weak<Base>>,
    /// Bytes of differences since the last base was added, beyond [`INTRINSIC_DELTA_BYTES`] of each.
    excess_bytes: usize,
}

impl BaseGroup {
    /// Whether a difference is short enough. Otherwise its object becomes a base: when the
    /// difference saves less than half of the object, or when the differences since the last base
    /// have cost as many bytes as a base does, which may be closer to the next objects.
    fn accept(&mut self, delta: usize, object: usize) -> bool {
        self.excess_bytes += delta.saturating_sub(INTRINSIC_DELTA_BYTES);
        let accepted = delta <= object / 2 && self.excess_bytes <= object;
        if !accepted {
            self.excess_bytes = 0;
        }
        accepted
    }

    fn put_first(&mut self, base: &Arc<Base>) {
        let base = Arc::downgrade(base);
        self.bases
            .retain(|other| !other.ptr_eq(&base) && other.strong_count() > 0);
        self.bases.insert(0, base);
        self.bases.truncate(MAX_GROUP_BASES);
    }
}

struct BaseGroups {
    by_name: BTreeMap<Box<str>, BaseGroup>,
    purge_at: usize,
}

impl BaseGroups {
    fn group(&mut self, name: &str) -> &mut BaseGroup {
        if self.by_name.len() >= self.purge_at {
            let is_used = |base: &Weak<Base>| base.strong_count() > 0;
            self.by_name
                .retain(|_, group| group.bases.iter().any(is_used));
            self.purge_at = (2 * self.by_name.len()).max(MIN_GROUPS_TO_PURGE);
        }
        self.by_name.entry(name.into()).or_default()
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
        Self(Mutex::new(BaseGroups {
            by_name: BTreeMap::new(),
            purge_at: MIN_GROUPS_TO_PURGE,
        }))
    }

    /// The same object with its bytes as a difference, if it resembles one of its group. Objects
    /// that share bytes already, and small ones, stay as they are.
    pub fn share(&self, group: &str, object: Object) -> Object {
        let bytes = match object.encoded() {
            ObjectBytes::Own(bytes) if bytes.len() >= MIN_SHARED_BYTES => bytes.clone(),
            _ => return object,
        };
        let shortest = shortest_difference(self.bases(group), &bytes);
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
        group.put_first(&base);
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

    fn bases(&self, group: &str) -> Vec<Arc<Base>> {
        let groups = self.0.lock();
        let group = groups.by_name.get(group);
        let bases = group.into_iter().flat_map(|group| &group.bases);
        bases.filter_map(Weak::upgrade).collect()
    }
}

fn shortest_difference(bases: Vec<Arc<Base>>, bytes: &[u8]) -> Option<(Arc<Base>, Vec<u8>)> {
    let mut shortest: Option<(Arc<Base>, Vec<u8>)> = None;
    for base in bases {
        // A small object does not keep a large base in memory.
        if base.bytes.len() > 2 * bytes.len() {
            continue;
        }
        let delta = delta_codec::encode(&base.bytes, bytes);
        if delta_codec::decode(&base.bytes, &delta).as_deref() != Ok(bytes) {
            continue;
        }
        let is_good = delta.len() <= bytes.len() / GOOD_DELTA_DIVISOR;
        if shortest
            .as_ref()
            .is_none_or(|(_, other)| delta.len() < other.len())
        {
            shortest = Some((base, delta));
        }
        if is_good {
            break;
        }
    }
    shortest
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
        let bases = groups.by_name.values().flat_map(|group| &group.bases);
        bases.filter(|base| base.strong_count() > 0).count()
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
        drop((groups, kept));
    }
}
