//! The watch of a resource of a member. It outlives the watches of the member's API server, which
//! end after some minutes and whenever the network breaks, and ends when the member has lost its
//! revision.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use client::{WatchEvent, WatchOptions, WatchStream};
use futures_util::StreamExt;
use machinery::{ExponentialBackoff, Object};
use rand::Rng;
use storage::{StoreEvent, StoreResult, StoreWatch, WatchResponse};
use tokio::time::Instant;

use crate::member_resource::{MemberResource, is_revision_lost, store_error};

/// As a reflector waits where the server is there and the network breaks.
const BACKOFF: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_millis(800), Duration::from_secs(10));
/// The range of `timeoutSeconds`, as a reflector has it.
const WATCH_TIMEOUT_SECONDS: std::ops::Range<u32> = 300..600;
/// A watch that ends sooner counts as a failure.
const MIN_WATCH_DURATION: Duration = Duration::from_secs(1);

/// A watch that reopens itself.
pub(crate) struct MemberStoreWatch {
    resource: Arc<MemberResource>,
    /// Everything up to it was delivered.
    revision: u64,
    stream: Option<(WatchStream, Instant)>,
    backoff: ExponentialBackoff,
    /// Not before then is the next watch opened.
    retry_at: Option<Instant>,
}

impl MemberStoreWatch {
    pub(crate) fn new(resource: Arc<MemberResource>, after: u64) -> Self {
        Self {
            resource,
            revision: after,
            stream: None,
            backoff: BACKOFF,
            retry_at: None,
        }
    }

    async fn open(&mut self) -> client::Result<()> {
        if let Some(at) = self.retry_at {
            tokio::time::sleep_until(at).await;
        }
        let options = WatchOptions {
            resource_version: self.revision.to_string(),
            bookmarks: true,
            timeout_seconds: rand::rng().random_range(WATCH_TIMEOUT_SECONDS),
            ..WatchOptions::default()
        };
        let resource = &self.resource;
        let stream = resource.api.watch(resource.path(), &options).await?;
        self.stream = Some((stream, Instant::now()));
        self.retry_at = None;
        Ok(())
    }

    /// The next event. `None`: there is none yet, because the watch has ended or failed.
    async fn next_event(&mut self) -> client::Result<Option<WatchEvent>> {
        if self.stream.is_none() {
            self.open().await?;
        }
        let Some((stream, opened)) = &mut self.stream else {
            return Ok(None);
        };
        let event = stream.next().await.transpose()?;
        match event {
            Some(_) => self.backoff.reset(),
            None => {
                let short = opened.elapsed() < MIN_WATCH_DURATION;
                self.stream = None;
                if short {
                    self.delay();
                }
            }
        }
        Ok(event)
    }

    fn delay(&mut self) {
        let jitter = rand::rng().random_range(1.0..1.5);
        self.retry_at = Some(Instant::now() + self.backoff.next_delay().mul_f64(jitter));
    }

    /// The change of the cache that an event makes; `None` if it is nothing new.
    fn response(&mut self, event: WatchEvent) -> StoreResult<Option<WatchResponse>> {
        let (object, is_deleted) = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
            WatchEvent::Deleted(object) => (object, true),
            WatchEvent::Bookmark { revision, .. } => return Ok(self.advance(revision, None)),
        };
        let revision = self.resource.check_revision(object.revision())?;
        let event = self.store_event(&object, revision, is_deleted);
        Ok(self.advance(revision, event))
    }

    fn advance(&mut self, revision: u64, event: Option<StoreEvent>) -> Option<WatchResponse> {
        if revision <= self.revision {
            return None;
        }
        self.revision = revision;
        Some(WatchResponse {
            events: event.into_iter().collect(),
            revision,
        })
    }

    fn store_event(&self, object: &Object, revision: u64, is_deleted: bool) -> Option<StoreEvent> {
        let resource = &self.resource;
        if !resource.selects(object) {
            return None;
        }
        let value = match is_deleted {
            true => None,
            false => Some(resource.stored_value(object)?),
        };
        Some(StoreEvent {
            key: resource.key(object),
            revision,
            value,
            previous: None,
        })
    }
}

#[async_trait]
impl StoreWatch for MemberStoreWatch {
    async fn next(&mut self) -> StoreResult<WatchResponse> {
        loop {
            match self.next_event().await {
                Ok(Some(event)) => {
                    if let Some(response) = self.response(event)? {
                        return Ok(response);
                    }
                }
                Ok(None) => {}
                Err(error) => {
                    self.stream = None;
                    if is_revision_lost(&error) {
                        return Err(store_error(&self.resource.cluster, &error));
                    }
                    let (cluster, resource) = (&self.resource.cluster, &self.resource.resource);
                    tracing::debug!(%cluster, %resource, %error, "the watch of a member broke");
                    self.delay();
                }
            }
        }
    }
}
