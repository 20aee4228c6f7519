//! Validates the environment of containers, and references to fields of their pod.

use machinery::names::{validate_dns1123_subdomain, validate_qualified_name};
use machinery::{FieldError, Quantity};
use serde_json::Value;

use super::config_keys::validate_config_key;
use super::volume_paths::validate_local_path;
use super::volume_sources::require;
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
const POD_VARIABLE_FIELDS: [&str; 9] = [
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
/// The fields of a pod that a file can have.
pub(super) const POD_VOLUME_FIELDS: [&str; 5] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];
/// Fields that version v1 of a pod has for a reference, beside those above.
const OTHER_POD_FIELDS: [&str; 3] = ["spec.restartPolicy", "spec.schedulerName", "status.phase"];
const CONTAINER_RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const BYTE_DIVISORS: [&str; 13] = [
    "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei",
];

/// Validates `env` and `envFrom` of a container at `field`.
pub(super) fn validate(field: &str, container: &Value, errors: &mut Vec<FieldError>) {
    for (i, variable) in items(container, "/env").iter().enumerate() {
        let path = index_path(&format!("{field}.env"), i);
        let name = text(variable, "/name");
        if name.is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        } else if !is_variable_name(name) {
            errors.push(FieldError::invalid(
                format!("{path}.name"),
                &name.into(),
                INVALID_NAME,
            ));
        }
        if has(variable, "/valueFrom") {
            let has_value = !text(variable, "/value").is_empty();
            let source = get(variable, "/valueFrom");
            validate_source(&format!("{path}.valueFrom"), source, has_value, errors);
        }
    }
    let field = format!("{field}.envFrom");
    for (i, source) in items(container, "/envFrom").iter().enumerate() {
        validate_env_from(&field, &index_path(&field, i), source, errors);
    }
}

fn is_variable_name(name: &str) -> bool {
    !name.contains('=') && name.bytes().all(|b| (b' '..=b'~').contains(&b))
}

fn validate_source(field: &str, source: &Value, has_value: bool, errors: &mut Vec<FieldError>) {
    let part = |name: &str| get(source, &format!("/{name}"));
    if has(source, "/fieldRef") {
        let reference_path = format!("{field}.fieldRef");
        validate_pod_field(
            &reference_path,
            part("fieldRef"),
            &POD_VARIABLE_FIELDS,
            errors,
        );
    }
    if has(source, "/resourceFieldRef") {
        let reference_path = format!("{field}.resourceFieldRef");
        validate_resource_field(&reference_path, part("resourceFieldRef"), false, errors);
    }
    for reference in ["configMapKeyRef", "secretKeyRef"] {
        if !part(reference).is_null() {
            validate_key_reference(&format!("{field}.{reference}"), part(reference), errors);
        }
    }
    if has(source, "/fileKeyRef") {
        let reference_path = format!("{field}.fileKeyRef");
        require(
            &reference_path,
            part("fileKeyRef"),
            &["volumeName", "path", "key"],
            errors,
        );
        let path = text(source, "/fileKeyRef/path");
        validate_local_path(&format!("{reference_path}.path"), path, errors);
    }
    let set = SOURCES.iter().filter(|name| !part(name).is_null());
    let detail = match set.count() {
        0 => {
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        }
        _ if has_value => "may not be specified when `value` is not empty",
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    errors.push(FieldError::invalid(field, &"".into(), detail));
}

/// Validates a reference to a field of the pod, which must be one of `fields`, or one label or
/// annotation.
pub(super) fn validate_pod_field(
    field: &str,
    reference: &Value,
    fields: &[&str],
    errors: &mut Vec<FieldError>,
) {
    let path = text(reference, "/fieldPath");
    let version = text(reference, "/apiVersion");
    if path.is_empty() {
        errors.push(FieldError::required(format!("{field}.fieldPath"), ""));
        return;
    }
    let field_path = format!("{field}.fieldPath");
    let mut unsupported = |detail: String| {
        let detail = format!("error converting fieldPath: {detail}");
        errors.push(FieldError::invalid(&field_path, &path.into(), detail));
    };
    if !matches!(version, "" | "v1") {
        unsupported(format!("unsupported pod version: {version}"));
        return;
    }
    let subscript = path
        .strip_suffix("']")
        .and_then(|path| path.split_once("['"));
    let Some((map, key)) = subscript else {
        let all = POD_VARIABLE_FIELDS.iter().chain(&POD_VOLUME_FIELDS);
        // An old name of `spec.nodeName`.
        let label = if path == "spec.host" {
            "spec.nodeName"
        } else {
            path
        };
        if !all.chain(&OTHER_POD_FIELDS).any(|other| *other == label) {
            unsupported(format!("field label not supported: {path}"));
        } else if !fields.contains(&label) {
            errors.push(FieldError::not_supported(field_path, &label.into(), fields));
        }
        return;
    };
    match map {
        "metadata.annotations" => {
            let key = key.to_lowercase();
            report_invalid(field, &key, validate_qualified_name(&key), errors);
        }
        "metadata.labels" => report_invalid(field, key, validate_qualified_name(key), errors),
        _ => unsupported(format!("field label does not support subscript: {path}")),
    }
}

/// Validates a reference to an amount that a container requests or is limited to.
pub(super) fn validate_resource_field(
    field: &str,
    reference: &Value,
    is_file: bool,
    errors: &mut Vec<FieldError>,
) {
    let resource = text(reference, "/resource");
    let is_pages = ["requests.hugepages-", "limits.hugepages-"]
        .iter()
        .any(|prefix| resource.starts_with(prefix));
    if is_file && text(reference, "/containerName").is_empty() {
        errors.push(FieldError::required(format!("{field}.containerName"), ""));
    } else if resource.is_empty() {
        errors.push(FieldError::required(format!("{field}.resource"), ""));
    } else if !is_pages && !CONTAINER_RESOURCES.contains(&resource) {
        let path = format!("{field}.resource");
        errors.push(FieldError::not_supported(
            path,
            &resource.into(),
            &CONTAINER_RESOURCES,
        ));
    }
    let Ok(divisor) = Quantity::from_value(get(reference, "/divisor")) else {
        return;
    };
    let divisor_text = divisor.to_string();
    let (choices, resource_kind): (&[&str], _) =
        match resource.split_once('.').map(|(_, name)| name) {
            _ if divisor.is_zero() => return,
            Some("cpu") => (&["1m", "1"], "cpu"),
            Some("memory") => (&BYTE_DIVISORS, "memory"),
            Some("ephemeral-storage") => (&BYTE_DIVISORS, "local ephemeral storage"),
            _ if is_pages => (&BYTE_DIVISORS, "hugepages"),
            _ => return,
        };
    if !choices.contains(&&*divisor_text) {
        let choices = match resource_kind {
            "cpu" => "1m and 1".to_owned(),
            _ => choices.join(", "),
        };
        let detail = format!(
            "only divisor's values {choices} are supported with the {resource_kind} resource"
        );
        errors.push(FieldError::invalid(
            format!("{field}.divisor"),
            &resource.into(),
            detail,
        ));
    }
}

fn validate_key_reference(field: &str, reference: &Value, errors: &mut Vec<FieldError>) {
    let name = text(reference, "/name");
    let result = validate_dns1123_subdomain(name);
    report_invalid(format!("{field}.name"), name, result, errors);
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

/// Kubernetes gives the path of the list, not `path`, if the number of sources is wrong.
fn validate_env_from(list: &str, path: &str, source: &Value, errors: &mut Vec<FieldError>) {
    let prefix = text(source, "/prefix");
    if !is_variable_name(prefix) {
        errors.push(FieldError::invalid(
            format!("{path}.prefix"),
            &prefix.into(),
            INVALID_NAME,
        ));
    }
    let references = ["configMapRef", "secretRef"];
    let set = references
        .iter()
        .filter(|name| has(source, &format!("/{name}")));
    for reference in set.clone() {
        let name = text(source, &format!("/{reference}/name"));
        let path = format!("{path}.{reference}.name");
        if name.is_empty() {
            errors.push(FieldError::required(path, ""));
        } else {
            // A trailing hyphen is allowed, as in the prefix of a generated name.
            let normalized_name = name.strip_suffix('-').map(|name| format!("{name}a"));
            let result = validate_dns1123_subdomain(normalized_name.as_deref().unwrap_or(name));
            report_invalid(path, name, result, errors);
        }
    }
    let detail = match set.count() {
        0 => "must specify one of: `configMapRef` or `secretRef`",
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    errors.push(FieldError::invalid(list, &"".into(), detail));
}
