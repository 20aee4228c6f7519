//! The state of a backend store, for its sources and for the conditions of its
//! ResourceRegistries.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{Notify, watch};

use super::client::OpenSearchError;

/// A failure as conditions have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl From<&OpenSearchError> for Failure {
    fn from(error: &OpenSearchError) -> Self {
        Self {
            reason: error.reason(),
            message: error.to_string(),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Availability {
    /// Nothing is known yet.
    #[default]
    Unknown,
    Available,
    Unavailable(Failure),
}

/// The state of a backend store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BackendStoreHealth {
    pub(crate) availability: Availability,
    /// By resource: why its documents cannot be compared with the cache.
    pub(crate) sync_failures: BTreeMap<String, Failure>,
    /// The first object that the store has refused, and the type of the error.
    pub(crate) rejected: Option<String>,
    /// The number of long outages.
    pub(crate) outages: u64,
}

impl BackendStoreHealth {
    pub(crate) fn is_available(&self) -> bool {
        self.availability == Availability::Available
    }
}

/// Publishes the state of a backend store.
pub(crate) struct HealthReporter {
    state: watch::Sender<BackendStoreHealth>,
    /// Notified with every change.
    changed: Arc<Notify>,
}

impl HealthReporter {
    pub(crate) fn new(changed: Arc<Notify>) -> Self {
        Self {
            state: watch::Sender::default(),
            changed,
        }
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<BackendStoreHealth> {
        self.state.subscribe()
    }

    pub(crate) fn current(&self) -> BackendStoreHealth {
        self.state.borrow().clone()
    }

    pub(crate) fn is_available(&self) -> bool {
        self.state.borrow().is_available()
    }

    pub(crate) fn update(&self, update: impl FnOnce(&mut BackendStoreHealth)) {
        let changed = self.state.send_if_modified(|health| {
            let former = health.clone();
            update(health);
            *health != former
        });
        if changed {
            self.changed.notify_one();
        }
    }
}
