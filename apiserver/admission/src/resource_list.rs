//! Validates resource lists: names and quantities, as in quotas and containers. Does no
//! I/O. Rules and texts of `pkg/apis/core/validation`.

use machinery::names::validate_qualified_name;
use machinery::{FieldError, Quantity};
use serde_json::Value;

use crate::unstructured::entries;

const CONTAINER_RESOURCES: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
const OBJECT_COUNT_RESOURCES: [&str; 9] = [
    "pods",
    "services",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

/// The field that a resource list belongs to, which decides the allowed names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResourceListKind {
    Container,
    Quota,
    LimitRange,
}

/// Checks a qualified name; without a prefix it must be a resource that Kubernetes
/// allows in this field.
pub(crate) fn validate_resource_name(kind: ResourceListKind, name: &str) -> Result<(), String> {
    validate_qualified_name(name)?;
    if name.contains('/') {
        return Ok(());
    }
    let base = name
        .strip_prefix("requests.")
        .or_else(|| name.strip_prefix("limits."));
    let (known, what) = match kind {
        ResourceListKind::Container => (
            CONTAINER_RESOURCES.contains(&name) || name.starts_with("hugepages-"),
            "must be a standard resource for containers",
        ),
        ResourceListKind::Quota => (
            CONTAINER_RESOURCES.contains(&base.unwrap_or(name))
                || base.unwrap_or(name).starts_with("hugepages-")
                || name == "requests.storage"
                || OBJECT_COUNT_RESOURCES.contains(&name),
            "must be a standard resource for quota",
        ),
        ResourceListKind::LimitRange => (
            CONTAINER_RESOURCES.contains(&name) || matches!(name, "pods" | "storage"),
            "must be a standard resource type or fully qualified",
        ),
    };
    if known { Ok(()) } else { Err(what.into()) }
}

/// Whether quantities of a resource must be integers.
fn is_integer_resource(name: &str) -> bool {
    OBJECT_COUNT_RESOURCES.contains(&name) || name.starts_with("count/")
}

/// Validates a map of resource names to quantities at `field`.
pub(crate) fn validate_resource_list(
    kind: ResourceListKind,
    field: &str,
    resources: &Value,
    errors: &mut Vec<FieldError>,
) {
    for (key, value) in entries(resources, "") {
        let at = format!("{field}[{key}]");
        if let Err(why) = validate_resource_name(kind, key) {
            errors.push(FieldError::invalid(&at, &key.into(), why));
        }
        match Quantity::from_value(value) {
            Err(why) => errors.push(FieldError::invalid(&at, value, why.to_string())),
            Ok(amount) if amount.is_negative() => errors.push(FieldError::invalid(
                &at,
                value,
                "must be greater than or equal to 0",
            )),
            Ok(amount) if is_integer_resource(key) && !amount.is_integer() => {
                errors.push(FieldError::invalid(&at, value, "must be an integer"));
            }
            Ok(_) => {}
        }
    }
}

/// The quantity under a key; zero when absent or malformed.
pub(crate) fn resource_quantity(resources: &Value, key: &str) -> Quantity {
    let value = resources.get(key);
    value
        .and_then(|v| Quantity::from_value(v).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn resource_lists_are_validated() {
        let table = [
            (
                ResourceListKind::Container,
                json!({"cpu": "100m", "memory": 5, "a.b/gpu": "1", "hugepages-2Mi": "2Mi"}),
                0,
            ),
            (ResourceListKind::Container, json!({"gpu": "1"}), 1),
            (ResourceListKind::Container, json!({"cpu": "x"}), 1),
            (ResourceListKind::Container, json!({"cpu": "-1"}), 1),
            (
                ResourceListKind::Quota,
                json!({"pods": "10", "requests.cpu": "1", "requests.storage": "1Gi", "count/a.b": "3"}),
                0,
            ),
            (ResourceListKind::Quota, json!({"pods": "1500m"}), 1),
            (ResourceListKind::Quota, json!({"storage": "1"}), 1),
            (ResourceListKind::LimitRange, json!({"storage": "1Gi"}), 0),
            (ResourceListKind::LimitRange, json!({"a b/c": "1"}), 1),
        ];
        for (kind, resources, count) in table {
            let mut errors = Vec::new();
            validate_resource_list(kind, "x", &resources, &mut errors);
            assert_eq!(errors.len(), count, "{resources}: {errors:?}");
        }
    }
}
