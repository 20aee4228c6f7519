//! The bindings with a pending decision about a NoExecute taint, for the gauge
//! `eviction_kind_total`. Each counts once, however often it is queued; all are removed
//! when the leader term ends.

use std::collections::HashSet;

use flotilla_metrics::Gauge;
use parking_lot::Mutex;

use crate::failover::metrics::EVICTION_METRICS;

/// A binding's key, and the name of a cluster that it is scheduled to.
pub(super) type BindingOnCluster = (String, String);

/// The evictions from tainted clusters that have not been carried out yet.
#[derive(Default)]
pub(super) struct PendingEvictions(Mutex<HashSet<BindingOnCluster>>);

impl PendingEvictions {
    pub(super) fn insert(&self, key: &BindingOnCluster) {
        if self.0.lock().insert(key.clone()) {
            pending_gauge(key).inc();
        }
    }

    pub(super) fn remove(&self, key: &BindingOnCluster) {
        if self.0.lock().remove(key) {
            pending_gauge(key).dec();
        }
    }
}

impl Drop for PendingEvictions {
    fn drop(&mut self) {
        for key in self.0.get_mut().drain() {
            pending_gauge(&key).dec();
        }
    }
}

fn pending_gauge((binding, cluster): &BindingOnCluster) -> Gauge {
    let kind = match binding.contains('/') {
        true => "ResourceBinding",
        false => "ClusterResourceBinding",
    };
    EVICTION_METRICS.pending_of_kind(cluster, kind)
}
