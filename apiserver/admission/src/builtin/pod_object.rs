//! Validates pods as objects: what only pods may have, and what an update of one may change.

use machinery::FieldError;
use serde_json::{Map, Value};

use super::pod_annotations;
use super::pods;
use super::validated_pod_spec::ValidatedPodSpec;
use crate::unstructured::{entries, get, has, int, items, items_mut, text};

/// Kubernetes' error for an update of immutable pod fields.
const POD_UPDATE_FORBIDDEN: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// A spec that an update leaves as it is stays valid.
pub(super) fn validate_pod(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    pod_annotations::validate("metadata", new, old, errors);
    let pod_spec = ValidatedPodSpec {
        field: "spec",
        spec: get(new, "/spec"),
        old: old.map_or(&Value::Null, |old| get(old, "/spec")),
        pod: Some(new),
    };
    let is_changed = old.is_none() || pod_spec.spec != pod_spec.old;
    if is_changed {
        pods::validate_spec(pod_spec, Vec::new(), pods::RESTART_POLICIES, errors);
    }
    let Some(old) = old else {
        validate_new(new, errors);
        return;
    };
    pod_annotations::validate_update(new, old, errors);
    if is_changed {
        validate_update(pod_spec, errors);
    }
}

fn validate_new(pod: &Value, errors: &mut Vec<FieldError>) {
    if !items(pod, "/spec/ephemeralContainers").is_empty() {
        let detail = "cannot be set on create";
        errors.push(FieldError::forbidden("spec.ephemeralContainers", detail));
    }
    let is_gated = !items(pod, "/spec/schedulingGates").is_empty();
    if is_gated && !text(pod, "/spec/nodeName").is_empty() {
        let detail = "cannot be set until all schedulingGates have been cleared";
        errors.push(FieldError::forbidden("spec.nodeName", detail));
    }
    pod_annotations::validate_profiles("spec", pod, errors);
}

fn validate_update(pod_spec: ValidatedPodSpec<'_>, errors: &mut Vec<FieldError>) {
    let (old_spec, new_spec) = (pod_spec.old, pod_spec.spec);
    for list in ["containers", "initContainers"] {
        let path = format!("/{list}");
        if items(old_spec, &path).len() != items(new_spec, &path).len() {
            let detail = "pod updates may not add or remove containers";
            errors.push(FieldError::forbidden(pod_spec.at(list), detail));
            return;
        }
    }
    if !validate_deadline(old_spec, new_spec, errors) {
        return;
    }
    validate_tolerations(old_spec, new_spec, errors);
    validate_gates(old_spec, new_spec, errors);
    let mut expected = new_spec.clone();
    restore_mutable_fields(&mut expected, old_spec);
    if !items(old_spec, "/schedulingGates").is_empty() {
        restore_node_selection(&mut expected, old_spec, errors);
    }
    if canonical(&expected) != canonical(old_spec) {
        errors.push(FieldError::forbidden("spec", POD_UPDATE_FORBIDDEN));
    }
}

/// A deadline may be set once, and then be brought forward. Returns whether to go on.
fn validate_deadline(old_spec: &Value, new_spec: &Value, errors: &mut Vec<FieldError>) -> bool {
    let deadline = |spec| int(spec, "/activeDeadlineSeconds");
    let detail = match (deadline(old_spec), deadline(new_spec)) {
        (_, Some(new)) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            "must be between 0 and 2147483647, inclusive"
        }
        (Some(old), Some(new)) if old < new => "must be less than or equal to previous value",
        (Some(_), None) => "must not update from a positive integer to nil value",
        _ => return true,
    };
    let value = get(new_spec, "/activeDeadlineSeconds");
    errors.push(FieldError::invalid(
        "spec.activeDeadlineSeconds",
        value,
        detail,
    ));
    deadline(new_spec).is_none()
}

/// Tolerations may be added, and last longer or shorter.
fn validate_tolerations(old_spec: &Value, new_spec: &Value, errors: &mut Vec<FieldError>) {
    let without_seconds = |toleration: &Value| {
        let mut toleration = toleration.clone();
        if let Some(fields) = toleration.as_object_mut() {
            fields.remove("tolerationSeconds");
        }
        toleration
    };
    let new_tolerations: Vec<Value> = items(new_spec, "/tolerations")
        .iter()
        .map(without_seconds)
        .collect();
    if !items(old_spec, "/tolerations")
        .iter()
        .all(|old| new_tolerations.contains(&without_seconds(old)))
    {
        errors.push(FieldError::forbidden(
            "spec.tolerations",
            "existing toleration can not be modified except its tolerationSeconds",
        ));
    }
}

fn validate_gates(old_spec: &Value, new_spec: &Value, errors: &mut Vec<FieldError>) {
    let old = items(old_spec, "/schedulingGates");
    for (i, gate) in items(new_spec, "/schedulingGates").iter().enumerate() {
        let name = text(gate, "/name");
        if !old.iter().any(|old| text(old, "/name") == name) {
            errors.push(FieldError::forbidden(
                format!("spec.schedulingGates[{i}].name"),
                &format!("only deletion is allowed, but found new scheduling gate '{name}'"),
            ));
        }
    }
}

/// Gives the fields that every update may change the values that they had.
fn restore_mutable_fields(spec: &mut Value, old_spec: &Value) {
    for list in ["containers", "initContainers"] {
        let path = format!("/{list}");
        let old = items(old_spec, &path);
        for (container, old) in items_mut(spec, &path).iter_mut().zip(old) {
            restore(container, old, "image");
        }
    }
    for name in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        restore(spec, old_spec, name);
    }
    let grace = "terminationGracePeriodSeconds";
    let seconds = |spec| int(spec, "/terminationGracePeriodSeconds");
    if seconds(old_spec).is_some_and(|s| s < 0) && seconds(spec) == Some(1) {
        restore(spec, old_spec, grace);
    }
}

fn restore(part: &mut Value, old_part: &Value, name: &str) {
    let Some(fields) = part.as_object_mut() else {
        return;
    };
    match old_part.get(name) {
        Some(old) => fields.insert(name.to_owned(), old.clone()),
        None => fields.remove(name),
    };
}

/// Until a pod is scheduled, its choice of nodes may be narrowed.
fn restore_node_selection(spec: &mut Value, old_spec: &Value, errors: &mut Vec<FieldError>) {
    let keeps = |(key, value): (&str, &Value)| get(spec, "/nodeSelector").get(key) == Some(value);
    if !entries(old_spec, "/nodeSelector").all(keeps) {
        errors.push(FieldError::invalid(
            "spec.nodeSelector",
            get(spec, "/nodeSelector"),
            "only additions to spec.nodeSelector are allowed (no mutations or deletions)",
        ));
    }
    restore(spec, old_spec, "nodeSelector");
    let (old, new) = (get(old_spec, "/affinity"), get(spec, "/affinity"));
    validate_node_terms(get(old, "/nodeAffinity"), get(new, "/nodeAffinity"), errors);
    let mut affinity = new.clone();
    if affinity.is_null() {
        affinity = Value::Object(Map::new());
    }
    restore(&mut affinity, old, "nodeAffinity");
    if let Some(fields) = spec.as_object_mut() {
        fields.insert("affinity".to_owned(), affinity);
    }
}

fn validate_node_terms(old_selector: &Value, new_selector: &Value, errors: &mut Vec<FieldError>) {
    let path = format!("/{REQUIRED}/nodeSelectorTerms");
    let (old, new) = (items(old_selector, &path), items(new_selector, &path));
    let field = format!("spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms");
    if old.is_empty() {
        return;
    }
    if old.len() != new.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        errors.push(FieldError::invalid(field, &new.into(), detail));
        return;
    }
    for (i, (old_selector, new_selector)) in old.iter().zip(new).enumerate() {
        let extends = |list: &str| items(new_selector, list).starts_with(items(old_selector, list));
        let lists = ["/matchExpressions", "/matchFields"];
        let was_empty = lists
            .iter()
            .all(|list| items(old_selector, list).is_empty());
        let is_empty = lists
            .iter()
            .all(|list| items(new_selector, list).is_empty());
        if !lists.iter().all(|list| extends(list)) || was_empty && !is_empty {
            let detail = "only additions are allowed (no mutations or deletions)";
            errors.push(FieldError::invalid(
                format!("{field}[{i}]"),
                new_selector,
                detail,
            ));
        }
    }
}

/// The value without what is empty, which Go does not tell from what is absent.
fn canonical(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| (name.clone(), canonical(value)));
            let is_set = |(_, value): &(String, Value)| has(value, "") && !is_empty(value);
            Value::Object(fields.filter(is_set).collect())
        }
        Value::Array(list) => list.iter().map(canonical).collect(),
        other => other.clone(),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}
