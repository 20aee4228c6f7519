//! Authorizes requests by SubjectAccessReview (contract D3.2, D3.3).

use std::sync::Arc;
use std::time::Duration;

use client::Api;
use machinery::selector::{FieldSelector, LabelSelector, SelectorOperator};
use machinery::user::SYSTEM_PRIVILEGED_GROUP;
use machinery::{Gvr, Status, UserInfo};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::options::DelegatedAuthOptions;
use super::review_cache::ReviewCache;
use super::review_client;
use crate::rbac::{AuthorizationTarget, AuthorizerDecision, always_allowed};

static REVIEWS: Gvr = Gvr::from_static("authorization.k8s.io", "v1", "subjectaccessreviews");

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SubjectAccessReviewStatus {
    pub(crate) allowed: bool,
    pub(crate) denied: bool,
    pub(crate) reason: String,
    evaluation_error: String,
}

/// Authorizes requests by SubjectAccessReview on the host.
pub struct DelegatingAuthorizer {
    host: Arc<dyn Api>,
    authorized_cache_ttl: Duration,
    unauthorized_cache_ttl: Duration,
    cache: ReviewCache<AuthorizerDecision>,
}

impl DelegatingAuthorizer {
    pub fn new(host: Arc<dyn Api>, options: &DelegatedAuthOptions) -> Arc<Self> {
        Arc::new(Self {
            host,
            authorized_cache_ttl: options.authorized_cache_ttl,
            unauthorized_cache_ttl: options.unauthorized_cache_ttl,
            cache: ReviewCache::default(),
        })
    }

    /// Fails with 500 when the review fails.
    pub(crate) async fn authorize(
        &self,
        user: &UserInfo,
        verb: &str,
        target: AuthorizationTarget<'_>,
    ) -> Result<AuthorizerDecision, Status> {
        let open = matches!(target, AuthorizationTarget::NonResource(path) if always_allowed(path));
        if open || user.in_group(SYSTEM_PRIVILEGED_GROUP) {
            return Ok(AuthorizerDecision::allowed(String::new()));
        }
        let spec = subject_access_review_spec(user, verb, target);
        let key = Sha256::digest(spec.to_string()).into();
        self.cache
            .get_or_review(key, self.create_review(spec))
            .await
    }

    async fn create_review(&self, spec: Value) -> Result<(AuthorizerDecision, Duration), Status> {
        let body = json!({"apiVersion": "authorization.k8s.io/v1",
                          "kind": "SubjectAccessReview", "metadata": {}, "spec": spec});
        let status = review_client::create_review(&*self.host, &REVIEWS, &body).await?;
        let review: SubjectAccessReviewStatus = match status {
            Value::Null => SubjectAccessReviewStatus::default(),
            status => serde_json::from_value(status).map_err(Status::internal)?,
        };
        let decision = AuthorizerDecision {
            allowed: review.allowed && !review.denied,
            denied: review.denied,
            reason: review.reason,
            evaluation_error: review.evaluation_error,
            ..AuthorizerDecision::default()
        };
        let ttl = if decision.allowed {
            self.authorized_cache_ttl
        } else {
            self.unauthorized_cache_ttl
        };
        Ok((decision, ttl))
    }
}

/// Omits empty fields, as Go's `omitempty` does.
fn non_empty_fields<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Map<String, Value> {
    let non_empty = pairs.into_iter().filter(|(_, value)| !value.is_empty());
    non_empty.map(|(k, v)| (k.into(), v.into())).collect()
}

pub(crate) fn subject_access_review_spec(
    user: &UserInfo,
    verb: &str,
    target: AuthorizationTarget<'_>,
) -> Value {
    let mut spec = non_empty_fields([("user", user.name.as_str()), ("uid", user.uid.as_str())]);
    if !user.groups.is_empty() {
        spec.insert("groups".into(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        spec.insert("extra".into(), json!(user.extra));
    }
    match target {
        AuthorizationTarget::NonResource(path) => {
            let about = non_empty_fields([("path", path), ("verb", verb)]);
            spec.insert("nonResourceAttributes".into(), about.into());
        }
        AuthorizationTarget::Resource {
            group,
            version,
            resource,
            subresource,
            namespace,
            name,
            selectors,
        } => {
            let mut about = non_empty_fields([
                ("namespace", namespace),
                ("verb", verb),
                ("group", group),
                ("version", version),
                ("resource", resource),
                ("subresource", subresource),
                ("name", name),
            ]);
            for (field, requirements) in [
                ("fieldSelector", field_requirements(selectors.fields)),
                ("labelSelector", label_requirements(selectors.labels)),
            ] {
                if !requirements.is_empty() {
                    about.insert(field.into(), json!({"requirements": requirements}));
                }
            }
            spec.insert("resourceAttributes".into(), about.into());
        }
    }
    spec.into()
}

/// The requirements of a field selector; none of one that cannot be parsed, since selectors only
/// narrow what is asked for.
fn field_requirements(selector: &str) -> Vec<Value> {
    let Ok(parsed) = FieldSelector::parse(selector) else {
        return Vec::new();
    };
    let requirements = parsed.requirements().iter().map(|requirement| {
        let operator = if requirement.equal { "In" } else { "NotIn" };
        json!({"key": requirement.field, "operator": operator, "values": [requirement.value]})
    });
    requirements.collect()
}

/// As [`field_requirements`]. Comparisons of numbers have no operator in reviews.
fn label_requirements(selector: &str) -> Vec<Value> {
    let Ok(parsed) = LabelSelector::parse(selector) else {
        return Vec::new();
    };
    let requirements = parsed.requirements().iter().filter_map(|requirement| {
        let operator = match requirement.operator {
            SelectorOperator::Equals | SelectorOperator::In => "In",
            SelectorOperator::NotEquals | SelectorOperator::NotIn => "NotIn",
            SelectorOperator::Exists => "Exists",
            SelectorOperator::DoesNotExist => "DoesNotExist",
            SelectorOperator::GreaterThan | SelectorOperator::LessThan => return None,
        };
        let mut review = json!({"key": requirement.key, "operator": operator});
        if !requirement.values.is_empty() {
            review["values"] = json!(requirement.values);
        }
        Some(review)
    });
    requirements.collect()
}
