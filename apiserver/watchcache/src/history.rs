//! Reads events from the store's history, for watchers that are behind the ring or whose
//! prefix is not cached.

use std::sync::Arc;
use std::time::Duration;

use storage::Feed;

use crate::error::Error;
use crate::event::{Event, decode};
use crate::shared::Shared;

/// The interval at which a watch retries a start revision that does not exist yet.
const RETRY: Duration = Duration::from_millis(250);

/// A watch of the store with the undelivered events of its last response.
pub(crate) struct History {
    feed: Option<Box<dyn Feed>>,
    after: u64,
    pending: std::vec::IntoIter<storage::Event>,
    /// The revision that is reached when `pending` is empty.
    pub(crate) revision: u64,
    /// A revision, and how many of its first events were delivered before.
    given: (u64, u32),
}

impl History {
    /// Events after a revision, without the first `given.1` events of revision `given.0`.
    pub(crate) fn new(after: u64, given: (u64, u32)) -> Self {
        Self {
            feed: None,
            after,
            pending: Vec::new().into_iter(),
            revision: after,
            given,
        }
    }

    /// The next event of the last response whose key `selects` accepts.
    pub(crate) fn next(
        &mut self,
        shared: &Shared,
        selects: impl Fn(&str) -> bool,
    ) -> Option<Arc<Event>> {
        loop {
            let event = self.pending.next()?;
            if !selects(&event.key) {
                continue;
            }
            let (revision, count) = &mut self.given;
            if event.revision == *revision && *count > 0 {
                *count -= 1;
                continue;
            }
            let now = event
                .value
                .as_deref()
                .map(|v| decode(&event.key, v, event.revision));
            let was = event.previous.map(|e| decode(&e.key, &e.value, e.revision));
            let encodings = Arc::clone(&shared.counters.encodings);
            return Some(Arc::new(Event::new(
                event.revision,
                event.key,
                now,
                was,
                encodings,
            )));
        }
    }

    /// Whether no further event of `revision` is pending.
    pub(crate) fn is_whole(&self, revision: u64) -> bool {
        self.pending
            .as_slice()
            .first()
            .is_none_or(|e| e.revision != revision)
    }

    /// Opens the watch, or waits for its next response. Cancel-safe.
    pub(crate) async fn fetch(&mut self, shared: &Shared, prefix: &str) -> Result<(), Error> {
        if let Some(feed) = &mut self.feed {
            let batch = feed.next().await;
            let batch = batch.map_err(|e| Error::from_read(e, self.revision))?;
            let last = batch.events.last().map_or(0, |e| e.revision);
            // The revision never goes back.
            self.revision = self.revision.max(batch.revision).max(last);
            self.pending = batch.events.into_iter();
            return Ok(());
        }
        match shared.store.watch(prefix, self.after).await {
            Ok(feed) => self.feed = Some(feed),
            Err(storage::Error::Future { .. }) => tokio::time::sleep(RETRY).await,
            Err(e) => return Err(Error::from_read(e, self.after)),
        }
        Ok(())
    }
}
