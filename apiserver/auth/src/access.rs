//! The two forms of authentication and of authorisation behind one face each: this
//! server's own, and the one that asks the API server in front.

use std::sync::Arc;

use machinery::{Status, UserInfo};

use crate::authenticate::{Authenticator, Credentials, Refused};
use crate::delegated;
use crate::rbac::{Authorizer, Target};
use crate::token::Signer;

/// Why a request has no user.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Denied {
    /// A credential was given and is not good: 401.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// It could not be found out; the answer to give instead.
    #[error("{0}")]
    Unknown(Box<Status>),
}

impl From<Status> for Denied {
    fn from(status: Status) -> Self {
        Self::Unknown(Box::new(status))
    }
}

/// Who asks.
pub enum Authentication {
    Own(Arc<Authenticator>),
    Delegated(Arc<delegated::Authenticator>),
}

impl Authentication {
    pub async fn authenticate(&self, given: Credentials<'_>) -> Result<Arc<UserInfo>, Denied> {
        match self {
            Self::Own(own) => own.authenticate(given).await,
            Self::Delegated(host) => host.authenticate(given).await,
        }
    }

    /// Who issues service account tokens, where this server does.
    pub fn issuer(&self) -> Option<&Signer> {
        match self {
            Self::Own(own) => Some(own.issuer()),
            Self::Delegated(_) => None,
        }
    }

    /// Whether a header (in lower case) says who asks, and so goes no further.
    pub fn is_credential(&self, header: &str) -> bool {
        let known = header == "authorization"
            || header.starts_with("x-remote-")
            || header.starts_with("impersonate-");
        match self {
            Self::Delegated(host) if !known => host.is_credential(header),
            _ => known,
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

/// Whether they may.
pub enum Authorization {
    Own(Arc<Authorizer>),
    Delegated(Arc<delegated::Authorizer>),
}

impl Authorization {
    /// 403 when not; another failure when it could not be found out.
    pub async fn authorize(
        &self,
        user: &UserInfo,
        verb: &str,
        target: Target<'_>,
    ) -> Result<(), Status> {
        let (allowed, reason) = match self {
            Self::Own(own) => (own.allows(user, verb, target), String::new()),
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
