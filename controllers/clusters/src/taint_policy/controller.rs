//! The ClusterTaintPolicy controller: reacts to conditions of Clusters and to policies,
//! and writes taints. Taints of a deleted policy stay.

use std::sync::Arc;

use client::{
    Api, Informer, InformerEvent, InvolvedObject, Patch, ResourcePath, Result, WriteOptions,
    ignore_not_found,
};
use flotilla_runtime::{
    ControllerContext, EventRecorder, ReconcileAction, Workqueue, run_workers_after,
};
use karmada_api::cluster::Taint;
use karmada_api::resources::{CLUSTERS, TAINT_POLICIES};
use karmada_api::{Cluster, ClusterTaintPolicy};
use machinery::Object;
use machinery::time::{Clock, rfc3339_seconds};
use serde_json::{Value, json};

use super::reconcile::{desired_taints, sort_by_age, targets_cluster};
use crate::cluster::taints_message;

const WORKERS: usize = 2;

pub(crate) struct ClusterTaintPolicyController {
    api: Arc<dyn Api>,
    clock: Arc<dyn Clock>,
    recorder: EventRecorder,
    clusters: Informer,
    policies: Informer,
    queue: Workqueue<String>,
}

impl ClusterTaintPolicyController {
    pub(crate) fn start(context: &ControllerContext) {
        let controller = Arc::new(Self {
            api: Arc::clone(&context.control_plane),
            clock: Arc::clone(&context.clock),
            recorder: context
                .recorder
                .with_component("cluster-taint-policy-controller"),
            clusters: context.informer(&CLUSTERS),
            policies: context.informer(&TAINT_POLICIES),
            queue: Workqueue::new(),
        });
        controller.add_event_handlers();
        let (policies, queue) = (controller.policies.clone(), controller.queue.clone());
        run_workers_after(
            &context.tasks,
            // All policies must be listed: their order matters.
            async move { policies.wait_for_cache_sync().await },
            "cluster-taint-policy",
            &queue,
            WORKERS,
            move |name: String| {
                let controller = Arc::clone(&controller);
                async move { controller.reconcile(&name).await }
            },
        );
    }

    fn add_event_handlers(self: &Arc<Self>) {
        let queue = self.queue.clone();
        self.clusters.add_event_handler(move |change| {
            let conditions = |o: &Object| {
                o.decode::<Cluster>()
                    .ok()
                    .map(|c| c.status.conditions.clone())
            };
            let changed = |new| {
                change
                    .old
                    .is_none_or(|old| conditions(old) != conditions(new))
            };
            if change.new.is_some_and(changed) {
                queue.add_event(change.key(), change);
            }
        });
        let controller = Arc::downgrade(self);
        self.policies.add_event_handler(move |change| {
            if let Some(controller) = controller.upgrade() {
                controller.policy_changed(change);
            }
        });
    }

    fn policy_changed(&self, change: &InformerEvent<'_>) {
        let view = |o: &Object| o.decode::<ClusterTaintPolicy>().ok();
        let Some(new) = change.new.and_then(view) else {
            return;
        };
        let old = change.old.and_then(view);
        if old.is_some_and(|old| old.spec == new.spec) {
            return;
        }
        for cluster in self.clusters.list() {
            let meant = |c: Arc<Cluster>| targets_cluster(&new.spec, &c.attributes(&cluster));
            if cluster.decode::<Cluster>().is_ok_and(meant) {
                self.queue.add_event(cluster.meta().key(), change);
            }
        }
    }

    async fn reconcile(&self, name: &str) -> Result<ReconcileAction> {
        // The cached copy may lack the taints of a moment ago, which another policy removes now.
        let at = ResourcePath::object(&CLUSTERS, "", name);
        let Some(object) = ignore_not_found(self.api.get(at).await)? else {
            return Ok(ReconcileAction::Done);
        };
        let cluster = object.decode::<Cluster>()?;
        let mut listed = self.policies.list();
        sort_by_age(&mut listed);
        let mut policies = Vec::new();
        for policy in &listed {
            let policy = policy.decode::<ClusterTaintPolicy>()?;
            if targets_cluster(&policy.spec, &cluster.attributes(&object)) {
                policies.push(policy);
            }
        }
        let current = &cluster.spec.taints;
        let now = rfc3339_seconds(self.clock.now());
        let specs = policies.iter().map(|policy| &policy.spec);
        let desired = desired_taints(current, &cluster.status.conditions, specs, &now);
        if desired == *current {
            return Ok(ReconcileAction::Done);
        }
        match self.patch_taints(&object, &desired).await {
            Err(e) if e.is_not_found() => Ok(ReconcileAction::Done),
            Err(e) if e.is_conflict() => Ok(ReconcileAction::AFTER_CONFLICT),
            Err(e) => Err(e),
            Ok(()) => Ok(ReconcileAction::Done),
        }
    }

    async fn patch_taints(&self, object: &Object, taints: &[Taint]) -> Result<()> {
        // An empty list is an absent field, as with Go's `omitempty`.
        let list = match taints {
            [] => Value::Null,
            taints => json!(taints),
        };
        let patch = json!({"metadata": {"resourceVersion": object.revision().to_string()},
                           "spec": {"taints": list}});
        let at = ResourcePath::of_object(&CLUSTERS, object);
        let options = WriteOptions::default();
        let written = self.api.patch(at, Patch::Merge(patch), &options).await;
        let about = InvolvedObject::from_object(object);
        match &written {
            Ok(_) => {
                let (name, taints_text) = (object.name(), taints_message(taints));
                let text = format!("Update Cluster({name}) with taints({taints_text}) succeed");
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
