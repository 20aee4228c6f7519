//! When works are looked at, and the workers of each cluster.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use client::{Api, At, Patch, WriteOptions};
use interpreter::{Changed, Interpreter, Operation};
use machinery::time::{Clock, rfc3339_seconds};
use machinery::{Gvk, Gvr, Object};
use openapi::karmada::labels::{WORK_NAME, WORK_NAMESPACE};
use openapi::karmada::resources::WORKS;
use openapi::karmada::{Work, names};
use parking_lot::Mutex;
use runtime::{Action, Change, Informer, Name, ObjectRef, Queue, Recorder, Tasks, run_workers};
use serde::Deserialize;
use serde_json::json;

use super::conditions::{self, Said};
use super::idle::Idle;
use crate::access::MemberAccess;
use crate::error::Error;
use crate::kinds::Kinds;
use crate::meta::{Extra, same_but_status};
use crate::run::{Deps, Reach};
use crate::works::Works;

const BY_CLUSTER: &str = "cluster";
/// What copies in members keep of their own follows from it.
const RETENTION: &[Operation] = &[Operation::Retain];
/// Calls to one member at once.
const WORKERS_PER_CLUSTER: usize = 8;

/// An object of a work in the member, and the version that was as it should be.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) resource: Gvr,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) revision: u64,
}

/// What was found in order: nothing has to be read again while this holds.
#[derive(Clone, Debug)]
pub(super) struct InOrder {
    pub(super) generation: i64,
    pub(super) targets: Vec<Target>,
}

struct Lane {
    queue: Queue<String>,
    tasks: Tasks,
}

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
    lanes: Mutex<HashMap<String, Lane>>,
    pub(super) in_order: Mutex<HashMap<String, InOrder>>,
    /// The version of each work that our last word on it made.
    told: Mutex<HashMap<String, u64>>,
    pub(super) idle: Idle,
    tasks: Tasks,
}

impl Execution {
    pub(crate) async fn start(deps: &Deps, kinds: &Arc<Kinds>, works: &Works, tasks: &Tasks) {
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
            lanes: Mutex::default(),
            in_order: Mutex::default(),
            told: Mutex::default(),
            idle: Idle::default(),
            tasks: tasks.child(),
        });
        it.works.add_index(BY_CLUSTER, |work| {
            let cluster = names::cluster_of_space(work.namespace());
            cluster.map(str::to_owned).into_iter().collect()
        });
        it.clusters.informer().wait_synced().await;
        it.listen();
        it.end_watches(&it.tasks);
        // The lanes' workers hold the execution; this task ends with them.
        let shutdown = tasks.shutdown().clone();
        tasks.spawn(async move {
            shutdown.wait().await;
            it.tasks.join().await;
        });
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
                let key = gone.head().key();
                self.in_order.lock().remove(&key);
                self.told.lock().remove(&key);
                self.idle.gone(gone);
            }
            (Some(old), Some(new)) if seen(old) == seen(new) => {}
            _ => self.enqueue(change.object().head().key(), change.initial),
        }
    }

    /// Other rules say what a member decides by itself of objects of a kind.
    fn retained_otherwise(self: &Arc<Self>, changed: &Changed<'_>) {
        let concerned = |kind: &Gvk| changed.concerns(kind, RETENTION);
        for work in self.works.list_where(|work| carries(work, concerned)) {
            let key = work.head().key();
            self.in_order.lock().remove(&key);
            self.enqueue(key, true);
        }
    }

    /// A cluster that becomes ready, or goes, gets its works looked at.
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
    }

    /// An object in a member that is no longer as it was brings its work back.
    fn object_changed(self: &Arc<Self>, cluster: &str, change: &Change<'_>) {
        match (change.old, change.new) {
            // Known from the works themselves.
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
        let mut lanes = self.lanes.lock();
        if let Some(lane) = lanes.get(cluster) {
            lane.queue.add_lane(key, low);
            return;
        }
        let lane = Lane {
            queue: Queue::new(),
            tasks: self.tasks.child(),
        };
        let it = Arc::clone(self);
        let (name, queue) = (cluster.to_owned(), lane.queue.clone());
        run_workers(
            &lane.tasks,
            Name::stage("execution", "applied"),
            &lane.queue,
            WORKERS_PER_CLUSTER,
            move |key: String| {
                let (it, name, queue) = (Arc::clone(&it), name.clone(), queue.clone());
                async move { it.reconcile(&name, &key, queue.attempts(&key)).await }
            },
        );
        lane.queue.add_lane(key.clone(), low);
        lanes.insert(cluster.to_owned(), lane);
    }

    async fn reconcile(&self, cluster: &str, key: &str, attempt: u32) -> Result<Action, Error> {
        let Some(object) = self.works.get_key(key) else {
            self.retire(cluster);
            return Ok(Action::Done);
        };
        if !object.head().deleting && self.is_in_order(cluster, key, &object) {
            return Ok(Action::Done);
        }
        // A tree of manifests is not worth keeping: no shared view.
        let work: Work = serde_json::from_slice(object.bytes()).map_err(Error::blocked)?;
        if object.head().deleting {
            self.remove(cluster, &object, &work).await
        } else {
            self.apply(cluster, &object, &work, attempt).await
        }
    }

    /// The workers of a cluster that is gone, and has no works, end.
    fn retire(&self, cluster: &str) {
        if self.clusters.get(cluster).is_none()
            && self.works_of(cluster).is_empty()
            && let Some(lane) = self.lanes.lock().remove(cluster)
        {
            lane.tasks.shutdown().trigger();
        }
    }

    fn is_in_order(&self, cluster: &str, key: &str, work: &Object) -> bool {
        let in_order = self.in_order.lock();
        let Some(known) = in_order.get(key) else {
            return false;
        };
        known.generation == work.head().generation
            && known.targets.iter().all(|t| {
                let informer = self.members.managed(cluster, &t.resource);
                informer
                    .ok()
                    .and_then(|i| i.get(&t.namespace, &t.name))
                    .is_some_and(|o| o.revision() == t.revision)
            })
    }

    /// Writes the conditions that differ; tells which were news.
    pub(super) async fn say(
        &self,
        object: &Object,
        work: &Work,
        said: &[Said],
    ) -> Result<(), Error> {
        let key = object.head().key();
        let at = At::of(&WORKS, object).sub("status");
        let told = self.told.lock().get(&key).copied();
        // What was told a moment ago may not have come back yet: a copy from before
        // would make a recovery look like no news.
        let newer = if told.is_some_and(|revision| revision > object.revision()) {
            match self.control.get(At::of(&WORKS, object)).await {
                Ok(found) => Some(found.view::<Work>()?),
                Err(e) if e.is_not_found() => return Ok(()),
                Err(e) => return Err(e.into()),
            }
        } else {
            None
        };
        let old = &newer.as_deref().unwrap_or(work).status.conditions;
        let now = rfc3339_seconds(self.clock.now());
        let Some(all) = conditions::merge(old, said, object.head().generation, &now) else {
            return Ok(());
        };
        // The conditions are ours alone, so the guard is on the object, not on its
        // version: whoever writes the collected status does not delay them.
        let patch = json!({"metadata": {"uid": object.uid()}, "status": {"conditions": all}});
        let options = WriteOptions::default();
        match self.control.patch(at, Patch::Merge(patch), &options).await {
            Ok(written) => {
                self.told.lock().insert(key, written.revision());
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

/// The kinds of a work's manifests.
#[derive(Deserialize)]
struct Carried {
    spec: CarriedSpec,
}

#[derive(Deserialize)]
struct CarriedSpec {
    workload: CarriedWorkload,
}

#[derive(Deserialize)]
struct CarriedWorkload {
    manifests: Vec<CarriedKind>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CarriedKind {
    api_version: String,
    kind: String,
}

fn carries(work: &Object, one_of: impl Fn(&Gvk) -> bool) -> bool {
    let of_kind = |m: &CarriedKind| one_of(&Gvk::from_api_version(&m.api_version, &m.kind));
    let read = serde_json::from_slice::<Carried>(work.bytes());
    read.is_ok_and(|work| work.spec.workload.manifests.iter().any(of_kind))
}
