//! Matches nodes against the `nodeClaim` of replica requirements.
//!
//! Pure. Source of the rules: `k8s.io/component-helpers/scheduling/corev1`
//! (`nodeaffinity`, `ToleratesTaint`), as used by Karmada's
//! `pkg/estimator/server/nodes/filter.go`: an invalid term matches nothing.

use std::collections::BTreeMap;

use karmada_api::cluster::Taint;
use karmada_api::placement::Toleration;
use machinery::selector::{LabelRequirement, SelectorOperator};
use members::NodeInfo;
use serde::Deserialize;
use serde_json::Value;

/// Taint that cordoned nodes are treated as having.
const UNSCHEDULABLE_TAINT_KEY: &str = "node.kubernetes.io/unschedulable";

/// `NodeClaim` of `work.karmada.io/v1alpha2`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NodeClaim {
    pub(crate) hard_node_affinity: Option<NodeSelector>,
    pub(crate) node_selector: Option<BTreeMap<String, String>>,
    pub(crate) tolerations: Option<Vec<Toleration>>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NodeSelector {
    pub(crate) node_selector_terms: Vec<NodeSelectorTerm>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NodeSelectorTerm {
    pub(crate) match_expressions: Option<Vec<NodeSelectorRequirement>>,
    pub(crate) match_fields: Option<Vec<NodeSelectorRequirement>>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct NodeSelectorRequirement {
    pub(crate) key: String,
    pub(crate) operator: String,
    pub(crate) values: Option<Vec<String>>,
}

impl NodeClaim {
    /// Decodes the `nodeClaim` of `replicaRequirements`. The error says why that fails.
    pub(crate) fn from_requirements(requirements: &Value) -> Result<Option<Self>, String> {
        let claim = requirements.get("nodeClaim").filter(|c| !c.is_null());
        let read = claim.map(Self::deserialize);
        read.transpose().map_err(|e| format!("nodeClaim: {e}"))
    }
}

/// A node claim, prepared for many nodes.
#[derive(Debug, Default)]
pub(crate) struct NodeClaimMatcher {
    labels: BTreeMap<String, String>,
    /// At least one must match; `None`: every node matches.
    terms: Option<Vec<NodeSelectorTermMatcher>>,
    tolerations: Vec<Toleration>,
}

/// A node selector term; all of it must match.
#[derive(Debug, Default)]
struct NodeSelectorTermMatcher {
    labels: Vec<LabelRequirement>,
    /// A node name, and whether the node must have it or must not.
    names: Vec<(String, bool)>,
}

impl NodeClaimMatcher {
    /// Prepares the node claim of `replicaRequirements`.
    pub(crate) fn from_requirements(requirements: Option<&Value>) -> Result<Self, String> {
        let Some(claim) = requirements
            .map(NodeClaim::from_requirements)
            .transpose()?
            .flatten()
        else {
            return Ok(Self::default());
        };
        let terms = claim.hard_node_affinity.map(|affinity| {
            let terms = affinity.node_selector_terms.iter();
            terms
                .filter_map(NodeSelectorTermMatcher::from_term)
                .collect()
        });
        Ok(Self {
            labels: claim.node_selector.unwrap_or_default(),
            terms,
            tolerations: claim.tolerations.unwrap_or_default(),
        })
    }

    pub(crate) fn matches(&self, node: &NodeInfo<'_>) -> bool {
        let tolerates = |taint: &Taint| self.tolerations.iter().any(|t| t.tolerates(taint));
        if node.is_unschedulable() && !tolerates(&unschedulable_taint()) {
            return false;
        }
        let mut keeping_off = node
            .taints()
            .iter()
            .filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"));
        if !keeping_off.all(tolerates) {
            return false;
        }
        let mut labels = self.labels.iter();
        labels.all(|(key, value)| node.label(key) == Some(value))
            && self
                .terms
                .as_ref()
                .is_none_or(|terms| terms.iter().any(|term| term.matches(node)))
    }
}

fn unschedulable_taint() -> Taint {
    Taint {
        key: UNSCHEDULABLE_TAINT_KEY.into(),
        effect: "NoSchedule".into(),
        ..Taint::default()
    }
}

impl NodeSelectorTermMatcher {
    /// `None`: the term is empty or invalid and matches nothing.
    fn from_term(term: &NodeSelectorTerm) -> Option<Self> {
        let mut ready = Self::default();
        for expression in term.match_expressions.iter().flatten() {
            let operator = match expression.operator.as_str() {
                "In" => SelectorOperator::In,
                "NotIn" => SelectorOperator::NotIn,
                "Exists" => SelectorOperator::Exists,
                "DoesNotExist" => SelectorOperator::DoesNotExist,
                "Gt" => SelectorOperator::GreaterThan,
                "Lt" => SelectorOperator::LessThan,
                _ => return None,
            };
            let values = expression.values.clone().unwrap_or_default();
            let requirement = LabelRequirement::new(&expression.key, operator, values);
            ready.labels.push(requirement.ok()?);
        }
        for expression in term.match_fields.iter().flatten() {
            let is_it = match expression.operator.as_str() {
                "In" => true,
                "NotIn" => false,
                _ => return None,
            };
            let [name] = expression.values.as_deref().unwrap_or_default() else {
                return None;
            };
            if expression.key != "metadata.name" {
                return None;
            }
            ready.names.push((name.clone(), is_it));
        }
        let is_empty = ready.labels.is_empty() && ready.names.is_empty();
        (!is_empty).then_some(ready)
    }

    fn matches(&self, node: &NodeInfo<'_>) -> bool {
        let mut labels = self.labels.iter();
        let mut names = self.names.iter();
        labels.all(|requirement| requirement.matches(node.label(&requirement.key)))
            && names.all(|(name, is_it)| (name == node.name) == *is_it)
    }
}
