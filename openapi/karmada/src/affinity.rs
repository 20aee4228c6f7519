//! Matches clusters against a ClusterAffinity (`ClusterMatches` of Karmada's
//! `pkg/util/selector.go`).

use machinery::LabelSelector;
use machinery::object::Label;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::well_known_keys::NOWHERE_LABEL;

/// `ClusterAffinity` of `policy.karmada.io/v1alpha1`. Serializes as in Go: fields in this
/// order, empty ones omitted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterAffinity {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<ApiLabelSelector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field_selector: Option<ClusterFieldSelector>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cluster_names: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
}

/// `metav1.LabelSelector` in its JSON form.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ApiLabelSelector {
    #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub match_labels: std::collections::BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<SelectorRequirement>,
}

impl ApiLabelSelector {
    /// Compiles the selector for matching.
    pub fn compile(&self) -> Result<LabelSelector, String> {
        let value: Value = serde_json::to_value(self).map_err(|e| e.to_string())?;
        LabelSelector::from_value(&value)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterFieldSelector {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<SelectorRequirement>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SelectorRequirement {
    pub key: String,
    pub operator: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// The fields of a cluster that an affinity matches.
#[derive(Clone, Copy, Debug)]
pub struct ClusterAttributes<'a> {
    pub name: &'a str,
    /// Sorted by key, as in [`machinery::ObjectMeta`].
    pub labels: &'a [Label],
    pub provider: &'a str,
    pub region: &'a str,
    pub zones: &'a [String],
}

/// An affinity with compiled selectors.
#[derive(Debug)]
pub struct ClusterAffinityMatcher<'a> {
    affinity: &'a ClusterAffinity,
    names: Vec<&'a str>,
    excluded: Vec<&'a str>,
    /// `Err`: an invalid selector, which matches nothing.
    labels: Result<LabelSelector, String>,
}

impl ClusterAffinity {
    /// The affinity that selects no cluster on purpose: it requires a label that no cluster has,
    /// so that Karmada reads it in the same way.
    pub fn nowhere() -> Self {
        let requirement = SelectorRequirement {
            key: NOWHERE_LABEL.to_owned(),
            operator: "Exists".to_owned(),
            values: Vec::new(),
        };
        Self {
            label_selector: Some(ApiLabelSelector {
                match_expressions: vec![requirement],
                ..ApiLabelSelector::default()
            }),
            ..Self::default()
        }
    }

    /// Whether the affinity selects no cluster on purpose.
    pub fn is_nowhere(&self) -> bool {
        let selector = self.label_selector.iter();
        let mut requirements = selector.flat_map(|selector| &selector.match_expressions);
        requirements.any(|r| r.key == NOWHERE_LABEL && r.operator == "Exists")
    }

    /// Restricts the affinity to some clusters.
    pub(crate) fn restrict(&mut self, names: &[String]) {
        if self.cluster_names.is_empty() {
            self.cluster_names = names.to_vec();
        } else {
            self.cluster_names.retain(|name| names.contains(name));
        }
        if self.cluster_names.is_empty() {
            // Without names, any cluster would match.
            *self = Self::nowhere();
        }
    }

    /// Compiles the selectors once.
    pub fn matcher(&self) -> ClusterAffinityMatcher<'_> {
        let labels = self.label_selector.as_ref().map_or_else(
            || Ok(LabelSelector::everything()),
            ApiLabelSelector::compile,
        );
        ClusterAffinityMatcher {
            affinity: self,
            names: sorted(&self.cluster_names),
            excluded: sorted(&self.exclude),
            labels,
        }
    }
}

impl ClusterAffinityMatcher<'_> {
    /// Whether the affinity selects a cluster.
    pub fn matches(&self, cluster: &ClusterAttributes<'_>) -> bool {
        let affinity = self.affinity;
        if affinity.is_nowhere() {
            return false;
        }
        let contains_name = |names: &[&str]| names.binary_search(&cluster.name).is_ok();
        if contains_name(&self.excluded) || !(self.names.is_empty() || contains_name(&self.names)) {
            return false;
        }
        let label = |key: &str| {
            let index = cluster
                .labels
                .binary_search_by(|(k, _)| (**k).cmp(key))
                .ok()?;
            Some(&*cluster.labels[index].1)
        };
        let by_label = self
            .labels
            .as_ref()
            .is_ok_and(|selector| selector.matches(label));
        let fields = affinity
            .field_selector
            .iter()
            .flat_map(|f| &f.match_expressions);
        by_label && fields.into_iter().all(|r| field_matches(r, cluster))
    }
}

fn sorted(names: &[String]) -> Vec<&str> {
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.sort_unstable();
    names
}

fn field_matches(requirement: &SelectorRequirement, cluster: &ClusterAttributes<'_>) -> bool {
    let values = &requirement.values;
    if requirement.key == "zone" {
        let is_in_any_zone = cluster.zones.iter().any(|zone| values.contains(zone));
        return match requirement.operator.as_str() {
            "In" => is_in_any_zone,
            "NotIn" => !is_in_any_zone,
            "Exists" => !cluster.zones.is_empty(),
            "DoesNotExist" => cluster.zones.is_empty(),
            _ => false,
        };
    }
    let value = match requirement.key.as_str() {
        "provider" => cluster.provider,
        "region" => cluster.region,
        _ => "",
    };
    let listed = !value.is_empty() && values.iter().any(|v| v == value);
    match requirement.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => !value.is_empty(),
        "DoesNotExist" => value.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(affinity: Value, expected: bool) {
        let labels = [("env".into(), "prod".into())];
        let zones = ["z1".to_owned(), "z2".to_owned()];
        let cluster = ClusterAttributes {
            name: "m1",
            labels: &labels,
            provider: "p",
            region: "",
            zones: &zones,
        };
        let parsed: ClusterAffinity = serde_json::from_value(affinity.clone()).unwrap();
        assert_eq!(parsed.matcher().matches(&cluster), expected, "{affinity}");
        assert_eq!(
            serde_json::to_value(&parsed).unwrap(),
            affinity,
            "parsing and serializing preserves the JSON"
        );
    }

    fn field(key: &str, operator: &str, values: &[&str]) -> Value {
        json!({"fieldSelector": {"matchExpressions": [{"key": key, "operator": operator, "values": values}]}})
    }

    // proves: SCH-affinity-fields, SCH-affinity-labels, SCH-affinity-exclude
    #[test]
    fn all_conditions_must_match() {
        check(json!({}), true);
        check(json!({"clusterNames": ["m1", "m2"]}), true);
        check(json!({"clusterNames": ["m2"]}), false);
        check(json!({"exclude": ["m1"]}), false);
        check(
            json!({"labelSelector": {"matchLabels": {"env": "prod"}}}),
            true,
        );
        check(
            json!({"labelSelector": {"matchLabels": {"env": "test"}}}),
            false,
        );
        check(
            json!({"labelSelector": {"matchExpressions": [{"key": "env", "operator": "Nonsense"}]}}),
            false,
        );
        check(json!({"labelSelector": {}}), true);
        check(field("zone", "In", &["z2"]), true);
        check(field("zone", "NotIn", &["z2"]), false);
        check(field("provider", "In", &["p"]), true);
        check(field("region", "In", &["r"]), false);
        check(field("region", "NotIn", &["r"]), true);
    }
}
