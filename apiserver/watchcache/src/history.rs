//! A watcher that is behind the ring (or has none) reads the engine's own history.

use std::sync::Arc;
use std::time::Duration;

use storage::Feed;

use crate::error::Error;
use crate::event::{Event, decode};
use crate::shared::Shared;

/// How often a watch from a revision that is not there yet looks for it.
const RETRY: Duration = Duration::from_millis(250);

/// A feed and what of its last batch was not given yet.
pub(crate) struct History {
    feed: Option<Box<dyn Feed>>,
    after: u64,
    pending: std::vec::IntoIter<storage::Event>,
    /// True when `pending` is used up.
    pub(crate) revision: u64,
    /// The events of this revision that were given before: its first ones.
    given: (u64, u32),
}

impl History {
    /// Events after a revision, without the first `count` of revision `given`.
    pub(crate) fn new(after: u64, given: (u64, u32)) -> Self {
        Self {
            feed: None,
            after,
            pending: Vec::new().into_iter(),
            revision: after,
            given,
        }
    }

    /// The next event at hand that `wanted` names.
    pub(crate) fn next(
        &mut self,
        shared: &Shared,
        wanted: impl Fn(&str) -> bool,
    ) -> Option<Arc<Event>> {
        loop {
            let event = self.pending.next()?;
            if !wanted(&event.key) {
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

    /// Whether the event to come next has another revision than the last given.
    pub(crate) fn is_whole(&self, revision: u64) -> bool {
        self.pending
            .as_slice()
            .first()
            .is_none_or(|e| e.revision != revision)
    }

    /// Opens the feed, or waits for its next batch. Cancel-safe.
    pub(crate) async fn fetch(&mut self, shared: &Shared, prefix: &str) -> Result<(), Error> {
        if let Some(feed) = &mut self.feed {
            let batch = feed.next().await;
            let batch = batch.map_err(|e| Error::from_read(e, self.revision))?;
            let last = batch.events.last().map_or(0, |e| e.revision);
            // A progress of 0, or back, is no news.
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
