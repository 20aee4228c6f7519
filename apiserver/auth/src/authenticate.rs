//! From credentials to a user.
//!
//! Enters: the client's certificate chain and its bearer token. Leaves: a user,
//! or a refusal. Reads service accounts, secrets and pods through `client::Api`.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use client::{Api, At};
use jiff::Timestamp;
use machinery::time::Clock;
use machinery::user::{ANONYMOUS, UNAUTHENTICATED};
use machinery::{Gvr, Object, UserInfo};
use parking_lot::Mutex;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use tokio::time::{Duration, Instant};

use crate::tls::Peer;
use crate::token::{Claims, Signer};
use crate::x509::Verifier;

pub(crate) const ACCOUNTS: Gvr = Gvr::constant("", "v1", "serviceaccounts");
pub(crate) const SECRETS: Gvr = Gvr::constant("", "v1", "secrets");
pub(crate) const PODS: Gvr = Gvr::constant("", "v1", "pods");
pub(crate) const NODES: Gvr = Gvr::constant("", "v1", "nodes");

/// Tokens remembered at most.
const REMEMBERED: usize = 4096;
/// How long the account of a token is taken to be alive without another look.
const ALIVE_FOR: Duration = Duration::from_secs(1);

/// Shows each header of a request, name in lower case, value as it came.
pub type Headers<'a> = &'a (dyn Fn(&mut dyn FnMut(&str, &[u8])) + Send + Sync);

/// What a request brings.
#[derive(Clone, Copy, Default)]
pub struct Credentials<'a> {
    pub peer: Option<&'a Peer>,
    /// The value of `Authorization: Bearer`, as it came.
    pub bearer: Option<&'a [u8]>,
    /// Where a front proxy says for whom it asks; looked at behind one only.
    pub headers: Option<Headers<'a>>,
}

/// A credential was given and is not good: 401. The reason is for the log, not
/// for the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

#[derive(Clone)]
struct Known {
    claims: Arc<Claims>,
    user: Arc<UserInfo>,
    alive_at: Option<Instant>,
}

/// Decides who asks.
pub struct Authenticator {
    certificates: Option<Verifier>,
    signer: Arc<Signer>,
    api: OnceLock<Arc<dyn Api>>,
    clock: Arc<dyn Clock>,
    known: Mutex<HashMap<[u8; 32], Known>>,
    anonymous: Arc<UserInfo>,
}

impl Authenticator {
    /// `certificates` is the pool of client certificate authorities.
    pub fn new(
        certificates: Option<Verifier>,
        signer: Arc<Signer>,
        clock: Arc<dyn Clock>,
    ) -> Arc<Self> {
        Arc::new(Self {
            certificates,
            signer,
            api: OnceLock::new(),
            clock,
            known: Mutex::new(HashMap::new()),
            anonymous: anonymous(),
        })
    }

    /// Says where accounts are looked up. Until then tokens are refused. Given
    /// later than the rest because the registry, which answers, is itself made
    /// with the reviews that need this authenticator.
    pub fn attach(&self, api: Arc<dyn Api>) {
        let _ = self.api.set(api);
    }

    pub(crate) fn signer(&self) -> &Signer {
        &self.signer
    }

    /// The documents of the token issuer: discovery and keys.
    pub fn issuer(&self) -> &Signer {
        &self.signer
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The user of a request: by certificate, then by token; anonymous only when
    /// neither was given.
    pub async fn authenticate(&self, given: Credentials<'_>) -> Result<Arc<UserInfo>, Refused> {
        let mut refused = None;
        if let (Some(pool), Some(peer)) = (&self.certificates, given.peer)
            && !peer.chain().is_empty()
        {
            match pool.user(peer.chain(), self.clock.now()) {
                Ok(user) => return Ok(user),
                Err(why) => refused = Some(Refused(format!("client certificate: {why}"))),
            }
        }
        match (given.bearer, refused) {
            (Some(token), _) => {
                let token = readable(token)?;
                self.token(token, &[]).await.map(|(user, _)| user)
            }
            (None, Some(refused)) => Err(refused),
            (None, None) => Ok(Arc::clone(&self.anonymous)),
        }
    }

    /// The user of a token, and which of `audiences` it is for (empty: the API
    /// server's own).
    pub async fn token(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<(Arc<UserInfo>, Vec<String>), Refused> {
        let hash: [u8; 32] = Sha256::digest(token).into();
        let found = self.known.lock().get(&hash).cloned();
        let mut known = match found {
            Some(known) => known,
            None => {
                let claims = self.signer.verify(token).map_err(Refused)?;
                Known {
                    user: Arc::new(claims.user()),
                    claims: Arc::new(claims),
                    alive_at: None,
                }
            }
        };
        check_times(&known.claims, self.clock.now())?;
        let own = [self.signer.issuer().to_owned()];
        let wanted = if audiences.is_empty() {
            &own
        } else {
            audiences
        };
        let matched: Vec<String> = wanted
            .iter()
            .filter(|a| known.claims.audiences.contains(a))
            .cloned()
            .collect();
        if matched.is_empty() {
            return Err(Refused("the token is for another audience".into()));
        }
        if known.alive_at.is_none_or(|at| at.elapsed() > ALIVE_FOR) {
            let alive = self.alive(&known.claims, token).await;
            if let Err(refused) = alive {
                self.known.lock().remove(&hash);
                return Err(refused);
            }
            known.alive_at = Some(Instant::now());
            let mut all = self.known.lock();
            if all.len() >= REMEMBERED {
                all.clear();
            }
            all.insert(hash, known.clone());
        }
        Ok((known.user, matched))
    }

    /// The account, the secret and the bound object are there and the same.
    async fn alive(&self, claims: &Claims, token: &str) -> Result<(), Refused> {
        let account = self
            .object(&ACCOUNTS, &claims.namespace, &claims.account)
            .await?;
        if account.uid() != claims.account_uid {
            return Err(Refused("the service account is another one now".into()));
        }
        if let Some(secret) = &claims.secret {
            let secret = self.object(&SECRETS, &claims.namespace, secret).await?;
            if secret.head().deleting || stored_token(&secret).as_deref() != Some(token) {
                return Err(Refused("the secret holds another token".into()));
            }
        }
        if let Some(bound) = &claims.bound {
            let (gvr, namespace) = match bound.kind.as_str() {
                "Pod" => (PODS, claims.namespace.as_str()),
                "Secret" => (SECRETS, claims.namespace.as_str()),
                _ => (NODES, ""),
            };
            let object = self.object(&gvr, namespace, &bound.name).await?;
            if object.uid() != bound.uid {
                return Err(Refused("the token's object is another one now".into()));
            }
        }
        Ok(())
    }

    async fn object(&self, gvr: &Gvr, namespace: &str, name: &str) -> Result<Object, Refused> {
        let api = self
            .api
            .get()
            .ok_or_else(|| Refused("accounts cannot be looked up yet".into()))?;
        api.get(At::one(gvr, namespace, name))
            .await
            .map_err(|e| Refused(e.to_string()))
    }

    pub(crate) fn api(&self) -> Option<&Arc<dyn Api>> {
        self.api.get()
    }
}

/// A bearer token as text. Bytes that are none are a bad credential, not a missing one.
pub(crate) fn readable(token: &[u8]) -> Result<&str, Refused> {
    std::str::from_utf8(token).map_err(|_| Refused("the token is not UTF-8".into()))
}

/// The user of a request without credentials.
pub(crate) fn anonymous() -> Arc<UserInfo> {
    Arc::new(UserInfo {
        name: ANONYMOUS.into(),
        groups: vec![UNAUTHENTICATED.into()],
        ..UserInfo::default()
    })
}

fn check_times(claims: &Claims, now: Timestamp) -> Result<(), Refused> {
    let now = now.as_second();
    if claims.expires.is_some_and(|at| at <= now) {
        return Err(Refused("the token has expired".into()));
    }
    // Half a minute of grace between the clocks of replicas.
    if claims.not_before.is_some_and(|at| at > now + 30) {
        return Err(Refused("the token is not valid yet".into()));
    }
    Ok(())
}

fn stored_token(secret: &Object) -> Option<String> {
    #[derive(Deserialize)]
    struct Data {
        data: Option<HashMap<String, String>>,
    }
    use base64::Engine;
    let data: Data = serde_json::from_slice(secret.bytes()).ok()?;
    let raw = base64::engine::general_purpose::STANDARD
        .decode(data.data?.get("token")?)
        .ok()?;
    String::from_utf8(raw).ok()
}
