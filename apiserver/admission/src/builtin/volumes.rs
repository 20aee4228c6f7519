//! Validates the volumes of pods.

use machinery::{FieldError, Quantity};
use serde_json::Value;

use super::config_keys::validate_config_key;
use crate::unstructured::{get, has, index_path, int, items, report_invalid, text};

/// The highest mode of a file: `rwxrwxrwx`.
const MAX_FILE_MODE: i64 = 0o777;
const INVALID_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";
const HOST_PATH_TYPES: [&str; 8] = [
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
];
/// The fields that a volume source requires.
const REQUIRED_FIELDS: [(&str, &[&str]); 12] = [
    ("hostPath", &["path"]),
    ("gitRepo", &["repository"]),
    ("awsElasticBlockStore", &["volumeID"]),
    ("gcePersistentDisk", &["pdName"]),
    ("nfs", &["server", "path"]),
    ("iscsi", &["targetPortal", "iqn"]),
    ("persistentVolumeClaim", &["claimName"]),
    ("secret", &["secretName"]),
    ("configMap", &["name"]),
    ("csi", &["driver"]),
    ("ephemeral", &["volumeClaimTemplate"]),
    ("glusterfs", &["endpoints", "path"]),
];

/// Validates a volume at `field`. One without a source is an empty directory.
pub(super) fn validate(field: &str, volume: &Value, errors: &mut Vec<FieldError>) {
    let sources = volume.as_object().into_iter().flatten();
    let sources = sources.filter(|(name, source)| *name != "name" && !source.is_null());
    for (name, _) in sources.skip(1) {
        errors.push(FieldError::forbidden(
            format!("{field}.{name}"),
            "may not specify more than 1 volume type",
        ));
    }
    for (source, required) in REQUIRED_FIELDS {
        validate_required_fields(field, volume, source, required, errors);
    }
    validate_host_path(
        &format!("{field}.hostPath"),
        get(volume, "/hostPath"),
        errors,
    );
    let server_path = text(volume, "/nfs/path");
    if !server_path.is_empty() && !server_path.starts_with('/') {
        errors.push(FieldError::invalid(
            format!("{field}.nfs.path"),
            &server_path.into(),
            "must be an absolute path",
        ));
    }
    let limit = get(volume, "/emptyDir/sizeLimit");
    if Quantity::from_value(limit).is_ok_and(Quantity::is_negative) {
        errors.push(FieldError::forbidden(
            format!("{field}.emptyDir.sizeLimit"),
            "SizeLimit field must be a valid resource quantity",
        ));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        let files = get(volume, &format!("/{source}"));
        validate_files(&format!("{field}.{source}"), source, files, errors);
    }
    for (i, source) in items(volume, "/projected/sources").iter().enumerate() {
        let at = index_path(&format!("{field}.projected.sources"), i);
        validate_projected_source(&at, source, errors);
    }
}

/// Whether a field has a value that is not empty.
fn is_set(value: &Value) -> bool {
    !value.is_null() && value.as_str() != Some("")
}

fn validate_required_fields(
    field: &str,
    volume: &Value,
    source: &str,
    required: &[&str],
    errors: &mut Vec<FieldError>,
) {
    let value = get(volume, &format!("/{source}"));
    if value.is_null() {
        return;
    }
    for name in required {
        if !is_set(get(value, &format!("/{name}"))) {
            errors.push(FieldError::required(format!("{field}.{source}.{name}"), ""));
        }
    }
}

pub(super) fn validate_host_path(field: &str, source: &Value, errors: &mut Vec<FieldError>) {
    let path = text(source, "/path");
    if path.split('/').any(|part| part == "..") {
        errors.push(FieldError::invalid(
            format!("{field}.path"),
            &path.into(),
            "must not contain '..'",
        ));
    }
    let kind = text(source, "/type");
    if !HOST_PATH_TYPES.contains(&kind) {
        errors.push(FieldError::not_supported(
            format!("{field}.type"),
            &kind.into(),
            &HOST_PATH_TYPES,
        ));
    }
}

/// Validates modes and items of a volume of files.
fn validate_files(field: &str, source: &str, files: &Value, errors: &mut Vec<FieldError>) {
    validate_mode(field, files, "defaultMode", errors);
    for (i, item) in items(files, "/items").iter().enumerate() {
        let at = index_path(&format!("{field}.items"), i);
        validate_mode(&at, item, "mode", errors);
        validate_local_path(&format!("{at}.path"), text(item, "/path"), errors);
        if source == "downwardAPI" {
            validate_downward_source(&at, item, errors);
            continue;
        }
        let key = text(item, "/key");
        if key.is_empty() {
            errors.push(FieldError::required(format!("{at}.key"), ""));
        } else {
            report_invalid(format!("{at}.key"), key, validate_config_key(key), errors);
        }
    }
}

fn validate_downward_source(field: &str, item: &Value, errors: &mut Vec<FieldError>) {
    match (has(item, "/fieldRef"), has(item, "/resourceFieldRef")) {
        (true, true) => errors.push(FieldError::invalid(
            field,
            &"resource".into(),
            "fieldRef and resourceFieldRef can not be specified simultaneously",
        )),
        (false, false) => errors.push(FieldError::required(
            field,
            "one of fieldRef and resourceFieldRef is required",
        )),
        _ => {}
    }
}

fn validate_mode(field: &str, part: &Value, name: &str, errors: &mut Vec<FieldError>) {
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

/// Requires a path that stays below its volume.
fn validate_local_path(field: &str, path: &str, errors: &mut Vec<FieldError>) {
    let why = if path.is_empty() {
        errors.push(FieldError::required(field, ""));
        return;
    } else if path.starts_with('/') {
        "must be a relative path"
    } else if path.split('/').any(|part| part == "..") {
        "must not contain '..'"
    } else if path.starts_with("..") {
        "must not start with '..'"
    } else {
        return;
    };
    errors.push(FieldError::invalid(field, &path.into(), why));
}

fn validate_projected_source(field: &str, source: &Value, errors: &mut Vec<FieldError>) {
    let kinds = source.as_object().into_iter().flatten();
    let kinds = kinds.filter(|(_, value)| !value.is_null());
    for (name, _) in kinds.skip(1) {
        errors.push(FieldError::forbidden(
            format!("{field}.{name}"),
            "may not specify more than 1 volume type",
        ));
    }
    for kind in ["secret", "configMap"] {
        let part = get(source, &format!("/{kind}"));
        if !part.is_null() && text(part, "/name").is_empty() {
            errors.push(FieldError::required(format!("{field}.{kind}.name"), ""));
        }
        validate_files(&format!("{field}.{kind}"), kind, part, errors);
    }
    let downward = get(source, "/downwardAPI");
    validate_files(
        &format!("{field}.downwardAPI"),
        "downwardAPI",
        downward,
        errors,
    );
    let token = get(source, "/serviceAccountToken");
    if token.is_null() {
        return;
    }
    validate_local_path(
        &format!("{field}.serviceAccountToken.path"),
        text(token, "/path"),
        errors,
    );
    if let Some(seconds) = int(token, "/expirationSeconds")
        && seconds < MIN_TOKEN_SECONDS
    {
        errors.push(FieldError::invalid(
            format!("{field}.serviceAccountToken.expirationSeconds"),
            &seconds.into(),
            "may not specify a duration less than 10 minutes",
        ));
    }
}

const MIN_TOKEN_SECONDS: i64 = 600;
