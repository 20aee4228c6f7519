//! Adds the default headers to every response (kube-apiserver's `WithCacheControl`),
//! closes HTTP/1 connections while the server shuts down, and removes the body of
//! responses to HEAD.

use std::convert::Infallible;
use std::sync::Arc;

use http::header::{CACHE_CONTROL, CONNECTION, HeaderValue};
use http::{Method, Version};

use super::inner_service::ServerResponse;
use super::map_result::{MakeMapResult, MapResult, MapResultLayer};
use super::request::ReceivedRequest;
use crate::response_body::ServerResponseBody;
use crate::server_drain::ServerDrain;

pub(super) type ResponseHeadersLayer = MapResultLayer<MakeResponseHeaders>;

#[derive(Clone)]
pub(super) struct MakeResponseHeaders {
    drain: Arc<ServerDrain>,
}

impl ResponseHeadersLayer {
    pub(super) fn new(drain: &Arc<ServerDrain>) -> Self {
        Self(MakeResponseHeaders {
            drain: Arc::clone(drain),
        })
    }
}

impl<B> MakeMapResult<ReceivedRequest<B>> for MakeResponseHeaders {
    type MapResult = AddResponseHeaders;

    fn make_map_result(&self, request: &ReceivedRequest<B>) -> AddResponseHeaders {
        let is_http1 = request.http.version() < Version::HTTP_2;
        AddResponseHeaders {
            is_head: request.http.method() == Method::HEAD,
            drain: is_http1.then(|| Arc::clone(&self.drain)),
        }
    }
}

pub(super) struct AddResponseHeaders {
    is_head: bool,
    /// `None` on HTTP/2, whose connections end by GOAWAY.
    drain: Option<Arc<ServerDrain>>,
}

impl MapResult<Result<ServerResponse, Infallible>> for AddResponseHeaders {
    type Error = Infallible;

    fn map_result(
        self,
        result: Result<ServerResponse, Infallible>,
    ) -> Result<ServerResponse, Infallible> {
        let mut response = result?;
        let headers = response.headers_mut();
        headers
            .entry(CACHE_CONTROL)
            .or_insert(HeaderValue::from_static("no-cache, private"));
        if self.drain.is_some_and(|d| d.is_started()) {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if self.is_head {
            *response.body_mut() = ServerResponseBody::empty();
        }
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filters::testing::{received, respond};
    use http::Request;
    use hyper::service::Service;
    use std::time::Duration;
    use tower::Layer;

    async fn call(request: Request<()>, draining: bool) -> ServerResponse {
        let drain = Arc::new(ServerDrain::default());
        if draining {
            drain.start(Duration::ZERO);
        }
        let service = ResponseHeadersLayer::new(&drain).layer(respond(200));
        let Ok(response) = service.call(received(request)).await;
        response
    }

    #[tokio::test]
    async fn responses_have_default_headers() {
        let usual = call(Request::new(()), false).await;
        assert_eq!(usual.headers()["cache-control"], "no-cache, private");
        assert!(!usual.headers().contains_key("connection"));
        let draining = call(Request::new(()), true).await;
        assert_eq!(draining.headers()["connection"], "close");
        let http2 = Request::builder().version(Version::HTTP_2).body(());
        let http2 = call(http2.unwrap(), true).await;
        assert!(!http2.headers().contains_key("connection"));
    }

    #[tokio::test]
    async fn head_responses_have_no_body() {
        let head = Request::builder().method(Method::HEAD).body(()).unwrap();
        let response = call(head, false).await;
        assert!(http_body::Body::is_end_stream(response.body()));
    }
}
