//! Validates references to objects by version or group, kind and name, and paths with a domain.

use machinery::FieldError;
use machinery::names::{split_api_version, validate_dns1123_subdomain, validate_path_segment_name};
use serde_json::Value;

use crate::unstructured::{get, report_invalid, text};

/// The characters of a URL's path (RFC 3986) beside letters and digits.
const PATH_CHARACTERS: &str = "/-._~%!$&'()*+,;=:";
const INVALID_PATH: &str =
    r"Invalid path (regex used for validation is '[A-Za-z0-9/\-._~%!$&'()*+,;=:]+')";

/// Requires a domain, a slash and a path, as in `acme.io/foo`.
pub(super) fn validate_domain_prefixed_path(
    field: &str,
    value: &str,
    errors: &mut Vec<FieldError>,
) {
    if value.is_empty() {
        errors.push(FieldError::required(field, ""));
        return;
    }
    let parts = value.split_once('/');
    let Some((domain, path)) = parts.filter(|(d, p)| !d.is_empty() && !p.is_empty()) else {
        let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        errors.push(FieldError::invalid(field, &value.into(), detail));
        return;
    };
    report_invalid(field, domain, validate_dns1123_subdomain(domain), errors);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || PATH_CHARACTERS.contains(c);
    if !path.chars().all(is_plain) {
        errors.push(FieldError::invalid(field, &path.into(), INVALID_PATH));
    }
}

/// Validates a reference to an object of the same namespace (`v1.TypedLocalObjectReference`).
pub(super) fn validate_typed_reference(
    field: &str,
    reference: &Value,
    errors: &mut Vec<FieldError>,
) {
    if let Some(group) = get(reference, "/apiGroup").as_str() {
        let result = validate_dns1123_subdomain(group);
        report_invalid(format!("{field}.apiGroup"), group, result, errors);
    }
    for name in ["kind", "name"] {
        let value = text(reference, &format!("/{name}"));
        let path = format!("{field}.{name}");
        if value.is_empty() {
            errors.push(FieldError::required(path, &format!("{name} is required")));
        } else {
            report_invalid(path, value, validate_path_segment_name(value), errors);
        }
    }
}

/// The form of the version in a reference to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ApiVersionRule {
    /// The reference names a group. ReplicationController is the only kind without a group that can
    /// be scaled.
    Group,
    GroupOptional,
    Any,
}

impl ApiVersionRule {
    /// Why the version of a reference is invalid.
    pub(super) fn error(self, reference: &Value) -> Option<String> {
        let api_version = text(reference, "/apiVersion");
        if self != Self::Any && api_version.matches('/').count() > 1 {
            return Some(format!("unexpected GroupVersion string: {api_version}"));
        }
        let has_group = !split_api_version(api_version).0.is_empty();
        (self == Self::Group && !has_group).then(|| "apiVersion must specify API group".to_owned())
    }
}

/// Validates an `autoscaling.CrossVersionObjectReference`.
pub(super) fn validate_object_reference(
    field: &str,
    reference: &Value,
    rule: ApiVersionRule,
    errors: &mut Vec<FieldError>,
) {
    for part in ["kind", "name"] {
        let path = format!("{field}.{part}");
        let value = text(reference, &format!("/{part}"));
        if value.is_empty() {
            errors.push(FieldError::required(path, ""));
        } else {
            report_invalid(path, value, validate_path_segment_name(value), errors);
        }
    }
    if let Some(detail) = rule.error(reference) {
        let api_version = text(reference, "/apiVersion");
        errors.push(FieldError::invalid(
            format!("{field}.apiVersion"),
            &api_version.into(),
            detail,
        ));
    }
}
