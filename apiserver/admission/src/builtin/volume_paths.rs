//! Validates the paths of files within volumes.

use machinery::FieldError;

/// Whether a path has a part `..`.
pub(super) fn has_backsteps(path: &str) -> bool {
    path.split('/').any(|part| part == "..")
}

/// Requires a relative path that stays below its directory.
pub(super) fn validate_descending_path(field: &str, path: &str, errors: &mut Vec<FieldError>) {
    if path.starts_with('/') {
        let detail = "must be a relative path";
        errors.push(FieldError::invalid(field, &path.into(), detail));
    }
    validate_no_backsteps(field, path, errors);
}

pub(super) fn validate_no_backsteps(field: &str, path: &str, errors: &mut Vec<FieldError>) {
    if has_backsteps(path) {
        let detail = "must not contain '..'";
        errors.push(FieldError::invalid(field, &path.into(), detail));
    }
}

/// Requires a path that stays below its volume, and is none of the kubelet's own.
pub(super) fn validate_local_path(field: &str, path: &str, errors: &mut Vec<FieldError>) {
    validate_descending_path(field, path, errors);
    if path.starts_with("..") && !path.starts_with("../") {
        let detail = "must not start with '..'";
        errors.push(FieldError::invalid(field, &path.into(), detail));
    }
}
