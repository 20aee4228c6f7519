//! The layout of objects in etcd, read with etcdctl: one key for each object, whose value is
//! the object and whose revision is its resourceVersion.

use std::collections::BTreeMap;

use client::{DeleteOptions, ResourcePath};
use harness::objects::{
    BINDINGS, CONFIG_MAPS, DEFINITIONS, EVENTS, NAMESPACES, POLICIES, WIDGETS, config_map,
    deployment, policy, widget, widget_definition,
};
use harness::{ApiServerClient, EtcdCluster, etcd};
use machinery::Gvr;
use serde_json::{Value, json};

use crate::robustness::ReplicaProcess;

const NAMESPACE: &str = "layout";

/// The key of each object that the test creates.
fn expected_keys() -> BTreeMap<&'static str, (&'static Gvr, &'static str, &'static str)> {
    BTreeMap::from([
        ("/registry/namespaces/layout", (&NAMESPACES, "", NAMESPACE)),
        (
            "/registry/configmaps/layout/plain",
            (&CONFIG_MAPS, NAMESPACE, "plain"),
        ),
        ("/registry/events/layout/told", (&EVENTS, NAMESPACE, "told")),
        (
            "/registry/policy.karmada.io/propagationpolicies/layout/policy",
            (&POLICIES, NAMESPACE, "policy"),
        ),
        (
            "/registry/work.karmada.io/resourcebindings/layout/binding",
            (&BINDINGS, NAMESPACE, "binding"),
        ),
        (
            "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.org",
            (&DEFINITIONS, "", "widgets.example.org"),
        ),
        (
            "/registry/example.org/widgets/layout/own",
            (&WIDGETS, NAMESPACE, "own"),
        ),
    ])
}

async fn create_objects(control: &ApiServerClient) {
    control.create_namespace(NAMESPACE).await;
    control.create(config_map(NAMESPACE, "plain", "v")).await;
    let about = deployment(NAMESPACE, "web", 1);
    control
        .create(policy(NAMESPACE, "policy", &about, &[]))
        .await;
    let event = json!({"apiVersion": "v1", "kind": "Event",
        "metadata": {"name": "told", "namespace": NAMESPACE},
        "involvedObject": {"kind": "ConfigMap", "name": "plain", "namespace": NAMESPACE},
        "reason": "Told", "message": "m", "type": "Normal"});
    control.create(event).await;
    let binding = json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {"name": "binding", "namespace": NAMESPACE},
        "spec": {"schedulerName": "nobody",
            "resource": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": NAMESPACE, "name": "none"}}});
    control.create(binding).await;
    control.create(widget_definition()).await;
    harness::api_server_client::wait_until("widgets are served", async || {
        let (at, options) = (
            ResourcePath::collection(&WIDGETS, NAMESPACE),
            client::WriteOptions::default(),
        );
        let created = control
            .api
            .create(at, widget(NAMESPACE, "own", 1).into(), &options);
        created.await.is_ok()
    })
    .await;
}

/// A stored object as the API returns it.
fn api_form(value: &[u8], revision: u64) -> Value {
    let mut object: Value = machinery::json::from_slice(value).unwrap();
    let stored = &object["metadata"]["resourceVersion"];
    assert!(stored.is_null(), "stored with a resourceVersion: {stored}");
    object["metadata"]["resourceVersion"] = revision.to_string().into();
    object
}

async fn check_layout(version: &str) {
    let Some(etcd) = EtcdCluster::start(version, 1) else {
        return;
    };
    let replica = ReplicaProcess::start("layout", &etcd.endpoints(), &[]);
    let control = &replica.server;
    create_objects(control).await;
    for (key, (resource, namespace, name)) in expected_keys() {
        // Controllers may write between the two reads, so the comparison is repeated.
        harness::api_server_client::wait_until(key, async || {
            let stored = tokio::task::block_in_place(|| etcd.list_prefix(key));
            let object = control.get(resource, namespace, name).await.unwrap();
            let [stored] = &stored[..] else {
                return false;
            };
            let leased = stored.lease != 0;
            stored.key == key
                && leased == (resource == &EVENTS)
                && api_form(&stored.value, stored.revision) == object
        })
        .await;
    }
    let at = ResourcePath::object(&CONFIG_MAPS, NAMESPACE, "plain");
    let options = DeleteOptions::default();
    control.api.delete(at, &options).await.unwrap();
    let key = "/registry/configmaps/layout/plain";
    let left = tokio::task::block_in_place(|| etcd.list_prefix(key));
    assert_eq!(left, []);
    // Flotilla writes no key outside the prefix.
    let all = tokio::task::block_in_place(|| etcd.list_prefix(""));
    let beside = all.iter().filter(|s| !s.key.starts_with("/registry/"));
    assert_eq!(
        beside.collect::<Vec<_>>(),
        [] as [&harness::etcdctl::EtcdKeyValue; 0]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_object_is_one_key_of_etcd_34() {
    check_layout(etcd::VERSION_3_4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_object_is_one_key_of_etcd_35() {
    check_layout(etcd::VERSION_3_5).await;
}
