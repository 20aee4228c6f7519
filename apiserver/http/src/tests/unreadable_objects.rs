//! A stored object that cannot be rendered in the requested representation fails the
//! request; it is never left out silently.

use http::Method;
use serde_json::Value;
use storage::{SingleKeyTxn, SingleKeyTxnOp};

use super::{CONFIG_MAPS, TestApiServer, config_map, start_server};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
const SCALERS: &str = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";

impl TestApiServer {
    /// Stores an object with a number that no 64-bit float can hold: its metadata can
    /// be read, the rest cannot.
    async fn store_unreadable(&self, resource: &str, api_version: &str, kind: &str) {
        let value = format!(
            r#"{{"apiVersion":"{api_version}","kind":"{kind}","metadata":{{"name":"bad","namespace":"default","uid":"u"}},"data":{{"n":1e999}}}}"#
        );
        let put = SingleKeyTxn {
            key: format!("/registry/{resource}/default/bad").into(),
            expected: 0,
            op: SingleKeyTxnOp::Put {
                value: value.into(),
                ttl: None,
            },
        };
        self.store.commit(put).await.unwrap();
    }
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().into_iter().flatten();
    items
        .filter_map(|item| item["metadata"]["name"].as_str())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unrenderable_object_fails_the_list() {
    let running = start_server().await;
    let mut admin = running.admin().await;
    assert_eq!(admin.post(CONFIG_MAPS, config_map("good")).await.code, 201);
    running
        .store_unreadable("configmaps", "v1", "ConfigMap")
        .await;
    let (kind, api) = ("HorizontalPodAutoscaler", "autoscaling/v2");
    running
        .store_unreadable("horizontalpodautoscalers", api, kind)
        .await;
    let object_path = format!("{CONFIG_MAPS}/bad");
    let cases = [
        (CONFIG_MAPS, TABLE, r#"configmaps "default/bad""#),
        (&*object_path, TABLE, r#"configmaps "default/bad""#),
        (
            SCALERS,
            "application/json",
            r#"horizontalpodautoscalers.autoscaling "default/bad""#,
        ),
    ];
    for (path, accept, named_object) in cases {
        let reply = admin.get_as(path, accept).await;
        assert_eq!(reply.code, 500, "{path}: {:?}", reply.body);
        let status = reply.json();
        assert_eq!(status["reason"], "InternalError");
        let message = status["message"].as_str().unwrap();
        assert!(message.contains(named_object), "{path}: {message}");
    }
    // Metadata lists need only the metadata, so they include every object.
    for accept in [METADATA, "application/json"] {
        let bytes = admin.get_as(CONFIG_MAPS, accept).await.body;
        let text = String::from_utf8_lossy(&bytes).replace("1e999", "1");
        let list: Value = machinery::json::from_str(&text).unwrap();
        assert_eq!(names(&list), ["bad", "good"], "{list}");
    }

    let first = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=5";
    let path = format!("{CONFIG_MAPS}?{first}&allowWatchBookmarks=true");
    let accept = [("accept", TABLE)];
    let response = admin.call(Method::GET, &path, &accept, "").await;
    let last = response
        .body
        .split(|b| *b == b'\n')
        .rfind(|l| !l.is_empty());
    let event: Value = machinery::json::from_slice(last.unwrap()).unwrap();
    assert_eq!(event["type"], "ERROR", "{event}");
    let message = event["object"]["message"].as_str().unwrap();
    assert!(message.contains(r#"configmaps "default/bad""#), "{message}");
}
