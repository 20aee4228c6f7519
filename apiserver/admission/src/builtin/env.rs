//! Validates the environment of containers.

use machinery::FieldError;
use serde_json::Value;

use super::config_keys::validate_config_key;
use crate::unstructured::{get, has, index_path, items, report_invalid, text};

const INVALID_NAME: &str = "a valid environment variable name must consist only of printable ASCII characters other than '='";
const SOURCES: [&str; 5] = [
    "fieldRef",
    "resourceFieldRef",
    "configMapKeyRef",
    "secretKeyRef",
    "fileKeyRef",
];
/// The fields of a pod that a variable can have.
const POD_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// Validates `env` and `envFrom` of a container at `field`.
pub(super) fn validate(field: &str, container: &Value, errors: &mut Vec<FieldError>) {
    for (i, variable) in items(container, "/env").iter().enumerate() {
        let at = index_path(&format!("{field}.env"), i);
        let name = text(variable, "/name");
        if name.is_empty() {
            errors.push(FieldError::required(format!("{at}.name"), ""));
        } else if !is_variable_name(name) {
            errors.push(FieldError::invalid(
                format!("{at}.name"),
                &name.into(),
                INVALID_NAME,
            ));
        }
        if has(variable, "/valueFrom") {
            let has_value = !text(variable, "/value").is_empty();
            let source = get(variable, "/valueFrom");
            validate_source(&format!("{at}.valueFrom"), source, has_value, errors);
        }
    }
    for (i, source) in items(container, "/envFrom").iter().enumerate() {
        validate_env_from(&index_path(&format!("{field}.envFrom"), i), source, errors);
    }
}

fn is_variable_name(name: &str) -> bool {
    !name.contains('=') && name.bytes().all(|b| (b' '..=b'~').contains(&b))
}

fn validate_source(field: &str, source: &Value, has_value: bool, errors: &mut Vec<FieldError>) {
    let set = SOURCES
        .iter()
        .filter(|name| has(source, &format!("/{name}")));
    let why = match set.count() {
        0 => {
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        }
        _ if has_value => "may not be specified when `value` is not empty",
        1 => "",
        _ => "may not have more than one field specified at a time",
    };
    if !why.is_empty() {
        errors.push(FieldError::invalid(field, &"".into(), why));
    }
    for reference in ["configMapKeyRef", "secretKeyRef"] {
        let value = get(source, &format!("/{reference}"));
        if !value.is_null() {
            validate_key_reference(&format!("{field}.{reference}"), value, errors);
        }
    }
    let path = text(source, "/fieldRef/fieldPath");
    if has(source, "/fieldRef") && !is_pod_field(path) {
        let field = format!("{field}.fieldRef.fieldPath");
        errors.push(match path {
            "" => FieldError::required(field, ""),
            _ => FieldError::invalid(
                field,
                &path.into(),
                format!("error converting fieldPath: field label not supported: {path}"),
            ),
        });
    }
    let resource = text(source, "/resourceFieldRef/resource");
    if has(source, "/resourceFieldRef") && resource.is_empty() {
        errors.push(FieldError::required(
            format!("{field}.resourceFieldRef.resource"),
            "",
        ));
    }
}

/// Whether a variable can have a field of the pod, one label or one annotation.
fn is_pod_field(path: &str) -> bool {
    let of_map = |map: &str| path.starts_with(&format!("{map}['")) && path.ends_with("']");
    POD_FIELDS.contains(&path) || of_map("metadata.labels") || of_map("metadata.annotations")
}

fn validate_key_reference(field: &str, reference: &Value, errors: &mut Vec<FieldError>) {
    if text(reference, "/name").is_empty() {
        errors.push(FieldError::required(format!("{field}.name"), ""));
    }
    let key = text(reference, "/key");
    if key.is_empty() {
        errors.push(FieldError::required(format!("{field}.key"), ""));
    } else {
        report_invalid(
            format!("{field}.key"),
            key,
            validate_config_key(key),
            errors,
        );
    }
}

fn validate_env_from(field: &str, source: &Value, errors: &mut Vec<FieldError>) {
    let prefix = text(source, "/prefix");
    if !is_variable_name(prefix) {
        errors.push(FieldError::invalid(
            format!("{field}.prefix"),
            &prefix.into(),
            INVALID_NAME,
        ));
    }
    let references = ["configMapRef", "secretRef"];
    let set = references
        .iter()
        .filter(|name| has(source, &format!("/{name}")));
    let set: Vec<&&str> = set.collect();
    let why = match set[..] {
        [] => "must specify one of: `configMapRef` or `secretRef`",
        [_] => "",
        _ => "may not have more than one field specified at a time",
    };
    if !why.is_empty() {
        errors.push(FieldError::invalid(field, &"".into(), why));
    }
    for reference in set {
        if text(source, &format!("/{reference}/name")).is_empty() {
            errors.push(FieldError::required(
                format!("{field}.{reference}.name"),
                "",
            ));
        }
    }
}
