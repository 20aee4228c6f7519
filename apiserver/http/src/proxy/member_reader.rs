//! Sends reads that the control plane answers for all member clusters: in parallel, with a
//! deadline for each member, and without asking members that are known to be not Ready.
//!
//! They are authorized here, and made with the control plane's own credentials. A member behind
//! the tunnel of an agent is asked as the user of the request, since agents pass on nothing else.

use std::time::Duration;

use bytes::Bytes;
use client::remote::RequestBody as ForwardedRequestBody;
use futures_util::future::join_all;
use http::header::{ACCEPT, HeaderValue};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use machinery::{Status, UserInfo};
use members::{ClusterProxyBackends, ImpersonationScope};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::{backend_error_status, headers, path};

/// Bound on the answer of one member.
const MAX_REPLY_BYTES: usize = 64 << 20;
const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Every character except the unreserved ones of RFC 3986.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Asks all member clusters. Nothing is dialed before the first read.
pub struct MemberReader {
    backends: ClusterProxyBackends,
    deadline: Duration,
}

/// The answer of one member: the body of a 200, or why there is none.
pub struct MemberReply {
    pub cluster: String,
    pub outcome: Result<Bytes, Status>,
}

/// A GET.
pub struct MemberRead<'a> {
    pub segments: &'a [&'a str],
    /// Parameters; those without a value are left out.
    pub query: &'a [(&'a str, &'a str)],
}

impl MemberRead<'_> {
    /// The path with its query. Fails with 400 for a segment that would change the path.
    fn path_and_query(&self) -> Result<http::uri::PathAndQuery, Status> {
        let mut tail = String::new();
        for segment in self.segments {
            if segment.contains(['/', '%']) || matches!(*segment, "" | "." | "..") {
                let text = format!("the path segment {segment:?} cannot be passed on to a cluster");
                return Err(Status::bad_request(text));
            }
            tail.push('/');
            tail.extend(utf8_percent_encode(segment, ESCAPED));
        }
        let parameters = self.query.iter().filter(|(_, value)| !value.is_empty());
        let query: Vec<String> = parameters
            .map(|(key, value)| format!("{key}={}", utf8_percent_encode(value, ESCAPED)))
            .collect();
        let query = query.join("&");
        path::member_path(&tail, Some(&*query).filter(|query| !query.is_empty()))
    }
}

impl MemberReader {
    /// `deadline` is what each member may take.
    pub fn new(backends: ClusterProxyBackends, deadline: Duration) -> Self {
        Self { backends, deadline }
    }

    /// A reader of the same members that waits for each at most this long.
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self::new(self.backends.clone(), deadline)
    }

    /// The answers of all members, by name. A member that does not serve the path of a read is
    /// asked for the next one.
    pub async fn read_from_all(
        &self,
        user: &UserInfo,
        reads: &[MemberRead<'_>],
    ) -> Result<Vec<MemberReply>, Status> {
        let paths = reads.iter().map(MemberRead::path_and_query);
        let paths = &paths.collect::<Result<Vec<_>, _>>()?;
        let names = self.backends.cluster_names().await;
        let mut names = names.map_err(backend_error_status)?;
        names.sort_unstable();
        let replies = names.into_iter().map(|cluster| async move {
            let read = self.read_first_served(&cluster, user, paths);
            let outcome = match tokio::time::timeout(self.deadline, read).await {
                Ok(outcome) => outcome,
                Err(_) => Err(Status::unavailable(format!(
                    "no answer within {} s",
                    self.deadline.as_secs_f64()
                ))),
            };
            MemberReply { cluster, outcome }
        });
        Ok(join_all(replies).await)
    }

    async fn read_first_served(
        &self,
        cluster: &str,
        user: &UserInfo,
        paths: &[http::uri::PathAndQuery],
    ) -> Result<Bytes, Status> {
        let mut outcome = Err(Status::page_not_found());
        for path in paths {
            outcome = self.read(cluster, user, path).await;
            if !outcome.as_ref().is_err_and(is_unserved_path) {
                break;
            }
        }
        outcome
    }

    async fn read(
        &self,
        cluster: &str,
        user: &UserInfo,
        path: &http::uri::PathAndQuery,
    ) -> Result<Bytes, Status> {
        let reason = self.backends.not_ready_reason(cluster);
        if !reason.is_empty() {
            return Err(Status::unavailable(format!("not ready: {reason}")));
        }
        let backend = self.backends.acquire_for_control_plane(cluster).await;
        let backend = backend.map_err(backend_error_status)?;
        let accept = HeaderMap::from_iter([(ACCEPT, JSON)]);
        let mut request = Request::new(ForwardedRequestBody::full(Bytes::new()));
        *request.uri_mut() = path.clone().into();
        *request.headers_mut() = match backend.needs_user {
            true => {
                headers::build_request_headers(&accept, user, &ImpersonationScope::default(), None)?
            }
            false => accept,
        };
        let response = backend.permit.forwarder().send(request).await;
        let response = response.map_err(|error| Status::unavailable(error.to_string()))?;
        let code = response.status();
        let body = Limited::new(response.into_body(), MAX_REPLY_BYTES).collect();
        let body = body
            .await
            .map_err(|error| Status::unavailable(error.to_string()))?;
        let body = body.to_bytes();
        match code {
            StatusCode::OK => match machinery::json::check_depth(&body) {
                Ok(()) => Ok(body),
                Err(error) => Err(Status::unavailable(error.to_string())),
            },
            code => Err(failure_of_member(code, &body)),
        }
    }
}

/// Whether a member does not serve a path at all. API servers answer such requests with a text,
/// those for something that they do not have with a Status.
pub fn is_unserved_path(status: &Status) -> bool {
    status.code == 404 && status.reason != "NotFound"
}

/// The Status in the body of a failure, or one for its code alone.
fn failure_of_member(code: StatusCode, body: &[u8]) -> Status {
    let reported: Option<Status> = machinery::json::from_slice(body).ok();
    reported
        .filter(|status| status.code == code.as_u16() && !status.message.is_empty())
        .unwrap_or_else(|| {
            let text = format!("the cluster answered with {code}");
            Status::failure(code.as_u16(), "", text)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_escaped_and_cannot_be_changed() {
        let read = MemberRead {
            segments: &["apis", "a.b", "v1", "pods"],
            query: &[("labelSelector", "a=b,c in (d)"), ("fieldSelector", "")],
        };
        assert_eq!(
            read.path_and_query().unwrap(),
            "/apis/a.b/v1/pods?labelSelector=a%3Db%2Cc%20in%20%28d%29"
        );
        for segment in ["a/b", "..", ".", "", "a%2Fb"] {
            let read = MemberRead {
                segments: &["apis", segment],
                query: &[],
            };
            assert_eq!(read.path_and_query().unwrap_err().code, 400, "{segment}");
        }
    }

    #[test]
    fn failures_of_members_keep_their_text() {
        let body = serde_json::json!({"kind": "Status", "code": 403, "message": "forbidden: x"});
        let status = failure_of_member(StatusCode::FORBIDDEN, body.to_string().as_bytes());
        assert_eq!((status.code, &*status.message), (403, "forbidden: x"));
        let status = failure_of_member(StatusCode::NOT_FOUND, b"404 page not found");
        assert!(is_unserved_path(&status));
        assert_eq!((status.code, status.details), (404, None));
        let body = serde_json::json!({"code": 404, "message": "none", "reason": "NotFound"});
        let status = failure_of_member(StatusCode::NOT_FOUND, body.to_string().as_bytes());
        assert!(!is_unserved_path(&status));
    }
}
