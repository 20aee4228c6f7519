//! Cluster changes whose affected bindings have not been looked up yet.

use std::collections::HashMap;
use std::sync::Arc;

use flotilla_runtime::Workqueue;
use karmada_api::Cluster;
use machinery::Object;
use parking_lot::Mutex;

/// Whether affinities may match a cluster that they did not match before, or the reverse.
pub(super) fn affinity_match_may_change(old: Option<&Object>, new: &Object) -> bool {
    old.is_some_and(|old| {
        let (before, after) = (old.meta(), new.meta());
        after.deleting != before.deleting
            || after.labels != before.labels
            || after.generation != before.generation
    })
}

/// Whether a cluster serves other kinds than before. A newly served kind matters to
/// bindings that found no cluster, and to those that select every cluster that serves it.
pub(super) fn api_enablements_changed(old: Option<&Object>, new: &Object) -> bool {
    let view = |cluster: &Object| cluster.decode::<Cluster>().ok();
    let (before, after) = (old.and_then(view), view(new));
    let enablements = |cluster: &Option<Arc<Cluster>>| {
        let cluster = cluster.as_ref();
        cluster.map_or_else(Vec::new, |c| c.status.api_enablements.clone())
    };
    enablements(&before) != enablements(&after)
}

/// A cluster before the change, if it existed, and after it.
type ClusterUpdate = (Option<Object>, Object);

/// Cluster changes, by cluster name, whose affected bindings have not been looked up yet.
#[derive(Default)]
pub(super) struct ClusterUpdateQueue {
    pub(super) queue: Workqueue<String>,
    updates: Mutex<HashMap<String, Vec<ClusterUpdate>>>,
}

impl ClusterUpdateQueue {
    pub(super) fn add(&self, old: Option<&Object>, new: &Object) {
        if !affinity_match_may_change(old, new) && !api_enablements_changed(old, new) {
            return;
        }
        let mut changes = self.updates.lock();
        let of_cluster = changes.entry(new.name().to_owned()).or_default();
        of_cluster.push((old.cloned(), new.clone()));
        drop(changes);
        self.queue.add_low(new.name().to_owned());
    }

    pub(super) fn take(&self, cluster: &str) -> Vec<ClusterUpdate> {
        self.updates.lock().remove(cluster).unwrap_or_default()
    }
}
