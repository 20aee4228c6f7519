//! Asks a server which rights our user lacks, before a task begins that needs them.

use std::fmt;
use std::time::Duration;

use client::{Api, ResourcePath, WriteOptions};
use machinery::Gvr;
use serde_json::json;

static ACCESS_REVIEWS: Gvr =
    Gvr::from_static("authorization.k8s.io", "v1", "selfsubjectaccessreviews");
/// How long an answer is waited for.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

/// A right to act on a resource, in one namespace or, if that is empty, in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequiredRight<'a> {
    pub verb: &'static str,
    pub group: &'a str,
    /// With its subresource, as in `clusters/status`.
    pub resource: &'a str,
    pub namespace: &'a str,
}

impl<'a> RequiredRight<'a> {
    pub const fn new(
        verb: &'static str,
        group: &'a str,
        resource: &'a str,
        namespace: &'a str,
    ) -> Self {
        Self {
            verb,
            group,
            resource,
            namespace,
        }
    }
}

impl fmt::Display for RequiredRight<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if !self.namespace.is_empty() {
            write!(f, " in {}", self.namespace)?;
        }
        Ok(())
    }
}

/// The rights that our user lacks. A server that cannot be asked is not accused.
pub async fn missing_rights<'a, 'b>(
    api: &dyn Api,
    required: &'b [RequiredRight<'a>],
) -> Vec<&'b RequiredRight<'a>> {
    if !is_denied(api, &RequiredRight::new("*", "*", "*", "")).await {
        return Vec::new();
    }
    let reviews = required.iter().map(|right| is_denied(api, right));
    let denied = futures_util::future::join_all(reviews).await;
    let missing = required.iter().zip(denied).filter(|(_, denied)| *denied);
    missing.map(|(right, _)| right).collect()
}

async fn is_denied(api: &dyn Api, right: &RequiredRight<'_>) -> bool {
    let (resource, subresource) = match right.resource.split_once('/') {
        Some((resource, subresource)) => (resource, subresource),
        None => (right.resource, ""),
    };
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": right.verb, "group": right.group,
            "resource": resource, "subresource": subresource, "namespace": right.namespace}},
    });
    let at = ResourcePath::collection(&ACCESS_REVIEWS, "");
    let options = WriteOptions::default();
    let created = api.create(at, review.into(), &options);
    let answer = tokio::time::timeout(REVIEW_TIMEOUT, created).await;
    let review = answer.ok().and_then(Result::ok);
    let review = review.and_then(|review| review.value().ok());
    review.is_some_and(|review| review["status"]["allowed"] == false)
}
