//! A webhook that converts custom resources, called by both servers.
//!
//! In definitions `{webhook}` is its address and `{ca}` its certificate authority. The path says
//! what it does: `/convert` turns `spec.host` of v1 into the list `spec.hosts` of other versions
//! and back, `/refuse` fails with a message, `/nothing` returns no objects, `/rename` returns
//! objects of another name, and `/text` is no review.

use std::sync::{Arc, LazyLock, mpsc};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use harness::http_client::full_body;
use harness::https_server::FakeHttpsServer;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Request, Response};
use serde_json::{Value, json};

struct ConversionWebhook {
    address: String,
    ca: String,
}

static WEBHOOK: LazyLock<ConversionWebhook> = LazyLock::new(ConversionWebhook::start);

/// A definition with the address and authority of the webhook.
pub(crate) fn fill_webhook(definition: &Value) -> Value {
    let text = definition.to_string();
    if !text.contains("{webhook}") {
        return definition.clone();
    }
    let text = text.replace("{webhook}", &WEBHOOK.address);
    machinery::json::from_str(&text.replace("{ca}", &WEBHOOK.ca)).unwrap()
}

impl ConversionWebhook {
    /// Starts it on a thread of its own, for all tests of the process.
    fn start() -> Self {
        let (sender, started) = mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let server = FakeHttpsServer::start(Arc::new(|request| {
                    Box::pin(async move { Response::new(full_body(answer(request).await)) })
                }));
                let server = server.await;
                let webhook = Self {
                    address: format!("https://{}", server.address),
                    ca: STANDARD.encode(&server.ca_pem),
                };
                sender.send(webhook).unwrap();
                std::future::pending::<()>().await;
            });
        });
        started.recv().unwrap()
    }
}

async fn answer(request: Request<Incoming>) -> String {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let mut review: Value = machinery::json::from_slice(&body).unwrap();
    let request = review["request"].take();
    let objects = request["objects"].as_array().unwrap().iter();
    let mut objects: Vec<Value> = objects
        .map(|object| converted(object, &request["desiredAPIVersion"]))
        .collect();
    let mut result = json!({"status": "Success"});
    match path.as_str() {
        "/refuse" => result = json!({"status": "Failure", "message": "no hosts today"}),
        "/nothing" => objects.clear(),
        "/rename" => {
            for object in &mut objects {
                object["metadata"]["name"] = json!("other");
            }
        }
        "/text" => return "no review".to_owned(),
        _ => {}
    }
    let response = json!({
        "uid": request["uid"],
        "result": result,
        "convertedObjects": objects,
    });
    json!({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response})
        .to_string()
}

fn converted(object: &Value, desired: &Value) -> Value {
    let mut object = object.clone();
    let (spec, is_v1) = (
        object["spec"].take(),
        desired.as_str().unwrap().ends_with("/v1"),
    );
    object["spec"] = match (is_v1, &spec) {
        (_, Value::Null) => json!({}),
        (true, spec) if !spec["hosts"].is_null() => json!({"host": spec["hosts"][0]}),
        (false, spec) if !spec["host"].is_null() => json!({"hosts": [spec["host"]]}),
        (_, spec) => spec.clone(),
    };
    object["apiVersion"] = desired.clone();
    object
}
