//! The scheduler's controller: takes bindings from the queue, decides and writes results.

mod affinity_group_index;
mod cluster_update_queue;
mod event_handler;
mod result_writer;
mod scheduling_task;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use client::{Api, Error, Informer};
use flotilla_runtime::{
    ControllerContext, ControllerName, EventRecorder, ReconcileAction, Workqueue, run_workers_after,
};
use karmada_api::resources::{BINDINGS, CLUSTER_BINDINGS};
use karmada_api::{FeatureGates, KarmadaFeature, ResourceBinding};
use machinery::Object;
use machinery::time::Clock;
use parking_lot::Mutex;

use crate::assume_cache::{AssumeCache, PreviousAssumption};
use crate::cluster_cache::SchedulerClusterCache;
use crate::core::workload_affinity::AffinityPeerClusters;
use crate::core::{
    AccurateEstimate, AccurateEstimates, ClusterSnapshot, SchedulingContext, SchedulingFailure,
    SchedulingSettings, schedules_component_sets,
};
use crate::decision_explanation_cache::DecisionExplanationCache;
use crate::explain::DecisionExplanation;
use crate::metrics::{self, QueueIncomingEvent, ScheduleType};
use crate::reconcile::{
    DEFAULT_SCHEDULER, ScheduleResult, SchedulingAction, schedule_binding, scheduling_action,
};
use crate::replica_estimator::{ClusterToEstimate, CurrentEstimator, EstimateRequest};
use affinity_group_index::{AFFINITY_GROUP_INDEX, affinity_group_keys};
use cluster_update_queue::ClusterUpdateQueue;
use scheduling_task::{SchedulingKey, SchedulingTask};

pub use result_writer::encode_placement;

/// Base and maximum backoff of failed bindings while `PriorityBasedScheduling` is on.
const BACKOFF_WITH_PRIORITY: (Duration, Duration) =
    (Duration::from_secs(1), Duration::from_secs(10));
/// Without priorities the queue has the backoff of Karmada's other queues.
const BACKOFF_WITHOUT_PRIORITY: (Duration, Duration) =
    (Duration::from_millis(5), Duration::from_secs(1000));
const UNSCHEDULABLE_RETRY_INTERVAL: Duration = Duration::from_secs(300);
const SCHEDULER_WORKERS: usize = 4;

/// What the scheduler works with beside its context.
#[derive(Clone)]
pub struct SchedulerOptions {
    /// The clusters, and the settings of decisions about them.
    pub clusters: SchedulerClusterCache,
    /// The scheduler's name; it ignores bindings that name another scheduler.
    pub name: String,
    /// Which feature gates are on.
    pub gates: FeatureGates,
    /// Caches the last decisions for explanations.
    pub decisions: DecisionExplanationCache,
    /// Asked for the available replicas of clusters, if it is set.
    pub estimator: CurrentEstimator,
}

impl SchedulerOptions {
    /// The default options.
    pub fn new(clusters: SchedulerClusterCache) -> Self {
        Self {
            clusters,
            name: DEFAULT_SCHEDULER.into(),
            gates: FeatureGates::default(),
            decisions: DecisionExplanationCache::default(),
            estimator: CurrentEstimator::default(),
        }
    }
}

/// A running scheduler.
pub struct Scheduler {
    api: Arc<dyn Api>,
    clock: Arc<dyn Clock>,
    recorder: EventRecorder,
    options: SchedulerOptions,
    settings: SchedulingSettings,
    bindings: Informer,
    cluster_bindings: Informer,
    queue: Workqueue<SchedulingKey>,
    assume_cache: Mutex<AssumeCache>,
    /// Bindings that a cluster change has enqueued.
    cluster_changed: Mutex<HashSet<SchedulingKey>>,
    /// Bindings that the detector scaled together with their clusters.
    placed_by_detector: Mutex<HashSet<SchedulingKey>>,
    cluster_updates: ClusterUpdateQueue,
    /// Whether the workers have started.
    workers_started: AtomicBool,
    /// Held from the call to an estimator until the decision is in the assume cache, if
    /// decisions depend on other bindings.
    decision_lock: tokio::sync::Mutex<()>,
}

impl Scheduler {
    /// Starts the scheduler; it ends with the tasks of the context.
    pub fn start(context: &ControllerContext, options: SchedulerOptions) {
        let settings = options.clusters.snapshot().settings();
        let (base, most) = if options
            .gates
            .enabled(KarmadaFeature::PriorityBasedScheduling)
        {
            BACKOFF_WITH_PRIORITY
        } else {
            BACKOFF_WITHOUT_PRIORITY
        };
        let scheduler = Arc::new(Self {
            bindings: context.informer(&BINDINGS),
            cluster_bindings: context.informer(&CLUSTER_BINDINGS),
            queue: Workqueue::with_backoff(base, most),
            api: Arc::clone(&context.control_plane),
            clock: Arc::clone(&context.clock),
            recorder: context.recorder.clone(),
            options,
            settings,
            assume_cache: Mutex::default(),
            cluster_changed: Mutex::default(),
            placed_by_detector: Mutex::default(),
            cluster_updates: ClusterUpdateQueue::default(),
            workers_started: AtomicBool::new(false),
            decision_lock: tokio::sync::Mutex::default(),
        });
        if settings.uses_workload_affinity() {
            scheduler
                .bindings
                .add_index(AFFINITY_GROUP_INDEX, affinity_group_keys);
        }
        scheduler.add_event_handlers();
        scheduler.run_cluster_update_worker(&context.tasks);
        let queue = scheduler.queue.clone();
        metrics::register_queue(move || queue.pending_counts());
        let (waiting, queue) = (Arc::clone(&scheduler), scheduler.queue.clone());
        let synced = async move {
            waiting
                .options
                .clusters
                .informer()
                .wait_for_cache_sync()
                .await;
            if let Some(estimator) = waiting.options.estimator.get() {
                estimator.wait_ready().await;
            }
            waiting.workers_started.store(true, Ordering::Release);
        };
        run_workers_after(
            &context.tasks,
            synced,
            ControllerName::with_stage("scheduler", "scheduled"),
            &queue,
            SCHEDULER_WORKERS,
            move |key: SchedulingKey| {
                let scheduler = Arc::clone(&scheduler);
                async move { scheduler.reconcile(&key).await }
            },
        );
    }

    /// Whether unschedulable bindings wait for a fixed interval instead of the backoff.
    fn has_unschedulable_queue(&self) -> bool {
        self.options
            .gates
            .enabled(KarmadaFeature::PriorityBasedScheduling)
    }

    fn informer(&self, key: &SchedulingKey) -> &Informer {
        if key.cluster_scoped {
            &self.cluster_bindings
        } else {
            &self.bindings
        }
    }

    async fn reconcile(&self, key: &SchedulingKey) -> Result<ReconcileAction, Error> {
        // Taken before the binding is read, so that the mark never concerns a newer version.
        let placed_by_detector = self.placed_by_detector.lock().remove(key);
        let Some(object) = self.informer(key).get_by_key(&key.name) else {
            return Ok(ReconcileAction::Done);
        };
        let binding = object.decode::<ResourceBinding>()?;
        if object.meta().deleting {
            let text = format!("skip schedule deleting {}: {}", key.kind(), key.name);
            self.record_event(&object, &binding, Err(&text));
            return Ok(ReconcileAction::Done);
        }
        let Some(placement) = &binding.spec.placement else {
            let text = format!("failed to get placement from {}({})", key.kind(), key.name);
            return Err(Error::Protocol(text));
        };
        let case = SchedulingTask {
            key,
            object: &object,
            binding: &binding,
            placement,
            cluster_changed: self.cluster_changed.lock().remove(key),
            placed_by_detector,
        };
        let snapshot = self.options.clusters.snapshot();
        let is_ending = |cluster: &str| snapshot.get(cluster).is_some_and(|m| m.is_terminating());
        let done = match scheduling_action(&binding, placement, self.settings, is_ending) {
            SchedulingAction::ObserveGeneration => self.observe_generation(&case).await,
            SchedulingAction::Schedule { fresh, scale } => self.schedule(&case, fresh, scale).await,
        };
        match done {
            Err(e) if e.is_not_found() || e.is_namespace_terminating() => Ok(ReconcileAction::Done),
            Err(e) if e.is_conflict() => {
                if case.cluster_changed {
                    self.cluster_changed.lock().insert(key.clone());
                }
                self.restore_placed_by_detector(&case);
                Ok(ReconcileAction::AFTER_CONFLICT)
            }
            Err(e) => {
                self.restore_placed_by_detector(&case);
                Err(e)
            }
            other => other,
        }
    }

    fn restore_placed_by_detector(&self, case: &SchedulingTask<'_>) {
        if case.placed_by_detector {
            self.placed_by_detector.lock().insert(case.key.clone());
        }
    }

    async fn schedule(
        &self,
        case: &SchedulingTask<'_>,
        fresh: bool,
        scale: bool,
    ) -> Result<ReconcileAction, Error> {
        let began = Instant::now();
        let (mut outcome, entry) = self.schedule_with_estimates(case, fresh).await?;
        // Cached before the write, so that whoever sees the result finds its explanation.
        let generation = case.object.meta().generation;
        let explanation = DecisionExplanation::from_result(&mut outcome, generation, fresh);
        self.options.decisions.insert(&case.key.name, explanation);
        let done = self.apply_result(case, &outcome, entry, fresh).await;
        let success = outcome.failure.is_none() && done.is_ok();
        metrics::record_attempt(success, ScheduleType::from_scale(scale), began.elapsed());
        let again = matches!(
            outcome.failure,
            Some(SchedulingFailure::Error(_) | SchedulingFailure::Unschedulable(_))
        );
        if again || done.is_err() {
            metrics::record_incoming(QueueIncomingEvent::Failure);
        }
        done
    }

    /// Whether decisions depend on the results of other bindings.
    fn depends_on_other_bindings(&self) -> bool {
        self.settings.reserve || self.settings.uses_workload_affinity()
    }

    /// Decides after all estimators that are needed have answered.
    async fn schedule_with_estimates(
        &self,
        case: &SchedulingTask<'_>,
        fresh: bool,
    ) -> Result<(ScheduleResult, Option<PreviousAssumption>), Error> {
        let Some(estimator) = self.options.estimator.get() else {
            return self.try_schedule(case, fresh, &self.options.clusters.snapshot(), None);
        };
        let _turn = if self.depends_on_other_bindings() {
            Some(self.decision_lock.lock().await)
        } else {
            None
        };
        let snapshot = self.options.clusters.snapshot();
        let spec = &case.binding.spec;
        let question = EstimateRequest::from_spec(
            spec,
            schedules_component_sets(spec, case.placement, self.settings),
        );
        let mut answers = AccurateEstimates::default();
        loop {
            let (outcome, entry) = self.try_schedule(case, fresh, &snapshot, Some(&answers))?;
            if outcome.unestimated_clusters.is_empty() {
                return Ok((outcome, entry));
            }
            let clusters = self.with_assumed(outcome.unestimated_clusters);
            let estimates = estimator.max_available(&question, &clusters).await;
            let estimates = estimates
                .into_iter()
                .chain(std::iter::repeat(AccurateEstimate::Unknown));
            for (candidate, answer) in clusters.into_iter().zip(estimates) {
                answers.insert(candidate.cluster, answer);
            }
        }
    }

    fn with_assumed(&self, clusters: Vec<String>) -> Vec<ClusterToEstimate> {
        let mut book = self.assume_cache.lock();
        let assumed = book.reservations.snapshot(Instant::now());
        let candidate = |cluster: String| ClusterToEstimate {
            assumed: assumed.workloads(&cluster),
            cluster,
        };
        clusters.into_iter().map(candidate).collect()
    }

    /// Decides with the estimates gathered so far. Decisions that depend on each other are
    /// made one by one, and each is in the assume cache before the next.
    fn try_schedule(
        &self,
        case: &SchedulingTask<'_>,
        fresh: bool,
        snapshot: &ClusterSnapshot,
        answers: Option<&AccurateEstimates>,
    ) -> Result<(ScheduleResult, Option<PreviousAssumption>), Error> {
        let SchedulingTask {
            key,
            object,
            binding,
            placement,
            ..
        } = case;
        let mut ended = metrics::step_observer();
        let mut context = SchedulingContext {
            accurate_estimates: answers,
            ..SchedulingContext::from_snapshot(snapshot)
        };
        if !self.depends_on_other_bindings() {
            let outcome = schedule_binding(binding, placement, fresh, &context, &mut ended);
            return Ok((outcome, None));
        }
        let now = Instant::now();
        let mut book = self.assume_cache.lock();
        let peers = if key.cluster_scoped {
            AffinityPeerClusters::default()
        } else {
            let others: Vec<Object> = affinity_group_keys(object)
                .iter()
                .flat_map(|group| self.bindings.by_index(AFFINITY_GROUP_INDEX, group))
                .collect();
            let groups = binding.spec.workload_affinity_groups.as_ref();
            book.peers(object, groups, &others)
        };
        context.peers = &peers;
        context.reservations = book.reservations.snapshot(now);
        let outcome = schedule_binding(binding, placement, fresh, &context, &mut ended);
        if !outcome.unestimated_clusters.is_empty() {
            return Ok((outcome, None));
        }
        let is_news = outcome.is_result() && case.result_differs(&outcome.targets)?;
        let entry = (is_news && !key.cluster_scoped).then(|| {
            let targets = &outcome.targets;
            book.assume(&key.name, &binding.spec, targets, self.settings, now)
        });
        Ok((outcome, entry))
    }
}

#[cfg(test)]
mod tests;
