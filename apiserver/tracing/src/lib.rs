//! OpenTelemetry spans of requests, reconciliations and calls to other servers, which a
//! collector receives by OTLP.
//!
//! server, client or root span ──► [`InSpan`] makes it the current span of a future ──► child spans ──► batches ──► collector
//!
//! Without [`TracerProvider::install`] every function returns `None` after one atomic
//! load, and computes and allocates nothing. Spans have no header values, queries of
//! proxied requests or bodies, since these may contain credentials.

mod in_span;
mod propagation;
mod provider;
mod span;
#[cfg(test)]
mod tests;

pub use in_span::{InSpan, InSpanExt};
pub use opentelemetry::KeyValue;
pub use provider::{TracerProvider, TracingOptions};
pub use span::{
    ServerSpanFields, Span, start_child_span, start_client_span, start_root_span, start_server_span,
};
