//! Trace context in HTTP headers (W3C Trace Context: `traceparent` and `tracestate`).

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::Context;
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry_sdk::propagation::TraceContextPropagator;

struct HeaderExtractor<'a>(&'a HeaderMap);

impl Extractor for HeaderExtractor<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

struct HeaderInjector<'a>(&'a mut HeaderMap);

impl Injector for HeaderInjector<'_> {
    fn set(&mut self, key: &str, value: String) {
        let parsed = HeaderName::try_from(key)
            .ok()
            .zip(HeaderValue::try_from(value).ok());
        if let Some((name, value)) = parsed {
            self.0.insert(name, value);
        }
    }
}

/// A context whose span is the caller's, if the headers have a valid one.
pub(crate) fn extract(headers: &HeaderMap) -> Context {
    TraceContextPropagator::new().extract_with_context(&Context::new(), &HeaderExtractor(headers))
}

/// Replaces the trace context in the headers of a request by the trace context of `context`.
pub(crate) fn inject(context: &Context, headers: &mut HeaderMap) {
    headers.remove("tracestate");
    TraceContextPropagator::new().inject_context(context, &mut HeaderInjector(headers));
}
