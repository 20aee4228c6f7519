//! The clusters that placements of KubeFed select, and their intersections, as a ClusterAffinity.

use std::collections::BTreeSet;

use anyhow::{Context, ensure};
use karmada_api::ClusterAffinity;
use serde_json::{Map, Value, json};

use super::fields;

const SELECTOR: &str = "spec.placement.clusterSelector";

/// Clusters by name and label. All conditions have to hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ClusterSet {
    /// `None`: any name.
    names: Option<BTreeSet<String>>,
    match_labels: Map<String, Value>,
    match_expressions: Vec<Value>,
}

impl ClusterSet {
    pub(super) fn all() -> Self {
        Self::default()
    }

    pub(super) fn nowhere() -> Self {
        Self::of_names([])
    }

    pub(super) fn of_names(names: impl IntoIterator<Item = String>) -> Self {
        Self {
            names: Some(names.into_iter().collect()),
            ..Self::default()
        }
    }

    /// The clusters of `spec.placement`. A list of clusters, even an empty one, is stronger than
    /// a selector; without both nothing is selected.
    pub(super) fn of_placement(placement: &Value) -> anyhow::Result<Self> {
        let clusters = fields::list(&placement["clusters"], "spec.placement.clusters")?;
        let Some(clusters) = clusters else {
            return Self::of_selector(placement);
        };
        let names: anyhow::Result<Vec<String>> = clusters
            .iter()
            .enumerate()
            .map(|(index, cluster)| {
                let name = cluster["name"].as_str();
                let name = name.map(str::to_owned);
                name.with_context(|| format!("spec.placement.clusters[{index}].name: must be set"))
            })
            .collect();
        Ok(Self::of_names(names?))
    }

    /// The clusters of `spec.placement.clusterSelector` alone.
    pub(super) fn of_selector(placement: &Value) -> anyhow::Result<Self> {
        fields::object(placement, "spec.placement")?;
        let selector = &placement["clusterSelector"];
        if fields::object(selector, SELECTOR)?.is_none() {
            return Ok(Self::nowhere());
        }
        let labels = &selector["matchLabels"];
        let labels = fields::text_map(labels, &format!("{SELECTOR}.matchLabels"))?;
        let field = format!("{SELECTOR}.matchExpressions");
        let expressions = fields::list(&selector["matchExpressions"], &field)?;
        let expressions = expressions.unwrap_or_default();
        for (index, expression) in expressions.iter().enumerate() {
            for key in ["key", "operator"] {
                ensure!(
                    expression[key].is_string(),
                    "{field}[{index}].{key}: must be set"
                );
            }
            fields::text_list(&expression["values"], &format!("{field}[{index}].values"))?;
        }
        Ok(Self {
            match_labels: labels.cloned().unwrap_or_default(),
            match_expressions: expressions.to_vec(),
            ..Self::default()
        })
    }

    pub(super) fn intersect(mut self, other: &Self) -> Self {
        self.names = match (self.names, &other.names) {
            (Some(names), Some(others)) => Some(names.intersection(others).cloned().collect()),
            (names, others) => names.or_else(|| others.clone()),
        };
        for (key, value) in &other.match_labels {
            match self.match_labels.get(key) {
                None => _ = self.match_labels.insert(key.clone(), value.clone()),
                Some(present) if present == value => {}
                // One map holds one value of a key.
                Some(_) => self.match_expressions.push(json!({
                    "key": key, "operator": "In", "values": [value],
                })),
            }
        }
        for expression in &other.match_expressions {
            if !self.match_expressions.contains(expression) {
                self.match_expressions.push(expression.clone());
            }
        }
        self
    }

    /// Whether no cluster can be in the set.
    pub(super) fn is_nowhere(&self) -> bool {
        let names = self.names.as_ref();
        names.is_some_and(BTreeSet::is_empty)
    }

    /// Whether every cluster is in the set.
    pub(super) fn is_all(&self) -> bool {
        *self == Self::all()
    }

    /// The ClusterAffinity of the set.
    pub(super) fn affinity(&self) -> Value {
        if self.is_nowhere() {
            return json!(ClusterAffinity::nowhere());
        }
        let mut affinity = json!({});
        if let Some(names) = &self.names {
            affinity["clusterNames"] = json!(names);
        }
        if !self.match_labels.is_empty() {
            affinity["labelSelector"]["matchLabels"] = json!(self.match_labels);
        }
        if !self.match_expressions.is_empty() {
            affinity["labelSelector"]["matchExpressions"] = json!(self.match_expressions);
        }
        affinity
    }
}
