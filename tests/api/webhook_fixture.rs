//! A webhook server of the tests, and a server that calls it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use harness::http_client::full_body;
use harness::https_server::FakeHttpsServer;
use harness::raw_http::RawHttpResponse;
use http_body_util::BodyExt;
use hyper::Response;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::api::test_server::ApiTestServer;

pub(crate) const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1";
/// How long a changed configuration may take to act.
const TIMEOUT: Duration = Duration::from_secs(90);

/// A webhook server that records the requests of the reviews, and a server that calls it.
/// It patches ConfigMaps, and denies objects that are named or labelled `bad`.
pub(crate) struct WebhookTest {
    pub(crate) server: ApiTestServer,
    pub(crate) webhooks: FakeHttpsServer,
    requests: Arc<Mutex<Vec<Value>>>,
}

fn respond(path: &str, request: &Value) -> Value {
    let denied =
        |message: &str| json!({"allowed": false, "status": {"code": 403, "message": message}});
    match path {
        "/label" if request["operation"] == "CREATE" => {
            let steps = json!([{"op": "add", "path": "/metadata/labels", "value": {"by": "hook"}}]);
            json!({"allowed": true, "warnings": ["labelled"],
                   "patchType": "JSONPatch", "patch": STANDARD.encode(steps.to_string())})
        }
        "/managers" => {
            let entry = json!({"manager": "hook", "operation": "Update", "apiVersion": "v1",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:hooked": {}}}});
            let value = match request["name"].as_str() {
                Some("malformed") => json!([{"manager": "hook", "operation": "Sometimes"}]),
                _ => json!([request["object"]["metadata"]["managedFields"][0], entry]),
            };
            let steps = json!([{"op": "add", "path": "/data/hooked", "value": "v"},
                {"op": "replace", "path": "/metadata/managedFields", "value": value}]);
            json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(steps.to_string())})
        }
        "/replicas" => {
            let steps = json!([{"op": "replace", "path": "/spec/replicas", "value": 3}]);
            json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(steps.to_string())})
        }
        "/deny" if request["name"] == "bad" => denied("it is bad"),
        "/deny-delete" if request["operation"] == "DELETE" => denied("keep it"),
        "/deny-all" => denied("nothing"),
        "/broken" => json!({"allowed": "perhaps"}),
        "/explain" => json!({"allowed": true, "warnings": ["explained"],
            "auditAnnotations": {"why": "because", "not a key": "dropped"}}),
        _ => json!({"allowed": true, "warnings": ["seen"]}),
    }
}

impl WebhookTest {
    pub(crate) async fn start() -> Self {
        Self::start_on(ApiTestServer::start()).await
    }

    pub(crate) async fn start_on(server: ApiTestServer) -> Self {
        let requests: Arc<Mutex<Vec<Value>>> = Arc::default();
        let log = Arc::clone(&requests);
        let names = ["127.0.0.1", "hook.hooked.svc"];
        let webhooks = FakeHttpsServer::start_at(
            "0.0.0.0:0",
            &names,
            Arc::new(move |request| {
                let log = Arc::clone(&log);
                Box::pin(async move {
                    let path = request.uri().path().to_owned();
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    let review: Value = machinery::json::from_slice(&body).unwrap();
                    let mut response = respond(&path, &review["request"]);
                    response["uid"] = review["request"]["uid"].clone();
                    log.lock().push(review["request"].clone());
                    let reply = json!({"apiVersion": "admission.k8s.io/v1",
                                       "kind": "AdmissionReview", "response": response});
                    Response::new(full_body(reply.to_string()))
                })
            }),
        )
        .await;
        server.create_namespace("hooked");
        Self {
            server,
            webhooks,
            requests,
        }
    }

    /// Registers a webhook of this path for the resources, in the namespace `hooked`.
    pub(crate) fn register(
        &self,
        plural: &str,
        path: &str,
        resources: &[&str],
        change: Value,
    ) -> RawHttpResponse {
        let url = format!("https://{}/{path}", self.webhooks.address);
        let mut webhook = json!({
            "name": format!("{path}.example.org"),
            "clientConfig": {"url": url, "caBundle": STANDARD.encode(&self.webhooks.ca_pem)},
            "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": resources}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "hooked"}},
            "sideEffects": "None", "admissionReviewVersions": ["v1"],
        });
        for (key, value) in change.as_object().unwrap() {
            webhook[key] = value.clone();
        }
        let body = json!({"metadata": {"name": path}, "webhooks": [webhook]});
        self.server
            .post(&format!("{CONFIGURATIONS}/{plural}"), &body)
    }

    pub(crate) fn validate_with(&self, path: &str, resources: &[&str], change: Value) {
        let reply = self.register("validatingwebhookconfigurations", path, resources, change);
        assert_eq!(reply.code, 201, "{}", reply.text());
    }

    pub(crate) fn delete_validating(&self, name: &str) {
        let path = format!("{CONFIGURATIONS}/validatingwebhookconfigurations/{name}");
        let reply = self.server.request("DELETE", &path).send();
        assert_eq!(reply.code, 200, "{}", reply.text());
    }

    /// The last recorded request that fits.
    pub(crate) fn recorded(&self, fits: impl Fn(&Value) -> bool) -> Value {
        let requests = self.requests.lock();
        let request = requests.iter().rev().find(|r| fits(r));
        request.unwrap().clone()
    }

    /// The recorded requests for an object of this name.
    pub(crate) fn requests_of(&self, name: &Value) -> Vec<Value> {
        let requests = self.requests.lock();
        let matching = requests.iter().filter(|r| r["name"] == *name);
        matching.cloned().collect()
    }
}

pub(crate) fn config_map(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

/// Repeats a request until its response fits.
pub(crate) async fn retry_until(
    mut request: impl FnMut() -> RawHttpResponse,
    fits: impl Fn(&RawHttpResponse) -> bool,
) -> RawHttpResponse {
    let began = Instant::now();
    loop {
        let reply = request();
        if fits(&reply) {
            return reply;
        }
        assert!(began.elapsed() < TIMEOUT, "{} {}", reply.code, reply.text());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
