//! Brings objects of Go types into the form that Kubernetes stores: quantities are canonical
//! strings (`0.5` is `500m`), times are UTC, base64 has no line breaks, and fields that Go
//! omits when they are empty are removed (`hostNetwork: false`, `env: []`).
//!
//! Values that cannot be parsed are left for validation. Depth is bounded.

use machinery::quantity::Quantity;
use machinery::time;
use serde_json::Value;

use crate::model::{SchemaDefinition, SchemaDefinitionArena, SchemaType};
use crate::schema::MAX_DEPTH;

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
    let of = &*definition.name;
    // The bounds in a JSON schema are pointers; the texts of its rules are not.
    of.contains(".apiextensions.") && !of.ends_with(".ValidationRule")
        || matches!(
            (of, field),
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
        (SchemaType::Quantity, Value::String(text)) => Quantity::parse(text)
            .ok()
            .map(|quantity| quantity.to_string()),
        (SchemaType::Quantity, Value::Number(number)) => Quantity::parse(&number.to_string())
            .ok()
            .map(|quantity| quantity.to_string()),
        (SchemaType::Time, Value::String(text)) => {
            time::parse(text).ok().map(time::rfc3339_seconds)
        }
        (SchemaType::MicroTime, Value::String(text)) => {
            time::parse(text).ok().map(time::rfc3339_micros)
        }
        (SchemaType::Bytes, Value::String(text)) => Some(text.split(['\r', '\n']).collect()),
        _ => None,
    }
}
