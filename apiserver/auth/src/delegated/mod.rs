//! Authentication and authorisation behind another API server (contract D2, D3).
//!
//! ConfigMap `extension-apiserver-authentication` ──► [`trust`] ─┐
//! certificate, headers, bearer token ───────────────────────────┴► [`Authenticator`] ──► TokenReview
//! user, verb, target ──────────────────────────────────────────► [`Authorizer`] ──► SubjectAccessReview
//!
//! Invariants: headers are believed of a proxy only whose certificate the host's
//! request header authority signed, and which bears an allowed name. What the host
//! could not be asked is an error, never an anonymous user and never a "no".
//! Answers are remembered for seconds; failures are not.

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

/// What an operator may set.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether requests without credentials have the anonymous user; else 401.
    pub anonymous: bool,
    /// Audiences a token must be for; empty: those of the host.
    pub audiences: Vec<String>,
    /// How long the answer to a token is believed, good or bad.
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

/// Who asks: by the front proxy's word, by certificate, by token.
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

    /// Follows the host's ConfigMap until `shutdown`. A change counts for the next
    /// request.
    pub fn run(
        self: &Arc<Self>,
        host: Arc<dyn Api>,
        shutdown: Shutdown,
    ) -> impl Future<Output = ()> + Send + 'static {
        let followed = Arc::clone(&self.followed);
        async move { trust::follow(&followed, &*host, &shutdown).await }
    }

    /// Whether the ConfigMap has been read; why not.
    pub fn ready(&self) -> Result<(), String> {
        self.followed.ready()
    }

    /// Resolves when the ConfigMap has been read.
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
        given: Credentials<'_>,
    ) -> Result<Arc<UserInfo>, Denied> {
        let chain = given.peer.map(crate::Peer::chain).unwrap_or_default();
        let mut refused = None;
        if !chain.is_empty() {
            let trust = self.followed.trust().ok_or_else(|| {
                let text = "the authorities of client certificates are not known yet";
                Denied::from(Status::unavailable(text))
            })?;
            if let Some(user) = self.proxied(&trust, given)? {
                return Ok(Arc::new(user));
            }
            match trust.client(chain, self.clock.now()) {
                Ok(user) => return Ok(user),
                Err(why) => refused = Some(Refused(format!("client certificate: {why}"))),
            }
        }
        if let Some(token) = given.bearer {
            return self.tokens.user(readable(token)?).await;
        }
        match (refused, &self.anonymous) {
            (Some(refused), _) => Err(refused.into()),
            (None, Some(anonymous)) => Ok(Arc::clone(anonymous)),
            (None, None) => Err(Refused(NO_ANONYMOUS.into()).into()),
        }
    }

    /// Whom a trusted front proxy asks for.
    fn proxied(&self, trust: &Trust, given: Credentials<'_>) -> Result<Option<UserInfo>, Refused> {
        let (Some(peer), Some(headers)) = (given.peer, given.headers) else {
            return Ok(None);
        };
        if !trust.is_proxy(peer.chain(), self.clock.now()) {
            return Ok(None);
        }
        let user = trust.remote_user(headers).map_err(Refused)?;
        Ok(user.map(include_everyone))
    }
}
