//! Authentication and authorization behind another API server (contract D2, D3).
//!
//! ConfigMap `extension-apiserver-authentication` ──► `extension_authentication` ─┐
//! certificate, headers, bearer token ────────────────────────────────────────────┴► [`DelegatingAuthenticator`] ──► TokenReview
//! user, verb, attributes ──► [`DelegatingAuthorizer`] ──► SubjectAccessReview
//!
//! Invariants: identity headers count only from a proxy whose certificate the host's
//! request header CA signed and whose common name is allowed. A failed review is an
//! error, never an anonymous user and never a denial. Results are cached for seconds,
//! failures are not.

mod extension_authentication;
mod options;
pub(crate) mod review_cache;
mod review_client;
pub(crate) mod subject_access_review;
#[cfg(test)]
mod tests;
pub(crate) mod token_review;

use std::future::Future;
use std::sync::Arc;

use client::{Api, ShutdownToken};
use machinery::time::Clock;
use machinery::{Status, UserInfo};

use crate::credentials::{
    ANONYMOUS_NOT_ALLOWED, AuthenticationError, InvalidCredential, RequestCredentials,
    anonymous_user, token_text,
};
use extension_authentication::{
    DynamicExtensionAuthentication, ExtensionAuthentication, add_authenticated_group,
};
pub use options::DelegatedAuthOptions;
pub use subject_access_review::DelegatingAuthorizer;
use token_review::TokenReviewAuthenticator;

/// Authenticates requests by front-proxy headers, client certificate and TokenReview.
pub struct DelegatingAuthenticator {
    extension_authentication: Arc<DynamicExtensionAuthentication>,
    tokens: TokenReviewAuthenticator,
    anonymous: Option<Arc<UserInfo>>,
    clock: Arc<dyn Clock>,
}

impl DelegatingAuthenticator {
    pub fn new(
        host: Arc<dyn Api>,
        clock: Arc<dyn Clock>,
        options: &DelegatedAuthOptions,
    ) -> Arc<Self> {
        Arc::new(Self {
            extension_authentication: Arc::default(),
            tokens: TokenReviewAuthenticator::new(host, options),
            anonymous: options.anonymous.then(anonymous_user),
            clock,
        })
    }

    /// Watches the host's ConfigMap until `shutdown`. A change applies to the next
    /// request.
    pub fn run(
        self: &Arc<Self>,
        host: Arc<dyn Api>,
        shutdown: ShutdownToken,
    ) -> impl Future<Output = ()> + Send + 'static {
        let followed = Arc::clone(&self.extension_authentication);
        async move { extension_authentication::watch_config_map(&followed, &*host, &shutdown).await }
    }

    /// Whether the ConfigMap has been read; the error says why not.
    pub fn ready(&self) -> Result<(), String> {
        self.extension_authentication.check_ready()
    }

    /// Waits until the ConfigMap has been read.
    pub async fn wait_ready(&self) {
        self.extension_authentication.wait_ready().await;
    }

    pub(crate) fn is_credential(&self, header: &str) -> bool {
        self.extension_authentication
            .current()
            .is_some_and(|trust| trust.is_identity_header(header))
    }

    pub(crate) async fn authenticate(
        &self,
        credentials: RequestCredentials<'_>,
    ) -> Result<Arc<UserInfo>, AuthenticationError> {
        let chain = credentials
            .peer
            .map(crate::PeerCertificates::chain)
            .unwrap_or_default();
        let mut failure = None;
        if !chain.is_empty() {
            let trust = self.extension_authentication.current().ok_or_else(|| {
                let text = "the client CA of the host has not been read yet";
                AuthenticationError::from(Status::unavailable(text))
            })?;
            if let Some(user) = self.authenticate_front_proxy(&trust, credentials)? {
                return Ok(Arc::new(user));
            }
            match trust.authenticate_client(chain, self.clock.now()) {
                Ok(user) => return Ok(user),
                Err(e) => failure = Some(InvalidCredential(format!("client certificate: {e}"))),
            }
        }
        if let Some(token) = credentials.bearer {
            return self.tokens.authenticate_token(token_text(token)?).await;
        }
        match (failure, &self.anonymous) {
            (Some(failure), _) => Err(failure.into()),
            (None, Some(anonymous)) => Ok(Arc::clone(anonymous)),
            (None, None) => Err(InvalidCredential(ANONYMOUS_NOT_ALLOWED.into()).into()),
        }
    }

    /// The user that a verified front proxy names.
    fn authenticate_front_proxy(
        &self,
        trust: &ExtensionAuthentication,
        credentials: RequestCredentials<'_>,
    ) -> Result<Option<UserInfo>, InvalidCredential> {
        let (Some(peer), Some(headers)) = (credentials.peer, credentials.headers) else {
            return Ok(None);
        };
        if !trust.is_front_proxy(peer.chain(), self.clock.now()) {
            return Ok(None);
        }
        let user = trust.remote_user(headers).map_err(InvalidCredential)?;
        Ok(user.map(add_authenticated_group))
    }
}
