//! Refuses requests that the user may not make with 403 (kube-apiserver's
//! `WithAuthorization`).

use std::sync::Arc;

use auth::RequestAuthorizer;
use futures_util::future::BoxFuture;
use hyper::service::Service;
use machinery::{Status, UserInfo};
use tower::Layer;

use super::inner_service::{InnerService, ServerResponse};
use super::request::AuthenticatedRequest;
use crate::metrics::ApiServerMetrics;
use crate::requestinfo::RequestInfo;

pub(super) struct AuthorizationLayer {
    authorization: Arc<RequestAuthorizerAndMetrics>,
}

impl AuthorizationLayer {
    pub(super) fn new(
        authorizer: &Arc<RequestAuthorizer>,
        metrics: &Arc<ApiServerMetrics>,
    ) -> Self {
        Self {
            authorization: Arc::new(RequestAuthorizerAndMetrics {
                authorizer: Arc::clone(authorizer),
                metrics: Arc::clone(metrics),
            }),
        }
    }
}

impl<S> Layer<S> for AuthorizationLayer {
    type Service = AuthorizationService<S>;

    fn layer(&self, inner: S) -> AuthorizationService<S> {
        AuthorizationService {
            inner: Arc::new(inner),
            authorization: Arc::clone(&self.authorization),
        }
    }
}

pub(super) struct AuthorizationService<S> {
    inner: Arc<S>,
    authorization: Arc<RequestAuthorizerAndMetrics>,
}

impl<S, B> Service<AuthenticatedRequest<B>> for AuthorizationService<S>
where
    S: InnerService<AuthenticatedRequest<B>, Status> + Send + Sync + 'static,
    S::Future: Send,
    B: Send + 'static,
{
    type Response = ServerResponse;
    type Error = Status;
    type Future = BoxFuture<'static, Result<ServerResponse, Status>>;

    fn call(&self, request: AuthenticatedRequest<B>) -> Self::Future {
        let authorization = Arc::clone(&self.authorization);
        let inner = Arc::clone(&self.inner);
        Box::pin(async move {
            authorization
                .authorize(&request.user, &request.request.info)
                .await?;
            inner.call(request).await
        })
    }
}

struct RequestAuthorizerAndMetrics {
    authorizer: Arc<RequestAuthorizer>,
    metrics: Arc<ApiServerMetrics>,
}

impl RequestAuthorizerAndMetrics {
    /// Authorizes a request and records the decision.
    async fn authorize(&self, user: &UserInfo, info: &RequestInfo) -> Result<(), Status> {
        let target = info.authorization_attributes();
        let decision = self.authorizer.authorize(user, info.verb, target).await;
        self.metrics.count_authorization(decision.is_ok());
        decision
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filters::testing::{as_user, authorizer, metrics, resolved_request, respond};
    use machinery::user::SYSTEM_PRIVILEGED_GROUP;

    #[tokio::test]
    async fn denied_requests_do_not_reach_the_handler() {
        let metrics = metrics();
        let service = AuthorizationLayer::new(&authorizer(), &metrics).layer(respond(200));
        for (groups, path, code) in [
            (&[SYSTEM_PRIVILEGED_GROUP][..], "/api/v1/pods", None),
            (&[], "/api/v1/pods", Some(403)),
            (&[], "/version", Some(403)),
            (&[], "/livez", None),
        ] {
            let request = as_user(resolved_request("GET", path), "ann", groups);
            let answered = service.call(request).await;
            assert_eq!(answered.err().map(|s| s.code), code, "{path}");
        }
        let text = String::from_utf8(metrics.text()).unwrap();
        assert!(text.contains("authorization_attempts_total{result=\"denied\"} 2"));
    }
}
