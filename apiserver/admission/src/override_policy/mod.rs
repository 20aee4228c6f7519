//! Mutates and validates OverridePolicy and ClusterOverridePolicy. Does no I/O. Rules
//! of Karmada's `webhook/overridepolicy` and `util/validation/validation.go`.

use karmada_api::affinity::ClusterAffinity;
use karmada_api::identity_fields::IDENTITY_FIELDS;
use karmada_api::policy::{FieldOverrider, Overriders};
use karmada_api::well_known_keys::OVERRIDE_RETAINED;
use machinery::FieldError;
use serde_json::Value;

use crate::attributes::AdmissionAttributes;
use crate::unstructured::{get, go_json, has, index_path, items, text};
use crate::{cluster_affinity, metadata, propagation_policy};

pub(crate) fn mutate(attributes: &AdmissionAttributes<'_>, policy: &mut Value) {
    propagation_policy::default_selector_namespaces(attributes.namespace, policy);
}

pub(crate) fn validate(attributes: &AdmissionAttributes<'_>, policy: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = get(policy, "/spec");
    let target = get(spec, "/targetCluster");
    cluster_affinity::validate("spec.targetCluster", target, &mut errors);
    if has(spec, "/overrideRules") {
        if !target.is_null() {
            errors.push(FieldError::invalid_rendered(
                "spec.targetCluster",
                &go_json::<ClusterAffinity>(target),
                "overrideRules and targetCluster can't co-exist",
            ));
        }
        let legacy = get(spec, "/overriders");
        if has_overriders(legacy) {
            errors.push(FieldError::invalid_rendered(
                "spec.overriders",
                &go_json::<Overriders>(legacy),
                "overrideRules and overriders can't co-exist",
            ));
        }
    }
    for (i, rule) in items(spec, "/overrideRules").iter().enumerate() {
        let field = index_path("spec.overrideRules", i);
        validate_overriders(
            &format!("{field}.overriders"),
            get(rule, "/overriders"),
            &mut errors,
        );
        cluster_affinity::validate(
            &format!("{field}.targetCluster"),
            get(rule, "/targetCluster"),
            &mut errors,
        );
    }
    propagation_policy::validate_selector_namespaces(attributes.namespace, spec, &mut errors);
    // It lets the overrides win over what members retain; Karmada does not have it.
    metadata::validate_switch(policy, OVERRIDE_RETAINED, &mut errors);
    errors
}

/// Whether any overrider is set; fieldOverrider does not count, as in Karmada.
fn has_overriders(overriders: &Value) -> bool {
    let lists = overriders.as_object().into_iter().flatten();
    lists
        .filter(|(name, _)| *name != "fieldOverrider")
        .any(|(_, list)| list.as_array().is_some_and(|l| !l.is_empty()))
}

fn validate_overriders(field: &str, overriders: &Value, errors: &mut Vec<FieldError>) {
    let overriders_of = |name: &str| {
        let base = format!("{field}.{name}");
        let list = items(overriders, &format!("/{name}")).iter().enumerate();
        list.map(move |(i, item)| (index_path(&base, i), item))
    };
    for (field, item) in overriders_of("annotationsOverrider") {
        metadata::validate_annotations(&format!("{field}.value"), get(item, "/value"), errors);
    }
    for (field, item) in overriders_of("labelsOverrider") {
        metadata::validate_labels(&format!("{field}.value"), get(item, "/value"), errors);
    }
    for (field, item) in overriders_of("imageOverrider") {
        if has(item, "/predicate") {
            let field = format!("{field}.predicate.path");
            let path = text(item, "/predicate/path");
            validate_json_pointer(&field, path, errors);
            validate_identity_path(&field, path, false, errors);
        }
    }
    for (field, item) in overriders_of("fieldOverrider") {
        validate_field_overrider(&field, item, errors);
    }
    for (field, item) in overriders_of("plaintext") {
        let removes = text(item, "/operator") == "remove";
        let path = text(item, "/path");
        validate_identity_path(&format!("{field}.path"), path, removes, errors);
    }
}

/// Refuses a path that says which object a manifest is, or with `removes` contains such a field.
/// Any other change of identity is found where the override is applied.
fn validate_identity_path(field: &str, path: &str, removes: bool, errors: &mut Vec<FieldError>) {
    // No identity field has a character that a JSON pointer escapes, so an escaped spelling is
    // another field.
    let contains_identity = removes && path == "/metadata";
    if contains_identity || IDENTITY_FIELDS.contains(&path) {
        let detail = "an override must not change which object a manifest is";
        errors.push(FieldError::invalid(field, &path.into(), detail));
    }
}

fn validate_field_overrider(field: &str, overrider: &Value, errors: &mut Vec<FieldError>) {
    let (json, yaml) = (items(overrider, "/json"), items(overrider, "/yaml"));
    if json.is_empty() && yaml.is_empty() {
        let detail = "FieldOverrider must have either JSON or YAML set";
        errors.push(FieldError::required(field, detail));
    } else if !json.is_empty() && !yaml.is_empty() {
        errors.push(FieldError::invalid_rendered(
            field,
            &go_json::<FieldOverrider>(overrider),
            "FieldOverrider has both YAML and JSON set. Only one is allowed",
        ));
    }
    let path = text(overrider, "/fieldPath");
    validate_json_pointer(&format!("{field}.fieldPath"), path, errors);
    validate_identity_path(&format!("{field}.fieldPath"), path, false, errors);
    for (name, operations) in [("json", json), ("yaml", yaml)] {
        for (i, operation) in operations.iter().enumerate() {
            let operation_path = index_path(&format!("{field}.{name}"), i);
            validate_json_pointer(
                &format!("{operation_path}.subPath"),
                text(operation, "/subPath"),
                errors,
            );
            let valued = has(operation, "/value");
            let detail = match text(operation, "/operator") {
                "add" | "replace" if !valued => "value is required for add or replace operation",
                "remove" if valued => "value is not allowed for remove operation",
                _ => continue,
            };
            errors.push(FieldError::invalid(
                format!("{operation_path}.value"),
                get(operation, "/value"),
                detail,
            ));
        }
    }
}

/// Requires a JSON pointer to be empty or start with a slash; escapes are not checked
/// (`go-openapi/jsonpointer`).
fn validate_json_pointer(field: &str, path: &str, errors: &mut Vec<FieldError>) {
    if !path.is_empty() && !path.starts_with('/') {
        let detail = "JSON pointer must be empty or start with a \"/\"\nJSON pointer error";
        errors.push(FieldError::invalid(field, &path.into(), detail));
    }
}

#[cfg(test)]
mod tests;
