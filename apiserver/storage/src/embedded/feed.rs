//! A position in the history, moved on by its reader. Enters: wake-ups of the
//! [`Hub`](super::hub::Hub). Leaves: batches, from the ring, or from rows while the
//! position is older than the ring. It owns no buffer, so a slow reader costs
//! nothing.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;

use super::Shared;
use super::readers::whole;
use crate::store::{Batch, Error, Event, Feed, Result};

pub(super) struct Position {
    shared: Arc<Shared>,
    prefix: Arc<str>,
    /// Delivered up to here.
    revision: u64,
    wake: watch::Receiver<u64>,
    /// Whether everything before the next wake-up is delivered.
    waiting: bool,
}

/// What a look at the shared state gave.
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
        // A compaction does not concern whoever finds everything in the ring.
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
                // The group is dissolved when the engine ends.
                if self.wake.wait_for(|upto| *upto > from).await.is_err() {
                    let alive = self.shared.state.read().alive();
                    return Err(alive
                        .err()
                        .unwrap_or_else(|| Error::Unavailable("the feed was closed".into())));
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
