//! Failover: moves workloads when they or their clusters fail.
//!
//! Evictions are started by [`no_execute`] (NoExecute taints that are not tolerated),
//! [`application`] (workloads that stay unhealthy) and [`auto_failover`] (clusters that
//! stay not Ready; not in Karmada). Each removes the cluster from a binding's targets and
//! adds an eviction task; the scheduler then selects other clusters. [`graceful`] ends
//! the tasks of the first two, and with them the old workload; the third ends its own.

mod application;
mod auto_failover;
mod graceful;
mod metrics;
mod no_execute;
mod state_preservation;

use std::time::Duration;

use openapi::karmada::KarmadaFeature;
use openapi::karmada::failover::{PURGE_MODE_DIRECTLY, PURGE_MODE_GRACEFULLY};

use crate::bindings::BindingStore;
use crate::start::ClustersContext;

/// How a workload with untolerated taints is evicted if its policy does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PurgeMode {
    Directly,
    #[default]
    Gracefully,
}

impl PurgeMode {
    fn as_str(self) -> &'static str {
        match self {
            Self::Directly => PURGE_MODE_DIRECTLY,
            Self::Gracefully => PURGE_MODE_GRACEFULLY,
        }
    }
}

/// The options of failover. The defaults are those of `karmada-controller-manager`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FailoverOptions {
    /// `--enable-taint-manager`
    pub taint_manager: bool,
    /// `--enable-no-execute-taint-eviction`
    pub no_execute_taint_eviction: bool,
    /// `--no-execute-taint-eviction-purge-mode`
    pub purge_mode: PurgeMode,
    /// `--resource-eviction-rate`: evictions per second; 0 means one per half hour.
    pub resource_eviction_rate: f64,
    /// `--graceful-eviction-timeout`
    pub graceful_eviction_timeout: Duration,
}

impl Default for FailoverOptions {
    fn default() -> Self {
        Self {
            taint_manager: true,
            no_execute_taint_eviction: false,
            purge_mode: PurgeMode::Gracefully,
            resource_eviction_rate: 0.5,
            graceful_eviction_timeout: Duration::from_secs(600),
        }
    }
}

pub(crate) fn start(deps: &ClustersContext, bindings: &BindingStore) {
    let (gates, options) = (deps.options.gates, &deps.options.failover);
    if gates.enabled(KarmadaFeature::Failover)
        && options.taint_manager
        && options.no_execute_taint_eviction
    {
        no_execute::NoExecuteTaintManager::start(deps, bindings);
    }
    if gates.enabled(KarmadaFeature::GracefulEviction) {
        graceful::GracefulEvictionController::start(deps, bindings);
    }
    application::ApplicationFailoverController::start(deps, bindings);
    auto_failover::AutoFailoverController::start(deps, bindings);
}
