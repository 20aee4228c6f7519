//! Authorizes the use of objects that a written object names, for admission: with this server's own
//! authorization, or with the host's by SubjectAccessReview.

use std::sync::Arc;

use admission::{AccessedResource, ResourceAuthorizer};
use async_trait::async_trait;
use auth::RequestAuthorizer;
use auth::rbac::{AuthorizationSelectors, AuthorizationTarget};
use machinery::{Status, UserInfo};

struct ServerResourceAuthorizer(RequestAuthorizer);

/// The server's authorizer, for resources.
pub fn resource_authorizer(
    authorization: impl Into<RequestAuthorizer>,
) -> Arc<dyn ResourceAuthorizer> {
    Arc::new(ServerResourceAuthorizer(authorization.into()))
}

#[async_trait]
impl ResourceAuthorizer for ServerResourceAuthorizer {
    async fn may(
        &self,
        user: &UserInfo,
        verb: &str,
        accessed: AccessedResource<'_>,
    ) -> Result<bool, Status> {
        let target = AuthorizationTarget::Resource {
            group: &accessed.resource.group,
            version: &accessed.resource.version,
            resource: &accessed.resource.resource,
            subresource: "",
            namespace: accessed.namespace,
            name: accessed.name,
            selectors: AuthorizationSelectors::default(),
        };
        match self.0.authorize(user, verb, target).await {
            Ok(()) => Ok(true),
            Err(status) if status.code == 403 => Ok(false),
            Err(status) => Err(status),
        }
    }
}
