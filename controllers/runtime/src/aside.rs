//! Lets a reconciliation that waits for an external server give its worker away.
//!
//! Workers are few, and a server that does not respond could block all of them. A
//! reconciliation therefore waits for such a server in a [`blocking_section`]: meanwhile
//! a substitute worker takes keys. The blocked worker keeps its own key.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

tokio::task_local! {
    static PLACE: Place;
}

/// The worker pool of a queue.
pub(crate) trait Crew: Send + Sync {
    /// One worker starts to wait for an external server.
    fn leave(self: Arc<Self>);
    /// That worker continues.
    fn back(&self);
}

/// The worker that runs one reconciliation.
#[derive(Clone)]
pub(crate) struct Place {
    crew: Arc<dyn Crew>,
    /// How many blocking sections are open.
    waits: Arc<AtomicUsize>,
}

impl Place {
    pub(crate) fn new(crew: Arc<dyn Crew>) -> Self {
        Self {
            crew,
            waits: Arc::default(),
        }
    }

    /// Runs a reconciliation on this worker.
    pub(crate) async fn taken<T>(self, work: impl Future<Output = T>) -> T {
        PLACE.scope(self, work).await
    }
}

/// Ends the blocking section when dropped.
struct Away(Place);

impl Away {
    fn from(slot: &Place) -> Self {
        if slot.waits.fetch_add(1, Ordering::AcqRel) == 0 {
            Arc::clone(&slot.crew).leave();
        }
        Self(slot.clone())
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        if self.0.waits.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.crew.back();
        }
    }
}

/// Awaits `work`, usually a call to an external server, without holding up other keys.
/// Outside a reconciliation it only awaits `work`.
pub async fn aside<T>(work: impl Future<Output = T>) -> T {
    let _away = PLACE.try_with(Away::from).ok();
    work.await
}
