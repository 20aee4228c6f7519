//! Collects the changed override policies whose bindings a worker has still to find.

use std::collections::HashMap;

use client::InformerEvent;
use flotilla_runtime::Workqueue;
use machinery::Object;
use parking_lot::Mutex;

/// The versions of changed override policies whose bindings are still to be found, by the
/// `namespace/name` of the policy or the name of a cluster override policy.
#[derive(Default)]
pub(crate) struct ChangedOverridePolicies {
    pub(crate) queue: Workqueue<String>,
    pub(crate) versions: Mutex<HashMap<String, Vec<Object>>>,
}

impl ChangedOverridePolicies {
    /// Adds the old version too: what it selected has to be reconciled as well.
    pub(crate) fn add(&self, change: &InformerEvent<'_>) {
        let versions = [change.old, change.new].into_iter().flatten().cloned();
        let mut all = self.versions.lock();
        all.entry(change.key()).or_default().extend(versions);
        drop(all);
        self.queue.add(change.key());
    }
}
