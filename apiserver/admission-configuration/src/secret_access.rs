//! Authorizes reads of Secrets for admission, with this server's own authorization, or
//! with the host's by SubjectAccessReview.

use std::sync::Arc;

use admission::SecretAuthorizer;
use async_trait::async_trait;
use auth::RequestAuthorizer;
use auth::rbac::{AuthorizationSelectors, AuthorizationTarget};
use machinery::{Status, UserInfo};

struct SecretGetAuthorizer(RequestAuthorizer);

/// An authorizer for the verb `get` on Secrets.
pub fn secret_authorizer(authorization: impl Into<RequestAuthorizer>) -> Arc<dyn SecretAuthorizer> {
    Arc::new(SecretGetAuthorizer(authorization.into()))
}

#[async_trait]
impl SecretAuthorizer for SecretGetAuthorizer {
    async fn may_get(&self, user: &UserInfo, namespace: &str, name: &str) -> Result<bool, Status> {
        let secret = AuthorizationTarget::Resource {
            group: "",
            version: "v1",
            resource: "secrets",
            subresource: "",
            namespace,
            name,
            selectors: AuthorizationSelectors::default(),
        };
        match self.0.authorize(user, "get", secret).await {
            Ok(()) => Ok(true),
            Err(status) if status.code == 403 => Ok(false),
            Err(status) => Err(status),
        }
    }
}
