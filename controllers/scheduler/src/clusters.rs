//! The clusters, kept ready for decisions as they change.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use runtime::Informer;

use crate::core::{Member, Snapshot};

/// A shared view of all Cluster objects. Cloning shares it.
#[derive(Clone)]
pub struct Clusters {
    state: Arc<Mutex<State>>,
    informer: Informer,
}

#[derive(Default)]
struct State {
    members: HashMap<String, Member>,
    /// Built when asked for, dropped when a cluster changes.
    snapshot: Option<Arc<Snapshot>>,
}

impl Clusters {
    /// Follows an informer on `clusters.cluster.karmada.io`.
    pub fn new(informer: Informer) -> Self {
        let state: Arc<Mutex<State>> = Arc::default();
        let shared = Arc::clone(&state);
        informer.on_change(move |change| {
            let mut state = shared.lock();
            state.snapshot = None;
            match change.new.and_then(|c| Member::new(c.clone())) {
                Some(member) => state.members.insert(member.name().to_owned(), member),
                None => state.members.remove(change.object().name()),
            };
        });
        Self { state, informer }
    }

    /// All clusters now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        let mut state = self.state.lock();
        if let Some(snapshot) = &state.snapshot {
            return Arc::clone(snapshot);
        }
        let snapshot = Arc::new(state.members.values().cloned().collect::<Snapshot>());
        state.snapshot = Some(Arc::clone(&snapshot));
        snapshot
    }

    /// One cluster now.
    pub fn get(&self, name: &str) -> Option<Member> {
        self.state.lock().members.get(name).cloned()
    }

    pub fn informer(&self) -> &Informer {
        &self.informer
    }
}
