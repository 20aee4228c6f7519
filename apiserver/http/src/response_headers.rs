//! Tower layers around every request: the audit ID, the default response headers, and
//! empty bodies for HEAD.
//!
//! connection ──► [`connection_service`] ──► `ApiServerHandler`

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use auth::PeerCertificates;
use http::header::{CACHE_CONTROL, CONNECTION, HeaderValue};
use http::{HeaderMap, Method, Request, Response, Version};
use hyper::body::Incoming;
use hyper_util::service::TowerToHyperService;
use tokio_util::sync::CancellationToken;
use tower::{Layer, Service, ServiceBuilder, service_fn};

use crate::handler::ApiServerHandler;
use crate::response_body::ServerResponseBody;

type ResponseFuture =
    Pin<Box<dyn Future<Output = Result<Response<ServerResponseBody>, Infallible>> + Send>>;

/// Builds the service of one connection.
pub(crate) fn connection_service(
    app: &Arc<ApiServerHandler>,
    peer: Arc<PeerCertificates>,
) -> TowerToHyperService<
    impl Service<
        Request<Incoming>,
        Response = Response<ServerResponseBody>,
        Error = Infallible,
        Future = ResponseFuture,
    > + Clone
    + use<>,
> {
    let draining = app.draining.clone();
    let app = Arc::clone(app);
    let answer = service_fn(move |request| {
        let served = Arc::clone(&app).serve(Arc::clone(&peer), request);
        // Boxing costs one allocation per request and keeps the connection's future
        // small.
        Box::pin(async move { Ok::<_, Infallible>(served.await) })
    });
    TowerToHyperService::new(
        ServiceBuilder::new()
            .layer(ResponseHeadersLayer { draining })
            .service(answer),
    )
}

/// Adds the audit ID and the default headers to every response.
#[derive(Clone)]
struct ResponseHeadersLayer {
    draining: CancellationToken,
}

impl<S> Layer<S> for ResponseHeadersLayer {
    type Service = ResponseHeadersService<S>;

    fn layer(&self, inner: S) -> ResponseHeadersService<S> {
        ResponseHeadersService {
            inner,
            draining: self.draining.clone(),
        }
    }
}

#[derive(Clone)]
struct ResponseHeadersService<S> {
    inner: S,
    draining: CancellationToken,
}

impl<B, S> Service<Request<B>> for ResponseHeadersService<S>
where
    S: Service<Request<B>, Response = Response<ServerResponseBody>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<ServerResponseBody>;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> ResponseFuture {
        let audit_id = audit_id(request.headers());
        let head = request.method() == Method::HEAD;
        let old = request.version() < Version::HTTP_2;
        let draining = self.draining.clone();
        let answered = self.inner.call(request);
        Box::pin(async move {
            let mut response = answered.await?;
            let headers = response.headers_mut();
            headers.insert("audit-id", audit_id);
            headers
                .entry(CACHE_CONTROL)
                .or_insert(HeaderValue::from_static("no-cache, private"));
            if old && draining.is_cancelled() {
                headers.insert(CONNECTION, HeaderValue::from_static("close"));
            }
            if head {
                *response.body_mut() = ServerResponseBody::empty();
            }
            Ok(response)
        })
    }
}

/// The audit ID that the client sent when it is valid, else a new one.
fn audit_id(headers: &HeaderMap) -> HeaderValue {
    let sensible = |v: &&HeaderValue| {
        let bytes = v.as_bytes();
        !bytes.is_empty() && bytes.len() <= 64 && bytes.iter().all(u8::is_ascii_graphic)
    };
    if let Some(own) = headers.get("audit-id").filter(sensible) {
        return own.clone();
    }
    HeaderValue::from_str(&uuid::Uuid::new_v4().to_string())
        .unwrap_or_else(|_| HeaderValue::from_static("none"))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn framed(request: Request<()>, draining: bool) -> Response<ServerResponseBody> {
        let token = CancellationToken::new();
        if draining {
            token.cancel();
        }
        let answer =
            service_fn(|_| std::future::ready(Ok(Response::new(ServerResponseBody::full("text")))));
        let mut service = ServiceBuilder::new()
            .layer(ResponseHeadersLayer { draining: token })
            .service(answer);
        let Ok(response) = service.call(request).await;
        response
    }

    #[tokio::test]
    async fn responses_have_audit_id_and_cache_control() {
        let request = |id: &str| Request::builder().header("audit-id", id).body(()).unwrap();
        let kept = framed(request("own-id"), false).await;
        assert_eq!(kept.headers()["audit-id"], "own-id");
        assert_eq!(kept.headers()["cache-control"], "no-cache, private");
        assert!(!kept.headers().contains_key("connection"));
        let replaced = framed(request(&"x".repeat(65)), true).await;
        assert_eq!(replaced.headers()["audit-id"].len(), 36);
        assert_eq!(replaced.headers()["connection"], "close");
    }

    #[tokio::test]
    async fn head_responses_have_no_body() {
        let head = Request::builder().method(Method::HEAD).body(()).unwrap();
        assert!(http_body::Body::is_end_stream(
            framed(head, false).await.body()
        ));
    }
}
