//! Calls to a member as a user, which the fleet view makes itself. Their time and size are bounded.

use std::time::Duration;

use bytes::Bytes;
use client::remote::RequestBody as ForwardedRequestBody;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use machinery::{Status, UserInfo};

use crate::proxy::{ClusterProxy, backend_error_status, headers};

const CALL_TIMEOUT: Duration = Duration::from_secs(2);
const MAX_REPLY_BYTES: usize = 4 << 20;
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A call to a member.
pub(super) struct MemberCall {
    pub(super) method: Method,
    pub(super) path: PathAndQuery,
    /// In JSON.
    pub(super) body: Bytes,
}

impl MemberCall {
    pub(super) fn get(path: PathAndQuery) -> Self {
        Self {
            method: Method::GET,
            path,
            body: Bytes::new(),
        }
    }
}

impl ClusterProxy {
    /// The code and the body of a member's answer to a user. The error says why there is none.
    pub(super) async fn call_member(
        &self,
        cluster: &str,
        user: &UserInfo,
        call: MemberCall,
    ) -> Result<(StatusCode, Bytes), String> {
        let reason = self.backends.not_ready_reason(cluster);
        if !reason.is_empty() {
            return Err(format!("not ready: {reason}"));
        }
        let answer = tokio::time::timeout(CALL_TIMEOUT, self.send_call(cluster, user, call)).await;
        answer.unwrap_or_else(|_| Err(format!("no answer within {} s", CALL_TIMEOUT.as_secs())))
    }

    async fn send_call(
        &self,
        cluster: &str,
        user: &UserInfo,
        call: MemberCall,
    ) -> Result<(StatusCode, Bytes), String> {
        let text = |status: Status| status.message;
        let permit = self.backends.acquire(cluster).await;
        let permit = permit.map_err(|error| text(backend_error_status(error)))?;
        let scope = self.backends.impersonation_scope(&permit).await;
        let accept = HeaderMap::from_iter([(ACCEPT, JSON), (CONTENT_TYPE, JSON)]);
        let headers = headers::build_request_headers(&accept, user, &scope, None).map_err(text)?;
        let mut request = Request::new(ForwardedRequestBody::full(call.body));
        *request.method_mut() = call.method;
        *request.uri_mut() = Uri::from(call.path);
        *request.headers_mut() = headers;
        let response = permit.forwarder().send(request).await;
        let response = response.map_err(|error| error.to_string())?;
        let code = response.status();
        let body = Limited::new(response.into_body(), MAX_REPLY_BYTES).collect();
        let body = body.await.map_err(|error| error.to_string())?;
        Ok((code, body.to_bytes()))
    }
}
