//! A watch of the embedded engine: a position in the history that its reader advances.
//!
//! The [`WatchNotifier`](super::notifier::WatchNotifier) wakes it. Events come from the
//! ring, or from the rows of the database while the position is older than the ring. A
//! watch owns no buffer, so a slow reader costs no memory.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;

use super::engine::EmbeddedStoreState;
use super::read_pool::check_not_compacted;
use crate::store::{Error, StoreEvent, StoreResult, StoreWatch, WatchResponse};

pub(super) struct EmbeddedWatch {
    engine: Arc<EmbeddedStoreState>,
    prefix: Arc<str>,
    /// The revision up to which events were delivered.
    revision: u64,
    wake: watch::Receiver<u64>,
    /// Whether everything before the next wake-up was delivered.
    waiting: bool,
}

/// The source of the next events.
pub(super) enum NextEventsSource {
    Ring { events: Vec<StoreEvent>, upto: u64 },
    History { upto: u64 },
}

impl EmbeddedWatch {
    pub(super) fn new(
        engine: Arc<EmbeddedStoreState>,
        prefix: &str,
        after: u64,
        wake: watch::Receiver<u64>,
    ) -> Self {
        Self {
            engine,
            prefix: prefix.into(),
            revision: after,
            wake,
            waiting: false,
        }
    }

    pub(super) fn next_events(&self) -> StoreResult<NextEventsSource> {
        let unchanged_revision = self
            .engine
            .notifier
            .unchanged_until(&self.prefix, self.revision);
        let state = self.engine.index.read();
        state.check_open()?;
        if let Some(upto) = unchanged_revision {
            let events = Vec::new();
            return Ok(NextEventsSource::Ring { events, upto });
        }
        let upto = state.revision();
        // The ring may still hold events that are compacted in the database.
        if let Some(events) = state.ring().events_after(self.revision, &self.prefix) {
            return Ok(NextEventsSource::Ring { events, upto });
        }
        state.check_readable(self.revision)?;
        Ok(NextEventsSource::History { upto })
    }

    pub(super) async fn read_history(&self, upto: u64) -> StoreResult<WatchResponse> {
        let (prefix, after) = (self.prefix.clone(), self.revision);
        let page = self
            .engine
            .spawn_read(move |shared| {
                let page = shared.read_pool.read_history(&prefix, after, upto);
                let compacted = shared.index.read().compact_revision();
                check_not_compacted(page?, after, compacted)
            })
            .await?;
        Ok(WatchResponse {
            events: page.events,
            revision: page.included_up_to,
        })
    }
}

#[async_trait]
impl StoreWatch for EmbeddedWatch {
    async fn next(&mut self) -> StoreResult<WatchResponse> {
        loop {
            if self.waiting {
                let from = self.revision;
                // The sender is dropped when the engine closes.
                if self.wake.wait_for(|upto| *upto > from).await.is_err() {
                    let alive = self.engine.index.read().check_open();
                    return Err(alive
                        .err()
                        .unwrap_or_else(|| Error::Unavailable("the watch was closed".into())));
                }
            }
            let batch = match self.next_events()? {
                NextEventsSource::Ring { events, upto } => {
                    self.waiting = true;
                    WatchResponse {
                        events,
                        revision: upto,
                    }
                }
                NextEventsSource::History { upto } => self.read_history(upto).await?,
            };
            if batch.revision > self.revision {
                self.revision = batch.revision;
                return Ok(batch);
            }
        }
    }
}
