//! Tests of creates: fields that the server sets, and rejected bodies.

use client::event::EVENTS;
use client::{CoreEvent, InvolvedObject};

use super::*;

#[tokio::test]
async fn the_server_sets_the_identity_of_a_new_object() {
    let fixture = fixture().await;
    let mut body = deployment("web");
    body["metadata"]["uid"] = "mine".into();
    body["metadata"]["creationTimestamp"] = "2001-01-01T00:00:00Z".into();
    body["metadata"]["generation"] = 9.into();
    body["metadata"]["managedFields"] = json!([{"manager": "x"}]);
    body["status"] = json!({"replicas": 7});
    let created = fixture.create(&DEPLOYMENTS, body).await.unwrap();
    let meta = &created["metadata"];
    assert_eq!(meta["uid"].as_str().unwrap().len(), 36);
    assert_eq!(meta["creationTimestamp"], "2026-01-02T03:04:05Z");
    assert_eq!(meta["generation"], 1);
    assert!(meta.get("managedFields").is_none());
    assert!(created["status"].get("replicas").is_none());
    let read = fixture
        .get(ResourcePath::object(&DEPLOYMENTS, "default", "web"))
        .await
        .unwrap();
    assert_eq!(read, created);
    assert_ne!(meta["resourceVersion"], Value::Null);
}

#[tokio::test]
async fn invalid_bodies_are_rejected() {
    let fixture = fixture().await;
    fixture
        .create(&CONFIGMAPS, configmap("there"))
        .await
        .unwrap();
    let with = |change: Value| {
        let mut body = configmap("a");
        patch::apply_merge_patch(&mut body, &change);
        body
    };
    let table = [
        (with(json!({})), "ok"),
        (configmap("there"), "409 AlreadyExists"),
        (with(json!({"kind": "Secret"})), "400 BadRequest"),
        (with(json!({"apiVersion": "v2"})), "400 BadRequest"),
        (with(json!({"metadata": {"name": null}})), "422 Invalid"),
        (with(json!({"metadata": {"name": "A_b"}})), "422 Invalid"),
        (with(json!({"metadata": {"name": "a/b"}})), "422 Invalid"),
        (
            with(json!({"metadata": {"labels": {"a b": "c"}}})),
            "422 Invalid",
        ),
        (with(json!({"metadata": {"labels": "x"}})), "400 BadRequest"),
        (with(json!({"metadata": "x"})), "400 BadRequest"),
        (with(json!({"metadata": {"resourceVersion": "1"}})), "500 "),
        (with(json!({"data": {"a": 1}})), "400 BadRequest"),
        (json!([]), "400 BadRequest"),
        (json!("x"), "400 BadRequest"),
    ];
    for (body, expected) in table {
        let path = ResourcePath::collection(&CONFIGMAPS, "default");
        let options = RegistryWriteOptions::default();
        let reply = fixture
            .registry
            .create(&fixture.ctx, path, ObjectBody::from(body.clone()), &options)
            .await;
        assert_eq!(result_code(&reply), expected, "{body}");
    }
    let path = ResourcePath::collection(&CONFIGMAPS, "kube-system");
    let options = RegistryWriteOptions::default();
    let reply = fixture
        .registry
        .create(&fixture.ctx, path, configmap("x").into(), &options)
        .await;
    assert_eq!(result_code(&reply), "400 BadRequest");
    let path = ResourcePath::object(&CONFIGMAPS, "default", "x");
    let reply = fixture
        .registry
        .create(&fixture.ctx, path, configmap("x").into(), &options)
        .await;
    assert_eq!(result_code(&reply), "405 MethodNotAllowed");
    let unknown_resource = Gvr::from_static("", "v1", "nothings");
    assert_eq!(
        result_code(&fixture.create(&unknown_resource, configmap("x")).await),
        "404 NotFound"
    );
}

#[tokio::test]
async fn names_are_generated() {
    let fixture = fixture().await;
    let body = json!({"metadata": {"generateName": "web-", "namespace": "default"}});
    let first = fixture.create(&CONFIGMAPS, body.clone()).await.unwrap();
    let second = fixture.create(&CONFIGMAPS, body).await.unwrap();
    let name = first["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("web-") && name.len() == 9);
    assert_ne!(first["metadata"]["name"], second["metadata"]["name"]);
    assert_eq!(first["metadata"]["generateName"], "web-");
}

#[tokio::test]
async fn namespaces_must_exist_and_not_be_terminating() {
    let fixture = fixture().await;
    let mut body = configmap("a");
    body["metadata"]["namespace"] = "gone".into();
    let missing = fixture.create(&CONFIGMAPS, body.clone()).await.unwrap_err();
    assert_eq!(
        (missing.code, missing.message.as_str()),
        (404, "namespaces \"gone\" not found")
    );
    let namespace = json!({"metadata": {"name": "gone"}});
    fixture.create(&NAMESPACES, namespace).await.unwrap();
    fixture.create(&CONFIGMAPS, body.clone()).await.unwrap();
    fixture
        .delete(ResourcePath::object(&NAMESPACES, "", "gone"))
        .await
        .unwrap();
    body["metadata"]["name"] = "b".into();
    // The cache may be behind the deletion; a consistent read waits for it.
    fixture
        .get(ResourcePath::object(&NAMESPACES, "", "gone"))
        .await
        .unwrap();
    let rejected = fixture.create(&CONFIGMAPS, body).await.unwrap_err();
    assert_eq!(rejected.code, 403);
    assert!(rejected.has_cause("NamespaceTerminating"));
}

#[tokio::test]
async fn unknown_and_duplicate_fields_follow_field_validation() {
    let fixture = fixture().await;
    let mut body = deployment("web");
    body["spec"]["replicsa"] = 3.into();
    let rejected = fixture
        .create_with(&DEPLOYMENTS, body.clone(), &strict())
        .await
        .unwrap_err();
    assert_eq!(rejected.code, 400);
    assert!(
        rejected
            .message
            .contains("strict decoding error: unknown field \"spec.replicsa\"")
    );
    let warned = fixture
        .create_with(&DEPLOYMENTS, body, &RegistryWriteOptions::default())
        .await
        .unwrap();
    assert_eq!(warned.warnings, ["unknown field \"spec.replicsa\""]);
    assert!(
        warned.object.value().unwrap()["spec"]
            .get("replicsa")
            .is_none()
    );
    let duplicate = ObjectBody {
        value: configmap("a"),
        duplicate_fields: vec!["data.a".into()],
        ..ObjectBody::default()
    };
    let path = ResourcePath::collection(&CONFIGMAPS, "default");
    let rejected = fixture
        .registry
        .create(&fixture.ctx, path, duplicate, &strict())
        .await
        .unwrap_err();
    assert!(rejected.message.contains("duplicate field \"data.a\""));
}

#[tokio::test]
async fn a_dry_run_stores_nothing() {
    let fixture = fixture().await;
    let before = fixture.revision().await;
    let created = fixture
        .create_with(&CONFIGMAPS, configmap("a"), &dry_run())
        .await
        .unwrap();
    let value = created.object.value().unwrap();
    assert!(value["metadata"]["uid"].is_string());
    assert!(value["metadata"].get("resourceVersion").is_none());
    assert_eq!(fixture.revision().await, before);
    fixture.create(&CONFIGMAPS, configmap("a")).await.unwrap();
    let second_create = fixture
        .create_with(&CONFIGMAPS, configmap("a"), &dry_run())
        .await;
    assert_eq!(result_code(&second_create), "409 AlreadyExists");
}

#[tokio::test]
async fn bootstrap_is_idempotent() {
    let fixture = fixture().await;
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        let namespace = ResourcePath::object(&NAMESPACES, "", name);
        fixture.get(namespace).await.unwrap();
    }
    let before = fixture.revision().await;
    fixture.registry.bootstrap().await.unwrap();
    assert_eq!(fixture.revision().await, before);
}

#[tokio::test]
async fn recorded_events_are_stored_as_if_posted() {
    let fixture = fixture().await;
    let about = InvolvedObject {
        api_version: "apps/v1".into(),
        kind: "Deployment".into(),
        namespace: "default".into(),
        name: "web".into(),
        uid: "u".into(),
        resource_version: "7".into(),
    };
    let event = |name: &str, about: &InvolvedObject| {
        let time = "2026-01-02T03:04:05Z";
        let mut event = CoreEvent::new(&"me".into(), about.clone(), true, time);
        event.metadata.name = name.to_owned();
        (event.count, event.reason, event.message) = (3, "R".into(), "\"m\" \n".into());
        event
    };
    let in_missing_namespace = InvolvedObject {
        namespace: "gone".into(),
        ..about.clone()
    };
    let events = vec![
        event("web.1", &about),
        event("web.1", &about),
        event("Odd:2", &about),
        event("web.3", &in_missing_namespace),
    ];
    let outcomes = fixture.registry.create_events(&fixture.ctx, events).await;
    let codes: Vec<_> = outcomes
        .iter()
        .map(|o| o.as_ref().map_or_else(|status| status.code, |()| 0))
        .collect();
    assert_eq!(codes[0..2], [0, 409]);
    assert_eq!(codes[3], 404);

    let mut posted = serde_json::to_value(event("web.4", &about)).unwrap();
    posted["eventTime"] = json!(null);
    let events_path = ResourcePath::collection(&EVENTS, "default");
    let options = RegistryWriteOptions {
        creates_without_managers: true,
        ..RegistryWriteOptions::default()
    };
    let created = fixture
        .registry
        .create(&fixture.ctx, events_path, posted.into(), &options);
    created.await.unwrap();
    let bytes = |name: &'static str| {
        let registry = &fixture.registry;
        async move {
            let resource = registry.resource_info(&EVENTS).unwrap();
            let key = registry.storage_key(&resource, "default", name);
            let stored = registry.store.get(&key).await.unwrap().unwrap();
            let value: Value = machinery::json::from_slice(&stored.value).unwrap();
            let uid = value["metadata"]["uid"].as_str().unwrap();
            let text = String::from_utf8(stored.value.to_vec()).unwrap();
            text.replace(uid, "UID").replace(name, "NAME")
        }
    };
    assert_eq!(bytes("web.1").await, bytes("web.4").await);
    let path = ResourcePath::object(&EVENTS, "default", "Odd:2");
    let result = fixture
        .registry
        .get(&fixture.ctx, path, &GetOptions::default())
        .await;
    assert_eq!(result.is_ok(), codes[2] == 0, "as any other create");
}

#[tokio::test]
async fn recorded_events_count_as_calls_to_the_store() {
    let fixture = fixture().await;
    let about = InvolvedObject {
        namespace: "default".into(),
        ..Default::default()
    };
    let mut event = CoreEvent::new(&"test".into(), about, false, "2026-01-02T03:04:05Z");
    event.metadata.name = "e.1".into();
    let outcomes = fixture
        .registry
        .create_events(&fixture.ctx, vec![event])
        .await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    let text = flotilla_metrics::encode_text(&[&fixture.registry.options.metrics]);
    let text = String::from_utf8(text).unwrap();
    let line = "etcd_requests_total{group=\"\",operation=\"create\",resource=\"events\"} 1";
    assert!(text.lines().any(|l| l == line), "{text}");
}

#[tokio::test]
async fn nobody_owns_the_structs_that_every_object_of_a_go_type_has() {
    let fixture = fixture().await;
    let labels = json!({"app": "web"});
    let deployment = json!({
        "metadata": {"name": "web", "namespace": "default", "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [
                    {"name": "c", "image": "i", "resources": {"limits": {"cpu": " 1 "}}}]},
            },
        },
    });
    let options = RegistryWriteOptions {
        field_manager: "m".into(),
        ..RegistryWriteOptions::default()
    };
    let written = fixture
        .create_with(&DEPLOYMENTS, deployment, &options)
        .await;
    let object = written.unwrap().object;
    let managers: Value = machinery::json::from_str(object.managed_fields_json().unwrap()).unwrap();
    assert_eq!(
        managers[0]["fieldsV1"],
        json!({
            "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
            "f:spec": {
                "f:progressDeadlineSeconds": {},
                "f:replicas": {},
                "f:revisionHistoryLimit": {},
                "f:selector": {},
                "f:strategy": {
                    "f:rollingUpdate": {".": {}, "f:maxSurge": {}, "f:maxUnavailable": {}},
                    "f:type": {},
                },
                "f:template": {
                    "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
                    "f:spec": {
                        "f:containers": {"k:{\"name\":\"c\"}": {
                            ".": {},
                            "f:image": {},
                            "f:imagePullPolicy": {},
                            "f:name": {},
                            "f:resources": {".": {}, "f:limits": {".": {}, "f:cpu": {}}},
                            "f:terminationMessagePath": {},
                            "f:terminationMessagePolicy": {},
                        }},
                        "f:dnsPolicy": {},
                        "f:restartPolicy": {},
                        "f:schedulerName": {},
                        "f:securityContext": {},
                        "f:terminationGracePeriodSeconds": {},
                    },
                },
            },
        })
    );
}
