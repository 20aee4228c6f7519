//! One rule of a role, and the combined rules of a user.

use serde::{Deserialize, Deserializer, Serialize};

use super::attributes::AuthorizationTarget;

pub(super) const ALL: &str = "*";

/// PolicyRule of `rbac.authorization.k8s.io`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyRule {
    #[serde(deserialize_with = "null_or_list")]
    pub verbs: Vec<String>,
    #[serde(deserialize_with = "null_or_list")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    #[serde(deserialize_with = "null_or_list")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    #[serde(deserialize_with = "null_or_list")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    #[serde(deserialize_with = "null_or_list")]
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    pub non_resource_urls: Vec<String>,
}

/// A list that a client may send as null, as Go encodes a nil slice.
fn null_or_list<'de, D: Deserializer<'de>>(decoder: D) -> Result<Vec<String>, D::Error> {
    Ok(Option::deserialize(decoder)?.unwrap_or_default())
}

fn matches_any(list: &[String], value: &str) -> bool {
    list.iter().any(|x| x == ALL || x == value)
}

impl PolicyRule {
    /// The rules of a user who may do everything.
    pub(crate) fn everything() -> [Self; 2] {
        let all = || vec![ALL.to_owned()];
        [
            Self {
                verbs: all(),
                api_groups: all(),
                resources: all(),
                ..Self::default()
            },
            Self {
                verbs: all(),
                non_resource_urls: all(),
                ..Self::default()
            },
        ]
    }

    /// Whether the rule allows `verb` on `target`
    /// (`pkg/apis/rbac/v1/evaluation_helpers.go`).
    pub fn allows(&self, verb: &str, target: AuthorizationTarget<'_>) -> bool {
        if !matches_any(&self.verbs, verb) {
            return false;
        }
        match target {
            AuthorizationTarget::NonResource(path) => self.non_resource_urls.iter().any(|url| {
                url == path
                    || url
                        .strip_suffix('*')
                        .is_some_and(|prefix| path.starts_with(prefix))
            }),
            AuthorizationTarget::Resource {
                group,
                resource,
                subresource,
                name,
                ..
            } => {
                matches_any(&self.api_groups, group)
                    && self
                        .resources
                        .iter()
                        .any(|r| matches_resource(r, resource, subresource))
                    && (self.resource_names.is_empty()
                        || self.resource_names.iter().any(|n| n == name))
            }
        }
    }
}

fn matches_resource(rule: &str, resource: &str, subresource: &str) -> bool {
    if rule == ALL {
        return true;
    }
    match rule.split_once('/') {
        None => subresource.is_empty() && rule == resource,
        Some((r, s)) => !subresource.is_empty() && s == subresource && (r == ALL || r == resource),
    }
}

/// The rules of a user, as SelfSubjectRulesReview reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubjectRules {
    pub resource_rules: Vec<PolicyRule>,
    pub non_resource_rules: Vec<PolicyRule>,
}

impl SubjectRules {
    pub(crate) fn all_access() -> Self {
        let [resources, urls] = PolicyRule::everything();
        Self {
            resource_rules: vec![resources],
            non_resource_rules: vec![urls],
        }
    }

    /// Adds the rules of another authorizer.
    pub(crate) fn extend(&mut self, other: Self) {
        for rule in other.resource_rules.iter().chain(&other.non_resource_rules) {
            self.add(rule);
        }
    }

    pub(crate) fn add(&mut self, rule: &PolicyRule) {
        let list = if rule.resources.is_empty() {
            &mut self.non_resource_rules
        } else {
            &mut self.resource_rules
        };
        if !list.contains(rule) {
            list.push(rule.clone());
        }
    }
}
