//! Lets an authorized user act as another (kube-apiserver's `WithImpersonation`), and
//! removes the credential headers: no handler and no proxied server sees them.

use std::sync::Arc;

use auth::{ImpersonationModes, RequestAuthenticator, RequestAuthorizer, impersonation};
use futures_util::future::{BoxFuture, Either};
use http::HeaderMap;
use hyper::service::Service;
use machinery::Status;
use tower::Layer;

use super::inner_service::{InnerService, ServerResponse};
use super::request::AuthenticatedRequest;

const HEADER_PREFIX: &str = "impersonate-";

pub(super) struct ImpersonationLayer {
    impersonation: Arc<UserImpersonator>,
}

impl ImpersonationLayer {
    pub(super) fn new(
        authorizer: &Arc<RequestAuthorizer>,
        authenticator: &Arc<RequestAuthenticator>,
    ) -> Self {
        Self {
            impersonation: Arc::new(UserImpersonator {
                authorizer: Arc::clone(authorizer),
                modes: ImpersonationModes::default(),
                authenticator: Arc::clone(authenticator),
            }),
        }
    }
}

impl<S> Layer<S> for ImpersonationLayer {
    type Service = ImpersonationService<S>;

    fn layer(&self, inner: S) -> ImpersonationService<S> {
        ImpersonationService {
            inner: Arc::new(inner),
            impersonation: Arc::clone(&self.impersonation),
        }
    }
}

pub(super) struct ImpersonationService<S> {
    inner: Arc<S>,
    impersonation: Arc<UserImpersonator>,
}

impl<S, B> Service<AuthenticatedRequest<B>> for ImpersonationService<S>
where
    S: InnerService<AuthenticatedRequest<B>, Status> + Send + Sync + 'static,
    S::Future: Send,
    B: Send + 'static,
{
    type Response = ServerResponse;
    type Error = Status;
    /// Only a request with impersonation headers is worth an allocation.
    type Future = Either<BoxFuture<'static, Result<ServerResponse, Status>>, S::Future>;

    fn call(&self, mut request: AuthenticatedRequest<B>) -> Self::Future {
        if !has_impersonation_headers(request.request.http.headers()) {
            let headers = request.request.http.headers_mut();
            self.impersonation.remove_credentials(headers);
            return Either::Right(self.inner.call(request));
        }
        let impersonation = Arc::clone(&self.impersonation);
        let inner = Arc::clone(&self.inner);
        Either::Left(Box::pin(async move {
            let constraint = impersonation.impersonate(&mut request).await?;
            impersonation.remove_credentials(request.request.http.headers_mut());
            if let Some(audit) = &request.request.audit {
                audit.set_impersonated_user(&request.user, constraint);
            }
            inner.call(request).await
        }))
    }
}

fn has_impersonation_headers(headers: &HeaderMap) -> bool {
    headers
        .keys()
        .any(|name| name.as_str().starts_with(HEADER_PREFIX))
}

struct UserImpersonator {
    authorizer: Arc<RequestAuthorizer>,
    modes: ImpersonationModes,
    /// Knows which headers are credentials.
    authenticator: Arc<RequestAuthenticator>,
}

impl UserImpersonator {
    /// Sets the user to act as. Returns the verb of the constrained mode, if one allows it.
    async fn impersonate<B>(
        &self,
        request: &mut AuthenticatedRequest<B>,
    ) -> Result<Option<&'static str>, Status> {
        let headers = request.request.http.headers().iter();
        let pairs = headers
            .filter(|(name, _)| name.as_str().starts_with(HEADER_PREFIX))
            .map(|(name, value)| (name.as_str(), value.as_bytes()));
        let Some(impersonated) = impersonation::parse_impersonation_headers(pairs)? else {
            return Ok(None);
        };
        let info = &request.request.info;
        let (verb, target) = (info.verb, info.authorization_attributes());
        let authorized = self
            .modes
            .authorize(&self.authorizer, &request.user, &impersonated, verb, target)
            .await?;
        request.user = Arc::new(authorized.user);
        Ok(authorized.constraint)
    }

    fn remove_credentials(&self, headers: &mut HeaderMap) {
        let credentials: Vec<_> = headers
            .keys()
            .filter(|name| self.authenticator.is_credential(name.as_str()))
            .cloned()
            .collect();
        for name in credentials {
            headers.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filters::testing::{
        as_user, authenticator, authorizer, handler_fn, resolved_request, respond,
    };
    use machinery::user::SYSTEM_PRIVILEGED_GROUP;

    #[tokio::test]
    async fn users_are_impersonated_and_credentials_removed() {
        let inner = handler_fn(async |request: AuthenticatedRequest<()>| {
            let headers = request.request.http.headers();
            let header_names: Vec<_> = headers.keys().map(|n| n.as_str()).collect();
            assert_eq!(header_names, ["accept"]);
            let code = if request.user.name == "ann" { 201 } else { 200 };
            respond(code).call(request).await
        });
        let service = ImpersonationLayer::new(&authorizer(), &authenticator()).layer(inner);
        let call = async |groups: &[&str], headers: &[(&'static str, &'static str)]| {
            let mut request = as_user(resolved_request("GET", "/version"), "root", groups);
            for (name, value) in headers {
                let all = request.request.http.headers_mut();
                all.append(*name, value.parse().unwrap());
            }
            let response = service.call(request).await;
            response.map_or_else(|s| s.code, |r| r.status().as_u16())
        };
        let masters = &[SYSTEM_PRIVILEGED_GROUP][..];
        let accept = ("accept", "*/*");
        let token = ("authorization", "Bearer x");
        let front_proxy = ("x-remote-user", "x");
        let ann = ("impersonate-user", "ann");
        assert_eq!(call(masters, &[accept, token, front_proxy]).await, 200);
        assert_eq!(call(masters, &[accept, token, ann]).await, 201);
        assert_eq!(call(&[], &[accept, ann]).await, 403);
        let group = ("impersonate-group", "g");
        assert_eq!(call(masters, &[group]).await, 400);
    }
}
