//! Authorizes requests by SubjectAccessReview of a webhook
//! (`--authorization-webhook-config-file`, `--authorization-config`).

use std::time::{Duration, Instant};

use machinery::{Status, UserInfo};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::match_conditions::MatchConditions;
use super::review_endpoint::ReviewEndpoint;
use crate::authorizer_metrics::AuthorizerMetrics;
use crate::authorizer_opinion::{AuthorizerOpinion, Decision};
use crate::delegated::review_cache::ReviewCache;
use crate::delegated::subject_access_review::{
    SubjectAccessReviewStatus, subject_access_review_spec,
};
use crate::rbac::AuthorizationTarget;

/// Reviews of longer attributes are not cached, as in Kubernetes.
const MAX_CACHED_ATTRIBUTE_BYTES: usize = 10_000;

/// The configuration of an authorization webhook.
pub struct WebhookAuthorizerOptions {
    /// In metrics and errors.
    pub name: String,
    /// How long a grant is cached; `None`: not at all.
    pub authorized_cache_ttl: Option<Duration>,
    pub unauthorized_cache_ttl: Option<Duration>,
    /// Whether a request is denied, or left to the next authorizer, when the review fails.
    pub deny_on_failure: bool,
    pub match_conditions: MatchConditions,
}

/// Asks a webhook.
pub struct WebhookAuthorizer {
    endpoint: ReviewEndpoint,
    options: WebhookAuthorizerOptions,
    cache: ReviewCache<AuthorizerOpinion>,
    metrics: AuthorizerMetrics,
}

impl WebhookAuthorizer {
    pub fn new(
        endpoint: ReviewEndpoint,
        options: WebhookAuthorizerOptions,
        metrics: &AuthorizerMetrics,
    ) -> Self {
        Self {
            endpoint,
            cache: ReviewCache::default(),
            metrics: metrics.clone(),
            options,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.options.name
    }

    pub(crate) async fn authorize(
        &self,
        user: &UserInfo,
        verb: &str,
        target: AuthorizationTarget<'_>,
    ) -> AuthorizerOpinion {
        let spec = subject_access_review_spec(user, verb, target);
        match self.matches(&spec) {
            Ok(true) => {}
            Ok(false) => return AuthorizerOpinion::default(),
            Err(message) => return self.failed(message),
        }
        let text = spec.to_string();
        let key = Sha256::digest(&text).into();
        let is_cached = text.len() <= MAX_CACHED_ATTRIBUTE_BYTES;
        let review = self.review(spec, is_cached);
        match self.cache.get_or_review(key, review).await {
            Ok(opinion) => opinion,
            Err(status) => self.failed(status.message),
        }
    }

    fn matches(&self, spec: &Value) -> Result<bool, String> {
        let conditions = &self.options.match_conditions;
        if conditions.is_empty() {
            return Ok(true);
        }
        let start = Instant::now();
        let result = conditions.matches(spec);
        self.metrics
            .observe_match_conditions(self.name(), start.elapsed(), &result);
        result
    }

    fn failed(&self, error: String) -> AuthorizerOpinion {
        AuthorizerOpinion {
            decision: match self.options.deny_on_failure {
                true => Decision::Deny,
                false => Decision::NoOpinion,
            },
            reason: String::new(),
            error,
        }
    }

    /// Asks the webhook; the duration is how long the opinion is cached.
    async fn review(
        &self,
        spec: Value,
        is_cached: bool,
    ) -> Result<(AuthorizerOpinion, Duration), Status> {
        let body = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "metadata": {"creationTimestamp": null}, "spec": spec, "status": {"allowed": false}});
        let record = |result, duration| self.metrics.observe_webhook(self.name(), result, duration);
        let status = match self.endpoint.review(&body, record).await {
            Ok(status) => status,
            Err(failure) => {
                if !self.options.deny_on_failure {
                    let result = if failure.is_timeout {
                        "timeout"
                    } else {
                        "error"
                    };
                    self.metrics.count_fail_open(self.name(), result);
                }
                let name = self.name();
                tracing::warn!(
                    name,
                    error = failure.message,
                    "an authorization webhook failed"
                );
                return Err(Status::internal(failure.message));
            }
        };
        let review: SubjectAccessReviewStatus = match status {
            Value::Null => SubjectAccessReviewStatus::default(),
            status => serde_json::from_value(status).map_err(Status::internal)?,
        };
        let (decision, error) = match (review.allowed, review.denied) {
            (true, true) => (
                Decision::Deny,
                "webhook subject access review returned both allow and deny response".to_owned(),
            ),
            (false, true) => (Decision::Deny, String::new()),
            (true, false) => (Decision::Allow, String::new()),
            (false, false) => (Decision::NoOpinion, String::new()),
        };
        let ttl = match review.allowed {
            true => self.options.authorized_cache_ttl,
            false => self.options.unauthorized_cache_ttl,
        };
        let opinion = AuthorizerOpinion {
            decision,
            reason: review.reason,
            error,
        };
        Ok((opinion, ttl.filter(|_| is_cached).unwrap_or_default()))
    }
}
