//! Lets a reconciliation that waits for an external server give its worker away.
//!
//! Workers are few, and a server that does not respond could block all of them. A
//! reconciliation therefore waits for such a server in a [`blocking_section`]: meanwhile
//! a substitute worker takes keys. The blocked worker keeps its own key.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

tokio::task_local! {
    static PLACE: CurrentWorkerHandle;
}

/// The worker pool of a queue.
pub(crate) trait BlockingSectionHandler: Send + Sync {
    /// One worker starts to wait for an external server.
    fn begin_blocking(self: Arc<Self>);
    /// That worker continues.
    fn end_blocking(&self);
}

/// The worker that runs one reconciliation.
#[derive(Clone)]
pub(crate) struct CurrentWorkerHandle {
    pool: Arc<dyn BlockingSectionHandler>,
    /// How many blocking sections are open.
    blocking_sections: Arc<AtomicUsize>,
}

impl CurrentWorkerHandle {
    pub(crate) fn new(pool: Arc<dyn BlockingSectionHandler>) -> Self {
        Self {
            pool,
            blocking_sections: Arc::default(),
        }
    }

    /// Runs a reconciliation on this worker.
    pub(crate) async fn scope<T>(self, work: impl Future<Output = T>) -> T {
        PLACE.scope(self, work).await
    }
}

/// Ends the blocking section when dropped.
struct BlockingGuard(CurrentWorkerHandle);

impl BlockingGuard {
    fn enter(slot: &CurrentWorkerHandle) -> Self {
        if slot.blocking_sections.fetch_add(1, Ordering::AcqRel) == 0 {
            Arc::clone(&slot.pool).begin_blocking();
        }
        Self(slot.clone())
    }
}

impl Drop for BlockingGuard {
    fn drop(&mut self) {
        if self.0.blocking_sections.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.pool.end_blocking();
        }
    }
}

/// Awaits `work`, usually a call to an external server, without holding up other keys.
/// Outside a reconciliation it only awaits `work`.
pub async fn blocking_section<T>(work: impl Future<Output = T>) -> T {
    let _away = PLACE.try_with(BlockingGuard::enter).ok();
    work.await
}
