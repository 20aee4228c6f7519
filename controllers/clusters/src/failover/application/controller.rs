//! The application failover controller. Since when workloads are unhealthy is kept in
//! memory only: as in Karmada, it starts anew with the process.

use std::collections::HashMap;
use std::sync::Arc;

use client::{Error, Informer};
use flotilla_runtime::{
    ControllerContext, EventRecorder, ReconcileAction, ReconcileError, Workqueue, run_workers,
};
use interpreter::{InterpreterOperation, ResourceInterpreter};
use karmada_api::failover::ApplicationFailoverBehavior;
use karmada_api::kind_in_namespace::KindInNamespace;
use karmada_api::rollout::ROLLOUTS;
use karmada_api::{FeatureGates, ResourceBinding, Rollout};
use machinery::Object;
use machinery::object::MalformedObject;
use machinery::time::Clock;
use parking_lot::Mutex;
use serde_json::Value;

use super::reconcile::{
    EvictionTaskError, UnhealthySinceByCluster, application_failover, evaluate_health,
    eviction_task,
};
use crate::bindings::{BindingClient, record_eviction};
use crate::failover::graceful::{creation_timestamp, requeue_at};
use crate::options::ClusterControllersOptions;

const WORKERS: usize = 4;

#[derive(Debug, thiserror::Error)]
enum ApplicationFailoverError {
    #[error(transparent)]
    EvictionTask(#[from] EvictionTaskError),
    #[error(transparent)]
    Object(#[from] MalformedObject),
    #[error(transparent)]
    Api(#[from] Error),
}

impl ReconcileError for ApplicationFailoverError {
    fn is_unanswered(&self) -> bool {
        matches!(self, Self::Api(error) if error.is_unanswered())
    }
}

pub(in crate::failover) struct ApplicationFailoverController {
    bindings: BindingClient,
    /// A Rollout has the key of its binding.
    rollouts: Informer,
    clock: Arc<dyn Clock>,
    recorder: EventRecorder,
    interpreter: ResourceInterpreter,
    gates: FeatureGates,
    unhealthy_since: Mutex<HashMap<String, UnhealthySinceByCluster>>,
}

impl ApplicationFailoverController {
    pub(in crate::failover) fn start(
        context: &ControllerContext,
        options: &ClusterControllersOptions,
    ) {
        let bindings = BindingClient::new(context);
        let controller = Arc::new(Self {
            bindings: bindings.clone(),
            rollouts: context.informer(&ROLLOUTS),
            clock: Arc::clone(&context.clock),
            recorder: context.recorder.clone(),
            interpreter: options.interpreter.clone(),
            gates: options.settings.gates,
            unhealthy_since: Mutex::default(),
        });
        let queue: Workqueue<String> = Workqueue::new();
        let wake = queue.clone();
        bindings.add_event_handler(move |change| {
            if [change.old, change.new]
                .into_iter()
                .flatten()
                .any(has_application_failover)
            {
                wake.add_event(change.key(), change);
            }
        });
        let (wake, of_rollouts) = (queue.clone(), bindings.clone());
        controller.rollouts.add_event_handler(move |change| {
            let binding = of_rollouts.get(&change.key());
            if binding.as_ref().is_some_and(has_application_failover) {
                wake.add(change.key());
            }
        });
        // Changed interpreter rules can change the health of a kind.
        let wake = queue.clone();
        let visit = move |binding: &Object| {
            if has_application_failover(binding) {
                wake.add_low(binding.meta().key());
            }
        };
        let sweep = bindings.start_index_key_workqueue(&context.tasks, "failover-of-kinds", visit);
        options.interpreter.add_change_listener(move |changed| {
            const HEALTH_OPERATIONS: &[InterpreterOperation] =
                &[InterpreterOperation::InterpretHealth];
            if changed.affects_operations(HEALTH_OPERATIONS) {
                let concerns = |group: KindInNamespace<'_>| {
                    changed.affects_kind(&group.gvk(), HEALTH_OPERATIONS)
                };
                sweep.add(|key| KindInNamespace::parse(key).is_some_and(concerns));
            }
        });
        run_workers(
            &context.tasks,
            "application-failover",
            &queue,
            WORKERS,
            move |key: String| {
                let controller = Arc::clone(&controller);
                async move { controller.reconcile(&key).await }
            },
        );
    }

    async fn reconcile(&self, key: &str) -> Result<ReconcileAction, ApplicationFailoverError> {
        self.interpreter.wait_for_cache_sync().await;
        self.rollouts.wait_for_cache_sync().await;
        let cached = self.bindings.get(key);
        let view = cached
            .as_ref()
            .map(Object::decode::<ResourceBinding>)
            .transpose()?;
        let interprets_health =
            |b: &&Arc<ResourceBinding>| self.interpreter.has_health_rule(&b.spec.resource.gvk());
        let application = view
            .as_ref()
            .filter(interprets_health)
            .and_then(|b| application_failover(b));
        let (Some(object), Some(binding), Some(application)) = (cached, view, application) else {
            self.unhealthy_since.lock().remove(key);
            return Ok(ReconcileAction::Done);
        };
        let now = self.clock.now();
        let rollout = self.rollouts.get_by_key(key);
        let rollout = rollout.map(|rollout| rollout.decode::<Rollout>());
        let rollout = rollout.transpose()?;
        let rollout = rollout.as_ref().and_then(|rollout| rollout.status.as_ref());
        let evaluation = {
            let mut unhealthy = self.unhealthy_since.lock();
            let since = unhealthy.get(key).cloned().unwrap_or_default();
            let evaluation = evaluate_health(&binding, &application, rollout, &since, now);
            if evaluation.since.is_empty() {
                unhealthy.remove(key);
            } else {
                unhealthy.insert(key.to_owned(), evaluation.since.clone());
            }
            evaluation
        };
        match self
            .evict(
                &object,
                &binding,
                &application,
                &evaluation.clusters_to_evict,
            )
            .await
        {
            Err(ApplicationFailoverError::Api(e)) if e.is_conflict() => {
                return Ok(ReconcileAction::AFTER_CONFLICT);
            }
            Err(ApplicationFailoverError::Api(e)) if e.is_not_found() => {
                return Ok(ReconcileAction::Done);
            }
            other => other?,
        }
        Ok(evaluation
            .next_deadline
            .map_or(ReconcileAction::Done, |at| requeue_at(at, now)))
    }

    async fn evict(
        &self,
        object: &Object,
        binding: &ResourceBinding,
        application: &ApplicationFailoverBehavior,
        clusters: &[String],
    ) -> Result<(), ApplicationFailoverError> {
        let producer = match object.namespace() {
            "" => "cluster-resource-binding-application-failover-controller",
            _ => "resource-binding-application-failover-controller",
        };
        let mut spec = binding.spec.clone();
        for cluster in clusters {
            let mut task = eviction_task(binding, application, cluster, producer, self.gates)?;
            task.creation_timestamp = creation_timestamp(self.gates, self.clock.now());
            spec.evict(task);
        }
        let old = &binding.spec;
        let written = self
            .bindings
            .patch_spec(object, old, &spec, Value::Null)
            .await;
        if let Err(e) = &written
            && !e.is_conflict()
            && !e.is_not_found()
        {
            let recorder = self.recorder.with_component(producer);
            for cluster in clusters {
                record_eviction(&recorder, object, old, cluster, false);
            }
        }
        Ok(written?)
    }
}

fn has_application_failover(binding: &Object) -> bool {
    let view = binding.decode::<ResourceBinding>();
    view.is_ok_and(|b| b.spec.failover_behavior().application.is_some())
}
