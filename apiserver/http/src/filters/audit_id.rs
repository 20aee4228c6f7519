//! Adds the audit ID to every response (kube-apiserver's `WithAuditInit`).

use std::convert::Infallible;

use super::inner_service::ServerResponse;
use super::map_result::{MakeMapResult, MapResult};
use super::request::ReceivedRequest;
use http::{HeaderMap, HeaderValue};

/// Longer IDs from clients are replaced.
const MAX_AUDIT_ID_BYTES: usize = 64;

#[derive(Clone)]
pub(super) struct MakeAuditId;

impl<B> MakeMapResult<ReceivedRequest<B>> for MakeAuditId {
    type MapResult = AddAuditId;

    fn make_map_result(&self, request: &ReceivedRequest<B>) -> AddAuditId {
        AddAuditId(audit_id(request.http.headers()))
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
    use crate::filters::map_result::MapResultLayer;
    use crate::filters::testing::{received, respond};
    use http::Request;
    use hyper::service::Service;
    use tower::Layer;

    #[tokio::test]
    async fn responses_have_audit_id() {
        let call = async |id: &str| {
            let request = Request::builder().header("audit-id", id).body(()).unwrap();
            let service = MapResultLayer(MakeAuditId).layer(respond(200));
            let Ok(response) = service.call(received(request)).await;
            response.headers()["audit-id"].to_str().unwrap().to_owned()
        };
        assert_eq!(call("own-id").await, "own-id");
        assert_eq!(call(&"x".repeat(65)).await.len(), 36);
    }
}
