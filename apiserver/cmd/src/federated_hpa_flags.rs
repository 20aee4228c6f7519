//! Flags of karmada-controller-manager for FederatedHPAs.

use std::time::Duration;

use autoscale::FederatedHpaSettings;
use clap::Args;
use jiff::SignedDuration;
use machinery::duration;

/// A shorter period would only ask members for what they have not measured anew.
const MIN_SYNC_PERIOD: Duration = Duration::from_millis(100);

#[derive(Args, Clone)]
#[group(id = "federated-hpa")]
#[command(next_help_heading = "FederatedHPA flags")]
pub(crate) struct FederatedHpaArgs {
    /// The period for syncing the number of replicas of FederatedHPAs.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "15s",
        value_parser = duration::parse
    )]
    horizontal_pod_autoscaler_sync_period: Duration,
    /// How long a FederatedHPA looks backwards, not to remove replicas below any
    /// recommendation of that time.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "5m",
        value_parser = duration::parse
    )]
    horizontal_pod_autoscaler_downscale_stabilization: Duration,
    /// The least change (from 1.0) of the ratio of metrics and target for which a
    /// FederatedHPA scales.
    #[arg(long, value_name = "RATIO", default_value_t = 0.1)]
    horizontal_pod_autoscaler_tolerance: f64,
    /// The period after the start of a pod in which its CPU may be left out.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "5m",
        value_parser = duration::parse
    )]
    horizontal_pod_autoscaler_cpu_initialization_period: Duration,
    /// The period after the start of a pod in which changes of its readiness count as the
    /// first one.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "30s",
        value_parser = duration::parse
    )]
    horizontal_pod_autoscaler_initial_readiness_delay: Duration,
}

impl FederatedHpaArgs {
    pub(crate) fn settings(&self) -> anyhow::Result<FederatedHpaSettings> {
        let tolerance = self.horizontal_pod_autoscaler_tolerance;
        anyhow::ensure!(
            tolerance.is_finite() && tolerance >= 0.0,
            "--horizontal-pod-autoscaler-tolerance: {tolerance} is not a ratio of 0 or more"
        );
        let sync_period = self.horizontal_pod_autoscaler_sync_period;
        anyhow::ensure!(
            sync_period >= MIN_SYNC_PERIOD,
            "--horizontal-pod-autoscaler-sync-period: at least {} ms are needed",
            MIN_SYNC_PERIOD.as_millis()
        );
        let signed = SignedDuration::try_from;
        Ok(FederatedHpaSettings {
            sync_period,
            downscale_stabilization: signed(
                self.horizontal_pod_autoscaler_downscale_stabilization,
            )?,
            tolerance,
            cpu_initialization_period: signed(
                self.horizontal_pod_autoscaler_cpu_initialization_period,
            )?,
            initial_readiness_delay: signed(
                self.horizontal_pod_autoscaler_initial_readiness_delay,
            )?,
        })
    }
}
