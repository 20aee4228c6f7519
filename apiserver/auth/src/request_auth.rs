//! One authenticator and one authorizer type for the server, each in two forms: local,
//! or delegated to the kube-apiserver in front of it.

use std::sync::Arc;

use machinery::{Status, UserInfo};

use crate::authenticator::LocalAuthenticator;
use crate::authorizer_chain::AuthorizerChain;
use crate::credentials::{AuthenticationError, RequestCredentials};
use crate::delegated;
use crate::rbac::{AuthorizationTarget, AuthorizerDecision, RbacAuthorizer, SubjectRules};
use crate::token::ServiceAccountTokens;

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
    pub fn token_issuer(&self) -> Option<&ServiceAccountTokens> {
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
    fn from(local: Arc<LocalAuthenticator>) -> Self {
        Self::Local(local)
    }
}

impl From<Arc<delegated::DelegatingAuthenticator>> for RequestAuthenticator {
    fn from(host: Arc<delegated::DelegatingAuthenticator>) -> Self {
        Self::Delegated(host)
    }
}

/// Authorizes requests, locally by RBAC, by several authorizers, or by SubjectAccessReview.
#[derive(Clone)]
pub enum RequestAuthorizer {
    Local(Arc<RbacAuthorizer>),
    Chain(Arc<AuthorizerChain>),
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
        match self {
            Self::Local(local) if local.allows(user, verb, target) => Ok(()),
            Self::Local(_) if self.is_former_agent(user) => {
                AuthorizerDecision::former_agent().into_result(user, verb, target)
            }
            Self::Local(_) => Err(RbacAuthorizer::forbidden(user, verb, target)),
            Self::Chain(_) | Self::Delegated(_) => {
                let decision = self.explain(user, verb, target).await?;
                decision.into_result(user, verb, target)
            }
        }
    }

    /// The decision with its reason, which takes longer to find than the decision.
    pub async fn explain(
        &self,
        user: &UserInfo,
        verb: &str,
        target: AuthorizationTarget<'_>,
    ) -> Result<AuthorizerDecision, Status> {
        match self {
            Self::Local(local) => Ok(local.explain(user, verb, target)),
            Self::Chain(chain) => Ok(Box::pin(chain.authorize(user, verb, target)).await),
            Self::Delegated(host) => Box::pin(host.authorize(user, verb, target)).await,
        }
    }

    /// Whether the user has the certificate of an agent whose registration has ended, and the cluster
    /// has been registered again. A host does not tell certificates apart.
    pub fn is_former_agent(&self, user: &UserInfo) -> bool {
        match self {
            Self::Local(local) => local.is_former_agent(user),
            Self::Chain(chain) => chain.is_former_agent(user),
            Self::Delegated(_) => false,
        }
    }

    /// The rights of a user in a namespace, and why the list is incomplete; empty if it is
    /// complete.
    pub fn subject_rules(&self, user: &UserInfo, namespace: &str) -> (SubjectRules, String) {
        match self {
            Self::Local(local) => (local.subject_rules(user, namespace), String::new()),
            Self::Chain(chain) => chain.subject_rules(user, namespace),
            Self::Delegated(_) => (
                SubjectRules::default(),
                "webhook authorizer does not support user rule resolution".to_owned(),
            ),
        }
    }
}

impl AuthorizerDecision {
    /// Fails with 403 when access is denied.
    pub fn into_result(
        self,
        user: &UserInfo,
        verb: &str,
        target: AuthorizationTarget<'_>,
    ) -> Result<(), Status> {
        if self.allowed {
            return Ok(());
        }
        if self.undecided {
            return Err(Status::internal(self.evaluation_error).with_retry_after(1));
        }
        let mut status = RbacAuthorizer::forbidden(user, verb, target);
        if !self.reason.is_empty() {
            status.message.push_str(": ");
            status.message.push_str(&self.reason);
        }
        Err(status)
    }
}

impl From<Arc<RbacAuthorizer>> for RequestAuthorizer {
    fn from(local: Arc<RbacAuthorizer>) -> Self {
        Self::Local(local)
    }
}

impl From<Arc<delegated::DelegatingAuthorizer>> for RequestAuthorizer {
    fn from(host: Arc<delegated::DelegatingAuthorizer>) -> Self {
        Self::Delegated(host)
    }
}
