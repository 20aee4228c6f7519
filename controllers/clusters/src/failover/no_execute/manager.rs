//! The NoExecute taint manager: reacts to taints of Clusters and to bindings scheduled to
//! them, and evicts at the rate of the process.
//!
//! A binding whose toleration has not ended waits in the queue; one that waits for the
//! rate limiter holds its worker.

use std::sync::Arc;

use client::{Error, Informer, InformerEvent, ShutdownToken};
use flotilla_runtime::{
    ControllerContext, EventRecorder, ReconcileAction, ReconcileError, Workqueue, run_workers,
};
use karmada_api::resources::CLUSTERS;
use karmada_api::{Cluster, FeatureGates, ResourceBinding, well_known_keys};
use machinery::Object;
use machinery::object::MalformedObject;
use machinery::time::Clock;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use super::pending_evictions::{BindingOnCluster, PendingEvictions};
use super::reconcile::{
    AppliedPlacementError, ResourceEvictionRateLimiter, TaintDecision, evaluate_taints,
    eviction_task, has_no_execute_taint, tolerations,
};
use crate::bindings::{BindingClient, record_eviction};
use crate::failover::graceful::{creation_timestamp, requeue_at};
use crate::failover::metrics::EVICTION_METRICS;
use crate::failover::options::FailoverOptions;
use crate::failover::state_preservation::StatePreservationError;
use crate::options::ClusterControllersOptions;

/// At a high rate the writes take the time.
const WORKERS: usize = 8;

/// Why a binding is retried.
#[derive(Debug, thiserror::Error)]
enum TaintEvictionError {
    #[error(transparent)]
    AppliedPlacement(#[from] AppliedPlacementError),
    #[error(transparent)]
    StatePreservation(#[from] StatePreservationError),
    #[error(transparent)]
    Object(#[from] MalformedObject),
    #[error(transparent)]
    Api(#[from] Error),
}

impl ReconcileError for TaintEvictionError {
    fn is_unanswered(&self) -> bool {
        matches!(self, Self::Api(error) if error.is_unanswered())
    }
}

pub(in crate::failover) struct NoExecuteTaintManager {
    bindings: BindingClient,
    clusters: Informer,
    clock: Arc<dyn Clock>,
    recorder: EventRecorder,
    gates: FeatureGates,
    options: FailoverOptions,
    rate_limiter: Mutex<ResourceEvictionRateLimiter>,
    queue: Workqueue<BindingOnCluster>,
    pending: PendingEvictions,
    shutdown: ShutdownToken,
}

/// The action for a binding on a cluster.
enum EvictionDecision {
    NotNeeded,
    Requeue(ReconcileAction),
    Evict(Object, Arc<ResourceBinding>),
}

impl NoExecuteTaintManager {
    pub(in crate::failover) fn start(
        context: &ControllerContext,
        options: &ClusterControllersOptions,
    ) {
        let bindings = BindingClient::new(context);
        let failover = options.settings.failover;
        let manager = Arc::new(Self {
            bindings,
            clusters: context.informer(&CLUSTERS),
            clock: Arc::clone(&context.clock),
            recorder: context.recorder.with_component("taint-manager"),
            gates: options.settings.gates,
            options: failover,
            rate_limiter: Mutex::new(ResourceEvictionRateLimiter::new(
                failover.resource_eviction_rate,
            )),
            queue: Workqueue::new(),
            pending: PendingEvictions::default(),
            shutdown: context.tasks.shutdown().clone(),
        });
        manager.add_event_handlers();
        let queue = manager.queue.clone();
        run_workers(
            &context.tasks,
            "taint-manager",
            &queue,
            WORKERS,
            move |key: BindingOnCluster| {
                let manager = Arc::clone(&manager);
                async move { manager.reconcile(&key).await }
            },
        );
    }

    fn add_event_handlers(self: &Arc<Self>) {
        let manager = Arc::downgrade(self);
        self.clusters.add_event_handler(move |change| {
            if let Some(manager) = manager.upgrade() {
                manager.cluster_changed(change);
            }
        });
        let manager = Arc::downgrade(self);
        self.bindings.add_event_handler(move |change| {
            if let Some(manager) = manager.upgrade() {
                manager.binding_changed(change);
            }
        });
    }

    fn cluster_changed(&self, change: &InformerEvent<'_>) {
        let Some(new) = change.new else { return };
        let taints = |o: &Object| o.decode::<Cluster>().map(|c| c.spec.taints.clone());
        let Ok(now) = taints(new) else { return };
        let before = change.old.and_then(|old| taints(old).ok());
        if !has_no_execute_taint(&now) || before.is_some_and(|before| before == now) {
            return;
        }
        for binding in self.bindings.scheduled_to(new.name()) {
            let key = (binding.meta().key(), new.name().to_owned());
            self.enqueue(key, change);
        }
    }

    /// Enqueues a binding that was scheduled to tainted clusters or got new tolerations.
    fn binding_changed(&self, change: &InformerEvent<'_>) {
        let Some(new) = change.new else { return };
        let Ok(view) = new.decode::<ResourceBinding>() else {
            return;
        };
        let applied = |b: &ResourceBinding| {
            b.metadata
                .annotations
                .get(well_known_keys::APPLIED_PLACEMENT)
                .cloned()
        };
        let old = change
            .old
            .and_then(|old| old.decode::<ResourceBinding>().ok());
        if old.is_some_and(|old| {
            old.spec.clusters == view.spec.clusters && applied(&old) == applied(&view)
        }) {
            return;
        }
        for target in &view.spec.clusters {
            if self.is_tainted(&target.name) {
                let key = (new.meta().key(), target.name.clone());
                self.enqueue(key, change);
            }
        }
    }

    fn enqueue(&self, key: BindingOnCluster, change: &InformerEvent<'_>) {
        self.pending.insert(&key);
        self.queue.add_event(key, change);
    }

    fn is_tainted(&self, cluster: &str) -> bool {
        let object = self.clusters.get("", cluster);
        let view = object.and_then(|c| c.decode::<Cluster>().ok());
        view.is_some_and(|c| has_no_execute_taint(&c.spec.taints))
    }

    async fn reconcile(
        &self,
        key: &BindingOnCluster,
    ) -> Result<ReconcileAction, TaintEvictionError> {
        EVICTION_METRICS.set_queue_depth(self.queue.len());
        self.pending.insert(key);
        let decided = self.sync_binding(key).await;
        if matches!(decided, Ok(ReconcileAction::Done)) {
            self.pending.remove(key);
        }
        decided
    }

    async fn sync_binding(
        &self,
        key: &BindingOnCluster,
    ) -> Result<ReconcileAction, TaintEvictionError> {
        let (object, binding) = match self.evaluate(key)? {
            EvictionDecision::NotNeeded => return Ok(ReconcileAction::Done),
            EvictionDecision::Requeue(action) => return Ok(action),
            EvictionDecision::Evict(object, binding) => match self.wait_for_rate_limiter().await {
                RateLimiterWaitOutcome::Immediate => (object, binding),
                RateLimiterWaitOutcome::Shutdown => return Ok(ReconcileAction::Done),
                // Evaluate again: much may have changed while waiting.
                RateLimiterWaitOutcome::AfterDelay => match self.evaluate(key)? {
                    EvictionDecision::NotNeeded => return Ok(ReconcileAction::Done),
                    EvictionDecision::Requeue(action) => return Ok(action),
                    EvictionDecision::Evict(object, binding) => (object, binding),
                },
            },
        };
        let began = Instant::now();
        let outcome = self.evict(&object, &binding, &key.1).await;
        EVICTION_METRICS.observe_eviction(began.elapsed(), outcome.is_ok());
        match outcome {
            Ok(()) => Ok(ReconcileAction::Done),
            Err(TaintEvictionError::Api(e)) if e.is_conflict() => {
                Ok(ReconcileAction::AFTER_CONFLICT)
            }
            Err(TaintEvictionError::Api(e)) if e.is_not_found() => Ok(ReconcileAction::Done),
            Err(e) => {
                if matches!(e, TaintEvictionError::Api(_)) {
                    record_eviction(&self.recorder, &object, &binding.spec, &key.1, false);
                }
                Err(e)
            }
        }
    }

    fn evaluate(
        &self,
        (key, cluster): &BindingOnCluster,
    ) -> Result<EvictionDecision, TaintEvictionError> {
        let Some(object) = self.bindings.get(key) else {
            return Ok(EvictionDecision::NotNeeded);
        };
        let binding = object.decode::<ResourceBinding>()?;
        let placed = binding.spec.clusters.iter().any(|t| t.name == *cluster);
        let Some(at) = self.clusters.get("", cluster).filter(|_| placed) else {
            return Ok(EvictionDecision::NotNeeded);
        };
        let taints = &at.decode::<Cluster>()?.spec.taints;
        if !has_no_execute_taint(taints) {
            return Ok(EvictionDecision::NotNeeded);
        }
        let now = self.clock.now();
        Ok(
            match evaluate_taints(taints, &tolerations(&binding)?, now) {
                TaintDecision::Tolerated => EvictionDecision::NotNeeded,
                TaintDecision::TolerateUntil(end) => {
                    EvictionDecision::Requeue(requeue_at(end, now))
                }
                TaintDecision::Evict => EvictionDecision::Evict(object, binding),
            },
        )
    }

    async fn wait_for_rate_limiter(&self) -> RateLimiterWaitOutcome {
        let mut turn = RateLimiterWaitOutcome::Immediate;
        loop {
            let acquired = self.rate_limiter.lock().try_acquire(Instant::now());
            let Err(next) = acquired else { return turn };
            if self
                .shutdown
                .run_until_triggered(sleep_until(next))
                .await
                .is_none()
            {
                return RateLimiterWaitOutcome::Shutdown;
            }
            turn = RateLimiterWaitOutcome::AfterDelay;
        }
    }

    async fn evict(
        &self,
        object: &Object,
        binding: &ResourceBinding,
        from: &str,
    ) -> Result<(), TaintEvictionError> {
        let mut spec = binding.spec.clone();
        let mut task = eviction_task(binding, from, self.gates, self.options.purge_mode)?;
        task.creation_timestamp = creation_timestamp(self.gates, self.clock.now());
        spec.evict(task);
        self.bindings
            .patch_spec(object, &binding.spec, &spec, Value::Null)
            .await?;
        Ok(())
    }
}

enum RateLimiterWaitOutcome {
    Immediate,
    AfterDelay,
    /// The process is shutting down.
    Shutdown,
}
