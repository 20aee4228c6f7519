//! Bounds the memory of manifests that are parsed at the same time.

use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit};

/// The total for large manifests of all bindings.
const TOTAL_BYTES: usize = 12 << 20;
/// Smaller manifests are not counted: few of them are in memory at a time, and most manifests are
/// small.
const SMALL_BYTES: usize = 64 << 10;
/// A manifest is in memory as a tree, as part of the Work that is read or written, and as that
/// Work's encoded form.
const COPIES: usize = 3;
const UNIT: usize = 1 << 10;

pub(super) struct ManifestMemory(Semaphore);

impl Default for ManifestMemory {
    fn default() -> Self {
        Self(Semaphore::new(TOTAL_BYTES / UNIT))
    }
}

impl ManifestMemory {
    /// Waits until there is memory for a manifest whose tree takes this many bytes; a manifest
    /// larger than the total gets all of it. Returns `None` for a small manifest.
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

/// An estimate of the bytes that a tree takes in memory.
pub(super) fn tree_bytes(tree: &Value) -> usize {
    /// A key and its slot in a map.
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
    fn only_large_manifests_wait_for_memory() {
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
