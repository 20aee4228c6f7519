//! The shutdown of the server: what tells filters and streams to end, and what waits
//! for requests in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::watch_drain::WatchDrain;

/// Bound on short requests in flight; it exceeds what the connections' streams allow.
const MAX_SHORT_REQUESTS: u32 = 1 << 24;

/// The state of the shutdown.
#[derive(Default)]
pub(crate) struct ServerDrain {
    started: AtomicBool,
    pub(crate) watches: WatchDrain,
    pub(crate) short_requests: ShortRequests,
}

impl ServerDrain {
    /// Refuses new requests from now on and starts to end watches; the last one ends
    /// within `watch_grace`.
    pub(crate) fn start(&self, watch_grace: Duration) {
        self.started.store(true, Ordering::Release);
        self.watches.start(watch_grace);
    }

    pub(crate) fn is_started(&self) -> bool {
        self.started.load(Ordering::Acquire)
    }
}

/// The requests in flight that are neither watches nor other streams: one permit each.
#[derive(Clone)]
pub(crate) struct ShortRequests(Arc<Semaphore>);

impl Default for ShortRequests {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_SHORT_REQUESTS as usize)))
    }
}

impl ShortRequests {
    /// Counts a request until the permit is dropped.
    pub(crate) fn enter(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).try_acquire_owned().ok()
    }

    /// Waits until no short request is in flight.
    pub(crate) async fn wait_for_all(&self) {
        let _ = self.0.acquire_many(MAX_SHORT_REQUESTS).await;
    }
}
