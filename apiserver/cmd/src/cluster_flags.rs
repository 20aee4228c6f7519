//! Flags of karmada-controller-manager and karmada-webhook for the monitoring of clusters
//! and for failover.

use std::time::Duration;

use clap::{Args, ValueEnum};
use clusters::{ClusterControllersSettings, FailoverOptions, NoExecuteTaintEvictionPurgeMode};
use machinery::duration;

#[derive(Args, Clone)]
#[group(id = "fleet")]
#[command(next_help_heading = "Cluster and failover flags")]
pub(crate) struct ClusterControllersArgs {
    /// Specifies how often the status of a cluster is updated.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_positive_duration)]
    cluster_status_update_frequency: Duration,
    /// The duration of successes for the cluster to be considered healthy after recovery.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse)]
    cluster_success_threshold: Duration,
    /// The duration of failure for the cluster to be considered unhealthy.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse)]
    cluster_failure_threshold: Duration,
    /// The period for syncing cluster status in the cluster controller.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_positive_duration)]
    cluster_monitor_period: Duration,
    /// The grace period for a running cluster to be unresponsive before marking it
    /// unhealthy.
    #[arg(long, value_name = "DURATION", default_value = "40s", value_parser = parse_positive_duration)]
    cluster_monitor_grace_period: Duration,
    /// The grace period for a starting cluster to be unresponsive before marking it
    /// unhealthy.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_positive_duration)]
    cluster_startup_grace_period: Duration,
    /// Enable the taint manager; it needs the feature gate Failover.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set,
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    enable_taint_manager: bool,
    /// Enable the eviction of workloads that do not tolerate a taint with the effect
    /// NoExecute.
    #[arg(long, value_name = "BOOL", default_value_t = false, action = clap::ArgAction::Set,
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    enable_no_execute_taint_eviction: bool,
    /// The purge mode of workloads that taints evict, where their policy sets none.
    #[arg(long, value_enum, value_name = "MODE", default_value_t = NoExecuteTaintEvictionPurgeModeArg::Gracefully)]
    no_execute_taint_eviction_purge_mode: NoExecuteTaintEvictionPurgeModeArg,
    /// The number of bindings that are evicted per second; with 0, one in half an hour.
    #[arg(long, value_name = "RATE", default_value = "0.5", value_parser = parse_rate)]
    resource_eviction_rate: f64,
    /// The timeout after which the graceful-eviction-controller removes a workload from a
    /// cluster, even if its replacement is not healthy.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration::parse)]
    graceful_eviction_timeout: Duration,
    /// Allow the effect NoExecute in ClusterTaintPolicies.
    #[arg(long, value_name = "BOOL", default_value_t = false, action = clap::ArgAction::Set,
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) allow_no_execute_taint_policy: bool,
    /// Register clusters in pull mode as Karmada does. WARNING: whoever has a bootstrap token may then
    /// obtain the certificate of the agent of every cluster, and that of a user who reads the Secrets
    /// and changes the Works of all clusters. Without the flag a token is worth one new cluster.
    #[arg(long, value_name = "BOOL", default_value_t = false, action = clap::ArgAction::Set,
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) insecure_agent_registration: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum NoExecuteTaintEvictionPurgeModeArg {
    #[value(name = "Directly")]
    Directly,
    #[value(name = "Gracefully")]
    Gracefully,
}

impl ClusterControllersArgs {
    pub(crate) fn options(&self) -> ClusterControllersSettings {
        ClusterControllersSettings {
            status_update_period: self.cluster_status_update_frequency,
            success_threshold: self.cluster_success_threshold,
            failure_threshold: self.cluster_failure_threshold,
            monitor_period: self.cluster_monitor_period,
            monitor_grace_period: self.cluster_monitor_grace_period,
            startup_grace_period: self.cluster_startup_grace_period,
            failover: FailoverOptions {
                taint_manager: self.enable_taint_manager,
                no_execute_taint_eviction: self.enable_no_execute_taint_eviction,
                purge_mode: match self.no_execute_taint_eviction_purge_mode {
                    NoExecuteTaintEvictionPurgeModeArg::Directly => {
                        NoExecuteTaintEvictionPurgeMode::Directly
                    }
                    NoExecuteTaintEvictionPurgeModeArg::Gracefully => {
                        NoExecuteTaintEvictionPurgeMode::Gracefully
                    }
                },
                resource_eviction_rate: self.resource_eviction_rate,
                graceful_eviction_timeout: self.graceful_eviction_timeout,
            },
            ..ClusterControllersSettings::default()
        }
    }
}

fn parse_positive_duration(text: &str) -> Result<Duration, String> {
    match duration::parse(text)? {
        Duration::ZERO => Err("must be greater than 0".into()),
        duration => Ok(duration),
    }
}

fn parse_rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate >= 0.0 && rate.is_finite() => Ok(rate),
        _ => Err("must be a number greater than or equal to 0".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct ClusterControllersTestCli {
        #[command(flatten)]
        flags: ClusterControllersArgs,
    }

    fn parse(arguments: &[&str]) -> Result<ClusterControllersSettings, String> {
        let arguments = ["flotilla"].iter().chain(arguments);
        let cli =
            ClusterControllersTestCli::try_parse_from(arguments).map_err(|e| e.to_string())?;
        Ok(cli.flags.options())
    }

    #[test]
    fn defaults_are_karmadas() {
        let options = parse(&[]).unwrap();
        assert_eq!(
            format!("{options:?}"),
            format!("{:?}", ClusterControllersSettings::default())
        );
    }

    #[test]
    fn flags_are_parsed_as_in_go_and_validated() {
        let options = parse(&[
            "--enable-no-execute-taint-eviction",
            "--enable-taint-manager=false",
            "--no-execute-taint-eviction-purge-mode=Directly",
            "--resource-eviction-rate=100",
        ])
        .unwrap();
        let failover = options.failover;
        assert!(failover.no_execute_taint_eviction && !failover.taint_manager);
        assert_eq!(
            (failover.purge_mode, failover.resource_eviction_rate),
            (NoExecuteTaintEvictionPurgeMode::Directly, 100.0)
        );
        for bad in [
            "--resource-eviction-rate=-1",
            "--resource-eviction-rate=NaN",
            "--cluster-monitor-period=0s",
            "--no-execute-taint-eviction-purge-mode=Never",
        ] {
            assert!(parse(&[bad]).is_err(), "{bad}");
        }
    }
}
