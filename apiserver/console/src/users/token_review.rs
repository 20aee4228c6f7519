//! Asks the control plane whose a token is, and ends the session of a user whose token it refuses.

use std::sync::Arc;

use async_trait::async_trait;
use client::{Api, ApiCall, ApiReply, Error, ResourcePath, Result, ShutdownToken, WriteOptions};
use machinery::Gvr;
use serde_json::json;

use crate::clipped_text::clipped;
use crate::console::{ResponseStream, StreamOpener};

pub(crate) static SELF_SUBJECT_REVIEWS: Gvr =
    Gvr::from_static("authentication.k8s.io", "v1", "selfsubjectreviews");

/// The name of the client's own user; none where the server does not say it, as before Kubernetes
/// 1.28. The server authenticates a request before it looks at anything else of it.
pub(super) async fn user_name(api: &dyn Api) -> Result<Option<String>> {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let reviews = ResourcePath::collection(&SELF_SUBJECT_REVIEWS, "");
    let created = api
        .create(reviews, review.into(), &WriteOptions::default())
        .await;
    match created {
        Ok(review) => {
            let review = review.value().unwrap_or_default();
            let name = review["status"]["userInfo"]["username"].as_str();
            Ok(name.map(clipped))
        }
        Err(error) if [403, 404].contains(&code(&error)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn code(error: &Error) -> u16 {
    error.status().map_or(0, |status| status.code)
}

pub(super) fn is_unauthorized(error: &Error) -> bool {
    code(error) == 401
}

/// The connection of a user, whose session it ends once the control plane refuses the token. A member
/// whose own credentials are refused answers 401 too, and ends nothing.
pub(super) struct CheckedConnection<T: ?Sized> {
    pub(super) inner: Arc<T>,
    pub(super) api: Arc<dyn Api>,
    pub(super) user: ShutdownToken,
}

impl<T: ?Sized> CheckedConnection<T> {
    async fn check<R>(&self, result: Result<R>) -> Result<R> {
        if let Err(error) = &result
            && is_unauthorized(error)
            && let Err(error) = user_name(&*self.api).await
            && is_unauthorized(&error)
        {
            self.user.trigger();
        }
        result
    }
}

#[async_trait]
impl Api for CheckedConnection<dyn Api> {
    async fn call(&self, call: ApiCall<'_>) -> Result<ApiReply> {
        let result = self.inner.call(call).await;
        self.check(result).await
    }
}

#[async_trait]
impl StreamOpener for CheckedConnection<dyn StreamOpener> {
    async fn open(&self, path: &str) -> Result<ResponseStream> {
        let result = self.inner.open(path).await;
        self.check(result).await
    }
}
