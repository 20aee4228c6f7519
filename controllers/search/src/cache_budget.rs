//! The bounds of what the fleet view caches: of one resource of a member, and of all together. What
//! grows beyond a bound is not cached; nothing else makes way for it.

use std::sync::atomic::{AtomicUsize, Ordering};

use watchcache::CacheSize;

use crate::process_memory::process_memory_bytes;

/// The most that is cached of one resource of a member.
const MAX_RESOURCE_SIZE: CacheSize = CacheSize {
    objects: 250_000,
    bytes: 1 << 30,
};
/// All caches together may take half of the memory: they need it for more than the bytes that are
/// counted, and the rest of the process for itself.
const MEMORY_SHARE: usize = 2;

/// The bound that a cache has exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheOverflow {
    Resource { max: CacheSize },
    Total { max_bytes: usize },
}

impl CacheOverflow {
    /// Why a resource of a cluster is not cached.
    pub(crate) fn reason(self, cluster: &str, resource: &str) -> String {
        match self {
            Self::Resource { max } => format!(
                "cluster {cluster:?} has more than {} {resource} or {} MiB of them",
                max.objects,
                max.bytes >> 20
            ),
            Self::Total { max_bytes } => format!(
                "the fleet view may cache {} MiB, and the {resource} of cluster {cluster:?} do not fit",
                max_bytes >> 20
            ),
        }
    }
}

/// The bounds, and the bytes that all caches hold.
pub(crate) struct CacheBudget {
    max_resource: CacheSize,
    max_bytes: usize,
    bytes: AtomicUsize,
}

impl CacheBudget {
    pub(crate) fn new(max_resource: CacheSize, max_bytes: usize) -> Self {
        Self {
            max_resource,
            max_bytes,
            bytes: AtomicUsize::new(0),
        }
    }

    /// The budget for the memory that this process may use.
    pub(crate) fn of_process() -> Self {
        Self::new(MAX_RESOURCE_SIZE, process_memory_bytes() / MEMORY_SHARE)
    }

    /// Charges the change of the size of one cache. After an error nothing is charged.
    pub(crate) fn resize(&self, from: CacheSize, to: CacheSize) -> Result<(), CacheOverflow> {
        let max = self.max_resource;
        if to.objects > max.objects.max(from.objects) || to.bytes > max.bytes.max(from.bytes) {
            return Err(CacheOverflow::Resource { max });
        }
        if to.bytes <= from.bytes {
            self.bytes
                .fetch_sub(from.bytes - to.bytes, Ordering::Relaxed);
            return Ok(());
        }
        let growth = to.bytes - from.bytes;
        let grow = |bytes: usize| bytes.checked_add(growth).filter(|b| *b <= self.max_bytes);
        let grown = self
            .bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, grow);
        grown.map(drop).map_err(|_| CacheOverflow::Total {
            max_bytes: self.max_bytes,
        })
    }

    /// The bytes that all caches hold.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}
