//! Reads the body of a write before the request takes a seat or counts as in flight: who sends
//! slowly holds up nobody but himself. Fails with 504 if the body does not arrive in time.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, Either};
use http_body::Body;
use http_body_util::Full;
use hyper::service::Service;
use machinery::Status;
use tower::Layer;

use super::deadline::time_limit;
use super::inner_service::{InnerService, ServerResponse};
use super::request::AuthenticatedRequest;
use crate::request_body::{ChargedRequestBody, ReplacedBody, read_body};
use crate::request_memory::MemoryCharge;

pub(super) struct RequestBodyLayer {
    request_timeout: Duration,
}

impl RequestBodyLayer {
    pub(super) fn new(request_timeout: Duration) -> Self {
        Self { request_timeout }
    }
}

impl<S> Layer<S> for RequestBodyLayer {
    type Service = RequestBodyService<S>;

    fn layer(&self, inner: S) -> RequestBodyService<S> {
        RequestBodyService {
            inner: Arc::new(inner),
            request_timeout: self.request_timeout,
        }
    }
}

pub(super) struct RequestBodyService<S> {
    inner: Arc<S>,
    request_timeout: Duration,
}

impl<S, B> Service<AuthenticatedRequest<B>> for RequestBodyService<S>
where
    S: InnerService<AuthenticatedRequest<B>, Status, Future: Send> + Send + Sync + 'static,
    B: Body<Data = Bytes, Error: Display + Send> + Send + Unpin + 'static,
{
    type Response = ServerResponse;
    type Error = Status;
    /// Only a request with a body is worth an allocation.
    type Future = Either<BoxFuture<'static, Result<ServerResponse, Status>>, S::Future>;

    fn call(&self, mut request: AuthenticatedRequest<B>) -> Self::Future {
        if !request.request.needs_body {
            return Either::Right(self.inner.call(request));
        }
        let inner = Arc::clone(&self.inner);
        let request_timeout = self.request_timeout;
        Either::Left(Box::pin(async move {
            request.body = Some(read_in_time(&mut request, request_timeout).await?);
            inner.call(request).await
        }))
    }
}

async fn read_in_time<B>(
    request: &mut AuthenticatedRequest<B>,
    request_timeout: Duration,
) -> Result<ChargedRequestBody, Status>
where
    B: Body<Data = Bytes, Error: Display> + Unpin,
{
    let limit = time_limit(&request.request.query, request_timeout)?;
    let charge = MemoryCharge::of_user(&request.user, request.request.remote_address);
    let http = &mut request.request.http;
    if let Some(ReplacedBody(bytes)) = http.extensions_mut().remove() {
        return read_body(Full::new(bytes), charge).await;
    }
    let read = read_body(http.body_mut(), charge);
    let read = tokio::time::timeout(limit, read).await;
    read.map_err(|_| Status::timeout("the body was not received within the allotted timeout"))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filters::testing::{as_user, handler_fn, resolved_request_with_body, respond};
    use http_body_util::StreamBody;

    const MAPS: &str = "/api/v1/namespaces/a/configmaps";

    #[tokio::test]
    async fn only_writes_have_their_bodies_read() {
        let inner = handler_fn(async |request: AuthenticatedRequest<Full<Bytes>>| {
            let code = match request.body.as_deref() {
                Some(b"abc") => 201,
                Some(_) => 400,
                None => 200,
            };
            respond(code).call(request).await
        });
        let service = RequestBodyLayer::new(Duration::from_secs(1)).layer(inner);
        for (method, needs_body, code) in [("POST", true, 201), ("GET", false, 200)] {
            let body = Full::new(Bytes::from_static(b"abc"));
            let mut request = resolved_request_with_body(method, MAPS, body);
            request.needs_body = needs_body;
            let response = service.call(as_user(request, "ann", &[])).await.unwrap();
            assert_eq!(response.status(), code);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_arrive_is_504() {
        let never = futures_util::stream::pending::<Result<http_body::Frame<Bytes>, Status>>();
        let mut request = resolved_request_with_body("POST", MAPS, StreamBody::new(never));
        request.needs_body = true;
        let service = RequestBodyLayer::new(Duration::from_secs(1)).layer(respond(201));
        let status_error = service.call(as_user(request, "ann", &[])).await.err();
        assert_eq!(status_error.unwrap().code, 504);
    }
}
