//! Reconciles WorkloadRebalancers: requests a new scheduling of the bindings of their workloads.
//!
//! Sets `spec.rescheduleTriggeredAt` of the bindings and the rebalancer's status, and deletes the
//! rebalancer when its TTL has expired. Source: Karmada's `pkg/controllers/workloadrebalancer`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use client::{Api, At, DeleteOptions, Error, Patch, WriteOptions};
use machinery::Object;
use machinery::time::{Clock, parse, rfc3339_seconds};
use openapi::karmada::rebalancer::{
    BINDING_NOT_FOUND, FAILED, ObservedWorkload, RebalancerStatus, SUCCESSFUL, Workload,
};
use openapi::karmada::resources::{BINDINGS, CLUSTER_BINDINGS, REBALANCERS};
use openapi::karmada::{Binding, WorkloadRebalancer, names};
use flotilla_runtime::{Action, Informer, Queue, Select, Tasks, run_workers};
use serde_json::json;

use crate::meta::same_but_status;
use crate::run::Deps;

const WORKERS: usize = 1;

pub(crate) struct Rebalancers {
    api: Arc<dyn Api>,
    clock: Arc<dyn Clock>,
    rebalancers: Informer,
}

impl Rebalancers {
    pub(crate) async fn start(deps: &Deps, tasks: &Tasks) {
        let it = Arc::new(Self {
            api: Arc::clone(&deps.control),
            clock: Arc::clone(&deps.clock),
            rebalancers: deps
                .informers
                .get(&deps.control, &Select::all(&REBALANCERS)),
        });
        it.rebalancers.wait_synced().await;
        let queue: Queue<String> = Queue::new();
        let changed = queue.clone();
        it.rebalancers.on_change(move |change| {
            if let Some(new) = change.new
                && !change.old.is_some_and(|old| same_but_status(old, new))
            {
                changed.add_lane(change.key(), change.initial);
            }
        });
        run_workers(
            tasks,
            "workload-rebalancer",
            &queue,
            WORKERS,
            move |name: String| {
                let it = Arc::clone(&it);
                async move { it.reconcile(&name).await }
            },
        );
    }

    async fn reconcile(&self, name: &str) -> Result<Action, Error> {
        let Some(object) = self.rebalancers.get("", name) else {
            return Ok(Action::Done);
        };
        match self.rebalance(object).await {
            Err(e) if e.is_conflict() => Ok(Action::AFTER_CONFLICT),
            Err(e) if e.is_not_found() => Ok(Action::Done),
            other => other,
        }
    }

    async fn rebalance(&self, mut object: Object) -> Result<Action, Error> {
        let seen = object.view::<WorkloadRebalancer>()?;
        let mut observed = observed(&seen);
        let mut failed = Vec::new();
        for item in observed.iter_mut().filter(|item| item.result.is_empty()) {
            let created = &seen.metadata.creation_timestamp;
            match self.trigger(&item.workload, created).await {
                Ok(()) => item.result = SUCCESSFUL.into(),
                Err(e) if e.is_not_found() => {
                    item.result = FAILED.into();
                    item.reason = BINDING_NOT_FOUND.into();
                }
                Err(e) => failed.push(e.to_string()),
            }
        }
        let mut status = RebalancerStatus {
            observed_workloads: observed,
            observed_generation: object.head().generation,
            finish_time: seen.status.finish_time.clone(),
        };
        if status != seen.status {
            if failed.is_empty() {
                status.finish_time = Some(rfc3339_seconds(self.clock.now()));
            }
            let mut body = object.value()?;
            body["status"] = json!(status);
            let at = At::of(&REBALANCERS, &object).sub("status");
            object = self.api.update(at, body, &WriteOptions::default()).await?;
        }
        if !failed.is_empty() {
            return Err(Error::Protocol(format!(
                "{} resource reschedule triggered failed and need retry: {}",
                failed.len(),
                failed.join(", ")
            )));
        }
        match seen.spec.ttl_seconds_after_finished {
            Some(ttl) => self.end(&object, &status, ttl).await,
            None => Ok(Action::Done),
        }
    }

    /// Sets `rescheduleTriggeredAt` of a workload's binding, unless a later rebalancer has done so.
    async fn trigger(&self, workload: &Workload, created: &str) -> Result<(), Error> {
        let resource = match &*workload.namespace {
            "" => &CLUSTER_BINDINGS,
            _ => &BINDINGS,
        };
        let name = names::binding(&workload.kind, &workload.name);
        let at = At::one(resource, &workload.namespace, &name);
        let binding = self.api.get(at).await?;
        let triggered = binding.view::<Binding>()?;
        if !is_later(created, triggered.spec.reschedule_triggered_at.as_deref()) {
            return Ok(());
        }
        let patch = json!({"metadata": {"resourceVersion": binding.revision().to_string()},
            "spec": {"rescheduleTriggeredAt": created}});
        let options = WriteOptions::default();
        let patched = self.api.patch(at, Patch::Merge(patch), &options);
        patched.await.map(drop)
    }

    /// Deletes a finished rebalancer whose TTL has expired.
    async fn end(
        &self,
        object: &Object,
        status: &RebalancerStatus,
        ttl: i64,
    ) -> Result<Action, Error> {
        let finished = status.finish_time.as_deref().unwrap_or_default();
        let finished = parse(finished).map_err(Error::Protocol)?;
        let kept = self.clock.now().duration_since(finished).as_millis();
        let left = i128::from(ttl) * 1000 - kept;
        if left > 0 {
            let left = u64::try_from(left).unwrap_or(u64::MAX);
            return Ok(Action::After(Duration::from_millis(left)));
        }
        let options = DeleteOptions {
            uid: Some(object.uid().to_owned()),
            resource_version: Some(object.revision().to_string()),
            ..DeleteOptions::default()
        };
        self.api
            .delete(At::of(&REBALANCERS, object), &options)
            .await?;
        Ok(Action::Done)
    }
}

/// The workloads of the status: those in the spec with their known results, and others only if they
/// were rescheduled successfully.
fn observed(rebalancer: &WorkloadRebalancer) -> Vec<ObservedWorkload> {
    let mut new: BTreeSet<&Workload> = rebalancer.spec.workloads.iter().collect();
    let known = rebalancer.status.observed_workloads.iter();
    let mut all: Vec<ObservedWorkload> = known
        .filter(|item| new.remove(&item.workload) || item.result == SUCCESSFUL)
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
fn is_later(created: &str, triggered: Option<&str>) -> bool {
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
                vec![item("a", SUCCESSFUL), item("b", FAILED), item("c", FAILED)],
                json!([item("a", SUCCESSFUL), item("c", FAILED)]),
            ),
            (
                vec!["b"],
                vec![item("a", ""), item("b", SUCCESSFUL)],
                json!([item("b", SUCCESSFUL)]),
            ),
        ];
        for (names, known, expected) in table {
            let workloads: Vec<Value> = names.into_iter().map(workload).collect();
            let rebalancer =
                json!({"spec": {"workloads": workloads}, "status": {"observedWorkloads": known}});
            let rebalancer = serde_json::from_value(rebalancer).unwrap();
            assert_eq!(json!(observed(&rebalancer)), expected);
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
            assert_eq!(is_later(created, triggered), later, "{triggered:?}");
        }
    }
}
