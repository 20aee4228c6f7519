//! Authenticates bearer tokens by TokenReview (contract D3.1).

use std::sync::Arc;
use std::time::Duration;

use client::Api;
use hmac::{Hmac, KeyInit, Mac};
use machinery::{Gvr, Status, UserInfo};
use rand::RngCore;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::Sha256;

use super::extension_authentication::add_authenticated_group;
use super::options::DelegatedAuthOptions;
use super::review_cache::{ReviewCache, ReviewDigest};
use super::review_client;
use crate::credentials::{AuthenticationError, InvalidCredential};

static REVIEWS: Gvr = Gvr::from_static("authentication.k8s.io", "v1", "tokenreviews");
/// Block size of SHA-256 in bytes.
pub(crate) const SHA256_BLOCK_BYTES: usize = 64;

#[derive(Deserialize, Default)]
#[serde(default)]
struct TokenReviewStatus {
    authenticated: bool,
    /// Empty when not authenticated.
    user: Value,
    audiences: Vec<String>,
    error: String,
}

/// The user, and the audiences that the review names.
pub(crate) type TokenReviewResult = Result<(Arc<UserInfo>, Vec<String>), InvalidCredential>;

pub(super) struct TokenReviewAuthenticator {
    host: Arc<dyn Api>,
    audiences: Vec<String>,
    ttl: Duration,
    cache: ReviewCache<TokenReviewResult>,
    /// Key of the HMAC under which tokens are cached, so that nobody else can compute
    /// the cache key.
    secret: [u8; SHA256_BLOCK_BYTES],
}

impl TokenReviewAuthenticator {
    pub(super) fn new(host: Arc<dyn Api>, options: &DelegatedAuthOptions) -> Self {
        let mut secret = [0; SHA256_BLOCK_BYTES];
        rand::rng().fill_bytes(&mut secret);
        Self {
            host,
            audiences: options.audiences.clone(),
            ttl: options.token_cache_ttl,
            cache: ReviewCache::default(),
            secret,
        }
    }

    /// The user of a token. All reviews have the same audiences, so the cache key omits
    /// them.
    pub(super) async fn authenticate_token(
        &self,
        token: &str,
    ) -> Result<Arc<UserInfo>, AuthenticationError> {
        let key = hmac_sha256(&self.secret, token.as_bytes());
        let result = self
            .cache
            .get_or_review(key, self.create_review(token))
            .await;
        let (user, audiences) = result??;
        // A host without audience support returns no audiences and has checked its own.
        let is_audience_valid = self.audiences.is_empty()
            || audiences.is_empty()
            || audiences.iter().any(|a| self.audiences.contains(a));
        match is_audience_valid {
            true => Ok(user),
            false => Err(InvalidCredential("the token is for another audience".into()).into()),
        }
    }

    async fn create_review(&self, token: &str) -> Result<(TokenReviewResult, Duration), Status> {
        let mut spec = json!({"token": token});
        if !self.audiences.is_empty() {
            spec["audiences"] = json!(self.audiences);
        }
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
                          "metadata": {}, "spec": spec});
        let status = review_client::create_review(&*self.host, &REVIEWS, &body).await?;
        Ok((evaluate_status(status)?, self.ttl))
    }
}

pub(crate) fn evaluate_status(status: Value) -> Result<TokenReviewResult, Status> {
    let review: TokenReviewStatus = match status {
        Value::Null => TokenReviewStatus::default(),
        status => serde_json::from_value(status).map_err(Status::internal)?,
    };
    if !review.authenticated {
        let message = match review.error.as_str() {
            "" => "invalid bearer token",
            error => error,
        };
        return Ok(Err(InvalidCredential(format!("token: {message}"))));
    }
    let user = serde_json::from_value::<UserInfo>(review.user);
    match user.ok().filter(|user| !user.name.is_empty()) {
        Some(user) => Ok(Ok((
            Arc::new(add_authenticated_group(user)),
            review.audiences,
        ))),
        None => Err(Status::internal(
            "the TokenReview authenticated a user without a name",
        )),
    }
}

pub(crate) fn hmac_sha256(key: &[u8; SHA256_BLOCK_BYTES], message: &[u8]) -> ReviewDigest {
    let mac = Hmac::<Sha256>::new(key.into()).chain_update(message);
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4231, test case 2, with its key padded to a block.
    #[test]
    fn hmac_matches_rfc_4231() {
        let mut key = [0; SHA256_BLOCK_BYTES];
        key[..4].copy_from_slice(b"Jefe");
        let digest = hmac_sha256(&key, b"what do ya want for nothing?");
        let hex: String = digest.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(
            hex,
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }
}
