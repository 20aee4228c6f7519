//! Which bindings wait for what becomes of them under a taint: what the gauge
//! `eviction_kind_total` tells. Each counts once, however often it is queued; with the
//! process's term all of them end.

use std::collections::HashSet;

use metrics::Gauge;
use parking_lot::Mutex;

use crate::failover::figures::FIGURES;

/// A binding's key, and a cluster that it is placed on.
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
