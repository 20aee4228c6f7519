//! The layout of objects in etcd, read with etcdctl: one key for each object, whose value is
//! the object and whose revision is its resourceVersion.

use std::collections::BTreeMap;

use client::{At, DeleteOptions};
use harness::objects::{
    BINDINGS, CONFIG_MAPS, DEFINITIONS, EVENTS, NAMESPACES, POLICIES, WIDGETS, config_map,
    deployment, policy, widget, widgets,
};
use harness::{Etcd, Server, etcd};
use machinery::Gvr;
use serde_json::{Value, json};

use crate::Replica;

const NS: &str = "layout";

/// The key of each object that the test creates.
fn keys() -> BTreeMap<&'static str, (&'static Gvr, &'static str, &'static str)> {
    BTreeMap::from([
        ("/registry/namespaces/layout", (&NAMESPACES, "", NS)),
        (
            "/registry/configmaps/layout/plain",
            (&CONFIG_MAPS, NS, "plain"),
        ),
        ("/registry/events/layout/told", (&EVENTS, NS, "told")),
        (
            "/registry/policy.karmada.io/propagationpolicies/layout/policy",
            (&POLICIES, NS, "policy"),
        ),
        (
            "/registry/work.karmada.io/resourcebindings/layout/binding",
            (&BINDINGS, NS, "binding"),
        ),
        (
            "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.org",
            (&DEFINITIONS, "", "widgets.example.org"),
        ),
        (
            "/registry/example.org/widgets/layout/own",
            (&WIDGETS, NS, "own"),
        ),
    ])
}

async fn create(control: &Server) {
    control.namespace(NS).await;
    control.create(config_map(NS, "plain", "v")).await;
    let about = deployment(NS, "web", 1);
    control.create(policy(NS, "policy", &about, &[])).await;
    let event = json!({"apiVersion": "v1", "kind": "Event",
        "metadata": {"name": "told", "namespace": NS},
        "involvedObject": {"kind": "ConfigMap", "name": "plain", "namespace": NS},
        "reason": "Told", "message": "m", "type": "Normal"});
    control.create(event).await;
    let binding = json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {"name": "binding", "namespace": NS},
        "spec": {"schedulerName": "nobody",
            "resource": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": NS, "name": "none"}}});
    control.create(binding).await;
    control.create(widgets()).await;
    harness::server::until("widgets are served", async || {
        let (at, options) = (At::all(&WIDGETS, NS), client::WriteOptions::default());
        let made = control.api.create(at, widget(NS, "own", 1), &options);
        made.await.is_ok()
    })
    .await;
}

/// A stored object as the API returns it.
fn shown(value: &[u8], revision: u64) -> Value {
    let mut object: Value = serde_json::from_slice(value).unwrap();
    let stored = &object["metadata"]["resourceVersion"];
    assert!(stored.is_null(), "stored with a resourceVersion: {stored}");
    object["metadata"]["resourceVersion"] = revision.to_string().into();
    object
}

async fn laid_out(version: &str) {
    let Some(etcd) = Etcd::start(version, 1) else {
        return;
    };
    let replica = Replica::start("layout", &etcd.endpoints(), &[]);
    let control = &replica.server;
    create(control).await;
    for (key, (resource, namespace, name)) in keys() {
        // Controllers may write between the two reads, so the comparison is repeated.
        harness::server::until(key, async || {
            let stored = tokio::task::block_in_place(|| etcd.stored(key));
            let found = control.get(resource, namespace, name).await.unwrap();
            let [stored] = &stored[..] else {
                return false;
            };
            let leased = stored.lease != 0;
            stored.key == key
                && leased == (resource == &EVENTS)
                && shown(&stored.value, stored.revision) == found
        })
        .await;
    }
    let at = At::one(&CONFIG_MAPS, NS, "plain");
    let options = DeleteOptions::default();
    control.api.delete(at, &options).await.unwrap();
    let key = "/registry/configmaps/layout/plain";
    let left = tokio::task::block_in_place(|| etcd.stored(key));
    assert_eq!(left, []);
    // Flotilla writes no key outside the prefix.
    let all = tokio::task::block_in_place(|| etcd.stored(""));
    let beside = all.iter().filter(|s| !s.key.starts_with("/registry/"));
    assert_eq!(
        beside.collect::<Vec<_>>(),
        [] as [&harness::etcdctl::Stored; 0]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_object_is_one_key_of_etcd_34() {
    laid_out(etcd::OLD).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_object_is_one_key_of_etcd_35() {
    laid_out(etcd::NEW).await;
}
