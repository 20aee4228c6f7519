//! One rule of a role, and the combined rules of a user.

use serde::{Deserialize, Serialize};

use super::Target;

const ALL: &str = "*";

/// PolicyRule of `rbac.authorization.k8s.io`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    pub verbs: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    pub non_resource_urls: Vec<String>,
}

fn holds(list: &[String], value: &str) -> bool {
    list.iter().any(|x| x == ALL || x == value)
}

impl Rule {
    /// Whether the rule allows `verb` on `target`
    /// (`pkg/apis/rbac/v1/evaluation_helpers.go`).
    pub fn covers(&self, verb: &str, target: Target<'_>) -> bool {
        if !holds(&self.verbs, verb) {
            return false;
        }
        match target {
            Target::Path(path) => self.non_resource_urls.iter().any(|url| {
                url == path
                    || url
                        .strip_suffix('*')
                        .is_some_and(|prefix| path.starts_with(prefix))
            }),
            Target::Resource {
                group,
                resource,
                subresource,
                name,
                ..
            } => {
                holds(&self.api_groups, group)
                    && self
                        .resources
                        .iter()
                        .any(|r| names(r, resource, subresource))
                    && (self.resource_names.is_empty()
                        || self.resource_names.iter().any(|n| n == name))
            }
        }
    }
}

fn names(rule: &str, resource: &str, subresource: &str) -> bool {
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
pub struct Rules {
    pub resources: Vec<Rule>,
    pub paths: Vec<Rule>,
}

impl Rules {
    pub(super) fn everything() -> Self {
        let all = || vec![ALL.to_owned()];
        Self {
            resources: vec![Rule {
                verbs: all(),
                api_groups: all(),
                resources: all(),
                ..Rule::default()
            }],
            paths: vec![Rule {
                verbs: all(),
                non_resource_urls: all(),
                ..Rule::default()
            }],
        }
    }

    pub(super) fn add(&mut self, rule: &Rule) {
        let list = if rule.resources.is_empty() {
            &mut self.paths
        } else {
            &mut self.resources
        };
        if !list.contains(rule) {
            list.push(rule.clone());
        }
    }
}
