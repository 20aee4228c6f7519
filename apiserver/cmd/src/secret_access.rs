//! Authorizes reads of Secrets for admission, with this server's own authorization, or
//! with the host's by SubjectAccessReview.

use std::sync::Arc;

use admission::SecretAuthorizer;
use async_trait::async_trait;
use auth::Authorization;
use auth::rbac::Target;
use machinery::{Status, UserInfo};

struct Authorizer(Authorization);

/// An authorizer for the verb `get` on Secrets.
pub(crate) fn authorizer(authorization: impl Into<Authorization>) -> Arc<dyn SecretAuthorizer> {
    Arc::new(Authorizer(authorization.into()))
}

#[async_trait]
impl SecretAuthorizer for Authorizer {
    async fn may_get(&self, user: &UserInfo, namespace: &str, name: &str) -> Result<bool, Status> {
        let secret = Target::Resource {
            group: "",
            version: "v1",
            resource: "secrets",
            subresource: "",
            namespace,
            name,
        };
        match self.0.authorize(user, "get", secret).await {
            Ok(()) => Ok(true),
            Err(status) if status.code == 403 => Ok(false),
            Err(status) => Err(status),
        }
    }
}
