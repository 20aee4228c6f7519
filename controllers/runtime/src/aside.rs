//! A reconciliation that waits for somebody outside gives its place to another.
//!
//! Workers are few, and a server that answers nobody could have all of them wait. So who
//! waits for one steps [`aside`]: a substitute takes keys meanwhile. Its own key stays
//! in its hands.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

tokio::task_local! {
    static PLACE: Place;
}

/// The workers of a queue.
pub(crate) trait Crew: Send + Sync {
    /// One of them waits for somebody outside.
    fn leave(self: Arc<Self>);
    /// It goes on.
    fn back(&self);
}

/// That of one reconciliation.
#[derive(Clone)]
pub(crate) struct Place {
    crew: Arc<dyn Crew>,
    /// How many things it waits for.
    waits: Arc<AtomicUsize>,
}

impl Place {
    pub(crate) fn new(crew: Arc<dyn Crew>) -> Self {
        Self {
            crew,
            waits: Arc::default(),
        }
    }

    /// Runs a reconciliation that has this place.
    pub(crate) async fn taken<T>(self, work: impl Future<Output = T>) -> T {
        PLACE.scope(self, work).await
    }
}

/// On its end, also when it is dropped, the place is taken again.
struct Away(Place);

impl Away {
    fn from(place: &Place) -> Self {
        if place.waits.fetch_add(1, Ordering::AcqRel) == 0 {
            Arc::clone(&place.crew).leave();
        }
        Self(place.clone())
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        if self.0.waits.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.crew.back();
        }
    }
}

/// Waits for somebody outside without holding up other keys. Where nothing is
/// reconciled it is the work alone.
pub async fn aside<T>(work: impl Future<Output = T>) -> T {
    let _away = PLACE.try_with(Away::from).ok();
    work.await
}
