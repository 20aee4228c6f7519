//! FlowSchemas and PriorityLevelConfigurations: which requests form a flow, and the level
//! of a flow (flowcontrol.apiserver.k8s.io/v1).

use std::cmp::Ordering;
use std::sync::Arc;

use machinery::UserInfo;
use machinery::user::split_service_account_username;
use serde::Deserialize;

use super::borrowing::ConcurrencyShares;
use super::queue_set::QueuingConfig;
use super::shuffle_sharding::MAX_HAND_SIZE;
use crate::requestinfo::{RequestInfo, RequestedResource};

/// Bounds on the queues of one level, whatever its configuration says.
const MAX_QUEUES: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct ConfigMetadata {
    pub(super) name: String,
    #[serde(default)]
    pub(super) uid: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct FlowSchema {
    pub(super) metadata: ConfigMetadata,
    pub(super) spec: FlowSchemaSpec,
    #[serde(default)]
    pub(super) status: FlowSchemaStatus,
}

/// A condition of a FlowSchema's status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct FlowSchemaCondition {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) status: String,
    pub(super) reason: String,
    pub(super) message: String,
}

/// The status of a FlowSchema.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct FlowSchemaStatus {
    pub(super) conditions: Vec<FlowSchemaCondition>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FlowSchemaSpec {
    pub(super) priority_level_configuration: PriorityLevelReference,
    #[serde(default = "default_precedence")]
    matching_precedence: i32,
    distinguisher_method: Option<FlowDistinguisherMethod>,
    #[serde(default)]
    rules: Vec<PolicyRulesWithSubjects>,
}

fn default_precedence() -> i32 {
    1000
}

#[derive(Debug, Deserialize)]
pub(super) struct PriorityLevelReference {
    pub(super) name: String,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type")]
enum FlowDistinguisherMethod {
    ByUser,
    ByNamespace,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PolicyRulesWithSubjects {
    #[serde(default)]
    subjects: Vec<FlowSubject>,
    #[serde(default)]
    resource_rules: Vec<ResourcePolicyRule>,
    #[serde(default)]
    non_resource_rules: Vec<NonResourcePolicyRule>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "kind")]
enum FlowSubject {
    User {
        user: SubjectName,
    },
    Group {
        group: SubjectName,
    },
    ServiceAccount {
        #[serde(rename = "serviceAccount")]
        service_account: ServiceAccountSubject,
    },
}

#[derive(Debug, Deserialize)]
struct SubjectName {
    name: String,
}

#[derive(Debug, Deserialize)]
struct ServiceAccountSubject {
    namespace: String,
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ResourcePolicyRule {
    verbs: Vec<String>,
    api_groups: Vec<String>,
    resources: Vec<String>,
    cluster_scope: bool,
    namespaces: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NonResourcePolicyRule {
    verbs: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
}

impl FlowSchema {
    pub(super) fn matches(&self, user: &UserInfo, info: &RequestInfo) -> bool {
        self.spec.rules.iter().any(|rule| {
            rule.subjects.iter().any(|subject| subject.matches(user))
                && match &info.resource {
                    Some(requested) => rule
                        .resource_rules
                        .iter()
                        .any(|r| r.matches(info.verb, requested)),
                    None => rule.non_resource_rules.iter().any(|r| r.matches(info)),
                }
        })
    }

    /// The attribute that distinguishes the flows of this schema.
    pub(super) fn distinguisher<'a>(&self, user: &'a UserInfo, info: &'a RequestInfo) -> &'a str {
        match &self.spec.distinguisher_method {
            Some(FlowDistinguisherMethod::ByUser) => &user.name,
            Some(FlowDistinguisherMethod::ByNamespace) => {
                info.resource.as_ref().map_or("", |r| &r.namespace)
            }
            None => "",
        }
    }

    /// The order in which schemas are matched.
    pub(super) fn precedence(a: &Arc<Self>, b: &Arc<Self>) -> Ordering {
        let by_number = a.spec.matching_precedence.cmp(&b.spec.matching_precedence);
        by_number.then_with(|| a.metadata.name.cmp(&b.metadata.name))
    }
}

impl FlowSubject {
    fn matches(&self, user: &UserInfo) -> bool {
        match self {
            Self::User { user: subject } => subject.name == "*" || subject.name == user.name,
            Self::Group { group } => group.name == "*" || user.in_group(&group.name),
            Self::ServiceAccount { service_account } => split_service_account_username(&user.name)
                .is_some_and(|(namespace, name)| {
                    namespace == service_account.namespace
                        && (service_account.name == "*" || service_account.name == name)
                }),
        }
    }
}

impl ResourcePolicyRule {
    fn matches(&self, verb: &str, requested: &RequestedResource) -> bool {
        let resource = match &*requested.subresource {
            "" => contains(&self.resources, &requested.resource),
            subresource => {
                let combined = format!("{}/{subresource}", requested.resource);
                contains(&self.resources, &combined)
            }
        };
        let scope = match &*requested.namespace {
            "" => self.cluster_scope,
            namespace => contains(&self.namespaces, namespace),
        };
        resource
            && scope
            && contains(&self.verbs, verb)
            && contains(&self.api_groups, &requested.group)
    }
}

impl NonResourcePolicyRule {
    /// A path matches itself and, as in kube-apiserver, the paths below it.
    fn matches(&self, info: &RequestInfo) -> bool {
        let matches_path = |pattern: &String| {
            let prefix = pattern.strip_suffix('*').unwrap_or(pattern);
            let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
            let subpath = info.path.strip_prefix(prefix);
            pattern == "*" || *pattern == info.path || subpath.is_some_and(|b| b.starts_with('/'))
        };
        contains(&self.verbs, info.verb) && self.non_resource_urls.iter().any(matches_path)
    }
}

fn contains(list: &[String], text: &str) -> bool {
    list.iter().any(|entry| entry == "*" || entry == text)
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct PriorityLevelConfiguration {
    pub(super) metadata: ConfigMetadata,
    spec: PriorityLevelConfigurationSpec,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "type")]
enum PriorityLevelConfigurationSpec {
    Exempt {
        #[serde(default)]
        exempt: ExemptPriorityLevel,
    },
    Limited {
        limited: LimitedPriorityLevel,
    },
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ExemptPriorityLevel {
    nominal_concurrency_shares: u32,
    lendable_percent: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LimitedPriorityLevel {
    #[serde(default = "default_shares")]
    nominal_concurrency_shares: u32,
    #[serde(default)]
    lendable_percent: u32,
    borrowing_limit_percent: Option<u32>,
    limit_response: LimitResponse,
}

fn default_shares() -> u32 {
    30
}

#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "type")]
enum LimitResponse {
    Reject,
    Queue {
        #[serde(default)]
        queuing: LimitResponseQueuing,
    },
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LimitResponseQueuing {
    queues: usize,
    hand_size: usize,
    queue_length_limit: usize,
}

impl Default for LimitResponseQueuing {
    fn default() -> Self {
        Self {
            queues: 64,
            hand_size: 8,
            queue_length_limit: 50,
        }
    }
}

impl PriorityLevelConfiguration {
    pub(super) fn shares(&self) -> ConcurrencyShares {
        match &self.spec {
            PriorityLevelConfigurationSpec::Exempt { exempt } => ConcurrencyShares {
                nominal_shares: exempt.nominal_concurrency_shares,
                lendable_percent: exempt.lendable_percent.min(100),
                borrowing_limit_percent: None,
                is_exempt: true,
            },
            PriorityLevelConfigurationSpec::Limited { limited } => ConcurrencyShares {
                nominal_shares: limited.nominal_concurrency_shares,
                lendable_percent: limited.lendable_percent.min(100),
                borrowing_limit_percent: limited.borrowing_limit_percent,
                is_exempt: false,
            },
        }
    }

    pub(super) fn queuing(&self) -> Option<QueuingConfig> {
        let PriorityLevelConfigurationSpec::Limited { limited } = &self.spec else {
            return None;
        };
        match &limited.limit_response {
            LimitResponse::Reject => None,
            LimitResponse::Queue { queuing } => Some(QueuingConfig {
                queues: queuing.queues.clamp(1, MAX_QUEUES),
                hand_size: queuing.hand_size.clamp(1, MAX_HAND_SIZE),
                queue_length_limit: queuing.queue_length_limit,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requestinfo::{QueryParams, parse_request};
    use http::Method;
    use serde_json::json;

    fn schema(rule: serde_json::Value) -> FlowSchema {
        let rule = json!({"metadata": {"name": "s"}, "spec": {
            "priorityLevelConfiguration": {"name": "l"}, "distinguisherMethod": {"type": "ByNamespace"},
            "rules": [rule]}});
        serde_json::from_value(rule).unwrap()
    }

    #[test]
    fn schemas_match_subjects_and_requests() {
        let resources = json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "pods/log"],
                                "namespaces": ["a"]}]);
        let cluster =
            json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true}]);
        let paths = json!([{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/metrics/*"]}]);
        let ann = json!({"kind": "User", "user": {"name": "ann"}});
        let account =
            json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": "a", "name": "*"}});
        let group = json!({"kind": "Group", "group": {"name": "g"}});
        let pods = "/api/v1/namespaces/a/pods";
        for (subject, rules, user, path, expected) in [
            (&ann, &resources, "ann", pods, true),
            (&ann, &resources, "bob", pods, false),
            (&group, &resources, "bob", pods, true),
            (
                &account,
                &resources,
                "system:serviceaccount:a:x",
                pods,
                true,
            ),
            (
                &account,
                &resources,
                "system:serviceaccount:b:x",
                pods,
                false,
            ),
            (&ann, &resources, "ann", "/api/v1/namespaces/b/pods", false),
            (&ann, &resources, "ann", "/api/v1/pods", false),
            (
                &ann,
                &resources,
                "ann",
                "/api/v1/namespaces/a/pods/p/log",
                true,
            ),
            (
                &ann,
                &resources,
                "ann",
                "/api/v1/namespaces/a/pods/p/status",
                false,
            ),
            (&ann, &cluster, "ann", "/api/v1/nodes", true),
            (&ann, &cluster, "ann", pods, false),
        ] {
            let schema = schema(json!({"subjects": [subject], "resourceRules": rules}));
            let info = parse_request(&Method::GET, path, &QueryParams::parse(None)).unwrap();
            let user = UserInfo {
                name: user.into(),
                groups: vec!["g".into()],
                ..UserInfo::default()
            };
            assert_eq!(schema.matches(&user, &info), expected, "{subject} {path}");
            let namespace = info.resource.as_ref().map_or("", |r| &r.namespace);
            assert_eq!(schema.distinguisher(&user, &info), namespace);
        }
        let schema = schema(json!({"subjects": [group], "nonResourceRules": paths}));
        let user = UserInfo {
            groups: vec!["g".into()],
            ..UserInfo::default()
        };
        for (path, expected) in [
            ("/healthz", true),
            ("/healthz/ping", true),
            ("/healthzz", false),
            ("/metrics/slis", true),
            ("/version", false),
        ] {
            let info = parse_request(&Method::GET, path, &QueryParams::parse(None)).unwrap();
            assert_eq!(schema.matches(&user, &info), expected, "{path}");
        }
    }
}
