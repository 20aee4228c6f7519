//! Estimates of accurate estimators, gathered before a decision.
//!
//! Source of the rules: Karmada's `calAvailableReplicas` (`pkg/scheduler/core/util.go`).

use std::collections::HashMap;

use super::estimate::Source;

/// An estimator's answer about one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Available replicas or sets of components, and the source of the number.
    Room(i64, Source),
    /// The estimator does not know; other estimates count.
    Unknown,
    /// The estimator should have answered but failed: then no accurate estimate counts.
    Failed,
}

/// The estimates of one request, by cluster.
#[derive(Clone, Debug, Default)]
pub struct Answers(HashMap<String, Answer>);

impl Answers {
    pub fn put(&mut self, cluster: String, answer: Answer) {
        self.0.insert(cluster, answer);
    }

    /// The clusters without an estimate.
    pub(crate) fn lacking<'a>(&self, clusters: impl Iterator<Item = &'a str>) -> Vec<String> {
        let lacking = clusters.filter(|cluster| !self.0.contains_key(*cluster));
        lacking.map(str::to_owned).collect()
    }

    /// The clusters whose estimator failed. If there is one, no accurate estimate counts.
    pub(crate) fn failed<'a>(
        &self,
        clusters: impl Iterator<Item = &'a str>,
    ) -> impl Iterator<Item = &'a str> {
        clusters.filter(|cluster| self.0.get(*cluster) == Some(&Answer::Failed))
    }

    pub(crate) fn room(&self, cluster: &str) -> Option<(i64, Source)> {
        match self.0.get(cluster)? {
            Answer::Room(room, source) => Some((*room, *source)),
            Answer::Unknown | Answer::Failed => None,
        }
    }
}
