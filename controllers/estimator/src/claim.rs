//! Which nodes a pod may go to.
//!
//! Enters: the `nodeClaim` of requirements. Leaves: a [`Claim`], which a node meets or
//! does not. Pure. Source of the rules: `k8s.io/component-helpers/scheduling/corev1`
//! (`nodeaffinity`, `ToleratesTaint`), as Karmada's `pkg/estimator/server/nodes/filter.go`
//! uses them: what is wrong in a term makes that term match nothing.

use std::collections::BTreeMap;

use machinery::selector::{Operator, Requirement};
use members::Node;
use openapi::karmada::cluster::Taint;
use openapi::karmada::placement::Toleration;
use serde::Deserialize;
use serde_json::Value;

/// What cordoned nodes are taken to have.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

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
    pub(crate) node_selector_terms: Vec<Term>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Term {
    pub(crate) match_expressions: Option<Vec<Expression>>,
    pub(crate) match_fields: Option<Vec<Expression>>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Expression {
    pub(crate) key: String,
    pub(crate) operator: String,
    pub(crate) values: Option<Vec<String>>,
}

impl NodeClaim {
    /// Of `replicaRequirements`; one that cannot be read says why.
    pub(crate) fn of(requirements: &Value) -> Result<Option<Self>, String> {
        let claim = requirements.get("nodeClaim").filter(|c| !c.is_null());
        let read = claim.map(Self::deserialize);
        read.transpose().map_err(|e| format!("nodeClaim: {e}"))
    }
}

/// A claim made ready for many nodes.
#[derive(Debug, Default)]
pub(crate) struct Claim {
    labels: BTreeMap<String, String>,
    /// One of them has to match; `None`: every node does.
    terms: Option<Vec<ReadyTerm>>,
    tolerations: Vec<Toleration>,
}

/// All of these have to hold.
#[derive(Debug, Default)]
struct ReadyTerm {
    labels: Vec<Requirement>,
    /// Name of the node, and whether it has to be that.
    names: Vec<(String, bool)>,
}

impl Claim {
    /// Of `replicaRequirements`.
    pub(crate) fn of(requirements: Option<&Value>) -> Result<Self, String> {
        let Some(claim) = requirements.map(NodeClaim::of).transpose()?.flatten() else {
            return Ok(Self::default());
        };
        let terms = claim.hard_node_affinity.map(|affinity| {
            let terms = affinity.node_selector_terms.iter();
            terms.filter_map(ReadyTerm::of).collect()
        });
        Ok(Self {
            labels: claim.node_selector.unwrap_or_default(),
            terms,
            tolerations: claim.tolerations.unwrap_or_default(),
        })
    }

    pub(crate) fn is_met_by(&self, node: &Node<'_>) -> bool {
        let tolerates = |taint: &Taint| self.tolerations.iter().any(|t| t.tolerates(taint));
        if node.is_unschedulable() && !tolerates(&cordon()) {
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

fn cordon() -> Taint {
    Taint {
        key: UNSCHEDULABLE.into(),
        effect: "NoSchedule".into(),
        ..Taint::default()
    }
}

impl ReadyTerm {
    /// `None`: it matches nothing, being empty or wrong.
    fn of(term: &Term) -> Option<Self> {
        let mut ready = Self::default();
        for expression in term.match_expressions.iter().flatten() {
            let operator = match expression.operator.as_str() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                "Gt" => Operator::GreaterThan,
                "Lt" => Operator::LessThan,
                _ => return None,
            };
            let values = expression.values.clone().unwrap_or_default();
            let requirement = Requirement::new(&expression.key, operator, values);
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

    fn matches(&self, node: &Node<'_>) -> bool {
        let mut labels = self.labels.iter();
        let mut names = self.names.iter();
        labels.all(|requirement| requirement.holds(node.label(&requirement.key)))
            && names.all(|(name, is_it)| (name == node.name) == *is_it)
    }
}
