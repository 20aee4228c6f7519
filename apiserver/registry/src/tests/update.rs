//! Tests of updates and patches: preconditions, no-ops, generation, subresources.

use std::time::Duration;

use admission::AdmissionChainOptions;
use async_trait::async_trait;
use storage::{
    EmbeddedStoreOptions, KeyValue, RangeRequest, RangeResponse, SingleKeyTxn, StoreResult,
    StoreWatch, TxnResponse, WatchResponse,
};

use super::*;

fn path(name: &str) -> ResourcePath<'_> {
    ResourcePath::object(&CONFIGMAPS, "default", name)
}

#[tokio::test]
async fn an_equal_update_is_not_written() {
    let fixture = fixture().await;
    let created = fixture.create(&CONFIGMAPS, configmap("a")).await.unwrap();
    let before = fixture.revision().await;
    assert_eq!(
        fixture.update(path("a"), created.clone()).await.unwrap(),
        created
    );
    assert_eq!(
        fixture.update(path("a"), configmap("a")).await.unwrap(),
        created
    );
    assert_eq!(
        fixture
            .merge(path("a"), json!({"data": {"a": "1"}}))
            .await
            .unwrap(),
        created
    );
    assert_eq!(fixture.revision().await, before);
}

#[tokio::test]
async fn revisions_and_uids_are_preconditions() {
    let fixture = fixture().await;
    let created = fixture.create(&CONFIGMAPS, configmap("a")).await.unwrap();
    let mut newer = created.clone();
    newer["data"]["a"] = "2".into();
    let newer = fixture.update(path("a"), newer).await.unwrap();
    assert_ne!(
        newer["metadata"]["resourceVersion"],
        created["metadata"]["resourceVersion"]
    );
    let stale = fixture
        .update(path("a"), created.clone())
        .await
        .unwrap_err();
    assert_eq!((stale.code, stale.reason.as_str()), (409, "Conflict"));
    assert!(
        stale
            .message
            .starts_with("Operation cannot be fulfilled on configmaps \"a\"")
    );
    let revision = &created["metadata"]["resourceVersion"];
    let table = [
        (json!({"data": {"b": "3"}}), "ok"),
        (
            json!({"metadata": {"resourceVersion": revision}}),
            "409 Conflict",
        ),
        (json!({"metadata": {"uid": "other"}}), "422 Invalid"),
        (json!({"metadata": {"name": "b"}}), "400 BadRequest"),
        (
            json!({"metadata": {"namespace": "other"}}),
            "400 BadRequest",
        ),
        (json!({"kind": "Secret"}), "422 Invalid"),
        (json!({"data": {"b": 3}}), "422 Invalid"),
        (json!([1]), "400 BadRequest"),
    ];
    for (patch, code) in table {
        assert_eq!(
            result_code(&fixture.merge(path("a"), patch.clone()).await),
            code,
            "{patch}"
        );
    }
    let space = fixture
        .get(ResourcePath::object(&NAMESPACES, "", "default"))
        .await
        .unwrap();
    for (path, key, uid) in [
        (path("a"), "/registry/configmaps/default/a", &created),
        (
            ResourcePath::object(&NAMESPACES, "", "default"),
            "/registry/namespaces/default",
            &space,
        ),
    ] {
        let uid = uid["metadata"]["uid"].as_str().unwrap();
        let other = json!({"metadata": {"name": path.name, "uid": "other"}});
        let text = fixture.update(path, other).await.unwrap_err().message;
        let expected = format!(
            "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: other, UID in object meta: {uid}"
        );
        assert!(text.ends_with(&expected), "{text}");
    }
    assert_eq!(
        result_code(&fixture.merge(path("none"), json!({})).await),
        "404 NotFound"
    );
    assert_eq!(
        result_code(&fixture.update(path("none"), configmap("none")).await),
        "404 NotFound"
    );
    assert_eq!(
        result_code(&fixture.update(path("a"), configmap("b")).await),
        "400 BadRequest"
    );
}

#[tokio::test]
async fn kinds_differ_in_the_requirements_of_an_update() {
    let fixture = fixture().await;
    let lease =
        json!({"metadata": {"name": "l", "namespace": "default"}, "spec": {"holderIdentity": "a"}});
    let path = ResourcePath::object(&LEASES, "default", "l");
    // Created by PUT; afterwards a resourceVersion is required.
    fixture.update(path, lease.clone()).await.unwrap();
    let rejected = fixture.update(path, lease).await.unwrap_err();
    assert_eq!(rejected.code, 422);
    assert!(
        rejected.message.contains(
            "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
        )
    );
}

/// A registry with one Deployment, and its path.
async fn fixture_with_deployment() -> (RegistryFixture, ResourcePath<'static>) {
    let fixture = fixture().await;
    fixture
        .create(&DEPLOYMENTS, deployment("web"))
        .await
        .unwrap();
    let path = ResourcePath::object(&DEPLOYMENTS, "default", "web");
    (fixture, path)
}

#[tokio::test]
async fn the_three_patch_types_apply() {
    let (fixture, path) = fixture_with_deployment().await;
    let json_patch = Patch::Json(json!([{"op": "replace", "path": "/spec/replicas", "value": 5}]));
    assert_eq!(
        fixture.patch(path, json_patch).await.unwrap()["spec"]["replicas"],
        5
    );
    let strategic =
        json!({"spec": {"template": {"spec": {"containers": [{"name": "d", "image": "y"}]}}}});
    let patched = fixture
        .patch(path, Patch::Strategic(strategic.clone()))
        .await
        .unwrap();
    let containers = patched["spec"]["template"]["spec"]["containers"]
        .as_array()
        .unwrap()
        .len();
    assert_eq!(containers, 2);
    let merged = fixture.merge(path, strategic).await.unwrap();
    assert_eq!(
        merged["spec"]["template"]["spec"]["containers"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let failing = Patch::Json(json!([{"op": "test", "path": "/spec/replicas", "value": 1}]));
    let status = fixture.patch(path, failing).await.unwrap_err();
    let text = "the server rejected our request due to an error in our request";
    assert_eq!(
        (status.code, &*status.reason, &*status.message),
        (422, "Invalid", text)
    );
    let mistyped = Patch::Merge(json!({"spec": {"replicas": "x"}}));
    let status = fixture.patch(path, mistyped).await.unwrap_err();
    let text = "of type int32";
    assert!(
        status
            .message
            .starts_with(" \"\" is invalid: patch: Invalid value: ")
    );
    assert!(status.message.ends_with(text), "{}", status.message);
}

#[tokio::test]
async fn generation_counts_changes_of_the_spec_only() {
    let (fixture, path) = fixture_with_deployment().await;
    let table = [
        (path, json!({"metadata": {"labels": {"x": "y"}}}), 1),
        (path, json!({"spec": {"replicas": 3}}), 2),
        (path, json!({"metadata": {"annotations": {"x": "y"}}}), 3),
        (
            path.subresource("status"),
            json!({"status": {"replicas": 3}}),
            3,
        ),
        (path, json!({"metadata": {"generation": 77}}), 3),
    ];
    for (path, patch, expected) in table {
        let actual = fixture.merge(path, patch.clone()).await.unwrap();
        assert_eq!(actual["metadata"]["generation"], expected, "{patch}");
    }
}

#[tokio::test]
async fn status_and_spec_are_written_separately() {
    let (fixture, path) = fixture_with_deployment().await;
    let patch = json!({"metadata": {"labels": {"x": "y"}}, "spec": {"replicas": 9}, "status": {"replicas": 4}});
    let stored = fixture
        .merge(path.subresource("status"), patch.clone())
        .await
        .unwrap();
    assert_eq!(
        (&stored["spec"]["replicas"], &stored["status"]["replicas"]),
        (&json!(2), &json!(4))
    );
    assert!(stored["metadata"].get("labels").is_none());
    let patch = json!({"spec": {"replicas": 9}, "status": {"replicas": 5}});
    let stored = fixture.merge(path, patch).await.unwrap();
    assert_eq!(
        (&stored["spec"]["replicas"], &stored["status"]["replicas"]),
        (&json!(9), &json!(4))
    );
}

#[tokio::test]
async fn scale_reads_and_sets_replicas() {
    let fixture = fixture().await;
    let created = fixture
        .create(&DEPLOYMENTS, deployment("web"))
        .await
        .unwrap();
    let path = ResourcePath::object(&DEPLOYMENTS, "default", "web").subresource("scale");
    let mut scale = fixture.get(path).await.unwrap();
    assert_eq!(scale["kind"], "Scale");
    assert_eq!(scale["status"]["selector"], "app=web");
    assert_eq!(scale["metadata"]["uid"], created["metadata"]["uid"]);
    scale["spec"]["replicas"] = 6.into();
    let scaled = fixture.update(path, scale.clone()).await.unwrap();
    assert_eq!(scaled["spec"]["replicas"], 6);
    assert_eq!(
        result_code(&fixture.update(path, scale).await),
        "409 Conflict"
    );
    fixture
        .merge(path, json!({"spec": {"replicas": 7}}))
        .await
        .unwrap();
    let parent = fixture
        .get(ResourcePath {
            subresource: "",
            ..path
        })
        .await
        .unwrap();
    assert_eq!(
        (
            &parent["spec"]["replicas"],
            &parent["metadata"]["generation"]
        ),
        (&json!(7), &json!(3))
    );
    assert_eq!(
        result_code(
            &fixture
                .get(ResourcePath::object(&CONFIGMAPS, "default", "x").subresource("scale"))
                .await
        ),
        "404 NotFound"
    );
}

#[tokio::test]
async fn concurrent_patches_all_apply() {
    let fixture = fixture().await;
    fixture.create(&CONFIGMAPS, configmap("a")).await.unwrap();
    let writes = (0..20).map(|i| {
        let fixture = &fixture;
        async move {
            fixture
                .merge(path("a"), json!({"data": {format!("k{i}"): "v"}}))
                .await
        }
    });
    for reply in futures_util::future::join_all(writes).await {
        reply.unwrap();
    }
    let end = fixture.get(path("a")).await.unwrap();
    assert_eq!(end["data"].as_object().unwrap().len(), 21);
}

#[tokio::test]
async fn a_dry_run_of_an_update_returns_the_old_revision() {
    let fixture = fixture().await;
    let created = fixture.create(&CONFIGMAPS, configmap("a")).await.unwrap();
    let patch = Patch::Merge(json!({"data": {"a": "2"}}));
    let result = fixture
        .registry
        .patch(&fixture.ctx, path("a"), patch, &dry_run())
        .await
        .unwrap();
    let result = result.object.value().unwrap();
    assert_eq!(result["data"]["a"], "2");
    assert_eq!(
        result["metadata"]["resourceVersion"],
        created["metadata"]["resourceVersion"]
    );
    assert_eq!(fixture.get(path("a")).await.unwrap(), created);
}

#[tokio::test]
async fn strict_patches_are_invalid_when_they_add_unknown_fields() {
    let fixture = fixture().await;
    fixture.create(&CONFIGMAPS, configmap("a")).await.unwrap();
    let patch = Patch::Merge(json!({"dta": {}}));
    let reply = fixture
        .registry
        .patch(&fixture.ctx, path("a"), patch, &strict())
        .await;
    assert_eq!(result_code(&reply), "422 Invalid");
}

#[tokio::test]
async fn a_patch_with_another_kind_is_ignored_or_invalid_by_its_type() {
    let fixture = fixture().await;
    fixture.create(&CONFIGMAPS, configmap("a")).await.unwrap();
    let other = |kind: &str| json!({"apiVersion": "v1", "kind": kind, "data": {"b": "2"}});
    let strategic = fixture
        .patch(path("a"), Patch::Strategic(other("Pod")))
        .await;
    let patched = strategic.unwrap();
    assert_eq!(
        (&patched["kind"], &patched["data"]["b"]),
        (&json!("ConfigMap"), &json!("2"))
    );
    for (kind, message) in [
        (
            "Pod",
            "converting (v1.Pod) to (core.ConfigMap): unknown conversion",
        ),
        ("Foo", "no kind \"Foo\" is registered for version \"v1\""),
    ] {
        let operations = json!([{"op": "replace", "path": "/kind", "value": kind}]);
        for patch in [Patch::Merge(other(kind)), Patch::Json(operations)] {
            let rejection = fixture.patch(path("a"), patch).await.unwrap_err();
            assert_eq!(rejection.code, 422, "{kind}");
            assert!(rejection.message.contains(message), "{}", rejection.message);
        }
    }
}

#[tokio::test]
async fn a_strategic_merge_patch_of_a_scale_may_have_the_kind_of_its_object() {
    let fixture = fixture().await;
    fixture
        .create(&DEPLOYMENTS, deployment("web"))
        .await
        .unwrap();
    let mut scale = ResourcePath::object(&DEPLOYMENTS, "default", "web");
    scale.subresource = "scale";
    let patch = json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 3}});
    let scaled = fixture.patch(scale, Patch::Strategic(patch.clone())).await;
    assert_eq!(scaled.unwrap()["spec"]["replicas"], 3);
    let rejection = fixture.patch(scale, Patch::Merge(patch)).await.unwrap_err();
    assert_eq!(rejection.code, 422);
}

/// A store whose watches fail, so that no cache is ever filled, or are silent, so that a cache stays
/// as it was filled.
struct StalledStore {
    store: EmbeddedStore,
    has_watches: bool,
}

struct SilentWatch;

#[async_trait]
impl StoreWatch for SilentWatch {
    async fn next(&mut self) -> StoreResult<WatchResponse> {
        std::future::pending().await
    }
}

#[async_trait]
impl Store for StalledStore {
    async fn revision(&self) -> StoreResult<u64> {
        self.store.revision().await
    }

    async fn get(&self, key: &str) -> StoreResult<Option<KeyValue>> {
        self.store.get(key).await
    }

    async fn range(&self, range: &RangeRequest) -> StoreResult<RangeResponse> {
        self.store.range(range).await
    }

    async fn commit(&self, txn: SingleKeyTxn) -> StoreResult<TxnResponse> {
        self.store.commit(txn).await
    }

    async fn watch(&self, _prefix: &str, _after: u64) -> StoreResult<Box<dyn StoreWatch>> {
        match self.has_watches {
            true => Ok(Box::new(SilentWatch)),
            false => Err(storage::Error::Unavailable("no watch".to_owned())),
        }
    }

    async fn compact(&self, revision: u64) -> StoreResult<()> {
        self.store.compact(revision).await
    }
}

fn stalled_store(has_watches: bool) -> Arc<StalledStore> {
    let store = EmbeddedStore::in_memory(EmbeddedStoreOptions::default()).unwrap();
    Arc::new(StalledStore { store, has_watches })
}

/// Right after a start, or when a machine is busy, the caches are still being filled.
#[tokio::test]
async fn writes_do_not_wait_until_the_cache_is_filled() {
    let caches = WatchCacheConfig {
        read_timeout: Duration::ZERO,
        ..WatchCacheConfig::default()
    };
    let admission = AdmissionChainOptions::default();
    let fixture = fixture_on(stalled_store(false), caches, admission);
    fixture.registry.bootstrap().await.unwrap();
    let created = fixture.create(&CONFIGMAPS, configmap("a")).await;
    assert_eq!(result_code(&created), "ok");
    let any_version = GetOptions {
        resource_version: "0".to_owned(),
    };
    let cached = fixture.registry.get(&fixture.ctx, path("a"), &any_version);
    assert_eq!(result_code(&cached.await), "429 TooManyRequests");
    let patched = fixture.merge(path("a"), json!({"data": {"b": "2"}})).await;
    assert_eq!(patched.unwrap()["data"]["b"], "2");
    let updated = fixture.update(path("a"), configmap("a")).await;
    assert_eq!(updated.unwrap()["data"], configmap("a")["data"]);
    let deleted = fixture.delete(path("a")).await;
    assert_eq!(result_code(&deleted), "ok");
}

/// The cache does not know yet that the object is gone.
#[tokio::test]
async fn a_put_on_an_outdated_cached_object_keeps_the_warnings_of_its_body() {
    let admission = AdmissionChainOptions::default();
    let caches = WatchCacheConfig::default();
    let fixture = fixture_on(stalled_store(true), caches, admission);
    fixture.registry.bootstrap().await.unwrap();
    let mut body = fixture.create(&CONFIGMAPS, configmap("a")).await.unwrap();
    let any_version = GetOptions {
        resource_version: "0".to_owned(),
    };
    let cached = fixture.registry.get(&fixture.ctx, path("a"), &any_version);
    assert_eq!(result_code(&cached.await), "ok");
    fixture.delete(path("a")).await.unwrap();
    body["unknown"] = json!(1);
    let options = RegistryWriteOptions {
        field_validation: FieldValidation::Warn,
        ..RegistryWriteOptions::default()
    };
    let body = ObjectBody::from(body);
    let put = fixture
        .registry
        .update(&fixture.ctx, path("a"), body, &options);
    let outcome = put.await;
    assert_eq!(result_code(&outcome), "404 NotFound");
    let warnings = outcome.err().unwrap().warnings;
    assert_eq!(*warnings, [r#"unknown field "unknown""#.to_owned()]);
}
