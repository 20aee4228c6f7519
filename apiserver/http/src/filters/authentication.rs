//! Authenticates requests; fails with 401 on an invalid credential (kube-apiserver's
//! `WithAuthentication`).

use std::sync::Arc;
use std::time::Instant;

use auth::{AuthenticationError, PeerCertificates, RequestAuthenticator, RequestCredentials};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use machinery::{Status, UserInfo};

use super::async_check::{AsyncCheck, AsyncCheckLayer};
use super::request::{AuthenticatedRequest, ResolvedRequest};
use crate::metrics::ApiServerMetrics;

pub(super) type AuthenticationLayer = AsyncCheckLayer<AuthenticationFilter>;

impl AuthenticationLayer {
    pub(super) fn with_metrics(
        authenticator: &Arc<RequestAuthenticator>,
        metrics: &Arc<ApiServerMetrics>,
    ) -> Self {
        Self::new(AuthenticationFilter {
            authenticator: Arc::clone(authenticator),
            metrics: Arc::clone(metrics),
        })
    }
}

impl<B: Send> AsyncCheck<ResolvedRequest<B>> for AuthenticationFilter {
    type Checked = AuthenticatedRequest<B>;

    async fn check(&self, request: ResolvedRequest<B>) -> Result<AuthenticatedRequest<B>, Status> {
        let (path, headers) = (request.http.uri().path(), request.http.headers());
        let authenticated = self.authenticate(&request.peer, path, headers);
        let user = match authenticated.await {
            Ok(user) => user,
            Err(status) => {
                if let Some(audit) = request.audit.as_ref().filter(|_| status.code == 401) {
                    audit.fail_authentication(&request.info, attempted_methods(&request));
                }
                return Err(status);
            }
        };
        Ok(AuthenticatedRequest {
            user,
            deadline: None,
            body: None,
            request,
        })
    }
}

pub(super) struct AuthenticationFilter {
    authenticator: Arc<RequestAuthenticator>,
    metrics: Arc<ApiServerMetrics>,
}

impl AuthenticationFilter {
    /// Authenticates a request and records the attempt.
    async fn authenticate(
        &self,
        peer: &PeerCertificates,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<Arc<UserInfo>, Status> {
        let start = Instant::now();
        let user = self.check_credentials(peer, path, headers).await;
        self.metrics
            .observe_authentication(start.elapsed(), user.is_ok());
        user
    }

    async fn check_credentials(
        &self,
        peer: &PeerCertificates,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<Arc<UserInfo>, Status> {
        let visit_headers = |visit: &mut dyn FnMut(&str, &[u8])| {
            for (name, value) in headers {
                visit(name.as_str(), value.as_bytes());
            }
        };
        let credentials = RequestCredentials {
            peer: Some(peer),
            bearer: bearer_token(headers)?,
            path,
            headers: Some(&visit_headers),
        };
        match self.authenticator.authenticate(credentials).await {
            Ok(user) => Ok(user),
            Err(AuthenticationError::InvalidCredential(e)) => {
                tracing::debug!(why = %e, "credentials refused");
                Err(Status::unauthorized())
            }
            Err(AuthenticationError::Undecided(status)) => Err(*status),
        }
    }
}

/// The text of an audit event about a request whose credentials are invalid
/// (`endpoints/filters/authn_audit.go`).
fn attempted_methods<B>(request: &ResolvedRequest<B>) -> String {
    let authorization = request.http.headers().get(AUTHORIZATION);
    let scheme = authorization.map(|value| {
        let value = value.as_bytes().trim_ascii();
        value.split(|b| *b == b' ').next().unwrap_or_default()
    });
    let has_scheme = |name: &[u8]| scheme.is_some_and(|s| s.eq_ignore_ascii_case(name));
    let methods = [
        ("basic", has_scheme(b"basic")),
        ("bearer", has_scheme(b"bearer")),
        ("x509", !request.peer.chain().is_empty()),
    ];
    let attempted: Vec<&str> = methods
        .iter()
        .filter_map(|(name, is_used)| is_used.then_some(*name))
        .collect();
    if attempted.is_empty() {
        return "Authentication failed, no credentials provided".to_owned();
    }
    format!("Authentication failed, attempted: {}", attempted.join(", "))
}

/// The bearer token of a request, undecoded. Other schemes are ignored, as in
/// kube-apiserver; a header whose scheme is not UTF-8, or a second header, is refused.
fn bearer_token(headers: &HeaderMap) -> Result<Option<&[u8]>, Status> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(Status::unauthorized());
    }
    let value = value.as_bytes().trim_ascii();
    let end = value.iter().position(|b| *b == b' ');
    let (scheme, token) = value.split_at(end.unwrap_or(value.len()));
    if scheme.eq_ignore_ascii_case(b"bearer") {
        return Ok(Some(token.trim_ascii()).filter(|t| !t.is_empty()));
    }
    match std::str::from_utf8(value) {
        Ok(_) => Ok(None),
        Err(_) => Err(Status::unauthorized()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filters::testing::{authenticator, handler_fn, metrics, resolved_request, respond};
    use hyper::service::Service;
    use tower::Layer;

    #[tokio::test]
    async fn requests_get_their_user_or_401() {
        let metrics = metrics();
        let inner = handler_fn(async |request: AuthenticatedRequest<()>| {
            assert_eq!(request.user.name, "system:anonymous");
            respond(200).call(request).await
        });
        let service = AuthenticationLayer::with_metrics(&authenticator(), &metrics).layer(inner);
        let call = async |authorization: &[&str]| {
            let mut request = resolved_request("GET", "/version");
            for value in authorization {
                let headers = request.http.headers_mut();
                headers.append(AUTHORIZATION, value.parse().unwrap());
            }
            let response = service.call(request).await;
            response.map_or_else(|s| s.code, |r| r.status().as_u16())
        };
        assert_eq!(call(&[]).await, 200);
        assert_eq!(call(&["Basic YTpi"]).await, 200);
        assert_eq!(call(&["Bearer nonsense"]).await, 401);
        assert_eq!(call(&["Basic YTpi", "Basic YTpi"]).await, 401);
        let text = String::from_utf8(metrics.text()).unwrap();
        assert!(text.contains("authentication_attempts{result=\"failure\"} 2"));
    }
}
