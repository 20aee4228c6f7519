//! Spans and how they start: as kube-apiserver's, with the attributes of Go's `otelhttp`.

use std::borrow::Cow;
use std::sync::OnceLock;
use std::time::{Instant, SystemTime};

use http::{HeaderMap, Request};
use opentelemetry::trace::{
    Link, SpanBuilder, SpanKind, Status, TraceContextExt, Tracer as _, TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

use crate::propagation;

const INSTRUMENTATION_SCOPE: &str = "flotilla";
/// The longest description of an error in a span, in characters.
const MAX_ERROR_CHARS: usize = 1024;

/// Set once, at the start of a process that exports spans.
static TRACER: OnceLock<SdkTracer> = OnceLock::new();

/// Spans come from `provider` from now on; fails if another one is installed.
pub(crate) fn install(provider: &SdkTracerProvider) -> Result<(), String> {
    let installed = TRACER.set(provider.tracer(INSTRUMENTATION_SCOPE));
    installed.map_err(|_| "another tracer provider is installed".to_owned())
}

/// A span that has started. It ends when it is dropped.
pub struct Span(Context);

impl Span {
    fn start(tracer: &SdkTracer, builder: SpanBuilder, parent: &Context) -> Self {
        let span = tracer.build_with_context(builder, parent);
        Self(parent.with_span(span))
    }

    pub(crate) fn context(&self) -> &Context {
        &self.0
    }

    /// Whether the span is sampled, so that attributes are of use.
    pub fn is_recording(&self) -> bool {
        self.0.span().is_recording()
    }

    pub fn set_attribute(&self, attribute: KeyValue) {
        self.0.span().set_attribute(attribute);
    }

    /// The operation of the span failed.
    pub fn record_error(&self, message: &str) {
        if self.is_recording() {
            let message: String = message.chars().take(MAX_ERROR_CHARS).collect();
            self.0.span().set_status(Status::error(message));
        }
    }

    /// Records the status code of the response that a client received.
    pub fn record_client_response(&self, code: u16) {
        self.record_response(code, 400);
    }

    /// Records the status code of the response that the server sends; the errors of clients
    /// are none of the span.
    pub fn record_server_response(&self, code: u16) {
        self.record_response(code, 500);
    }

    fn record_response(&self, code: u16, least_error: u16) {
        self.set_attribute(KeyValue::new("http.response.status_code", i64::from(code)));
        if code >= least_error {
            self.0.span().set_status(Status::error(""));
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        self.0.span().end();
    }
}

/// The attributes of a server span.
pub struct ServerSpanFields {
    pub name: Cow<'static, str>,
    pub attributes: Vec<KeyValue>,
}

/// Starts the span of a request that was received at `received_at`. It continues the trace
/// of a trusted client, with the client's decision on sampling; the trace of another client
/// is only linked, so that no client can have every request sampled (KEP-647).
pub fn start_server_span(
    headers: &HeaderMap,
    is_trusted: bool,
    received_at: Instant,
    fields: impl FnOnce() -> ServerSpanFields,
) -> Option<Span> {
    let tracer = TRACER.get()?;
    let ServerSpanFields { name, attributes } = fields();
    let remote = propagation::extract(headers);
    let started = SystemTime::now().checked_sub(received_at.elapsed());
    let mut builder = SpanBuilder::from_name(name)
        .with_kind(SpanKind::Server)
        .with_start_time(started.unwrap_or_else(SystemTime::now))
        .with_attributes(attributes);
    if is_trusted {
        return Some(Span::start(tracer, builder, &remote));
    }
    let caller = remote.span().span_context().clone();
    if caller.is_valid() {
        builder = builder.with_links(vec![Link::new(caller, Vec::new(), 0)]);
    }
    Some(Span::start(tracer, builder, &Context::new()))
}

/// Starts the span of a request to another server, and puts its trace context into the
/// headers of the request.
pub fn start_client_span<B>(request: &mut Request<B>) -> Option<Span> {
    let tracer = TRACER.get()?;
    let (method, uri) = (request.method(), request.uri());
    let parent = Context::current();
    let builder = SpanBuilder::from_name(format!("HTTP {method}")).with_kind(SpanKind::Client);
    let span = Span::start(tracer, builder, &parent);
    if span.is_recording() {
        let host = uri.host().unwrap_or_default();
        span.set_attribute(KeyValue::new("http.request.method", method.to_string()));
        span.set_attribute(KeyValue::new("server.address", host.to_owned()));
        if let Some(port) = uri.port_u16() {
            span.set_attribute(KeyValue::new("server.port", i64::from(port)));
        }
        // Without the query, which may contain a credential.
        span.set_attribute(KeyValue::new("url.path", uri.path().to_owned()));
    }
    propagation::inject(span.context(), request.headers_mut());
    Some(span)
}

/// Starts a span inside the current one; `None` outside of any span.
pub fn start_child_span(
    name: &'static str,
    attributes: impl FnOnce() -> Vec<KeyValue>,
) -> Option<Span> {
    let tracer = TRACER.get()?;
    let parent = Context::current();
    if !parent.has_active_span() {
        return None;
    }
    let span = Span::start(tracer, SpanBuilder::from_name(name), &parent);
    set_attributes(&span, attributes);
    Some(span)
}

/// Starts a span of a new trace.
pub fn start_root_span(
    name: impl FnOnce() -> String,
    attributes: impl FnOnce() -> Vec<KeyValue>,
) -> Option<Span> {
    let tracer = TRACER.get()?;
    let span = Span::start(tracer, SpanBuilder::from_name(name()), &Context::new());
    set_attributes(&span, attributes);
    Some(span)
}

fn set_attributes(span: &Span, attributes: impl FnOnce() -> Vec<KeyValue>) {
    if span.is_recording() {
        span.0.span().set_attributes(attributes());
    }
}
