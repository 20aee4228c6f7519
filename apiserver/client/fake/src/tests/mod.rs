//! Tests of the fake API server.

mod group_split;
mod informer;

use futures_util::StreamExt;
use machinery::{Gvr, Status};
use serde_json::{Value, json};

use super::*;
use client::{
    Api, DeleteOptions, ListOptions, Patch, ResourcePath, WatchEvent, WatchOptions, WriteOptions,
};

static WORKS: Gvr = Gvr::from_static("work.karmada.io", "v1alpha1", "works");

fn work(name: &str) -> Value {
    json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
           "metadata": {"name": name, "namespace": "ns", "labels": {"a": "b"}}, "spec": {"x": 1}})
}

fn at(name: &str) -> ResourcePath<'_> {
    ResourcePath::object(&WORKS, "ns", name)
}

#[tokio::test]
async fn writes_follow_the_rules_of_the_server() {
    let api = FakeApi::new();
    let options = WriteOptions::default();
    let mut body = work("w");
    body["status"] = json!({"y": 1});
    let initial = api
        .create(
            ResourcePath::collection(&WORKS, "ns"),
            body.into(),
            &options,
        )
        .await
        .unwrap();
    let mut value = initial.value().unwrap();
    assert!(value.get("status").is_none());
    assert_eq!(value["metadata"]["generation"], 1);
    let again = api
        .create(
            ResourcePath::collection(&WORKS, "ns"),
            work("w").into(),
            &options,
        )
        .await;
    assert!(again.unwrap_err().is_already_exists());

    value["status"] = json!({"y": 2});
    value["spec"]["x"] = json!(7);
    let created = api
        .update(
            at("w").subresource("status"),
            value.clone().into(),
            &options,
        )
        .await
        .unwrap();
    assert_eq!(created.value().unwrap()["spec"]["x"], 1);
    assert_eq!(created.meta().generation, 1);
    assert!(
        api.update(at("w"), value.into(), &options)
            .await
            .unwrap_err()
            .is_conflict()
    );

    let same = api
        .update(at("w"), created.value().unwrap().into(), &options)
        .await
        .unwrap();
    assert_eq!(same.revision(), created.revision());
    let patch = Patch::Merge(json!({"spec": {"x": 3}, "status": null}));
    let patched = api
        .patch(at("w"), patch, &options)
        .await
        .unwrap()
        .value()
        .unwrap();
    assert_eq!(
        (&patched["metadata"]["generation"], &patched["status"]),
        (&json!(2), &json!({"y": 2}))
    );
    let verbs: Vec<_> = api.writes().iter().map(|w| w.verb).collect();
    assert_eq!(
        verbs,
        ["create", "create", "update", "update", "update", "patch"]
    );
}

#[tokio::test]
async fn finalizers_delay_the_deletion() {
    let api = FakeApi::new();
    let options = WriteOptions::default();
    let mut body = work("w");
    body["metadata"]["finalizers"] = json!(["f"]);
    api.seed(&WORKS, body);
    let left = api
        .delete(at("w"), &DeleteOptions::default())
        .await
        .unwrap();
    assert!(left.unwrap().meta().deleting);
    let patch = Patch::Json(json!([{"op": "remove", "path": "/metadata/finalizers/0"}]));
    api.patch(at("w"), patch, &options).await.unwrap();
    assert!(api.get(at("w")).await.unwrap_err().is_not_found());
    let gone = api.delete(at("w"), &DeleteOptions::default()).await;
    assert!(gone.unwrap_err().is_not_found());
}

#[tokio::test]
async fn a_watch_resumes_after_a_list_and_selects() {
    let api = FakeApi::new();
    api.seed(&WORKS, work("a"));
    let listed = api
        .list(
            ResourcePath::collection(&WORKS, ""),
            &ListOptions::default(),
        )
        .await
        .unwrap();
    let from = WatchOptions {
        label_selector: "a=b".into(),
        resource_version: listed.revision.to_string(),
        bookmarks: true,
        ..WatchOptions::default()
    };
    api.seed(&WORKS, work("b"));
    let mut stream = api
        .watch(ResourcePath::collection(&WORKS, ""), &from)
        .await
        .unwrap();
    let mut unlabelled = work("a");
    unlabelled["metadata"]["labels"] = json!({});
    api.seed(&WORKS, unlabelled);
    api.remove(&WORKS, "ns", "b");
    api.send_bookmark();
    let mut events = Vec::new();
    for _ in 0..4 {
        events.push(match stream.next().await.unwrap().unwrap() {
            WatchEvent::Added(o) => format!("+{}@{}", o.name(), o.revision()),
            WatchEvent::Modified(o) => format!("~{}@{}", o.name(), o.revision()),
            WatchEvent::Deleted(o) => format!("-{}@{}", o.name(), o.revision()),
            WatchEvent::Bookmark { revision, .. } => format!("={revision}"),
        });
    }
    assert_eq!(events, ["+b@3", "-a@4", "-b@5", "=5"]);
    api.end_watches();
    assert!(stream.next().await.is_none());
    api.compact();
    assert!(
        api.watch(ResourcePath::collection(&WORKS, ""), &from)
            .await
            .err()
            .unwrap()
            .is_expired()
    );
}

#[tokio::test]
async fn pages_and_injected_errors() {
    let api = FakeApi::new();
    for name in ["a", "b", "c"] {
        api.seed(&WORKS, work(name));
    }
    let mut options = ListOptions {
        limit: 2,
        ..ListOptions::default()
    };
    let first = api
        .list(ResourcePath::collection(&WORKS, "ns"), &options)
        .await
        .unwrap();
    options.continue_token = first.continue_token.clone();
    let second = api
        .list(ResourcePath::collection(&WORKS, "ns"), &options)
        .await
        .unwrap();
    assert_eq!(
        (
            first.items.len(),
            second.items.len(),
            second.continue_token.as_str()
        ),
        (2, 1, "")
    );
    options.field_selector = "spec.x=1,metadata.name!=c".into();
    options.continue_token.clear();
    assert_eq!(
        api.list(ResourcePath::collection(&WORKS, "ns"), &options)
            .await
            .unwrap()
            .items
            .len(),
        2
    );

    api.on_call(|call| (call.verb == "delete").then(|| Status::unavailable("no").into()));
    assert!(
        api.delete(at("a"), &DeleteOptions::default())
            .await
            .is_err()
    );
    assert!(api.writes().is_empty());
}
