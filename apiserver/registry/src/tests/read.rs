//! Tests of gets, lists, selectors, pages and watches, and of the loopback API.

use std::time::Duration;

use client::{Api, WatchEvent};
use futures_util::StreamExt;
use machinery::UserInfo;

use super::*;
use crate::{LoopbackApi, RegistryWatchItem, RegistryWatchOptions};

async fn pods(fixture: &RegistryFixture) {
    for (name, node, app) in [("a", "n1", "x"), ("b", "n2", "x"), ("c", "n1", "y")] {
        let body = json!({"metadata": {"name": name, "namespace": "default", "labels": {"app": app}},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}});
        fixture.create(&PODS, body).await.unwrap();
    }
}

#[tokio::test]
async fn selectors_filter_lists() {
    let fixture = fixture().await;
    pods(&fixture).await;
    let table = [
        ("", "", "a b c"),
        ("app=x", "", "a b"),
        ("app!=x", "", "c"),
        ("app in (x,y),other", "", ""),
        ("", "spec.nodeName=n1", "a c"),
        ("app=x", "spec.nodeName=n1", "a"),
        ("", "metadata.name=b", "b"),
        ("", "metadata.name!=b,status.phase=Pending", "a c"),
        ("", "metadata.namespace=other", ""),
        ("", "spec.image=x", "400 BadRequest"),
        ("a=b=c", "", "400 BadRequest"),
        ("", "spec.nodeName", "400 BadRequest"),
    ];
    for (labels, fields, expected) in table {
        let options = ListOptions {
            label_selector: labels.into(),
            field_selector: fields.into(),
            ..ListOptions::default()
        };
        let reply = fixture
            .list(ResourcePath::collection(&PODS, "default"), &options)
            .await;
        let actual = reply
            .as_ref()
            .map_or_else(|_| result_code(&reply), |r| names(r).join(" "));
        assert_eq!(actual, expected, "{labels} {fields}");
    }
}

#[tokio::test]
async fn all_pages_have_one_revision() {
    let fixture = fixture().await;
    pods(&fixture).await;
    let mut options = ListOptions {
        limit: 2,
        ..ListOptions::default()
    };
    let first = fixture
        .list(ResourcePath::collection(&PODS, ""), &options)
        .await
        .unwrap();
    assert_eq!(
        (names(&first).join(" ").as_str(), first.remaining_item_count),
        ("a b", Some(1))
    );
    fixture
        .delete(ResourcePath::object(&PODS, "default", "c"))
        .await
        .unwrap();
    options.continue_token = first.continue_token.unwrap();
    let second = fixture
        .list(ResourcePath::collection(&PODS, ""), &options)
        .await
        .unwrap();
    assert_eq!(
        (names(&second).join(" ").as_str(), second.continue_token),
        ("c", None)
    );
    assert_eq!(second.revision, first.revision);
}

#[tokio::test]
async fn a_watch_resumes_after_a_list() {
    let fixture = fixture().await;
    let list = fixture
        .list(
            ResourcePath::collection(&CONFIGMAPS, ""),
            &ListOptions::default(),
        )
        .await
        .unwrap();
    let options = RegistryWatchOptions {
        resource_version: list.revision.unwrap().to_string(),
        timeout: Some(Duration::from_secs(30)),
        ..RegistryWatchOptions::default()
    };
    let mut watch = fixture
        .registry
        .watch(
            &fixture.ctx,
            ResourcePath::collection(&CONFIGMAPS, ""),
            &options,
        )
        .await
        .unwrap();
    fixture.create(&CONFIGMAPS, configmap("a")).await.unwrap();
    fixture
        .merge(
            ResourcePath::object(&CONFIGMAPS, "default", "a"),
            json!({"data": {"a": "2"}}),
        )
        .await
        .unwrap();
    fixture
        .delete(ResourcePath::object(&CONFIGMAPS, "default", "a"))
        .await
        .unwrap();
    let mut types = Vec::new();
    while types.len() < 3 {
        match watch.next().await.unwrap().unwrap() {
            RegistryWatchItem::Event(event) => {
                let line: Value = machinery::json::from_slice(&event.frame()).unwrap();
                assert_eq!(line["object"]["kind"], "ConfigMap");
                types.push(line["type"].as_str().unwrap().to_owned());
            }
            RegistryWatchItem::Bookmark { .. } => {}
        }
    }
    assert_eq!(types, ["ADDED", "MODIFIED", "DELETED"]);
}

#[tokio::test]
async fn loopback_is_the_same_api() {
    let fixture = fixture().await;
    let api = LoopbackApi::new(fixture.registry.clone(), UserInfo::internal());
    let options = client::WatchOptions {
        resource_version: String::new(),
        ..client::WatchOptions::default()
    };
    let mut stream = api
        .watch(ResourcePath::collection(&CONFIGMAPS, ""), &options)
        .await
        .unwrap();
    let path = ResourcePath::collection(&CONFIGMAPS, "default");
    let created = api
        .create(
            path,
            configmap("a").into(),
            &client::WriteOptions::default(),
        )
        .await
        .unwrap();
    match stream.next().await.unwrap().unwrap() {
        WatchEvent::Added(object) => assert_eq!(object.revision(), created.revision()),
        other => panic!("{other:?}"),
    }
    let path = ResourcePath::object(&CONFIGMAPS, "default", "a");
    assert_eq!(api.get(path).await.unwrap().bytes(), created.bytes());
    assert!(
        api.delete(path, &DeleteOptions::default())
            .await
            .unwrap()
            .is_none()
    );
    assert!(api.get(path).await.unwrap_err().is_not_found());
    assert!(api.get_raw("/nothing").await.is_err());
    let resources = api.discover().await.unwrap().resources;
    let namespaces = resources.iter().find(|r| r.resource == NAMESPACES).unwrap();
    assert!(!namespaces.namespaced && !namespaces.allows("deletecollection"));
    assert_eq!(namespaces.subresources, ["finalize", "status"]);
}

#[tokio::test]
async fn discovery_has_kubernetes_order_of_groups_and_newest_versions_first() {
    let fixture = fixture().await;
    let table = fixture.registry.table();
    // The core group is served below /api, so /apis begins with the group of the aggregator.
    let first: Vec<&str> = table.groups()[..3].iter().map(|g| &*g.name).collect();
    assert_eq!(first, ["apiregistration.k8s.io", "", "apps"]);
    let autoscaling = table
        .groups()
        .iter()
        .find(|g| g.name == "autoscaling")
        .unwrap();
    let versions: Vec<&str> = autoscaling
        .versions
        .iter()
        .map(|v| v.version.as_str())
        .collect();
    assert_eq!(versions, ["v2", "v1"]);
    let clusters = table
        .find_by_name("cluster.karmada.io", "v1alpha1", "clusters")
        .unwrap();
    assert!(clusters.subresource("proxy").is_some() && clusters.subresource("status").is_some());
    assert_eq!(clusters.patch_types().len(), 3);
}
