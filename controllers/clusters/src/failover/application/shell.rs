//! The application failover controller. Since when workloads are unhealthy is kept in
//! memory only: as in Karmada, it starts anew with the process.

use std::collections::HashMap;
use std::sync::Arc;

use client::Error;
use interpreter::{Interpreter, Operation};
use machinery::Object;
use machinery::object::Malformed;
use machinery::time::Clock;
use openapi::karmada::failover::ApplicationFailover;
use openapi::karmada::resource_group::ResourceGroup;
use openapi::karmada::{Binding, FeatureGates};
use parking_lot::Mutex;
use flotilla_runtime::{Action, Queue, Recorder, run_workers};
use serde_json::Value;

use super::decide::{Refused, Since, applies, judge, task};
use crate::bindings::{Bindings, tell_evicted};
use crate::failover::graceful::{stamp, until};
use crate::start::Deps;

const WORKERS: usize = 4;

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    Object(#[from] Malformed),
    #[error(transparent)]
    Api(#[from] Error),
}

pub(in crate::failover) struct Controller {
    bindings: Bindings,
    clock: Arc<dyn Clock>,
    recorder: Recorder,
    interpreter: Interpreter,
    gates: FeatureGates,
    unhealthy: Mutex<HashMap<String, Since>>,
}

impl Controller {
    pub(in crate::failover) fn start(deps: &Deps, bindings: &Bindings) {
        let it = Arc::new(Self {
            bindings: bindings.clone(),
            clock: Arc::clone(&deps.clock),
            recorder: deps.recorder.clone(),
            interpreter: deps.interpreter.clone(),
            gates: deps.options.gates,
            unhealthy: Mutex::default(),
        });
        let queue: Queue<String> = Queue::new();
        let wake = queue.clone();
        bindings.on_change(move |change| {
            if [change.old, change.new].into_iter().flatten().any(is_told) {
                wake.add_lane(change.key(), change.initial);
            }
        });
        // Changed interpreter rules can change the health of a kind.
        let wake = queue.clone();
        let visit = move |binding: &Object| {
            if is_told(binding) {
                wake.add_low(binding.head().key());
            }
        };
        let sweep = bindings.sweep(&deps.tasks, "failover-of-kinds", visit);
        deps.interpreter.on_change(move |changed| {
            const HEALTH_OPERATIONS: &[Operation] = &[Operation::InterpretHealth];
            if changed.touches(HEALTH_OPERATIONS) {
                let concerns =
                    |group: ResourceGroup<'_>| changed.concerns(&group.gvk(), HEALTH_OPERATIONS);
                sweep.add(|key| ResourceGroup::parse(key).is_some_and(concerns));
            }
        });
        run_workers(
            &deps.tasks,
            "application-failover",
            &queue,
            WORKERS,
            move |key: String| {
                let it = Arc::clone(&it);
                async move { it.reconcile(&key).await }
            },
        );
    }

    async fn reconcile(&self, key: &str) -> Result<Action, Failure> {
        self.interpreter.wait_synced().await;
        let found = self.bindings.get(key);
        let view = found.as_ref().map(Object::view::<Binding>).transpose()?;
        let interprets_health =
            |b: &&Arc<Binding>| self.interpreter.tells_health(&b.spec.resource.gvk());
        let application = view
            .as_ref()
            .filter(interprets_health)
            .and_then(|b| applies(b));
        let (Some(object), Some(binding), Some(application)) = (found, view, application) else {
            self.unhealthy.lock().remove(key);
            return Ok(Action::Done);
        };
        let now = self.clock.now();
        let evaluation = {
            let mut unhealthy = self.unhealthy.lock();
            let since = unhealthy.get(key).cloned().unwrap_or_default();
            let evaluation = judge(&binding, &application, &since, now);
            if evaluation.since.is_empty() {
                unhealthy.remove(key);
            } else {
                unhealthy.insert(key.to_owned(), evaluation.since.clone());
            }
            evaluation
        };
        match self
            .evict(&object, &binding, &application, &evaluation.evict)
            .await
        {
            Err(Failure::Api(e)) if e.is_conflict() => return Ok(Action::AFTER_CONFLICT),
            Err(Failure::Api(e)) if e.is_not_found() => return Ok(Action::Done),
            other => other?,
        }
        Ok(evaluation.next.map_or(Action::Done, |at| until(at, now)))
    }

    async fn evict(
        &self,
        object: &Object,
        binding: &Binding,
        application: &ApplicationFailover,
        clusters: &[String],
    ) -> Result<(), Failure> {
        let producer = match object.namespace() {
            "" => "cluster-resource-binding-application-failover-controller",
            _ => "resource-binding-application-failover-controller",
        };
        let mut spec = binding.spec.clone();
        for cluster in clusters {
            let mut task = task(binding, application, cluster, producer, self.gates)?;
            task.creation_timestamp = stamp(self.gates, self.clock.now());
            spec.evict(task);
        }
        let old = &binding.spec;
        let written = self.bindings.write(object, old, &spec, Value::Null).await;
        if let Err(e) = &written
            && !e.is_conflict()
            && !e.is_not_found()
        {
            let recorder = self.recorder.named(producer);
            for cluster in clusters {
                tell_evicted(&recorder, object, old, cluster, false);
            }
        }
        Ok(written?)
    }
}

fn is_told(binding: &Object) -> bool {
    let view = binding.view::<Binding>();
    view.is_ok_and(|b| b.spec.failover().application.is_some())
}
