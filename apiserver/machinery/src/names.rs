//! Names of kinds and resources ([`Gvk`], [`Gvr`]), and validation of the names, labels
//! and annotation keys of objects.

use std::borrow::Cow;
use std::fmt;

/// Group, version and plural resource name, as in a request path.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gvr {
    pub group: Cow<'static, str>,
    pub version: Cow<'static, str>,
    pub resource: Cow<'static, str>,
}

/// Group, version and kind, as in `apiVersion` and `kind` of a manifest.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gvk {
    pub group: Cow<'static, str>,
    pub version: Cow<'static, str>,
    pub kind: Cow<'static, str>,
}

impl Gvr {
    /// A resource known at compile time.
    pub const fn from_static(
        group: &'static str,
        version: &'static str,
        resource: &'static str,
    ) -> Self {
        Self {
            group: Cow::Borrowed(group),
            version: Cow::Borrowed(version),
            resource: Cow::Borrowed(resource),
        }
    }

    /// A resource named at run time.
    pub fn new(
        group: impl Into<String>,
        version: impl Into<String>,
        resource: impl Into<String>,
    ) -> Self {
        Self {
            group: Cow::Owned(group.into()),
            version: Cow::Owned(version.into()),
            resource: Cow::Owned(resource.into()),
        }
    }

    /// `group/version`, or `version` in the core group.
    pub fn api_version(&self) -> String {
        join_api_version(&self.group, &self.version)
    }

    /// `resource.group`, or `resource` in the core group, as error texts name it.
    pub fn group_resource(&self) -> String {
        join_group(&self.resource, &self.group)
    }

    /// The kind `kind` in the group and version of this resource.
    pub fn with_kind(&self, kind: impl Into<String>) -> Gvk {
        Gvk {
            group: self.group.clone(),
            version: self.version.clone(),
            kind: Cow::Owned(kind.into()),
        }
    }
}

impl Gvk {
    /// A kind known at compile time.
    pub const fn from_static(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
    ) -> Self {
        Self {
            group: Cow::Borrowed(group),
            version: Cow::Borrowed(version),
            kind: Cow::Borrowed(kind),
        }
    }

    /// A kind named at run time.
    pub fn new(
        group: impl Into<String>,
        version: impl Into<String>,
        kind: impl Into<String>,
    ) -> Self {
        Self {
            group: Cow::Owned(group.into()),
            version: Cow::Owned(version.into()),
            kind: Cow::Owned(kind.into()),
        }
    }

    /// Splits `apiVersion` at its slash; without one the group is the core group.
    pub fn from_api_version(api_version: &str, kind: &str) -> Self {
        let (group, version) = split_api_version(api_version);
        Self::new(group, version, kind)
    }

    /// `group/version`, or `version` in the core group.
    pub fn api_version(&self) -> String {
        join_api_version(&self.group, &self.version)
    }
}

impl fmt::Display for Gvr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.api_version(), self.resource)
    }
}

impl fmt::Display for Gvk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, Kind={}", self.api_version(), self.kind)
    }
}

/// `group/version` → (group, version); `version` alone is the core group.
pub fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// (group, version) → `group/version`, or `version` in the core group.
pub fn join_api_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

/// `name.group`, or `name` in the core group.
pub fn join_group(name: &str, group: &str) -> String {
    if group.is_empty() {
        name.to_owned()
    } else {
        format!("{name}.{group}")
    }
}

const LABEL_MAX_LENGTH: usize = 63;
const SUBDOMAIN_MAX_LENGTH: usize = 253;

fn is_lower_alphanumeric(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

fn is_dns_label(s: &str) -> bool {
    let bytes = s.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => {
            is_lower_alphanumeric(*first)
                && is_lower_alphanumeric(*last)
                && bytes
                    .iter()
                    .all(|b| is_lower_alphanumeric(*b) || *b == b'-')
        }
        _ => false,
    }
}

/// Validates a DNS-1123 label (RFC 1123, at most 63 characters). The error is the
/// text of `apimachinery/pkg/util/validation`.
pub fn validate_dns1123_label(s: &str) -> Result<(), String> {
    if s.len() > LABEL_MAX_LENGTH {
        return Err(format!(
            "must be no more than {LABEL_MAX_LENGTH} characters"
        ));
    }
    if is_dns_label(s) {
        return Ok(());
    }
    if s.split('.').all(is_dns_label) {
        return Err("must not contain dots".into());
    }
    Err("a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')".into())
}

/// Validates a DNS-1123 subdomain (at most 253 characters).
pub fn validate_dns1123_subdomain(s: &str) -> Result<(), String> {
    if s.len() > SUBDOMAIN_MAX_LENGTH {
        return Err(format!(
            "must be no more than {SUBDOMAIN_MAX_LENGTH} characters"
        ));
    }
    if s.split('.').all(is_dns_label) {
        return Ok(());
    }
    Err("a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')".into())
}

/// Validates a DNS-1035 label: a DNS-1123 label that starts with a letter.
pub fn validate_dns1035_label(s: &str) -> Result<(), String> {
    if s.len() > LABEL_MAX_LENGTH {
        return Err(format!(
            "must be no more than {LABEL_MAX_LENGTH} characters"
        ));
    }
    if is_dns_label(s) && s.as_bytes().first().is_some_and(u8::is_ascii_lowercase) {
        return Ok(());
    }
    Err("a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')".into())
}

/// Validates a name that only has to fit into one URL path segment, such as the names of
/// RBAC objects (`path.IsValidPathSegmentName`).
pub fn validate_path_segment_name(s: &str) -> Result<(), String> {
    match s {
        "." | ".." => Err(format!("may not be '{s}'")),
        _ if s.contains('/') => Err("may not contain '/'".into()),
        _ if s.contains('%') => Err("may not contain '%'".into()),
        _ => Ok(()),
    }
}

const QUALIFIED_NAME_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

fn is_qualified_name_part(s: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = s.as_bytes();
    edge(bytes.first())
        && edge(bytes.last())
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
}

/// Validates a label or annotation key: an optional DNS prefix, a slash, and a name
/// of at most 63 characters.
pub fn validate_qualified_name(s: &str) -> Result<(), String> {
    if s.split('/').nth(2).is_some() {
        return Err(format!(
            "a valid label key {QUALIFIED_NAME_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ));
    }
    let name = match s.split_once('/') {
        Some((prefix, name)) => {
            if prefix.is_empty() {
                return Err("prefix part must be non-empty".into());
            }
            validate_dns1123_subdomain(prefix).map_err(|e| format!("prefix part {e}"))?;
            name
        }
        None => s,
    };
    if name.is_empty() {
        return Err("name part must be non-empty".into());
    }
    if name.len() > LABEL_MAX_LENGTH {
        return Err(format!(
            "name part must be no more than {LABEL_MAX_LENGTH} characters"
        ));
    }
    if is_qualified_name_part(name) {
        return Ok(());
    }
    Err(format!("name part {QUALIFIED_NAME_RULE}"))
}

/// Validates the value of a label: empty, or at most 63 characters of a qualified
/// name without prefix.
pub fn validate_label_value(s: &str) -> Result<(), String> {
    if s.len() > LABEL_MAX_LENGTH {
        return Err(format!(
            "must be no more than {LABEL_MAX_LENGTH} characters"
        ));
    }
    if s.is_empty() || is_qualified_name_part(s) {
        return Ok(());
    }
    Err("a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_validated_as_in_kubernetes() {
        type Check = fn(&str) -> Result<(), String>;
        let table: &[(Check, &str, bool)] = &[
            (validate_dns1123_label, "a", true),
            (validate_dns1123_label, "a-b", true),
            (validate_dns1123_label, "-a", false),
            (validate_dns1123_label, "a.b", false),
            (validate_dns1123_label, "", false),
            (validate_dns1123_subdomain, "a.b-c", true),
            (validate_dns1123_subdomain, "a..b", false),
            (validate_dns1035_label, "1a", false),
            (validate_dns1035_label, "a1", true),
            (validate_path_segment_name, "system:foo", true),
            (validate_path_segment_name, "a/b", false),
            (validate_qualified_name, "karmada.io/managed", true),
            (validate_qualified_name, "/x", false),
            (validate_qualified_name, "a/b/c", false),
            (validate_label_value, "", true),
            (validate_label_value, "a b", false),
        ];
        for (validate, text, valid) in table {
            assert_eq!(validate(text).is_ok(), *valid, "{text:?}");
        }
    }

    #[test]
    fn api_version_splits_and_joins() {
        assert_eq!(split_api_version("v1"), ("", "v1"));
        assert_eq!(split_api_version("apps/v1"), ("apps", "v1"));
        assert_eq!(join_api_version("", "v1"), "v1");
        assert_eq!(
            Gvr::from_static("apps", "v1", "deployments").group_resource(),
            "deployments.apps"
        );
    }
}
