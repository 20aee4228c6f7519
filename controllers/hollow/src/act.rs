//! Applies [`WorkloadPlan`]s and [`DeploymentPlan`]s through `client::Api`.

use std::time::{Duration, Instant};

use client::{At, DeleteOptions, Error, Patch, WriteOptions};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use machinery::{Gvr, Object};
use flotilla_runtime::Action;
use serde_json::{Value, json};

use crate::deployments::Rollout;
use crate::plan::Plan;
use crate::pods::{Parent, PodView};
use crate::run::{DEPLOYMENTS, Hollow, Key, PODS, REPLICA_SETS};

/// Concurrent writes for one workload.
const ABREAST: usize = 16;
/// How long a status that is about to change is delayed at most, beyond the time in which
/// pods become Ready.
const SLACK: Duration = Duration::from_millis(50);
const LONGEST_HOLD: Duration = Duration::from_millis(250);

impl Hollow {
    pub(crate) async fn carry_out(
        &self,
        key: &Key,
        parent: &Parent<'_>,
        plan: Plan,
        pods: &[&PodView],
    ) -> Result<Action, Error> {
        let namespace = parent.object.namespace();
        let leaving = pods
            .iter()
            .filter(|p| plan.delete.contains(&p.metadata.name));
        stream::iter(leaving.map(Ok))
            .try_for_each_concurrent(ABREAST, |pod| self.remove_pod(namespace, pod))
            .await?;
        stream::iter(plan.create)
            .map(|pod| self.create_pod(parent, pod))
            .buffer_unordered(ABREAST)
            .try_collect::<()>()
            .await?;
        self.tell(key, parent.object, plan.status, plan.settled)
            .await
    }

    async fn remove_pod(&self, namespace: &str, pod: &PodView) -> Result<(), Error> {
        let options = DeleteOptions {
            uid: Some(pod.metadata.uid.clone()),
            ..DeleteOptions::default()
        };
        let at = At::one(&PODS, namespace, &pod.metadata.name);
        ignore_gone(self.api.delete(at, &options).await.map(drop))
    }

    /// Creates a pod with its node already assigned, which saves a binding.
    async fn create_pod(&self, parent: &Parent<'_>, mut pod: Value) -> Result<(), Error> {
        let namespace = parent.object.namespace();
        let name = pod["metadata"]["name"].as_str().unwrap_or("").to_owned();
        let key = format!("{namespace}/{name}");
        if pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty) {
            let requests = PodView::of(&pod)?.room();
            if let Some(node) = self.capacity.lock().place(&key, requests) {
                pod["spec"]["nodeName"] = node.into();
            }
        }
        let at = At::all(&PODS, namespace);
        let refused = match self.api.create(at, pod, &WriteOptions::default()).await {
            Ok(_) => return Ok(()),
            Err(e) if e.is_already_exists() => return self.adopt(&PODS, parent, &name).await,
            Err(e) => e,
        };
        // Frees the capacity, unless the pod was created after all.
        if self.pods.get_key(&key).is_none() {
            self.give_back(&key);
        }
        if refused.is_namespace_terminating() {
            Ok(())
        } else {
            Err(refused)
        }
    }

    /// Adopts an object that has the required name but no owner, because its owner was
    /// deleted without it.
    async fn adopt(&self, resource: &Gvr, parent: &Parent<'_>, name: &str) -> Result<(), Error> {
        let at = At::one(resource, parent.object.namespace(), name);
        let object = match self.api.get(at).await {
            Ok(object) => object,
            Err(e) => return ignore_gone(Err(e)),
        };
        if object.head().controller().is_some() {
            return Ok(());
        }
        let patch = json!({"metadata": {"uid": object.uid(), "resourceVersion": object.revision().to_string(),
                                        "ownerReferences": parent.reference()}});
        self.merge(at, patch).await
    }

    pub(crate) async fn carry_out_rollout(
        &self,
        key: &Key,
        parent: &Parent<'_>,
        rollout: Rollout,
        sets: &[Object],
    ) -> Result<Action, Error> {
        let namespace = parent.object.namespace();
        if let Some(set) = rollout.create {
            let name = set["metadata"]["name"].as_str().unwrap_or("").to_owned();
            let at = At::all(&REPLICA_SETS, namespace);
            match self.api.create(at, set, &WriteOptions::default()).await {
                Ok(_) => {}
                Err(e) if e.is_already_exists() => {
                    self.adopt(&REPLICA_SETS, parent, &name).await?;
                }
                Err(e) if e.is_namespace_terminating() => {}
                Err(e) => return Err(e),
            }
        }
        for (name, replicas) in rollout.scale {
            let at = At::one(&REPLICA_SETS, namespace, &name);
            self.merge(at, json!({"spec": {"replicas": replicas}}))
                .await?;
        }
        if let Some((name, patch)) = rollout.revise {
            self.merge(At::one(&REPLICA_SETS, namespace, &name), patch)
                .await?;
        }
        if let Some(patch) = rollout.annotate {
            self.merge(At::of(&DEPLOYMENTS, parent.object), patch)
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
            let at = At::of(&REPLICA_SETS, set);
            ignore_gone(self.api.delete(at, &options).await.map(drop))?;
        }
        self.tell(key, parent.object, rollout.status, rollout.settled)
            .await
    }

    async fn merge(&self, at: At<'_>, patch: Value) -> Result<(), Error> {
        let options = WriteOptions::default();
        let patched = self.api.patch(at, Patch::Merge(patch), &options).await;
        ignore_gone(patched.map(drop))
    }

    /// Writes the status of a workload: at once if it is stable, else after a delay, so that
    /// pods that become Ready together cause one write.
    async fn tell(
        &self,
        key: &Key,
        object: &Object,
        status: Option<Value>,
        settled: bool,
    ) -> Result<Action, Error> {
        let Some(status) = status else {
            self.held.lock().remove(key);
            return Ok(Action::Done);
        };
        if !settled {
            let hold = (self.options.ready_after + SLACK).min(LONGEST_HOLD);
            let now = Instant::now();
            let until = *self.held.lock().entry(key.clone()).or_insert(now + hold);
            if now < until {
                return Ok(Action::After(until - now));
            }
        }
        self.held.lock().remove(key);
        self.write_status(key.0.resource(), object, status).await?;
        Ok(Action::Done)
    }

    pub(crate) async fn write_status(
        &self,
        resource: &Gvr,
        object: &Object,
        status: Value,
    ) -> Result<(), Error> {
        let mut body = object.value()?;
        body["status"] = status;
        let at = At::of(resource, object).sub("status");
        let written = self.api.update(at, body, &WriteOptions::default()).await;
        ignore_gone(written.map(drop))
    }
}

/// Ignores "not found" and conflicts: the informer delivers the newer state, and the object
/// is reconciled again.
pub(crate) fn ignore_gone(result: Result<(), Error>) -> Result<(), Error> {
    match result {
        Err(e) if e.is_not_found() || e.is_conflict() => Ok(()),
        other => other,
    }
}
