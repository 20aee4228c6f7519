//! Refuses requests that the user may not make with 403 (kube-apiserver's `WithAuthorization`),
//! and those whose path has not the scope of the resource with 404: to users without the right to
//! the path these are forbidden, as in kube-apiserver.

use std::sync::Arc;

use auth::RequestAuthorizer;
use machinery::{Status, UserInfo};

use super::agent_scope::{agent_refusal, restrict_agent_request};
use super::async_check::{AsyncCheck, AsyncCheckLayer};
use super::request::AuthenticatedRequest;
use crate::audit::RequestAudit;
use crate::metrics::ApiServerMetrics;
use crate::requestinfo::RequestInfo;

pub(super) type AuthorizationLayer = AsyncCheckLayer<AuthorizationFilter>;

impl AuthorizationLayer {
    pub(super) fn with_metrics(
        authorizer: &Arc<RequestAuthorizer>,
        metrics: &Arc<ApiServerMetrics>,
    ) -> Self {
        Self::new(AuthorizationFilter {
            authorizer: Arc::clone(authorizer),
            metrics: Arc::clone(metrics),
        })
    }
}

impl<B: Send> AsyncCheck<AuthenticatedRequest<B>> for AuthorizationFilter {
    type Checked = AuthenticatedRequest<B>;

    async fn check(
        &self,
        mut request: AuthenticatedRequest<B>,
    ) -> Result<AuthenticatedRequest<B>, Status> {
        restrict_agent_request(&request.user, &mut request.request)?;
        let info = &request.request.info;
        let decision = match &request.request.audit {
            None => self.authorize(&request.user, info).await,
            Some(audit) => self.authorize_audited(&request.user, info, audit).await,
        };
        decision
            .map_err(|rejection| agent_refusal(&self.authorizer, &request.user, info, rejection))?;
        request.request.scope.clone()?;
        Ok(request)
    }
}

pub(super) struct AuthorizationFilter {
    authorizer: Arc<RequestAuthorizer>,
    metrics: Arc<ApiServerMetrics>,
}

impl AuthorizationFilter {
    /// Authorizes a request and records the decision.
    async fn authorize(&self, user: &UserInfo, info: &RequestInfo) -> Result<(), Status> {
        let target = info.authorization_attributes();
        let decision = self.authorizer.authorize(user, info.verb, target).await;
        self.metrics.count_authorization(decision.is_ok());
        decision
    }

    /// Like [`Self::authorize`], with the decision and its reason in the audit events.
    async fn authorize_audited(
        &self,
        user: &UserInfo,
        info: &RequestInfo,
        audit: &RequestAudit,
    ) -> Result<(), Status> {
        let target = info.authorization_attributes();
        let explained = self.authorizer.explain(user, info.verb, target).await;
        self.metrics
            .count_authorization(explained.as_ref().is_ok_and(|d| d.allowed));
        let decision = explained?;
        let text = if decision.allowed { "allow" } else { "forbid" };
        audit.annotate("authorization.k8s.io/decision", text);
        audit.annotate("authorization.k8s.io/reason", &*decision.reason);
        decision.into_result(user, info.verb, target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filters::testing::{as_user, authorizer, metrics, resolved_request, respond};
    use hyper::service::Service;
    use machinery::user::SYSTEM_PRIVILEGED_GROUP;
    use tower::Layer;

    #[tokio::test]
    async fn no_right_reaches_a_path_with_another_scope() {
        let metrics = metrics();
        let service = AuthorizationLayer::with_metrics(&authorizer(), &metrics).layer(respond(200));
        for (groups, code) in [(&[SYSTEM_PRIVILEGED_GROUP][..], 404), (&[], 403)] {
            let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/a/clusterroles/a";
            let mut request = as_user(resolved_request("PUT", path), "ann", groups);
            request.request.scope = Err(Status::path_not_found());
            let failure = service.call(request).await.err();
            assert_eq!(failure.map(|status| status.code), Some(code));
        }
    }

    #[tokio::test]
    async fn denied_requests_do_not_reach_the_handler() {
        let metrics = metrics();
        let service = AuthorizationLayer::with_metrics(&authorizer(), &metrics).layer(respond(200));
        for (groups, path, code) in [
            (&[SYSTEM_PRIVILEGED_GROUP][..], "/api/v1/pods", None),
            (&[], "/api/v1/pods", Some(403)),
            (&[], "/version", Some(403)),
            (&[], "/livez", None),
        ] {
            let request = as_user(resolved_request("GET", path), "ann", groups);
            let response = service.call(request).await;
            assert_eq!(response.err().map(|s| s.code), code, "{path}");
        }
        let text = String::from_utf8(metrics.text()).unwrap();
        assert!(text.contains("authorization_attempts_total{result=\"denied\"} 2"));
    }
}
