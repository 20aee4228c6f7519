//! A client of one OpenSearch cluster: the requests that a backend store needs. A node that
//! cannot be reached is followed by the next.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use client::TaskGroup;
use client::remote::{RequestBody, RequestForwarder, RestConfig, RestConfigError};
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use serde::Deserialize;
use serde_json::{Value, json};

use super::document::{documents_query, index_body};
use super::indexed_resource::{IndexedResource, IndexedSelection};
use super::limits::BackendStoreLimits;

/// The largest response that is read.
const MAX_RESPONSE_BYTES: usize = 32 << 20;
/// The longest `Retry-After` that is honored.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);
/// How long OpenSearch keeps the state of a scan between two pages.
const SCROLL_TIMEOUT: &str = "2m";
const JSON: &str = "application/json";
const NDJSON: &str = "application/x-ndjson";

/// Why a request has failed.
#[derive(Clone, Debug)]
pub(crate) enum OpenSearchError {
    /// There was no response.
    Unreachable(String),
    Response {
        status: StatusCode,
        /// The type of the error, without its text.
        error_type: String,
        retry_after: Option<Duration>,
    },
    /// The response is not what the API documents.
    Malformed(String),
}

impl OpenSearchError {
    /// The reason of a condition.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "Unreachable",
            Self::Malformed(_) => "InvalidResponse",
            Self::Response { status, .. } => match *status {
                StatusCode::UNAUTHORIZED => "Unauthorized",
                StatusCode::FORBIDDEN => "Forbidden",
                StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
                _ => "RequestFailed",
            },
        }
    }

    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Response { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Whether the request itself is refused: as too large, or because of a document.
    pub(crate) fn is_request_refused(&self) -> bool {
        let refusal_codes = [StatusCode::BAD_REQUEST, StatusCode::PAYLOAD_TOO_LARGE];
        matches!(self, Self::Response { status, .. } if refusal_codes.contains(status))
    }
}

impl std::fmt::Display for OpenSearchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreachable(reason) => write!(f, "OpenSearch cannot be reached: {reason}"),
            Self::Malformed(reason) => {
                write!(f, "OpenSearch has sent an invalid response: {reason}")
            }
            Self::Response {
                status, error_type, ..
            } => {
                write!(f, "OpenSearch responded with {}", status.as_u16())?;
                match error_type.is_empty() {
                    true => Ok(()),
                    false => write!(f, " ({error_type})"),
                }
            }
        }
    }
}

/// The type of the error in a response. Its text is left out, since it may quote a document,
/// and so is what does not look like a type.
pub(crate) fn error_type(error: Option<&Value>) -> String {
    let text = error.map(|error| &error["type"]).and_then(Value::as_str);
    let is_type =
        |text: &&str| text.len() <= 64 && text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    text.filter(is_type).unwrap_or_default().to_owned()
}

#[derive(Deserialize)]
struct ScrollPage {
    #[serde(rename = "_scroll_id", default)]
    scroll_id: String,
    hits: ScrollHits,
}

#[derive(Deserialize)]
struct ScrollHits {
    hits: Vec<ScrollHit>,
}

#[derive(Deserialize)]
struct ScrollHit {
    #[serde(rename = "_id")]
    id: String,
    #[serde(rename = "_version", default)]
    version: u64,
}

/// A client of one OpenSearch cluster.
pub(crate) struct OpenSearchClient {
    nodes: Vec<RequestForwarder>,
    /// The node that answered last.
    current: AtomicUsize,
    timeout: Duration,
    scan_page: usize,
}

impl OpenSearchClient {
    /// A client of a cluster with these nodes, of which there is at least one. Nothing is
    /// dialed yet.
    pub(crate) fn new(
        nodes: Vec<RestConfig>,
        limits: &BackendStoreLimits,
        tasks: &TaskGroup,
    ) -> Result<Self, RestConfigError> {
        let nodes = nodes
            .into_iter()
            .map(|node| RequestForwarder::new(node, tasks));
        Ok(Self {
            nodes: nodes.collect::<Result<_, _>>()?,
            current: AtomicUsize::new(0),
            timeout: limits.request_timeout,
            scan_page: limits.scan_page,
        })
    }

    /// Asks whether the cluster can be reached with these credentials.
    pub(crate) async fn ping(&self) -> Result<(), OpenSearchError> {
        self.send(Method::GET, "/", JSON, Bytes::new()).await?;
        Ok(())
    }

    /// Writes documents; returns the body of the response.
    pub(crate) async fn bulk(&self, body: Bytes) -> Result<Bytes, OpenSearchError> {
        self.send(Method::POST, "/_bulk", NDJSON, body).await
    }

    /// Creates an index if it does not exist.
    pub(crate) async fn ensure_index(&self, index: &str) -> Result<(), OpenSearchError> {
        let path = format!("/{index}");
        match self.send(Method::HEAD, &path, JSON, Bytes::new()).await {
            Err(OpenSearchError::Response { status, .. }) if status == StatusCode::NOT_FOUND => {}
            other => return other.map(|_| ()),
        }
        for flat_labels in [true, false] {
            let body = index_body(flat_labels);
            match self.send_json(Method::PUT, &path, &body).await {
                // It knows no `flat_object`.
                Err(OpenSearchError::Response { error_type, .. })
                    if flat_labels && error_type == "mapper_parsing_exception" => {}
                // Somebody else was faster.
                Err(OpenSearchError::Response { error_type, .. })
                    if error_type == "resource_already_exists_exception" =>
                {
                    break;
                }
                other => return other.map(|_| ()),
            }
        }
        Ok(())
    }

    /// Calls `found` with id and version of all documents of a resource that this control plane has
    /// written.
    pub(crate) async fn scan(
        &self,
        resource: &IndexedResource,
        on_hit: impl FnMut(String, u64) + Send,
    ) -> Result<(), OpenSearchError> {
        let index = &resource.index;
        // An object that was written a moment ago is found, too.
        let refresh = format!("/{index}/_refresh");
        self.send(Method::POST, &refresh, JSON, Bytes::new())
            .await?;
        let mut scroll_id = String::new();
        let scanned = self.scan_pages(index, &resource.selection, &mut scroll_id, on_hit);
        let scanned = scanned.await;
        if !scroll_id.is_empty() {
            let body = json!({"scroll_id": [scroll_id]});
            let closed = self.send_json(Method::DELETE, "/_search/scroll", &body);
            if let Err(error) = closed.await {
                tracing::debug!(%index, %error, "a scan is not closed");
            }
        }
        scanned
    }

    async fn scan_pages(
        &self,
        index: &str,
        selection: &IndexedSelection,
        scroll_id: &mut String,
        mut on_hit: impl FnMut(String, u64) + Send,
    ) -> Result<(), OpenSearchError> {
        let first = json!({
            "size": self.scan_page,
            "sort": ["_doc"],
            "version": true,
            "_source": false,
            "query": documents_query(selection),
        });
        let path = format!("/{index}/_search?scroll={SCROLL_TIMEOUT}");
        let mut page = self.send_json(Method::POST, &path, &first).await?;
        loop {
            let parsed: ScrollPage = machinery::json::from_slice(&page).map_err(|error| {
                OpenSearchError::Malformed(format!("not a page of a scan (line {})", error.line()))
            })?;
            *scroll_id = parsed.scroll_id;
            if parsed.hits.hits.is_empty() {
                return Ok(());
            }
            for hit in parsed.hits.hits {
                on_hit(hit.id, hit.version);
            }
            let next = json!({"scroll": SCROLL_TIMEOUT, "scroll_id": scroll_id});
            page = self
                .send_json(Method::POST, "/_search/scroll", &next)
                .await?;
        }
    }

    async fn send_json(
        &self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<Bytes, OpenSearchError> {
        let body = Bytes::from(body.to_string());
        self.send(method, path, JSON, body).await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &'static str,
        body: Bytes,
    ) -> Result<Bytes, OpenSearchError> {
        let at = self.current.load(Ordering::Relaxed) % self.nodes.len().max(1);
        let Some(node) = self.nodes.get(at) else {
            return Err(OpenSearchError::Unreachable("no address".to_owned()));
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(CONTENT_TYPE, HeaderValue::from_static(content_type))
            .header(ACCEPT, HeaderValue::from_static(JSON))
            .body(RequestBody::full(body))
            .map_err(|e| OpenSearchError::Malformed(e.to_string()))?;
        let sent = async {
            let response = node.send(request).await.map_err(|e| e.message)?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, MAX_RESPONSE_BYTES).collect().await;
            let body = body.map_err(|e| e.to_string())?.to_bytes();
            Ok::<_, String>((head, body))
        };
        let sent = tokio::time::timeout(self.timeout, sent).await;
        let seconds = self.timeout.as_secs();
        let failed = match sent {
            Ok(Ok((head, body))) => return checked_body(head.status, &head.headers, body),
            Ok(Err(reason)) => reason,
            Err(_) => format!("no response within {seconds} s"),
        };
        self.current.store(at + 1, Ordering::Relaxed);
        Err(OpenSearchError::Unreachable(format!(
            "{}: {failed}",
            node.authority()
        )))
    }
}

/// The body of a successful response.
fn checked_body(
    status: StatusCode,
    headers: &HeaderMap,
    body: Bytes,
) -> Result<Bytes, OpenSearchError> {
    if status.is_success() {
        return Ok(body);
    }
    let error = machinery::json::from_slice::<Value>(&body).unwrap_or_default();
    Err(OpenSearchError::Response {
        status,
        error_type: error_type(error.get("error")),
        retry_after: retry_after(headers),
    })
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse();
    Some(Duration::from_secs(seconds.ok()?).min(MAX_RETRY_AFTER))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(status: u16, body: &str) -> OpenSearchError {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, HeaderValue::from_static("900"));
        let status = StatusCode::from_u16(status).unwrap();
        checked_body(status, &headers, Bytes::copy_from_slice(body.as_bytes())).unwrap_err()
    }

    // proves: SRC-backend-credentials
    #[test]
    fn errors_have_the_type_and_never_the_text_of_a_response() {
        for (status, body, text, reason) in [
            (
                401,
                "Unauthorized: dXNlcjpwdw==",
                "OpenSearch responded with 401",
                "Unauthorized",
            ),
            (
                403,
                r#"{"error":{"type":"security_exception","reason":"no permissions for user=x"}}"#,
                "OpenSearch responded with 403 (security_exception)",
                "Forbidden",
            ),
            (
                429,
                r#"{"error":{"type":"Basic dXNlcjpwdw==","reason":"x"}}"#,
                "OpenSearch responded with 429",
                "TooManyRequests",
            ),
            (
                500,
                r#"{"error":"x"}"#,
                "OpenSearch responded with 500",
                "RequestFailed",
            ),
        ] {
            let error = failure(status, body);
            assert_eq!((&*error.to_string(), error.reason()), (text, reason));
            assert_eq!(error.retry_after(), Some(MAX_RETRY_AFTER));
            assert!(!error.is_request_refused());
        }
        assert!(failure(413, "").is_request_refused());
    }
}
