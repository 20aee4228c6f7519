//! Tests of custom resources whose versions differ, with a conversion webhook as a closure:
//! each version is stored, validated, listed and watched as itself.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use client::webhook::{WebhookClient, WebhookClientConfig};

use super::*;
use crate::{RegistryWatch, RegistryWatchItem, RegistryWatchOptions};

static V1: Gvr = Gvr::from_static("conv.io", "v1", "gauges");
static V2: Gvr = Gvr::from_static("conv.io", "v2", "gauges");
const NAME: &str = "gauges.conv.io";

/// Converts `spec.size` of v1, a number, into `spec.amount` of v2, a text.
#[derive(Default)]
struct FakeConversionWebhook {
    fails: AtomicBool,
    reviews: AtomicUsize,
}

fn converted(mut object: Value, desired: &Value) -> Value {
    let spec = object["spec"].take();
    object["spec"] = match desired.as_str().unwrap() {
        "conv.io/v2" => json!({"amount": spec["size"].to_string(), "unit": spec["unit"]}),
        _ => {
            let size: i64 = spec["amount"].as_str().unwrap().parse().unwrap();
            json!({"size": size, "unit": spec["unit"]})
        }
    };
    object["apiVersion"] = desired.clone();
    object["metadata"]["annotations"] = json!({"converted": "yes"});
    object
}

#[async_trait]
impl WebhookClient for FakeConversionWebhook {
    async fn call(
        &self,
        config: &WebhookClientConfig,
        body: Bytes,
        _: Duration,
    ) -> Result<Bytes, String> {
        assert_eq!(config.path, "/convert");
        self.reviews.fetch_add(1, Ordering::Relaxed);
        if self.fails.load(Ordering::Relaxed) {
            return Err("connection refused".into());
        }
        let mut review: Value = serde_json::from_slice(&body).unwrap();
        let request = review["request"].take();
        let objects = request["objects"].as_array().unwrap().iter();
        let objects: Vec<Value> = objects
            .map(|object| converted(object.clone(), &request["desiredAPIVersion"]))
            .collect();
        review["response"] = json!({"uid": request["uid"], "result": {"status": "Success"},
            "convertedObjects": objects});
        Ok(review.to_string().into())
    }
}

fn version(name: &str, storage: bool, spec: Value) -> Value {
    json!({"name": name, "served": true, "storage": storage,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}})
}

fn definition() -> Value {
    let unit = json!({"type": "string", "default": "m"});
    let v1 = json!({"type": "object", "properties": {"size": {"type": "integer", "maximum": 100}, "unit": unit}});
    let v2 = json!({"type": "object", "properties": {"amount": {"type": "string", "maxLength": 3}, "unit": unit}});
    let mut second = version("v2", false, v2);
    second["selectableFields"] = json!([{"jsonPath": ".spec.amount"}]);
    json!({"metadata": {"name": NAME}, "spec": {"group": "conv.io", "scope": "Namespaced",
        "names": {"plural": "gauges", "kind": "Gauge"},
        "conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://hook.test/convert"}}},
        "versions": [version("v1", true, v1), second]}})
}

fn definition_path() -> ResourcePath<'static> {
    ResourcePath::object(&CRDS, "", NAME)
}

async fn converting_fixture() -> (RegistryFixture, Arc<FakeConversionWebhook>) {
    let fixture = fixture().await;
    let webhook: Arc<FakeConversionWebhook> = Arc::default();
    fixture
        .registry
        .set_conversion_webhook_client(Arc::clone(&webhook) as _);
    fixture.create(&CRDS, definition()).await.unwrap();
    let status = json!({"status": {"acceptedNames": {"plural": "gauges", "kind": "Gauge"},
        "conditions": [{"type": "Established", "status": "True", "reason": "R", "message": "m",
                        "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let at = definition_path().subresource("status");
    fixture.merge(at, status).await.unwrap();
    fixture.registry.sync_crds().await.unwrap();
    (fixture, webhook)
}

fn gauge(api_version: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("conv.io/{api_version}"), "kind": "Gauge",
           "metadata": {"name": name, "namespace": "default"}, "spec": spec})
}

fn at<'a>(gvr: &'a Gvr, name: &'a str) -> ResourcePath<'a> {
    ResourcePath::object(gvr, "default", name)
}

async fn stored(fixture: &RegistryFixture, name: &str) -> Value {
    let key = format!("/registry/conv.io/gauges/default/{name}");
    let entry = fixture.registry.store.get(&key).await.unwrap().unwrap();
    serde_json::from_slice(&entry.value).unwrap()
}

#[tokio::test]
async fn each_version_is_validated_as_itself_and_stored_in_the_storage_version() {
    let (fixture, _) = converting_fixture().await;
    let created = fixture
        .create(&V2, gauge("v2", "a", json!({"amount": "7"})))
        .await
        .unwrap();
    assert_eq!(created["spec"], json!({"amount": "7", "unit": "m"}));
    assert_eq!(created["apiVersion"], "conv.io/v2");
    let raw = stored(&fixture, "a").await;
    assert_eq!(
        (&raw["apiVersion"], &raw["spec"]),
        (&json!("conv.io/v1"), &json!({"size": 7, "unit": "m"}))
    );
    let read = fixture.get(at(&V1, "a")).await.unwrap();
    assert_eq!(read["spec"], json!({"size": 7, "unit": "m"}));
    assert_eq!(read["metadata"]["annotations"], json!({"converted": "yes"}));
    assert_eq!(
        read["metadata"]["resourceVersion"],
        created["metadata"]["resourceVersion"]
    );
    // The rules are those of the requested version, with its field paths.
    let long = fixture
        .create(&V2, gauge("v2", "b", json!({"amount": "1234"})))
        .await;
    let status = long.unwrap_err();
    assert!(status.message.contains("spec.amount"), "{status}");
    let patched = fixture
        .merge(at(&V2, "a"), json!({"spec": {"amount": "99"}}))
        .await
        .unwrap();
    assert_eq!(patched["spec"]["amount"], "99");
    assert_eq!(fixture.get(at(&V1, "a")).await.unwrap()["spec"]["size"], 99);
    let again = fixture
        .merge(at(&V2, "a"), json!({"spec": {"amount": "99"}}))
        .await
        .unwrap();
    assert_eq!(again["metadata"], patched["metadata"], "nothing changed");
    fixture.delete(at(&V2, "a")).await.unwrap();
    assert_eq!(
        result_code(&fixture.get(at(&V1, "a")).await),
        "404 NotFound"
    );
}

async fn next_event(watch: &mut RegistryWatch) -> (&'static str, Value) {
    let next = tokio::time::timeout(Duration::from_secs(20), watch.next());
    match next.await.unwrap().unwrap().unwrap() {
        RegistryWatchItem::Event(event) => {
            (event.change().as_str(), event.object().value().unwrap())
        }
        RegistryWatchItem::Bookmark { .. } => panic!("an unrequested bookmark"),
    }
}

#[tokio::test]
async fn lists_and_watches_convert_once_for_all_readers() {
    let (fixture, webhook) = converting_fixture().await;
    for i in 0..5 {
        let body = gauge("v1", &format!("g{i}"), json!({"size": i}));
        fixture.create(&V1, body).await.unwrap();
    }
    assert_eq!(
        webhook.reviews.load(Ordering::Relaxed),
        0,
        "the storage version needs none"
    );
    let all = ResourcePath::collection(&V2, "");
    for _ in 0..3 {
        let page = fixture.list(all, &ListOptions::default()).await.unwrap();
        let amounts: Vec<Value> = page
            .items
            .iter()
            .map(|o| o.value().unwrap()["spec"]["amount"].clone())
            .collect();
        assert_eq!(amounts, ["0", "1", "2", "3", "4"]);
    }
    assert_eq!(webhook.reviews.load(Ordering::Relaxed), 1);
    let selected = ListOptions {
        field_selector: "spec.amount=3".into(),
        ..ListOptions::default()
    };
    assert_eq!(names(&fixture.list(all, &selected).await.unwrap()), ["g3"]);
    let options = RegistryWatchOptions {
        field_selector: "spec.amount=8".into(),
        ..RegistryWatchOptions::default()
    };
    let mut watches = Vec::new();
    for _ in 0..3 {
        let watch = fixture.registry.watch(&fixture.ctx, all, &options);
        watches.push(watch.await.unwrap());
    }
    for (size, event) in [(8, "ADDED"), (9, "DELETED")] {
        let change = json!({"spec": {"size": size}});
        fixture.merge(at(&V1, "g1"), change).await.unwrap();
        for watch in &mut watches {
            let (kind, object) = next_event(watch).await;
            assert_eq!((kind, &object["spec"]["amount"]), (event, &json!("8")));
        }
    }
    assert_eq!(
        webhook.reviews.load(Ordering::Relaxed),
        3,
        "one for each event"
    );
}

#[tokio::test]
async fn a_failing_webhook_fails_only_what_it_has_to_convert() {
    let (fixture, webhook) = converting_fixture().await;
    fixture
        .create(&V1, gauge("v1", "a", json!({"size": 1})))
        .await
        .unwrap();
    webhook.fails.store(true, Ordering::Relaxed);
    let why = "conversion webhook for conv.io/v1, Kind=Gauge failed: connection refused";
    let all = ResourcePath::collection(&V2, "");
    let any = ListOptions {
        resource_version: "0".into(),
        ..ListOptions::default()
    };
    let failures = [
        fixture.get(at(&V2, "a")).await.unwrap_err(),
        fixture
            .list(all, &ListOptions::default())
            .await
            .unwrap_err(),
        fixture.list(all, &any).await.unwrap_err(),
        fixture
            .merge(at(&V2, "a"), json!({"spec": {"amount": "2"}}))
            .await
            .unwrap_err(),
    ];
    for status in failures {
        assert_eq!(
            (status.code, status.reason.as_str(), status.message.as_str()),
            (500, "", why)
        );
    }
    let written = fixture
        .create(&V2, gauge("v2", "b", json!({"amount": "2"})))
        .await;
    let status = written.unwrap_err();
    assert!(
        status
            .message
            .starts_with("conversion webhook for conv.io/v2, Kind=Gauge failed: "),
        "{status}"
    );
    assert_eq!(
        result_code(&fixture.get(at(&V1, "b")).await),
        "404 NotFound"
    );
    fixture
        .merge(at(&V1, "a"), json!({"spec": {"size": 3}}))
        .await
        .unwrap();
    webhook.fails.store(false, Ordering::Relaxed);
    assert_eq!(
        fixture.get(at(&V2, "a")).await.unwrap()["spec"]["amount"],
        "3"
    );
    assert_eq!(
        names(&fixture.list(all, &ListOptions::default()).await.unwrap()),
        ["a"]
    );
}

async fn change_definition(fixture: &RegistryFixture, change: impl FnOnce(&mut Value)) {
    let mut definition = fixture.get(definition_path()).await.unwrap();
    change(&mut definition);
    fixture.update(definition_path(), definition).await.unwrap();
    fixture.registry.sync_crds().await.unwrap();
}

#[tokio::test]
async fn an_update_that_changes_nothing_migrates_to_the_new_storage_version() {
    let (fixture, webhook) = converting_fixture().await;
    fixture
        .create(&V1, gauge("v1", "a", json!({"size": 5})))
        .await
        .unwrap();
    change_definition(&fixture, |definition| {
        definition["spec"]["versions"][0]["storage"] = json!(false);
        definition["spec"]["versions"][1]["storage"] = json!(true);
    })
    .await;
    let versions = fixture.get(definition_path()).await.unwrap();
    assert_eq!(versions["status"]["storedVersions"], json!(["v1", "v2"]));
    let before = fixture.get(at(&V2, "a")).await.unwrap();
    assert_eq!(before["spec"]["amount"], "5");
    assert_eq!(stored(&fixture, "a").await["apiVersion"], "conv.io/v1");
    let after = fixture.update(at(&V2, "a"), before.clone()).await.unwrap();
    assert_ne!(
        after["metadata"]["resourceVersion"],
        before["metadata"]["resourceVersion"]
    );
    let raw = stored(&fixture, "a").await;
    assert_eq!(
        (&raw["apiVersion"], &raw["spec"]["amount"]),
        (&json!("conv.io/v2"), &json!("5"))
    );
    let again = fixture.update(at(&V2, "a"), after.clone()).await.unwrap();
    assert_eq!(
        again["metadata"]["resourceVersion"],
        after["metadata"]["resourceVersion"]
    );
    assert_eq!(fixture.get(at(&V1, "a")).await.unwrap()["spec"]["size"], 5);
    // No object needs the webhook any more in the storage version.
    webhook.fails.store(true, Ordering::Relaxed);
    assert_eq!(
        fixture.get(at(&V2, "a")).await.unwrap()["spec"]["amount"],
        "5"
    );
}

#[tokio::test]
async fn objects_get_the_defaults_and_lose_the_fields_of_a_changed_schema() {
    let (fixture, _) = converting_fixture().await;
    fixture
        .create(&V1, gauge("v1", "a", json!({"size": 5})))
        .await
        .unwrap();
    change_definition(&fixture, |definition| {
        let spec = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
            ["spec"];
        spec["properties"] =
            json!({"size": {"type": "integer"}, "color": {"type": "string", "default": "red"}});
    })
    .await;
    let read = fixture.get(at(&V1, "a")).await.unwrap();
    assert_eq!(read["spec"], json!({"size": 5, "color": "red"}));
    assert_eq!(
        stored(&fixture, "a").await["spec"],
        json!({"size": 5, "unit": "m"})
    );
    let page = fixture
        .list(ResourcePath::collection(&V1, ""), &ListOptions::default())
        .await
        .unwrap();
    assert_eq!(page.items[0].value().unwrap()["spec"]["color"], "red");
    fixture.update(at(&V1, "a"), read).await.unwrap();
    assert_eq!(
        stored(&fixture, "a").await["spec"],
        json!({"size": 5, "color": "red"})
    );
}
