//! The bounds of what the fleet view caches: of one resource of a member, of a member, and of all
//! together. What grows beyond a bound is not cached; nothing else makes way for it.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use watchcache::CacheSize;

use crate::process_memory::process_memory_bytes;

/// The most that is cached of one resource of a member.
const MAX_RESOURCE_SIZE: CacheSize = CacheSize {
    objects: 250_000,
    bytes: 1 << 30,
};
/// All caches together may take this part of the memory: they need it for more than the bytes that
/// are counted, and the rest of the process for itself.
const MEMORY_DIVISOR: usize = 2;
/// The part of that which one member may take, so that it leaves something to others.
const MEMBER_DIVISOR: usize = 2;

/// The bounds of the caches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheLimits {
    pub(crate) resource: CacheSize,
    pub(crate) member_bytes: usize,
    pub(crate) total_bytes: usize,
}

impl CacheLimits {
    fn of_memory(memory_bytes: usize) -> Self {
        let total_bytes = memory_bytes / MEMORY_DIVISOR;
        Self {
            resource: MAX_RESOURCE_SIZE,
            member_bytes: total_bytes / MEMBER_DIVISOR,
            total_bytes,
        }
    }
}

/// The bound that a cache has exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheOverflow {
    Resource { max: CacheSize },
    Member { max_bytes: usize },
    Total { max_bytes: usize },
}

impl CacheOverflow {
    /// Why a resource of a cluster is not cached.
    pub(crate) fn reason(self, cluster: &str, resource: &str) -> String {
        let (max_bytes, part) = match self {
            Self::Resource { max } => {
                let (objects, mib) = (max.objects, max.bytes >> 20);
                return format!(
                    "cluster {cluster:?} has more than {objects} {resource} or {mib} MiB of them"
                );
            }
            Self::Member { max_bytes } => (max_bytes, " of one cluster"),
            Self::Total { max_bytes } => (max_bytes, ""),
        };
        format!(
            "the fleet view may cache {} MiB{part}, and the {resource} of cluster {cluster:?} do not fit",
            max_bytes >> 20
        )
    }
}

/// The bytes that caches hold.
#[derive(Default)]
struct CachedBytes {
    /// Of each member that has any.
    by_member: BTreeMap<String, usize>,
    total: usize,
}

/// The bounds, and how much of them is taken.
pub(crate) struct CacheBudget {
    limits: CacheLimits,
    cached: Mutex<CachedBytes>,
}

impl CacheBudget {
    pub(crate) fn new(limits: CacheLimits) -> Self {
        Self {
            limits,
            cached: Mutex::default(),
        }
    }

    /// The budget for the memory that this process may use.
    pub(crate) fn of_process() -> Self {
        Self::new(CacheLimits::of_memory(process_memory_bytes()))
    }

    /// Charges the change of the size of one cache of a member. After an error nothing is charged.
    pub(crate) fn resize(
        &self,
        cluster: &str,
        from: CacheSize,
        to: CacheSize,
    ) -> Result<(), CacheOverflow> {
        let limits = &self.limits;
        let max = limits.resource;
        if to.objects > max.objects.max(from.objects) || to.bytes > max.bytes.max(from.bytes) {
            return Err(CacheOverflow::Resource { max });
        }
        let mut cached = self.cached.lock();
        let of_member = cached.by_member.get(cluster).copied().unwrap_or(0);
        let member_bytes = of_member + to.bytes - from.bytes;
        let total_bytes = cached.total + to.bytes - from.bytes;
        if to.bytes > from.bytes {
            if member_bytes > limits.member_bytes {
                let max_bytes = limits.member_bytes;
                return Err(CacheOverflow::Member { max_bytes });
            }
            if total_bytes > limits.total_bytes {
                let max_bytes = limits.total_bytes;
                return Err(CacheOverflow::Total { max_bytes });
            }
        }
        cached.total = total_bytes;
        match cached.by_member.get_mut(cluster) {
            Some(bytes) if member_bytes > 0 => *bytes = member_bytes,
            Some(_) => drop(cached.by_member.remove(cluster)),
            None if member_bytes > 0 => {
                cached.by_member.insert(cluster.to_owned(), member_bytes);
            }
            None => {}
        }
        Ok(())
    }

    /// The bytes that all caches hold.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        let cached = self.cached.lock();
        assert_eq!(cached.by_member.values().sum::<usize>(), cached.total);
        cached.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: FLV-bounds
    #[test]
    fn each_bound_is_named_and_leaves_what_is_there() {
        const MIB: usize = 1 << 20;
        let size = |objects: usize, mib: usize| CacheSize {
            objects,
            bytes: mib * MIB,
        };
        let budget = CacheBudget::new(CacheLimits {
            resource: size(7, 3),
            member_bytes: 5 * MIB,
            total_bytes: 8 * MIB,
        });
        let none = CacheSize::default();
        let too_many = "cluster \"m1\" has more than 7 pods or 3 MiB of them";
        let of_member = "the fleet view may cache 5 MiB of one cluster, and the pods of cluster \"m1\" do not fit";
        let of_all = "the fleet view may cache 8 MiB, and the pods of cluster \"m3\" do not fit";
        for (cluster, from, to, reason, total) in [
            ("m1", none, size(8, 0), too_many, 0),
            ("m1", none, size(1, 4), too_many, 0),
            ("m1", none, size(7, 3), "", 3),
            ("m1", none, size(1, 3), of_member, 3),
            ("m1", none, size(1, 2), "", 5),
            ("m2", none, size(1, 2), "", 7),
            ("m3", none, size(1, 2), of_all, 7),
            ("m3", none, size(1, 1), "", 8),
            ("m3", size(1, 1), size(1, 1), "", 8),
            ("m1", size(7, 3), size(6, 2), "", 7),
            ("m3", size(1, 1), size(2, 2), "", 8),
            ("m3", size(2, 2), none, "", 6),
            ("m2", size(1, 2), none, "", 4),
            ("m1", size(1, 2), none, "", 2),
            ("m1", size(6, 2), none, "", 0),
        ] {
            let overflow = budget.resize(cluster, from, to).err();
            let text = overflow.map(|overflow| overflow.reason(cluster, "pods"));
            assert_eq!(
                text.unwrap_or_default(),
                reason,
                "{cluster} {from:?} {to:?}"
            );
            assert_eq!(budget.bytes(), total * MIB);
        }
        assert!(budget.cached.lock().by_member.is_empty());
        let limits = CacheLimits::of_memory(16 << 30);
        assert_eq!(
            (limits.total_bytes, limits.member_bytes),
            (8 << 30, 4 << 30)
        );
    }
}
