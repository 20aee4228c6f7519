//! Spans of requests, webhook calls and reconciliations, as a collector receives them by OTLP
//! over gRPC.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use harness::http_client::full_body;
use harness::https_server::FakeHttpsServer;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyValue;
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use prost::Message;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::api::test_server::{ApiTestServer, start_error};

const TIMEOUT: Duration = Duration::from_secs(60);
const EXPORT_PATH: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
/// The length of the prefix of a gRPC message: a flag and the size.
const GRPC_PREFIX_BYTES: usize = 5;
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const UNTRUSTED_TRACE: &str = "1bf7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";
const MAPS: &str = "/api/v1/namespaces/traced/configmaps";
const MAPS_SPAN: &str = "POST /api/v1/namespaces/{:namespace}/configmaps";

/// A collector that keeps the spans it receives.
struct Collector {
    address: String,
    spans: Arc<Mutex<Vec<Span>>>,
    task: JoinHandle<()>,
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn export(
    request: Request<Incoming>,
    spans: Arc<Mutex<Vec<Span>>>,
) -> Result<
    Response<impl hyper::body::Body<Data = Bytes, Error: Send + Sync + std::error::Error>>,
    hyper::Error,
> {
    assert_eq!(request.uri().path(), EXPORT_PATH);
    let body = request.into_body().collect().await?.to_bytes();
    let message = ExportTraceServiceRequest::decode(&body[GRPC_PREFIX_BYTES..]).unwrap();
    let scopes = message
        .resource_spans
        .into_iter()
        .flat_map(|r| r.scope_spans);
    spans.lock().extend(scopes.flat_map(|scope| scope.spans));
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().unwrap());
    let empty_message = Full::new(Bytes::from_static(&[0; GRPC_PREFIX_BYTES]));
    let body = empty_message.with_trailers(async move { Some(Ok(trailers)) });
    let response = Response::builder().header("content-type", "application/grpc");
    Ok(response.body(body).unwrap())
}

impl Collector {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let spans: Arc<Mutex<Vec<Span>>> = Arc::default();
        let received = Arc::clone(&spans);
        let task = tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let spans = Arc::clone(&received);
                let service = service_fn(move |request| export(request, Arc::clone(&spans)));
                let io = TokioIo::new(tcp);
                let connection = http2::Builder::new(TokioExecutor::new());
                tokio::spawn(connection.serve_connection(io, service));
            }
        });
        Self {
            address,
            spans,
            task,
        }
    }

    /// A span that fits, once it has arrived.
    async fn span(&self, description: &str, matches: impl Fn(&Span) -> bool) -> Span {
        let end = Instant::now() + TIMEOUT;
        loop {
            let matching = self.spans.lock().iter().find(|s| matches(s)).cloned();
            if let Some(span) = matching {
                return span;
            }
            let names: Vec<String> = self.spans.lock().iter().map(|s| s.name.clone()).collect();
            assert!(Instant::now() < end, "no span {description} in {names:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// An attribute as text; empty without it.
fn attribute(span: &Span, key: &str) -> String {
    let attribute_found = span.attributes.iter().find(|a| a.key == key);
    match attribute_found.and_then(|a| a.value.clone()?.value) {
        Some(AnyValue::StringValue(text)) => text,
        Some(AnyValue::IntValue(number)) => number.to_string(),
        _ => String::new(),
    }
}

fn traceparent(trace: &str) -> String {
    format!("00-{trace}-{PARENT}-01")
}

fn write_configuration(dir: &Path, endpoint: &str) -> String {
    let file = dir.join("tracing.yaml");
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: {endpoint}\nsamplingRatePerMillion: 1000000\n"
    );
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

/// A webhook that allows everything and keeps the trace context of its requests.
async fn start_webhook(parents: Arc<Mutex<Vec<String>>>) -> FakeHttpsServer {
    FakeHttpsServer::start(Arc::new(move |request| {
        let parents = Arc::clone(&parents);
        Box::pin(async move {
            let parent = request.headers().get("traceparent");
            let parent = parent.map(|p| p.to_str().unwrap().to_owned());
            parents.lock().push(parent.unwrap_or_default());
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let review: Value = machinery::json::from_slice(&body).unwrap();
            let response = json!({"uid": review["request"]["uid"], "allowed": true});
            let reply = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                "response": response});
            Response::new(full_body(reply.to_string()))
        })
    }))
    .await
}

fn register_webhook(server: &ApiTestServer, webhook: &FakeHttpsServer) {
    let url = format!("https://{}/check", webhook.address);
    let body = json!({"metadata": {"name": "traced"}, "webhooks": [{
        "name": "traced.example.org",
        "clientConfig": {"url": url, "caBundle": STANDARD.encode(&webhook.ca_pem)},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "traced"}},
        "sideEffects": "None", "admissionReviewVersions": ["v1"],
    }]});
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let reply = server.post(path, &body);
    assert_eq!(reply.code, 201, "{}", reply.text());
}

fn create_map(server: &ApiTestServer, name: &str) {
    let request = server.request("POST", MAPS).header("Audit-Id", name);
    let request = request.header("traceparent", &traceparent(TRACE));
    let reply = request.json(&json!({"metadata": {"name": name}})).send();
    assert_eq!(reply.code, 201, "{}", reply.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_of_requests_webhooks_and_reconciliations_reach_the_collector() {
    let collector = Collector::start().await;
    let parents: Arc<Mutex<Vec<String>>> = Arc::default();
    let webhook = start_webhook(Arc::clone(&parents)).await;
    let dir = tempfile::tempdir().unwrap();
    let file = write_configuration(dir.path(), &collector.address);
    let server = ApiTestServer::start_with(&["--tracing-config-file", &file]);
    server.create_namespace("traced");
    register_webhook(&server, &webhook);
    let end = Instant::now() + TIMEOUT;
    for number in 0.. {
        create_map(&server, &format!("map-{number}"));
        if parents.lock().iter().any(|parent| parent.contains(TRACE)) {
            break;
        }
        assert!(Instant::now() < end, "the webhook is not called");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    // The request of an administrator continues its trace, through the webhook.
    let in_trace = |name: &'static str| move |s: &Span| s.name == name && hex(&s.trace_id) == TRACE;
    let client = collector.span("HTTP POST", in_trace("HTTP POST")).await;
    let sent = format!("00-{TRACE}-{}-01", hex(&client.span_id));
    // Controllers, too, create ConfigMaps in the namespace.
    assert!(parents.lock().contains(&sent), "{:?}", parents.lock());
    assert_eq!(attribute(&client, "http.response.status_code"), "200");
    let is_parent_of = |child: &Span| {
        let id = child.parent_span_id.clone();
        move |s: &Span| s.span_id == id
    };
    let call = collector.span("of the call", is_parent_of(&client)).await;
    assert_eq!(call.name, "Call validating webhook");
    assert_eq!(attribute(&call, "webhook"), "traced.example.org");
    assert_eq!(attribute(&call, "operation"), "CREATE");
    let request = collector.span("of the request", is_parent_of(&call)).await;
    assert_eq!(request.name, MAPS_SPAN);
    assert_eq!(hex(&request.parent_span_id), PARENT);
    assert!(attribute(&request, "audit-id").starts_with("map-"));
    assert_eq!(attribute(&request, "http.target"), MAPS);
    assert_eq!(attribute(&request, "http.response.status_code"), "201");

    // The trace of a client that may not decide on sampling is linked.
    let rejection = server.request("GET", &format!("{MAPS}/map-0?pretty=1"));
    let rejection = rejection.header("traceparent", &traceparent(UNTRUSTED_TRACE));
    let rejection = rejection.with_identity(&server.anonymous).send();
    assert_eq!(rejection.code, 403, "{}", rejection.text());
    let has_link = |s: &Span| s.links.iter().any(|l| hex(&l.trace_id) == UNTRUSTED_TRACE);
    let linked = collector.span("with a link", has_link).await;
    assert!(linked.parent_span_id.is_empty());
    assert_ne!(hex(&linked.trace_id), UNTRUSTED_TRACE);
    assert_eq!(attribute(&linked, "http.response.status_code"), "403");

    // Controllers have reconciled the namespace.
    let reconciled =
        |s: &Span| s.name.starts_with("reconcile ") && attribute(s, "key").contains("traced");
    let reconciled = collector.span("of a reconciliation", reconciled).await;
    let controller = attribute(&reconciled, "controller");
    assert_eq!(reconciled.name, format!("reconcile {controller}"));
    assert!(reconciled.parent_span_id.is_empty());
    assert!(!attribute(&reconciled, "result").is_empty());

    // The spans that have ended are exported before the process ends.
    create_map(&server, "last");
    server.stop();
    let last = |s: &Span| attribute(s, "audit-id") == "last";
    collector.span("of the last request", last).await;
}

#[test]
fn an_unreachable_collector_changes_no_answer_and_invalid_configurations_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    // No other test listens at this address.
    let closed = std::net::TcpListener::bind("127.0.0.2:0").unwrap();
    let address = closed.local_addr().unwrap().to_string();
    drop(closed);
    let file = write_configuration(dir.path(), &address);
    let server = ApiTestServer::start_with(&["--tracing-config-file", &file]);
    server.create_namespace("traced");
    // More spans than the queue holds.
    for number in 0..20 {
        create_map(&server, &format!("map-{number}"));
    }
    for _ in 0..2500 {
        assert_eq!(server.get("/version").code, 200);
    }
    create_map(&server, "after-the-queue-was-full");
    server.stop();

    let file = write_configuration(dir.path(), "https://collector:4317");
    let error = start_error(&["--tracing-config-file", &file]);
    let expected = "endpoint: Invalid value: \"https://collector:4317\": unsupported scheme: https";
    assert!(error.contains(expected), "{error}");
}
