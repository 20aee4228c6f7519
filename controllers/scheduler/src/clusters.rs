//! Caches all clusters, prepared for scheduling, as they change.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use flotilla_runtime::Informer;

use crate::core::{Member, Rules, Snapshot};

/// A cache of all Cluster objects. Clones share it.
#[derive(Clone)]
pub struct Clusters {
    state: Arc<Mutex<State>>,
    informer: Informer,
    rules: Rules,
}

#[derive(Default)]
struct State {
    members: HashMap<String, Member>,
    /// Built on demand, dropped when a cluster changes.
    snapshot: Option<Arc<Snapshot>>,
}

impl Clusters {
    /// Watches `clusters.cluster.karmada.io` through an informer, with the default rules.
    pub fn new(informer: Informer) -> Self {
        Self::under(informer, Rules::default())
    }

    /// Like [`new`](Self::new), with the rules that every decision on these clusters follows.
    pub fn under(informer: Informer, rules: Rules) -> Self {
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
        Self {
            state,
            informer,
            rules,
        }
    }

    /// All clusters at this moment.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        let mut state = self.state.lock();
        if let Some(snapshot) = &state.snapshot {
            return Arc::clone(snapshot);
        }
        let members: Snapshot = state.members.values().cloned().collect();
        let snapshot = Arc::new(members.under(self.rules));
        state.snapshot = Some(Arc::clone(&snapshot));
        snapshot
    }

    /// One cluster at this moment.
    pub fn get(&self, name: &str) -> Option<Member> {
        self.state.lock().members.get(name).cloned()
    }

    pub fn informer(&self) -> &Informer {
        &self.informer
    }
}
