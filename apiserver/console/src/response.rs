//! Responses, all with the headers that keep other sites and scripts out.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, REFERRER_POLICY,
    RETRY_AFTER, SET_COOKIE, VARY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use maud::Markup;

pub(crate) type ConsoleBody = UnsyncBoxBody<Bytes, Infallible>;
pub(crate) type ConsoleResponse = Response<ConsoleBody>;

/// Scripts, styles, images and connections of this server alone, and nothing inline.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// `Referrer-Policy: no-referrer` would take the origin off forms, by which they are checked.
const SECURITY_HEADERS: [(HeaderName, &str); 8] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "same-origin"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (CACHE_CONTROL, "no-store"),
    (VARY, "Accept, Authorization, Cookie"),
];

fn response(status: StatusCode, content_type: &'static str, body: ConsoleBody) -> ConsoleResponse {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    for (name, value) in SECURITY_HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn full(body: impl Into<Bytes>) -> ConsoleBody {
    Full::new(body.into()).boxed_unsync()
}

pub(crate) fn html(status: StatusCode, page: Markup) -> ConsoleResponse {
    response(status, "text/html; charset=utf-8", full(page.into_string()))
}

pub(crate) fn asset(content_type: &'static str, content: &'static str) -> ConsoleResponse {
    response(StatusCode::OK, content_type, full(content))
}

/// The answer to a probe.
pub(crate) fn alive() -> ConsoleResponse {
    response(StatusCode::OK, "text/plain; charset=utf-8", full("ok"))
}

/// Server-sent events, which end with the stream.
pub(crate) fn events(stream: BoxStream<'static, Bytes>) -> ConsoleResponse {
    let frames = stream.map(|bytes| Ok(Frame::data(bytes)));
    let body = StreamBody::new(frames).boxed_unsync();
    let mut response = response(StatusCode::OK, "text/event-stream", body);
    // nginx would gather events before it passes them on.
    let unbuffered = HeaderName::from_static("x-accel-buffering");
    let headers = response.headers_mut();
    headers.insert(unbuffered, HeaderValue::from_static("no"));
    response
}

/// A refusal in plain text.
pub(crate) fn refusal(status: StatusCode, message: &'static str) -> ConsoleResponse {
    let mut response = response(status, "text/plain; charset=utf-8", full(message));
    let headers = response.headers_mut();
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("GET, POST"));
    }
    if status == StatusCode::TOO_MANY_REQUESTS {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("5"));
    }
    response
}

/// A redirection to another page; `cookie` begins or ends a session.
pub(crate) fn redirection(to: &str, cookie: Option<&str>) -> ConsoleResponse {
    let mut response = response(
        StatusCode::SEE_OTHER,
        "text/plain; charset=utf-8",
        full(Bytes::new()),
    );
    let headers = response.headers_mut();
    // Both consist of characters that a header may have.
    if let Ok(to) = HeaderValue::from_str(to) {
        headers.insert(LOCATION, to);
    }
    if let Some(Ok(cookie)) = cookie.map(HeaderValue::from_str) {
        headers.insert(SET_COOKIE, cookie);
    }
    response
}
