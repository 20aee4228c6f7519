//! Decodes requests of schedulers into the requirements of bindings, from which local
//! estimates are made.
//!
//! Pure; the reverse of [`crate::protobuf`]. The error names the field.

use std::collections::BTreeMap;

use karmada_api::binding::Component;
use prost::Message;
use scheduler::core::AssumedWorkload;
use serde_json::{Map, Value, json};

use crate::protobuf::{
    AssumedWorkloadMessage, ComponentMessage, NodeClaimMessage, NodeSelectorMessage,
    NodeSelectorRequirementMessage, QuantityMessage, ReplicaRequirements, TolerationMessage,
};

/// The `replicaRequirements` of a binding.
pub(crate) fn decode_replica_requirements(message: &ReplicaRequirements) -> Result<Value, String> {
    let mut requirements = decode_requirements(
        message.node_claim.as_ref(),
        &message.priority_class_name,
        &message.resource_request,
    )?;
    requirements["namespace"] = message.namespace.as_str().into();
    Ok(requirements)
}

pub(crate) fn decode_components(messages: &[ComponentMessage]) -> Result<Vec<Component>, String> {
    let decode = |message: &ComponentMessage| {
        let requirements = message.replica_requirements.as_ref().map(|requirements| {
            decode_requirements(
                requirements.node_claim.as_ref(),
                &requirements.priority_class_name,
                &requirements.resource_request,
            )
        });
        let requirements = requirements.transpose();
        Ok(Component {
            name: message.name.clone(),
            replicas: message.replicas.into(),
            replica_requirements: requirements
                .map_err(|e| format!("component {:?}: {e}", message.name))?,
        })
    };
    messages.iter().map(decode).collect()
}

pub(crate) fn decode_workloads(
    messages: &[AssumedWorkloadMessage],
) -> Result<Vec<AssumedWorkload>, String> {
    let decode = |message: &AssumedWorkloadMessage| {
        Ok(AssumedWorkload {
            namespace: message.namespace.clone(),
            components: decode_components(&message.components)?,
        })
    };
    messages.iter().map(decode).collect()
}

fn decode_requirements(
    claim: Option<&NodeClaimMessage>,
    priority_class_name: &str,
    resource_request: &BTreeMap<String, Vec<u8>>,
) -> Result<Value, String> {
    let mut amounts = Map::new();
    for (name, bytes) in resource_request {
        let amount = QuantityMessage::decode(bytes.as_slice());
        let amount = amount.map_err(|e| format!("resourceRequest[{name}]: {e}"))?;
        let text = amount.text.unwrap_or_else(|| "0".into());
        amounts.insert(name.clone(), text.into());
    }
    let mut requirements = json!({"resourceRequest": amounts});
    if !priority_class_name.is_empty() {
        requirements["priorityClassName"] = priority_class_name.into();
    }
    if let Some(claim) = claim {
        requirements["nodeClaim"] = decode_node_claim(claim)?;
    }
    Ok(requirements)
}

fn decode_node_claim(message: &NodeClaimMessage) -> Result<Value, String> {
    let mut tolerations = Vec::with_capacity(message.tolerations.len());
    for bytes in &message.tolerations {
        let toleration = TolerationMessage::decode(bytes.as_slice());
        let toleration = toleration.map_err(|e| format!("nodeClaim.tolerations: {e}"))?;
        tolerations.push(json!({
            "key": toleration.key.unwrap_or_default(),
            "operator": toleration.operator.unwrap_or_default(),
            "value": toleration.value.unwrap_or_default(),
            "effect": toleration.effect.unwrap_or_default(),
            "tolerationSeconds": toleration.seconds,
        }));
    }
    let mut claim = json!({"nodeSelector": message.node_selector, "tolerations": tolerations});
    if !message.node_affinity.is_empty() {
        let affinity = NodeSelectorMessage::decode(message.node_affinity.as_slice());
        let affinity = affinity.map_err(|e| format!("nodeClaim.hardNodeAffinity: {e}"))?;
        let terms: Vec<Value> = affinity
            .terms
            .into_iter()
            .map(|term| {
                json!({
                    "matchExpressions": node_selector_requirements(term.expressions),
                    "matchFields": node_selector_requirements(term.fields),
                })
            })
            .collect();
        claim["hardNodeAffinity"] = json!({"nodeSelectorTerms": terms});
    }
    Ok(claim)
}

fn node_selector_requirements(messages: Vec<NodeSelectorRequirementMessage>) -> Vec<Value> {
    let decode = |message: NodeSelectorRequirementMessage| {
        json!({
            "key": message.key.unwrap_or_default(),
            "operator": message.operator.unwrap_or_default(),
            "values": message.values,
        })
    };
    messages.into_iter().map(decode).collect()
}
