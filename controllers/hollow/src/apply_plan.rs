//! Applies [`WorkloadPlan`]s and [`DeploymentPlan`]s through `client::Api`.

use std::time::{Duration, Instant};

use client::{DeleteOptions, Error, Patch, ResourcePath, WriteOptions};
use flotilla_runtime::{ReconcileAction, StatusWriter};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use machinery::{Gvr, Object, Status};
use serde_json::{Value, json};

use crate::controller::{
    DEPLOYMENTS, HollowCluster, PODS, REPLICA_SETS, WorkloadKey, WorkloadKind,
};
use crate::deployments::{self, DeploymentPlan, REPLICA_SET_CREATE_ERROR};
use crate::pods::{HollowPodFields, ParentWorkload};
use crate::replica_sets;
use crate::workload_plan::WorkloadPlan;

/// Concurrent writes for one workload.
const MAX_CONCURRENT_WRITES: usize = 16;
/// How long a status that is about to change is delayed at most, beyond the time in which
/// pods become Ready.
const READY_SLACK: Duration = Duration::from_millis(50);
const MAX_STATUS_DELAY: Duration = Duration::from_millis(250);
/// A pod that the watch has not reported by then was deleted in the meantime.
const MAX_OBSERVATION_DELAY: Duration = Duration::from_secs(30);

impl HollowCluster {
    pub(crate) async fn apply_plan(
        &self,
        key: &WorkloadKey,
        parent: &ParentWorkload<'_>,
        plan: WorkloadPlan,
        pods: &[&HollowPodFields],
    ) -> Result<ReconcileAction, Error> {
        let namespace = parent.object.namespace();
        let leaving = pods
            .iter()
            .filter(|p| plan.delete.contains(&p.metadata.name));
        stream::iter(leaving.map(Ok))
            .try_for_each_concurrent(MAX_CONCURRENT_WRITES, |pod| self.delete_pod(namespace, pod))
            .await?;
        let created = stream::iter(plan.create)
            .map(|pod| self.create_pod(key.0, parent, pod))
            .buffer_unordered(MAX_CONCURRENT_WRITES)
            .try_collect::<()>()
            .await;
        if let Err(error) = created {
            self.report_replica_failure(key.0, parent.object, pods, &error)
                .await?;
            return Err(error);
        }
        self.update_status(key, parent.object, plan.status, plan.stable)
            .await
    }

    async fn delete_pod(&self, namespace: &str, pod: &HollowPodFields) -> Result<(), Error> {
        let options = DeleteOptions {
            uid: Some(pod.metadata.uid.clone()),
            ..DeleteOptions::default()
        };
        let at = ResourcePath::object(&PODS, namespace, &pod.metadata.name);
        ignore_not_found_or_conflict(self.api.delete(at, &options).await.map(drop))
    }

    /// Sets the condition of a workload whose pods could not be created. Of the kinds with pods only
    /// ReplicaSets have one.
    async fn report_replica_failure(
        &self,
        kind: WorkloadKind,
        workload: &Object,
        pods: &[&HollowPodFields],
        error: &Error,
    ) -> Result<(), Error> {
        if kind != WorkloadKind::ReplicaSet {
            return Ok(());
        }
        let set = workload.value()?;
        match replica_sets::failure_status(&set, pods, &error.to_string(), self.clock.now()) {
            Some(status) => self.write_status(&REPLICA_SETS, workload, status).await,
            None => Ok(()),
        }
    }

    /// Creates a pod with its node already assigned, which saves a binding.
    async fn create_pod(
        &self,
        kind: WorkloadKind,
        parent: &ParentWorkload<'_>,
        mut pod: Value,
    ) -> Result<(), Error> {
        let namespace = parent.object.namespace();
        let name = pod["metadata"]["name"].as_str().unwrap_or("").to_owned();
        let key = format!("{namespace}/{name}");
        if let Err(error) = self.reserve_pod(&key, &name) {
            self.record_failed_create(kind, parent.object, &name, &error);
            return Err(error);
        }
        if pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty) {
            let requests = HollowPodFields::from_value(&pod)?.requests();
            if let Some(node) = self.capacity.lock().assign_node(&key, requests) {
                pod["spec"]["nodeName"] = node.into();
            }
        }
        let at = ResourcePath::collection(&PODS, namespace);
        let error = match self
            .api
            .create(at, pod.into(), &WriteOptions::default())
            .await
        {
            Ok(_) => return Ok(()),
            Err(e) if e.is_already_exists() => return self.adopt(&PODS, parent, &name).await,
            Err(e) => e,
        };
        self.unobserved_pods.lock().remove(&key);
        // Frees the capacity, unless the pod was created after all.
        if self.pods.get_by_key(&key).is_none() {
            self.release_capacity(&key);
        }
        if error.is_namespace_terminating() {
            return Ok(());
        }
        self.record_failed_create(kind, parent.object, &name, &error);
        Err(error)
    }

    /// Counts a pod that is about to be created, or refuses it, as a quota would, where the cluster has
    /// pods enough.
    fn reserve_pod(&self, key: &str, name: &str) -> Result<(), Error> {
        let mut unobserved = self.unobserved_pods.lock();
        unobserved.retain(|key, since| {
            since.elapsed() < MAX_OBSERVATION_DELAY && self.pods.get_by_key(key).is_none()
        });
        let limit = self.options.max_pods();
        if self.pods.len() + unobserved.len() < limit {
            unobserved.insert(key.to_owned(), Instant::now());
            return Ok(());
        }
        let message = format!("a simulated cluster of this size has at most {limit} pods");
        Err(Status::forbidden(&PODS, name, message).into())
    }

    fn record_failed_create(
        &self,
        kind: WorkloadKind,
        workload: &Object,
        pod: &str,
        error: &Error,
    ) {
        let message = match kind {
            WorkloadKind::StatefulSet => {
                let set = workload.name();
                format!("create Pod {pod} in StatefulSet {set} failed error: {error}")
            }
            _ => format!("Error creating: {error}"),
        };
        self.record_warning(kind, workload, "FailedCreate", message);
    }

    /// Adopts an object that has the required name but no owner, because its owner was
    /// deleted without it.
    async fn adopt(
        &self,
        resource: &Gvr,
        parent: &ParentWorkload<'_>,
        name: &str,
    ) -> Result<(), Error> {
        let at = ResourcePath::object(resource, parent.object.namespace(), name);
        let object = match self.api.get(at).await {
            Ok(object) => object,
            Err(e) => return ignore_not_found_or_conflict(Err(e)),
        };
        if object.meta().controller().is_some() {
            return Ok(());
        }
        let patch = json!({"metadata": {"uid": object.uid(), "resourceVersion": object.revision().to_string(),
                                        "ownerReferences": parent.owner_references()}});
        self.merge_patch(at, patch).await
    }

    pub(crate) async fn apply_rollout(
        &self,
        key: &WorkloadKey,
        parent: &ParentWorkload<'_>,
        rollout: DeploymentPlan,
        sets: &[Object],
    ) -> Result<ReconcileAction, Error> {
        let namespace = parent.object.namespace();
        if let Some(set) = rollout.create {
            let name = set["metadata"]["name"].as_str().unwrap_or("").to_owned();
            let at = ResourcePath::collection(&REPLICA_SETS, namespace);
            match self
                .api
                .create(at, set.into(), &WriteOptions::default())
                .await
            {
                Ok(_) => {}
                Err(e) if e.is_already_exists() => {
                    self.adopt(&REPLICA_SETS, parent, &name).await?;
                }
                Err(e) if e.is_namespace_terminating() => {}
                Err(e) => {
                    let message = format!("Failed to create new replica set {name:?}: {e}");
                    self.report_creation_failure(parent.object, message).await?;
                    return Err(e);
                }
            }
        }
        for (name, replicas) in rollout.scale {
            let at = ResourcePath::object(&REPLICA_SETS, namespace, &name);
            self.merge_patch(at, json!({"spec": {"replicas": replicas}}))
                .await?;
        }
        if let Some((name, patch)) = rollout.revision_patch {
            self.merge_patch(ResourcePath::object(&REPLICA_SETS, namespace, &name), patch)
                .await?;
        }
        if let Some(patch) = rollout.deployment_patch {
            self.merge_patch(ResourcePath::of_object(&DEPLOYMENTS, parent.object), patch)
                .await?;
        }
        for set in sets
            .iter()
            .filter(|s| rollout.delete.iter().any(|d| d == s.name()))
        {
            let options = DeleteOptions {
                resource_version: Some(set.revision().to_string()),
                ..DeleteOptions::default()
            };
            let at = ResourcePath::of_object(&REPLICA_SETS, set);
            ignore_not_found_or_conflict(self.api.delete(at, &options).await.map(drop))?;
        }
        self.update_status(key, parent.object, rollout.status, rollout.stable)
            .await
    }

    /// Reports that the replica set of a Deployment could not be created.
    async fn report_creation_failure(
        &self,
        deployment: &Object,
        message: String,
    ) -> Result<(), Error> {
        let value = deployment.value()?;
        let failed = deployments::creation_failure_status(&value, &message, self.clock.now());
        let kind = WorkloadKind::Deployment;
        self.record_warning(kind, deployment, REPLICA_SET_CREATE_ERROR, message);
        match failed {
            Some(status) => self.write_status(&DEPLOYMENTS, deployment, status).await,
            None => Ok(()),
        }
    }

    async fn merge_patch(&self, at: ResourcePath<'_>, patch: Value) -> Result<(), Error> {
        let options = WriteOptions::default();
        let patched = self.api.patch(at, Patch::Merge(patch), &options).await;
        ignore_not_found_or_conflict(patched.map(drop))
    }

    /// Writes the status of a workload: at once if it is stable, else after a delay, so that
    /// pods that become Ready together cause one write.
    async fn update_status(
        &self,
        key: &WorkloadKey,
        object: &Object,
        status: Option<Value>,
        settled: bool,
    ) -> Result<ReconcileAction, Error> {
        let Some(status) = status else {
            self.status_delayed_until.lock().remove(key);
            return Ok(ReconcileAction::Done);
        };
        if !settled {
            let hold = (self.options.ready_after + READY_SLACK).min(MAX_STATUS_DELAY);
            let now = Instant::now();
            let until = *self
                .status_delayed_until
                .lock()
                .entry(key.clone())
                .or_insert(now + hold);
            if now < until {
                return Ok(ReconcileAction::RequeueAfter(until - now));
            }
        }
        self.status_delayed_until.lock().remove(key);
        self.write_status(key.0.resource(), object, status).await?;
        Ok(ReconcileAction::Done)
    }

    pub(crate) async fn write_status(
        &self,
        resource: &Gvr,
        object: &Object,
        status: Value,
    ) -> Result<(), Error> {
        let writer = StatusWriter::new(&*self.api, "simulated-workloads");
        let written = writer.update(resource, object, Some(status)).await;
        ignore_not_found_or_conflict(written.map(drop))
    }
}

/// Ignores "not found" and conflicts: the informer delivers the newer state, and the object
/// is reconciled again.
pub(crate) fn ignore_not_found_or_conflict(result: Result<(), Error>) -> Result<(), Error> {
    match result {
        Err(e) if e.is_not_found() || e.is_conflict() => Ok(()),
        other => other,
    }
}
