//! One authenticator and one authorizer type for the server, each in two forms: local,
//! or delegated to the kube-apiserver in front of it.

use std::sync::Arc;

use machinery::{Status, UserInfo};

use crate::authenticator::LocalAuthenticator;
use crate::credentials::{AuthenticationError, RequestCredentials};
use crate::delegated;
use crate::rbac::{AuthorizationTarget, RbacAuthorizer};
use crate::token::ServiceAccountTokenIssuerAndVerifier;

/// Authenticates requests, locally or by TokenReview.
pub enum RequestAuthenticator {
    Local(Arc<LocalAuthenticator>),
    Delegated(Arc<delegated::DelegatingAuthenticator>),
}

impl RequestAuthenticator {
    pub async fn authenticate(
        &self,
        credentials: RequestCredentials<'_>,
    ) -> Result<Arc<UserInfo>, AuthenticationError> {
        match self {
            Self::Local(local) => local.authenticate(credentials).await,
            Self::Delegated(host) => host.authenticate(credentials).await,
        }
    }

    /// The issuer of service account tokens, when this server issues them.
    pub fn token_issuer(&self) -> Option<&ServiceAccountTokenIssuerAndVerifier> {
        match self {
            Self::Local(local) => Some(local.token_issuer()),
            Self::Delegated(_) => None,
        }
    }

    /// Whether a header (in lower case) carries an identity and must be removed after
    /// authentication.
    pub fn is_credential(&self, header: &str) -> bool {
        let standard = header == "authorization"
            || header.starts_with("x-remote-")
            || header.starts_with("impersonate-");
        match self {
            Self::Delegated(host) if !standard => host.is_credential(header),
            _ => standard,
        }
    }
}

impl From<Arc<LocalAuthenticator>> for RequestAuthenticator {
    fn from(own: Arc<LocalAuthenticator>) -> Self {
        Self::Local(own)
    }
}

impl From<Arc<delegated::DelegatingAuthenticator>> for RequestAuthenticator {
    fn from(host: Arc<delegated::DelegatingAuthenticator>) -> Self {
        Self::Delegated(host)
    }
}

/// Authorizes requests, locally by RBAC or by SubjectAccessReview.
pub enum RequestAuthorizer {
    Local(Arc<RbacAuthorizer>),
    Delegated(Arc<delegated::DelegatingAuthorizer>),
}

impl RequestAuthorizer {
    /// Fails with 403 when access is denied, with another status when it could not be
    /// decided.
    pub async fn authorize(
        &self,
        user: &UserInfo,
        verb: &str,
        target: AuthorizationTarget<'_>,
    ) -> Result<(), Status> {
        let (allowed, reason) = match self {
            Self::Local(local) => (local.allows(user, verb, target), String::new()),
            Self::Delegated(host) => {
                let decision = Box::pin(host.authorize(user, verb, target)).await?;
                (decision.allowed, decision.reason)
            }
        };
        if allowed {
            return Ok(());
        }
        let mut status = RbacAuthorizer::forbidden(user, verb, target);
        if !reason.is_empty() {
            status.message.push_str(": ");
            status.message.push_str(&reason);
        }
        Err(status)
    }
}

impl From<Arc<RbacAuthorizer>> for RequestAuthorizer {
    fn from(own: Arc<RbacAuthorizer>) -> Self {
        Self::Local(own)
    }
}

impl From<Arc<delegated::DelegatingAuthorizer>> for RequestAuthorizer {
    fn from(host: Arc<delegated::DelegatingAuthorizer>) -> Self {
        Self::Delegated(host)
    }
}
