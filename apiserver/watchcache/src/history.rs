//! Reads events from the store's history, for watchers that are behind the ring or whose
//! prefix is not cached.

use std::sync::Arc;
use std::time::Duration;

use storage::StoreWatch;

use crate::error::Error;
use crate::event::{WatchCacheEvent, decode};
use crate::watch_cache::WatchCache;

/// The interval at which a watch retries a start revision that does not exist yet.
const FUTURE_REVISION_RETRY: Duration = Duration::from_millis(250);

/// A watch of the store with the undelivered events of its last response.
pub(crate) struct HistoryReader {
    watch: Option<Box<dyn StoreWatch>>,
    after: u64,
    pending: std::vec::IntoIter<storage::StoreEvent>,
    /// The revision that is reached when `pending` is empty.
    pub(crate) revision: u64,
    /// A revision, and how many of its first events were delivered before.
    delivered: (u64, u32),
}

impl HistoryReader {
    /// Events after a revision, without the first `given.1` events of revision `given.0`.
    pub(crate) fn new(after: u64, delivered: (u64, u32)) -> Self {
        Self {
            watch: None,
            after,
            pending: Vec::new().into_iter(),
            revision: after,
            delivered,
        }
    }

    /// The next event of the last response whose key `selects` accepts.
    pub(crate) fn next(
        &mut self,
        shared: &WatchCache,
        selects: impl Fn(&str) -> bool,
    ) -> Option<Arc<WatchCacheEvent>> {
        loop {
            let event = self.pending.next()?;
            if !selects(&event.key) {
                continue;
            }
            let (revision, count) = &mut self.delivered;
            if event.revision == *revision && *count > 0 {
                *count -= 1;
                continue;
            }
            let now = event
                .value
                .as_deref()
                .map(|v| decode(&event.key, v, event.revision));
            let previous = event
                .previous
                .map(|e| decode(&e.key, &e.value, e.mod_revision));
            let encodings = Arc::clone(&shared.counters.encodings);
            return Some(Arc::new(WatchCacheEvent::new(
                event.revision,
                event.key,
                now,
                previous,
                encodings,
            )));
        }
    }

    /// Whether no further event of `revision` is pending.
    pub(crate) fn is_revision_complete(&self, revision: u64) -> bool {
        self.pending
            .as_slice()
            .first()
            .is_none_or(|e| e.revision != revision)
    }

    /// Opens the watch, or waits for its next response. Cancel-safe.
    pub(crate) async fn fetch(&mut self, shared: &WatchCache, prefix: &str) -> Result<(), Error> {
        if let Some(watch) = &mut self.watch {
            let batch = watch.next().await;
            let batch = batch.map_err(|e| Error::from_read(e, self.revision))?;
            let last = batch.events.last().map_or(0, |e| e.revision);
            // The revision never goes back.
            self.revision = self.revision.max(batch.revision).max(last);
            self.pending = batch.events.into_iter();
            return Ok(());
        }
        match shared.store.watch(prefix, self.after).await {
            Ok(watch) => self.watch = Some(watch),
            Err(storage::Error::Future { .. }) => tokio::time::sleep(FUTURE_REVISION_RETRY).await,
            Err(e) => return Err(Error::from_read(e, self.after)),
        }
        Ok(())
    }
}
