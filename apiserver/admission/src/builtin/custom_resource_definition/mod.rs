//! Validates CustomResourceDefinitions: names, group, approval, stored versions, and by the
//! modules below versions and conversion (`apiextensions/validation/validation.go`). Does no I/O.

mod conversion;
mod defaults;
pub(crate) mod formats;
mod list_types;
mod openapi_schema;
mod patterns;
mod schema;
mod selectable_fields;
mod structural;
mod subresources;
mod versions;

use machinery::FieldError;
use machinery::names::{validate_dns1035_label, validate_dns1123_subdomain};
use openapi::{API_APPROVED_ANNOTATION, ApiApproval, is_protected_community_group};
use serde_json::Value;

use crate::unstructured::{
    flag, get, index_path, items, report_invalid, text, texts, validate_immutable_field,
};

/// Kubernetes reports missing fields below these paths with the paths of v1beta1, as the rules here
/// do, and not with those of the schema.
const PATHS_OF_RULES: [&str; 2] = ["spec.versions[", "spec.conversion."];

/// Whether the rules of this module report a missing field instead of the schema.
pub(crate) fn replaces_required(field: &str) -> bool {
    PATHS_OF_RULES.iter().any(|path| field.starts_with(path))
}

pub(super) fn validate(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = get(new, "/spec");
    let (group, plural) = (text(spec, "/group"), text(spec, "/names/plural"));
    let name = get(new, "/metadata/name");
    if old.is_none() && name != &Value::from(format!("{plural}.{group}")) {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid("metadata.name", name, detail));
    }
    validate_api_approval(new, old, errors);
    validate_group(group, errors);
    let scope = text(spec, "/scope");
    if !matches!(scope, "" | "Cluster" | "Namespaced") {
        let scopes = &["Cluster", "Namespaced"];
        errors.push(FieldError::not_supported(
            "spec.scope",
            &scope.into(),
            scopes,
        ));
    }
    versions::validate(spec, old, errors);
    validate_names(get(spec, "/names"), errors);
    conversion::validate(get(spec, "/conversion"), errors);
    if flag(spec, "/preserveUnknownFields") {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        let field = "spec.preserveUnknownFields";
        errors.push(FieldError::invalid(field, &true.into(), detail));
    }
    if let Some(old) = old {
        validate_immutable_field(new, old, "spec.group", errors);
        validate_immutable_field(new, old, "spec.names.plural", errors);
        if is_established(old) {
            validate_immutable_field(new, old, "spec.scope", errors);
            validate_immutable_field(new, old, "spec.names.kind", errors);
        }
    }
    validate_stored_versions(new, errors);
}

fn validate_group(group: &str, errors: &mut Vec<FieldError>) {
    let field = "spec.group";
    if group.is_empty() {
        errors.push(FieldError::required(field, ""));
    } else if let Err(detail) = validate_dns1123_subdomain(group) {
        errors.push(FieldError::invalid(field, &group.into(), detail));
    } else if !group.contains('.') {
        let detail = "should be a domain with at least one dot";
        errors.push(FieldError::invalid(field, &group.into(), detail));
    }
}

fn is_established(crd: &Value) -> bool {
    items(crd, "/status/conditions")
        .iter()
        .any(|c| text(c, "/type") == "Established" && text(c, "/status") == "True")
}

/// Requires a definition in a group of the Kubernetes project to be approved, unless an update
/// leaves the state of its approval as it was.
fn validate_api_approval(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    if !is_protected_community_group(text(new, "/spec/group")) {
        return;
    }
    let approval = ApiApproval::of(new);
    if old.is_some_and(|old| ApiApproval::of(old) == approval) {
        return;
    }
    let field = format!("metadata.annotations[{API_APPROVED_ANNOTATION}]");
    let detail = approval.message(new);
    match approval {
        ApiApproval::Missing => errors.push(FieldError::required(field, &detail)),
        ApiApproval::Invalid => {
            let annotation = &new["metadata"]["annotations"][API_APPROVED_ANNOTATION];
            errors.push(FieldError::invalid(field, annotation, detail));
        }
        ApiApproval::Approved | ApiApproval::Bypassed => {}
    }
}

/// Requires the storage version among the stored ones, and every stored version in
/// spec.versions: without it its objects could not be read.
fn validate_stored_versions(crd: &Value, errors: &mut Vec<FieldError>) {
    let field = "status.storedVersions";
    let stored = get(crd, "/status/storedVersions");
    if items(stored, "").is_empty() {
        let detail = "must have at least one stored version";
        errors.push(FieldError::invalid(field, &Value::Null, detail));
        return;
    }
    let versions = items(crd, "/spec/versions");
    for version in versions.iter().filter(|version| flag(version, "/storage")) {
        let name = text(version, "/name");
        if !texts(stored, "").any(|stored| stored == name) {
            let detail = format!("must have the storage version {name}");
            errors.push(FieldError::invalid(field, stored, detail));
        }
    }
    for (i, version) in texts(stored, "").enumerate() {
        if !versions.iter().any(|v| text(v, "/name") == version) {
            errors.push(FieldError::invalid(
                index_path(field, i),
                &version.into(),
                format!("missing from spec.versions; {version} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {version} and removes {version} from status.storedVersions"),
            ));
        }
    }
}

fn validate_names(names: &Value, errors: &mut Vec<FieldError>) {
    for name in ["plural", "singular"] {
        let value = text(names, &format!("/{name}"));
        if !value.is_empty() {
            report_invalid(
                format!("spec.names.{name}"),
                value,
                validate_dns1035_label(value),
                errors,
            );
        }
    }
    for name in ["kind", "listKind"] {
        let value = text(names, &format!("/{name}"));
        if value.is_empty() {
            continue;
        }
        let result = validate_dns1035_label(&value.to_lowercase());
        let result =
            result.map_err(|e| format!("may have mixed case, but should otherwise match: {e}"));
        report_invalid(format!("spec.names.{name}"), value, result, errors);
    }
    for list in ["shortNames", "categories"] {
        for (i, value) in texts(names, &format!("/{list}")).enumerate() {
            let field = index_path(&format!("spec.names.{list}"), i);
            report_invalid(field, value, validate_dns1035_label(value), errors);
        }
    }
    let kind = text(names, "/kind");
    if !kind.is_empty() && kind == text(names, "/listKind") {
        errors.push(FieldError::invalid(
            "spec.names.listKind",
            &kind.into(),
            "kind and listKind may not be the same",
        ));
    }
}
