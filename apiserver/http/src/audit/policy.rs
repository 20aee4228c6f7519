//! The audit policy: the first rule that matches a request has its level and stages
//! (`k8s.io/apiserver/pkg/audit/policy/checker.go`).

use machinery::UserInfo;

use super::level_and_stage::{AuditLevel, AuditStage};
use crate::requestinfo::{RequestInfo, RequestedResource};

/// The level and stages that a policy requires for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestAuditConfig {
    pub(super) level: AuditLevel,
    pub(super) omit_stages: OmittedStages,
    pub(super) omit_managed_fields: bool,
}

/// A set of stages for which no event is generated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OmittedStages(u8);

impl OmittedStages {
    pub(super) fn insert(&mut self, stage: AuditStage) {
        self.0 |= 1 << stage as u8;
    }

    pub(super) fn insert_all(&mut self, other: Self) {
        self.0 |= other.0;
    }

    pub(super) fn contains(self, stage: AuditStage) -> bool {
        self.0 & (1 << stage as u8) != 0
    }
}

/// A validated policy (audit.k8s.io/v1 `Policy`).
#[derive(Debug)]
pub struct AuditPolicy {
    pub(super) rules: Vec<AuditPolicyRule>,
}

/// A rule; an empty list of users, groups or verbs matches all.
#[derive(Debug)]
pub(super) struct AuditPolicyRule {
    pub(super) config: RequestAuditConfig,
    pub(super) users: Vec<String>,
    pub(super) user_groups: Vec<String>,
    pub(super) verbs: Vec<String>,
    pub(super) resources: Vec<GroupResources>,
    pub(super) namespaces: Vec<String>,
    pub(super) non_resource_urls: Vec<String>,
}

/// Resources of a group; without resources, all of the group.
#[derive(Debug)]
pub(super) struct GroupResources {
    pub(super) group: String,
    pub(super) resources: Vec<String>,
    pub(super) resource_names: Vec<String>,
}

impl AuditPolicy {
    /// The requirement of the first matching rule; the level `None` when no rule matches.
    pub(super) fn evaluate(&self, user: &UserInfo, info: &RequestInfo) -> RequestAuditConfig {
        let rule = self.rules.iter().find(|rule| rule.matches(user, info));
        rule.map_or(
            RequestAuditConfig {
                level: AuditLevel::None,
                omit_stages: OmittedStages::default(),
                omit_managed_fields: false,
            },
            |rule| rule.config,
        )
    }
}

impl AuditPolicyRule {
    fn matches(&self, user: &UserInfo, info: &RequestInfo) -> bool {
        let includes = |list: &[String], text: &str| list.is_empty() || contains(list, text);
        if !includes(&self.users, &user.name) || !includes(&self.verbs, info.verb) {
            return false;
        }
        let in_group = |group: &String| user.groups.contains(group);
        if !self.user_groups.is_empty() && !self.user_groups.iter().any(in_group) {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return info.resource.as_ref().is_some_and(|requested| {
                includes(&self.namespaces, &requested.namespace)
                    && (self.resources.is_empty()
                        || self.resources.iter().any(|gr| gr.matches(requested)))
            });
        }
        if !self.non_resource_urls.is_empty() {
            let path_matches = |pattern: &String| url_matches(pattern, &info.path);
            return info.resource.is_none() && self.non_resource_urls.iter().any(path_matches);
        }
        true
    }
}

impl GroupResources {
    fn matches(&self, requested: &RequestedResource) -> bool {
        if self.group != requested.group {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        if !self.resource_names.is_empty() && !contains(&self.resource_names, &requested.name) {
            return false;
        }
        self.resources
            .iter()
            .any(|pattern| resource_matches(pattern, requested))
    }
}

/// Whether `pods`, `pods/log`, `pods/*`, `*/scale` or `*` matches a resource. As in
/// kube-apiserver `pods/*` matches the pods as well as their subresources.
fn resource_matches(pattern: &str, requested: &RequestedResource) -> bool {
    let (resource, subresource) = match pattern.split_once('/') {
        None if pattern == "*" => return true,
        None => (pattern, ""),
        Some(parts) => parts,
    };
    match (resource, subresource) {
        (resource, "*") => resource == requested.resource,
        ("*", subresource) => subresource == requested.subresource,
        exact => exact == (&*requested.resource, &*requested.subresource),
    }
}

fn url_matches(pattern: &str, path: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => pattern == path,
    }
}

fn contains(list: &[String], text: &str) -> bool {
    list.iter().any(|entry| entry == text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requestinfo::{QueryParams, parse_request};
    use http::Method;

    fn level(rules: &str, user: &str, group: &str, method: &Method, path: &str) -> AuditLevel {
        let text = format!("{{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{rules}]}}");
        let policy = AuditPolicy::parse(&text).unwrap();
        let user = UserInfo {
            name: user.into(),
            groups: vec![group.into()],
            ..UserInfo::default()
        };
        let info = parse_request(method, path, &QueryParams::parse(None)).unwrap();
        policy.evaluate(&user, &info).level
    }

    #[test]
    fn rules_match_users_groups_verbs_and_namespaces() {
        use AuditLevel::{Metadata, None, Request};
        const PODS: &str = "/api/v1/namespaces/a/pods";
        let rules = "{level: None, users: [ann]}, {level: Request, userGroups: [g, h], verbs: [create]}, \
                     {level: Metadata, namespaces: [a, '']}";
        for (user, group, method, path, expected) in [
            ("ann", "g", Method::POST, PODS, None),
            ("bob", "g", Method::POST, PODS, Request),
            ("bob", "h", Method::GET, PODS, Metadata),
            ("bob", "i", Method::POST, PODS, Metadata),
            ("bob", "i", Method::POST, "/api/v1/namespaces/b/pods", None),
            ("bob", "i", Method::GET, "/api/v1/nodes", Metadata),
            ("bob", "i", Method::GET, "/version", None),
            ("bob", "g", Method::POST, "/version", None),
        ] {
            let actual = level(rules, user, group, &method, path);
            assert_eq!(actual, expected, "{user} {group} {method} {path}");
        }
    }

    #[test]
    fn rules_match_resources_and_urls() {
        const POD: &str = "/api/v1/namespaces/a/pods/p";
        let matches = |rule: &str, path: &str| {
            let rule = format!("{{level: Metadata, {rule}}}");
            level(&rule, "u", "g", &Method::GET, path) == AuditLevel::Metadata
        };
        let log = &format!("{POD}/log");
        for (rule, path, expected) in [
            ("resources: [{resources: [pods]}]", POD, true),
            ("resources: [{resources: [pods]}]", log, false),
            ("resources: [{resources: [pods/log]}]", log, true),
            ("resources: [{resources: [pods/log]}]", POD, false),
            ("resources: [{resources: ['pods/*']}]", log, true),
            ("resources: [{resources: ['pods/*']}]", POD, true),
            ("resources: [{resources: ['*/log']}]", log, true),
            ("resources: [{resources: ['*/log']}]", POD, false),
            ("resources: [{resources: ['*']}]", log, true),
            ("resources: [{group: apps}]", POD, false),
            ("resources: [{group: ''}]", POD, true),
            (
                "resources: [{resources: [pods], resourceNames: [p]}]",
                POD,
                true,
            ),
            (
                "resources: [{resources: [pods], resourceNames: [q]}]",
                POD,
                false,
            ),
            (
                "resources: [{resources: [pods]}], namespaces: [b]",
                POD,
                false,
            ),
            ("resources: [{}]", "/healthz", false),
            ("nonResourceURLs: ['/healthz*']", "/healthz/ping", true),
            ("nonResourceURLs: ['/healthz']", "/healthz/ping", false),
            ("nonResourceURLs: ['*']", "/version", true),
            ("nonResourceURLs: ['*']", POD, false),
        ] {
            assert_eq!(matches(rule, path), expected, "{rule} {path}");
        }
    }
}
