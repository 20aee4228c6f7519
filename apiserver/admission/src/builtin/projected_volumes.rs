//! Validates projected volumes: files from several sources.

use std::collections::HashSet;

use machinery::FieldError;
use serde_json::Value;

use super::validated_pod_spec::ValidatedPodSpec;
use super::volume_files::{validate_downward_items, validate_items, validate_mode};
use super::volume_paths::validate_local_path;
use super::volume_sources::require;
use crate::unstructured::{get, has, int, items, non_empty_or, text};

const MIN_TOKEN_SECONDS: i64 = 600;
const MAX_TOKEN_SECONDS: i64 = 1 << 32;

pub(super) fn validate(
    field: &str,
    volume: &Value,
    pod_spec: ValidatedPodSpec<'_>,
    errors: &mut Vec<FieldError>,
) {
    validate_mode(field, volume, "defaultMode", errors);
    let mut paths = HashSet::new();
    for (i, source) in items(volume, "/sources").iter().enumerate() {
        let path = format!("{field}.sources[{i}]");
        for kind in ["secret", "configMap", "downwardAPI"] {
            let part = get(source, &format!("/{kind}"));
            if part.is_null() {
                continue;
            }
            let path = format!("{path}.{kind}");
            if kind == "downwardAPI" {
                validate_downward_items(&path, part, errors);
            } else {
                require(&path, part, &["name"], errors);
                validate_items(&path, part, errors);
            }
            for item in items(part, "/items") {
                let error_value = non_empty_or(text(part, "/name"), text(item, "/path"));
                validate_distinct(field, text(item, "/path"), error_value, &mut paths, errors);
            }
        }
        if has(source, "/serviceAccountToken") {
            validate_token(field, &path, source, pod_spec, errors);
        }
        let kinds = source.as_object().into_iter().flatten();
        if kinds.filter(|(_, value)| !value.is_null()).count() > 1 {
            let detail = "may not specify more than 1 volume type per source";
            errors.push(FieldError::forbidden(path, detail));
        }
    }
}

/// Two sources may not have the same file.
fn validate_distinct<'a>(
    field: &str,
    path: &'a str,
    error_value: &str,
    paths: &mut HashSet<&'a str>,
    errors: &mut Vec<FieldError>,
) {
    if !path.is_empty() && !paths.insert(path) {
        let detail = "conflicting duplicate paths";
        errors.push(FieldError::invalid(field, &error_value.into(), detail));
    }
}

/// Kubernetes gives the path of the token's `path` without the source.
fn validate_token(
    field: &str,
    token_path: &str,
    source: &Value,
    pod_spec: ValidatedPodSpec<'_>,
    errors: &mut Vec<FieldError>,
) {
    let token_path = format!("{token_path}.serviceAccountToken");
    let token = get(source, "/serviceAccountToken");
    if let Some(seconds) = int(token, "/expirationSeconds") {
        let detail = if seconds < MIN_TOKEN_SECONDS {
            "may not specify a duration less than 10 minutes"
        } else if seconds > MAX_TOKEN_SECONDS {
            "may not specify a duration larger than 2^32 seconds"
        } else {
            ""
        };
        if !detail.is_empty() {
            let token_path = format!("{token_path}.expirationSeconds");
            errors.push(FieldError::invalid(token_path, &seconds.into(), detail));
        }
    }
    let path = text(token, "/path");
    require(field, token, &["path"], errors);
    if !had_odd_token_path(pod_spec.old) {
        validate_local_path(&format!("{field}.path"), path, errors);
    }
    if pod_spec.pod.is_some() && text(pod_spec.spec, "/serviceAccountName").is_empty() {
        let detail = "must not be specified when serviceAccountName is not set";
        errors.push(FieldError::forbidden(token_path, detail));
    }
}

/// Whether the pod spec already had a token outside of its volume.
fn had_odd_token_path(old: &Value) -> bool {
    let volumes = items(old, "/volumes").iter();
    let sources = volumes.flat_map(|volume| items(volume, "/projected/sources"));
    let mut paths = sources.map(|source| text(source, "/serviceAccountToken/path"));
    paths.any(|path| {
        let mut errors = Vec::new();
        validate_local_path("", path, &mut errors);
        !errors.is_empty()
    })
}
