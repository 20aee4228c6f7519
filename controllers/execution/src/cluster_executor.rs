//! Holds the queue, the workers and the sync state of each cluster. Clusters share none of them, so
//! that no Work waits for the lock or the workers of another cluster.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use client::TaskGroup;
use flotilla_runtime::{LastAppliedVersionByKey, PriorityQueueLane, Workqueue};
use machinery::{Gvr, Object};
use parking_lot::Mutex;

use crate::repair_backoff::RepairBackoff;

/// An object of a Work in the member, and the version that matched the Work.
#[derive(Clone, Debug)]
pub(crate) struct SyncedObjectVersion {
    pub(crate) resource: Gvr,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) revision: u64,
    /// The content of the object as the last write left it, if all of it was written here.
    pub(crate) written_content: Option<u64>,
}

/// A Work whose objects all matched: it needs no comparison while these versions are current.
#[derive(Debug)]
pub(crate) struct SyncedWork {
    pub(crate) uid: String,
    pub(crate) generation: i64,
    pub(crate) objects: Vec<SyncedObjectVersion>,
}

impl SyncedWork {
    /// Whether the state belongs to this version of the Work. A Work that replaces another of the
    /// same name starts at the same generation.
    pub(crate) fn matches_work(&self, work: &Object) -> bool {
        self.uid == work.uid() && self.generation == work.meta().generation
    }
}

/// Works are keyed by `namespace/name`.
pub(crate) struct ClusterExecutor {
    pub(crate) queue: Workqueue<String>,
    pub(crate) tasks: TaskGroup,
    /// Whether the workers are ending. Locked while a key is added, so that no key gets into a
    /// queue without workers.
    retired: Mutex<bool>,
    pub(crate) synced_works: LastAppliedVersionByKey<String, Arc<SyncedWork>>,
    pub(crate) repairs: RepairBackoff,
}

impl ClusterExecutor {
    fn new(tasks: TaskGroup) -> Self {
        Self {
            queue: Workqueue::new(),
            tasks,
            retired: Mutex::default(),
            synced_works: LastAppliedVersionByKey::default(),
            repairs: RepairBackoff::default(),
        }
    }

    /// Adds a key; returns `false` if the workers are ending.
    pub(crate) fn add(&self, key: &str, lane: PriorityQueueLane) -> bool {
        let retired = self.retired.lock();
        if !*retired {
            self.queue.add_to_lane(key.to_owned(), lane);
        }
        !*retired
    }
}

/// The queues and workers by cluster. Readers take no lock.
#[derive(Default)]
pub(crate) struct ClusterExecutors {
    executors: ArcSwap<HashMap<String, Arc<ClusterExecutor>>>,
    /// Locked while a cluster's workers start or end.
    changes_lock: Mutex<()>,
}

impl ClusterExecutors {
    pub(crate) fn get(&self, cluster: &str) -> Option<Arc<ClusterExecutor>> {
        self.executors.load().get(cluster).cloned()
    }

    /// Adds a key to the queue of a cluster. `tasks` and `start` start the workers of a cluster
    /// that has none.
    pub(crate) fn add(
        &self,
        cluster: &str,
        key: &str,
        lane: PriorityQueueLane,
        tasks: impl Fn() -> TaskGroup,
        start: impl Fn(&Arc<ClusterExecutor>),
    ) {
        loop {
            let executor = self.get(cluster);
            let executor = executor.unwrap_or_else(|| self.start_executor(cluster, &tasks, &start));
            if executor.add(key, lane) {
                return;
            }
        }
    }

    fn start_executor(
        &self,
        cluster: &str,
        tasks: &impl Fn() -> TaskGroup,
        start: &impl Fn(&Arc<ClusterExecutor>),
    ) -> Arc<ClusterExecutor> {
        let _changes = self.changes_lock.lock();
        if let Some(executor) = self.get(cluster) {
            return executor;
        }
        let executor = Arc::new(ClusterExecutor::new(tasks()));
        start(&executor);
        let mut executors = HashMap::clone(&self.executors.load());
        executors.insert(cluster.to_owned(), Arc::clone(&executor));
        self.executors.store(Arc::new(executors));
        executor
    }

    /// Ends the workers of a cluster if `is_unused` returns true and no key but `but` is queued or
    /// being processed. A key that is added in the meantime waits and gets new workers.
    pub(crate) fn stop_unused(
        &self,
        cluster: &str,
        but: Option<&str>,
        is_unused: impl FnOnce() -> bool,
    ) {
        let _changes = self.changes_lock.lock();
        let Some(executor) = self.get(cluster) else {
            return;
        };
        let mut retired = executor.retired.lock();
        if !is_unused() || executor.queue.has_other_keys(but) {
            return;
        }
        *retired = true;
        let mut executors = HashMap::clone(&self.executors.load());
        executors.remove(cluster);
        self.executors.store(Arc::new(executors));
        executor.tasks.shutdown().trigger();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::ShutdownToken;
    use std::sync::mpsc;

    /// Adds a key as event handlers do; no workers run.
    fn add(executors: &ClusterExecutors, key: &str) {
        let tasks = || TaskGroup::new(ShutdownToken::new());
        executors.add("m", key, PriorityQueueLane::High, tasks, |_| {});
    }

    /// The last Work of a cluster is deleted. While its workers are being ended, the event handler
    /// of another thread adds the key of a new Work.
    #[test]
    fn a_key_added_while_an_executor_stops_gets_workers() {
        let executors = ClusterExecutors::default();
        add(&executors, "old");
        let old = executors.get("m").unwrap();
        let (begins, begun) = mpsc::channel();
        std::thread::scope(|scope| {
            executors.stop_unused("m", Some("old"), || {
                scope.spawn(|| {
                    begins.send(()).unwrap();
                    add(&executors, "new");
                });
                begun.recv().unwrap();
                // Time for a handler that does not wait.
                std::thread::park_timeout(std::time::Duration::from_millis(20));
                true
            });
        });
        assert!(old.tasks.shutdown().is_triggered());
        let new = executors.get("m").unwrap();
        assert!(
            !Arc::ptr_eq(&old, &new),
            "the new key is in the executor that ended"
        );
        assert_eq!((old.queue.len(), new.queue.len()), (1, 1));
    }

    /// A worker still processes the key of a deleted Work: a second queue would let two workers
    /// process the same Work when it is created again.
    #[test]
    fn an_executor_with_other_keys_keeps_running() {
        let executors = ClusterExecutors::default();
        add(&executors, "held");
        add(&executors, "last");
        executors.stop_unused("m", Some("last"), || true);
        assert!(executors.get("m").is_some());
        let queue = &executors.get("m").unwrap().queue;
        let running_key = futures_util::FutureExt::now_or_never(queue.get()).unwrap();
        assert_eq!(running_key.as_deref(), Some("held"));
        executors.stop_unused("m", Some("last"), || true);
        assert!(executors.get("m").is_some());
        queue.done(&"held".to_owned());
        executors.stop_unused("m", Some("last"), || true);
        assert!(executors.get("m").is_none());
    }
}
