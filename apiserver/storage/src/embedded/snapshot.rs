//! Reads the keys of one revision page by page for backups, with their expiries.

use std::sync::Arc;

use async_trait::async_trait;

use super::EmbeddedStore;
use super::engine::EmbeddedStoreState;
use crate::backup::{BackupSource, SnapshotPage};
use crate::etcd::EtcdOptions;
use crate::store::{Error, StoreResult};

/// The most keys of a page.
const PAGE_KEYS: usize = 512;

#[async_trait]
impl BackupSource for EmbeddedStore {
    fn engine_name(&self) -> &'static str {
        "embedded"
    }

    fn key_prefix(&self) -> String {
        EtcdOptions::default().prefix
    }

    async fn storage_format(&self) -> StoreResult<u32> {
        self.engine
            .spawn_read(|engine| engine.read_pool.read_format())
            .await
    }

    async fn snapshot_page(&self, after: &str, revision: u64) -> StoreResult<SnapshotPage> {
        let after: Arc<str> = after.into();
        self.engine
            .spawn_read(move |engine| engine.snapshot_page(&after, revision))
            .await
    }
}

impl EmbeddedStoreState {
    fn snapshot_page(&self, after: &str, revision: u64) -> StoreResult<SnapshotPage> {
        let keys = self.index.read().keys_at(after, revision, PAGE_KEYS)?;
        let key_count = keys.len();
        let Some(records) = self.read_pool.read_snapshot_rows(keys)? else {
            self.check_missing_row(revision)?;
            let compact_revision = self.index.read().compact_revision();
            return Err(Error::Compacted {
                at: compact_revision,
            });
        };
        Ok(SnapshotPage {
            is_last: key_count < PAGE_KEYS && records.len() == key_count,
            records,
        })
    }
}
