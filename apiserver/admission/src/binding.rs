//! Admission of ResourceBinding, ClusterResourceBinding and Work: sets permanent IDs,
//! prunes and labels a Work's manifests, and validates. Does no I/O. Rules of Karmada's
//! `webhook/{resourcebinding,clusterresourcebinding,work}`.

use std::collections::HashSet;

use karmada_api::binding::ObjectReference;
use karmada_api::prune;
use karmada_api::well_known_keys::WORK_ID;
use karmada_api::{FeatureGates, KarmadaFeature};
use machinery::FieldError;
use serde_json::Value;
use uuid::Uuid;

use crate::attributes::AdmissionAttributes;
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

/// The permanent id that a binding has.
pub(crate) fn permanent_id<'a>(binding: &'a Value, label: &str) -> Option<&'a str> {
    let id = get(binding, "/metadata/labels").get(label)?.as_str();
    id.filter(|id| !id.is_empty())
}

/// Sets the permanent id of a binding. The id that a binding has stays: it says which Works are
/// the binding's.
pub(crate) fn mutate(binding: &mut Value, old: Option<&Value>, label: &str) {
    let Some(old) = old else {
        set_permanent_id(binding, label);
        return;
    };
    if let Some(id) = permanent_id(old, label)
        && let Some(labels) = object_mut(binding, &["metadata", "labels"])
    {
        labels.insert(label.into(), id.into());
    }
}

pub(crate) fn mutate_work(work: &mut Value) {
    set_permanent_id(work, WORK_ID);
    let id = get(work, "/metadata/labels")
        .get(WORK_ID)
        .cloned()
        .unwrap_or(Value::Null);
    for manifest in items_mut(work, "/spec/workload/manifests") {
        prune::prune(manifest, true);
        if let Some(labels) = object_mut(manifest, &["metadata", "labels"]) {
            labels.insert(WORK_ID.into(), id.clone());
        }
        prune::record_managed_keys(manifest);
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

/// Validates a ResourceBinding or a ClusterResourceBinding.
pub(crate) fn validate(
    attributes: &AdmissionAttributes<'_>,
    binding: &Value,
    old: Option<&Value>,
    gates: FeatureGates,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    // A binding from before this rule must still lose its finalizers.
    if old.is_none_or(|old| get(old, "/spec/resource") != get(binding, "/spec/resource")) {
        validate_template_scope(attributes.namespace, binding, &mut errors);
    }
    if attributes.namespace.is_empty() {
        return errors;
    }
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

/// A binding names a template of its own scope. The controllers check kinds that the catalog
/// does not have.
fn validate_template_scope(namespace: &str, binding: &Value, errors: &mut Vec<FieldError>) {
    let resource = get(binding, "/spec/resource");
    let template = ObjectReference {
        api_version: text(resource, "/apiVersion").to_owned(),
        kind: text(resource, "/kind").to_owned(),
        namespace: text(resource, "/namespace").to_owned(),
        ..ObjectReference::default()
    };
    let kind_info = openapi::catalog().kind(&template.gvk());
    let namespaced = kind_info.map_or(!namespace.is_empty(), |kind| kind.namespaced);
    if let Err(detail) = template.check_scope(namespace, namespaced) {
        let value = Value::from(template.namespace);
        errors.push(FieldError::invalid(
            "spec.resource.namespace",
            &value,
            detail,
        ));
    }
}

fn validate_component_names(binding: &Value, errors: &mut Vec<FieldError>) {
    let mut names = HashSet::new();
    for (i, component) in items(binding, "/spec/components").iter().enumerate() {
        let name = text(component, "/name");
        let detail = match name {
            "" => "component names must be non-empty",
            name if !names.insert(name) => "component names must be unique",
            _ => continue,
        };
        let field = format!("{}.name", index_path("spec.components", i));
        errors.push(FieldError::invalid(field, &name.into(), detail));
    }
}

fn validate_dependencies(annotation: &str, errors: &mut Vec<FieldError>) {
    let parsed = machinery::json::from_str::<Value>(annotation);
    // Go encodes a nil slice as null.
    let no_references = Vec::new();
    let references = match &parsed {
        Ok(Value::Array(list)) => Some(list),
        Ok(Value::Null) => Some(&no_references),
        _ => None,
    };
    let is_valid = |reference: &Value| {
        let text = |name: &str| reference.get(name).is_none_or(Value::is_string);
        reference.is_object()
            && ["apiVersion", "kind", "namespace", "name"]
                .into_iter()
                .all(text)
    };
    if !references.is_some_and(|list| list.iter().all(is_valid)) {
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
    use crate::attributes::{AdmissionOperation, OperationOptions};
    use karmada_api::resources::BINDINGS;
    use karmada_api::well_known_keys::{BINDING_ID, CLUSTER_BINDING_ID, MANAGED_LABELS};
    use machinery::{Gvk, UserInfo};
    use serde_json::json;

    fn check_validity(binding: &Value, old: Option<&Value>, gates: FeatureGates) -> Vec<String> {
        let user = UserInfo::default();
        let attributes = AdmissionAttributes {
            gvk: &Gvk::from_static("work.karmada.io", "v1alpha2", "ResourceBinding"),
            gvr: &BINDINGS,
            namespace: text(binding, "/metadata/namespace"),
            name: "b",
            subresource: "",
            operation: AdmissionOperation::Create,
            user: &user,
            dry_run: false,
            options: OperationOptions::None,
            audit_annotations: None,
        };
        let errors = validate(&attributes, binding, old, gates);
        errors.iter().map(ToString::to_string).collect()
    }

    fn binding() -> Value {
        json!({"metadata": {"name": "b", "namespace": "n"},
            "spec": {"resource": {"apiVersion": "v1", "kind": "Secret", "namespace": "n", "name": "s"}}})
    }

    #[test]
    fn permanent_id_is_set_once() {
        let mut binding = json!({"metadata": {"name": "b"}});
        mutate(&mut binding, None, BINDING_ID);
        let id = binding["metadata"]["labels"][BINDING_ID].clone();
        assert_eq!(id.as_str().unwrap().len(), 36);
        let old = binding.clone();
        mutate(&mut binding, Some(&old), BINDING_ID);
        assert_eq!(binding, old);
        for other in [json!({BINDING_ID: "another's"}), json!({}), Value::Null] {
            binding["metadata"]["labels"] = other;
            mutate(&mut binding, Some(&old), BINDING_ID);
            assert_eq!(binding["metadata"]["labels"][BINDING_ID], id);
        }
        let mut restored = json!({"metadata": {"labels": {CLUSTER_BINDING_ID: "x"}}});
        mutate(&mut restored, None, CLUSTER_BINDING_ID);
        assert_eq!(restored["metadata"]["labels"][CLUSTER_BINDING_ID], "x");
    }

    #[test]
    fn a_binding_names_a_template_of_its_own_scope() {
        let check = |namespace: &str, kind: (&str, &str), template_namespace: &str, expected| {
            let resource = json!({"apiVersion": kind.0, "kind": kind.1, "namespace": template_namespace, "name": "t"});
            let binding = json!({"metadata": {"name": "b", "namespace": namespace}, "spec": {"resource": resource}});
            let errors = check_validity(&binding, None, FeatureGates::default());
            let expected: Option<String> = expected;
            assert_eq!(errors, Vec::from_iter(expected), "{binding}");
            let renewed = check_validity(&binding, Some(&binding), FeatureGates::default());
            assert!(renewed.is_empty(), "an old one can lose its finalizers");
        };
        let (secret, role) = (
            ("v1", "Secret"),
            ("rbac.authorization.k8s.io/v1", "ClusterRole"),
        );
        let custom = ("example.com/v1", "Thing");
        let error = |value: &str, detail: &str| {
            Some(format!(
                "spec.resource.namespace: Invalid value: {value:?}: {detail}"
            ))
        };
        let own_namespace = "must be the namespace of the binding (n)";
        check("n", secret, "n", None);
        check("n", custom, "n", None);
        check(
            "n",
            secret,
            "kube-system",
            error("kube-system", own_namespace),
        );
        check("n", secret, "", error("", own_namespace));
        check("n", role, "", error("", own_namespace));
        let cluster_scoped = "must be empty: ClusterRole is a cluster-scoped kind, which only a ClusterResourceBinding may name";
        check("n", role, "n", error("n", cluster_scoped));
        check("", role, "", None);
        check("", custom, "", None);
        let empty = "must be empty in a ClusterResourceBinding";
        check("", secret, "n", error("n", empty));
        check(
            "",
            secret,
            "",
            error("", "is required for a namespaced kind"),
        );
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
        let work_with = |manifest: Value| json!({"spec": {"workload": {"manifests": [{"kind": "X"}, manifest]}}});
        assert_eq!(validate_work(&work_with(json!({"kind": "Y"}))), []);
        let errors = validate_work(&work_with(json!({"apiVersion": "v1"})));
        assert_eq!(
            errors[0].to_string(),
            "spec.workload.manifests[1].kind: Required value: Object 'Kind' is missing"
        );
    }

    #[test]
    fn component_names_are_unique() {
        let parts = json!([{"name": "a"}, {"name": ""}, {"name": "b"}, {"name": "a"}]);
        let mut binding = binding();
        binding["spec"]["components"] = parts;
        let gates = FeatureGates::default();
        assert!(check_validity(&binding, None, gates).is_empty());
        let gates = gates.with_feature(KarmadaFeature::MultiplePodTemplatesScheduling, true);
        let messages = check_validity(&binding, None, gates);
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
            let mut binding = binding();
            binding["metadata"]["annotations"] = annotations.clone();
            let errors = check_validity(&binding, None, FeatureGates::default());
            assert_eq!(errors.is_empty(), valid, "{annotations}");
        }
        let mut binding = binding();
        binding["metadata"]["annotations"] = json!({DEPENDENCIES_ANNOTATION: "{}"});
        assert_eq!(
            check_validity(&binding, None, FeatureGates::default())[0],
            r#"metadata.annotations.resourcebinding.karmada.io/dependencies: Invalid value: "{}": annotation value must be a valid JSON"#
        );
    }
}
