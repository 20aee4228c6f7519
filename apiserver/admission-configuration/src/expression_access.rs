//! Decides the checks that expressions of admission make with the variable `authorizer`.

use std::borrow::Cow;
use std::sync::Arc;

use admission::ExpressionAuthorizer;
use async_trait::async_trait;
use auth::RequestAuthorizer;
use auth::rbac::{AuthorizationSelectors, AuthorizationTarget};
use auth::token::{service_account_groups, service_account_username};
use kubernetes_cel::{AuthorizationCheck, AuthorizationDecision, CheckedTarget, CheckedUser};
use machinery::UserInfo;

struct ServerExpressionAuthorizer(RequestAuthorizer);

/// The server's authorizer, for expressions.
pub fn expression_authorizer(
    authorization: impl Into<RequestAuthorizer>,
) -> Arc<dyn ExpressionAuthorizer> {
    Arc::new(ServerExpressionAuthorizer(authorization.into()))
}

#[async_trait]
impl ExpressionAuthorizer for ServerExpressionAuthorizer {
    async fn authorize(
        &self,
        requester: &UserInfo,
        check: &AuthorizationCheck,
    ) -> AuthorizationDecision {
        let user = match &check.user {
            CheckedUser::Requester => Cow::Borrowed(requester),
            CheckedUser::ServiceAccount { namespace, name } => Cow::Owned(UserInfo {
                name: service_account_username(namespace, name),
                groups: service_account_groups(namespace),
                ..UserInfo::default()
            }),
        };
        let target = match &check.target {
            CheckedTarget::Path(path) => AuthorizationTarget::NonResource(path),
            CheckedTarget::Resource(resource) => AuthorizationTarget::Resource {
                group: &resource.group,
                version: "*",
                resource: &resource.resource,
                subresource: &resource.subresource,
                namespace: &resource.namespace,
                name: &resource.name,
                selectors: AuthorizationSelectors {
                    fields: &resource.field_selector,
                    labels: &resource.label_selector,
                },
            },
        };
        match self.0.explain(&user, &check.verb, target).await {
            Ok(decision) => AuthorizationDecision {
                allowed: decision.allowed,
                reason: match decision.evaluation_error {
                    error if !error.is_empty() && decision.reason.is_empty() => {
                        format!("RBAC: {error}")
                    }
                    _ => decision.reason,
                },
                error: None,
            },
            Err(status) => AuthorizationDecision {
                error: Some(status.message),
                ..AuthorizationDecision::default()
            },
        }
    }
}
