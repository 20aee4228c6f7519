//! What accurate estimators say of clusters: gathered before a decision, which only
//! looks at it.
//!
//! Enters: answers, by cluster. Leaves: the room that they leave, and the clusters that
//! were not asked about yet. Source of the rules: Karmada's `calAvailableReplicas`
//! (`pkg/scheduler/core/util.go`).

use std::collections::HashMap;

use super::estimate::Source;

/// What an estimator says of one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Replicas, or sets of components, that it has room for, and how that is known.
    Room(i64, Source),
    /// It is not known; other estimates count.
    Unknown,
    /// There should have been an answer: with one missing, none counts.
    Failed,
}

/// The answers to one question.
#[derive(Clone, Debug, Default)]
pub struct Answers(HashMap<String, Answer>);

impl Answers {
    pub fn put(&mut self, cluster: String, answer: Answer) {
        self.0.insert(cluster, answer);
    }

    /// Those that there is no answer about.
    pub(crate) fn lacking<'a>(&self, clusters: impl Iterator<Item = &'a str>) -> Vec<String> {
        let lacking = clusters.filter(|cluster| !self.0.contains_key(*cluster));
        lacking.map(str::to_owned).collect()
    }

    /// Those whose estimator failed: with one, none of the answers counts.
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
