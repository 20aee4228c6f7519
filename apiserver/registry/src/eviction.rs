//! Evictions: delete a pod if its PodDisruptionBudget allows it
//! (`pkg/registry/core/pod/storage/eviction.go`).
//!
//! The budget's status is charged before the pod is deleted, in a transaction that fails if
//! the budget has changed. The disruption controller sets the status.

use client::{DeleteOptions, ListOptions, ResourcePath};
use machinery::conditions::set_json_condition;
use machinery::{Gvr, Object, Status};
use quota::disruption_budget::{
    DISRUPTION_ALLOWED, PodDisruptionBudget, PodDisruptionBudgetStatus, PodReadiness, SYNC_FAILED,
};
use serde_json::{Value, json};

use crate::commit::{CommitResult, EncodedObject, check_deadline, write_deadline};
use crate::delete::{DeletionAdmission, check_preconditions};
use crate::object_meta;
use crate::options;
use crate::registry::Registry;
use crate::request::{RegistryWriteOptions, RequestContext, WriteResult};
use crate::resource_table::ResourceInfo;
use crate::subresource_create::success_status;

static BUDGETS: Gvr = Gvr::from_static("policy", "v1", "poddisruptionbudgets");
/// The singular form of errors in Kubernetes.
static BUDGET_SINGULAR: Gvr = Gvr::from_static("policy", "v1", "poddisruptionbudget");
/// The most pods whose eviction the disruption controller has not noticed yet.
const MAX_DISRUPTED_PODS: usize = 2000;
/// Bound on retries after conflicting writes.
const MAX_CONFLICT_RETRIES: usize = 20;
const STILL_PROCESSED_RETRY_SECONDS: u32 = 10;

/// An eviction of one pod.
struct PodEviction<'a> {
    registry: &'a Registry,
    ctx: &'a RequestContext,
    pods: &'a ResourceInfo,
    path: ResourcePath<'a>,
    options: DeleteOptions,
}

impl Registry {
    /// POST to `eviction` of the pod at `path`.
    pub(crate) async fn evict_pod(
        &self,
        ctx: &RequestContext,
        pods: &ResourceInfo,
        path: ResourcePath<'_>,
        eviction: &Value,
        options: &RegistryWriteOptions,
    ) -> Result<WriteResult, Status> {
        if object_meta::metadata_string(eviction, "name") != path.name {
            let message = "name in URL does not match name in Eviction object";
            return Err(Status::bad_request(message));
        }
        let body = eviction.get("deleteOptions").filter(|v| !v.is_null());
        let mut delete_options = options::parse_delete_options(&|_| None, body)?;
        delete_options.dry_run |= options.dry_run;
        let eviction = PodEviction {
            registry: self,
            ctx,
            pods,
            path,
            options: delete_options,
        };
        eviction.run().await?;
        success_status()
    }
}

impl PodEviction<'_> {
    async fn run(&self) -> Result<(), Status> {
        let mut attempts = 0..MAX_CONFLICT_RETRIES;
        loop {
            let pod = self.newest_pod().await?;
            check_preconditions(self.pods, &self.options, &pod)?;
            let tree = pod.value().map_err(Status::internal)?;
            if !is_exempt(&tree) {
                return self.evict_running(&pod).await;
            }
            let mut options = self.options.clone();
            if !is_terminal(&tree) {
                // Until it is deleted it must not become ready, and count for a budget.
                let revision = pod.revision().to_string();
                options.resource_version.get_or_insert(revision);
            }
            match self.mark_and_delete(options).await {
                Err(status)
                    if status.code == 409
                        && self.options.resource_version.is_none()
                        && attempts.next().is_some() => {}
                other => return other,
            }
        }
    }

    async fn newest_pod(&self) -> Result<Object, Status> {
        let path = self.path;
        let key = self
            .registry
            .storage_key(self.pods, path.namespace, path.name);
        let pod = self.registry.get_newest(self.pods, &key).await?;
        pod.ok_or_else(|| Status::not_found(&self.pods.kind.gvr, path.name))
    }

    /// Evicts a pod that its budget may count as healthy.
    async fn evict_running(&self, pod: &Object) -> Result<(), Status> {
        let Some((name, budget)) = self.budget_of(pod).await? else {
            return self.mark_and_delete(self.options.clone()).await;
        };
        if is_ready(pod)? || !allows_unhealthy_eviction(&budget) {
            self.charge_budget(&name).await?;
            return self.mark_and_delete(self.options.clone()).await;
        }
        let mut options = self.options.clone();
        let revision = pod.revision().to_string();
        options.resource_version.get_or_insert(revision);
        match self.mark_and_delete(options).await {
            Err(status) if status.code == 409 && self.options.resource_version.is_none() => {
                Err(still_processed(&name))
            }
            other => other,
        }
    }

    /// The budget that selects the pod; several are an error.
    async fn budget_of(
        &self,
        pod: &Object,
    ) -> Result<Option<(String, PodDisruptionBudget)>, Status> {
        let path = ResourcePath::collection(&BUDGETS, self.path.namespace);
        let options = ListOptions::default();
        let listed = self.registry.list(self.ctx, path, &options).await?;
        let mut matching_budget = None;
        for object in listed.items {
            let budget = object.decode::<PodDisruptionBudget>();
            let budget = budget.map_err(Status::internal)?;
            if !budget.spec.selects(pod) {
                continue;
            }
            if matching_budget.is_some() {
                let message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
                return Err(Status::failure(500, "", message));
            }
            matching_budget = Some((object.name().to_owned(), (*budget).clone()));
        }
        Ok(matching_budget)
    }

    /// Takes one of the disruptions that the budget allows.
    async fn charge_budget(&self, name: &str) -> Result<(), Status> {
        let registry = self.registry;
        let budgets = registry.resource_info(&BUDGETS)?;
        let key = registry.storage_key(&budgets, self.path.namespace, name);
        let mut current = registry.get_newest(&budgets, &key).await?;
        for _ in 0..MAX_CONFLICT_RETRIES {
            let object = current.ok_or_else(|| Status::not_found(&BUDGETS, name))?;
            let mut tree = object.value().map_err(Status::internal)?;
            let budget = object.decode::<PodDisruptionBudget>();
            let mut status = budget.map_err(Status::internal)?.status.clone();
            check_disruption(name, object.meta().generation, &status)?;
            if self.options.dry_run {
                return Ok(());
            }
            let now = registry.now();
            status.disruptions_allowed -= 1;
            if status.disruptions_allowed == 0 {
                status.update_condition(&now);
            }
            status.disrupted_pods.insert(self.path.name.to_owned(), now);
            tree["status"] = serde_json::to_value(&status).map_err(Status::internal)?;
            object_meta::metadata_mut(&mut tree)?.remove("resourceVersion");
            let managers = object.managed_fields_json();
            let charged = EncodedObject::new(&tree, managers)?;
            let committed = registry.put(&budgets, &key, charged, object.revision());
            match committed.await? {
                CommitResult::Committed(_) => return Ok(()),
                CommitResult::Conflict(winner) => current = winner,
            }
        }
        let message = format!("couldn't update PodDisruptionBudget {name:?} due to conflicts");
        Err(Status::timeout(message).with_retry_after(STILL_PROCESSED_RETRY_SECONDS))
    }

    /// Records in the pod's status why it ends, and deletes it. Admission is not asked: it has
    /// judged the eviction.
    async fn mark_and_delete(&self, mut options: DeleteOptions) -> Result<(), Status> {
        if !options.dry_run {
            let revision = self.mark_disruption(&options).await?;
            if let Some(required) = &mut options.resource_version {
                *required = revision.to_string();
            }
        }
        let skip = DeletionAdmission::Skip;
        let deleted = self
            .registry
            .delete_object(self.ctx, self.pods, self.path, &options, skip);
        deleted.await.map(drop)
    }

    /// Sets the condition DisruptionTarget; returns the pod's revision.
    async fn mark_disruption(&self, options: &DeleteOptions) -> Result<u64, Status> {
        let deadline = write_deadline(self.ctx);
        let mut pod = self.newest_pod().await?;
        let path = self.path;
        let key = self
            .registry
            .storage_key(self.pods, path.namespace, path.name);
        loop {
            check_deadline(deadline)?;
            check_preconditions(self.pods, options, &pod)?;
            let mut tree = pod.value().map_err(Status::internal)?;
            let condition = disruption_target(&self.registry.now());
            if !set_json_condition(&mut tree["status"]["conditions"], condition) {
                return Ok(pod.revision());
            }
            object_meta::metadata_mut(&mut tree)?.remove("resourceVersion");
            let managers = pod.managed_fields_json();
            let marked = EncodedObject::new(&tree, managers)?;
            let committed = self.registry.put(self.pods, &key, marked, pod.revision());
            match committed.await? {
                CommitResult::Committed(pod) => return Ok(pod.revision()),
                CommitResult::Conflict(Some(winner)) => pod = winner,
                CommitResult::Conflict(None) => {
                    return Err(Status::not_found(&self.pods.kind.gvr, path.name));
                }
            }
        }
    }
}

fn is_ready(pod: &Object) -> Result<bool, Status> {
    let readiness = pod.decode::<PodReadiness>().map_err(Status::internal)?;
    Ok(readiness.is_ready())
}

fn phase(pod: &Value) -> &str {
    pod["status"]["phase"].as_str().unwrap_or("")
}

fn is_terminal(pod: &Value) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed") || object_meta::is_deleting(pod)
}

/// Whether no budget counts the pod: it does not run.
fn is_exempt(pod: &Value) -> bool {
    is_terminal(pod) || phase(pod) == "Pending"
}

/// Whether a pod that is not ready may be evicted without a charge.
fn allows_unhealthy_eviction(budget: &PodDisruptionBudget) -> bool {
    let status = &budget.status;
    budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow"
        || (status.desired_healthy > 0 && status.current_healthy >= status.desired_healthy)
}

fn disruption_target(now: &str) -> Value {
    json!({"type": "DisruptionTarget", "status": "True", "lastProbeTime": null,
           "lastTransitionTime": now, "reason": "EvictionByEvictionAPI",
           "message": "Eviction API: evicting"})
}

fn too_many_disruptions(retry_after: u32, cause: String) -> Status {
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    Status::too_many_requests(message, retry_after).with_cause("DisruptionBudget", cause, "")
}

fn still_processed(name: &str) -> Status {
    let cause = format!("The disruption budget {name} is still being processed by the server.");
    too_many_disruptions(STILL_PROCESSED_RETRY_SECONDS, cause)
}

/// Fails unless the budget allows a disruption.
fn check_disruption(
    name: &str,
    generation: i64,
    status: &PodDisruptionBudgetStatus,
) -> Result<(), Status> {
    if status.observed_generation < generation {
        return Err(still_processed(name));
    }
    if status.disruptions_allowed < 0 {
        let message = "pdb disruptions allowed is negative";
        return Err(Status::forbidden(&BUDGET_SINGULAR, name, message));
    }
    if status.disrupted_pods.len() > MAX_DISRUPTED_PODS {
        let message =
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return Err(Status::forbidden(&BUDGET_SINGULAR, name, message));
    }
    if status.disruptions_allowed > 0 {
        return Ok(());
    }
    Err(too_many_disruptions(0, refusal_cause(name, status)))
}

/// Why a budget allows no disruption.
fn refusal_cause(name: &str, status: &PodDisruptionBudgetStatus) -> String {
    let condition = status.condition(DISRUPTION_ALLOWED);
    let condition = condition.filter(|c| c["status"] == "False");
    let text = |field: &str| condition.and_then(|c| c[field].as_str()).unwrap_or("");
    let (reason, message) = (text("reason"), text("message"));
    if reason == SYNC_FAILED && !message.is_empty() {
        format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
        )
    } else if status.current_healthy <= status.desired_healthy {
        let (desired, current) = (status.desired_healthy, status.current_healthy);
        format!(
            "The disruption budget {name} needs {desired} healthy pods and has {current} currently"
        )
    } else if !message.is_empty() {
        format!(
            "The disruption budget {name} does not allow evicting pods currently ({reason}): {message}"
        )
    } else {
        format!("The disruption budget {name} does not allow evicting pods currently")
    }
}
