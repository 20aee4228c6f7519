//! Custom resources whose versions a webhook converts: an HTTPS server of the test is called by
//! the server for reads, writes, lists and watches.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use harness::http_client::full_body;
use harness::https_server::FakeHttpsServer;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Request, Response};
use serde_json::{Value, json};

use crate::api::test_server::ApiTestServer;

/// How long a changed definition may take to be served.
const SERVED_TIMEOUT: Duration = Duration::from_secs(90);
const NAMES: [&str; 2] = ["127.0.0.1", "convert.default.svc"];

/// A webhook that converts `spec.host` of v1 into the list `spec.hosts` of v2.
struct HostsWebhook {
    _runtime: tokio::runtime::Runtime,
    server: FakeHttpsServer,
    fails: Arc<AtomicBool>,
}

fn converted(object: &Value, desired: &Value) -> Value {
    let mut object = object.clone();
    object["spec"] = match desired.as_str() {
        Some("hosts.io/v2") => json!({"hosts": [object["spec"]["host"]]}),
        _ => json!({"host": object["spec"]["hosts"][0]}),
    };
    object["apiVersion"] = desired.clone();
    object
}

async fn answer(request: Request<Incoming>, fails: bool) -> Value {
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let mut review: Value = machinery::json::from_slice(&body).unwrap();
    let request = review["request"].take();
    let objects = request["objects"].as_array().unwrap().iter();
    let objects: Vec<Value> = objects
        .map(|object| converted(object, &request["desiredAPIVersion"]))
        .collect();
    let result = match fails {
        true => json!({"status": "Failure", "message": "no hosts today"}),
        false => json!({"status": "Success"}),
    };
    json!({"apiVersion": review["apiVersion"], "kind": review["kind"], "response":
        {"uid": request["uid"], "result": result, "convertedObjects": objects}})
}

impl HostsWebhook {
    fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let fails: Arc<AtomicBool> = Arc::default();
        let flag = Arc::clone(&fails);
        let server = runtime.block_on(FakeHttpsServer::start_at(
            "0.0.0.0:0",
            &NAMES,
            Arc::new(move |request| {
                let fails = flag.load(Ordering::Relaxed);
                Box::pin(async move {
                    let review = answer(request, fails).await;
                    Response::new(full_body(review.to_string()))
                })
            }),
        ));
        Self {
            _runtime: runtime,
            server,
            fails,
        }
    }

    fn definition(&self) -> Value {
        let version = |name: &str, storage: bool, spec: Value| {
            let schema = json!({"type": "object", "properties": {"spec": spec}});
            json!({"name": name, "served": true, "storage": storage,
                   "schema": {"openAPIV3Schema": schema}})
        };
        let host = json!({"type": "string"});
        let v1 = json!({"type": "object", "properties": {"host": host}});
        let v2 =
            json!({"type": "object", "properties": {"hosts": {"type": "array", "items": host}}});
        let url = format!("https://{}/convert", self.server.address);
        let ca = STANDARD.encode(&self.server.ca_pem);
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "routes.hosts.io"},
            "spec": {"group": "hosts.io", "scope": "Namespaced",
                "names": {"plural": "routes", "singular": "route", "kind": "Route", "listKind": "RouteList"},
                "conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
                    "clientConfig": {"url": url, "caBundle": ca}}},
                "versions": [version("v1", true, v1), version("v2", false, v2)]}})
    }
}

fn wait_until_served(server: &ApiTestServer, path: &str) {
    let deadline = Instant::now() + SERVED_TIMEOUT;
    while server.get(path).code == 404 {
        assert!(Instant::now() < deadline, "{path} is not served");
        harness::sleep_blocking(Duration::from_millis(20));
    }
}

fn route(version: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("hosts.io/{version}"), "kind": "Route",
           "metadata": {"name": name}, "spec": spec})
}

fn path(version: &str) -> String {
    format!("/apis/hosts.io/{version}/namespaces/default/routes")
}

/// Contract F5.9.
#[test]
fn a_webhook_converts_what_is_read_and_written() {
    let server = ApiTestServer::start();
    let webhook = HostsWebhook::start();
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let reply = server.post(definitions, &webhook.definition());
    assert_eq!(reply.code, 201, "{}", reply.text());
    wait_until_served(&server, &path("v2"));

    let reply = server.post(&path("v1"), &route("v1", "a", json!({"host": "x"})));
    assert_eq!(reply.code, 201, "{}", reply.text());
    let reply = server.post(
        &path("v2"),
        &route("v2", "b", json!({"hosts": ["y", "lost"]})),
    );
    assert_eq!(reply.code, 201, "{}", reply.text());
    assert_eq!(
        reply.json()["spec"],
        json!({"hosts": ["y"]}),
        "as it will be read"
    );
    let list = server.get(&path("v2")).json();
    let hosts: Vec<&Value> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["spec"]["hosts"])
        .collect();
    assert_eq!(hosts, [&json!(["x"]), &json!(["y"])]);
    assert_eq!(list["apiVersion"], "hosts.io/v2");
    let read = server.get(&format!("{}/b", path("v1"))).json();
    assert_eq!(read["spec"], json!({"host": "y"}));

    let query = format!("{}?watch=1&resourceVersion=0&timeoutSeconds=5", path("v2"));
    let frames = server.get(&query).text();
    let frames: Vec<Value> = frames
        .lines()
        .map(|line| machinery::json::from_str(line).unwrap())
        .collect();
    assert_eq!(frames[0]["object"]["spec"], json!({"hosts": ["x"]}));
    assert_eq!(frames.len(), 2, "{frames:?}");

    // Managers in another version cannot be compared with an empty object, which the webhook
    // returns without metadata: the object is stored without managers.
    let mut owned = route("v1", "m", json!({"host": "x"}));
    owned["metadata"]["managedFields"] = json!([{"manager": "other", "operation": "Apply",
        "apiVersion": "hosts.io/v2", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:hosts": {}}}}]);
    let reply = server.post(&format!("{}?fieldManager=creator", path("v1")), &owned);
    assert_eq!(reply.code, 201, "{}", reply.text());
    let created = reply.json();
    assert_eq!(created["spec"], json!({"host": "x"}));
    assert_eq!(created["metadata"].get("managedFields"), None, "{created}");

    webhook.fails.store(true, Ordering::Relaxed);
    let reply = server.post(&path("v2"), &route("v2", "c", json!({"hosts": ["z"]})));
    let status = reply.json();
    assert_eq!(status["code"], 500);
    assert_eq!(
        status["message"],
        "conversion webhook for hosts.io/v2, Kind=Route failed: no hosts today"
    );
    let reply = server.post(&path("v1"), &route("v1", "c", json!({"host": "z"})));
    assert_eq!(reply.code, 201, "the storage version needs no webhook");
}

#[test]
fn services_of_conversion_webhooks_are_reached_by_their_endpoints() {
    let server = ApiTestServer::start();
    let webhook = HostsWebhook::start();
    let mut definition = webhook.definition();
    let ca = STANDARD.encode(&webhook.server.ca_pem);
    definition["spec"]["conversion"]["webhook"]["clientConfig"] = json!({"caBundle": ca,
        "service": {"namespace": "default", "name": "convert", "path": "/convert", "port": 8443}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let reply = server.post(definitions, &definition);
    assert_eq!(reply.code, 201, "{}", reply.text());
    wait_until_served(&server, &path("v2"));
    let create = |name: &str| {
        let route = route("v2", name, json!({"hosts": ["x"]}));
        server.post(&path("v2"), &route)
    };
    let failed = create("a");
    assert_eq!(failed.code, 500);
    let message = failed.json()["message"].as_str().unwrap().to_owned();
    assert!(
        message.contains("services \"convert\" not found"),
        "{message}"
    );
    let service = json!({"metadata": {"name": "convert"}, "spec": {"ports": [{"port": 8443}]}});
    let reply = server.post("/api/v1/namespaces/default/services", &service);
    assert_eq!(reply.code, 201, "{}", reply.text());
    let Some(address) = harness::port::endpoint_address() else {
        return harness::tools::skip("an address that is not loopback");
    };
    let slice = json!({"metadata": {"name": "convert-1", "labels": {"kubernetes.io/service-name": "convert"}},
        "addressType": "IPv4", "endpoints": [{"addresses": [address]}],
        "ports": [{"port": webhook.server.address.port()}]});
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let reply = server.post(slices, &slice);
    assert_eq!(reply.code, 201, "{}", reply.text());
    let deadline = Instant::now() + SERVED_TIMEOUT;
    let mut number = 0;
    let created = loop {
        number += 1;
        let reply = create(&format!("b{number}"));
        if reply.code == 201 {
            break reply.json();
        }
        assert!(Instant::now() < deadline, "{}", reply.text());
        harness::sleep_blocking(Duration::from_millis(50));
    };
    assert_eq!(created["spec"], json!({"hosts": ["x"]}));
}
