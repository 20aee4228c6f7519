//! The settings of the controller, which are flags of karmada-controller-manager.

use std::time::Duration;

use jiff::SignedDuration;

use super::pod_groups::PodStartPeriods;

/// The defaults are Karmada's.
#[derive(Clone, Copy, Debug)]
pub struct FederatedHpaSettings {
    /// Time between two calculations of an object.
    pub sync_period: Duration,
    /// For how long a recommendation keeps replicas from being removed.
    pub downscale_stabilization: SignedDuration,
    /// Ratios of usage and target this near to 1 change nothing.
    pub tolerance: f64,
    /// After a pod's start its CPU counts only while it is ready.
    pub cpu_initialization_period: SignedDuration,
    /// A pod that became unready within this time after its start was never ready.
    pub initial_readiness_delay: SignedDuration,
}

impl FederatedHpaSettings {
    pub(super) fn periods(&self) -> PodStartPeriods {
        PodStartPeriods {
            cpu_initialization: self.cpu_initialization_period,
            initial_readiness_delay: self.initial_readiness_delay,
        }
    }
}

impl Default for FederatedHpaSettings {
    fn default() -> Self {
        Self {
            sync_period: Duration::from_secs(15),
            downscale_stabilization: SignedDuration::from_mins(5),
            tolerance: 0.1,
            cpu_initialization_period: SignedDuration::from_mins(5),
            initial_readiness_delay: SignedDuration::from_secs(30),
        }
    }
}
