//! How estimators are found and asked; the defaults are those of Karmada's scheduler.

use std::time::Duration;

use crate::tls::Files;

#[derive(Clone, Debug)]
pub struct Options {
    /// How long an answer may take.
    pub timeout: Duration,
    /// Where the Services of estimators are.
    pub namespace: String,
    /// Their names are this, a dash and the cluster's.
    pub prefix: String,
    /// The port of those Services.
    pub port: u16,
    /// Without them connections are not encrypted.
    pub tls: Option<Files>,
    /// Estimators of clusters in pull mode are not asked.
    pub not_in_pull_mode: bool,
    /// ResourceQuotas of clusters count, where they are counted here.
    pub quotas: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(3),
            namespace: "karmada-system".into(),
            prefix: "karmada-scheduler-estimator".into(),
            port: 10352,
            tls: None,
            not_in_pull_mode: false,
            quotas: false,
        }
    }
}

impl Options {
    /// The Service of a cluster's estimator.
    pub(crate) fn service(&self, cluster: &str) -> String {
        format!("{}-{cluster}", self.prefix)
    }

    /// The cluster that a Service would be of.
    pub(crate) fn cluster<'a>(&self, service: &'a str) -> Option<&'a str> {
        service.strip_prefix(&self.prefix)?.strip_prefix('-')
    }
}
