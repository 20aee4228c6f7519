//! Tests of writes of Karmada's kinds: schema, admission and versions.

use super::*;

static POLICIES: Gvr = Gvr::from_static("policy.karmada.io", "v1alpha1", "propagationpolicies");
static BINDINGS: Gvr = Gvr::from_static("work.karmada.io", "v1alpha2", "resourcebindings");
static OLD_BINDINGS: Gvr = Gvr::from_static("work.karmada.io", "v1alpha1", "resourcebindings");
static CLUSTER_BINDINGS: Gvr =
    Gvr::from_static("work.karmada.io", "v1alpha2", "clusterresourcebindings");
static OLD_CLUSTER_BINDINGS: Gvr =
    Gvr::from_static("work.karmada.io", "v1alpha1", "clusterresourcebindings");

fn policy(placement: Value) -> Value {
    json!({"metadata": {"name": "p", "namespace": "default"},
        "spec": {"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}], "placement": placement}})
}

// proves: ADM-schema-first
#[tokio::test]
async fn the_schema_is_applied_before_admission() {
    let fixture = fixture().await;
    let placement = json!({"replicaScheduling": {}, "spreadConstraints": [{}]});
    let created = fixture.create(&POLICIES, policy(placement)).await.unwrap();
    assert_eq!(
        created["spec"],
        json!({"conflictResolution": "Abort", "preemption": "Never", "priority": 0, "schedulerName": "default-scheduler",
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default"}],
            "placement": {
                // This default depends on a type that is a default of the schema.
                "replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted"},
                "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1}]}})
    );
    let two_faults = json!({"spreadConstraints": [{"spreadByField": "rack"}], "clusterTolerations": [{"operator": "Gt"}]});
    let rejected = fixture.create(&POLICIES, policy(two_faults)).await;
    assert_eq!(result_code(&rejected), "422 Invalid");
}

// proves: ADM-undecodable
#[tokio::test]
async fn undecodable_objects_are_bad_requests() {
    let fixture = fixture().await;
    let options = RegistryWriteOptions::default();
    for (body, code) in [
        (json!([]), "400 BadRequest"),
        (json!("x"), "400 BadRequest"),
        (json!({"metadata": 1}), "400 BadRequest"),
        // As of a custom resource: decoded, then found to be of another kind.
        (json!({"kind": "Secret"}), "422 Invalid"),
    ] {
        let path = ResourcePath::collection(&POLICIES, "default");
        let body = ObjectBody::from(body);
        let reply = fixture
            .registry
            .create(&fixture.ctx, path, body, &options)
            .await;
        assert_eq!(result_code(&reply), code);
    }
}

/// Writes and reads a binding in both versions.
async fn check_versions(old: &Gvr, new: &Gvr, namespace: &str) {
    let fixture = fixture().await;
    let mut of = json!({"apiVersion": "v1", "kind": "X", "name": "a", "resourceVersion": "7",
        "resourcePerReplicas": {"cpu": "1"}, "replicas": 2});
    let mut resource =
        json!({"apiVersion": "v1", "kind": "X", "name": "a", "resourceVersion": "7"});
    if !namespace.is_empty() {
        of["namespace"] = namespace.into();
        resource["namespace"] = namespace.into();
    }
    let clusters = json!([{"name": "m", "replicas": 2}]);
    let written = json!({"metadata": {"name": "b", "namespace": namespace}, "spec": {"resource": of, "clusters": clusters}});
    let created = fixture.create(old, written).await.unwrap();
    assert_eq!(created["apiVersion"], "work.karmada.io/v1alpha1");
    let path = ResourcePath::object(new, namespace, "b");
    let stored = fixture.get(path).await.unwrap();
    assert_eq!(stored["apiVersion"], "work.karmada.io/v1alpha2");
    assert_eq!(
        stored["spec"],
        json!({"conflictResolution": "Abort", "replicas": 2, "replicaRequirements": {"resourceRequest": {"cpu": "1"}},
            "resource": resource, "clusters": clusters})
    );
    let placed = json!({"spec": {"placement": {"clusterAffinity": {}}, "propagateDeps": true, "replicas": 3,
        "resource": {"uid": "u"}}});
    fixture.merge(path, placed).await.unwrap();
    let report = json!({"status": {"schedulerObservedGeneration": 1,
        "conditions": [{"type": "Scheduled", "status": "True", "reason": "Success", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        "aggregatedStatus": [{"clusterName": "m", "applied": true, "health": "Healthy"}]}});
    fixture
        .merge(path.subresource("status"), report.clone())
        .await
        .unwrap();
    let read = fixture
        .get(ResourcePath::object(old, namespace, "b"))
        .await
        .unwrap();
    of["replicas"] = 3.into();
    assert_eq!(read["spec"], json!({"resource": of, "clusters": clusters}));
    assert_eq!(
        read["status"],
        json!({"conditions": report["status"]["conditions"], "aggregatedStatus": [{"clusterName": "m", "applied": true}]})
    );
}

// proves: ADM-convert
#[tokio::test]
async fn bindings_are_served_in_two_versions() {
    check_versions(&OLD_BINDINGS, &BINDINGS, "default").await;
    check_versions(&OLD_CLUSTER_BINDINGS, &CLUSTER_BINDINGS, "").await;
}
