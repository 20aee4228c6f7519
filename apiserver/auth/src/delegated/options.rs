//! Options of delegated authentication and authorization.

use std::time::Duration;

/// Options of delegated authentication and authorization.
#[derive(Clone, Debug)]
pub struct DelegatedAuthOptions {
    /// Whether requests without credentials are anonymous; otherwise they get 401.
    pub anonymous: bool,
    /// Audiences for which a token must be valid; empty means the host's audiences.
    pub audiences: Vec<String>,
    /// How long the result of a TokenReview is cached, authenticated or not.
    pub token_cache_ttl: Duration,
    pub authorized_cache_ttl: Duration,
    pub unauthorized_cache_ttl: Duration,
}

impl Default for DelegatedAuthOptions {
    fn default() -> Self {
        let ttl = Duration::from_secs(10);
        Self {
            anonymous: true,
            audiences: Vec::new(),
            token_cache_ttl: ttl,
            authorized_cache_ttl: ttl,
            unauthorized_cache_ttl: ttl,
        }
    }
}
