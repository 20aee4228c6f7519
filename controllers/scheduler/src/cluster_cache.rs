//! Caches all clusters, prepared for scheduling, as they change.

use std::collections::HashMap;
use std::sync::Arc;

use client::Informer;
use parking_lot::Mutex;

use crate::core::{ClusterInfo, ClusterSnapshot, SchedulingSettings};

/// A cache of all Cluster objects. Clones share it.
#[derive(Clone)]
pub struct SchedulerClusterCache {
    state: Arc<Mutex<ClusterCacheState>>,
    informer: Informer,
}

#[derive(Default)]
struct ClusterCacheState {
    settings: SchedulingSettings,
    members: HashMap<String, ClusterInfo>,
    /// Built on demand, dropped when a cluster changes.
    snapshot: Option<Arc<ClusterSnapshot>>,
}

impl SchedulerClusterCache {
    /// Watches `clusters.cluster.karmada.io` through an informer, with the default rules.
    pub fn new(informer: Informer) -> Self {
        Self::with_settings(informer, SchedulingSettings::default())
    }

    /// Like [`new`](Self::new), with the rules that every decision on these clusters follows.
    pub fn with_settings(informer: Informer, settings: SchedulingSettings) -> Self {
        let state = Arc::new(Mutex::new(ClusterCacheState {
            settings,
            ..ClusterCacheState::default()
        }));
        let shared = Arc::clone(&state);
        informer.add_event_handler(move |change| {
            let mut state = shared.lock();
            state.snapshot = None;
            match change.new.and_then(|c| ClusterInfo::new(c.clone())) {
                Some(member) => state.members.insert(member.name().to_owned(), member),
                None => state.members.remove(change.object().name()),
            };
        });
        Self { state, informer }
    }

    /// Sets whether later decisions ask accurate estimators.
    pub fn set_estimators(&self, enabled: bool) {
        let mut state = self.state.lock();
        state.settings = state.settings.with_estimators(enabled);
        state.snapshot = None;
    }

    /// All clusters at this moment.
    pub fn snapshot(&self) -> Arc<ClusterSnapshot> {
        let mut state = self.state.lock();
        if let Some(snapshot) = &state.snapshot {
            return Arc::clone(snapshot);
        }
        let members: ClusterSnapshot = state.members.values().cloned().collect();
        let snapshot = Arc::new(members.with_settings(state.settings));
        state.snapshot = Some(Arc::clone(&snapshot));
        snapshot
    }

    /// One cluster at this moment.
    pub fn get(&self, name: &str) -> Option<ClusterInfo> {
        self.state.lock().members.get(name).cloned()
    }

    pub fn informer(&self) -> &Informer {
        &self.informer
    }
}
