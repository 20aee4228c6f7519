//! Bounds the memory of manifests that are parsed at the same time, for the binding
//! controller and the execution controller together.

use machinery::tree_memory::estimate_json_tree_bytes;
use tokio::sync::{Semaphore, SemaphorePermit};

/// The bytes that all large manifests may take together.
const MAX_LARGE_MANIFEST_BYTES: usize = 12 << 20;
/// Manifests that take less are not counted: there are few of them at a time, and most
/// manifests are small.
const SMALL_MANIFEST_BYTES: usize = 64 << 10;
/// Encoded manifests of at most so many bytes are not measured: what they are parsed into
/// is small in general, and not much more than a mebibyte in any case.
const SMALL_ENCODED_MANIFEST_BYTES: usize = 8 << 10;
const PERMIT_BYTES: usize = 1 << 10;

/// Limits the memory that large parsed manifests take at the same time.
pub struct ManifestMemoryBudget(Semaphore);

impl Default for ManifestMemoryBudget {
    fn default() -> Self {
        Self(Semaphore::new(MAX_LARGE_MANIFEST_BYTES / PERMIT_BYTES))
    }
}

impl ManifestMemoryBudget {
    /// Waits until there is memory for so many copies of trees that take so many bytes; what
    /// takes more than there is altogether gets all of it. `None` for small trees.
    pub async fn reserve(&self, tree_bytes: usize, copies: usize) -> Option<SemaphorePermit<'_>> {
        if is_small_tree(tree_bytes) {
            return None;
        }
        let units = tree_bytes
            .saturating_mul(copies)
            .min(MAX_LARGE_MANIFEST_BYTES)
            / PERMIT_BYTES;
        // The semaphore is never closed.
        self.0.acquire_many(units as u32).await.ok()
    }
}

pub fn is_small_tree(tree_bytes: usize) -> bool {
    tree_bytes <= SMALL_MANIFEST_BYTES
}

/// The bytes that the tree of encoded JSON would take at most, roughly. Zero for JSON that is
/// small.
pub fn estimate_encoded_tree_bytes(json: &[u8]) -> usize {
    match json.len() <= SMALL_ENCODED_MANIFEST_BYTES {
        true => 0,
        false => estimate_json_tree_bytes(json),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn large_manifests_wait_for_each_other_and_small_ones_for_nobody() {
        let memory = ManifestMemoryBudget::default();
        let reserve = |bytes: usize| memory.reserve(bytes, 3).now_or_never();
        let mebibyte = 1 << 20;
        let four: Vec<_> = (0..4).map(|_| reserve(mebibyte).unwrap()).collect();
        assert!(reserve(mebibyte).is_none());
        assert!(matches!(reserve(SMALL_MANIFEST_BYTES), Some(None)));
        drop(four);
        let huge = reserve(100 * mebibyte).unwrap();
        assert!(huge.is_some() && reserve(mebibyte).is_none());
    }
}
