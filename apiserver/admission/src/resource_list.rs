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
    /// A quota over clusters.
    FederatedQuota,
    /// Amounts of any resource: of a pod as a whole, or of a limit on claims.
    Other,
}

fn is_huge_pages(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Whether a quota may have a resource without a domain.
pub(crate) fn is_quota_resource(name: &str) -> bool {
    let base = name
        .strip_prefix("requests.")
        .or_else(|| name.strip_prefix("limits."));
    CONTAINER_RESOURCES.contains(&base.unwrap_or(name))
        || is_huge_pages(name)
        || is_huge_pages(name.strip_prefix("requests.").unwrap_or(""))
        || name == "requests.storage"
        || OBJECT_COUNT_RESOURCES.contains(&name)
}

/// Lists all faults of the name of a resource.
fn name_faults(kind: ResourceListKind, name: &str) -> Vec<String> {
    if let Err(detail) = validate_qualified_name(name) {
        return vec![detail];
    }
    if name.contains('/') {
        let is_native = name.contains("kubernetes.io/");
        let is_odd = kind == ResourceListKind::Container && name.starts_with("requests.");
        return match is_odd && !is_native {
            true => vec!["doesn't follow extended resource name standard".to_owned()],
            false => Vec::new(),
        };
    }
    let mut faults = Vec::new();
    let is_standard = is_quota_resource(name) || name == "storage";
    if !is_standard && kind != ResourceListKind::FederatedQuota {
        faults.push("must be a standard resource type or fully qualified".to_owned());
    }
    let is_compute = CONTAINER_RESOURCES.contains(&name) || is_huge_pages(name);
    match kind {
        ResourceListKind::Container if !is_compute => {
            faults.push("must be a standard resource for containers".to_owned());
        }
        ResourceListKind::Quota | ResourceListKind::FederatedQuota if !is_quota_resource(name) => {
            faults.push("must be a standard resource for quota".to_owned());
        }
        _ => {}
    }
    faults
}

/// Checks the name of a resource; the error is the first of Kubernetes' texts.
pub(crate) fn validate_resource_name(kind: ResourceListKind, name: &str) -> Result<(), String> {
    name_faults(kind, name)
        .into_iter()
        .next()
        .map_or(Ok(()), Err)
}

/// Whether quantities of a resource must be integers: counts of objects, and devices of a domain.
fn is_integer_resource(name: &str) -> bool {
    let is_extended =
        name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.");
    OBJECT_COUNT_RESOURCES.contains(&name) || is_extended
}

/// Validates a map of resource names to quantities at `field`.
pub(crate) fn validate_resource_list(
    kind: ResourceListKind,
    field: &str,
    resources: &Value,
    errors: &mut Vec<FieldError>,
) {
    for (key, value) in entries(resources, "") {
        let path = format!("{field}[{key}]");
        report_name_faults(kind, &path, key, errors);
        validate_amount(&path, key, value, errors);
    }
}

/// Reports all that is wrong with the name of a resource.
pub(crate) fn report_name_faults(
    kind: ResourceListKind,
    field: &str,
    name: &str,
    errors: &mut Vec<FieldError>,
) {
    for detail in name_faults(kind, name) {
        errors.push(FieldError::invalid(field, &name.into(), detail));
    }
}

/// Validates the amount of a resource.
pub(crate) fn validate_amount(
    field: &str,
    resource: &str,
    value: &Value,
    errors: &mut Vec<FieldError>,
) {
    let amount = match Quantity::from_value(value) {
        Ok(amount) => amount,
        Err(detail) => {
            errors.push(FieldError::invalid(field, value, detail.to_string()));
            return;
        }
    };
    if amount.is_negative() {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(field, value, detail));
    }
    if is_integer_resource(resource) && !amount.is_integer() {
        errors.push(FieldError::invalid(field, value, "must be an integer"));
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
            (ResourceListKind::Container, json!({"gpu": "1"}), 2),
            (ResourceListKind::Container, json!({"storage": "1"}), 1),
            (ResourceListKind::Container, json!({"cpu": "x"}), 1),
            (ResourceListKind::Container, json!({"cpu": "-1"}), 1),
            (ResourceListKind::Container, json!({"a.b/gpu": "500m"}), 1),
            (ResourceListKind::Container, json!({"requests.a/b": "1"}), 1),
            (
                ResourceListKind::Container,
                json!({"kubernetes.io/a": "500m"}),
                0,
            ),
            (ResourceListKind::FederatedQuota, json!({"apples": "1"}), 1),
            (
                ResourceListKind::Quota,
                json!({"pods": "10", "requests.cpu": "1", "requests.storage": "1Gi", "count/a.b": "3"}),
                0,
            ),
            (ResourceListKind::Quota, json!({"pods": "1500m"}), 1),
            (ResourceListKind::Quota, json!({"storage": "1"}), 1),
            (ResourceListKind::Quota, json!({"apples": "1"}), 2),
            (
                ResourceListKind::Quota,
                json!({"limits.hugepages-2Mi": "1"}),
                2,
            ),
            (ResourceListKind::Other, json!({"storage": "1Gi"}), 0),
            (ResourceListKind::Other, json!({"a b/c": "1"}), 1),
        ];
        for (kind, resources, count) in table {
            let mut errors = Vec::new();
            validate_resource_list(kind, "x", &resources, &mut errors);
            assert_eq!(errors.len(), count, "{resources}: {errors:?}");
        }
    }
}
