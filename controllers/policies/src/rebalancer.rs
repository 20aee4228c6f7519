//! Reconciles WorkloadRebalancers: requests a new scheduling of the bindings of their workloads.
//!
//! Sets `spec.rescheduleTriggeredAt` of the bindings and the rebalancer's status, and deletes the
//! rebalancer when its TTL has expired. Source: Karmada's `pkg/controllers/workloadrebalancer`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use client::{Api, DeleteOptions, Error, Informer, Patch, ResourcePath, WriteOptions};
use controller_context::{PropagationContext, is_equal_except_status};
use flotilla_runtime::{ReconcileAction, StatusWriter, Workqueue, run_workers};
use karmada_api::rebalancer::{
    ObservedWorkload, REASON_BINDING_NOT_FOUND, REBALANCE_FAILED, REBALANCE_SUCCESSFUL,
    WorkloadRebalancerStatus, WorkloadReference,
};
use karmada_api::resources::{BINDINGS, CLUSTER_BINDINGS, REBALANCERS};
use karmada_api::{ResourceBinding, WorkloadRebalancer, names};
use machinery::Object;
use machinery::time::{Clock, parse, rfc3339_seconds};
use serde_json::json;

const REBALANCER_WORKERS: usize = 1;

pub(crate) struct RebalancerController {
    api: Arc<dyn Api>,
    clock: Arc<dyn Clock>,
    rebalancers: Informer,
}

impl RebalancerController {
    pub(crate) async fn start(context: &PropagationContext) {
        let controller = Arc::new(Self {
            api: Arc::clone(&context.controller.control_plane),
            clock: Arc::clone(&context.controller.clock),
            rebalancers: context.controller.informer(&REBALANCERS),
        });
        controller.rebalancers.wait_for_cache_sync().await;
        let queue: Workqueue<String> = Workqueue::new();
        let changed = queue.clone();
        controller.rebalancers.add_event_handler(move |change| {
            if let Some(new) = change.new
                && !change
                    .old
                    .is_some_and(|old| is_equal_except_status(old, new))
            {
                changed.add_event(change.key(), change);
            }
        });
        run_workers(
            &context.controller.tasks,
            "workload-rebalancer",
            &queue,
            REBALANCER_WORKERS,
            move |name: String| {
                let controller = Arc::clone(&controller);
                async move { controller.reconcile(&name).await }
            },
        );
    }

    async fn reconcile(&self, name: &str) -> Result<ReconcileAction, Error> {
        let Some(object) = self.rebalancers.get("", name) else {
            return Ok(ReconcileAction::Done);
        };
        match self.rebalance(object).await {
            Ok(next) => Ok(next),
            failed => ReconcileAction::after_write(failed, ReconcileAction::Done),
        }
    }

    async fn rebalance(&self, mut object: Object) -> Result<ReconcileAction, Error> {
        let view = object.decode::<WorkloadRebalancer>()?;
        let mut observed = sync_observed_workloads(&view);
        let mut failed = Vec::new();
        let created = object.creation_timestamp().map(rfc3339_seconds);
        let created = created.unwrap_or_default();
        for item in observed.iter_mut().filter(|item| item.result.is_empty()) {
            match self.trigger_reschedule(&item.workload, &created).await {
                Ok(()) => item.result = REBALANCE_SUCCESSFUL.into(),
                Err(e) if e.is_not_found() => {
                    item.result = REBALANCE_FAILED.into();
                    item.reason = REASON_BINDING_NOT_FOUND.into();
                }
                Err(e) => failed.push(e.to_string()),
            }
        }
        let mut status = WorkloadRebalancerStatus {
            observed_workloads: observed,
            observed_generation: object.meta().generation,
            finish_time: view.status.finish_time.clone(),
        };
        if status != view.status && failed.is_empty() {
            status.finish_time = Some(rfc3339_seconds(self.clock.now()));
        }
        let changed = (status != view.status).then(|| json!(status));
        let writer = StatusWriter::new(&*self.api, "workload-rebalancer");
        if let Some(written) = writer.update(&REBALANCERS, &object, changed).await? {
            object = written;
        }
        if !failed.is_empty() {
            return Err(Error::Protocol(format!(
                "{} resource reschedule triggered failed and need retry: {}",
                failed.len(),
                failed.join(", ")
            )));
        }
        match view.spec.ttl_seconds_after_finished {
            Some(ttl) => self.delete_if_expired(&object, &status, ttl).await,
            None => Ok(ReconcileAction::Done),
        }
    }

    /// Sets `rescheduleTriggeredAt` of a workload's binding, unless a later rebalancer has done so.
    async fn trigger_reschedule(
        &self,
        workload: &WorkloadReference,
        created: &str,
    ) -> Result<(), Error> {
        let resource = match &*workload.namespace {
            "" => &CLUSTER_BINDINGS,
            _ => &BINDINGS,
        };
        let name = names::binding_name(&workload.kind, &workload.name);
        let at = ResourcePath::object(resource, &workload.namespace, &name);
        let binding = self.api.get(at).await?;
        let triggered = binding.decode::<ResourceBinding>()?;
        if !is_later_trigger(created, triggered.spec.reschedule_triggered_at.as_deref()) {
            return Ok(());
        }
        let patch = json!({"metadata": {"resourceVersion": binding.revision().to_string()},
            "spec": {"rescheduleTriggeredAt": created}});
        let options = WriteOptions::default();
        let patched = self.api.patch(at, Patch::Merge(patch), &options);
        patched.await.map(drop)
    }

    /// Deletes a finished rebalancer whose TTL has expired.
    async fn delete_if_expired(
        &self,
        object: &Object,
        status: &WorkloadRebalancerStatus,
        ttl: i64,
    ) -> Result<ReconcileAction, Error> {
        let finished = status.finish_time.as_deref().unwrap_or_default();
        let finished = parse(finished).map_err(Error::Protocol)?;
        let kept = self.clock.now().duration_since(finished).as_millis();
        let left = i128::from(ttl) * 1000 - kept;
        if left > 0 {
            let left = u64::try_from(left).unwrap_or(u64::MAX);
            return Ok(ReconcileAction::RequeueAfter(Duration::from_millis(left)));
        }
        let options = DeleteOptions {
            uid: Some(object.uid().to_owned()),
            resource_version: Some(object.revision().to_string()),
            ..DeleteOptions::default()
        };
        self.api
            .delete(ResourcePath::of_object(&REBALANCERS, object), &options)
            .await?;
        Ok(ReconcileAction::Done)
    }
}

/// The workloads of the status: those in the spec with their known results, and others only if they
/// were rescheduled successfully.
fn sync_observed_workloads(rebalancer: &WorkloadRebalancer) -> Vec<ObservedWorkload> {
    let mut new: BTreeSet<&WorkloadReference> = rebalancer.spec.workloads.iter().collect();
    let observed = rebalancer.status.observed_workloads.iter();
    let mut all: Vec<ObservedWorkload> = observed
        .filter(|item| new.remove(&item.workload) || item.result == REBALANCE_SUCCESSFUL)
        .cloned()
        .collect();
    all.extend(new.into_iter().map(|workload| ObservedWorkload {
        workload: workload.clone(),
        ..ObservedWorkload::default()
    }));
    all.sort_by(|a, b| a.workload.cmp(&b.workload));
    all
}

/// Whether a rebalancer was created after the last trigger.
fn is_later_trigger(created: &str, triggered: Option<&str>) -> bool {
    match (parse(created), triggered.map(parse)) {
        (Ok(created), Some(Ok(triggered))) => created > triggered,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    // proves: REB-kept, REB-sorted
    #[test]
    fn successes_are_kept_and_failures_only_while_in_the_spec() {
        let workload = |name: &str| json!({"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "n", "name": name});
        let item = |name: &str, result: &str| json!({"workload": workload(name), "result": result});
        let table = [
            (
                vec!["b", "a", "a"],
                vec![],
                json!([{"workload": workload("a")}, {"workload": workload("b")}]),
            ),
            (
                vec!["c"],
                vec![
                    item("a", REBALANCE_SUCCESSFUL),
                    item("b", REBALANCE_FAILED),
                    item("c", REBALANCE_FAILED),
                ],
                json!([item("a", REBALANCE_SUCCESSFUL), item("c", REBALANCE_FAILED)]),
            ),
            (
                vec!["b"],
                vec![item("a", ""), item("b", REBALANCE_SUCCESSFUL)],
                json!([item("b", REBALANCE_SUCCESSFUL)]),
            ),
        ];
        for (names, observed, expected) in table {
            let workloads: Vec<Value> = names.into_iter().map(workload).collect();
            let rebalancer = json!({"spec": {"workloads": workloads}, "status": {"observedWorkloads": observed}});
            let rebalancer = serde_json::from_value(rebalancer).unwrap();
            assert_eq!(json!(sync_observed_workloads(&rebalancer)), expected);
        }
    }

    // proves: REB-later
    #[test]
    fn a_trigger_is_only_replaced_by_a_later_one() {
        let created = "2026-01-02T03:04:05Z";
        for (triggered, later) in [
            (None, true),
            (Some("2026-01-02T03:04:04Z"), true),
            (Some("2026-01-02T03:04:05Z"), false),
            (Some("2026-01-02T04:04:05+01:00"), false),
            (Some("2026-01-02T03:04:06Z"), false),
        ] {
            assert_eq!(is_later_trigger(created, triggered), later, "{triggered:?}");
        }
    }
}
