//! The public keys of an issuer: found through its discovery document, cached, and read
//! again when a token names a key that is not among them.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use client::remote::RestConfig;
use client::{Api, RemoteApi, TaskGroup};
use jsonwebtoken::jwk::{AlgorithmParameters, Jwk};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How often keys are read at most: tokens with invented key ids must not make this server
/// flood the issuer.
const MIN_REFRESH_INTERVAL: Duration = Duration::from_secs(10);
/// How long keys are used without being read again, so that a key that the issuer has
/// revoked is not accepted for long.
const MAX_AGE: Duration = Duration::from_secs(3600);
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_DOCUMENT_BYTES: usize = 1 << 20;
const MAX_KEYS: usize = 100;

/// A public key of an issuer.
pub(super) struct IssuerKey {
    id: String,
    /// The algorithms that the key can verify.
    algorithms: &'static [Algorithm],
    pub(super) key: DecodingKey,
}

impl IssuerKey {
    /// A key that cannot verify signatures is `None`.
    fn from_jwk(value: &Value) -> Option<Self> {
        if value.get("use").is_some_and(|usage| usage != "sig") {
            return None;
        }
        let jwk: Jwk = serde_json::from_value(value.clone()).ok()?;
        let algorithms: &[Algorithm] = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => &[
                Algorithm::RS256,
                Algorithm::RS384,
                Algorithm::RS512,
                Algorithm::PS256,
                Algorithm::PS384,
                Algorithm::PS512,
            ],
            AlgorithmParameters::EllipticCurve(_) => match value["crv"].as_str()? {
                "P-256" => &[Algorithm::ES256],
                "P-384" => &[Algorithm::ES384],
                _ => return None,
            },
            _ => return None,
        };
        Some(Self {
            id: value["kid"].as_str().unwrap_or_default().to_owned(),
            algorithms,
            key: DecodingKey::from_jwk(&jwk).ok()?,
        })
    }
}

type IssuerKeys = Arc<[IssuerKey]>;

#[derive(Default)]
struct CachedKeys {
    keys: Option<(Instant, IssuerKeys)>,
    /// The last attempt to read them, and why it failed.
    attempt: Option<(Instant, Option<String>)>,
}

pub(super) struct RemoteKeySet {
    issuer: String,
    discovery_url: String,
    ca_pem: Option<String>,
    tasks: TaskGroup,
    cached: Mutex<CachedKeys>,
}

impl RemoteKeySet {
    pub(super) fn new(
        issuer: &str,
        discovery_url: &str,
        ca_pem: Option<&str>,
        tasks: &TaskGroup,
    ) -> Self {
        Self {
            issuer: issuer.to_owned(),
            discovery_url: discovery_url.to_owned(),
            ca_pem: ca_pem.map(str::to_owned),
            tasks: tasks.clone(),
            cached: Mutex::default(),
        }
    }

    /// The keys that may have signed a token with this key id and algorithm. Concurrent
    /// callers share one request to the issuer.
    pub(super) async fn keys(&self, id: &str, algorithm: Algorithm) -> Result<Vec<KeyRef>, String> {
        let mut cached = self.cached.lock().await;
        let now = Instant::now();
        if let Some((read, keys)) = &cached.keys
            && now.duration_since(*read) < MAX_AGE
        {
            let matches = matching(keys, id, algorithm);
            let retried = cached.attempt.as_ref();
            let recently =
                retried.is_some_and(|(at, _)| now.duration_since(*at) < MIN_REFRESH_INTERVAL);
            if !matches.is_empty() || recently {
                return Ok(matches);
            }
        } else if let Some((at, Some(message))) = &cached.attempt
            && now.duration_since(*at) < MIN_REFRESH_INTERVAL
        {
            return Err(message.clone());
        }
        let read = match tokio::time::timeout(FETCH_TIMEOUT, self.fetch()).await {
            Ok(read) => read,
            Err(_) => Err(format!("no response within {} s", FETCH_TIMEOUT.as_secs())),
        };
        let failure = read.as_ref().err().cloned();
        cached.attempt = Some((now, failure));
        let keys = read.map_err(|message| {
            tracing::warn!(
                issuer = self.issuer,
                message,
                "the keys of a token issuer cannot be read"
            );
            message
        })?;
        let matches = matching(&keys, id, algorithm);
        cached.keys = Some((now, keys));
        Ok(matches)
    }

    async fn fetch(&self) -> Result<IssuerKeys, String> {
        let document = self.get(&self.discovery_url).await?;
        if document["issuer"] != self.issuer.as_str() {
            return Err("the discovery document is of another issuer".into());
        }
        let uri = document["jwks_uri"].as_str().unwrap_or_default();
        let set = self.get(uri).await?;
        let keys = set["keys"].as_array().into_iter().flatten();
        Ok(keys
            .take(MAX_KEYS)
            .filter_map(IssuerKey::from_jwk)
            .collect())
    }

    async fn get(&self, url: &str) -> Result<Value, String> {
        let unusable = || format!("cannot use the URL {url:?}");
        let rest = url.strip_prefix("https://").ok_or_else(unusable)?;
        let end = rest.find('/').unwrap_or(rest.len());
        let (host, path) = rest.split_at(end);
        let mut config = RestConfig::new(&format!("https://{host}")).map_err(|_| unusable())?;
        config.ca = self.ca_pem.as_ref().map(|pem| pem.as_bytes().to_vec());
        let api = RemoteApi::new(config, &self.tasks).map_err(|e| e.to_string())?;
        let path = if path.is_empty() { "/" } else { path };
        let body = api.get_raw(path).await.map_err(|e| e.to_string())?;
        if body.len() > MAX_DOCUMENT_BYTES {
            return Err(format!("the document of {url} is too large"));
        }
        machinery::json::from_slice(&body).map_err(|e| format!("{url} is not JSON: {e}"))
    }
}

/// A key in the set that it was read with.
pub(super) struct KeyRef {
    keys: IssuerKeys,
    index: usize,
}

impl std::ops::Deref for KeyRef {
    type Target = IssuerKey;

    fn deref(&self) -> &IssuerKey {
        &self.keys[self.index]
    }
}

/// The keys with this id; without an id, all that can verify the algorithm.
fn matching(keys: &IssuerKeys, id: &str, algorithm: Algorithm) -> Vec<KeyRef> {
    let is_match =
        |key: &IssuerKey| key.algorithms.contains(&algorithm) && (id.is_empty() || key.id == id);
    (0..keys.len())
        .filter(|index| is_match(&keys[*index]))
        .map(|index| KeyRef {
            keys: Arc::clone(keys),
            index,
        })
        .collect()
}

/// An algorithm that may be used, by its name.
pub(super) fn algorithm(name: &str) -> Option<Algorithm> {
    Algorithm::from_str(name).ok()
}
