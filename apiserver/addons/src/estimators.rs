//! The addons that call estimators: the accurate estimates of the scheduler, and the descheduler.
//! They share the connections to the estimators of clusters.

use std::sync::Arc;

use client::TaskGroup;
use estimator::{
    AccurateEstimator, Descheduler, DeschedulerOptions, DeschedulerSettings, EstimatorCache,
    EstimatorOptions,
};
use flotilla_runtime::ControllerContext;
use members::{MemberClusterManager, MemberTrackingOptions};
use scheduler::{CurrentEstimator, SchedulerClusterCache};

const DESCHEDULER: &str = "karmada-descheduler";

/// The members, clusters and settings of the estimators and the descheduler.
pub struct EstimatorAddonsOptions {
    pub context: ControllerContext,
    pub members: MemberClusterManager,
    /// The clusters of the scheduler.
    pub clusters: SchedulerClusterCache,
    pub estimators: EstimatorOptions,
    pub descheduler: DeschedulerSettings,
}

/// Connections, and the tasks that keep them.
struct RunningConnections {
    cache: Arc<EstimatorCache>,
    tasks: TaskGroup,
}

pub struct EstimatorAddons {
    options: EstimatorAddonsOptions,
    /// The estimator that the scheduler asks.
    scheduler_estimator: CurrentEstimator,
    connections: Option<RunningConnections>,
    descheduler: Option<TaskGroup>,
}

/// The facts about members that the estimates of the scheduler need.
pub fn member_tracking(
    scheduler_estimator: bool,
    options: &EstimatorOptions,
) -> MemberTrackingOptions {
    MemberTrackingOptions {
        individual_nodes: scheduler_estimator,
        quotas: scheduler_estimator && options.quotas,
    }
}

impl EstimatorAddons {
    pub fn new(options: EstimatorAddonsOptions) -> Self {
        Self {
            options,
            scheduler_estimator: CurrentEstimator::default(),
            connections: None,
            descheduler: None,
        }
    }

    /// The estimator for the scheduler.
    pub fn scheduler_estimator(&self) -> CurrentEstimator {
        self.scheduler_estimator.clone()
    }

    /// Starts and stops what differs.
    pub async fn apply(&mut self, scheduler_estimator: bool, descheduler: bool) {
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
        let tracking = member_tracking(enabled, &self.options.estimators);
        self.options.members.set_tracking(tracking);
        let estimator = enabled.then(|| {
            let connections = self.connections();
            AccurateEstimator::start(&connections, &self.options.members)
        });
        self.scheduler_estimator.set(estimator);
        // Decisions made elsewhere leave to the scheduler what it asks an estimator about.
        self.options.clusters.set_estimators(enabled);
    }

    async fn set_descheduler(&mut self, enabled: bool) {
        match (enabled, self.descheduler.take()) {
            (true, None) => {
                let child = self.options.context.child();
                let tasks = child.tasks.clone();
                let context = ControllerContext {
                    recorder: child.recorder.with_component(DESCHEDULER),
                    ..child
                };
                let descheduler = DeschedulerOptions {
                    connections: self.connections(),
                    members: self.options.members.clone(),
                    settings: self.options.descheduler,
                };
                Descheduler::start(&context, descheduler);
                self.descheduler = Some(tasks);
            }
            (false, Some(running)) => running.stop().await,
            (_, unchanged) => self.descheduler = unchanged,
        }
    }

    /// The connections, started by the first call.
    fn connections(&mut self) -> Arc<EstimatorCache> {
        let options = &self.options;
        let running = self.connections.get_or_insert_with(|| {
            let context = options.context.child();
            let cache = EstimatorCache::start(&context, options.estimators.clone());
            RunningConnections {
                cache,
                tasks: context.tasks,
            }
        });
        Arc::clone(&running.cache)
    }
}
