//! Brings objects of Go types into the form that Kubernetes stores: quantities are canonical
//! strings (`0.5` is `500m`), times are UTC, base64 is that of Go's encoder, and fields that Go
//! omits when they are empty are removed (`hostNetwork: false`, `env: []`).
//!
//! Values that cannot be parsed are left for validation. Depth is bounded.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use machinery::quantity::Quantity;
use machinery::time;
use serde_json::Value;

use crate::model::{SchemaDefinition, SchemaDefinitionArena, SchemaType};
use crate::schema::{MAX_DEPTH, canonical_base64};

pub(super) fn canonicalize(
    definitions: &SchemaDefinitionArena,
    ty: &SchemaType,
    value: &mut Value,
    depth: usize,
) {
    if depth > MAX_DEPTH {
        return;
    }
    match (ty, value) {
        (SchemaType::Ref(id), Value::Object(fields)) => {
            let definition = definitions.get(*id);
            for (name, child) in fields.iter_mut() {
                if let Some(field) = definition.field(name) {
                    canonicalize(definitions, &field.node.ty, child, depth + 1);
                }
            }
            fields.retain(|name, child| {
                let field = definition.field(name);
                field.is_none_or(|f| {
                    f.node.is_encoded(f.required, child) || is_always_encoded(definition, name)
                })
            });
        }
        (SchemaType::Map(of), Value::Object(fields)) => {
            for child in fields.values_mut() {
                canonicalize(definitions, &of.ty, child, depth + 1);
            }
        }
        (SchemaType::Array(of), Value::Array(items)) => {
            for child in items {
                canonicalize(definitions, &of.ty, child, depth + 1);
            }
        }
        (
            SchemaType::Quantity | SchemaType::Time | SchemaType::MicroTime | SchemaType::Bytes,
            value,
        ) => {
            if let Some(text) = canonical_scalar(ty, value)
                && value.as_str() != Some(text.as_str())
            {
                *value = text.into();
            }
        }
        _ => {}
    }
}

/// Whether Go always encodes this optional field.
fn is_always_encoded(definition: &SchemaDefinition, field: &str) -> bool {
    let type_name = &*definition.name;
    // The bounds in a JSON schema are pointers; the texts of its rules are not.
    type_name.contains(".apiextensions.") && !type_name.ends_with(".ValidationRule")
        || matches!(
            (type_name, field),
            (
                "io.k8s.api.core.v1.Event",
                "reportingComponent" | "reportingInstance"
            ) | ("io.k8s.api.apps.v1.StatefulSetStatus", "availableReplicas")
                | (
                    "io.k8s.api.rbac.v1.Role" | "io.k8s.api.rbac.v1.ClusterRole",
                    "rules"
                )
                | ("io.k8s.api.discovery.v1.EndpointSlice", "ports")
                | ("io.k8s.api.scheduling.v1.PriorityClass", "value")
                | (
                    "io.k8s.api.policy.v1.PodDisruptionBudgetStatus",
                    "disruptionsAllowed" | "currentHealthy" | "desiredHealthy" | "expectedPods"
                )
        )
}

fn canonical_scalar(ty: &SchemaType, value: &Value) -> Option<String> {
    match (ty, value) {
        (SchemaType::Quantity, Value::String(text)) => {
            // The text of a capped amount says more than the amount.
            let quantity = Quantity::parse(text.trim())
                .ok()
                .filter(|q| !q.is_capped())?;
            Some(quantity.to_string())
        }
        (SchemaType::Quantity, Value::Number(number)) => {
            let text = number.to_string();
            let quantity = Quantity::parse(&text).ok()?;
            Some(if quantity.is_capped() {
                text
            } else {
                quantity.to_string()
            })
        }
        (SchemaType::Time, Value::String(text)) => {
            time::parse(text).ok().map(time::rfc3339_seconds)
        }
        (SchemaType::MicroTime, Value::String(text)) => {
            time::parse(text).ok().map(time::rfc3339_micros)
        }
        (SchemaType::Bytes, Value::String(text)) => canonical_base64(text),
        (SchemaType::Bytes, Value::Array(items)) => {
            let bytes = items.iter().map(|item| u8::try_from(item.as_u64()?).ok());
            Some(BASE64_STANDARD.encode(bytes.collect::<Option<Vec<u8>>>()?))
        }
        _ => None,
    }
}
