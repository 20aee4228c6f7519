//! Adds the audit ID to every response (kube-apiserver's `WithAuditInit`).

use std::convert::Infallible;

use super::inner_service::ServerResponse;
use super::map_result::{MakeMapResult, MapResult};
use super::request::ReceivedRequest;
use http::HeaderValue;

#[derive(Clone)]
pub(super) struct MakeAuditId;

impl<B> MakeMapResult<ReceivedRequest<B>> for MakeAuditId {
    type MapResult = AddAuditId;

    fn make_map_result(&self, request: &ReceivedRequest<B>) -> AddAuditId {
        AddAuditId(request.audit_id.clone())
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
