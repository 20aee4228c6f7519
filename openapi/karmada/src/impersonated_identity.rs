//! The uid and the extras of users that the cluster proxy passes on to a member, as annotations
//! of its Cluster allow it. Karmada passes on neither.

use std::collections::{BTreeMap, BTreeSet};

use super::well_known_keys::{IMPERSONATE_EXTRA_KEYS, IMPERSONATE_UID};

/// The attributes of a user beside his name and groups that the impersonator of a cluster may impersonate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImpersonatedIdentity {
    pub uid: bool,
    /// In lower case, as servers read them from headers (Kubernetes
    /// `staging/src/k8s.io/apiserver/pkg/endpoints/filters/impersonation`).
    pub extra_keys: BTreeSet<String>,
}

impl ImpersonatedIdentity {
    /// Reads the annotations of a Cluster. What validation refuses is left out.
    pub fn from_annotations(annotations: &BTreeMap<String, String>) -> Self {
        let uid = annotations.get(IMPERSONATE_UID);
        let keys = annotations.get(IMPERSONATE_EXTRA_KEYS);
        let keys = keys.map_or("", String::as_str);
        Self {
            uid: uid.is_some_and(|value| value == "true"),
            extra_keys: extra_keys(keys)
                .filter(|key| validate_extra_key(key).is_ok())
                .map(str::to_owned)
                .collect(),
        }
    }
}

/// The keys in the value of the annotation.
pub fn extra_keys(value: &str) -> impl Iterator<Item = &str> {
    let keys = value.split(',').map(str::trim);
    keys.filter(move |key| !(key.is_empty() && value.trim().is_empty()))
}

/// Keys are lower case and without blanks. `*` is refused: in a role it would be every resource
/// that has the subresource.
pub fn validate_extra_key(key: &str) -> Result<(), &'static str> {
    if key.is_empty() {
        return Err("a key must not be empty");
    }
    if key.chars().any(char::is_uppercase) {
        return Err("a key must be lower case");
    }
    let is_allowed = |c: char| c.is_ascii_graphic() && c != '*';
    match key.chars().all(is_allowed) {
        true => Ok(()),
        false => Err("a key must consist of printable ASCII characters other than '*'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(pairs: &[(&str, &str)]) -> ImpersonatedIdentity {
        let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        ImpersonatedIdentity::from_annotations(&pairs.iter().map(pair).collect())
    }

    // proves: IMP-identity
    #[test]
    fn nothing_is_passed_on_unless_an_annotation_allows_it() {
        assert_eq!(identity(&[]), ImpersonatedIdentity::default());
        for (value, uid) in [("true", true), ("false", false), ("yes", false)] {
            assert_eq!(identity(&[(IMPERSONATE_UID, value)]).uid, uid, "{value}");
        }
        for (value, expected) in [
            ("", &[][..]),
            ("scopes", &["scopes"]),
            (
                "example.org/project, scopes",
                &["example.org/project", "scopes"],
            ),
            ("Scopes,*,a b,,x", &["x"]),
        ] {
            let extra_keys = identity(&[(IMPERSONATE_EXTRA_KEYS, value)]).extra_keys;
            let extra_keys: Vec<&str> = extra_keys.iter().map(String::as_str).collect();
            assert_eq!(extra_keys, expected, "{value}");
        }
    }
}
