//! The messages of Karmada's estimator protocol, and the requests built from them.
//!
//! Package `github.com.karmada_io.karmada.pkg.estimator.pb`; quantities, node selectors
//! and tolerations are encoded core API messages in fields of bytes.

use std::collections::BTreeMap;

use karmada_api::binding::Component;
use karmada_api::placement::Toleration;
use machinery::Quantity;
use prost::Message;
use scheduler::core::AssumedWorkload;
use serde_json::Value;

use crate::node_claim::{NodeClaim, NodeSelector, NodeSelectorRequirement};

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MaxAvailableReplicasRequest {
    #[prost(string, tag = "1")]
    pub(crate) cluster: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) replica_requirements: Option<ReplicaRequirements>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) assumed_workloads: Vec<AssumedWorkloadMessage>,
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
    pub(crate) components: Vec<ComponentMessage>,
    #[prost(string, tag = "3")]
    pub(crate) namespace: String,
    #[prost(message, repeated, tag = "4")]
    pub(crate) assumed_workloads: Vec<AssumedWorkloadMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MaxAvailableComponentSetsResponse {
    #[prost(int32, tag = "1")]
    pub(crate) max_sets: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct UnschedulableReplicasRequest {
    #[prost(string, tag = "1")]
    pub(crate) cluster: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) resource: Option<ObjectReferenceMessage>,
    /// In nanoseconds.
    #[prost(int64, tag = "3")]
    pub(crate) unschedulable_threshold: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct UnschedulableReplicasResponse {
    #[prost(int32, tag = "1")]
    pub(crate) unschedulable_replicas: i32,
}

/// `ObjectReference`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ObjectReferenceMessage {
    #[prost(string, tag = "1")]
    pub(crate) api_version: String,
    #[prost(string, tag = "2")]
    pub(crate) kind: String,
    #[prost(string, tag = "3")]
    pub(crate) namespace: String,
    #[prost(string, tag = "4")]
    pub(crate) name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ReplicaRequirements {
    #[prost(message, optional, tag = "1")]
    pub(crate) node_claim: Option<NodeClaimMessage>,
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
    pub(crate) node_claim: Option<NodeClaimMessage>,
    #[prost(string, tag = "3")]
    pub(crate) priority_class_name: String,
    #[prost(btree_map = "string, bytes", tag = "4")]
    pub(crate) resource_request: BTreeMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct NodeClaimMessage {
    #[prost(btree_map = "string, string", tag = "2")]
    pub(crate) node_selector: BTreeMap<String, String>,
    #[prost(bytes = "vec", tag = "4")]
    pub(crate) node_affinity: Vec<u8>,
    #[prost(bytes = "vec", repeated, tag = "5")]
    pub(crate) tolerations: Vec<Vec<u8>>,
}

/// `Component`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ComponentMessage {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) replica_requirements: Option<ComponentReplicaRequirements>,
    #[prost(int32, tag = "3")]
    pub(crate) replicas: i32,
}

/// `AssumedWorkload`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AssumedWorkloadMessage {
    #[prost(string, tag = "1")]
    pub(crate) namespace: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) components: Vec<ComponentMessage>,
}

/// `k8s.io/apimachinery/pkg/api/resource.Quantity`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct QuantityMessage {
    #[prost(string, optional, tag = "1")]
    pub(crate) text: Option<String>,
}

/// `NodeSelector` of the core API.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct NodeSelectorMessage {
    #[prost(message, repeated, tag = "1")]
    pub(crate) terms: Vec<NodeSelectorTermMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct NodeSelectorTermMessage {
    #[prost(message, repeated, tag = "1")]
    pub(crate) expressions: Vec<NodeSelectorRequirementMessage>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) fields: Vec<NodeSelectorRequirementMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct NodeSelectorRequirementMessage {
    #[prost(string, optional, tag = "1")]
    pub(crate) key: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(crate) operator: Option<String>,
    #[prost(string, repeated, tag = "3")]
    pub(crate) values: Vec<String>,
}

/// `Toleration` of the core API.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TolerationMessage {
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
pub(crate) fn replicas_request(
    cluster: &str,
    requirements: Option<&Value>,
    assumed: &[impl AsRef<AssumedWorkload>],
) -> Result<MaxAvailableReplicasRequest, String> {
    let read = |requirements: &Value| {
        Ok::<_, String>(ReplicaRequirements {
            node_claim: encode_node_claim(requirements)?,
            namespace: string_field(requirements, "namespace"),
            priority_class_name: string_field(requirements, "priorityClassName"),
            resource_request: encode_resource_request(requirements)?,
        })
    };
    Ok(MaxAvailableReplicasRequest {
        cluster: cluster.to_owned(),
        replica_requirements: requirements.map(read).transpose()?,
        assumed_workloads: encode_workloads(assumed)?,
    })
}

/// Builds the request for sets of components.
pub(crate) fn component_sets_request(
    cluster: &str,
    namespace: &str,
    components: &[Component],
    assumed: &[impl AsRef<AssumedWorkload>],
) -> Result<MaxAvailableComponentSetsRequest, String> {
    Ok(MaxAvailableComponentSetsRequest {
        cluster: cluster.to_owned(),
        components: encode_components(components)?,
        namespace: namespace.to_owned(),
        assumed_workloads: encode_workloads(assumed)?,
    })
}

fn encode_workloads(
    assumed: &[impl AsRef<AssumedWorkload>],
) -> Result<Vec<AssumedWorkloadMessage>, String> {
    let workload = |workload: &AssumedWorkload| {
        Ok(AssumedWorkloadMessage {
            namespace: workload.namespace.clone(),
            components: encode_components(&workload.components)?,
        })
    };
    assumed.iter().map(|w| workload(w.as_ref())).collect()
}

fn encode_components(components: &[Component]) -> Result<Vec<ComponentMessage>, String> {
    components.iter().map(encode_component).collect()
}

fn encode_component(component: &Component) -> Result<ComponentMessage, String> {
    let read = |requirements: &Value| {
        Ok::<_, String>(ComponentReplicaRequirements {
            node_claim: encode_node_claim(requirements)?,
            priority_class_name: string_field(requirements, "priorityClassName"),
            resource_request: encode_resource_request(requirements)?,
        })
    };
    let replicas = i32::try_from(component.replicas);
    Ok(ComponentMessage {
        name: component.name.clone(),
        replica_requirements: component
            .replica_requirements
            .as_ref()
            .map(read)
            .transpose()?,
        replicas: replicas.map_err(|e| format!("component {:?}: {e}", component.name))?,
    })
}

fn string_field(requirements: &Value, field: &str) -> String {
    let value = requirements.get(field).and_then(Value::as_str);
    value.unwrap_or_default().to_owned()
}

fn encode_resource_request(requirements: &Value) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let request = requirements.get("resourceRequest");
    let amounts = request.and_then(Value::as_object).into_iter().flatten();
    let amounts = amounts.map(|(name, amount)| {
        let read = Quantity::from_value(amount);
        let amount = read.map_err(|e| format!("resourceRequest[{name}]: {e}"))?;
        let text = Some(amount.to_string());
        Ok((name.clone(), QuantityMessage { text }.encode_to_vec()))
    });
    amounts.collect()
}

fn encode_node_claim(requirements: &Value) -> Result<Option<NodeClaimMessage>, String> {
    let Some(claim) = NodeClaim::from_requirements(requirements)? else {
        return Ok(None);
    };
    let affinity = claim.hard_node_affinity.as_ref().map(node_selector_message);
    let tolerations = claim.tolerations.iter().flatten().map(toleration_message);
    Ok(Some(NodeClaimMessage {
        node_affinity: affinity.map(|s| s.encode_to_vec()).unwrap_or_default(),
        tolerations: tolerations.map(|t| t.encode_to_vec()).collect(),
        node_selector: claim.node_selector.unwrap_or_default(),
    }))
}

fn node_selector_message(affinity: &NodeSelector) -> NodeSelectorMessage {
    let requirements = |of: &Option<Vec<NodeSelectorRequirement>>| {
        let each = of
            .iter()
            .flatten()
            .map(|expression| NodeSelectorRequirementMessage {
                key: Some(expression.key.clone()),
                operator: Some(expression.operator.clone()),
                values: expression.values.clone().unwrap_or_default(),
            });
        each.collect()
    };
    let terms = affinity
        .node_selector_terms
        .iter()
        .map(|term| NodeSelectorTermMessage {
            expressions: requirements(&term.match_expressions),
            fields: requirements(&term.match_fields),
        });
    NodeSelectorMessage {
        terms: terms.collect(),
    }
}

fn toleration_message(toleration: &Toleration) -> TolerationMessage {
    TolerationMessage {
        key: Some(toleration.key.clone()),
        operator: Some(toleration.operator.clone()),
        value: Some(toleration.value.clone()),
        effect: Some(toleration.effect.clone()),
        seconds: toleration.toleration_seconds,
    }
}

#[cfg(test)]
mod tests;
