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

mod answers;
mod authorizer;
mod review;
#[cfg(test)]
mod tests;
mod tokens;
mod trust;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use client::{Api, Shutdown};
use machinery::time::Clock;
use machinery::{Status, UserInfo};

use crate::access::Denied;
use crate::authenticate::{Credentials, NO_ANONYMOUS, Refused, anonymous, readable};
pub use authorizer::Authorizer;
use tokens::Tokens;
use trust::{Followed, Trust, include_everyone};

/// Options of delegated authentication and authorization.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether requests without credentials are anonymous; otherwise they get 401.
    pub anonymous: bool,
    /// Audiences a token must be valid for; empty means those of the host.
    pub audiences: Vec<String>,
    /// How long the result of a TokenReview is cached, authenticated or not.
    pub token_ttl: Duration,
    pub allowed_ttl: Duration,
    pub refused_ttl: Duration,
}

impl Default for Options {
    fn default() -> Self {
        let ttl = Duration::from_secs(10);
        Self {
            anonymous: true,
            audiences: Vec::new(),
            token_ttl: ttl,
            allowed_ttl: ttl,
            refused_ttl: ttl,
        }
    }
}

/// Authenticates requests by front-proxy headers, client certificate and TokenReview.
pub struct Authenticator {
    followed: Arc<Followed>,
    tokens: Tokens,
    anonymous: Option<Arc<UserInfo>>,
    clock: Arc<dyn Clock>,
}

impl Authenticator {
    pub fn new(host: Arc<dyn Api>, clock: Arc<dyn Clock>, options: &Options) -> Arc<Self> {
        Arc::new(Self {
            followed: Arc::default(),
            tokens: Tokens::new(host, options),
            anonymous: options.anonymous.then(anonymous),
            clock,
        })
    }

    /// Watches the host's ConfigMap until `shutdown`. A change applies to the next
    /// request.
    pub fn run(
        self: &Arc<Self>,
        host: Arc<dyn Api>,
        shutdown: Shutdown,
    ) -> impl Future<Output = ()> + Send + 'static {
        let followed = Arc::clone(&self.followed);
        async move { trust::follow(&followed, &*host, &shutdown).await }
    }

    /// Whether the ConfigMap has been read; the error says why not.
    pub fn ready(&self) -> Result<(), String> {
        self.followed.ready()
    }

    /// Waits until the ConfigMap has been read.
    pub async fn wait_ready(&self) {
        self.followed.wait().await;
    }

    pub(crate) fn is_credential(&self, header: &str) -> bool {
        self.followed
            .trust()
            .is_some_and(|trust| trust.names(header))
    }

    pub(crate) async fn authenticate(
        &self,
        credentials: Credentials<'_>,
    ) -> Result<Arc<UserInfo>, Denied> {
        let chain = credentials.peer.map(crate::Peer::chain).unwrap_or_default();
        let mut refused = None;
        if !chain.is_empty() {
            let trust = self.followed.trust().ok_or_else(|| {
                let text = "the client CA of the host has not been read yet";
                Denied::from(Status::unavailable(text))
            })?;
            if let Some(user) = self.proxied(&trust, credentials)? {
                return Ok(Arc::new(user));
            }
            match trust.client(chain, self.clock.now()) {
                Ok(user) => return Ok(user),
                Err(why) => refused = Some(Refused(format!("client certificate: {why}"))),
            }
        }
        if let Some(token) = credentials.bearer {
            return self.tokens.user(readable(token)?).await;
        }
        match (refused, &self.anonymous) {
            (Some(refused), _) => Err(refused.into()),
            (None, Some(anonymous)) => Ok(Arc::clone(anonymous)),
            (None, None) => Err(Refused(NO_ANONYMOUS.into()).into()),
        }
    }

    /// The user that a verified front proxy names.
    fn proxied(
        &self,
        trust: &Trust,
        credentials: Credentials<'_>,
    ) -> Result<Option<UserInfo>, Refused> {
        let (Some(peer), Some(headers)) = (credentials.peer, credentials.headers) else {
            return Ok(None);
        };
        if !trust.is_proxy(peer.chain(), self.clock.now()) {
            return Ok(None);
        }
        let user = trust.remote_user(headers).map_err(Refused)?;
        Ok(user.map(include_everyone))
    }
}
