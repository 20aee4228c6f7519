//! The engines that backups are taken from.

use async_trait::async_trait;

use super::BackupRecord;
use crate::store::{Store, StoreResult};

/// A page of a snapshot, in ascending order of its keys.
#[derive(Clone, Debug, Default)]
pub struct SnapshotPage {
    pub records: Vec<BackupRecord>,
    /// Whether no key follows the last record.
    pub is_last: bool,
}

/// An engine whose keys can be read as they are stored, with their expiries.
#[async_trait]
pub trait BackupSource: Store {
    /// `embedded` or `etcd`.
    fn engine_name(&self) -> &'static str;
    /// The prefix of the keys, which encrypted values are bound to.
    fn key_prefix(&self) -> String;
    /// The stored version of the storage format ([`crate::format`]).
    async fn storage_format(&self) -> StoreResult<u32>;
    /// The keys after `after`, as they were at `revision`. A page has a bounded number of
    /// keys and bytes, at least one key unless it is the last, and holds nothing of the
    /// engine.
    ///
    /// # Errors
    /// [`crate::Error::Compacted`] when the history no longer has the revision.
    async fn snapshot_page(&self, after: &str, revision: u64) -> StoreResult<SnapshotPage>;
}
