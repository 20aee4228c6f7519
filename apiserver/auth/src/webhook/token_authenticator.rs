//! Authenticates bearer tokens by TokenReview of a webhook
//! (`--authentication-token-webhook-config-file`).

use std::sync::Arc;
use std::time::Duration;

use machinery::{Status, UserInfo};
use rand::RngCore;
use serde_json::json;

use super::review_endpoint::ReviewEndpoint;
use crate::credentials::{AuthenticationError, InvalidCredential};
use crate::delegated::review_cache::ReviewCache;
use crate::delegated::token_review::{
    SHA256_BLOCK_BYTES, TokenReviewResult, evaluate_status, hmac_sha256,
};

/// Authenticates tokens by a webhook.
pub struct WebhookTokenAuthenticator {
    endpoint: ReviewEndpoint,
    cache_ttl: Duration,
    cache: ReviewCache<TokenReviewResult>,
    /// Key of the HMAC under which tokens are cached.
    secret: [u8; SHA256_BLOCK_BYTES],
}

impl WebhookTokenAuthenticator {
    /// Reviews are cached for `cache_ttl`, whatever their result.
    pub fn new(endpoint: ReviewEndpoint, cache_ttl: Duration) -> Self {
        let mut secret = [0; SHA256_BLOCK_BYTES];
        rand::rng().fill_bytes(&mut secret);
        Self {
            endpoint,
            cache_ttl,
            cache: ReviewCache::default(),
            secret,
        }
    }

    /// The user of a token for `audiences`, and those for which it is valid. A webhook that
    /// names none has checked `own_audiences`.
    pub(crate) async fn authenticate(
        &self,
        token: &str,
        audiences: &[String],
        own_audiences: &[String],
    ) -> Result<(Arc<UserInfo>, Vec<String>), AuthenticationError> {
        let mut message = token.as_bytes().to_vec();
        for audience in audiences {
            message.push(0);
            message.extend_from_slice(audience.as_bytes());
        }
        let key = hmac_sha256(&self.secret, &message);
        let review = self.review(token, audiences);
        // As in kube-apiserver, a webhook that fails does not authenticate: 401.
        let reviewed = self.cache.get_or_review(key, review).await;
        let (user, reviewed_audiences) =
            reviewed.map_err(|status| InvalidCredential(status.message))??;
        let valid = if reviewed_audiences.is_empty() {
            own_audiences
        } else {
            &reviewed_audiences
        };
        let matched: Vec<String> = audiences
            .iter()
            .filter(|a| valid.contains(a))
            .cloned()
            .collect();
        if matched.is_empty() {
            return Err(InvalidCredential("the token is for another audience".into()).into());
        }
        Ok((user, matched))
    }

    async fn review(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<(TokenReviewResult, Duration), Status> {
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "metadata": {"creationTimestamp": null},
            "spec": {"token": token, "audiences": audiences}, "status": {"user": {}}});
        let reviewed = self.endpoint.review(&body, |_, _| {}).await;
        let status = reviewed.map_err(|failure| {
            tracing::warn!(error = failure.message, "the authentication webhook failed");
            Status::unavailable("the authentication webhook cannot be reached")
        })?;
        Ok((evaluate_status(status)?, self.cache_ttl))
    }
}
