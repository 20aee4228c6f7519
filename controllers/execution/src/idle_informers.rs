//! Remembers the kinds with an informer in a member, and which of them may no longer be used by any
//! Work. The delay lets a Work that is soon created again find the informer running.

use std::collections::HashMap;
use std::time::Duration;

use arc_swap::ArcSwap;
use flotilla_runtime::{RestMapping, Workqueue};
use karmada_api::names::cluster_of_execution_space;
use karmada_api::work::{ManifestIdentity, WorkSpecManifestIdentities};
use machinery::{Gvk, Gvr, Object};
use serde::Deserialize;

/// How long an informer outlives the last Work of its kind.
const IDLE_INFORMER_TIMEOUT: Duration = Duration::from_secs(60);

/// Checks informers that may be unused, by cluster and kind.
pub(crate) struct IdleInformerChecker {
    pub(crate) queue: Workqueue<(String, Gvk)>,
    /// Kinds that had an informer in any member; the control plane may no longer serve them.
    pub(crate) watched_kinds: ArcSwap<HashMap<Gvk, Gvr>>,
}

impl Default for IdleInformerChecker {
    fn default() -> Self {
        Self {
            queue: Workqueue::new(),
            watched_kinds: ArcSwap::default(),
        }
    }
}

impl IdleInformerChecker {
    pub(crate) fn record_kind(&self, served: &RestMapping) {
        if self.watched_kinds.load().get(&served.gvk) == Some(&served.gvr) {
            return;
        }
        self.watched_kinds.rcu(|kinds| {
            let mut kinds = HashMap::clone(kinds);
            kinds.insert(served.gvk.clone(), served.gvr.clone());
            kinds
        });
    }

    /// All kinds that had an informer.
    pub(crate) fn kinds(&self) -> Vec<Gvk> {
        self.watched_kinds.load().keys().cloned().collect()
    }

    /// Schedules the check for the kinds of a deleted Work.
    pub(crate) fn on_work_deleted(&self, work: &Object) {
        if let Some(cluster) = cluster_of_execution_space(work.namespace()) {
            for kind in manifest_kinds(work) {
                self.queue
                    .add_after((cluster.to_owned(), kind), IDLE_INFORMER_TIMEOUT);
            }
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WorkWithManifestIdentities {
    spec: WorkSpecManifestIdentities,
}

/// The kinds of a Work's manifests; empty if the Work cannot be parsed.
pub(crate) fn manifest_kinds(work: &Object) -> Vec<Gvk> {
    let read: WorkWithManifestIdentities =
        machinery::json::from_slice(&work.bytes()).unwrap_or_default();
    read.spec
        .manifests()
        .iter()
        .map(ManifestIdentity::gvk)
        .collect()
}
