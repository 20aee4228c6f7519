//! Tests of kinds with a strategy, kinds with several versions, and subresources.

use super::*;

static EVENTS: Gvr = Gvr::from_static("", "v1", "events");
static NEW_EVENTS: Gvr = Gvr::from_static("events.k8s.io", "v1", "events");
static HPA_V1: Gvr = Gvr::from_static("autoscaling", "v1", "horizontalpodautoscalers");
static HPA_V2: Gvr = Gvr::from_static("autoscaling", "v2", "horizontalpodautoscalers");
static JOBS: Gvr = Gvr::from_static("batch", "v1", "jobs");

fn service(name: &str, spec: Value) -> Value {
    json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec})
}

#[tokio::test]
async fn services_get_addresses_and_keep_them() {
    let fixture = fixture().await;
    let spec = json!({"type": "NodePort", "ports": [{"port": 80}], "selector": {"a": "b"}});
    let created = fixture
        .create(&SERVICES, service("a", spec.clone()))
        .await
        .unwrap();
    let ip = created["spec"]["clusterIP"].as_str().unwrap().to_owned();
    assert!(ip.starts_with("10."), "{ip}");
    let port = created["spec"]["ports"][0]["nodePort"].clone();
    assert!(port.as_u64().unwrap() >= 30000);
    let path = ResourcePath::object(&SERVICES, "default", "a");
    let put = fixture.update(path, service("a", spec)).await.unwrap();
    assert_eq!(
        put["metadata"]["resourceVersion"],
        created["metadata"]["resourceVersion"]
    );
    let same_ip = service("b", json!({"clusterIP": ip, "ports": [{"port": 80}]}));
    assert_eq!(
        result_code(&fixture.create(&SERVICES, same_ip.clone()).await),
        "422 Invalid"
    );
    let deleted = deleted_object(fixture.delete(path).await.unwrap());
    assert_eq!(deleted.name(), "a");
    assert_eq!(result_code(&fixture.create(&SERVICES, same_ip).await), "ok");
}

#[tokio::test]
async fn secrets_never_return_string_data() {
    let fixture = fixture().await;
    let body =
        json!({"metadata": {"name": "s", "namespace": "default"}, "stringData": {"a": "hi"}});
    let created = fixture.create(&SECRETS, body).await.unwrap();
    assert_eq!(
        (&created["data"]["a"], &created["type"]),
        (&json!("aGk="), &json!("Opaque"))
    );
    assert!(created.get("stringData").is_none());
    let path = ResourcePath::object(&SECRETS, "default", "s");
    let patched = fixture
        .merge(path, json!({"stringData": {"b": "ho"}}))
        .await
        .unwrap();
    assert_eq!(patched["data"], json!({"a": "aGk=", "b": "aG8="}));
}

#[tokio::test]
async fn jobs_select_by_uid() {
    let fixture = fixture().await;
    let body = json!({"metadata": {"name": "j", "namespace": "default"}, "spec": {"template": {"spec":
        {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
    let created = fixture.create(&JOBS, body).await.unwrap();
    let uid = &created["metadata"]["uid"];
    assert_eq!(
        &created["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"],
        uid
    );
    assert_eq!(
        &created["spec"]["template"]["metadata"]["labels"]["controller-uid"],
        uid
    );
}

#[tokio::test]
async fn events_of_both_groups_share_their_storage() {
    let fixture = fixture().await;
    let body = json!({"metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}, "message": "hello", "reason": "R",
        "type": "Normal", "reportingComponent": "me"});
    let created = fixture.create(&EVENTS, body).await.unwrap();
    let new = fixture
        .get(ResourcePath::object(&NEW_EVENTS, "default", "e"))
        .await
        .unwrap();
    assert_eq!(
        (&new["apiVersion"], &new["note"]),
        (&json!("events.k8s.io/v1"), &json!("hello"))
    );
    assert_eq!(new["metadata"], created["metadata"]);
    let options = ListOptions {
        field_selector: "regarding.name=p".into(),
        ..ListOptions::default()
    };
    assert_eq!(
        names(
            &fixture
                .list(ResourcePath::collection(&NEW_EVENTS, ""), &options)
                .await
                .unwrap()
        ),
        ["e"]
    );
    let options = ListOptions {
        field_selector: "involvedObject.name=q".into(),
        ..ListOptions::default()
    };
    assert!(
        names(
            &fixture
                .list(ResourcePath::collection(&EVENTS, ""), &options)
                .await
                .unwrap()
        )
        .is_empty()
    );
    let patched = fixture
        .merge(
            ResourcePath::object(&NEW_EVENTS, "default", "e"),
            json!({"note": "bye"}),
        )
        .await
        .unwrap();
    assert_eq!(patched["note"], "bye");
    assert_eq!(
        fixture
            .get(ResourcePath::object(&EVENTS, "default", "e"))
            .await
            .unwrap()["message"],
        "bye"
    );
}

#[tokio::test]
async fn autoscalers_are_served_in_both_versions() {
    let fixture = fixture().await;
    let body = json!({"metadata": {"name": "h", "namespace": "default"}, "spec": {"maxReplicas": 3,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}, "targetCPUUtilizationPercentage": 70}});
    let v1 = fixture.create(&HPA_V1, body).await.unwrap();
    assert_eq!(
        (
            &v1["apiVersion"],
            &v1["spec"]["targetCPUUtilizationPercentage"]
        ),
        (&json!("autoscaling/v1"), &json!(70))
    );
    let v2 = fixture
        .get(ResourcePath::object(&HPA_V2, "default", "h"))
        .await
        .unwrap();
    assert_eq!(
        v2["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"],
        70
    );
    assert_eq!(
        v1["metadata"]["resourceVersion"],
        v2["metadata"]["resourceVersion"]
    );
}

#[tokio::test]
async fn pods_are_bound_once_and_evicted() {
    let fixture = fixture().await;
    let body = json!({"metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let created = fixture.create(&PODS, body).await.unwrap();
    assert_eq!(
        (&created["status"]["phase"], &created["status"]["qosClass"]),
        (&json!("Pending"), &json!("BestEffort"))
    );
    let path = ResourcePath::object(&PODS, "default", "p");
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}});
    let post = |path, body: Value| {
        let fixture = &fixture;
        async move {
            let options = RegistryWriteOptions::default();
            fixture
                .registry
                .create(&fixture.ctx, path, ObjectBody::from(body), &options)
                .await
        }
    };
    assert!(
        post(path.subresource("binding"), binding.clone())
            .await
            .unwrap()
            .created
    );
    assert_eq!(fixture.get(path).await.unwrap()["spec"]["nodeName"], "n1");
    assert_eq!(
        result_code(&post(path.subresource("binding"), binding).await),
        "409 Conflict"
    );
    post(
        path.subresource("eviction"),
        json!({"metadata": {"name": "p"}}),
    )
    .await
    .unwrap();
    assert_eq!(result_code(&fixture.get(path).await), "404 NotFound");
    let accounts = Gvr::from_static("", "v1", "serviceaccounts");
    let token = post(
        ResourcePath::object(&accounts, "default", "none").subresource("token"),
        json!({}),
    )
    .await;
    assert_eq!(result_code(&token), "404 NotFound");
}
