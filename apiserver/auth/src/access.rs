//! One authenticator and one authorizer type for the server, each in two forms: local,
//! or delegated to the kube-apiserver in front of it.

use std::sync::Arc;

use machinery::{Status, UserInfo};

use crate::authenticate::{Authenticator, Credentials, Refused};
use crate::delegated;
use crate::rbac::{Authorizer, Target};
use crate::token::Signer;

/// Why authentication yields no user.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Denied {
    /// A credential is invalid: 401.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The credentials could not be checked; respond with this status.
    #[error("{0}")]
    Unknown(Box<Status>),
}

impl From<Status> for Denied {
    fn from(status: Status) -> Self {
        Self::Unknown(Box::new(status))
    }
}

/// Authenticates requests, locally or by TokenReview.
pub enum Authentication {
    Own(Arc<Authenticator>),
    Delegated(Arc<delegated::Authenticator>),
}

impl Authentication {
    pub async fn authenticate(
        &self,
        credentials: Credentials<'_>,
    ) -> Result<Arc<UserInfo>, Denied> {
        match self {
            Self::Own(local) => local.authenticate(credentials).await,
            Self::Delegated(host) => host.authenticate(credentials).await,
        }
    }

    /// The issuer of service account tokens, when this server issues them.
    pub fn issuer(&self) -> Option<&Signer> {
        match self {
            Self::Own(local) => Some(local.issuer()),
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

impl From<Arc<Authenticator>> for Authentication {
    fn from(own: Arc<Authenticator>) -> Self {
        Self::Own(own)
    }
}

impl From<Arc<delegated::Authenticator>> for Authentication {
    fn from(host: Arc<delegated::Authenticator>) -> Self {
        Self::Delegated(host)
    }
}

/// Authorizes requests, locally by RBAC or by SubjectAccessReview.
pub enum Authorization {
    Own(Arc<Authorizer>),
    Delegated(Arc<delegated::Authorizer>),
}

impl Authorization {
    /// Fails with 403 when access is denied, with another status when it could not be
    /// decided.
    pub async fn authorize(
        &self,
        user: &UserInfo,
        verb: &str,
        target: Target<'_>,
    ) -> Result<(), Status> {
        let (allowed, reason) = match self {
            Self::Own(local) => (local.allows(user, verb, target), String::new()),
            Self::Delegated(host) => {
                let decision = Box::pin(host.decide(user, verb, target)).await?;
                (decision.allowed, decision.reason)
            }
        };
        if allowed {
            return Ok(());
        }
        let mut status = Authorizer::forbidden(user, verb, target);
        if !reason.is_empty() {
            status.message.push_str(": ");
            status.message.push_str(&reason);
        }
        Err(status)
    }
}

impl From<Arc<Authorizer>> for Authorization {
    fn from(own: Arc<Authorizer>) -> Self {
        Self::Own(own)
    }
}

impl From<Arc<delegated::Authorizer>> for Authorization {
    fn from(host: Arc<delegated::Authorizer>) -> Self {
        Self::Delegated(host)
    }
}
