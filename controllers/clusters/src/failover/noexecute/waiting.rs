//! The bindings with a pending decision about a NoExecute taint, for the gauge
//! `eviction_kind_total`. Each counts once, however often it is queued; all are removed
//! when the leader term ends.

use std::collections::HashSet;

use flotilla_metrics::Gauge;
use parking_lot::Mutex;

use crate::failover::figures::FIGURES;

/// A binding's key, and the name of a cluster that it is scheduled to.
pub(super) type Key = (String, String);

#[derive(Default)]
pub(super) struct Waiting(Mutex<HashSet<Key>>);

impl Waiting {
    pub(super) fn enter(&self, key: &Key) {
        if self.0.lock().insert(key.clone()) {
            gauge(key).inc();
        }
    }

    pub(super) fn leave(&self, key: &Key) {
        if self.0.lock().remove(key) {
            gauge(key).dec();
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        for key in self.0.get_mut().drain() {
            gauge(&key).dec();
        }
    }
}

fn gauge((binding, cluster): &Key) -> Gauge {
    let kind = match binding.contains('/') {
        true => "ResourceBinding",
        false => "ClusterResourceBinding",
    };
    FIGURES.of_kind(cluster, kind)
}
