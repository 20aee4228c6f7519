//! The messages of Karmada's estimator protocol, and the requests built from them.
//!
//! Package `github.com.karmada_io.karmada.pkg.estimator.pb`; quantities, node selectors
//! and tolerations are encoded core API messages in fields of bytes.

use std::collections::BTreeMap;

use machinery::Quantity;
use openapi::karmada::binding::Component;
use openapi::karmada::placement::Toleration;
use prost::Message;
use scheduler::core::AssumedWorkload;
use serde_json::Value;

use crate::claim::{Expression, NodeClaim, NodeSelector};

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MaxAvailableReplicasRequest {
    #[prost(string, tag = "1")]
    pub(crate) cluster: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) replica_requirements: Option<ReplicaRequirements>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) assumed_workloads: Vec<Assumed>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MaxAvailableReplicasResponse {
    #[prost(int32, tag = "1")]
    pub(crate) max_replicas: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MaxAvailableComponentSetsRequest {
    #[prost(string, tag = "1")]
    pub(crate) cluster: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) components: Vec<Part>,
    #[prost(string, tag = "3")]
    pub(crate) namespace: String,
    #[prost(message, repeated, tag = "4")]
    pub(crate) assumed_workloads: Vec<Assumed>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MaxAvailableComponentSetsResponse {
    #[prost(int32, tag = "1")]
    pub(crate) max_sets: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ReplicaRequirements {
    #[prost(message, optional, tag = "1")]
    pub(crate) node_claim: Option<Claim>,
    #[prost(string, tag = "3")]
    pub(crate) namespace: String,
    #[prost(string, tag = "4")]
    pub(crate) priority_class_name: String,
    #[prost(btree_map = "string, bytes", tag = "5")]
    pub(crate) resource_request: BTreeMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ComponentReplicaRequirements {
    #[prost(message, optional, tag = "1")]
    pub(crate) node_claim: Option<Claim>,
    #[prost(string, tag = "3")]
    pub(crate) priority_class_name: String,
    #[prost(btree_map = "string, bytes", tag = "4")]
    pub(crate) resource_request: BTreeMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Claim {
    #[prost(btree_map = "string, string", tag = "2")]
    pub(crate) node_selector: BTreeMap<String, String>,
    #[prost(bytes = "vec", tag = "4")]
    pub(crate) node_affinity: Vec<u8>,
    #[prost(bytes = "vec", repeated, tag = "5")]
    pub(crate) tolerations: Vec<Vec<u8>>,
}

/// `Component`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Part {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) replica_requirements: Option<ComponentReplicaRequirements>,
    #[prost(int32, tag = "3")]
    pub(crate) replicas: i32,
}

/// `AssumedWorkload`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Assumed {
    #[prost(string, tag = "1")]
    pub(crate) namespace: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) components: Vec<Part>,
}

/// `k8s.io/apimachinery/pkg/api/resource.Quantity`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Amount {
    #[prost(string, optional, tag = "1")]
    pub(crate) text: Option<String>,
}

/// `NodeSelector` of the core API.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Selector {
    #[prost(message, repeated, tag = "1")]
    pub(crate) terms: Vec<SelectorTerm>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SelectorTerm {
    #[prost(message, repeated, tag = "1")]
    pub(crate) expressions: Vec<SelectorRequirement>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) fields: Vec<SelectorRequirement>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SelectorRequirement {
    #[prost(string, optional, tag = "1")]
    pub(crate) key: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(crate) operator: Option<String>,
    #[prost(string, repeated, tag = "3")]
    pub(crate) values: Vec<String>,
}

/// `Toleration` of the core API.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Tolerance {
    #[prost(string, optional, tag = "1")]
    pub(crate) key: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(crate) operator: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub(crate) value: Option<String>,
    #[prost(string, optional, tag = "4")]
    pub(crate) effect: Option<String>,
    #[prost(int64, optional, tag = "5")]
    pub(crate) seconds: Option<i64>,
}

/// Builds the request for replicas; fails on requirements that cannot be encoded.
pub(crate) fn replicas(
    cluster: &str,
    requirements: Option<&Value>,
    assumed: &[impl AsRef<AssumedWorkload>],
) -> Result<MaxAvailableReplicasRequest, String> {
    let read = |requirements: &Value| {
        Ok::<_, String>(ReplicaRequirements {
            node_claim: claim(requirements)?,
            namespace: text(requirements, "namespace"),
            priority_class_name: text(requirements, "priorityClassName"),
            resource_request: request(requirements)?,
        })
    };
    Ok(MaxAvailableReplicasRequest {
        cluster: cluster.to_owned(),
        replica_requirements: requirements.map(read).transpose()?,
        assumed_workloads: workloads(assumed)?,
    })
}

/// Builds the request for sets of components.
pub(crate) fn sets(
    cluster: &str,
    namespace: &str,
    components: &[Component],
    assumed: &[impl AsRef<AssumedWorkload>],
) -> Result<MaxAvailableComponentSetsRequest, String> {
    Ok(MaxAvailableComponentSetsRequest {
        cluster: cluster.to_owned(),
        components: parts(components)?,
        namespace: namespace.to_owned(),
        assumed_workloads: workloads(assumed)?,
    })
}

fn workloads(assumed: &[impl AsRef<AssumedWorkload>]) -> Result<Vec<Assumed>, String> {
    let workload = |workload: &AssumedWorkload| {
        Ok(Assumed {
            namespace: workload.namespace.clone(),
            components: parts(&workload.components)?,
        })
    };
    assumed.iter().map(|w| workload(w.as_ref())).collect()
}

fn parts(components: &[Component]) -> Result<Vec<Part>, String> {
    components.iter().map(part).collect()
}

fn part(component: &Component) -> Result<Part, String> {
    let read = |requirements: &Value| {
        Ok::<_, String>(ComponentReplicaRequirements {
            node_claim: claim(requirements)?,
            priority_class_name: text(requirements, "priorityClassName"),
            resource_request: request(requirements)?,
        })
    };
    let replicas = i32::try_from(component.replicas);
    Ok(Part {
        name: component.name.clone(),
        replica_requirements: component
            .replica_requirements
            .as_ref()
            .map(read)
            .transpose()?,
        replicas: replicas.map_err(|e| format!("component {:?}: {e}", component.name))?,
    })
}

fn text(requirements: &Value, field: &str) -> String {
    let value = requirements.get(field).and_then(Value::as_str);
    value.unwrap_or_default().to_owned()
}

fn request(requirements: &Value) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let request = requirements.get("resourceRequest");
    let amounts = request.and_then(Value::as_object).into_iter().flatten();
    let amounts = amounts.map(|(name, amount)| {
        let read = Quantity::from_value(amount);
        let amount = read.map_err(|e| format!("resourceRequest[{name}]: {e}"))?;
        let text = Some(amount.to_string());
        Ok((name.clone(), Amount { text }.encode_to_vec()))
    });
    amounts.collect()
}

fn claim(requirements: &Value) -> Result<Option<Claim>, String> {
    let Some(claim) = NodeClaim::of(requirements)? else {
        return Ok(None);
    };
    let affinity = claim.hard_node_affinity.as_ref().map(selector);
    let tolerations = claim.tolerations.iter().flatten().map(tolerance);
    Ok(Some(Claim {
        node_affinity: affinity.map(|s| s.encode_to_vec()).unwrap_or_default(),
        tolerations: tolerations.map(|t| t.encode_to_vec()).collect(),
        node_selector: claim.node_selector.unwrap_or_default(),
    }))
}

fn selector(affinity: &NodeSelector) -> Selector {
    let requirements = |of: &Option<Vec<Expression>>| {
        let each = of.iter().flatten().map(|expression| SelectorRequirement {
            key: Some(expression.key.clone()),
            operator: Some(expression.operator.clone()),
            values: expression.values.clone().unwrap_or_default(),
        });
        each.collect()
    };
    let terms = affinity
        .node_selector_terms
        .iter()
        .map(|term| SelectorTerm {
            expressions: requirements(&term.match_expressions),
            fields: requirements(&term.match_fields),
        });
    Selector {
        terms: terms.collect(),
    }
}

fn tolerance(toleration: &Toleration) -> Tolerance {
    Tolerance {
        key: Some(toleration.key.clone()),
        operator: Some(toleration.operator.clone()),
        value: Some(toleration.value.clone()),
        effect: Some(toleration.effect.clone()),
        seconds: toleration.toleration_seconds,
    }
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
