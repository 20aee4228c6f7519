//! Admission of ResourceBinding, ClusterResourceBinding and Work: sets permanent IDs,
//! prunes and labels a Work's manifests, and validates. Does no I/O. Rules of Karmada's
//! `webhook/{resourcebinding,clusterresourcebinding,work}`.

use std::collections::HashSet;

use machinery::FieldError;
use openapi::karmada::well_known_keys::WORK_ID;
use openapi::karmada::{FeatureGates, KarmadaFeature};
use openapi::karmada_prune;
use serde_json::Value;
use uuid::Uuid;

use crate::unstructured::{entries, get, index_path, items, items_mut, object_mut, text};

const DEPENDENCIES_ANNOTATION: &str = "resourcebinding.karmada.io/dependencies";

/// Sets the label `label` to a new UUID unless it has a value.
pub(crate) fn set_permanent_id(object: &mut Value, label: &str) {
    if let Some(labels) = object_mut(object, &["metadata", "labels"])
        && labels.get(label).is_none_or(|id| id == "")
    {
        labels.insert(label.into(), Uuid::new_v4().to_string().into());
    }
}

pub(crate) fn mutate_work(work: &mut Value) {
    set_permanent_id(work, WORK_ID);
    let id = get(work, "/metadata/labels")
        .get(WORK_ID)
        .cloned()
        .unwrap_or(Value::Null);
    for manifest in items_mut(work, "/spec/workload/manifests") {
        karmada_prune::prune(manifest, true);
        if let Some(labels) = object_mut(manifest, &["metadata", "labels"]) {
            labels.insert(WORK_ID.into(), id.clone());
        }
        karmada_prune::record_managed_keys(manifest);
    }
}

/// Requires a kind in every manifest.
pub(crate) fn validate_work(work: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let manifests = get(work, "/spec/workload/manifests").as_array();
    for (i, manifest) in manifests.into_iter().flatten().enumerate() {
        if text(manifest, "/kind").is_empty() {
            let field = format!("spec.workload.manifests[{i}].kind");
            errors.push(FieldError::required(field, "Object 'Kind' is missing"));
        }
    }
    errors
}

pub(crate) fn validate(binding: &Value, gates: FeatureGates) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let annotation =
        entries(binding, "/metadata/annotations").find(|(k, _)| *k == DEPENDENCIES_ANNOTATION);
    if let Some((_, value)) = annotation {
        validate_dependencies(value.as_str().unwrap_or(""), &mut errors);
    }
    if gates.enabled(KarmadaFeature::MultiplePodTemplatesScheduling) {
        validate_component_names(binding, &mut errors);
    }
    errors
}

fn validate_component_names(binding: &Value, errors: &mut Vec<FieldError>) {
    let mut names = HashSet::new();
    for (i, component) in items(binding, "/spec/components").iter().enumerate() {
        let name = text(component, "/name");
        let why = match name {
            "" => "component names must be non-empty",
            name if !names.insert(name) => "component names must be unique",
            _ => continue,
        };
        let field = format!("{}.name", index_path("spec.components", i));
        errors.push(FieldError::invalid(field, &name.into(), why));
    }
}

fn validate_dependencies(annotation: &str, errors: &mut Vec<FieldError>) {
    let parsed = serde_json::from_str::<Value>(annotation);
    // Go encodes a nil slice as null.
    let nothing = Vec::new();
    let references = match &parsed {
        Ok(Value::Array(list)) => Some(list),
        Ok(Value::Null) => Some(&nothing),
        _ => None,
    };
    let fits = |reference: &Value| {
        let text = |name: &str| reference.get(name).is_none_or(Value::is_string);
        reference.is_object()
            && ["apiVersion", "kind", "namespace", "name"]
                .into_iter()
                .all(text)
    };
    if !references.is_some_and(|list| list.iter().all(fits)) {
        errors.push(FieldError::invalid(
            format!("metadata.annotations.{DEPENDENCIES_ANNOTATION}"),
            &annotation.into(),
            "annotation value must be a valid JSON",
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openapi::karmada::well_known_keys::{BINDING_ID, CLUSTER_BINDING_ID, MANAGED_LABELS};
    use serde_json::json;

    #[test]
    fn permanent_id_is_set_once() {
        let mut binding = json!({"metadata": {"name": "b"}});
        set_permanent_id(&mut binding, BINDING_ID);
        let id = binding["metadata"]["labels"][BINDING_ID].clone();
        assert_eq!(id.as_str().unwrap().len(), 36);
        set_permanent_id(&mut binding, BINDING_ID);
        assert_eq!(binding["metadata"]["labels"][BINDING_ID], id);
        let mut own = json!({"metadata": {"labels": {CLUSTER_BINDING_ID: "x"}}});
        set_permanent_id(&mut own, CLUSTER_BINDING_ID);
        assert_eq!(own["metadata"]["labels"][CLUSTER_BINDING_ID], "x");
    }

    #[test]
    fn work_manifests_are_pruned_and_labeled() {
        let mut work = json!({"metadata": {"name": "w"}, "spec": {"workload": {"manifests": [
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "uid": "u", "labels": {"a": "b"}},
             "spec": {"ttlSecondsAfterFinished": 1}, "status": {}}]}}});
        mutate_work(&mut work);
        let id = work["metadata"]["labels"][WORK_ID]
            .as_str()
            .unwrap()
            .to_owned();
        let manifest = &work["spec"]["workload"]["manifests"][0];
        assert_eq!(
            manifest["metadata"]["labels"],
            json!({"a": "b", WORK_ID: id})
        );
        assert_eq!(
            (manifest.get("status"), &manifest["spec"]),
            (None, &json!({}))
        );
        assert_eq!(
            manifest["metadata"]["annotations"][MANAGED_LABELS],
            format!("a,{WORK_ID}")
        );
        let once = work.clone();
        mutate_work(&mut work);
        assert_eq!(work, once);
    }

    #[test]
    fn manifests_need_a_kind() {
        let with = |manifest: Value| json!({"spec": {"workload": {"manifests": [{"kind": "X"}, manifest]}}});
        assert_eq!(validate_work(&with(json!({"kind": "Y"}))), []);
        let errors = validate_work(&with(json!({"apiVersion": "v1"})));
        assert_eq!(
            errors[0].to_string(),
            "spec.workload.manifests[1].kind: Required value: Object 'Kind' is missing"
        );
    }

    #[test]
    fn component_names_are_unique() {
        let parts = json!([{"name": "a"}, {"name": ""}, {"name": "b"}, {"name": "a"}]);
        let binding = json!({"spec": {"components": parts}});
        let gates = FeatureGates::default();
        assert!(validate(&binding, gates).is_empty());
        let gates = gates.with_feature(KarmadaFeature::MultiplePodTemplatesScheduling, true);
        let errors = validate(&binding, gates);
        let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            messages,
            [
                r#"spec.components[1].name: Invalid value: "": component names must be non-empty"#,
                r#"spec.components[3].name: Invalid value: "a": component names must be unique"#
            ]
        );
    }

    #[test]
    fn dependencies_annotation_is_validated() {
        let table = [
            (json!({}), true),
            (json!({DEPENDENCIES_ANNOTATION: "[]"}), true),
            (json!({DEPENDENCIES_ANNOTATION: "null"}), true),
            (
                json!({DEPENDENCIES_ANNOTATION: r#"[{"apiVersion":"v1","kind":"Secret","name":"s"}]"#}),
                true,
            ),
            (json!({DEPENDENCIES_ANNOTATION: "{}"}), false),
            (json!({DEPENDENCIES_ANNOTATION: "[3]"}), false),
            (json!({DEPENDENCIES_ANNOTATION: r#"[{"kind":3}]"#}), false),
            (json!({DEPENDENCIES_ANNOTATION: ""}), false),
        ];
        for (annotations, valid) in table {
            let binding = json!({"metadata": {"annotations": annotations}});
            let errors = validate(&binding, FeatureGates::default());
            assert_eq!(errors.is_empty(), valid, "{annotations}");
        }
        let binding = json!({"metadata": {"annotations": {DEPENDENCIES_ANNOTATION: "{}"}}});
        assert_eq!(
            validate(&binding, FeatureGates::default())[0].to_string(),
            r#"metadata.annotations.resourcebinding.karmada.io/dependencies: Invalid value: "{}": annotation value must be a valid JSON"#
        );
    }
}
