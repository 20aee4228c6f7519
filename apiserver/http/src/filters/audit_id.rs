//! Adds the audit ID to every response (kube-apiserver's `WithAuditInit`).

use std::convert::Infallible;

use http::{HeaderMap, HeaderValue};
use hyper::service::Service;
use tower::Layer;

use super::inner_service::{InnerService, ServerResponse};
use super::map_result::{MapResult, MapResultFuture};
use super::request::ReceivedRequest;

/// Longer IDs from clients are replaced.
const MAX_AUDIT_ID_BYTES: usize = 64;

pub(super) struct AuditIdLayer;

impl<S> Layer<S> for AuditIdLayer {
    type Service = AuditIdService<S>;

    fn layer(&self, inner: S) -> AuditIdService<S> {
        AuditIdService { inner }
    }
}

pub(super) struct AuditIdService<S> {
    inner: S,
}

impl<S, B> Service<ReceivedRequest<B>> for AuditIdService<S>
where
    S: InnerService<ReceivedRequest<B>, Infallible>,
{
    type Response = ServerResponse;
    type Error = Infallible;
    type Future = MapResultFuture<S::Future, AddAuditId>;

    fn call(&self, request: ReceivedRequest<B>) -> Self::Future {
        let add = AddAuditId(audit_id(request.http.headers()));
        MapResultFuture::new(self.inner.call(request), add)
    }
}

pub(super) struct AddAuditId(HeaderValue);

impl MapResult<Result<ServerResponse, Infallible>> for AddAuditId {
    type Error = Infallible;

    fn map_result(
        self,
        result: Result<ServerResponse, Infallible>,
    ) -> Result<ServerResponse, Infallible> {
        let mut response = result?;
        response.headers_mut().insert("audit-id", self.0);
        Ok(response)
    }
}

/// The audit ID that the client sent when it is valid, else a new one.
fn audit_id(headers: &HeaderMap) -> HeaderValue {
    let is_valid = |v: &&HeaderValue| {
        let bytes = v.as_bytes();
        let graphic = bytes.iter().all(u8::is_ascii_graphic);
        !bytes.is_empty() && bytes.len() <= MAX_AUDIT_ID_BYTES && graphic
    };
    if let Some(own) = headers.get("audit-id").filter(is_valid) {
        return own.clone();
    }
    HeaderValue::from_str(&uuid::Uuid::new_v4().to_string())
        .unwrap_or_else(|_| HeaderValue::from_static("none"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filters::testing::{received, respond};
    use http::Request;

    #[tokio::test]
    async fn responses_have_audit_id() {
        let call = async |id: &str| {
            let request = Request::builder().header("audit-id", id).body(()).unwrap();
            let service = AuditIdLayer.layer(respond(200));
            let Ok(response) = service.call(received(request)).await;
            response.headers()["audit-id"].to_str().unwrap().to_owned()
        };
        assert_eq!(call("own-id").await, "own-id");
        assert_eq!(call(&"x".repeat(65)).await.len(), 36);
    }
}
