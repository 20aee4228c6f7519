//! The flags of the agent about its cluster, and about the certificate of the agent, as
//! karmada-agent has them.

use std::time::Duration;

use clap::Args;
use clusters::register::CertificateRotationOptions;
use clusters::{AgentClusterSpec, AgentLeaseOptions, ClusterControllersSettings, ReportedSecrets};
use machinery::duration;

#[derive(Args)]
#[command(next_help_heading = "Cluster flags")]
pub(crate) struct AgentClusterArgs {
    /// Name of the member cluster that the agent serves for.
    #[arg(long, value_name = "NAME")]
    pub(crate) cluster_name: String,
    /// APIEndpoint of the cluster, if the control plane can reach it.
    #[arg(long, value_name = "URL")]
    cluster_api_endpoint: Option<String>,
    /// Address of the proxy server that is used to proxy to the cluster.
    #[arg(long, value_name = "URL")]
    proxy_server_address: Option<String>,
    /// Provider of the joining cluster.
    #[arg(long, value_name = "NAME")]
    cluster_provider: Option<String>,
    /// The region of the joining cluster.
    #[arg(long, value_name = "NAME")]
    cluster_region: Option<String>,
    /// The zones of the joining cluster.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    cluster_zones: Vec<String>,
    /// Namespace in the control plane and in the cluster where secrets are stored.
    #[arg(long, value_name = "NAMESPACE", default_value = "karmada-cluster")]
    cluster_namespace: String,
    /// The secrets that are reported to the control plane during registering: KubeCredentials
    /// and KubeImpersonator, or None.
    #[arg(long, value_name = "SECRET,...", default_value_t = ReportedSecrets::ALL)]
    report_secrets: ReportedSecrets,
    /// Specifies how often the agent posts cluster status to the control plane.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse)]
    cluster_status_update_frequency: Duration,
    /// The duration of successes for the cluster to be considered healthy after recovery.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse)]
    cluster_success_threshold: Duration,
    /// The duration of failure for the cluster to be considered unhealthy.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse)]
    cluster_failure_threshold: Duration,
    /// Specifies the expiration period of a cluster lease.
    #[arg(long, value_name = "DURATION", default_value = "40s", value_parser = duration::parse)]
    cluster_lease_duration: Duration,
    /// Specifies the cluster lease renew interval fraction.
    #[arg(long, value_name = "FRACTION", default_value_t = 0.25)]
    cluster_lease_renew_interval_fraction: f64,
}

impl AgentClusterArgs {
    /// The Cluster that the agent registers.
    pub(crate) fn spec(&self) -> AgentClusterSpec {
        AgentClusterSpec {
            name: self.cluster_name.clone(),
            api_endpoint: self.cluster_api_endpoint.clone(),
            proxy_url: self.proxy_server_address.clone(),
            provider: self.cluster_provider.clone(),
            region: self.cluster_region.clone(),
            zones: self.cluster_zones.clone(),
            secret_namespace: self.cluster_namespace.clone(),
            secrets: self.report_secrets,
        }
    }

    pub(crate) fn settings(&self) -> ClusterControllersSettings {
        ClusterControllersSettings {
            status_update_period: self.cluster_status_update_frequency,
            success_threshold: self.cluster_success_threshold,
            failure_threshold: self.cluster_failure_threshold,
            ..ClusterControllersSettings::default()
        }
    }

    pub(crate) fn lease(&self) -> AgentLeaseOptions {
        let fraction = self.cluster_lease_renew_interval_fraction.clamp(0.01, 1.0);
        AgentLeaseOptions {
            duration: self.cluster_lease_duration,
            renew_interval: self.cluster_lease_duration.mul_f64(fraction),
        }
    }
}

#[derive(Args)]
#[command(next_help_heading = "Certificate rotation flags")]
pub(crate) struct CertificateRotationArgs {
    /// Renew the certificate of the agent when it is about to expire.
    #[arg(long)]
    enable_cert_rotation: bool,
    /// The interval of checking if the certificate needs to be rotated.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse)]
    cert_rotation_checking_interval: Duration,
    /// The remaining fraction of its lifetime below which the certificate is rotated.
    #[arg(long, value_name = "FRACTION", default_value_t = 0.2)]
    cert_rotation_remaining_time_threshold: f64,
}

impl CertificateRotationArgs {
    /// The rotation of the certificate of a cluster's agent; `None` if it is not enabled.
    pub(crate) fn options(
        &self,
        cluster: &str,
        agent_namespace: &str,
    ) -> Option<CertificateRotationOptions> {
        self.enable_cert_rotation
            .then(|| CertificateRotationOptions {
                cluster: cluster.to_owned(),
                agent_namespace: agent_namespace.to_owned(),
                checking_interval: self.cert_rotation_checking_interval,
                remaining_time_threshold: self.cert_rotation_remaining_time_threshold,
            })
    }
}
