//! The graceful eviction controller: assesses bindings with eviction tasks and removes
//! finished tasks.

use std::sync::Arc;

use client::Result;
use jiff::Timestamp;
use machinery::Object;
use machinery::time::Clock;
use openapi::karmada::Binding;
use flotilla_runtime::{Action, Queue, Recorder, run_workers};
use serde_json::Value;
use std::time::Duration;

use super::decide::assess;
use crate::bindings::{Bindings, tell_evicted};
use crate::start::Deps;

const WORKERS: usize = 4;

pub(in crate::failover) struct Controller {
    bindings: Bindings,
    clock: Arc<dyn Clock>,
    recorder: Recorder,
    timeout: Duration,
}

impl Controller {
    pub(in crate::failover) fn start(deps: &Deps, bindings: &Bindings) {
        let it = Arc::new(Self {
            bindings: bindings.clone(),
            clock: Arc::clone(&deps.clock),
            recorder: deps.recorder.clone(),
            timeout: deps.options.failover.graceful_timeout,
        });
        let queue: Queue<String> = Queue::new();
        let wake = queue.clone();
        bindings.on_change(move |change| {
            if change.new.is_some_and(has_tasks) {
                wake.add_lane(change.key(), change.initial);
            }
        });
        run_workers(
            &deps.tasks,
            "graceful-eviction",
            &queue,
            WORKERS,
            move |key: String| {
                let it = Arc::clone(&it);
                async move { it.reconcile(&key).await }
            },
        );
    }

    async fn reconcile(&self, key: &str) -> Result<Action> {
        let Some(object) = self.bindings.get(key) else {
            return Ok(Action::Done);
        };
        let binding = object.view::<Binding>()?;
        let now = self.clock.now();
        let found = assess(&binding, object.head().generation, self.timeout, now);
        let mut spec = binding.spec.clone();
        spec.graceful_eviction_tasks = found.kept;
        let written = self
            .bindings
            .write(&object, &binding.spec, &spec, Value::Null)
            .await;
        match written {
            Err(e) if e.is_not_found() => return Ok(Action::Done),
            Err(e) if e.is_conflict() => return Ok(Action::AFTER_CONFLICT),
            other => other?,
        }
        let recorder = self.recorder.named(match object.namespace() {
            "" => "cluster-resource-binding-graceful-eviction-controller",
            _ => "resource-binding-graceful-eviction-controller",
        });
        for cluster in &found.evicted {
            tell_evicted(&recorder, &object, &binding.spec, cluster, true);
        }
        Ok(found.next.map_or(Action::Done, |at| until(at, now)))
    }
}

fn has_tasks(binding: &Object) -> bool {
    let view = binding.view::<Binding>();
    view.is_ok_and(|b| !b.spec.graceful_eviction_tasks.is_empty())
}

/// Requeues a key one millisecond after `at`.
pub(in crate::failover) fn until(at: Timestamp, now: Timestamp) -> Action {
    let wait = at.duration_since(now).try_into().unwrap_or(Duration::ZERO);
    Action::After(wait + Duration::from_millis(1))
}
