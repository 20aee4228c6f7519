//! Options for discovering and calling estimators; the defaults are those of Karmada's scheduler.

use std::time::Duration;

use crate::tls::EstimatorTlsClientConfig;

#[derive(Clone, Debug)]
pub struct EstimatorOptions {
    /// Timeout of a call.
    pub timeout: Duration,
    /// Namespace of the estimators' Services.
    pub namespace: String,
    /// A Service is named by this prefix, a dash and the cluster's name.
    pub prefix: String,
    /// The port of those Services.
    pub port: u16,
    /// TLS files; without them connections are not encrypted.
    pub tls: Option<EstimatorTlsClientConfig>,
    /// Estimators of clusters in pull mode are not called.
    pub skip_pull_clusters: bool,
    /// Local estimates respect the ResourceQuotas of clusters.
    pub quotas: bool,
}

impl Default for EstimatorOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(3),
            namespace: "karmada-system".into(),
            prefix: "karmada-scheduler-estimator".into(),
            port: 10352,
            tls: None,
            skip_pull_clusters: false,
            quotas: false,
        }
    }
}

impl EstimatorOptions {
    /// The name of the Service of a cluster's estimator.
    pub(crate) fn service_name(&self, cluster: &str) -> String {
        format!("{}-{cluster}", self.prefix)
    }

    /// The cluster whose estimator would have a Service of this name.
    pub(crate) fn cluster_of_service<'a>(&self, service: &'a str) -> Option<&'a str> {
        service.strip_prefix(&self.prefix)?.strip_prefix('-')
    }
}
