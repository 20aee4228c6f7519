//! The options of failover.

use std::time::Duration;

use karmada_api::failover::{PURGE_MODE_DIRECTLY, PURGE_MODE_GRACEFULLY};

/// How a workload with untolerated taints is evicted if its policy does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NoExecuteTaintEvictionPurgeMode {
    Directly,
    #[default]
    Gracefully,
}

impl NoExecuteTaintEvictionPurgeMode {
    pub(super) fn as_str(self) -> &'static str {
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
    pub purge_mode: NoExecuteTaintEvictionPurgeMode,
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
            purge_mode: NoExecuteTaintEvictionPurgeMode::Gracefully,
            resource_eviction_rate: 0.5,
            graceful_eviction_timeout: Duration::from_secs(600),
        }
    }
}
