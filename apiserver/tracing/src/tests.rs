//! Tests of parents, links and sampling, with an exporter in memory.

use std::sync::Arc;
use std::time::Instant;

use http::{HeaderMap, Request};
use opentelemetry::trace::{SpanId, TraceId};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use parking_lot::Mutex;

use crate::span::ServerSpanFields;
use crate::{InSpanExt, KeyValue};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

fn headers(sampled: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let parent = format!("00-{TRACE}-{PARENT}-{sampled}");
    headers.insert("traceparent", parent.parse().unwrap());
    headers
}

fn server_span(headers: &HeaderMap, is_trusted: bool, name: &'static str) -> Option<crate::Span> {
    crate::start_server_span(headers, is_trusted, Instant::now(), || ServerSpanFields {
        name: name.into(),
        attributes: Vec::new(),
    })
}

/// Keeps the exported spans; clones share them.
#[derive(Clone, Debug, Default)]
struct RecordingSpanExporter {
    spans: Arc<Mutex<Vec<SpanData>>>,
}

impl RecordingSpanExporter {
    fn span_count(&self) -> usize {
        self.spans.lock().len()
    }

    fn span(&self, name: &str) -> SpanData {
        let spans = self.spans.lock();
        spans.iter().find(|s| s.name == name).unwrap().clone()
    }
}

impl SpanExporter for RecordingSpanExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.spans.lock().extend(batch);
        Ok(())
    }
}

/// One test, since the tracer belongs to the process.
#[tokio::test]
async fn spans_have_their_parents_and_nothing_happens_without_a_provider() {
    assert!(server_span(&headers("01"), true, "off").is_none());
    assert!(crate::start_child_span("off", || unreachable!()).is_none());
    assert!(crate::start_root_span(|| unreachable!(), || unreachable!()).is_none());
    let mut request = Request::get("https://member:6443/api/v1/pods?token=secret")
        .body(())
        .unwrap();
    assert!(crate::start_client_span(&mut request).is_none());
    assert!(request.headers().is_empty());

    let exporter = RecordingSpanExporter::default();
    let provider = SdkTracerProvider::builder()
        .with_sampler(crate::provider::sampler(0))
        .with_simple_exporter(exporter.clone())
        .build();
    crate::span::install(&provider).unwrap();
    assert!(crate::span::install(&provider).is_err());

    // A client that is not trusted cannot have its request sampled, nor can one that did
    // not sample its own.
    drop(server_span(&headers("01"), false, "untrusted"));
    drop(server_span(&headers("00"), true, "unsampled"));
    drop(crate::start_root_span(|| "root".into(), Vec::new));
    assert!(crate::start_child_span("orphan", || unreachable!()).is_none());
    assert_eq!(exporter.span_count(), 0);

    let server = server_span(&headers("01"), true, "server");
    request
        .headers_mut()
        .insert("tracestate", "vendor=of-another-trace".parse().unwrap());
    async {
        tokio::task::yield_now().await;
        let child = crate::start_child_span("child", || vec![KeyValue::new("webhook", "w")]);
        async {
            let client = crate::start_client_span(&mut request);
            client.unwrap().record_client_response(404);
        }
        .in_span(child.as_ref())
        .await;
    }
    .in_span(server.as_ref())
    .await;
    // The future is over, its span is not.
    assert_eq!(exporter.span_count(), 2);
    drop(server);

    let server = exporter.span("server");
    assert_eq!(server.parent_span_id, SpanId::from_hex(PARENT).unwrap());
    let child = exporter.span("child");
    assert_eq!(child.parent_span_id, server.span_context.span_id());
    let client = exporter.span("HTTP GET");
    assert_eq!(client.parent_span_id, child.span_context.span_id());
    let trace = TraceId::from_hex(TRACE).unwrap();
    for span in [&server, &child, &client] {
        assert_eq!(span.span_context.trace_id(), trace);
    }
    let parent = format!("00-{TRACE}-{}-01", client.span_context.span_id());
    assert_eq!(request.headers()["traceparent"], parent.as_str());
    assert!(
        !request.headers()["tracestate"]
            .to_str()
            .unwrap()
            .contains("vendor")
    );
    assert!(!format!("{client:?}").contains("secret"));
}
