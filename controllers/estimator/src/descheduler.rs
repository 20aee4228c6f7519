//! The descheduler: takes from clusters the replicas of Deployments that their schedulers have
//! failed to place for long, so that the scheduler places them in other clusters.
//!
//! Source of the rules: Karmada's `pkg/descheduler`. Bindings are checked at intervals, since
//! time alone makes a pending replica unschedulable.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use client::{Api, Error, Informer, InvolvedObject, Patch, ResourcePath, Result, WriteOptions};
use flotilla_runtime::{
    ControllerContext, EventRecorder, ReconcileAction, Workqueue, run_workers_after,
};
use karmada_api::ResourceBinding;
use karmada_api::binding::ObjectReference;
use karmada_api::placement::Placement;
use karmada_api::resources::BINDINGS;
use karmada_api::well_known_keys::APPLIED_PLACEMENT;
use machinery::Object;
use members::MemberClusterManager;
use serde_json::{Value, json};
use tokio::time::MissedTickBehavior;

use crate::descheduling_result::{
    DeschedulingResult, deschedule, is_dynamically_divided, is_supported, undesired_clusters,
};
use crate::estimator_cache::EstimatorCache;
use crate::unschedulable_replica_estimator::UnschedulableReplicaEstimator;

const WORKERS: usize = 1;

/// When the descheduler acts; the defaults are Karmada's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeschedulerSettings {
    /// The interval between two checks of all bindings.
    pub interval: Duration,
    /// How long a replica must have been unschedulable.
    pub unschedulable_threshold: Duration,
}

impl Default for DeschedulerSettings {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(2 * 60),
            unschedulable_threshold: Duration::from_secs(5 * 60),
        }
    }
}

/// What the descheduler works with beside its context.
pub struct DeschedulerOptions {
    pub connections: Arc<EstimatorCache>,
    pub members: MemberClusterManager,
    pub settings: DeschedulerSettings,
}

/// The controller descheduler.
pub struct Descheduler {
    api: Arc<dyn Api>,
    bindings: Informer,
    estimator: UnschedulableReplicaEstimator,
    recorder: EventRecorder,
    queue: Workqueue<String>,
}

impl Descheduler {
    /// Starts the descheduler; it stops with the tasks of the context.
    pub fn start(context: &ControllerContext, options: DeschedulerOptions) {
        let settings = options.settings;
        let descheduler = Arc::new(Self {
            bindings: context.informer(&BINDINGS),
            estimator: UnschedulableReplicaEstimator::new(
                options.connections,
                options.members,
                Arc::clone(&context.clock),
                settings.unschedulable_threshold,
            ),
            api: Arc::clone(&context.control_plane),
            recorder: context.recorder.clone(),
            queue: Workqueue::new(),
        });
        let synced = Arc::clone(&descheduler);
        let worker = Arc::clone(&descheduler);
        run_workers_after(
            &context.tasks,
            async move {
                synced.bindings.wait_for_cache_sync().await;
                synced.estimator.connections.wait_ready().await;
            },
            "descheduler",
            &descheduler.queue,
            WORKERS,
            move |key: String| {
                let descheduler = Arc::clone(&worker);
                async move { descheduler.reconcile(&key).await }
            },
        );
        let shutdown = context.tasks.shutdown().clone();
        context.tasks.spawn(async move {
            shutdown
                .run_until_triggered(descheduler.enqueue_at_intervals(settings.interval))
                .await;
        });
    }

    async fn enqueue_at_intervals(&self, interval: Duration) {
        self.bindings.wait_for_cache_sync().await;
        let mut ticks = tokio::time::interval(interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            for binding in self.bindings.list() {
                self.queue.add_low(binding.meta().key());
            }
        }
    }

    async fn reconcile(&self, key: &str) -> Result<ReconcileAction> {
        let Some(object) = self.bindings.get_by_key(key) else {
            return Ok(ReconcileAction::Done);
        };
        let binding = object.decode::<ResourceBinding>()?;
        let resource = &binding.spec.resource;
        if object.meta().deleting || !is_supported(resource) {
            return Ok(ReconcileAction::Done);
        }
        let candidates = undesired_clusters(&binding);
        if candidates.is_empty() || !has_dynamic_placement(&binding) {
            return Ok(ReconcileAction::Done);
        }
        let names: Vec<&str> = candidates.iter().map(|c| c.cluster.as_str()).collect();
        let unschedulable = self.estimator.count(&names, resource).await;
        match deschedule(&candidates, &unschedulable) {
            Some(result) => self.update_binding(&object, resource, &result).await,
            None => Ok(ReconcileAction::Done),
        }
    }

    async fn update_binding(
        &self,
        object: &Object,
        resource: &ObjectReference,
        result: &DeschedulingResult,
    ) -> Result<ReconcileAction> {
        let clusters = remaining_clusters(object, &result.remaining)?;
        let patch = json!({"metadata": {"resourceVersion": object.revision().to_string()},
            "spec": {"clusters": clusters}});
        let at = ResourcePath::of_object(&BINDINGS, object);
        let options = WriteOptions::default();
        let written = self.api.patch(at, Patch::Merge(patch), &options).await;
        if written.as_ref().is_err_and(Error::is_not_found) {
            return Ok(ReconcileAction::Done);
        }
        for about in [InvolvedObject::from_object(object), template_of(resource)] {
            match &written {
                Ok(_) => self
                    .recorder
                    .normal(&about, "DescheduleBindingSucceed", &result.message),
                Err(error) => {
                    self.recorder
                        .warning(&about, "DescheduleBindingFailed", error.to_string())
                }
            }
        }
        written.map(|_| ReconcileAction::Done)
    }
}

/// Whether the placement that the replicas were divided by is dynamic. One that cannot be read
/// is not.
fn has_dynamic_placement(binding: &ResourceBinding) -> bool {
    let applied = binding.metadata.annotations.get(APPLIED_PLACEMENT);
    let placement = applied.and_then(|text| machinery::json::from_str::<Placement>(text).ok());
    placement.is_some_and(|placement| is_dynamically_divided(&placement))
}

/// The binding's `spec.clusters` with the remaining replicas; everything else in it stays.
fn remaining_clusters(object: &Object, remaining: &[(usize, i64)]) -> Result<Value> {
    let mut clusters = object.value()?["spec"]["clusters"].take();
    for (index, replicas) in remaining {
        if let Some(target) = clusters.get_mut(*index).and_then(Value::as_object_mut) {
            match replicas {
                0 => target.remove("replicas"),
                _ => target.insert("replicas".to_owned(), (*replicas).into()),
            };
        }
    }
    Ok(clusters)
}

fn template_of(resource: &ObjectReference) -> InvolvedObject {
    InvolvedObject {
        api_version: resource.api_version.clone(),
        kind: resource.kind.clone(),
        namespace: resource.namespace.clone(),
        name: resource.name.clone(),
        uid: resource.uid.clone(),
        resource_version: String::new(),
    }
}

impl fmt::Debug for Descheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Descheduler")
    }
}
