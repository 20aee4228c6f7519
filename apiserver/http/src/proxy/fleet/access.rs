//! Decides in which members a user may make a request.
//!
//! It takes what the cluster proxy takes: the right to `clusters/proxy` here, and the right to the
//! request in the member, which says so itself when it is asked as the user
//! (SelfSubjectAccessReview). A member that does not answer gives no right.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use auth::RequestAuthorizer;
use auth::rbac::{AuthorizationSelectors, AuthorizationTarget};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use http::uri::PathAndQuery;
use http::{Method, StatusCode};
use karmada_api::resources::CLUSTERS;
use machinery::{Status, UserInfo};
use serde::Deserialize;
use serde_json::json;

use super::decision_cache::{AccessAttributes, DecisionCache, MemberDecision, decision_key};
use super::member_call::MemberCall;
use crate::proxy::ClusterProxy;

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
/// Members that are asked at once for one request.
const MAX_CONCURRENT_REVIEWS: usize = 64;

/// Decides on requests of users, and remembers what members said for some seconds.
pub(super) struct FleetAccess {
    clusters: Arc<ClusterProxy>,
    authorizer: RequestAuthorizer,
    decisions: DecisionCache,
}

/// The members in which a user may make a request, and the others.
#[derive(Debug, Default)]
pub(super) struct AllowedMembers {
    pub(super) allowed: BTreeSet<String>,
    pub(super) denied: BTreeSet<String>,
    /// The members that could not be asked, and why.
    pub(super) unknown: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct AccessReview {
    #[serde(default)]
    status: AccessReviewStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AccessReviewStatus {
    allowed: bool,
    denied: bool,
}

impl FleetAccess {
    pub(super) fn new(clusters: Arc<ClusterProxy>, authorizer: RequestAuthorizer) -> Self {
        Self {
            clusters,
            authorizer,
            decisions: DecisionCache::default(),
        }
    }

    /// 403 if the user may not send such a request through the proxy of a cluster.
    pub(super) async fn authorize_proxy(
        &self,
        user: &UserInfo,
        verb: &str,
        cluster: &str,
    ) -> Result<(), Status> {
        let target = AuthorizationTarget::Resource {
            group: &CLUSTERS.group,
            version: &CLUSTERS.version,
            resource: &CLUSTERS.resource,
            subresource: "proxy",
            namespace: "",
            name: cluster,
            selectors: AuthorizationSelectors::default(),
        };
        self.authorizer.authorize(user, verb, target).await
    }

    /// The clusters of which the user may know: through whose proxy he may read.
    pub(super) async fn visible(&self, user: &UserInfo, clusters: Vec<String>) -> BTreeSet<String> {
        let mut visible = BTreeSet::new();
        for cluster in clusters {
            let decision = self.authorize_proxy(user, "get", &cluster).await;
            if decision.is_ok() {
                visible.insert(cluster);
            }
        }
        visible
    }

    /// Asks members through whose proxy the user may read.
    pub(super) async fn authorize(
        &self,
        user: &UserInfo,
        attributes: AccessAttributes<'_>,
        clusters: BTreeSet<String>,
    ) -> AllowedMembers {
        let decisions = stream::iter(clusters).map(|cluster| async move {
            let decision = self.authorize_in(user, &attributes, &cluster).await;
            (cluster, decision)
        });
        let mut decisions = decisions.buffer_unordered(MAX_CONCURRENT_REVIEWS);
        let mut members = AllowedMembers::default();
        while let Some((cluster, decision)) = decisions.next().await {
            match decision {
                MemberDecision::Allowed => _ = members.allowed.insert(cluster),
                MemberDecision::Denied => _ = members.denied.insert(cluster),
                MemberDecision::Unknown(reason) => _ = members.unknown.insert(cluster, reason),
            }
        }
        members
    }

    async fn authorize_in(
        &self,
        user: &UserInfo,
        attributes: &AccessAttributes<'_>,
        cluster: &str,
    ) -> MemberDecision {
        let key = decision_key(cluster, user, attributes);
        if let Some(decision) = self.decisions.get(&key) {
            return decision;
        }
        let decision = self.review(user, attributes, cluster).await;
        self.decisions.insert(key, decision.clone());
        decision
    }

    async fn review(
        &self,
        user: &UserInfo,
        attributes: &AccessAttributes<'_>,
        cluster: &str,
    ) -> MemberDecision {
        let AccessAttributes {
            verb,
            group,
            version,
            resource,
            namespace,
            name,
        } = attributes;
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": verb, "group": group, "version": version,
                "resource": resource, "namespace": namespace, "name": name}}});
        let call = MemberCall {
            method: Method::POST,
            path: PathAndQuery::from_static(REVIEWS),
            body: Bytes::from(review.to_string()),
        };
        match self.clusters.call_member(cluster, user, call).await {
            Ok((code, body)) => decision_of(code, &body),
            Err(reason) => MemberDecision::Unknown(reason),
        }
    }
}

/// The decision in a member's answer. A user whom the member does not even let ask has no right; any
/// other failure is none of the user's.
fn decision_of(code: StatusCode, body: &[u8]) -> MemberDecision {
    match code {
        StatusCode::OK | StatusCode::CREATED => {
            match machinery::json::from_slice::<AccessReview>(body) {
                Ok(review) if review.status.allowed && !review.status.denied => {
                    MemberDecision::Allowed
                }
                Ok(_) => MemberDecision::Denied,
                Err(_) => MemberDecision::Unknown("its answer cannot be read".to_owned()),
            }
        }
        StatusCode::FORBIDDEN => MemberDecision::Denied,
        code => MemberDecision::Unknown(format!("it answered with {code}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: FLV-decisions
    #[test]
    fn only_a_clear_answer_gives_a_right() {
        let unknown = |text: &str| MemberDecision::Unknown(text.to_owned());
        for (code, body, expected) in [
            (
                201,
                r#"{"status":{"allowed":true}}"#,
                MemberDecision::Allowed,
            ),
            (
                200,
                r#"{"status":{"allowed":true}}"#,
                MemberDecision::Allowed,
            ),
            (
                201,
                r#"{"status":{"allowed":false}}"#,
                MemberDecision::Denied,
            ),
            (
                201,
                r#"{"status":{"allowed":true,"denied":true}}"#,
                MemberDecision::Denied,
            ),
            (201, "{}", MemberDecision::Denied),
            (201, "<html>", unknown("its answer cannot be read")),
            (
                201,
                r#"{"status":{"allowed":"true"}}"#,
                unknown("its answer cannot be read"),
            ),
            (403, "", MemberDecision::Denied),
            (
                302,
                r#"{"status":{"allowed":true}}"#,
                unknown("it answered with 302 Found"),
            ),
            (401, "", unknown("it answered with 401 Unauthorized")),
        ] {
            let decision = decision_of(StatusCode::from_u16(code).unwrap(), body.as_bytes());
            assert_eq!(decision, expected, "{code} {body}");
        }
    }
}
