//! Bounds the memory of manifests that are parsed at the same time.

use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit};

/// What all manifests that are large may take together, of all bindings.
const TOTAL_BYTES: usize = 12 << 20;
/// Manifests that take less are not counted: there are few of them at a time, and most
/// manifests are small.
const SMALL_BYTES: usize = 64 << 10;
/// A manifest stands in memory as a tree, as part of the Work that is read or written, and
/// as that Work's encoded form.
const COPIES: usize = 3;
const UNIT: usize = 1 << 10;

pub(super) struct ManifestMemory(Semaphore);

impl Default for ManifestMemory {
    fn default() -> Self {
        Self(Semaphore::new(TOTAL_BYTES / UNIT))
    }
}

impl ManifestMemory {
    /// Waits until there is memory for a manifest whose tree takes so many bytes; one that
    /// takes more than there is altogether gets all of it. `None` for a small one.
    pub(super) async fn reserve(&self, tree_bytes: usize) -> Option<SemaphorePermit<'_>> {
        if is_small(tree_bytes) {
            return None;
        }
        let units = (tree_bytes * COPIES).min(TOTAL_BYTES) / UNIT;
        // The semaphore is never closed.
        self.0.acquire_many(units as u32).await.ok()
    }
}

pub(super) fn is_small(tree_bytes: usize) -> bool {
    tree_bytes <= SMALL_BYTES
}

/// What a tree takes in memory, roughly.
pub(super) fn tree_bytes(tree: &Value) -> usize {
    /// A key with its place in a map, and what the map takes beside.
    const ENTRY: usize = 2 * size_of::<String>();
    let below = match tree {
        Value::String(text) => text.capacity(),
        Value::Array(items) => items.iter().map(tree_bytes).sum(),
        Value::Object(fields) => {
            let entry =
                |(key, value): (&String, &Value)| ENTRY + key.capacity() + tree_bytes(value);
            fields.iter().map(entry).sum()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    size_of::<Value>() + below
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use serde_json::json;

    #[test]
    fn large_manifests_wait_for_each_other_and_small_ones_for_nobody() {
        let memory = ManifestMemory::default();
        let reserve = |bytes: usize| memory.reserve(bytes).now_or_never();
        let mebibyte = 1 << 20;
        let four: Vec<_> = (0..4).map(|_| reserve(mebibyte).unwrap()).collect();
        assert!(reserve(mebibyte).is_none());
        assert!(matches!(reserve(SMALL_BYTES), Some(None)));
        drop(four);
        let huge = reserve(100 * mebibyte).unwrap();
        assert!(huge.is_some() && reserve(mebibyte).is_none());
    }

    #[test]
    fn a_tree_takes_at_least_its_text() {
        let text = "x".repeat(1 << 20);
        let tree = json!({"data": {"k": text}, "list": [1, 2, null]});
        assert!((1 << 20..(1 << 20) + 1000).contains(&tree_bytes(&tree)));
    }
}
