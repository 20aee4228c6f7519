//! Authorizes approvals and signatures of certificates for admission.

use std::sync::Arc;

use admission::SignerAuthorizer;
use async_trait::async_trait;
use auth::RequestAuthorizer;
use auth::rbac::{AuthorizationSelectors, AuthorizationTarget};
use machinery::{Status, UserInfo};

struct SignerVerbAuthorizer(RequestAuthorizer);

/// An authorizer for verbs on the resource `signers`.
pub fn signer_authorizer(authorization: impl Into<RequestAuthorizer>) -> Arc<dyn SignerAuthorizer> {
    Arc::new(SignerVerbAuthorizer(authorization.into()))
}

#[async_trait]
impl SignerAuthorizer for SignerVerbAuthorizer {
    async fn may(&self, user: &UserInfo, verb: &str, signer: &str) -> Result<bool, Status> {
        let target = AuthorizationTarget::Resource {
            group: "certificates.k8s.io",
            version: "*",
            resource: "signers",
            subresource: "",
            namespace: "",
            name: signer,
            selectors: AuthorizationSelectors::default(),
        };
        match self.0.authorize(user, verb, target).await {
            Ok(()) => Ok(true),
            Err(status) if status.code == 403 => Ok(false),
            Err(status) => Err(status),
        }
    }
}
