//! Observes what clusters can run of workloads with a ReplicaSchedulingPreference: replicas whose
//! pods the cluster's scheduler cannot place are beyond its capacity.
//!
//! Writes the capacities into an annotation of the binding, by which the scheduler divides. A
//! cluster is asked only while its replicas are not all ready. Sources: KubeFed v0.10's
//! `pkg/schedulingtypes/replicascheduler.go` and `pkg/controller/util/podanalyzer`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use client::{Api, Error, Informer, ListOptions, Patch, ResourcePath, WriteOptions};
use controller_context::PropagationContext;
use flotilla_runtime::{ReconcileAction, RestMapper, Workqueue, run_workers};
use karmada_api::ResourceBinding;
use karmada_api::binding::ObjectReference;
use karmada_api::replica_preference::RecordedReplicaPreference;
use karmada_api::resources::BINDINGS;
use karmada_api::well_known_keys::{OBSERVED_CAPACITY, REPLICA_PREFERENCE};
use machinery::selector::LabelSelector;
use machinery::time::{Clock, parse};
use machinery::{Gvk, Gvr, Object};
use members::MemberAccess;
use serde_json::{Value, json};

use crate::options::PolicyControllersOptions;

static PODS: Gvr = Gvr::from_static("", "v1", "pods");
/// One slow cluster must not hold up the others.
const OBSERVATION_WORKERS: usize = 4;
const OBSERVATION_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a pod has been unschedulable before it counts, as in KubeFed: replicas must not move
/// because of a pod that only waits for its turn.
const UNSCHEDULABLE_THRESHOLD_SECONDS: i64 = 60;
/// Binding statuses change with every pod of a rollout; one observation follows many of them.
const OBSERVATION_DELAY: Duration = Duration::from_secs(1);
/// Pods become unschedulable, and schedulable, without a change of the binding.
const OBSERVATION_INTERVAL: Duration = Duration::from_secs(15);
const POD_PAGE_LIMIT: u64 = 500;
/// Further pods of a workload are not read: a member may answer without end.
const MAX_PODS: usize = 20_000;

/// The pods of a workload in a cluster.
enum CapacityObservation {
    /// `capacity`: the replicas that the cluster can run, if it cannot run all.
    Pods { capacity: Option<i64> },
    /// The workload has no replicas or no selector where Deployments have them.
    UnknownForm,
}

impl CapacityObservation {
    const NO_LIMIT: Self = Self::Pods { capacity: None };
}

/// A binding, by `namespace/name`, and one of its clusters.
type ObservationKey = (String, String);

pub(crate) struct ObservedCapacityController {
    api: Arc<dyn Api>,
    clock: Arc<dyn Clock>,
    members: Arc<dyn MemberAccess>,
    rest_mapper: Arc<RestMapper>,
    bindings: Informer,
}

impl ObservedCapacityController {
    pub(crate) async fn start(context: &PropagationContext, options: &PolicyControllersOptions) {
        let controller = Arc::new(Self {
            api: Arc::clone(&context.controller.control_plane),
            clock: Arc::clone(&context.controller.clock),
            members: Arc::clone(&context.members),
            rest_mapper: Arc::clone(&options.rest_mapper),
            bindings: context.controller.informer(&BINDINGS),
        });
        controller.bindings.wait_for_cache_sync().await;
        let queue: Workqueue<ObservationKey> = Workqueue::new();
        let changed = queue.clone();
        controller.bindings.add_event_handler(move |change| {
            let binding = change.new.map(Object::decode::<ResourceBinding>);
            let Some(Ok(binding)) = binding else { return };
            for cluster in clusters_to_observe(&binding) {
                changed.add_after((change.key(), cluster), OBSERVATION_DELAY);
            }
        });
        run_workers(
            &context.controller.tasks,
            "observed-capacity",
            &queue,
            OBSERVATION_WORKERS,
            move |key: ObservationKey| {
                let controller = Arc::clone(&controller);
                async move { controller.reconcile(&key).await }
            },
        );
    }

    async fn reconcile(&self, (key, cluster): &ObservationKey) -> Result<ReconcileAction, Error> {
        let Some(object) = self.bindings.get_by_key(key) else {
            return Ok(ReconcileAction::Done);
        };
        let binding = object.decode::<ResourceBinding>()?;
        if object.meta().deleting || !clusters_to_observe(&binding).contains(cluster) {
            return Ok(ReconcileAction::Done);
        }
        let again = ReconcileAction::RequeueAfter(OBSERVATION_INTERVAL);
        let (observation, next) = if lacks_ready_replicas(&binding, cluster) {
            let observation = self.observe(cluster, &binding.spec.resource);
            match tokio::time::timeout(OBSERVATION_TIMEOUT, observation).await {
                Ok(Ok(observation)) => (observation, again),
                // The cluster keeps the capacity that was observed last.
                Ok(Err(_)) | Err(_) => return Ok(again),
            }
        } else {
            (CapacityObservation::NO_LIMIT, ReconcileAction::Done)
        };
        let (capacity, next) = match observation {
            CapacityObservation::Pods { capacity } => (capacity, next),
            CapacityObservation::UnknownForm => (None, ReconcileAction::Done),
        };
        let written = self.write_capacity(&object, &binding, cluster, capacity);
        ReconcileAction::after_write(written.await, next)
    }

    /// Observes the pods of the workload in a cluster.
    async fn observe(
        &self,
        cluster: &str,
        workload: &ObjectReference,
    ) -> Result<CapacityObservation, Error> {
        let api = self.members.api(cluster).map_err(Error::Protocol)?;
        let kind = Gvk::from_api_version(&workload.api_version, &workload.kind);
        let Some(served) = self.rest_mapper.get(&kind) else {
            return Ok(CapacityObservation::UnknownForm);
        };
        let at = ResourcePath::object(&served.gvr, &workload.namespace, &workload.name);
        let object = match api.get(at).await {
            Err(error) if error.is_not_found() => return Ok(CapacityObservation::NO_LIMIT),
            other => other?.value()?,
        };
        let spec = &object["spec"];
        let selector = LabelSelector::from_value(&spec["selector"]).map_err(Error::Protocol)?;
        let selector = selector.to_string();
        let replicas = spec["replicas"].as_i64();
        let Some(replicas) = replicas.filter(|_| spec["selector"].is_object()) else {
            return Ok(CapacityObservation::UnknownForm);
        };
        if selector.is_empty() {
            return Ok(CapacityObservation::UnknownForm);
        }
        let namespace = &workload.namespace;
        let unschedulable = self.count_unschedulable(&*api, namespace, &selector);
        let unschedulable = unschedulable.await?;
        Ok(CapacityObservation::Pods {
            capacity: (unschedulable > 0).then(|| replicas.saturating_sub(unschedulable).max(0)),
        })
    }

    async fn count_unschedulable(
        &self,
        api: &dyn Api,
        namespace: &str,
        selector: &str,
    ) -> Result<i64, Error> {
        let mut options = ListOptions {
            label_selector: selector.to_owned(),
            limit: POD_PAGE_LIMIT,
            ..ListOptions::default()
        };
        let (mut pods, mut unschedulable) = (0, 0);
        loop {
            let path = ResourcePath::collection(&PODS, namespace);
            let page = api.list(path, &options).await?;
            for pod in &page.items {
                unschedulable += i64::from(self.is_unschedulable(&pod.value()?));
            }
            pods += page.items.len();
            if page.continue_token.is_empty() || pods >= MAX_PODS {
                return Ok(unschedulable);
            }
            options.continue_token = page.continue_token;
        }
    }

    /// Whether the cluster's scheduler has failed to place the pod for long.
    fn is_unschedulable(&self, pod: &Value) -> bool {
        let phase = pod["status"]["phase"].as_str().unwrap_or("Pending");
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        phase == "Pending"
            && conditions.clone().any(|condition| {
                let since = condition["lastTransitionTime"].as_str().map(parse);
                let seconds = since
                    .and_then(Result::ok)
                    .map_or(0, |since| self.clock.now().duration_since(since).as_secs());
                condition["type"] == "PodScheduled"
                    && condition["status"] == "False"
                    && condition["reason"] == "Unschedulable"
                    && seconds > UNSCHEDULABLE_THRESHOLD_SECONDS
            })
    }

    /// Records the capacity of a cluster, if it is another one than before.
    async fn write_capacity(
        &self,
        object: &Object,
        binding: &ResourceBinding,
        cluster: &str,
        capacity: Option<i64>,
    ) -> Result<(), Error> {
        let Some(recorded) = RecordedReplicaPreference::from_binding(binding) else {
            return Ok(());
        };
        // A cluster that is no target any more has nothing that could be observed.
        let mut capacities = recorded.capacity.clone();
        let targets = &binding.spec.clusters;
        capacities.retain(|name, _| targets.iter().any(|target| target.name == *name));
        match capacity {
            Some(capacity) => _ = capacities.insert(cluster.to_owned(), capacity),
            None => _ = capacities.remove(cluster),
        }
        if capacities == recorded.capacity {
            return Ok(());
        }
        let text = annotation_text(&capacities)?;
        let patch = json!({"metadata": {"resourceVersion": object.revision().to_string(),
            "annotations": {OBSERVED_CAPACITY: text}}});
        let at = ResourcePath::of_object(&BINDINGS, object);
        let options = WriteOptions::default();
        let written = self.api.patch(at, Patch::Merge(patch), &options).await;
        written.map(drop)
    }
}

/// The value of the annotation; null, which removes it, without capacities.
fn annotation_text(capacities: &BTreeMap<String, i64>) -> Result<Value, Error> {
    if capacities.is_empty() {
        return Ok(Value::Null);
    }
    let text = serde_json::to_string(capacities).map_err(|e| Error::Protocol(e.to_string()))?;
    Ok(text.into())
}

/// The clusters of a binding with a preference that lack ready replicas or have a recorded
/// capacity.
fn clusters_to_observe(binding: &ResourceBinding) -> Vec<String> {
    if !binding
        .metadata
        .annotations
        .contains_key(REPLICA_PREFERENCE)
    {
        return Vec::new();
    }
    let recorded = RecordedReplicaPreference::from_binding(binding);
    let capacity = recorded.map(|recorded| recorded.capacity);
    let capacity = capacity.unwrap_or_default();
    let targets = binding.spec.clusters.iter();
    let names = targets.map(|target| target.name.clone());
    names
        .filter(|name| capacity.contains_key(name) || lacks_ready_replicas(binding, name))
        .collect()
}

/// Whether a target has fewer ready replicas than it is assigned, by what the cluster reported.
fn lacks_ready_replicas(binding: &ResourceBinding, cluster: &str) -> bool {
    let targets = &binding.spec.clusters;
    let assigned = targets.iter().find(|target| target.name == cluster);
    let assigned = assigned.map_or(0, |target| target.replicas);
    let reported = &binding.status.aggregated_status;
    let ready = reported.iter().find(|item| item.cluster_name == cluster);
    let ready = ready.and_then(|item| item.status.as_ref()?["readyReplicas"].as_i64());
    ready.unwrap_or(0) < assigned
}
