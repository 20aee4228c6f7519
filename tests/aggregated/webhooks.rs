//! Admission webhooks that are registered in the host apply to resources that Flotilla serves.
//!
//! The host does not call webhooks for requests that it proxies to an APIService, so Flotilla
//! does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use auth::pki::Pki;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::{ResourcePath, WriteOptions};
use harness::daemon::TestDir;
use harness::objects::{POLICIES, config_map, policy};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use machinery::Gvr;
use machinery::time::{Clock, SystemClock};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::aggregated::aggregated_control_plane::AggregatedControlPlane;

const GROUP: &str = "admissionregistration.k8s.io";
static MUTATING: Gvr = Gvr::from_static(GROUP, "v1", "mutatingwebhookconfigurations");
static VALIDATING: Gvr = Gvr::from_static(GROUP, "v1", "validatingwebhookconfigurations");
/// How long a change of a webhook configuration may take to act; Flotilla watches them.
const REGISTRATION_TIMEOUT: Duration = Duration::from_secs(60);

/// A webhook server that records the requests of the reviews it receives.
struct RecordingAdmissionWebhookServer {
    url: String,
    ca: String,
    requests: Arc<Mutex<Vec<Value>>>,
    _dir: TestDir,
}

impl RecordingAdmissionWebhookServer {
    async fn start() -> Self {
        let dir = TestDir::new();
        let pki = Pki::open(dir.path(), &[], SystemClock.now()).unwrap();
        let (chain, key) = pki.serving_der().unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let requests: Arc<Mutex<Vec<Value>>> = Arc::default();
        let log = Arc::clone(&requests);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, log) = (acceptor.clone(), Arc::clone(&log));
                tokio::spawn(async move {
                    let stream = acceptor.accept(stream).await.unwrap();
                    let service = service_fn(|request| review(request, Arc::clone(&log)));
                    let connection = hyper::server::conn::http1::Builder::new();
                    let _ = connection
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self {
            url,
            ca: STANDARD.encode(&pki.ca_pem),
            requests,
            _dir: dir,
        }
    }

    fn configuration(&self, path: &str, change: Value) -> Value {
        let mut hook = json!({
            "name": format!("{path}.example.org"),
            "clientConfig": {"url": format!("{}/{path}", self.url), "caBundle": self.ca},
            "rules": [{"operations": ["*"], "apiGroups": ["policy.karmada.io"],
                       "apiVersions": ["*"], "resources": ["propagationpolicies"]}],
            "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 2,
        });
        for (key, value) in change.as_object().unwrap() {
            hook[key] = value.clone();
        }
        json!({"metadata": {"name": path}, "webhooks": [hook]})
    }
}

async fn review(
    request: Request<Incoming>,
    log: Arc<Mutex<Vec<Value>>>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await?.to_bytes();
    let review: Value = machinery::json::from_slice(&body).unwrap();
    let mut response = match path.as_str() {
        "/label" if !review["request"]["object"].is_null() => {
            let steps = json!([{"op": "add", "path": "/metadata/labels", "value": {"by": "hook"}}]);
            let patch = STANDARD.encode(steps.to_string());
            json!({"allowed": true, "patchType": "JSONPatch", "patch": patch})
        }
        _ => {
            let name = &review["request"]["object"]["metadata"]["name"];
            let message = json!({"code": 422, "message": "not this one"});
            json!({"allowed": *name != "bad", "status": message})
        }
    };
    response["uid"] = review["request"]["uid"].clone();
    log.lock().push(review["request"].clone());
    let reply = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    Ok(Response::new(Full::from(reply.to_string())))
}

async fn register(control_plane: &AggregatedControlPlane, resource: &Gvr, mut body: Value) {
    body["apiVersion"] = json!("admissionregistration.k8s.io/v1");
    body["kind"] = json!(match resource == &MUTATING {
        true => "MutatingWebhookConfiguration",
        false => "ValidatingWebhookConfiguration",
    });
    let options = WriteOptions::default();
    let created = control_plane.client.api.create(
        ResourcePath::collection(resource, ""),
        body.into(),
        &options,
    );
    created.await.unwrap();
}

/// Repeats a request until `matches` holds for its result.
async fn retry_until<T: std::fmt::Debug>(
    description: &str,
    mut attempt: impl AsyncFnMut() -> T,
    matches: impl Fn(&T) -> bool,
) -> T {
    let start = Instant::now();
    loop {
        let in_time = start.elapsed() < REGISTRATION_TIMEOUT;
        let actual = attempt().await;
        if matches(&actual) {
            return actual;
        }
        assert!(in_time, "{description}: {actual:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) async fn run_scenario(control_plane: &AggregatedControlPlane) {
    let hooks = RecordingAdmissionWebhookServer::start().await;
    let control = &control_plane.client;
    let template = config_map("default", "c", "v");
    let named = |name: &str| policy("default", name, &template, &["m"]);

    register(
        control_plane,
        &MUTATING,
        hooks.configuration("label", json!({})),
    )
    .await;
    let mut n = 0;
    let labelled = retry_until(
        "a mutating hook",
        async || {
            n += 1;
            control.create(named(&format!("p{n}"))).await
        },
        |created| created["metadata"]["labels"]["by"] == "hook",
    )
    .await;
    assert_eq!(labelled["metadata"]["namespace"], "default");
    let name = &labelled["metadata"]["name"];
    let requests = hooks.requests.lock().clone();
    let mut created = requests.iter().filter(|r| r["operation"] == "CREATE");
    let request = created.find(|r| r["name"] == *name).unwrap();
    assert_eq!(request["userInfo"]["username"], "kubernetes-admin");
    assert_eq!(request["resource"]["resource"], "propagationpolicies");

    register(
        control_plane,
        &VALIDATING,
        hooks.configuration("judge", json!({})),
    )
    .await;
    let result = retry_until(
        "a validating hook",
        async || control.try_create(named("bad")).await,
        // An attempt before the registration is seen creates the object.
        |result| matches!(result, Err(error) if !error.is_already_exists()),
    )
    .await;
    let status = result.unwrap_err().status().unwrap().clone();
    assert_eq!(status.code, 422);
    let text = "admission webhook \"judge.example.org\" denied the request: not this one";
    assert_eq!(status.message, text);

    check_failure_policies(control_plane, &hooks).await;
}

/// A webhook whose server is down: the write fails with failurePolicy Fail and succeeds with
/// Ignore.
async fn check_failure_policies(
    control_plane: &AggregatedControlPlane,
    hooks: &RecordingAdmissionWebhookServer,
) {
    let control = &control_plane.client;
    let template = config_map("default", "c", "v");
    let named = |name: &str| policy("default", name, &template, &["m"]);
    let unreachable = json!({"url": format!("https://127.0.0.1:{}/", harness::port::free_port())});
    let down = hooks.configuration("down", json!({"clientConfig": unreachable}));
    register(control_plane, &VALIDATING, down).await;
    let mut n = 0;
    let failed = retry_until(
        "a hook that is down",
        async || {
            n += 1;
            control.try_create(named(&format!("down{n}"))).await
        },
        |result| result.is_err(),
    )
    .await;
    let status = failed.unwrap_err().status().unwrap().clone();
    assert_eq!(status.code, 500);
    assert!(
        status
            .message
            .contains("failed calling webhook \"down.example.org\""),
        "{status}"
    );
    let ignored =
        json!([{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]);
    let at = ResourcePath::object(&VALIDATING, "", "down");
    let options = WriteOptions::default();
    control
        .api
        .patch(at, client::Patch::Json(ignored), &options)
        .await
        .unwrap();
    retry_until(
        "a hook that may be down",
        async || control.try_create(named("after")).await,
        |result| result.is_ok(),
    )
    .await
    .unwrap();
    control.delete(&POLICIES, "default", "after").await;
    // The webhooks also apply to DELETE.
    let requests = hooks.requests.lock();
    let deleted =
        |r: &&Value| r["operation"] == "DELETE" && r["oldObject"]["metadata"]["name"] == "after";
    assert!(requests.iter().any(|r| deleted(&r)));
}
