//! Starts and stops the families of controllers as their addons are configured, in the leader, and
//! reports what it has done.
//!
//! Each family has tasks of its own, and informers beside those that it shares with all
//! controllers. What a stopped family has made stays.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use autoscale::AutoscalerOptions;
use client::TaskGroup;
use flotilla_runtime::ControllerContext;
use karmada_api::addons::{Addon, AddonConfiguration};
use machinery::FailureLogLimiter;
use services::ServiceControllersOptions;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::estimators::EstimatorAddons;
use super::status_report::{AddonState, addon_statuses, write_report};
use super::switches::{AddonSwitches, ConfiguredAddons};

/// How long a family may take to start before that is reported.
const START_GRACE: Duration = Duration::from_secs(10);
/// The pauses between attempts to write the report.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const MAX_RETRY: Duration = Duration::from_secs(60);

/// The addons that the flags of the server enable.
#[derive(Clone, Copy, Debug)]
pub struct AddonDefaults {
    pub descheduler: bool,
    pub scheduler_estimator: bool,
    pub metrics_adapter: bool,
}

impl AddonDefaults {
    /// The state of an addon under a configuration.
    pub fn is_enabled(self, configuration: &AddonConfiguration, addon: Addon) -> bool {
        configuration.state(addon).unwrap_or(match addon {
            Addon::Autoscalers
            | Addon::ClusterInventory
            | Addon::MultiClusterServices
            | Addon::Search => true,
            Addon::Descheduler => self.descheduler,
            Addon::MetricsAdapter => self.metrics_adapter,
            Addon::SchedulerEstimator => self.scheduler_estimator,
        })
    }
}

/// The switches and families of the controller, beside the context of all controllers.
pub struct AddonControllerOptions {
    pub switches: AddonSwitches,
    pub defaults: AddonDefaults,
    pub families: LeaderAddons,
}

impl AddonControllerOptions {
    fn cluster_profile_namespace(&self) -> &str {
        let configured = self.families.cluster_profile_namespace.as_deref();
        configured.unwrap_or(&self.switches.namespace)
    }
}

/// The addons whose controllers run in the leader.
pub struct LeaderAddons {
    pub autoscalers: AutoscalerOptions,
    pub services: ServiceControllersOptions,
    /// The namespace of ClusterProfiles; by default that of the ConfigMap.
    pub cluster_profile_namespace: Option<String>,
    pub estimators: EstimatorAddons,
}

/// A family of controllers that was started.
struct RunningFamily {
    tasks: TaskGroup,
    has_started: Arc<AtomicBool>,
    /// When it should have started.
    due: Instant,
}

impl RunningFamily {
    fn state(&self) -> AddonState {
        match self.has_started.load(Ordering::Acquire) {
            true => AddonState::Enabled,
            false => AddonState::NotStarted,
        }
    }
}

pub struct AddonController {
    context: ControllerContext,
    options: AddonControllerOptions,
    autoscalers: Option<RunningFamily>,
    services: Option<RunningFamily>,
    cluster_inventory: Option<RunningFamily>,
    /// Notified when a family has started.
    started: Arc<Notify>,
    failures: FailureLogLimiter,
}

impl AddonController {
    /// Starts the controller; it stops with the tasks of its context.
    pub fn start(context: &ControllerContext, options: AddonControllerOptions) {
        let mut controller = Self {
            context: context.clone(),
            options,
            autoscalers: None,
            services: None,
            cluster_inventory: None,
            started: Arc::default(),
            failures: FailureLogLimiter::new(),
        };
        let shutdown = context.tasks.shutdown().clone();
        context.tasks.spawn(async move {
            shutdown.run_until_triggered(controller.run()).await;
            controller.stop().await;
        });
    }

    /// Stops all families.
    async fn stop(&mut self) {
        let running = [
            self.services.take(),
            self.autoscalers.take(),
            self.cluster_inventory.take(),
        ];
        for family in running.into_iter().flatten() {
            family.tasks.stop().await;
        }
        self.options.families.estimators.apply(false, false).await;
    }

    async fn run(&mut self) {
        let mut configured = self.options.switches.subscribe();
        let mut retry = FIRST_RETRY;
        loop {
            let now = configured.borrow_and_update().clone().unwrap_or_default();
            self.apply(&now.configuration).await;
            let again = match self.due() {
                Some(due) => Some(due),
                None => match self.report(&now).await {
                    true => {
                        retry = FIRST_RETRY;
                        None
                    }
                    false => {
                        let pause = retry;
                        retry = (retry * 2).min(MAX_RETRY);
                        Some(Instant::now() + pause)
                    }
                },
            };
            let started = Arc::clone(&self.started);
            tokio::select! {
                changed = configured.changed() => if changed.is_err() {
                    return;
                },
                () = started.notified() => {}
                () = tokio::time::sleep_until(again.unwrap_or_else(Instant::now)), if again.is_some() => {}
            }
        }
    }

    /// Starts and stops what differs from the configuration.
    async fn apply(&mut self, configuration: &AddonConfiguration) {
        let defaults = self.options.defaults;
        let enabled = |addon| defaults.is_enabled(configuration, addon);
        let (services, autoscalers) = (
            enabled(Addon::MultiClusterServices),
            enabled(Addon::Autoscalers),
        );
        let (estimator, descheduler) = (
            enabled(Addon::SchedulerEstimator),
            enabled(Addon::Descheduler),
        );
        self.options
            .families
            .estimators
            .apply(estimator, descheduler)
            .await;
        let running = self.services.take();
        self.services = self
            .switch_family(services, running, |context| {
                let options = self.options.families.services.clone();
                async move { services::start(&context, &options).await }
            })
            .await;
        let running = self.autoscalers.take();
        self.autoscalers = self
            .switch_family(autoscalers, running, |context| {
                let options = self.options.families.autoscalers.clone();
                async move { autoscale::start(&context, &options).await }
            })
            .await;
        let running = self.cluster_inventory.take();
        let inventory = enabled(Addon::ClusterInventory);
        self.cluster_inventory = self
            .switch_family(inventory, running, |context| {
                let namespace = self.options.cluster_profile_namespace().to_owned();
                async move { cluster_inventory::start(&context, &namespace).await }
            })
            .await;
    }

    /// Starts or stops a family where that differs from `enabled`. Returns the running family.
    async fn switch_family<F>(
        &self,
        enabled: bool,
        running: Option<RunningFamily>,
        start: impl FnOnce(ControllerContext) -> F,
    ) -> Option<RunningFamily>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        match (enabled, running) {
            (true, None) => Some(self.start_family(start)),
            (false, Some(running)) => {
                running.tasks.stop().await;
                None
            }
            (_, unchanged) => unchanged,
        }
    }

    /// Starts a family in tasks of its own, without waiting for it.
    fn start_family<F>(&self, start: impl FnOnce(ControllerContext) -> F) -> RunningFamily
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let context = self.context.child();
        let tasks = context.tasks.clone();
        let starting = start(context);
        let has_started = Arc::<AtomicBool>::default();
        let (done, started) = (Arc::clone(&has_started), Arc::clone(&self.started));
        let shutdown = tasks.shutdown().clone();
        tasks.spawn(async move {
            if shutdown.run_until_triggered(starting).await.is_some() {
                done.store(true, Ordering::Release);
                started.notify_one();
            }
        });
        RunningFamily {
            tasks,
            has_started,
            due: Instant::now() + START_GRACE,
        }
    }

    /// When families that are starting should have started, if that is still to come.
    fn due(&self) -> Option<Instant> {
        let families = [&self.autoscalers, &self.services, &self.cluster_inventory];
        let starting = families.into_iter().flatten();
        let starting = starting.filter(|family| family.state() == AddonState::NotStarted);
        starting
            .map(|family| family.due)
            .filter(|due| *due > Instant::now())
            .min()
    }

    /// Writes what was done, where it is not written yet. Returns whether that has succeeded.
    async fn report(&self, now: &ConfiguredAddons) -> bool {
        let options = &self.options;
        let statuses = addon_statuses(&now.configuration, |addon| {
            let family = match addon {
                Addon::Autoscalers => self.autoscalers.as_ref(),
                Addon::MultiClusterServices => self.services.as_ref(),
                Addon::ClusterInventory => self.cluster_inventory.as_ref(),
                _ => None,
            };
            let enabled = options.defaults.is_enabled(&now.configuration, addon);
            match (family, enabled) {
                (Some(running), _) => running.state(),
                (None, true) => AddonState::Enabled,
                (None, false) => AddonState::Disabled,
            }
        });
        let namespace = &options.switches.namespace;
        match write_report(&*self.context.control_plane, namespace, now, &statuses).await {
            Ok(()) => {
                self.failures.record_success("report");
                true
            }
            Err(error) => {
                if self.failures.record_failure("report", &error.to_string()) {
                    tracing::warn!(%error, "the states of the addons cannot be reported");
                }
                false
            }
        }
    }
}
