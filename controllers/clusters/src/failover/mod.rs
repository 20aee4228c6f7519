//! What becomes of copies when they, or their clusters, fail.
//!
//! Evictions begin in [`noexecute`] (taints that nobody tolerates), [`application`]
//! (copies that stay unhealthy) and [`automatic`] (clusters that stay not Ready; not
//! Karmada's); each takes the cluster out of a binding's targets and leaves a task,
//! for which the scheduler finds another place. [`graceful`] ends the tasks of the
//! first two, and with them the old copy; the third ends its own.

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

/// What becomes of a copy whose taints nobody tolerates, where its policy does not say.
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

/// Defaults are those of `karmada-controller-manager`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// `--enable-taint-manager`
    pub taint_manager: bool,
    /// `--enable-no-execute-taint-eviction`
    pub no_execute_eviction: bool,
    /// `--no-execute-taint-eviction-purge-mode`
    pub purge_mode: PurgeMode,
    /// `--resource-eviction-rate`: per second; 0 is one in half an hour.
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
