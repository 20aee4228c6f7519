//! Tests of deletes: at once, with finalizers, with preconditions, and of collections.

use client::DeletionPropagation;

use super::*;

#[tokio::test]
async fn objects_without_finalizers_are_removed_at_once() {
    let fixture = fixture().await;
    let created = fixture.create(&CONFIGMAPS, configmap("a")).await.unwrap();
    let path = ResourcePath::object(&CONFIGMAPS, "default", "a");
    let DeleteResponse::Status(status) = fixture.delete(path).await.unwrap().response else {
        panic!("the object still exists");
    };
    let details = status.details.unwrap();
    assert_eq!(
        (status.status.as_str(), details.kind.as_str()),
        ("Success", "configmaps")
    );
    assert_eq!(created["metadata"]["uid"], details.uid);
    assert_eq!(result_code(&fixture.get(path).await), "404 NotFound");
    assert_eq!(result_code(&fixture.delete(path).await), "404 NotFound");
}

#[tokio::test]
async fn finalizers_delay_the_removal() {
    let fixture = fixture().await;
    let mut body = deployment("web");
    body["metadata"]["finalizers"] = json!(["example.com/hold"]);
    fixture.create(&DEPLOYMENTS, body).await.unwrap();
    let path = ResourcePath::object(&DEPLOYMENTS, "default", "web");
    let marked = deleted_object(fixture.delete(path).await.unwrap())
        .value()
        .unwrap();
    assert_eq!(
        marked["metadata"]["deletionTimestamp"],
        "2026-01-02T03:04:05Z"
    );
    assert_eq!(
        (
            &marked["metadata"]["generation"],
            &marked["metadata"]["deletionGracePeriodSeconds"]
        ),
        (&json!(2), &json!(0))
    );
    let second_delete = deleted_object(fixture.delete(path).await.unwrap());
    assert_eq!(
        second_delete.revision().to_string(),
        marked["metadata"]["resourceVersion"]
    );
    let exists = fixture
        .create(&DEPLOYMENTS, deployment("web"))
        .await
        .unwrap_err();
    assert!(
        exists.reason == "AlreadyExists" && exists.message.starts_with("object is being deleted:")
    );
    let added_finalizer =
        json!({"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}});
    assert_eq!(
        result_code(&fixture.merge(path, added_finalizer).await),
        "422 Invalid"
    );
    let last = fixture
        .merge(path, json!({"metadata": {"finalizers": null}}))
        .await
        .unwrap();
    assert_eq!(last["metadata"]["name"], "web");
    assert_eq!(result_code(&fixture.get(path).await), "404 NotFound");
}

#[tokio::test]
async fn preconditions_are_checked() {
    let fixture = fixture().await;
    let created = fixture.create(&CONFIGMAPS, configmap("a")).await.unwrap();
    let path = ResourcePath::object(&CONFIGMAPS, "default", "a");
    let uid = created["metadata"]["uid"].as_str().map(str::to_owned);
    let revision = created["metadata"]["resourceVersion"]
        .as_str()
        .map(str::to_owned);
    let table = [
        (Some("other".to_owned()), None, "409 Conflict"),
        (None, Some("1".to_owned()), "409 Conflict"),
        (uid, revision, "ok"),
    ];
    for (uid, resource_version, expected) in table {
        let options = DeleteOptions {
            uid,
            resource_version,
            ..DeleteOptions::default()
        };
        let reply = fixture.registry.delete(&fixture.ctx, path, &options).await;
        assert_eq!(result_code(&reply), expected, "{options:?}");
    }
}

#[tokio::test]
async fn propagation_policies_add_their_finalizer() {
    let fixture = fixture().await;
    let table = [
        (
            Some(DeletionPropagation::Foreground),
            Some("foregroundDeletion"),
        ),
        (Some(DeletionPropagation::Orphan), Some("orphan")),
        (Some(DeletionPropagation::Background), None),
        (None, None),
    ];
    for (propagation, expected) in table {
        fixture.create(&CONFIGMAPS, configmap("a")).await.unwrap();
        let path = ResourcePath::object(&CONFIGMAPS, "default", "a");
        let options = DeleteOptions {
            propagation,
            ..DeleteOptions::default()
        };
        let reply = fixture
            .registry
            .delete(&fixture.ctx, path, &options)
            .await
            .unwrap();
        let actual = match reply.response {
            DeleteResponse::Object { object, .. } => {
                Some(object.value().unwrap()["metadata"]["finalizers"][0].clone())
            }
            DeleteResponse::Status(_) => None,
        };
        assert_eq!(actual, expected.map(Value::from), "{propagation:?}");
        if expected.is_some() {
            fixture
                .merge(path, json!({"metadata": {"finalizers": []}}))
                .await
                .unwrap();
        }
    }
}

#[tokio::test]
async fn a_dry_run_deletes_nothing() {
    let fixture = fixture().await;
    fixture.create(&CONFIGMAPS, configmap("a")).await.unwrap();
    let path = ResourcePath::object(&CONFIGMAPS, "default", "a");
    let options = DeleteOptions {
        dry_run: true,
        ..DeleteOptions::default()
    };
    fixture
        .registry
        .delete(&fixture.ctx, path, &options)
        .await
        .unwrap();
    fixture.get(path).await.unwrap();
}

#[tokio::test]
async fn collections_are_deleted_by_selector() {
    let fixture = fixture().await;
    for (name, tier) in [("a", "x"), ("b", "y"), ("c", "x")] {
        let mut body = configmap(name);
        body["metadata"]["labels"] = json!({"tier": tier});
        fixture.create(&CONFIGMAPS, body).await.unwrap();
    }
    let path = ResourcePath::collection(&CONFIGMAPS, "default");
    let select = ListOptions {
        label_selector: "tier=x".into(),
        ..ListOptions::default()
    };
    let options = DeleteOptions::default();
    let (deleted, _) = fixture
        .registry
        .delete_collection(&fixture.ctx, path, &options, &select)
        .await
        .unwrap();
    assert_eq!(names(&deleted), ["a", "c"]);
    assert_eq!(
        names(&fixture.list(path, &ListOptions::default()).await.unwrap()),
        ["b"]
    );
}

#[tokio::test]
async fn namespaces_are_deleted_in_two_steps() {
    let fixture = fixture().await;
    for name in ["default", "kube-system", "kube-public"] {
        let reply = fixture
            .delete(ResourcePath::object(&NAMESPACES, "", name))
            .await;
        assert_eq!(result_code(&reply), "403 Forbidden", "{name}");
    }
    let created = fixture
        .create(&NAMESPACES, json!({"metadata": {"name": "n"}}))
        .await
        .unwrap();
    assert_eq!(created["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(created["status"]["phase"], "Active");
    assert_eq!(
        created["metadata"]["labels"]["kubernetes.io/metadata.name"],
        "n"
    );
    let path = ResourcePath::object(&NAMESPACES, "", "n");
    let cleared = fixture
        .merge(path, json!({"spec": {"finalizers": []}}))
        .await
        .unwrap();
    assert_eq!(cleared["spec"]["finalizers"], json!(["kubernetes"]));
    let dying = deleted_object(fixture.delete(path).await.unwrap())
        .value()
        .unwrap();
    assert_eq!(dying["status"]["phase"], "Terminating");
    let mut last = dying;
    last["spec"]["finalizers"] = json!([]);
    fixture
        .update(path.subresource("finalize"), last)
        .await
        .unwrap();
    assert_eq!(result_code(&fixture.get(path).await), "404 NotFound");
}
