//! Starts the controllers of this crate and declares their options.

use std::sync::Arc;
use std::time::Duration;

use client::Api;
use interpreter::Interpreter;
use machinery::time::Clock;
use members::Members;
use openapi::karmada::{FeatureGates, Gate};
use flotilla_runtime::{Informers, Recorder, Tasks};

use crate::bindings::Bindings;
use crate::{cluster, failover, status, taints};

/// The dependencies of the controllers.
pub struct Deps {
    /// The API of the control plane.
    pub control: Arc<dyn Api>,
    pub members: Members,
    pub recorder: Recorder,
    pub interpreter: Interpreter,
    pub clock: Arc<dyn Clock>,
    /// The informers on the control plane.
    pub informers: Informers,
    /// The controllers' tasks; stopping them stops the controllers.
    pub tasks: Tasks,
    pub options: Options,
}

/// The options of the controllers. The defaults are those of
/// `karmada-controller-manager`.
#[derive(Clone, Debug)]
pub struct Options {
    /// `--cluster-status-update-frequency`
    pub status_period: Duration,
    /// `--cluster-success-threshold`
    pub success_threshold: Duration,
    /// `--cluster-failure-threshold`
    pub failure_threshold: Duration,
    /// `--cluster-monitor-period`
    pub monitor_period: Duration,
    /// `--cluster-monitor-grace-period`
    pub grace: Duration,
    /// `--cluster-startup-grace-period`
    pub startup_grace: Duration,
    /// `--concurrent-cluster-syncs`: the number of workers of the cluster controller.
    pub workers: usize,
    /// `--enable-cluster-resource-modeling`: whether nodes and pods are aggregated.
    pub resource_modeling: bool,
    /// The feature gates.
    pub gates: FeatureGates,
    pub failover: failover::Options,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            status_period: Duration::from_secs(10),
            success_threshold: Duration::from_secs(30),
            failure_threshold: Duration::from_secs(30),
            monitor_period: Duration::from_secs(5),
            grace: Duration::from_secs(40),
            startup_grace: Duration::from_secs(60),
            workers: 5,
            resource_modeling: true,
            gates: FeatureGates::default(),
            failover: failover::Options::default(),
        }
    }
}

/// Starts the controllers; they stop with the given tasks.
pub fn start(deps: Deps) {
    let bindings = Bindings::new(&deps);
    cluster::start(&deps, &bindings);
    status::start(&deps);
    failover::start(&deps, &bindings);
    if deps.options.gates.is_on(Gate::Failover) {
        taints::Controller::start(&deps);
    }
}
