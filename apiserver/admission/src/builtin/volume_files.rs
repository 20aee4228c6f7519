//! Validates the files of a volume: their modes, keys and paths.

use machinery::FieldError;
use serde_json::Value;

use super::env::{POD_VOLUME_FIELDS, validate_pod_field, validate_resource_field};
use super::volume_paths::validate_local_path;
use super::volume_sources::require;
use crate::unstructured::{get, has, index_path, int, items, text};

/// The highest mode of a file: `rwxrwxrwx`.
const MAX_FILE_MODE: i64 = 0o777;
const INVALID_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

/// Validates a volume of a ConfigMap or Secret.
pub(super) fn validate_keyed(
    field: &str,
    source: &str,
    volume: &Value,
    errors: &mut Vec<FieldError>,
) {
    let name = if source == "secret" {
        "secretName"
    } else {
        "name"
    };
    require(field, volume, &[name], errors);
    validate_mode(field, volume, "defaultMode", errors);
    validate_items(field, volume, errors);
}

/// Validates the keys that a volume has as files.
pub(super) fn validate_items(field: &str, volume: &Value, errors: &mut Vec<FieldError>) {
    for (i, item) in items(volume, "/items").iter().enumerate() {
        let path = index_path(&format!("{field}.items"), i);
        require(&path, item, &["key", "path"], errors);
        validate_local_path(&format!("{path}.path"), text(item, "/path"), errors);
        validate_mode(&path, item, "mode", errors);
    }
}

pub(super) fn validate_downward(field: &str, volume: &Value, errors: &mut Vec<FieldError>) {
    validate_mode(field, volume, "defaultMode", errors);
    validate_downward_items(field, volume, errors);
}

/// Kubernetes gives the paths of these fields without the index of the file.
pub(super) fn validate_downward_items(field: &str, volume: &Value, errors: &mut Vec<FieldError>) {
    for item in items(volume, "/items") {
        require(field, item, &["path"], errors);
        validate_local_path(&format!("{field}.path"), text(item, "/path"), errors);
        let resource = get(item, "/resourceFieldRef");
        if has(item, "/fieldRef") {
            let reference = get(item, "/fieldRef");
            let path = format!("{field}.fieldRef");
            validate_pod_field(&path, reference, &POD_VOLUME_FIELDS, errors);
            if !resource.is_null() {
                let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
                errors.push(FieldError::invalid(field, &"resource".into(), detail));
            }
        } else if resource.is_null() {
            let detail = "one of fieldRef and resourceFieldRef is required";
            errors.push(FieldError::required(field, detail));
        } else {
            validate_resource_field(&format!("{field}.resourceFieldRef"), resource, true, errors);
        }
        validate_mode(field, item, "mode", errors);
    }
}

pub(super) fn validate_mode(field: &str, part: &Value, name: &str, errors: &mut Vec<FieldError>) {
    if let Some(mode) = int(part, &format!("/{name}"))
        && !(0..=MAX_FILE_MODE).contains(&mode)
    {
        errors.push(FieldError::invalid(
            format!("{field}.{name}"),
            &mode.into(),
            INVALID_MODE,
        ));
    }
}
