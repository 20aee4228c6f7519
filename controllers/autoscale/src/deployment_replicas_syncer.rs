//! Copies the replicas of a Deployment that autoscalers in the members scale from its status to
//! `spec.replicas`.
//!
//! Source: Karmada's `pkg/controllers/deploymentreplicassyncer`. Karmada requeues every second until
//! the status is complete; here the change of the binding or of the Deployment enqueues it.

use std::sync::Arc;

use client::{Api, Informer, Patch, ResourcePath, Result, WriteOptions};
use flotilla_runtime::{ControllerContext, ReconcileAction, Workqueue, run_workers};
use karmada_api::resources::BINDINGS;
use karmada_api::well_known_keys::RETAIN_REPLICAS;
use karmada_api::{ResourceBinding, names};
use machinery::Object;
use serde::Deserialize;
use serde_json::json;

use crate::DEPLOYMENTS;

const WORKERS: usize = 1;
const KIND: &str = "Deployment";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DeploymentWithReplicas {
    spec: DeploymentSpecReplicas,
    status: DeploymentStatusReplicas,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DeploymentSpecReplicas {
    replicas: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DeploymentStatusReplicas {
    replicas: i64,
}

/// The replicas to set on a Deployment: those of its status, once the current spec is scheduled and
/// every cluster has reported. `None` when they are set already, or when that is not the case yet.
fn desired_replicas(
    deployment: &DeploymentWithReplicas,
    binding: &ResourceBinding,
    generation: i64,
) -> Option<i64> {
    let desired = deployment.spec.replicas?;
    let current = deployment.status.replicas;
    let placement = binding.spec.placement.as_ref()?;
    let scheduling = placement.replica_scheduling.as_ref()?;
    let scheduled = binding.spec.replicas == desired
        && binding.status.scheduler_observed_generation == generation;
    if scheduling.replica_scheduling_type != "Divided" || desired == current || !scheduled {
        return None;
    }
    let reported = &binding.status.aggregated_status;
    if reported.len() != binding.spec.clusters.len() {
        return None;
    }
    let mut sum = 0_i64;
    for cluster in reported {
        let status = DeploymentStatusReplicas::deserialize(cluster.status.as_ref()?).ok()?;
        // An autoscaler keeps at least one replica; zero means that the status is still missing.
        if status.replicas <= 0 {
            return None;
        }
        sum = sum.checked_add(status.replicas)?;
    }
    (sum == current).then_some(current)
}

fn retains_replicas(deployment: &Object) -> bool {
    deployment.meta().label(RETAIN_REPLICAS) == Some("true")
}

/// The controller deploymentReplicasSyncer.
pub(crate) struct DeploymentReplicasSyncer {
    api: Arc<dyn Api>,
    deployments: Informer,
    bindings: Informer,
}

impl DeploymentReplicasSyncer {
    pub(crate) async fn start(context: &ControllerContext) {
        let syncer = Arc::new(Self {
            api: Arc::clone(&context.control_plane),
            deployments: context.informer(&DEPLOYMENTS),
            bindings: context.informer(&BINDINGS),
        });
        syncer.deployments.wait_for_cache_sync().await;
        syncer.bindings.wait_for_cache_sync().await;
        let queue: Workqueue<String> = Workqueue::new();
        let changed = queue.clone();
        syncer.deployments.add_event_handler(move |change| {
            if let Some(new) = change.new.filter(|new| retains_replicas(new)) {
                changed.add_event(new.meta().key(), change);
            }
        });
        let (changed, weak) = (queue.clone(), Arc::downgrade(&syncer));
        syncer.bindings.add_event_handler(move |change| {
            if let (Some(syncer), Some(binding), false) =
                (weak.upgrade(), change.new, change.in_initial_list)
                && let Some(key) = syncer.deployment_of_binding(binding)
            {
                changed.add(key);
            }
        });
        run_workers(
            &context.tasks,
            "deployment-replicas-syncer",
            &queue,
            WORKERS,
            move |key: String| {
                let syncer = Arc::clone(&syncer);
                async move { syncer.reconcile(&key).await }
            },
        );
    }

    /// The key of the Deployment of a binding, if its replicas are retained.
    fn deployment_of_binding(&self, binding: &Object) -> Option<String> {
        let binding_view = binding.decode::<ResourceBinding>().ok()?;
        let resource = &binding_view.spec.resource;
        if resource.kind != KIND || resource.api_version != "apps/v1" {
            return None;
        }
        let deployment = self.deployments.get(binding.namespace(), &resource.name)?;
        retains_replicas(&deployment).then(|| deployment.meta().key())
    }

    async fn reconcile(&self, key: &str) -> Result<ReconcileAction> {
        let Some(object) = self.deployments.get_by_key(key).filter(retains_replicas) else {
            return Ok(ReconcileAction::Done);
        };
        let name = names::binding_name(KIND, object.name());
        let Some(binding) = self.bindings.get(object.namespace(), &name) else {
            return Ok(ReconcileAction::Done);
        };
        let generation = binding.meta().generation;
        let (deployment, binding) = (
            object.decode::<DeploymentWithReplicas>()?,
            binding.decode::<ResourceBinding>()?,
        );
        let Some(replicas) = desired_replicas(&deployment, &binding, generation) else {
            return Ok(ReconcileAction::Done);
        };
        let patch = json!({"metadata": {"resourceVersion": object.revision().to_string()},
            "spec": {"replicas": replicas}});
        let at = ResourcePath::of_object(&DEPLOYMENTS, &object);
        let options = WriteOptions::default();
        match self.api.patch(at, Patch::Merge(patch), &options).await {
            Err(e) if e.is_not_found() => Ok(ReconcileAction::Done),
            Err(e) if e.is_conflict() => Ok(ReconcileAction::AFTER_CONFLICT),
            other => other.map(|_| ReconcileAction::Done),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    // proves: AUT-follows, AUT-waits
    #[test]
    fn replicas_follow_once_every_cluster_has_reported() {
        let deployment = json!({"spec": {"replicas": 2}, "status": {"replicas": 5}});
        let statuses = |replicas: &[i64]| -> Value {
            let all = replicas.iter().enumerate();
            all.map(|(i, n)| json!({"clusterName": format!("m{i}"), "status": {"replicas": n}}))
                .collect()
        };
        let binding = json!({"spec": {"replicas": 2, "clusters": [{"name": "m0"}, {"name": "m1"}],
                "placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}}},
            "status": {"schedulerObservedGeneration": 3, "aggregatedStatus": statuses(&[4, 1])}});
        let table = [
            ("", Value::Null, Some(5)),
            ("/deployment/spec/replicas", json!(5), None),
            ("/deployment/spec/replicas", json!(3), None),
            ("/deployment/spec/replicas", Value::Null, None),
            ("/deployment/status/replicas", json!(4), None),
            (
                "/binding/spec/placement/replicaScheduling/replicaSchedulingType",
                json!("Duplicated"),
                None,
            ),
            (
                "/binding/spec/placement/replicaScheduling",
                Value::Null,
                None,
            ),
            (
                "/binding/status/schedulerObservedGeneration",
                json!(2),
                None,
            ),
            ("/binding/status/aggregatedStatus", statuses(&[5]), None),
            ("/binding/status/aggregatedStatus", statuses(&[5, 0]), None),
            (
                "/binding/status/aggregatedStatus",
                statuses(&[i64::MAX, 1]),
                None,
            ),
            (
                "/binding/status/aggregatedStatus/0/status",
                Value::Null,
                None,
            ),
        ];
        for (path, value, expected) in table {
            let mut all = json!({"deployment": deployment, "binding": binding});
            if !path.is_empty() {
                *all.pointer_mut(path).unwrap() = value;
            }
            let actual = desired_replicas(
                &serde_json::from_value(all["deployment"].take()).unwrap(),
                &serde_json::from_value(all["binding"].take()).unwrap(),
                3,
            );
            assert_eq!(actual, expected, "{path}");
        }
    }
}
