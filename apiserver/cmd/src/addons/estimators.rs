//! The addons that call estimators: the accurate estimates of the scheduler, and the descheduler.
//! They share the connections to the estimators of clusters.

use std::sync::Arc;

use client::{Api, InformerFactory, TaskGroup};
use estimator::{
    AccurateEstimator, Descheduler, DeschedulerContext, DeschedulerOptions, EstimatorCache,
    EstimatorOptions,
};
use flotilla_runtime::EventRecorder;
use machinery::time::Clock;
use members::{MemberClusterManager, MemberTrackingOptions};
use scheduler::{CurrentEstimator, SchedulerClusterCache};

/// The parts that the two work with.
pub(crate) struct EstimatorAddonsContext {
    pub(crate) api: Arc<dyn Api>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) informers: InformerFactory,
    pub(crate) members: MemberClusterManager,
    /// The clusters of the scheduler.
    pub(crate) clusters: SchedulerClusterCache,
    /// The recorder of the descheduler.
    pub(crate) recorder: EventRecorder,
    pub(crate) estimators: EstimatorOptions,
    pub(crate) descheduler: DeschedulerOptions,
    pub(crate) tasks: TaskGroup,
}

/// Connections, and the tasks that keep them.
struct RunningConnections {
    cache: Arc<EstimatorCache>,
    tasks: TaskGroup,
}

pub(crate) struct EstimatorAddons {
    context: EstimatorAddonsContext,
    /// The estimator that the scheduler asks.
    scheduler_estimator: CurrentEstimator,
    connections: Option<RunningConnections>,
    descheduler: Option<TaskGroup>,
}

/// The facts about members that the estimates of the scheduler need.
pub(crate) fn member_tracking(
    scheduler_estimator: bool,
    options: &EstimatorOptions,
) -> MemberTrackingOptions {
    MemberTrackingOptions {
        individual_nodes: scheduler_estimator,
        quotas: scheduler_estimator && options.quotas,
    }
}

impl EstimatorAddons {
    pub(crate) fn new(context: EstimatorAddonsContext) -> Self {
        Self {
            context,
            scheduler_estimator: CurrentEstimator::default(),
            connections: None,
            descheduler: None,
        }
    }

    /// The estimator for the scheduler.
    pub(crate) fn scheduler_estimator(&self) -> CurrentEstimator {
        self.scheduler_estimator.clone()
    }

    /// Starts and stops what differs.
    pub(crate) async fn apply(&mut self, scheduler_estimator: bool, descheduler: bool) {
        self.set_scheduler_estimator(scheduler_estimator);
        self.set_descheduler(descheduler).await;
        if !scheduler_estimator
            && !descheduler
            && let Some(unused) = self.connections.take()
        {
            unused.tasks.stop().await;
        }
    }

    fn set_scheduler_estimator(&mut self, enabled: bool) {
        if self.scheduler_estimator.get().is_some() == enabled {
            return;
        }
        let tracking = member_tracking(enabled, &self.context.estimators);
        self.context.members.set_tracking(tracking);
        let estimator = enabled.then(|| {
            let connections = self.connections();
            AccurateEstimator::start(&connections, &self.context.members)
        });
        self.scheduler_estimator.set(estimator);
        // Decisions made elsewhere leave to the scheduler what it asks an estimator about.
        self.context.clusters.set_estimators(enabled);
    }

    async fn set_descheduler(&mut self, enabled: bool) {
        match (enabled, self.descheduler.take()) {
            (true, None) => {
                let tasks = self.context.tasks.child();
                let context = &self.context;
                let descheduler = DeschedulerContext {
                    control_plane: Arc::clone(&context.api),
                    informers: context.informers.child(&tasks),
                    members: context.members.clone(),
                    recorder: context.recorder.clone(),
                    clock: Arc::clone(&context.clock),
                    options: context.descheduler,
                    connections: self.connections(),
                };
                Descheduler::start(descheduler, &tasks);
                self.descheduler = Some(tasks);
            }
            (false, Some(running)) => running.stop().await,
            (_, unchanged) => self.descheduler = unchanged,
        }
    }

    /// The connections, started by the first call.
    fn connections(&mut self) -> Arc<EstimatorCache> {
        let context = &self.context;
        let running = self.connections.get_or_insert_with(|| {
            let tasks = context.tasks.child();
            let informers = context.informers.child(&tasks);
            let options = context.estimators.clone();
            let cache = EstimatorCache::start(&context.api, &informers, options, &tasks);
            RunningConnections { cache, tasks }
        });
        Arc::clone(&running.cache)
    }
}
