//! The graceful eviction controller: assesses bindings with eviction tasks and removes
//! finished tasks.

use std::sync::Arc;

use client::Result;
use flotilla_runtime::{ControllerContext, EventRecorder, ReconcileAction, Workqueue, run_workers};
use jiff::Timestamp;
use karmada_api::ResourceBinding;
use machinery::Object;
use machinery::time::Clock;
use serde_json::Value;
use std::time::Duration;

use super::reconcile::assess_eviction_tasks;
use crate::bindings::{BindingClient, record_eviction};
use crate::options::ClusterControllersOptions;

const WORKERS: usize = 4;

pub(in crate::failover) struct GracefulEvictionController {
    bindings: BindingClient,
    clock: Arc<dyn Clock>,
    recorder: EventRecorder,
    timeout: Duration,
}

impl GracefulEvictionController {
    pub(in crate::failover) fn start(
        context: &ControllerContext,
        options: &ClusterControllersOptions,
    ) {
        let bindings = BindingClient::new(context);
        let controller = Arc::new(Self {
            bindings: bindings.clone(),
            clock: Arc::clone(&context.clock),
            recorder: context.recorder.clone(),
            timeout: options.settings.failover.graceful_eviction_timeout,
        });
        let queue: Workqueue<String> = Workqueue::new();
        let wake = queue.clone();
        bindings.add_event_handler(move |change| {
            if change.new.is_some_and(has_eviction_tasks) {
                wake.add_event(change.key(), change);
            }
        });
        run_workers(
            &context.tasks,
            "graceful-eviction",
            &queue,
            WORKERS,
            move |key: String| {
                let controller = Arc::clone(&controller);
                async move { controller.reconcile(&key).await }
            },
        );
    }

    async fn reconcile(&self, key: &str) -> Result<ReconcileAction> {
        let Some(object) = self.bindings.get(key) else {
            return Ok(ReconcileAction::Done);
        };
        let binding = object.decode::<ResourceBinding>()?;
        let now = self.clock.now();
        let assessment =
            assess_eviction_tasks(&binding, object.meta().generation, self.timeout, now);
        let mut spec = binding.spec.clone();
        spec.graceful_eviction_tasks = assessment.kept_tasks;
        let written = self
            .bindings
            .patch_spec(&object, &binding.spec, &spec, Value::Null)
            .await;
        match written {
            Err(e) if e.is_not_found() => return Ok(ReconcileAction::Done),
            Err(e) if e.is_conflict() => return Ok(ReconcileAction::AFTER_CONFLICT),
            other => other?,
        }
        let recorder = self.recorder.with_component(match object.namespace() {
            "" => "cluster-resource-binding-graceful-eviction-controller",
            _ => "resource-binding-graceful-eviction-controller",
        });
        for cluster in &assessment.evicted_clusters {
            record_eviction(&recorder, &object, &binding.spec, cluster, true);
        }
        Ok(assessment
            .next_deadline
            .map_or(ReconcileAction::Done, |at| requeue_at(at, now)))
    }
}

fn has_eviction_tasks(binding: &Object) -> bool {
    let view = binding.decode::<ResourceBinding>();
    view.is_ok_and(|b| !b.spec.graceful_eviction_tasks.is_empty())
}

/// Requeues a key one millisecond after `at`.
pub(in crate::failover) fn requeue_at(at: Timestamp, now: Timestamp) -> ReconcileAction {
    let wait = at.duration_since(now).try_into().unwrap_or(Duration::ZERO);
    ReconcileAction::RequeueAfter(wait + Duration::from_millis(1))
}
