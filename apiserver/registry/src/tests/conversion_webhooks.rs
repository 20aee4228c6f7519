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
    // Part of an object may be missing when an apply removes fields.
    if let Some(spec) = object["spec"].as_object_mut() {
        if let Some(size) = spec.remove("size") {
            spec.insert("amount".into(), size.to_string().into());
        } else if let Some(amount) = spec.remove("amount") {
            let size: i64 = amount.as_str().unwrap().parse().unwrap();
            spec.insert("size".into(), size.into());
        }
    }
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
        let mut review: Value = machinery::json::from_slice(&body).unwrap();
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
    let path = definition_path().subresource("status");
    fixture.merge(path, status).await.unwrap();
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
    machinery::json::from_slice(&entry.value).unwrap()
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
    let unchanged = fixture
        .merge(at(&V2, "a"), json!({"spec": {"amount": "99"}}))
        .await
        .unwrap();
    assert_eq!(
        unchanged["metadata"], patched["metadata"],
        "nothing changed"
    );
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
    let message = "conversion webhook for conv.io/v1, Kind=Gauge failed: connection refused";
    let all = ResourcePath::collection(&V2, "");
    let any_revision = ListOptions {
        resource_version: "0".into(),
        ..ListOptions::default()
    };
    let failures = [
        fixture.get(at(&V2, "a")).await.unwrap_err(),
        fixture
            .list(all, &ListOptions::default())
            .await
            .unwrap_err(),
        fixture.list(all, &any_revision).await.unwrap_err(),
        fixture
            .merge(at(&V2, "a"), json!({"spec": {"amount": "2"}}))
            .await
            .unwrap_err(),
    ];
    for status in failures {
        assert_eq!(
            (status.code, status.reason.as_str(), status.message.as_str()),
            (500, "", message)
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
    let updated_again = fixture.update(at(&V2, "a"), after.clone()).await.unwrap();
    assert_eq!(
        updated_again["metadata"]["resourceVersion"],
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

fn as_manager(name: &str) -> RegistryWriteOptions {
    RegistryWriteOptions {
        field_manager: name.into(),
        ..RegistryWriteOptions::default()
    }
}

/// `manager@apiVersion {fields of spec}` for each entry that owns any.
async fn owners(fixture: &RegistryFixture, path: ResourcePath<'_>) -> Vec<String> {
    let options = GetOptions::default();
    let object = fixture.registry.get(&fixture.ctx, path, &options).await;
    let object = object.unwrap();
    let text = object.managed_fields_json().unwrap_or_default();
    let entries: Vec<Value> = machinery::json::from_str(text).unwrap();
    let mut owners: Vec<String> = entries
        .iter()
        .filter_map(|entry| {
            let fields = entry["fieldsV1"]["f:spec"].as_object()?;
            let names: Vec<&str> = fields.keys().map(String::as_str).collect();
            let [manager, version] =
                ["manager", "apiVersion"].map(|field| entry[field].as_str().unwrap());
            Some(format!("{manager}@{version} {}", names.join(" ")))
        })
        .collect();
    owners.sort();
    owners
}

#[tokio::test]
async fn managers_own_fields_in_the_versions_in_which_they_wrote_them() {
    let (fixture, webhook) = converting_fixture().await;
    let body = gauge("v1", "a", json!({"size": 5}));
    let created = fixture.create_with(&V1, body, &as_manager("one")).await;
    created.unwrap();
    let patch = |gvr: &'static Gvr, spec: Value, manager: &'static str| {
        let patch = Patch::Merge(json!({"spec": spec}));
        let fixture = &fixture;
        async move {
            let options = as_manager(manager);
            let registry = &fixture.registry;
            registry
                .patch(&fixture.ctx, at(gvr, "a"), patch, &options)
                .await
        }
    };
    patch(&V2, json!({"amount": "7"}), "two").await.unwrap();
    let shared = ["one@conv.io/v1 . f:unit", "two@conv.io/v2 f:amount"];
    for version in [&V1, &V2] {
        assert_eq!(owners(&fixture, at(version, "a")).await, shared);
    }
    // A write does not fail because ownership cannot be computed.
    webhook.fails.store(true, Ordering::Relaxed);
    patch(&V1, json!({"unit": "k"}), "three").await.unwrap();
    assert_eq!(owners(&fixture, at(&V1, "a")).await, shared);
    webhook.fails.store(false, Ordering::Relaxed);
    patch(&V1, json!({"size": 8}), "three").await.unwrap();
    assert_eq!(
        owners(&fixture, at(&V1, "a")).await,
        ["one@conv.io/v1 . f:unit", "three@conv.io/v1 f:size"]
    );
}

#[tokio::test]
async fn configurations_are_applied_across_versions() {
    let (fixture, webhook) = converting_fixture().await;
    let apply = |version: &'static str, spec: Value, manager: &'static str, force: bool| {
        let gvr = if version == "v1" { &V1 } else { &V2 };
        let config = gauge(version, "a", spec);
        let fixture = &fixture;
        async move {
            let options = as_manager(manager);
            let registry = &fixture.registry;
            registry
                .apply(&fixture.ctx, at(gvr, "a"), config, force, &options)
                .await
        }
    };
    let spec = json!({"amount": "7", "unit": "k"});
    apply("v2", spec, "one", false).await.unwrap();
    assert_eq!(
        owners(&fixture, at(&V1, "a")).await,
        ["one@conv.io/v2 f:amount f:unit"]
    );
    let conflict = apply("v1", json!({"size": 9}), "two", false).await;
    let conflict = conflict.unwrap_err();
    assert_eq!(conflict.code, 409);
    assert!(conflict.message.contains(".spec.amount"), "{conflict}");
    webhook.fails.store(true, Ordering::Relaxed);
    let failed = apply("v1", json!({"size": 9}), "two", true).await;
    let failed = failed.unwrap_err();
    assert_eq!(
        (failed.code, failed.message.as_str()),
        (
            500,
            "conversion webhook for conv.io/v1, Kind=Gauge failed: connection refused"
        )
    );
    webhook.fails.store(false, Ordering::Relaxed);
    apply("v1", json!({"size": 9}), "two", true).await.unwrap();
    assert_eq!(
        owners(&fixture, at(&V1, "a")).await,
        ["one@conv.io/v2 f:unit", "two@conv.io/v1 f:size"]
    );
    // A field that only the last configuration, of the other version, had is removed; a default follows.
    let spec = json!({"size": 9});
    let applied = apply("v1", spec, "one", false).await.unwrap();
    let applied = applied.object.value().unwrap();
    assert_eq!(applied["spec"], json!({"size": 9, "unit": "m"}));
    assert_eq!(
        owners(&fixture, at(&V2, "a")).await,
        ["one@conv.io/v1 f:size", "two@conv.io/v1 f:size"]
    );
}
