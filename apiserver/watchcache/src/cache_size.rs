//! The size of the objects of a cache, and who may bound it.

use std::sync::Arc;

use storage::StoreResult;

use crate::event::ObjectDecodeResult;

/// The memory of an object beside its bytes and its key: its parsed metadata and its entry in the map.
const OBJECT_OVERHEAD_BYTES: usize = 512;
/// The memory of a label or an owner beside its bytes, since the parsed metadata has it once more.
const METADATA_ENTRY_OVERHEAD_BYTES: usize = 64;

/// How many objects a cache holds, and how many bytes they take: those of their JSON, and an
/// estimate for what is parsed of it. Bytes that similar objects share count for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheSize {
    pub objects: usize,
    pub bytes: usize,
}

impl CacheSize {
    fn of(key: &str, slot: &ObjectDecodeResult) -> Self {
        let bytes = slot.as_ref().map_or(0, |object| {
            let entries = object.meta().labels.len() + object.meta().owner_references.len();
            object.served_len() + entries * METADATA_ENTRY_OVERHEAD_BYTES
        });
        Self {
            objects: 1,
            bytes: bytes + key.len() + OBJECT_OVERHEAD_BYTES,
        }
    }

    /// The size once an object has come, gone or been replaced.
    fn with_change(
        self,
        key: &str,
        former: Option<&ObjectDecodeResult>,
        now: Option<&ObjectDecodeResult>,
    ) -> Self {
        let size = |slot: Option<_>| slot.map_or_else(Self::default, |slot| Self::of(key, slot));
        let (former, now) = (size(former), size(now));
        Self {
            objects: self.objects + now.objects - former.objects,
            bytes: self.bytes + now.bytes - former.bytes,
        }
    }
}

/// Bounds what a cache holds.
pub trait CacheSizeLimit: Send + Sync {
    /// Called before an object is added, replaced or removed, with the size before and after, and
    /// once objects were dropped. After an error the object is not held; the cache then drops all
    /// others and fills itself again. A size that does not grow is no error.
    fn resize(&self, from: CacheSize, to: CacheSize) -> StoreResult<()>;
}

/// The size of the objects of one map. It is returned to the limit when it is dropped, so it is
/// dropped after the map.
#[derive(Default)]
pub(crate) struct MeteredSize {
    limit: Option<Arc<dyn CacheSizeLimit>>,
    size: CacheSize,
}

impl MeteredSize {
    /// Of an empty map.
    pub(crate) fn new(limit: Option<&Arc<dyn CacheSizeLimit>>) -> Self {
        Self {
            limit: limit.cloned(),
            size: CacheSize::default(),
        }
    }

    pub(crate) fn size(&self) -> CacheSize {
        self.size
    }

    /// Charges a change of one key, before it is made.
    pub(crate) fn charge(
        &mut self,
        key: &str,
        former: Option<&ObjectDecodeResult>,
        now: Option<&ObjectDecodeResult>,
    ) -> StoreResult<()> {
        if let Some(limit) = &self.limit {
            let changed = self.size.with_change(key, former, now);
            limit.resize(self.size, changed)?;
            self.size = changed;
        }
        Ok(())
    }
}

impl Drop for MeteredSize {
    fn drop(&mut self) {
        if let Some(limit) = &self.limit {
            // It does not grow.
            let _ = limit.resize(self.size, CacheSize::default());
        }
    }
}
