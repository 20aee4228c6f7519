//! Stops the informer of a kind in a member when no Work has objects of the kind any more. The
//! delay lets a Work that is soon created again find the informer running.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use machinery::{Gvk, Gvr, Object};
use openapi::karmada::names::cluster_of_space;
use openapi::karmada::work::{Held, ManifestHead};
use flotilla_runtime::{Action, Queue, Tasks, run_workers};
use serde::Deserialize;

use super::shell::Execution;
use crate::kinds::Served;

/// How long an informer outlives the last Work of its kind.
const LINGER: Duration = Duration::from_secs(60);

/// Checks informers that may be unused, by cluster and kind.
pub(super) struct Idle {
    queue: Queue<(String, Gvk)>,
    /// Kinds that had an informer in any member; the control plane may no longer serve them.
    known: ArcSwap<HashMap<Gvk, Gvr>>,
}

impl Default for Idle {
    fn default() -> Self {
        Self {
            queue: Queue::new(),
            known: ArcSwap::default(),
        }
    }
}

impl Idle {
    pub(super) fn note(&self, served: &Served) {
        if self.known.load().get(&served.gvk) == Some(&served.gvr) {
            return;
        }
        self.known.rcu(|known| {
            let mut known = HashMap::clone(known);
            known.insert(served.gvk.clone(), served.gvr.clone());
            known
        });
    }

    /// All kinds that had an informer.
    pub(super) fn kinds(&self) -> Vec<Gvk> {
        self.known.load().keys().cloned().collect()
    }

    /// Schedules the check for the kinds of a deleted Work.
    pub(super) fn gone(&self, work: &Object) {
        if let Some(cluster) = cluster_of_space(work.namespace()) {
            for kind in kinds(work) {
                self.queue.add_after((cluster.to_owned(), kind), LINGER);
            }
        }
    }
}

impl Execution {
    pub(super) fn end_watches(self: &Arc<Self>, tasks: &Tasks) {
        let it = Arc::clone(self);
        let queue = self.idle.queue.clone();
        run_workers(tasks, "watches", &queue, 1, move |(cluster, kind)| {
            it.end_watch(&cluster, &kind);
            async { Ok::<_, Infallible>(Action::Done) }
        });
    }

    fn end_watch(&self, cluster: &str, kind: &Gvk) {
        let works = self.works_of(cluster);
        if works.iter().any(|work| kinds(work).contains(kind)) {
            return;
        }
        let resource = self.idle.known.load().get(kind).cloned();
        if let Some(resource) = resource {
            self.members.unfollow(cluster, &resource);
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Kinds {
    spec: Held,
}

/// The kinds of a Work's manifests; empty if the Work cannot be parsed.
pub(super) fn kinds(work: &Object) -> Vec<Gvk> {
    let read: Kinds = serde_json::from_slice(work.bytes()).unwrap_or_default();
    read.spec
        .manifests()
        .iter()
        .map(ManifestHead::gvk)
        .collect()
}
