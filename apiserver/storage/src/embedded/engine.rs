//! The state that the store handle, the watches and the writer share.

use std::sync::Arc;

use parking_lot::RwLock;
use tokio::sync::{Semaphore, watch};

#[cfg(test)]
use super::failpoint;
use super::health::StoreHealthReporter;
use super::mvcc_index::MvccIndex;
use super::notifier::WatchNotifier;
use super::read_pool::ReadConnectionPool;
use crate::store::{Error, KeyValue, RangeRequest, RangeResponse, StoreResult};

/// The state that the store handle, the watches and the writer share.
#[derive(Debug)]
pub(super) struct EmbeddedStoreState {
    /// Locked briefly. No other lock is taken while it is held; the lock of the notifier
    /// may be held while it is taken.
    pub(super) index: RwLock<MvccIndex>,
    pub(super) notifier: WatchNotifier,
    pub(super) read_pool: ReadConnectionPool,
    pub(super) read_permits: Semaphore,
    pub(super) health: StoreHealthReporter,
    /// Set once, when the engine fails permanently.
    pub(super) failure: watch::Sender<Option<Error>>,
    /// Runs in the middle of a publication: the index has the events, the groups of the
    /// notifier do not.
    #[cfg(test)]
    pub(super) between_publications: failpoint::Failpoint,
}

impl EmbeddedStoreState {
    /// Runs a blocking read on a thread that may block.
    pub(super) async fn spawn_read<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Self) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        let closed = |_| Error::Unavailable("reads are closed".into());
        let _permit = self.read_permits.acquire().await.map_err(closed)?;
        let shared = self.clone();
        tokio::task::spawn_blocking(move || read(&shared))
            .await
            .map_err(|e| Error::Unavailable(format!("a read was aborted: {e}")))?
    }

    /// Reads a range. The rows are read after the index; when a compaction has removed
    /// one of them in between, the read starts over.
    pub(super) fn range(&self, range: &RangeRequest) -> StoreResult<RangeResponse> {
        loop {
            let keys = self.index.read().range(range)?;
            let mut page = keys.page;
            if let Some(entries) = self.read_pool.read_values(keys.entries)? {
                page.kvs = entries;
                return Ok(page);
            }
            self.check_missing_row(page.revision)?;
        }
    }

    pub(super) fn get(&self, key: &str) -> StoreResult<Option<KeyValue>> {
        loop {
            let (revision, entry) = {
                let state = self.index.read();
                state.check_open()?;
                (state.revision(), state.newest(key))
            };
            let Some(entry) = entry else {
                return Ok(None);
            };
            if let Some(mut entries) = self.read_pool.read_values(vec![entry])? {
                return Ok(entries.pop());
            }
            self.check_missing_row(revision)?;
        }
    }

    /// Fails unless a compaction explains why a row that the index had at `revision` is
    /// missing.
    pub(super) fn check_missing_row(&self, revision: u64) -> StoreResult<()> {
        if self.index.read().compact_revision() > revision {
            return Ok(());
        }
        Err(Error::Fatal(format!(
            "the store lost a row of revision {revision}; restore it from a backup"
        )))
    }
}
