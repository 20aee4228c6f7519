//! The approval of CustomResourceDefinitions in groups of the Kubernetes project, by the
//! annotation `api-approved.kubernetes.io` (`apiextensions-apiserver/pkg/apihelpers`).

use serde_json::Value;

/// The annotation with the URL of the approval, or with the reason why there is none.
pub const API_APPROVED_ANNOTATION: &str = "api-approved.kubernetes.io";

/// The annotation of a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiApproval {
    Missing,
    /// It begins with `unapproved`.
    Bypassed,
    /// It is a URL.
    Approved,
    Invalid,
}

/// Whether a group belongs to the Kubernetes project.
pub fn is_protected_community_group(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"].iter().any(|domain| {
        let rest = group.strip_suffix(domain);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

impl ApiApproval {
    /// The approval of a definition.
    pub fn of(definition: &Value) -> Self {
        match annotation(definition) {
            "" => Self::Missing,
            text if text.starts_with("unapproved") => Self::Bypassed,
            text if is_absolute_url(text) => Self::Approved,
            _ => Self::Invalid,
        }
    }

    /// Kubernetes' sentence about the approval of a definition.
    pub fn message(self, definition: &Value) -> String {
        const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
        let required =
            format!("protected groups must have approval annotation {API_APPROVED_ANNOTATION:?}");
        let text = annotation(definition);
        match self {
            Self::Missing => format!("{required}, {SEE}"),
            Self::Bypassed => format!("not approved: {text:?}"),
            Self::Approved => format!("approved in {text}"),
            Self::Invalid => format!(
                "{required} with either a URL or a reason starting with \"unapproved\", {SEE}"
            ),
        }
    }

    /// The status and reason of the condition `KubernetesAPIApprovalPolicyConformant`.
    pub fn condition(self) -> (bool, &'static str) {
        match self {
            Self::Missing => (false, "MissingAnnotation"),
            Self::Bypassed => (false, "UnapprovedAnnotation"),
            Self::Approved => (true, "ApprovedAnnotation"),
            Self::Invalid => (false, "InvalidAnnotation"),
        }
    }
}

fn annotation(definition: &Value) -> &str {
    let value = &definition["metadata"]["annotations"][API_APPROVED_ANNOTATION];
    value.as_str().unwrap_or("")
}

/// Whether a text has a scheme and a host.
fn is_absolute_url(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else {
        return false;
    };
    let host = rest.split(['/', '?', '#']).next().unwrap_or("");
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"+-.".contains(&b);
    let begins_with_letter = scheme
        .bytes()
        .next()
        .is_some_and(|b| b.is_ascii_alphabetic());
    let has_controls = text.bytes().any(|b| b.is_ascii_control());
    begins_with_letter
        && scheme.bytes().all(is_plain)
        && !host.is_empty()
        && !host.contains(' ')
        && !has_controls
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn groups_of_the_project_are_protected() {
        for (group, expected) in [
            ("k8s.io", true),
            ("gateway.networking.k8s.io", true),
            ("x.kubernetes.io", true),
            ("notk8s.io", false),
            ("k8s.io.example.com", false),
            ("example.com", false),
        ] {
            assert_eq!(is_protected_community_group(group), expected, "{group}");
        }
    }

    #[test]
    fn the_annotation_determines_the_approval() {
        for (text, expected) in [
            (None, ApiApproval::Missing),
            (Some(""), ApiApproval::Missing),
            (Some("unapproved, experimental"), ApiApproval::Bypassed),
            (
                Some("https://github.com/kubernetes/pull/1"),
                ApiApproval::Approved,
            ),
            (Some("yes"), ApiApproval::Invalid),
            (Some("https:///path"), ApiApproval::Invalid),
        ] {
            let definition = json!({"metadata": {"annotations": {API_APPROVED_ANNOTATION: text}}});
            assert_eq!(ApiApproval::of(&definition), expected, "{text:?}");
        }
    }
}
