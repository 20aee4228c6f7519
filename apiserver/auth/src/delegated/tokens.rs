//! Authenticates bearer tokens by TokenReview (contract D3.1).

use std::sync::Arc;
use std::time::Duration;

use client::Api;
use machinery::{Gvr, Status, UserInfo};
use rand::RngCore;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::Options;
use super::answers::{Answers, Key};
use super::review;
use super::trust::include_everyone;
use crate::access::Denied;
use crate::authenticate::Refused;

static REVIEWS: Gvr = Gvr::constant("authentication.k8s.io", "v1", "tokenreviews");
/// Block size of SHA-256 in bytes.
const BLOCK: usize = 64;

#[derive(Deserialize, Default)]
#[serde(default)]
struct Review {
    authenticated: bool,
    /// Empty when not authenticated.
    user: Value,
    audiences: Vec<String>,
    error: String,
}

type Verdict = Result<Arc<UserInfo>, Refused>;

pub(super) struct Tokens {
    host: Arc<dyn Api>,
    audiences: Vec<String>,
    ttl: Duration,
    answers: Answers<Verdict>,
    /// Key of the HMAC under which tokens are cached, so that nobody else can compute
    /// the cache key.
    secret: [u8; BLOCK],
}

impl Tokens {
    pub(super) fn new(host: Arc<dyn Api>, options: &Options) -> Self {
        let mut secret = [0; BLOCK];
        rand::rng().fill_bytes(&mut secret);
        Self {
            host,
            audiences: options.audiences.clone(),
            ttl: options.token_ttl,
            answers: Answers::default(),
            secret,
        }
    }

    /// The user of a token. All reviews have the same audiences, so the cache key omits
    /// them.
    pub(super) async fn user(&self, token: &str) -> Result<Arc<UserInfo>, Denied> {
        let key = hmac(&self.secret, token.as_bytes());
        let answer = self.answers.get(key, self.review(token)).await;
        Ok(answer??)
    }

    async fn review(&self, token: &str) -> Result<(Verdict, Duration), Status> {
        let mut spec = json!({"token": token});
        if !self.audiences.is_empty() {
            spec["audiences"] = json!(self.audiences);
        }
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
                          "metadata": {}, "spec": spec});
        let status = review::ask(&*self.host, &REVIEWS, &body).await?;
        Ok((self.verdict(status)?, self.ttl))
    }

    fn verdict(&self, status: Value) -> Result<Verdict, Status> {
        let review: Review = match status {
            Value::Null => Review::default(),
            status => serde_json::from_value(status).map_err(Status::internal)?,
        };
        if !review.authenticated {
            let why = match review.error.as_str() {
                "" => "invalid bearer token",
                error => error,
            };
            return Ok(Err(Refused(format!("token: {why}"))));
        }
        // A host without audience support returns no audiences and has checked its own.
        let fits = self.audiences.is_empty()
            || review.audiences.is_empty()
            || review.audiences.iter().any(|a| self.audiences.contains(a));
        let user = serde_json::from_value::<UserInfo>(review.user);
        match user.ok().filter(|user| !user.name.is_empty()) {
            Some(user) if fits => Ok(Ok(Arc::new(include_everyone(user)))),
            Some(_) => Ok(Err(Refused("the token is for another audience".into()))),
            None => Err(Status::internal(
                "the TokenReview authenticated a user without a name",
            )),
        }
    }
}

/// RFC 2104 over SHA-256, with a key of one block.
fn hmac(key: &[u8; BLOCK], message: &[u8]) -> Key {
    let inner = Sha256::new()
        .chain_update(key.map(|b| b ^ 0x36))
        .chain_update(message)
        .finalize();
    Sha256::new()
        .chain_update(key.map(|b| b ^ 0x5c))
        .chain_update(inner)
        .finalize()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4231, test case 2, with its key padded to a block.
    #[test]
    fn hmac_is_the_standard_one() {
        let mut key = [0; BLOCK];
        key[..4].copy_from_slice(b"Jefe");
        let digest = hmac(&key, b"what do ya want for nothing?");
        let hex: String = digest.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(
            hex,
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }
}
