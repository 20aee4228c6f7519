//! Holds the queue, the workers and the sync state of each cluster. Clusters share none of them, so
//! that no Work waits for the lock or the workers of another cluster.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arc_swap::ArcSwap;
use machinery::{Gvr, Object};
use parking_lot::Mutex;
use flotilla_runtime::{Queue, Tasks};

/// An object of a Work in the member, and the version that matched the Work.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) resource: Gvr,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) revision: u64,
}

/// A Work whose objects all matched: it needs no comparison while these versions are current.
#[derive(Debug)]
pub(super) struct InOrder {
    pub(super) uid: String,
    pub(super) generation: i64,
    pub(super) targets: Vec<Target>,
}

impl InOrder {
    /// Whether the state belongs to this version of the Work. A Work that replaces another of the
    /// same name starts at the same generation.
    pub(super) fn is_of(&self, work: &Object) -> bool {
        self.uid == work.uid() && self.generation == work.head().generation
    }
}

/// The sync state of applied Works.
#[derive(Default)]
struct AppliedWorks {
    in_order: HashMap<String, Arc<InOrder>>,
    /// Works that a worker is applying, and that no event has invalidated since.
    in_progress: HashSet<String>,
}

/// Works are keyed by `namespace/name`.
pub(super) struct ClusterLane {
    pub(super) queue: Queue<String>,
    pub(super) tasks: Tasks,
    /// Whether the workers are ending. Locked while a key is added, so that no key gets into a
    /// queue without workers.
    retired: Mutex<bool>,
    applied: Mutex<AppliedWorks>,
    /// The revision of each Work after the last write of its conditions.
    conditions_written: Mutex<HashMap<String, u64>>,
}

impl ClusterLane {
    fn new(tasks: Tasks) -> Self {
        Self {
            queue: Queue::new(),
            tasks,
            retired: Mutex::default(),
            applied: Mutex::default(),
            conditions_written: Mutex::default(),
        }
    }

    /// Adds a key; returns `false` if the workers are ending.
    pub(super) fn add(&self, key: &str, low: bool) -> bool {
        let retired = self.retired.lock();
        if !*retired {
            self.queue.add_lane(key.to_owned(), low);
        }
        !*retired
    }

    pub(super) fn in_order(&self, key: &str) -> Option<Arc<InOrder>> {
        self.applied.lock().in_order.get(key).cloned()
    }

    /// A worker starts to apply a Work.
    pub(super) fn begin(&self, key: &str) {
        self.applied.lock().in_progress.insert(key.to_owned());
    }

    /// Records that the worker has applied the Work, unless an event has invalidated it in the
    /// meantime: the event has enqueued its key.
    pub(super) fn set_in_order(&self, key: &str, in_order: InOrder) {
        let mut applied = self.applied.lock();
        if applied.in_progress.remove(key) {
            applied.in_order.insert(key.to_owned(), Arc::new(in_order));
        }
    }

    pub(super) fn not_in_order(&self, key: &str) {
        let mut applied = self.applied.lock();
        applied.in_order.remove(key);
        applied.in_progress.remove(key);
    }

    pub(super) fn conditions_written(&self, key: &str) -> Option<u64> {
        self.conditions_written.lock().get(key).copied()
    }

    pub(super) fn set_conditions_written(&self, key: &str, revision: u64) {
        let mut all = self.conditions_written.lock();
        all.insert(key.to_owned(), revision);
    }

    /// Forgets a deleted Work.
    pub(super) fn forget(&self, key: &str) {
        self.not_in_order(key);
        self.conditions_written.lock().remove(key);
    }
}

/// The queues and workers by cluster. Readers take no lock.
#[derive(Default)]
pub(super) struct ClusterLanes {
    lanes: ArcSwap<HashMap<String, Arc<ClusterLane>>>,
    /// Locked while a cluster's workers start or end.
    changes: Mutex<()>,
}

impl ClusterLanes {
    pub(super) fn get(&self, cluster: &str) -> Option<Arc<ClusterLane>> {
        self.lanes.load().get(cluster).cloned()
    }

    /// Adds a key to the queue of a cluster. `tasks` and `start` start the workers of a cluster
    /// that has none.
    pub(super) fn add(
        &self,
        cluster: &str,
        key: &str,
        low: bool,
        tasks: impl Fn() -> Tasks,
        start: impl Fn(&Arc<ClusterLane>),
    ) {
        loop {
            let lane = self.get(cluster);
            let lane = lane.unwrap_or_else(|| self.open(cluster, &tasks, &start));
            if lane.add(key, low) {
                return;
            }
        }
    }

    fn open(
        &self,
        cluster: &str,
        tasks: &impl Fn() -> Tasks,
        start: &impl Fn(&Arc<ClusterLane>),
    ) -> Arc<ClusterLane> {
        let _changes = self.changes.lock();
        if let Some(lane) = self.get(cluster) {
            return lane;
        }
        let lane = Arc::new(ClusterLane::new(tasks()));
        start(&lane);
        let mut lanes = HashMap::clone(&self.lanes.load());
        lanes.insert(cluster.to_owned(), Arc::clone(&lane));
        self.lanes.store(Arc::new(lanes));
        lane
    }

    /// Ends the workers of a cluster if `is_unused` returns true and no key but `but` is queued or
    /// being processed. A key that is added in the meantime waits and gets new workers.
    pub(super) fn retire(
        &self,
        cluster: &str,
        but: Option<&str>,
        is_unused: impl FnOnce() -> bool,
    ) {
        let _changes = self.changes.lock();
        let Some(lane) = self.get(cluster) else {
            return;
        };
        let mut retired = lane.retired.lock();
        if !is_unused() || lane.queue.has_others(but) {
            return;
        }
        *retired = true;
        let mut lanes = HashMap::clone(&self.lanes.load());
        lanes.remove(cluster);
        self.lanes.store(Arc::new(lanes));
        lane.tasks.shutdown().trigger();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flotilla_runtime::Shutdown;
    use std::sync::mpsc;

    /// Adds a key as event handlers do; no workers run.
    fn add(lanes: &ClusterLanes, key: &str) {
        let tasks = || Tasks::new(Shutdown::new());
        lanes.add("m", key, false, tasks, |_| {});
    }

    /// The last Work of a cluster is deleted. While its workers are being ended, the event handler
    /// of another thread adds the key of a new Work.
    #[test]
    fn a_key_that_comes_while_a_lane_retires_is_in_a_lane_with_workers() {
        let lanes = ClusterLanes::default();
        add(&lanes, "old");
        let old = lanes.get("m").unwrap();
        let (begins, begun) = mpsc::channel();
        std::thread::scope(|scope| {
            lanes.retire("m", Some("old"), || {
                scope.spawn(|| {
                    begins.send(()).unwrap();
                    add(&lanes, "new");
                });
                begun.recv().unwrap();
                // Time for a handler that does not wait.
                std::thread::park_timeout(std::time::Duration::from_millis(20));
                true
            });
        });
        assert!(old.tasks.shutdown().is_triggered());
        let new = lanes.get("m").unwrap();
        assert!(
            !Arc::ptr_eq(&old, &new),
            "the new key is in the lane that ended"
        );
        assert_eq!((old.queue.len(), new.queue.len()), (1, 1));
    }

    /// The retention rules change while a worker applies a Work by the old rules.
    #[test]
    fn what_was_put_out_of_order_while_it_was_applied_is_not_in_order() {
        let lane = ClusterLane::new(Tasks::new(Shutdown::new()));
        let found = || InOrder {
            uid: "u".into(),
            generation: 1,
            targets: vec![],
        };
        lane.begin("w");
        lane.not_in_order("w");
        lane.set_in_order("w", found());
        assert!(lane.in_order("w").is_none());
        lane.begin("w");
        lane.set_in_order("w", found());
        assert!(lane.in_order("w").is_some());
    }

    /// A worker still processes the key of a deleted Work: a second queue would let two workers
    /// process the same Work when it is created again.
    #[test]
    fn a_lane_with_other_keys_stays() {
        let lanes = ClusterLanes::default();
        add(&lanes, "held");
        add(&lanes, "last");
        lanes.retire("m", Some("last"), || true);
        assert!(lanes.get("m").is_some());
        let queue = &lanes.get("m").unwrap().queue;
        let held = futures_util::FutureExt::now_or_never(queue.get()).unwrap();
        assert_eq!(held.as_deref(), Some("held"));
        lanes.retire("m", Some("last"), || true);
        assert!(lanes.get("m").is_some());
        queue.done(&"held".to_owned());
        lanes.retire("m", Some("last"), || true);
        assert!(lanes.get("m").is_none());
    }
}
