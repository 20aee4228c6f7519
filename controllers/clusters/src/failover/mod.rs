//! Failover: moves workloads when they or their clusters fail.
//!
//! Evictions are started by [`no_execute`] (NoExecute taints that are not tolerated),
//! [`application`] (workloads that stay unhealthy) and [`auto_failover`] (clusters that
//! stay not Ready; not in Karmada). Each removes the cluster from a binding's targets and
//! adds an eviction task; the scheduler then selects other clusters. [`graceful`] ends
//! the tasks of the first two, and with them the old workload; the third ends its own.

mod application;
mod automatic;
mod figures;
mod graceful;
mod noexecute;
mod state;

use std::time::Duration;

use openapi::karmada::Gate;
use openapi::karmada::failover::{DIRECTLY, GRACEFULLY};

use crate::bindings::Bindings;
use crate::start::Deps;

/// How a workload with untolerated taints is evicted if its policy does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PurgeMode {
    Directly,
    #[default]
    Gracefully,
}

impl PurgeMode {
    fn name(self) -> &'static str {
        match self {
            Self::Directly => DIRECTLY,
            Self::Gracefully => GRACEFULLY,
        }
    }
}

/// The options of failover. The defaults are those of `karmada-controller-manager`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// `--enable-taint-manager`
    pub taint_manager: bool,
    /// `--enable-no-execute-taint-eviction`
    pub no_execute_eviction: bool,
    /// `--no-execute-taint-eviction-purge-mode`
    pub purge_mode: PurgeMode,
    /// `--resource-eviction-rate`: evictions per second; 0 means one per half hour.
    pub eviction_rate: f64,
    /// `--graceful-eviction-timeout`
    pub graceful_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            taint_manager: true,
            no_execute_eviction: false,
            purge_mode: PurgeMode::Gracefully,
            eviction_rate: 0.5,
            graceful_timeout: Duration::from_secs(600),
        }
    }
}

pub(crate) fn start(deps: &Deps, bindings: &Bindings) {
    let (gates, options) = (deps.options.gates, &deps.options.failover);
    if gates.is_on(Gate::Failover) && options.taint_manager && options.no_execute_eviction {
        noexecute::Manager::start(deps, bindings);
    }
    if gates.is_on(Gate::GracefulEviction) {
        graceful::Controller::start(deps, bindings);
    }
    application::Controller::start(deps, bindings);
    automatic::Controller::start(deps, bindings);
}
