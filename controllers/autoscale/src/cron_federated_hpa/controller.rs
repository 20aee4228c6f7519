//! Runs the executors of CronFederatedHPAs: each object is reconciled when it changes and when its
//! next rule is due.

use std::sync::Arc;
use std::time::Duration;

use ahash::AHashMap;
use client::{Api, Informer, InvolvedObject, Result};
use flotilla_runtime::{
    ControllerContext, EventRecorder, ReconcileAction, StatusWriter, Workqueue, run_workers,
};
use jiff::Timestamp;
use karmada_api::CronFederatedHpa;
use karmada_api::cron_federated_hpa::CronFederatedHpaStatus;
use karmada_api::resources::CRON_FEDERATED_HPAS;
use machinery::Object;
use machinery::time::Clock;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use super::executor::CronExecutor;
use super::history::{RuleExecution, updated_status};
use super::scaling::scale;
use crate::metrics::CRON_FEDERATED_HPA_METRICS;

/// Many rules are due at the same full hour.
const WORKERS: usize = 5;
/// Component of the events, as in Karmada.
const COMPONENT: &str = "cronfederatedhpa-controller";

pub(crate) struct CronFederatedHpaController {
    api: Arc<dyn Api>,
    clock: Arc<dyn Clock>,
    recorder: EventRecorder,
    objects: Informer,
    executors: Mutex<AHashMap<String, CronExecutor>>,
}

/// The status that an object should have.
struct DesiredStatus {
    status: CronFederatedHpaStatus,
    /// Executions that only this status has.
    executions: usize,
    earliest: Option<Timestamp>,
}

impl CronFederatedHpaController {
    pub(crate) async fn start(context: &ControllerContext) {
        let controller = Arc::new(Self {
            api: Arc::clone(&context.control_plane),
            clock: Arc::clone(&context.clock),
            recorder: context.recorder.with_component(COMPONENT),
            objects: context.informer(&CRON_FEDERATED_HPAS),
            executors: Mutex::default(),
        });
        controller.objects.wait_for_cache_sync().await;
        let queue: Workqueue<String> = Workqueue::new();
        let changed = queue.clone();
        controller.objects.add_event_handler(move |change| {
            changed.add_event(change.key(), change);
        });
        run_workers(
            &context.tasks,
            "cron-federated-hpa",
            &queue,
            WORKERS,
            move |key: String| {
                let controller = Arc::clone(&controller);
                async move {
                    let began = Instant::now();
                    let reconciled = controller.reconcile(&key).await;
                    let outcomes = &CRON_FEDERATED_HPA_METRICS.process_outcomes;
                    outcomes.observe(began.elapsed(), reconciled.is_ok());
                    reconciled
                }
            },
        );
    }

    async fn reconcile(&self, key: &str) -> Result<ReconcileAction> {
        let object = self.objects.get_by_key(key);
        let Some(object) = object.filter(|object| !object.meta().deleting) else {
            self.executors.lock().remove(key);
            return Ok(ReconcileAction::Done);
        };
        let cron = object.decode::<CronFederatedHpa>()?;
        let now = self.clock.now();
        let (errors, due) = {
            let mut executors = self.executors.lock();
            let executor = executors.entry(key.to_owned()).or_default();
            let errors = executor.sync(&object.meta().uid, &cron.spec, now);
            (errors, executor.take_due(now))
        };
        let about = InvolvedObject::from_object(&object);
        for error in errors {
            self.recorder.warning(&about, "StartRuleFailed", error);
        }
        for (rule, scheduled) in due {
            let target = &cron.spec.scale_target_ref;
            let (namespace, name) = (object.namespace(), object.name());
            let began = Instant::now();
            let outcome = scale(&*self.api, namespace, name, target, &rule).await;
            let outcomes = &CRON_FEDERATED_HPA_METRICS.rule_outcomes;
            outcomes.observe(began.elapsed(), outcome.is_ok());
            if let Err(error) = &outcome {
                self.recorder.warning(&about, "ScaleFailed", error);
            }
            let execution = RuleExecution {
                rule,
                scheduled,
                executed: self.clock.now(),
                outcome,
            };
            if let Some(executor) = self.executors.lock().get_mut(key) {
                executor.record(execution);
            }
        }
        self.write_status(key, &object, &about, &cron).await
    }

    /// Writes the status if it has changed, and waits for the next rule.
    async fn write_status(
        &self,
        key: &str,
        object: &Object,
        about: &InvolvedObject,
        cron: &CronFederatedHpa,
    ) -> Result<ReconcileAction> {
        let Some(desired) = self.desired_status(key, cron) else {
            return Ok(ReconcileAction::Done);
        };
        let changed = (desired.status != cron.status).then(|| json!(desired.status));
        let writer = StatusWriter::new(&*self.api, "cron-federated-hpa");
        match writer.update(&CRON_FEDERATED_HPAS, object, changed).await {
            Err(e) if e.is_not_found() => return Ok(ReconcileAction::Done),
            // The executions are kept for the newer object.
            Err(e) if e.is_conflict() => return Ok(ReconcileAction::AFTER_CONFLICT),
            Err(e) => {
                let reason = match desired.executions {
                    0 => "UpdateCronFederatedHPAFailed",
                    _ => "UpdateStatusFailed",
                };
                self.recorder.warning(about, reason, e.to_string());
                return Err(e);
            }
            Ok(_) => {}
        }
        if let Some(executor) = self.executors.lock().get_mut(key) {
            executor.recorded(desired.executions);
        }
        Ok(desired.earliest.map_or(ReconcileAction::Done, |at| {
            ReconcileAction::RequeueAfter(self.time_until(at))
        }))
    }

    fn desired_status(&self, key: &str, cron: &CronFederatedHpa) -> Option<DesiredStatus> {
        let executors = self.executors.lock();
        let executor = executors.get(key)?;
        let rules: Vec<_> = cron
            .spec
            .rules
            .iter()
            .map(|rule| (rule, executor.next_time(&rule.name)))
            .collect();
        Some(DesiredStatus {
            status: updated_status(&cron.status, &rules, executor.unrecorded()),
            executions: executor.unrecorded().len(),
            earliest: executor.earliest(),
        })
    }

    fn time_until(&self, at: Timestamp) -> Duration {
        let wait = at.duration_since(self.clock.now());
        // A rule is due at a full second; a key that comes back early would only come twice.
        Duration::try_from(wait).unwrap_or(Duration::ZERO) + Duration::from_millis(1)
    }
}
