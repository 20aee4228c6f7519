//! A watch of the embedded engine: a position in the history that its reader advances.
//!
//! The [`WatchNotifier`](super::notifier::WatchNotifier) wakes it. Events come from the
//! ring, or from the rows of the database while the position is older than the ring. A
//! watch owns no buffer, so a slow reader costs no memory.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;

use super::Shared;
use super::readers::whole;
use crate::store::{Batch, Error, Event, Feed, Result};

pub(super) struct Position {
    shared: Arc<Shared>,
    prefix: Arc<str>,
    /// The revision up to which events were delivered.
    revision: u64,
    wake: watch::Receiver<u64>,
    /// Whether everything before the next wake-up was delivered.
    waiting: bool,
}

/// Where the next events come from.
enum Step {
    Recent { events: Vec<Event>, upto: u64 },
    Rows { upto: u64 },
}

impl Position {
    pub(super) fn new(
        shared: Arc<Shared>,
        prefix: &str,
        after: u64,
        wake: watch::Receiver<u64>,
    ) -> Self {
        Self {
            shared,
            prefix: prefix.into(),
            revision: after,
            wake,
            waiting: false,
        }
    }

    fn step(&self) -> Result<Step> {
        let quiet = self.shared.hub.quiet_until(&self.prefix, self.revision);
        let state = self.shared.state.read();
        state.alive()?;
        if let Some(upto) = quiet {
            let events = Vec::new();
            return Ok(Step::Recent { events, upto });
        }
        let upto = state.revision();
        // The ring may still hold events that are compacted in the database.
        if let Some(events) = state.ring().after(self.revision, &self.prefix) {
            return Ok(Step::Recent { events, upto });
        }
        state.readable(self.revision)?;
        Ok(Step::Rows { upto })
    }

    async fn rows(&self, upto: u64) -> Result<Batch> {
        let (prefix, after) = (self.prefix.clone(), self.revision);
        let page = self
            .shared
            .blocking(move |shared| {
                let page = shared.readers.history(&prefix, after, upto);
                let compacted = shared.state.read().compacted();
                whole(page?, after, compacted)
            })
            .await?;
        Ok(Batch {
            events: page.events,
            revision: page.until,
        })
    }
}

#[async_trait]
impl Feed for Position {
    async fn next(&mut self) -> Result<Batch> {
        loop {
            if self.waiting {
                let from = self.revision;
                // The sender is dropped when the engine closes.
                if self.wake.wait_for(|upto| *upto > from).await.is_err() {
                    let alive = self.shared.state.read().alive();
                    return Err(alive
                        .err()
                        .unwrap_or_else(|| Error::Unavailable("the watch was closed".into())));
                }
            }
            let batch = match self.step()? {
                Step::Recent { events, upto } => {
                    self.waiting = true;
                    Batch {
                        events,
                        revision: upto,
                    }
                }
                Step::Rows { upto } => self.rows(upto).await?,
            };
            if batch.revision > self.revision {
                self.revision = batch.revision;
                return Ok(batch);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{Position, Step};
    use crate::embedded::{Embedded, Options};
    use crate::store::{Error, Op, Range, Store, Txn};

    // The compaction runs between the lookup in the index and the read of the rows.

    /// A store with more events than the ring holds, and its last revision.
    async fn flooded() -> (Embedded, u64) {
        let options = Options {
            history: None,
            ..Options::default()
        };
        let store = Embedded::memory(options).unwrap();
        for expected in 0..12 {
            let key = "/a/1".into();
            let value = Bytes::from(vec![7; 1 << 20]);
            let op = Op::Put { value, ttl: None };
            store.commit(Txn { key, expected, op }).await.unwrap();
        }
        (store, 12)
    }

    #[tokio::test]
    async fn compaction_within_a_step_is_noticed() {
        let (store, last) = flooded().await;
        let wake = store.shared.hub.register("/a/", || last);
        let position = Position::new(store.shared.clone(), "/a/", 1, wake);
        let Ok(Step::Rows { upto }) = position.step() else {
            panic!("the position is older than the ring");
        };
        store.compact(last).await.unwrap();
        let refused = position.rows(upto).await;
        assert!(matches!(refused, Err(Error::Compacted { at }) if at == last));
    }

    #[tokio::test]
    async fn compaction_within_a_range_is_noticed() {
        let (store, last) = flooded().await;
        let mut ask = Range::prefix("/a/");
        ask.at = 1;
        let keys = store.shared.state.read().range(&ask).unwrap();
        store.compact(last).await.unwrap();
        assert_eq!(store.shared.readers.entries(keys.found).unwrap(), None);
        store.shared.lost_row(1).unwrap();
        assert!(matches!(
            store.shared.page(&ask),
            Err(Error::Compacted { .. })
        ));
        ask.at = 0;
        assert_eq!(store.shared.page(&ask).unwrap().entries[0].revision, last);
    }
}
