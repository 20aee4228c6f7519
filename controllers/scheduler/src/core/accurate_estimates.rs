//! Estimates of accurate estimators, gathered before a decision.
//!
//! Source of the rules: Karmada's `calAvailableReplicas` (`pkg/scheduler/core/util.go`).

use std::collections::HashMap;

use super::estimate_source::EstimateSource;

/// An estimator's answer about one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccurateEstimate {
    /// Available replicas or sets of components, and the source of the number.
    Available(i64, EstimateSource),
    /// The estimator does not know; other estimates count.
    Unknown,
    /// The estimator should have answered but failed: then no accurate estimate counts.
    Failed,
}

/// The estimates of one request, by cluster.
#[derive(Clone, Debug, Default)]
pub struct AccurateEstimates(HashMap<String, AccurateEstimate>);

impl AccurateEstimates {
    pub fn insert(&mut self, cluster: String, answer: AccurateEstimate) {
        self.0.insert(cluster, answer);
    }

    /// The clusters without an estimate.
    pub(crate) fn missing<'a>(&self, clusters: impl Iterator<Item = &'a str>) -> Vec<String> {
        let lacking = clusters.filter(|cluster| !self.0.contains_key(*cluster));
        lacking.map(str::to_owned).collect()
    }

    /// The clusters whose estimator failed. If there is one, no accurate estimate counts.
    pub(crate) fn failed_clusters<'a>(
        &self,
        clusters: impl Iterator<Item = &'a str>,
    ) -> impl Iterator<Item = &'a str> {
        clusters.filter(|cluster| self.0.get(*cluster) == Some(&AccurateEstimate::Failed))
    }

    pub(crate) fn available(&self, cluster: &str) -> Option<(i64, EstimateSource)> {
        match self.0.get(cluster)? {
            AccurateEstimate::Available(room, source) => Some((*room, *source)),
            AccurateEstimate::Unknown | AccurateEstimate::Failed => None,
        }
    }
}
