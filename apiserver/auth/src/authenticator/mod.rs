//! Authenticates requests: client certificates, static and bootstrap tokens, tokens of OpenID
//! Connect and of service accounts, and anonymous users.
//!
//! Service accounts, secrets and pods are read through `client::Api`: from the watch
//! cache, as kube-apiserver does from its informers, and from the store before a token
//! is refused. When the store fails, the request fails; the token is not refused.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use client::{Api, Error, ResourcePath};
use jiff::{SignedDuration, Timestamp};
use machinery::bootstrap_token::{BootstrapToken, TOKEN_NAMESPACE};
use machinery::time::Clock;
use machinery::{Gvr, Object, Status, UserInfo};
use parking_lot::{Mutex, RwLock};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::bootstrap_token::user_of_token;
use crate::credentials::{
    ANONYMOUS_NOT_ALLOWED, AuthenticationError, InvalidCredential, RequestCredentials,
    anonymous_user, token_text,
};
use crate::oidc::{AnonymousRequests, JwtIssuerConfig, OidcAuthenticator};
use crate::static_tokens::StaticTokens;
use crate::token::{ServiceAccountClaims, ServiceAccountTokens};
use crate::webhook::WebhookTokenAuthenticator;
use crate::x509::CertificateVerifier;

pub(crate) const SERVICE_ACCOUNTS: Gvr = Gvr::from_static("", "v1", "serviceaccounts");
pub(crate) const SECRETS: Gvr = Gvr::from_static("", "v1", "secrets");
pub(crate) const PODS: Gvr = Gvr::from_static("", "v1", "pods");
pub(crate) const NODES: Gvr = Gvr::from_static("", "v1", "nodes");

/// How long after its deletion an account, or the object that a token is bound to, still counts:
/// the clocks of replicas differ (`jwt.DefaultLeeway` in kube-apiserver).
const DELETION_LEEWAY: SignedDuration = SignedDuration::from_secs(60);

/// Marks a Secret whose token is no longer accepted.
const INVALID_SINCE_LABEL: &str = "kubernetes.io/legacy-token-invalid-since";

/// Bound on cached tokens.
const MAX_CACHED_TOKENS: usize = 4096;

/// Options of a [`LocalAuthenticator`].
#[derive(Clone, Debug)]
pub struct LocalAuthenticatorOptions {
    /// Which requests without credentials are anonymous; others get 401 (kube-apiserver's
    /// `--anonymous-auth`, `anonymous` of `--authentication-config`).
    pub anonymous: AnonymousRequests,
    /// Audiences of this API server (`--api-audiences`); empty means the token issuer.
    pub audiences: Vec<String>,
    /// Static tokens (`--token-auth-file`).
    pub static_tokens: Option<Arc<StaticTokens>>,
    /// Whether Secrets of the type `bootstrap.kubernetes.io/token` in kube-system authenticate
    /// (`--enable-bootstrap-token-auth`).
    pub bootstrap_tokens: bool,
    /// Issuers whose tokens are accepted (`--oidc-issuer-url`, `--authentication-config`);
    /// [`LocalAuthenticator::set_oidc`] begins to accept them.
    pub jwt_issuers: Vec<JwtIssuerConfig>,
}

impl Default for LocalAuthenticatorOptions {
    fn default() -> Self {
        Self {
            anonymous: AnonymousRequests::all(true),
            audiences: Vec::new(),
            static_tokens: None,
            bootstrap_tokens: false,
            jwt_issuers: Vec::new(),
        }
    }
}

/// A token whose signature was verified.
#[derive(Clone)]
struct VerifiedToken {
    claims: Arc<ServiceAccountClaims>,
    user: Arc<UserInfo>,
}

/// Where the objects behind a token are read.
#[derive(Clone, Copy)]
enum WatchCacheOrStore {
    /// The watch cache.
    WatchCache,
    /// The store.
    Store,
}

/// Authenticates requests by client certificate and service account token.
pub struct LocalAuthenticator {
    client_ca: RwLock<Option<Arc<CertificateVerifier>>>,
    signer: Arc<ServiceAccountTokens>,
    api: OnceLock<Arc<dyn Api>>,
    clock: Arc<dyn Clock>,
    token_cache: Mutex<HashMap<[u8; 32], VerifiedToken>>,
    anonymous: Arc<UserInfo>,
    anonymous_requests: RwLock<Arc<AnonymousRequests>>,
    /// Audiences of this API server.
    audiences: Vec<String>,
    static_tokens: Option<Arc<StaticTokens>>,
    bootstrap_tokens: bool,
    oidc: RwLock<Option<Arc<OidcAuthenticator>>>,
    webhook: OnceLock<WebhookTokenAuthenticator>,
}

impl LocalAuthenticator {
    /// `certificates` verifies client certificates (`--client-ca-file`).
    pub fn new(
        certificates: Option<CertificateVerifier>,
        signer: Arc<ServiceAccountTokens>,
        clock: Arc<dyn Clock>,
        options: LocalAuthenticatorOptions,
    ) -> Arc<Self> {
        let audiences = match options.audiences.is_empty() {
            true => vec![signer.issuer().to_owned()],
            false => options.audiences,
        };
        Arc::new(Self {
            client_ca: RwLock::new(certificates.map(Arc::new)),
            signer,
            api: OnceLock::new(),
            clock,
            token_cache: Mutex::new(HashMap::new()),
            anonymous: anonymous_user(),
            anonymous_requests: RwLock::new(Arc::new(options.anonymous)),
            audiences,
            static_tokens: options.static_tokens,
            bootstrap_tokens: options.bootstrap_tokens,
            oidc: RwLock::default(),
            webhook: OnceLock::new(),
        })
    }

    /// Accepts tokens of these OpenID Connect issuers from now on. They are set late because
    /// their connections belong to the tasks of the server.
    pub fn set_oidc(&self, oidc: OidcAuthenticator) {
        *self.oidc.write() = Some(Arc::new(oidc));
    }

    /// Changes which requests are anonymous.
    pub fn set_anonymous(&self, anonymous: AnonymousRequests) {
        *self.anonymous_requests.write() = Arc::new(anonymous);
    }

    /// Asks a webhook about tokens that nothing else accepts.
    pub fn set_webhook(&self, webhook: WebhookTokenAuthenticator) {
        let _ = self.webhook.set(webhook);
    }

    /// Sets the API through which service accounts are read; until then tokens get 503.
    /// It is set late because the registry behind it is built with the reviews that
    /// need this authenticator.
    pub fn set_api(&self, api: Arc<dyn Api>) {
        let _ = self.api.set(api);
    }

    /// Replaces the CA bundle that client certificates are verified with.
    pub fn set_client_ca(&self, certificates: CertificateVerifier) {
        *self.client_ca.write() = Some(Arc::new(certificates));
    }

    pub(crate) fn signer(&self) -> &ServiceAccountTokens {
        &self.signer
    }

    /// The token issuer, which serves the OpenID discovery document and the JWKS.
    pub fn token_issuer(&self) -> &ServiceAccountTokens {
        &self.signer
    }

    /// Audiences of this API server.
    pub(crate) fn audiences(&self) -> &[String] {
        &self.audiences
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Authenticates by certificate, then by token; a request is anonymous only when it
    /// has neither.
    pub async fn authenticate(
        &self,
        credentials: RequestCredentials<'_>,
    ) -> Result<Arc<UserInfo>, AuthenticationError> {
        let mut failure = None;
        let certificates = self.client_ca.read().clone();
        if let (Some(pool), Some(peer)) = (certificates, credentials.peer)
            && !peer.chain().is_empty()
        {
            match pool.authenticate(peer.chain(), self.clock.now()) {
                Ok(user) => return Ok(user),
                Err(e) => failure = Some(InvalidCredential(format!("client certificate: {e}"))),
            }
        }
        match (credentials.bearer, failure) {
            (Some(token), _) => {
                let token = token_text(token)?;
                self.authenticate_token(token, &[])
                    .await
                    .map(|(user, _)| user)
            }
            (None, Some(failure)) => Err(failure.into()),
            (None, None) if self.anonymous_requests.read().allows(credentials.path) => {
                Ok(Arc::clone(&self.anonymous))
            }
            (None, None) => Err(InvalidCredential(ANONYMOUS_NOT_ALLOWED.into()).into()),
        }
    }

    /// Authenticates a token and returns its user, with the subset of `audiences` for which the
    /// token is valid (empty means the API server's own). Static and bootstrap tokens come first,
    /// then tokens of an OpenID Connect issuer, then service account tokens; the webhook is asked
    /// last.
    pub async fn authenticate_token(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<(Arc<UserInfo>, Vec<String>), AuthenticationError> {
        let tokens = self.static_tokens.as_ref();
        if let Some(user) = tokens.and_then(|tokens| tokens.user(token)) {
            return self.for_audiences(user, audiences);
        }
        if self.bootstrap_tokens
            && let Some(token) = BootstrapToken::parse(token)
            && let Some(user) = self.authenticate_bootstrap_token(&token).await?
        {
            return self.for_audiences(Arc::new(user), audiences);
        }
        let oidc = self.oidc.read().clone();
        if let Some(oidc) = oidc
            && let Some(result) = Box::pin(oidc.authenticate(token, self.clock.now())).await
        {
            return self.for_audiences(Arc::new(result?), audiences);
        }
        let failure = match self.authenticate_service_account(token, audiences).await {
            Err(AuthenticationError::InvalidCredential(failure)) => failure,
            decided => return decided,
        };
        let Some(webhook) = self.webhook.get() else {
            return Err(failure.into());
        };
        let requested = if audiences.is_empty() {
            &self.audiences
        } else {
            audiences
        };
        Box::pin(webhook.authenticate(token, requested, &self.audiences)).await
    }

    /// The user of a token that says nothing about audiences of this server: it is valid for
    /// all of them.
    fn for_audiences(
        &self,
        user: Arc<UserInfo>,
        audiences: &[String],
    ) -> Result<(Arc<UserInfo>, Vec<String>), AuthenticationError> {
        if audiences.is_empty() {
            return Ok((user, self.audiences.clone()));
        }
        let matched = audiences.iter().filter(|a| self.audiences.contains(a));
        let matched: Vec<String> = matched.cloned().collect();
        if matched.is_empty() {
            return Err(InvalidCredential("the token is for another audience".into()).into());
        }
        Ok((user, matched))
    }

    /// The user of a bootstrap token; `None` if nothing, or another token, is stored under its
    /// id.
    async fn authenticate_bootstrap_token(
        &self,
        token: &BootstrapToken,
    ) -> Result<Option<UserInfo>, AuthenticationError> {
        let name = token.secret_name();
        // The watch cache may lag behind a new token.
        for fresh in [WatchCacheOrStore::WatchCache, WatchCacheOrStore::Store] {
            let secret = self
                .get_object(&SECRETS, TOKEN_NAMESPACE, &name, fresh)
                .await;
            let secret = match secret {
                Ok(secret) => secret,
                Err(AuthenticationError::InvalidCredential(_)) => continue,
                Err(failed) => return Err(failed),
            };
            match user_of_token(&secret, token, self.clock.now()) {
                Ok(user) => return Ok(Some(user)),
                Err(error) => tracing::debug!(token = token.id, error, "bootstrap token refused"),
            }
        }
        Ok(None)
    }

    async fn authenticate_service_account(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<(Arc<UserInfo>, Vec<String>), AuthenticationError> {
        let hash: [u8; 32] = Sha256::digest(token).into();
        let cached = self.token_cache.lock().get(&hash).cloned();
        let is_new = cached.is_none();
        let verified = match cached {
            Some(verified) => verified,
            None => {
                let claims = self.signer.verify(token).map_err(InvalidCredential)?;
                VerifiedToken {
                    user: Arc::new(claims.user_info()),
                    claims: Arc::new(claims),
                }
            }
        };
        check_validity_period(&verified.claims, self.clock.now())?;
        let token_audiences = match verified.claims.audiences.as_slice() {
            // A token in a secret is for the API server, whatever its audiences are
            // called.
            [] => &self.audiences,
            token_audiences => token_audiences,
        };
        let requested = match audiences {
            [] => &self.audiences,
            requested => requested,
        };
        let matched = requested.iter().filter(|a| token_audiences.contains(a));
        let matched: Vec<String> = matched.cloned().collect();
        if matched.is_empty() {
            return Err(InvalidCredential("the token is for another audience".into()).into());
        }
        if let Err(denied) = self.check_objects(&verified.claims, token).await {
            if matches!(denied, AuthenticationError::InvalidCredential(_)) {
                self.token_cache.lock().remove(&hash);
            }
            return Err(denied);
        }
        let user = Arc::clone(&verified.user);
        if is_new {
            let mut all = self.token_cache.lock();
            if all.len() >= MAX_CACHED_TOKENS {
                all.clear();
            }
            all.insert(hash, verified);
        }
        Ok((user, matched))
    }

    /// Checks that the account, the secret and the bound object still exist with the
    /// same UIDs and are not being deleted. Reads the store only before refusing a token, because the watch cache
    /// may lag behind a new account or secret.
    async fn check_objects(
        &self,
        claims: &ServiceAccountClaims,
        token: &str,
    ) -> Result<(), AuthenticationError> {
        match self
            .check_objects_in(claims, token, WatchCacheOrStore::WatchCache)
            .await
        {
            Ok(()) => Ok(()),
            Err(_) => {
                self.check_objects_in(claims, token, WatchCacheOrStore::Store)
                    .await
            }
        }
    }

    async fn check_objects_in(
        &self,
        claims: &ServiceAccountClaims,
        token: &str,
        fresh: WatchCacheOrStore,
    ) -> Result<(), AuthenticationError> {
        let namespace = &claims.namespace;
        let name = &claims.account;
        let account = self
            .get_object(&SERVICE_ACCOUNTS, namespace, name, fresh)
            .await?;
        // Only tokens that expire have leeway, as in kube-apiserver.
        let leeway = match claims.secret {
            Some(_) => SignedDuration::ZERO,
            None => DELETION_LEEWAY,
        };
        self.check_not_deleted(&account, leeway)?;
        if account.uid() != claims.account_uid {
            return Err(InvalidCredential(
                "The service account UID does not match the claim".into(),
            )
            .into());
        }
        if let Some(secret) = &claims.secret {
            let secret = self.get_object(&SECRETS, namespace, secret, fresh).await?;
            if !secret
                .meta()
                .label(INVALID_SINCE_LABEL)
                .unwrap_or_default()
                .is_empty()
            {
                let message =
                    format!("the token is marked invalid by the label {INVALID_SINCE_LABEL}");
                return Err(InvalidCredential(message).into());
            }
            if secret.meta().deleting || stored_token(&secret).as_deref() != Some(token) {
                return Err(InvalidCredential(
                    "the token does not match the server's copy in the secret".into(),
                )
                .into());
            }
        }
        if let Some(bound) = &claims.bound {
            let (gvr, namespace) = match bound.kind.as_str() {
                "Pod" => (PODS, claims.namespace.as_str()),
                "Secret" => (SECRETS, claims.namespace.as_str()),
                _ => (NODES, ""),
            };
            let object = self.get_object(&gvr, namespace, &bound.name, fresh).await?;
            self.check_not_deleted(&object, leeway)?;
            if object.uid() != bound.uid {
                return Err(InvalidCredential(
                    "the UID of the bound object does not match the claim".into(),
                )
                .into());
            }
        }
        Ok(())
    }

    /// Fails if an object was deleted longer ago than the leeway and waits for its removal.
    fn check_not_deleted(
        &self,
        object: &Object,
        leeway: SignedDuration,
    ) -> Result<(), InvalidCredential> {
        if !object.meta().deleting {
            return Ok(());
        }
        match object.deletion_timestamp() {
            Some(deleted) if leeway > SignedDuration::ZERO && deleted >= self.now() - leeway => {
                Ok(())
            }
            _ => {
                let key = object.meta().key();
                Err(InvalidCredential(format!("{key:?} has been deleted")))
            }
        }
    }

    async fn get_object(
        &self,
        gvr: &Gvr,
        namespace: &str,
        name: &str,
        fresh: WatchCacheOrStore,
    ) -> Result<Object, AuthenticationError> {
        let api = self.api.get();
        let api = api.ok_or_else(|| Status::unavailable("service accounts cannot be read yet"))?;
        let path = ResourcePath::object(gvr, namespace, name);
        let result = match fresh {
            WatchCacheOrStore::WatchCache => api.get_cached(path).await,
            WatchCacheOrStore::Store => api.get(path).await,
        };
        result.map_err(|error| match error {
            error if error.is_not_found() => InvalidCredential(error.to_string()).into(),
            Error::Status(status) if status.code >= 500 => status.with_retry_after(1).into(),
            other => {
                Status::unavailable(format!("service accounts cannot be read: {other}")).into()
            }
        })
    }

    pub(crate) fn api(&self) -> Option<&Arc<dyn Api>> {
        self.api.get()
    }
}

fn check_validity_period(
    claims: &ServiceAccountClaims,
    now: Timestamp,
) -> Result<(), InvalidCredential> {
    let now = now.as_second();
    if claims.expires.is_some_and(|at| at <= now) {
        return Err(InvalidCredential("the token has expired".into()));
    }
    // Allows for half a minute of clock skew between replicas.
    if claims.not_before.is_some_and(|at| at > now + 30) {
        return Err(InvalidCredential("the token is not valid yet".into()));
    }
    Ok(())
}

fn stored_token(secret: &Object) -> Option<String> {
    #[derive(Deserialize)]
    struct TokenSecretData {
        data: Option<HashMap<String, String>>,
    }
    use base64::Engine;
    let data: TokenSecretData = machinery::json::from_slice(&secret.bytes()).ok()?;
    let raw = base64::engine::general_purpose::STANDARD
        .decode(data.data?.get("token")?)
        .ok()?;
    String::from_utf8(raw).ok()
}

#[cfg(test)]
mod tests;
