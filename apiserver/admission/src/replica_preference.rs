//! Validates ReplicaSchedulingPreference. Does no I/O. KubeFed has a schema only; the rules refuse
//! what its planner cannot plan with.

use karmada_api::replica_preference::{OTHER_CLUSTERS, template_kind};
use machinery::FieldError;
use serde_json::Value;

use crate::cluster::validate_cluster_name;
use crate::unstructured::{entries, get, int, report_invalid, text};

/// Every cluster costs the planner time, and bindings record all of them.
const MAX_CLUSTERS: usize = 1000;
const MAX_KIND_BYTES: usize = 63;
const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

pub(crate) fn validate(preference: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let kind = text(preference, "/spec/targetKind");
    if !is_kind(kind) {
        errors.push(FieldError::invalid(
            "spec.targetKind",
            &kind.into(),
            "must be a kind such as Deployment or FederatedDeployment",
        ));
    }
    let spec = get(preference, "/spec");
    report_negative(spec, "totalReplicas", "spec", &mut errors);
    let count = entries(spec, "/clusters").count();
    if count > MAX_CLUSTERS {
        let field = "spec.clusters";
        errors.push(FieldError::too_many(field, count, MAX_CLUSTERS));
        return errors;
    }
    for (cluster, replicas) in entries(spec, "/clusters") {
        let field = format!("spec.clusters[{cluster}]");
        if cluster != OTHER_CLUSTERS {
            let name_errors = validate_cluster_name(cluster);
            report_invalid(field.clone(), cluster, name_errors, &mut errors);
        }
        validate_cluster(replicas, &field, &mut errors);
    }
    errors
}

fn validate_cluster(replicas: &Value, field: &str, errors: &mut Vec<FieldError>) {
    for count in ["minReplicas", "maxReplicas", "weight"] {
        report_negative(replicas, count, field, errors);
    }
    let bounds = int(replicas, "/minReplicas").zip(int(replicas, "/maxReplicas"));
    if let Some((min, max)) = bounds
        && (0..min).contains(&max)
    {
        errors.push(FieldError::invalid(
            format!("{field}.maxReplicas"),
            &max.into(),
            "must be greater than or equal to minReplicas",
        ));
    }
}

/// `field`: the path of the object.
fn report_negative(object: &Value, name: &str, field: &str, errors: &mut Vec<FieldError>) {
    if let Some(count) = object[name].as_i64().filter(|count| *count < 0) {
        let field = format!("{field}.{name}");
        errors.push(FieldError::invalid(field, &count.into(), NOT_NEGATIVE));
    }
}

/// Whether a text may be the kind of a workload, or of its federated form.
fn is_kind(kind: &str) -> bool {
    let is_letter_or_digit = |c: char| c.is_ascii_alphanumeric();
    kind.len() <= MAX_KIND_BYTES
        && kind.starts_with(|c: char| c.is_ascii_uppercase())
        && kind.chars().all(is_letter_or_digit)
        && template_kind(kind) != "Federated"
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // proves: RSP-valid
    #[test]
    fn a_preference_that_cannot_be_planned_with_is_refused_by_field() {
        let kind = "spec.targetKind: Invalid value: ";
        let kind_rule = "must be a kind such as Deployment or FederatedDeployment";
        let a = "spec.clusters[a]";
        for (change, expected) in [
            (json!({}), vec![]),
            (json!({"targetKind": "Deployment"}), vec![]),
            (
                json!({"clusters": {"*": {}, "a": {"minReplicas": 1, "maxReplicas": 1}}}),
                vec![],
            ),
            (
                json!({"targetKind": ""}),
                vec![format!("{kind}\"\": {kind_rule}")],
            ),
            (
                json!({"targetKind": "Federated"}),
                vec![format!("{kind}\"Federated\": {kind_rule}")],
            ),
            (
                json!({"targetKind": "apps/Deployment"}),
                vec![format!("{kind}\"apps/Deployment\": {kind_rule}")],
            ),
            (
                json!({"totalReplicas": -1}),
                vec![format!(
                    "spec.totalReplicas: Invalid value: -1: {NOT_NEGATIVE}"
                )],
            ),
            (
                json!({"clusters": {"a": {"weight": -1, "minReplicas": -2, "maxReplicas": -3}}}),
                vec![
                    format!("{a}.minReplicas: Invalid value: -2: {NOT_NEGATIVE}"),
                    format!("{a}.maxReplicas: Invalid value: -3: {NOT_NEGATIVE}"),
                    format!("{a}.weight: Invalid value: -1: {NOT_NEGATIVE}"),
                ],
            ),
            (
                json!({"clusters": {"a": {"minReplicas": 3, "maxReplicas": 2}}}),
                vec![format!(
                    "{a}.maxReplicas: Invalid value: 2: must be greater than or equal to minReplicas"
                )],
            ),
        ] {
            let mut preference =
                json!({"spec": {"targetKind": "FederatedDeployment", "totalReplicas": 3}});
            for (field, value) in change.as_object().unwrap() {
                preference["spec"][field] = value.clone();
            }
            let errors: Vec<String> = validate(&preference)
                .iter()
                .map(ToString::to_string)
                .collect();
            assert_eq!(errors, expected, "{change}");
        }
        let name =
            json!({"spec": {"targetKind": "X", "totalReplicas": 1, "clusters": {"A_b": {}}}});
        assert_eq!(validate(&name)[0].field, "spec.clusters[A_b]");
        let many: serde_json::Map<String, Value> = (0..=MAX_CLUSTERS)
            .map(|n| (format!("c{n}"), json!({})))
            .collect();
        let many = json!({"spec": {"targetKind": "X", "totalReplicas": 1, "clusters": many}});
        let errors: Vec<String> = validate(&many).iter().map(ToString::to_string).collect();
        assert_eq!(
            errors,
            ["spec.clusters: Too many: 1001: must have at most 1000 items"]
        );
    }
}
