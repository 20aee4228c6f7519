//! The ClusterTaintPolicy controller: reacts to conditions of Clusters and to policies,
//! and writes taints. Taints of a deleted policy stay.

use std::sync::Arc;

use client::{Api, At, Patch, Result, WriteOptions};
use machinery::Object;
use machinery::time::{Clock, rfc3339_seconds};
use openapi::karmada::cluster::Taint;
use openapi::karmada::resources::{CLUSTERS, TAINT_POLICIES};
use openapi::karmada::{Cluster, ClusterTaintPolicy};
use flotilla_runtime::{Action, Change, Informer, ObjectRef, Queue, Recorder, Select, run_workers};
use serde_json::{Value, json};

use super::decide::{concerns, order, taints};
use crate::cluster::taints_told;
use crate::start::Deps;

const WORKERS: usize = 2;

pub(crate) struct Controller {
    api: Arc<dyn Api>,
    clock: Arc<dyn Clock>,
    recorder: Recorder,
    clusters: Informer,
    policies: Informer,
    queue: Queue<String>,
}

impl Controller {
    pub(crate) fn start(deps: &Deps) {
        let informer = |resource| deps.informers.get(&deps.control, &Select::all(resource));
        let it = Arc::new(Self {
            api: Arc::clone(&deps.control),
            clock: Arc::clone(&deps.clock),
            recorder: deps.recorder.named("cluster-taint-policy-controller"),
            clusters: informer(&CLUSTERS),
            policies: informer(&TAINT_POLICIES),
            queue: Queue::new(),
        });
        it.listen();
        let (tasks, shutdown) = (deps.tasks.clone(), deps.tasks.shutdown().clone());
        deps.tasks.spawn(async move {
            // All policies must be listed: their order matters.
            if shutdown.unless(it.policies.wait_synced()).await.is_none() {
                return;
            }
            let queue = it.queue.clone();
            let name = "cluster-taint-policy";
            run_workers(&tasks, name, &queue, WORKERS, move |name: String| {
                let it = Arc::clone(&it);
                async move { it.reconcile(&name).await }
            });
        });
    }

    fn listen(self: &Arc<Self>) {
        let queue = self.queue.clone();
        self.clusters.on_change(move |change| {
            let conditions = |o: &Object| {
                o.view::<Cluster>()
                    .ok()
                    .map(|c| c.status.conditions.clone())
            };
            let changed = |new| {
                change
                    .old
                    .is_none_or(|old| conditions(old) != conditions(new))
            };
            if change.new.is_some_and(changed) {
                queue.add_lane(change.key(), change.initial);
            }
        });
        let it = Arc::downgrade(self);
        self.policies.on_change(move |change| {
            if let Some(it) = it.upgrade() {
                it.policy_changed(change);
            }
        });
    }

    fn policy_changed(&self, change: &Change<'_>) {
        let view = |o: &Object| o.view::<ClusterTaintPolicy>().ok();
        let Some(new) = change.new.and_then(view) else {
            return;
        };
        let old = change.old.and_then(view);
        if old.is_some_and(|old| old.spec == new.spec) {
            return;
        }
        for cluster in self.clusters.list() {
            let meant = |c: Arc<Cluster>| concerns(&new.spec, &c.facts(&cluster));
            if cluster.view::<Cluster>().is_ok_and(meant) {
                self.queue.add_lane(cluster.head().key(), change.initial);
            }
        }
    }

    async fn reconcile(&self, name: &str) -> Result<Action> {
        let Some(object) = self.clusters.get("", name) else {
            return Ok(Action::Done);
        };
        let cluster = object.view::<Cluster>()?;
        let mut policies = Vec::new();
        for policy in self.policies.list() {
            let view = policy.view::<ClusterTaintPolicy>()?;
            if concerns(&view.spec, &cluster.facts(&object)) {
                policies.push((policy.name().to_owned(), (*view).clone()));
            }
        }
        order(&mut policies);
        let current = &cluster.spec.taints;
        let now = rfc3339_seconds(self.clock.now());
        let specs = policies.iter().map(|(_, policy)| &policy.spec);
        let wanted = taints(current, &cluster.status.conditions, specs, &now);
        if wanted == *current {
            return Ok(Action::Done);
        }
        match self.write(&object, &wanted).await {
            Err(e) if e.is_not_found() => Ok(Action::Done),
            Err(e) if e.is_conflict() => Ok(Action::AFTER_CONFLICT),
            Err(e) => Err(e),
            Ok(()) => Ok(Action::Done),
        }
    }

    async fn write(&self, object: &Object, taints: &[Taint]) -> Result<()> {
        // An empty list is an absent field, as with Go's `omitempty`.
        let list = match taints {
            [] => Value::Null,
            taints => json!(taints),
        };
        let patch = json!({"metadata": {"resourceVersion": object.revision().to_string()},
                           "spec": {"taints": list}});
        let at = At::of(&CLUSTERS, object);
        let options = WriteOptions::default();
        let written = self.api.patch(at, Patch::Merge(patch), &options).await;
        let about = ObjectRef::of(object);
        match &written {
            Ok(_) => {
                let (name, told) = (object.name(), taints_told(taints));
                let text = format!("Update Cluster({name}) with taints({told}) succeed");
                self.recorder.normal(&about, "TaintClusterSucceed", text);
            }
            Err(e) if e.is_conflict() || e.is_not_found() => {}
            Err(e) => self
                .recorder
                .warning(&about, "TaintClusterFailed", e.to_string()),
        }
        written.map(drop)
    }
}
