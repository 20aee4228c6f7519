//! An issuer of OpenID Connect inside a test: its documents over HTTPS, and tokens that it
//! signs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::Response;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use parking_lot::Mutex;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData};
use serde_json::{Value, json};

use crate::http_client::full_body;
use crate::https_server::{FakeHttpsServer, TestRequestHandler};

struct IssuerKey {
    id: String,
    pair: KeyPair,
}

/// A running issuer. Dropping it stops it.
pub struct FakeTokenIssuer {
    pub url: String,
    pub ca_pem: String,
    keys: Arc<Mutex<Vec<IssuerKey>>>,
    /// How often the keys were read.
    reads: Arc<AtomicUsize>,
    _server: FakeHttpsServer,
}

impl FakeTokenIssuer {
    /// Starts an issuer with one key.
    pub async fn start() -> Self {
        let keys: Arc<Mutex<Vec<IssuerKey>>> = Arc::default();
        let reads = Arc::new(AtomicUsize::new(0));
        let url = Arc::new(Mutex::new(String::new()));
        let handler: TestRequestHandler = {
            let (keys, url, reads) = (Arc::clone(&keys), Arc::clone(&url), Arc::clone(&reads));
            Arc::new(move |request| {
                let url = url.lock().clone();
                let (code, body) = match request.uri().path() {
                    "/.well-known/openid-configuration" => (
                        200,
                        json!({"issuer": url, "jwks_uri": format!("{url}/keys")}),
                    ),
                    "/keys" => {
                        reads.fetch_add(1, Ordering::SeqCst);
                        let keys: Vec<Value> = keys.lock().iter().map(jwk).collect();
                        (200, json!({"keys": keys}))
                    }
                    _ => (404, json!({})),
                };
                let response = Response::builder()
                    .status(code)
                    .body(full_body(body.to_string()));
                Box::pin(async move { response.unwrap() })
            })
        };
        let server = FakeHttpsServer::start(handler).await;
        *url.lock() = format!("https://{}", server.address);
        let issuer = Self {
            url: url.lock().clone(),
            ca_pem: server.ca_pem.clone(),
            keys,
            reads,
            _server: server,
        };
        issuer.add_key("first");
        issuer
    }

    /// Adds a key, with which the following tokens are signed.
    pub fn add_key(&self, id: &str) {
        let id = id.to_owned();
        let pair = new_key();
        self.keys.lock().push(IssuerKey { id, pair });
    }

    pub fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }

    /// A token with these claims.
    pub fn token(&self, claims: &Value) -> String {
        let keys = self.keys.lock();
        let key = keys.last().unwrap();
        signed_token(claims, &key.pair, &key.id)
    }
}

/// A new key for tokens.
pub fn new_key() -> KeyPair {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap()
}

/// A token with these claims, signed with any key.
pub fn signed_token(claims: &Value, pair: &KeyPair, id: &str) -> String {
    let mut header = Header::new(Algorithm::ES256);
    header.kid = Some(id.to_owned());
    let key = EncodingKey::from_ec_pem(pair.serialize_pem().as_bytes()).unwrap();
    jsonwebtoken::encode(&header, claims, &key).unwrap()
}

fn jwk(key: &IssuerKey) -> Value {
    let point = &key.pair.der_bytes()[1..];
    let (x, y) = point.split_at(32);
    json!({"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": key.id,
        "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y)})
}
