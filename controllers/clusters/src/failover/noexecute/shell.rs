//! The NoExecute taint manager: reacts to taints of Clusters and to bindings scheduled to
//! them, and evicts at the rate of the process.
//!
//! A binding whose toleration has not ended waits in the queue; one that waits for the
//! rate limiter holds its worker.

use std::sync::Arc;

use client::Error;
use machinery::Object;
use machinery::object::Malformed;
use machinery::time::Clock;
use openapi::karmada::resources::CLUSTERS;
use openapi::karmada::{Binding, Cluster, FeatureGates, labels};
use parking_lot::Mutex;
use flotilla_runtime::{Action, Change, Informer, Queue, Recorder, Select, Shutdown, run_workers};
use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use super::decide::{Pace, Unjudged, Verdict, evicts, judge, task, tolerations};
use super::waiting::{Key, Waiting};
use crate::bindings::{Bindings, tell_evicted};
use crate::failover::graceful::{stamp, until};
use crate::failover::state::StateError;
use crate::failover::{Options, figures::FIGURES};
use crate::start::Deps;

/// At a high rate the writes take the time.
const WORKERS: usize = 8;

/// Why a binding is retried.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Unjudged(#[from] Unjudged),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Object(#[from] Malformed),
    #[error(transparent)]
    Api(#[from] Error),
}

pub(in crate::failover) struct Manager {
    bindings: Bindings,
    clusters: Informer,
    clock: Arc<dyn Clock>,
    recorder: Recorder,
    gates: FeatureGates,
    options: Options,
    pace: Mutex<Pace>,
    queue: Queue<Key>,
    waiting: Waiting,
    shutdown: Shutdown,
}

/// What to do about a binding on a cluster.
enum Due {
    Nothing,
    Later(Action),
    Eviction(Object, Arc<Binding>),
}

impl Manager {
    pub(in crate::failover) fn start(deps: &Deps, bindings: &Bindings) {
        let options = deps.options.failover;
        let it = Arc::new(Self {
            bindings: bindings.clone(),
            clusters: deps.informers.get(&deps.control, &Select::all(&CLUSTERS)),
            clock: Arc::clone(&deps.clock),
            recorder: deps.recorder.named("taint-manager"),
            gates: deps.options.gates,
            options,
            pace: Mutex::new(Pace::new(options.eviction_rate)),
            queue: Queue::new(),
            waiting: Waiting::default(),
            shutdown: deps.tasks.shutdown().clone(),
        });
        it.listen();
        let queue = it.queue.clone();
        run_workers(
            &deps.tasks,
            "taint-manager",
            &queue,
            WORKERS,
            move |key: Key| {
                let it = Arc::clone(&it);
                async move { it.reconcile(&key).await }
            },
        );
    }

    fn listen(self: &Arc<Self>) {
        let it = Arc::downgrade(self);
        self.clusters.on_change(move |change| {
            if let Some(it) = it.upgrade() {
                it.cluster_changed(change);
            }
        });
        let it = Arc::downgrade(self);
        self.bindings.on_change(move |change| {
            if let Some(it) = it.upgrade() {
                it.binding_changed(change);
            }
        });
    }

    fn cluster_changed(&self, change: &Change<'_>) {
        let Some(new) = change.new else { return };
        let taints = |o: &Object| o.view::<Cluster>().map(|c| c.spec.taints.clone());
        let Ok(now) = taints(new) else { return };
        let before = change.old.and_then(|old| taints(old).ok());
        if !evicts(&now) || before.is_some_and(|before| before == now) {
            return;
        }
        for binding in self.bindings.placed_on(new.name()) {
            let key = (binding.head().key(), new.name().to_owned());
            self.add(key, change.initial);
        }
    }

    /// Enqueues a binding that was scheduled to tainted clusters or got new tolerations.
    fn binding_changed(&self, change: &Change<'_>) {
        let Some(new) = change.new else { return };
        let Ok(view) = new.view::<Binding>() else {
            return;
        };
        let applied = |b: &Binding| {
            b.metadata
                .annotations
                .get(labels::APPLIED_PLACEMENT)
                .cloned()
        };
        let old = change.old.and_then(|old| old.view::<Binding>().ok());
        if old.is_some_and(|old| {
            old.spec.clusters == view.spec.clusters && applied(&old) == applied(&view)
        }) {
            return;
        }
        for target in &view.spec.clusters {
            if self.is_tainted(&target.name) {
                let key = (new.head().key(), target.name.clone());
                self.add(key, change.initial);
            }
        }
    }

    fn add(&self, key: Key, low: bool) {
        self.waiting.enter(&key);
        self.queue.add_lane(key, low);
    }

    fn is_tainted(&self, cluster: &str) -> bool {
        let known = self.clusters.get("", cluster);
        let view = known.and_then(|c| c.view::<Cluster>().ok());
        view.is_some_and(|c| evicts(&c.spec.taints))
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        FIGURES.waiting(self.queue.len());
        self.waiting.enter(key);
        let decided = self.decide(key).await;
        if matches!(decided, Ok(Action::Done)) {
            self.waiting.leave(key);
        }
        decided
    }

    async fn decide(&self, key: &Key) -> Result<Action, Failure> {
        let (object, binding) = match self.look(key)? {
            Due::Nothing => return Ok(Action::Done),
            Due::Later(action) => return Ok(action),
            Due::Eviction(object, binding) => match self.turn().await {
                Turn::Now => (object, binding),
                Turn::End => return Ok(Action::Done),
                // Evaluate again: much may have changed while waiting.
                Turn::Waited => match self.look(key)? {
                    Due::Nothing => return Ok(Action::Done),
                    Due::Later(action) => return Ok(action),
                    Due::Eviction(object, binding) => (object, binding),
                },
            },
        };
        let began = Instant::now();
        let outcome = self.evict(&object, &binding, &key.1).await;
        FIGURES.processed(began.elapsed(), outcome.is_ok());
        match outcome {
            Ok(()) => Ok(Action::Done),
            Err(Failure::Api(e)) if e.is_conflict() => Ok(Action::AFTER_CONFLICT),
            Err(Failure::Api(e)) if e.is_not_found() => Ok(Action::Done),
            Err(e) => {
                if matches!(e, Failure::Api(_)) {
                    tell_evicted(&self.recorder, &object, &binding.spec, &key.1, false);
                }
                Err(e)
            }
        }
    }

    fn look(&self, (key, cluster): &Key) -> Result<Due, Failure> {
        let Some(object) = self.bindings.get(key) else {
            return Ok(Due::Nothing);
        };
        let binding = object.view::<Binding>()?;
        let placed = binding.spec.clusters.iter().any(|t| t.name == *cluster);
        let Some(at) = self.clusters.get("", cluster).filter(|_| placed) else {
            return Ok(Due::Nothing);
        };
        let taints = &at.view::<Cluster>()?.spec.taints;
        if !evicts(taints) {
            return Ok(Due::Nothing);
        }
        let now = self.clock.now();
        Ok(match judge(taints, &tolerations(&binding)?, now) {
            Verdict::Tolerated => Due::Nothing,
            Verdict::Until(end) => Due::Later(until(end, now)),
            Verdict::Evict => Due::Eviction(object, binding),
        })
    }

    async fn turn(&self) -> Turn {
        let mut turn = Turn::Now;
        loop {
            let taken = self.pace.lock().take(Instant::now());
            let Err(next) = taken else { return turn };
            if self.shutdown.unless(sleep_until(next)).await.is_none() {
                return Turn::End;
            }
            turn = Turn::Waited;
        }
    }

    async fn evict(&self, object: &Object, binding: &Binding, from: &str) -> Result<(), Failure> {
        let mut spec = binding.spec.clone();
        let mut task = task(binding, from, self.gates, self.options.purge_mode)?;
        task.creation_timestamp = stamp(self.gates, self.clock.now());
        spec.evict(task);
        self.bindings
            .write(object, &binding.spec, &spec, Value::Null)
            .await?;
        Ok(())
    }
}

enum Turn {
    Now,
    Waited,
    /// The process is shutting down.
    End,
}
