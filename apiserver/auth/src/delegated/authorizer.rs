//! Authorizes requests by SubjectAccessReview (contract D3.2, D3.3).

use std::sync::Arc;
use std::time::Duration;

use client::Api;
use machinery::user::MASTERS;
use machinery::{Gvr, Status, UserInfo};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::Options;
use super::answers::Answers;
use super::review;
use crate::rbac::{Decision, Target, always_allowed};

static REVIEWS: Gvr = Gvr::constant("authorization.k8s.io", "v1", "subjectaccessreviews");

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Review {
    allowed: bool,
    denied: bool,
    reason: String,
    evaluation_error: String,
}

/// Authorizes requests by SubjectAccessReview on the host.
pub struct Authorizer {
    host: Arc<dyn Api>,
    allowed_ttl: Duration,
    refused_ttl: Duration,
    answers: Answers<Decision>,
}

impl Authorizer {
    pub fn new(host: Arc<dyn Api>, options: &Options) -> Arc<Self> {
        Arc::new(Self {
            host,
            allowed_ttl: options.allowed_ttl,
            refused_ttl: options.refused_ttl,
            answers: Answers::default(),
        })
    }

    /// Fails with 500 when the review fails.
    pub(crate) async fn decide(
        &self,
        user: &UserInfo,
        verb: &str,
        target: Target<'_>,
    ) -> Result<Decision, Status> {
        let open = matches!(target, Target::Path(path) if always_allowed(path));
        if open || user.in_group(MASTERS) {
            return Ok(Decision {
                allowed: true,
                reason: String::new(),
                error: String::new(),
            });
        }
        let spec = spec(user, verb, target);
        let key = Sha256::digest(spec.to_string()).into();
        self.answers.get(key, self.review(spec)).await
    }

    async fn review(&self, spec: Value) -> Result<(Decision, Duration), Status> {
        let body = json!({"apiVersion": "authorization.k8s.io/v1",
                          "kind": "SubjectAccessReview", "metadata": {}, "spec": spec});
        let status = review::ask(&*self.host, &REVIEWS, &body).await?;
        let review: Review = match status {
            Value::Null => Review::default(),
            status => serde_json::from_value(status).map_err(Status::internal)?,
        };
        let decision = Decision {
            allowed: review.allowed && !review.denied,
            reason: review.reason,
            error: review.evaluation_error,
        };
        let ttl = if decision.allowed {
            self.allowed_ttl
        } else {
            self.refused_ttl
        };
        Ok((decision, ttl))
    }
}

/// Omits empty fields, as Go's `omitempty` does.
fn fields<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Map<String, Value> {
    let non_empty = pairs.into_iter().filter(|(_, value)| !value.is_empty());
    non_empty.map(|(k, v)| (k.into(), v.into())).collect()
}

fn spec(user: &UserInfo, verb: &str, target: Target<'_>) -> Value {
    let mut spec = fields([("user", user.name.as_str()), ("uid", user.uid.as_str())]);
    if !user.groups.is_empty() {
        spec.insert("groups".into(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        spec.insert("extra".into(), json!(user.extra));
    }
    match target {
        Target::Path(path) => {
            let about = fields([("path", path), ("verb", verb)]);
            spec.insert("nonResourceAttributes".into(), about.into());
        }
        Target::Resource {
            group,
            version,
            resource,
            subresource,
            namespace,
            name,
        } => {
            let about = fields([
                ("namespace", namespace),
                ("verb", verb),
                ("group", group),
                ("version", version),
                ("resource", resource),
                ("subresource", subresource),
                ("name", name),
            ]);
            spec.insert("resourceAttributes".into(), about.into());
        }
    }
    spec.into()
}
