//! The API server in front of this one as the control plane behind the proxies: requests are
//! forwarded to it, and impersonate their user.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use client::remote::{RequestBody as ForwardedRequestBody, RequestForwarder};
use flotilla_metrics::{Counter, MetricsRegistry};
use http::uri::PathAndQuery;
use http::{Request, Response, StatusCode, Uri};
use http_body::Body as _;
use machinery::Status;
use members::ImpersonationScope;

use super::stream::{BodyCutoff, ForwardedBody};
use super::{headers, service_unavailable};
use crate::own_requests::ControlPlaneBackend;
use crate::request_body::ReplacedBody;
use crate::response_body::ServerResponseBody;
use crate::subresources::SubresourceConnectRequest;

/// Forwards requests to the host. This server needs the right to impersonate users there.
pub struct HostControlPlane {
    forwarder: RequestForwarder,
    received_bytes: Counter,
}

impl HostControlPlane {
    pub fn new(forwarder: RequestForwarder, metrics: &MetricsRegistry) -> Arc<Self> {
        let received_bytes = metrics.counter(
            "flotilla_host_proxy_received_bytes_total",
            "Bytes of responses of the control plane in front to requests of the global proxy.",
        );
        Arc::new(Self {
            forwarder,
            received_bytes,
        })
    }
}

#[async_trait]
impl ControlPlaneBackend for HostControlPlane {
    async fn serve(
        &self,
        connection: SubresourceConnectRequest,
        path: PathAndQuery,
    ) -> Result<Response<ServerResponseBody>, Status> {
        if headers::requested_upgrade(&connection.request).is_some() {
            let text = "the control plane has no pods to connect to";
            return Err(Status::bad_request(text));
        }
        let (mut parts, body) = connection.request.into_parts();
        let replaced_body = parts.extensions.remove::<ReplacedBody>();
        let scope = ImpersonationScope::default();
        let headers =
            headers::build_request_headers(&parts.headers, &connection.user, &scope, None)?;
        let body = match replaced_body {
            Some(ReplacedBody(bytes)) => ForwardedRequestBody::full(bytes),
            None if body.is_end_stream() => ForwardedRequestBody::full(Bytes::new()),
            None => ForwardedRequestBody::streamed(body),
        };
        let mut request = Request::new(body);
        *request.method_mut() = parts.method;
        *request.uri_mut() = Uri::from(path);
        *request.headers_mut() = headers;
        let result = self.forwarder.send(request).await;
        let mut response = result.map_err(|error| {
            let text = format!("the control plane did not respond: {error}");
            service_unavailable(text, "ControlPlaneNotReachable")
        })?;
        if response.status() == StatusCode::UNAUTHORIZED {
            // It refused our token, not the user's credentials.
            let text = "the control plane refused the token of this server".to_owned();
            return Err(service_unavailable(text, "ControlPlaneNotReachable"));
        }
        headers::rewrite_response_headers(response.status(), response.headers_mut(), &|_| None);
        let end = BodyCutoff {
            deadline: connection.deadline,
            shutdown: connection.shutdown,
        };
        let received = self.received_bytes.clone();
        let forwarded = |body| ForwardedBody::new(body, received, end);
        Ok(response.map(|body| ServerResponseBody::proxied(forwarded(body))))
    }
}
