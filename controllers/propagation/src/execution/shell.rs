//! Runs the execution controller: enqueues Works after changes and starts the workers of each
//! cluster.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use client::{Api, At, Patch, WriteOptions};
use interpreter::{Changed, Interpreter, Operation};
use machinery::time::{Clock, rfc3339_seconds};
use machinery::{Gvk, Object};
use openapi::karmada::labels::{WORK_NAME, WORK_NAMESPACE};
use openapi::karmada::names;
use openapi::karmada::resources::WORKS;
use flotilla_runtime::{Action, Change, Informer, Name, ObjectRef, Queue, Recorder, Tasks, run_workers};
use serde_json::json;

use super::conditions::{self, Said};
use super::idle::{Idle, kinds};
use super::lanes::{ClusterLane, ClusterLanes, InOrder};
use super::manifest::EncodedWork;
use crate::access::MemberAccess;
use crate::error::Error;
use crate::kinds::Kinds;
use crate::manifest_memory::ManifestMemory;
use crate::meta::{Extra, same_but_status};
use crate::run::{Deps, Reach};
use crate::works::Works;

const BY_CLUSTER: &str = "cluster";
/// The interpreter operations that decide which fields of an observed object are retained.
const RETENTION: &[Operation] = &[Operation::Retain];
/// Concurrent calls to one member.
const WORKERS_PER_CLUSTER: usize = 8;

pub(crate) struct Execution {
    pub(super) control: Arc<dyn Api>,
    pub(super) members: Arc<dyn MemberAccess>,
    pub(super) clusters: scheduler::Clusters,
    pub(super) kinds: Arc<Kinds>,
    pub(super) recorder: Recorder,
    pub(super) interpreter: Interpreter,
    pub(super) call_timeout: Duration,
    clock: Arc<dyn Clock>,
    reach: Reach,
    works: Informer,
    pub(super) lanes: ClusterLanes,
    pub(super) idle: Idle,
    pub(super) memory: Arc<ManifestMemory>,
    /// Kinds whose retention rules have changed, by cluster.
    retained_kinds: Queue<(String, Gvk)>,
    tasks: Tasks,
}

impl Execution {
    pub(crate) async fn start(
        deps: &Deps,
        kinds: &Arc<Kinds>,
        works: &Works,
        memory: &Arc<ManifestMemory>,
        tasks: &Tasks,
    ) {
        let it = Self::following(deps, kinds, works, memory, tasks).await;
        // The workers hold the controller; this task waits for their end.
        let shutdown = tasks.shutdown().clone();
        tasks.spawn(async move {
            shutdown.wait().await;
            it.tasks.join().await;
        });
    }

    /// Returns a controller whose workers end with `tasks`; the caller waits for them.
    pub(super) async fn following(
        deps: &Deps,
        kinds: &Arc<Kinds>,
        works: &Works,
        memory: &Arc<ManifestMemory>,
        tasks: &Tasks,
    ) -> Arc<Self> {
        let it = Arc::new(Self {
            control: Arc::clone(&deps.control),
            members: Arc::clone(&deps.members),
            clusters: deps.clusters.clone(),
            kinds: Arc::clone(kinds),
            recorder: deps.recorder.named("execution-controller"),
            interpreter: deps.interpreter.clone(),
            call_timeout: deps.options.call_timeout,
            clock: Arc::clone(&deps.clock),
            reach: deps.options.reach.clone(),
            works: works.informer.clone(),
            lanes: ClusterLanes::default(),
            idle: Idle::default(),
            memory: Arc::clone(memory),
            retained_kinds: Queue::new(),
            tasks: tasks.child(),
        });
        it.works.add_index(BY_CLUSTER, |work| {
            let cluster = names::cluster_of_space(work.namespace());
            cluster.map(str::to_owned).into_iter().collect()
        });
        it.clusters.informer().wait_synced().await;
        it.listen();
        it.end_watches(&it.tasks);
        it
    }

    fn listen(self: &Arc<Self>) {
        let it = Arc::downgrade(self);
        self.works.on_change(move |change| {
            if let Some(it) = it.upgrade() {
                it.work_changed(change);
            }
        });
        let it = Arc::downgrade(self);
        self.interpreter.on_change(move |changed| {
            if let Some(it) = it.upgrade()
                && changed.touches(RETENTION)
            {
                it.retained_otherwise(changed);
            }
        });
        let it = Arc::clone(self);
        let queue = self.retained_kinds.clone();
        run_workers(&self.tasks, "retained-kinds", &queue, 1, move |at| {
            let it = Arc::clone(&it);
            async move {
                it.retain_again(&at).await;
                Ok::<_, Infallible>(Action::Done)
            }
        });
        let it = Arc::downgrade(self);
        self.clusters.informer().on_change(move |change| {
            if let Some(it) = it.upgrade() {
                it.cluster_changed(change);
            }
        });
        let it = Arc::downgrade(self);
        self.members.on_object(Box::new(move |cluster, _, change| {
            if let Some(it) = it.upgrade() {
                it.object_changed(cluster, change);
            }
        }));
        let it = Arc::downgrade(self);
        self.members.on_connect(Box::new(move |cluster, connected| {
            if let Some(it) = it.upgrade()
                && connected
            {
                it.all_of(cluster);
            }
        }));
    }

    fn work_changed(self: &Arc<Self>, change: &Change<'_>) {
        let seen = |o: &Object| (o.head().generation, o.head().deleting);
        match (change.old, change.new) {
            (Some(gone), None) => {
                self.idle.gone(gone);
                if let Some(lane) = self.lane_of(gone) {
                    let key = gone.head().key();
                    lane.forget(&key);
                    // The key of the last Work of a deleted cluster ends the workers.
                    lane.add(&key, true);
                }
            }
            (Some(old), Some(new)) if seen(old) == seen(new) => {}
            _ => self.enqueue(change.object().head().key(), change.initial),
        }
    }

    /// Enqueues the Works with objects of kinds whose retention rules have changed.
    fn retained_otherwise(&self, changed: &Changed<'_>) {
        let known = self.idle.kinds();
        let concerned = known
            .iter()
            .filter(|kind| changed.concerns(kind, RETENTION));
        for kind in concerned {
            for cluster in self.works.index_keys(BY_CLUSTER, |_| true) {
                self.retained_kinds.add_low((cluster, kind.clone()));
            }
        }
    }

    /// Invalidates and enqueues the Works of a cluster that have objects of a kind.
    async fn retain_again(self: &Arc<Self>, (cluster, kind): &(String, Gvk)) {
        for work in self.works_of(cluster) {
            if kinds(&work).contains(kind) {
                self.not_in_order(&work);
                self.enqueue(work.head().key(), true);
            }
            tokio::task::consume_budget().await;
        }
    }

    /// Enqueues the Works of a cluster that becomes ready or is deleted.
    fn cluster_changed(self: &Arc<Self>, change: &Change<'_>) {
        let name = change.object().name();
        let ready = |o: Option<&Object>| {
            o.and_then(|o| o.view::<openapi::karmada::Cluster>().ok())
                .is_some_and(|c| c.is_ready())
        };
        let deleting = |o: Option<&Object>| o.is_some_and(|o| o.head().deleting);
        let matters = change.new.is_none()
            || (ready(change.new) && !ready(change.old))
            || (deleting(change.new) && !deleting(change.old));
        if matters {
            self.all_of(name);
        }
        if change.new.is_none() {
            self.retire(name, None);
        }
    }

    /// Enqueues the Work of a member's object that has changed.
    fn object_changed(self: &Arc<Self>, cluster: &str, change: &Change<'_>) {
        match (change.old, change.new) {
            // The informer of the Works enqueues these.
            (None, Some(_)) if change.initial => return,
            (Some(old), Some(new)) if same_but_status(old, new) => return,
            _ => {}
        }
        let extra = Extra::of(change.old.unwrap_or_else(|| change.object()));
        let at = (
            extra.annotation(WORK_NAMESPACE),
            extra.annotation(WORK_NAME),
        );
        if let (Some(namespace), Some(name)) = at
            && names::cluster_of_space(namespace) == Some(cluster)
        {
            self.enqueue(format!("{namespace}/{name}"), change.initial);
        }
    }

    pub(super) fn works_of(&self, cluster: &str) -> Vec<Object> {
        self.works.by_index(BY_CLUSTER, cluster)
    }

    fn all_of(self: &Arc<Self>, cluster: &str) {
        for work in self.works_of(cluster) {
            self.enqueue(work.head().key(), true);
        }
    }

    fn enqueue(self: &Arc<Self>, key: String, low: bool) {
        let Some(cluster) = key
            .split_once('/')
            .and_then(|(space, _)| names::cluster_of_space(space))
        else {
            return;
        };
        if !self.reach.covers(cluster, &self.clusters) {
            return;
        }
        let tasks = || self.tasks.child();
        let start = |lane: &Arc<ClusterLane>| self.start_workers(cluster, lane);
        self.lanes.add(cluster, &key, low, tasks, start);
    }

    fn start_workers(self: &Arc<Self>, cluster: &str, lane: &Arc<ClusterLane>) {
        let (it, cluster, of) = (Arc::clone(self), cluster.to_owned(), Arc::clone(lane));
        run_workers(
            &lane.tasks,
            Name::stage("execution", "applied"),
            &lane.queue,
            WORKERS_PER_CLUSTER,
            move |key: String| {
                let (it, cluster, lane) = (Arc::clone(&it), cluster.clone(), Arc::clone(&of));
                async move { it.reconcile(&cluster, &lane, &key).await }
            },
        );
    }

    async fn reconcile(
        &self,
        cluster: &str,
        lane: &ClusterLane,
        key: &str,
    ) -> Result<Action, Error> {
        let Some(object) = self.works.get_key(key) else {
            self.retire(cluster, Some(key));
            return Ok(Action::Done);
        };
        if !object.head().deleting && self.is_in_order(cluster, lane, &object) {
            return Ok(Action::Done);
        }
        let attempt = lane.queue.attempts(&key.to_owned());
        lane.begin(key);
        let work = EncodedWork::parse(&object).map_err(Error::blocked)?;
        if object.head().deleting {
            self.remove(cluster, &object, &work).await
        } else {
            self.apply(cluster, &object, &work, attempt).await
        }
    }

    /// Ends the workers of a deleted cluster without Works. `but` is the key that the caller
    /// processes.
    fn retire(&self, cluster: &str, but: Option<&str>) {
        if self.clusters.get(cluster).is_none() {
            let is_unused =
                || self.clusters.get(cluster).is_none() && self.works_of(cluster).is_empty();
            self.lanes.retire(cluster, but, is_unused);
        }
    }

    fn lane_of(&self, work: &Object) -> Option<Arc<ClusterLane>> {
        self.lanes.get(names::cluster_of_space(work.namespace())?)
    }

    /// The recorded sync state of this version of a Work.
    pub(super) fn in_order(&self, work: &Object) -> Option<Arc<InOrder>> {
        let found = self.lane_of(work)?.in_order(&work.head().key());
        found.filter(|in_order| in_order.is_of(work))
    }

    pub(super) fn set_in_order(&self, work: &Object, in_order: InOrder) {
        if let Some(lane) = self.lane_of(work) {
            lane.set_in_order(&work.head().key(), in_order);
            self.forget_if_gone(&lane, work);
        }
    }

    pub(super) fn not_in_order(&self, work: &Object) {
        if let Some(lane) = self.lane_of(work) {
            lane.not_in_order(&work.head().key());
        }
    }

    /// The handler that forgets a deleted Work may have run before the caller recorded its state.
    fn forget_if_gone(&self, lane: &ClusterLane, work: &Object) {
        let key = work.head().key();
        if self.works.get_key(&key).is_none() {
            lane.forget(&key);
        }
    }

    fn is_in_order(&self, cluster: &str, lane: &ClusterLane, work: &Object) -> bool {
        let Some(known) = lane.in_order(&work.head().key()) else {
            return false;
        };
        known.is_of(work)
            && known.targets.iter().all(|t| {
                let informer = self.members.managed(cluster, &t.resource);
                informer
                    .ok()
                    .and_then(|i| i.get(&t.namespace, &t.name))
                    .is_some_and(|o| o.revision() == t.revision)
            })
    }

    /// Writes the conditions that differ.
    pub(super) async fn say(
        &self,
        object: &Object,
        work: &EncodedWork,
        said: &[Said],
    ) -> Result<(), Error> {
        let key = object.head().key();
        let at = At::of(&WORKS, object).sub("status");
        let lane = self.lane_of(object);
        let written = lane.as_ref().and_then(|lane| lane.conditions_written(&key));
        // The last write may not have arrived by the watch yet: compared with the older copy, a
        // recovery would look unchanged.
        let newer = if written.is_some_and(|revision| revision > object.revision()) {
            match self.control.get(At::of(&WORKS, object)).await {
                Ok(found) => Some(
                    EncodedWork::parse(&found)
                        .map_err(Error::blocked)?
                        .conditions,
                ),
                Err(e) if e.is_not_found() => return Ok(()),
                Err(e) => return Err(e.into()),
            }
        } else {
            None
        };
        let old = newer.as_ref().unwrap_or(&work.conditions);
        let now = rfc3339_seconds(self.clock.now());
        let Some(all) = conditions::merge(old, said, object.head().generation, &now) else {
            return Ok(());
        };
        // Only this controller writes the conditions, so the patch is guarded by the uid and not by
        // the resourceVersion: the controller that writes the collected status does not delay it.
        let patch = json!({"metadata": {"uid": object.uid()}, "status": {"conditions": all}});
        let options = WriteOptions::default();
        match self.control.patch(at, Patch::Merge(patch), &options).await {
            Ok(written) => {
                if let Some(lane) = lane {
                    lane.set_conditions_written(&key, written.revision());
                    self.forget_if_gone(&lane, object);
                }
                Ok(())
            }
            Err(e) if e.is_not_found() => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    pub(super) fn about(object: &Object) -> ObjectRef {
        ObjectRef::new("work.karmada.io/v1alpha1", "Work", object)
    }
}
