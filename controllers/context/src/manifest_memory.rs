//! Bounds the memory of manifests that are parsed at the same time, for the binding
//! controller and the execution controller together.

use std::fmt;

use machinery::tree_memory::map_bytes;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
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

/// The bytes that the tree of encoded JSON would take, roughly; no tree is made. Zero for JSON that
/// is small or cannot be parsed.
pub fn estimate_encoded_tree_bytes(json: &[u8]) -> usize {
    if json.len() <= SMALL_ENCODED_MANIFEST_BYTES {
        return 0;
    }
    machinery::json::from_slice::<EstimatedTreeBytes>(json).map_or(0, |tree| tree.0)
}

/// [`estimate_tree_bytes`] of an encoded tree, without building the tree.
struct EstimatedTreeBytes(usize);

impl<'de> Deserialize<'de> for EstimatedTreeBytes {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        let allocated = json.deserialize_any(TreeBytesVisitor)?;
        Ok(Self(size_of::<Value>() + allocated))
    }
}

/// Counts what a value takes beside itself.
struct TreeBytesVisitor;

impl<'de> Visitor<'de> for TreeBytesVisitor {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<usize, E> {
        Ok(0)
    }

    fn visit_bool<E>(self, _: bool) -> Result<usize, E> {
        Ok(0)
    }

    fn visit_i64<E>(self, _: i64) -> Result<usize, E> {
        Ok(0)
    }

    fn visit_u64<E>(self, _: u64) -> Result<usize, E> {
        Ok(0)
    }

    fn visit_f64<E>(self, _: f64) -> Result<usize, E> {
        Ok(0)
    }

    fn visit_str<E>(self, text: &str) -> Result<usize, E> {
        Ok(text.len())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<usize, A::Error> {
        let mut bytes = 0;
        while let Some(item) = items.next_element::<EstimatedTreeBytes>()? {
            bytes += item.0;
        }
        Ok(bytes)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<usize, A::Error> {
        let (mut entries, mut bytes) = (0, 0);
        while let Some((key, value)) =
            fields.next_entry::<EstimatedTreeBytes, EstimatedTreeBytes>()?
        {
            entries += 1;
            bytes += key.0 - size_of::<Value>() + value.0;
        }
        Ok(map_bytes(entries) + bytes)
    }
}

#[cfg(test)]
mod tests {
    use machinery::tree_memory::estimate_tree_bytes;

    use super::*;
    use futures_util::FutureExt;
    use serde_json::json;

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

    #[test]
    fn a_tree_takes_at_least_its_text() {
        let text = "x".repeat(1 << 20);
        let tree = json!({"data": {"k": text}, "list": [1, 2, null]});
        assert!((1 << 20..(1 << 20) + 2000).contains(&estimate_tree_bytes(&tree)));
    }

    #[test]
    fn what_is_encoded_is_measured_as_its_tree() {
        let items = (0..2000).map(|n| json!({"k": n, "texts": ["a\n", true, null, -1, 0.5]}));
        let tree: Value = json!({"data": {"items": items.collect::<Value>()}});
        let encoded = tree.to_string();
        assert!(estimate_encoded_tree_bytes(encoded.as_bytes()) > 10 * encoded.len());
        // Texts of a tree that is built by hand may have room to spare.
        let parsed: Value = machinery::json::from_str(&encoded).unwrap();
        let (measured, made) = (
            estimate_encoded_tree_bytes(encoded.as_bytes()),
            estimate_tree_bytes(&parsed),
        );
        assert!(measured.abs_diff(made) < made / 10, "{measured} {made}");
        assert_eq!(estimate_encoded_tree_bytes(b"{}"), 0);
        assert_eq!(
            estimate_encoded_tree_bytes("x".repeat(1 << 20).as_bytes()),
            0
        );
    }
}
