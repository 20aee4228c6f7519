//! Tests of the garbage collector.

use std::sync::atomic::{AtomicBool, Ordering};

use client::fake::FakeApi;
use client::{ApiResource, Error};
use machinery::Status;

use super::*;

/// Creates a deployment, a replica set and a pod, and deletes the deployment.
async fn check(how: Propagation, kept: bool) {
    let lab = Lab::new().await;
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "default"}, "spec": spec});
    let deployment = lab.create(&DEPLOYMENTS, deployment).await;
    let of = owner("apps/v1", "Deployment", &deployment);
    let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "spec": spec,
        "metadata": {"name": "s", "namespace": "default", "ownerReferences": of}});
    let set = lab.create(&SETS, set).await;
    let of = owner("apps/v1", "ReplicaSet", &set);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": template["spec"],
        "metadata": {"name": "p", "namespace": "default", "ownerReferences": of}});
    lab.create(&PODS, pod).await;
    // The collector acts on its graph, which is a moment behind.
    let probe = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x"}]);
    lab.map("default", "probe", probe).await;
    lab.gone(&MAPS, "default", "probe").await;

    lab.delete(&DEPLOYMENTS, "default", "d", Some(how)).await;
    lab.gone(&DEPLOYMENTS, "default", "d").await;
    if kept {
        let set = lab.get(&SETS, "default", "s").await.unwrap();
        assert!(
            set["metadata"]["ownerReferences"]
                .as_array()
                .is_none_or(Vec::is_empty),
            "{set}"
        );
        let pod = lab.get(&PODS, "default", "p").await.unwrap();
        assert_eq!(pod["metadata"]["ownerReferences"][0]["name"], "s");
    } else {
        if how == Propagation::Foreground {
            assert!(lab.get(&SETS, "default", "s").await.is_none());
        }
        lab.gone(&SETS, "default", "s").await;
        lab.gone(&PODS, "default", "p").await;
    }
    lab.tasks.stop().await;
}

#[tokio::test]
async fn background_takes_the_dependents_afterwards() {
    check(Propagation::Background, false).await;
}

#[tokio::test]
async fn foreground_takes_the_dependents_first() {
    check(Propagation::Foreground, false).await;
}

#[tokio::test]
async fn orphans_stay() {
    check(Propagation::Orphan, true).await;
}

/// Deletes one of two owners; the other keeps the dependent.
async fn check_two_owners(how: Propagation) {
    let lab = Lab::new().await;
    let a = lab.map("default", "a", json!([])).await;
    let b = lab.map("default", "b", json!([])).await;
    let mut both = owner("v1", "ConfigMap", &a);
    both[0]["controller"] = false.into();
    both.as_array_mut()
        .unwrap()
        .push(owner("v1", "ConfigMap", &b)[0].clone());
    lab.map("default", "c", both).await;
    lab.delete(&MAPS, "default", "a", Some(how)).await;
    lab.gone(&MAPS, "default", "a").await;
    until("one reference is left", async || {
        let c = lab.get(&MAPS, "default", "c").await.unwrap();
        c["metadata"]["ownerReferences"].as_array().unwrap().len() == 1
    })
    .await;
    lab.delete(&MAPS, "default", "b", Some(how)).await;
    lab.gone(&MAPS, "default", "c").await;
    lab.tasks.stop().await;
}

#[tokio::test]
async fn one_owner_is_enough() {
    check_two_owners(Propagation::Background).await;
    check_two_owners(Propagation::Foreground).await;
}

#[tokio::test]
async fn owners_in_other_namespaces_do_not_count() {
    let lab = Lab::new().await;
    let a = lab.map("default", "a", json!([])).await;
    lab.map("kube-system", "c", owner("v1", "ConfigMap", &a))
        .await;
    lab.gone(&MAPS, "kube-system", "c").await;
    lab.event("OwnerRefInvalidNamespace").await;
    lab.tasks.stop().await;
}

#[tokio::test]
async fn a_cluster_wide_object_of_a_namespaced_owner_is_left_alone() {
    let lab = Lab::new().await;
    let a = lab.map("default", "a", json!([])).await;
    let roles = Gvr::constant("rbac.authorization.k8s.io", "v1", "clusterroles");
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": [],
        "metadata": {"name": "c", "ownerReferences": owner("v1", "ConfigMap", &a)}});
    lab.create(&roles, role).await;
    lab.delete(&MAPS, "default", "a", None).await;
    lab.event("OwnerRefInvalidNamespace").await;
    assert!(lab.get(&roles, "", "c").await.is_some());
    lab.tasks.stop().await;
}

#[tokio::test]
async fn an_unknown_kind_proves_nothing_until_it_is_served() {
    let lab = Lab::new().await;
    let stranger = json!({"metadata": {"name": "x", "uid": "x"}});
    lab.map("default", "kept", owner("g.io/v1", "Thing", &stranger))
        .await;
    lab.map("default", "probe", owner("v1", "Secret", &stranger))
        .await;
    lab.gone(&MAPS, "default", "probe").await;
    assert!(lab.get(&MAPS, "default", "kept").await.is_some());
    lab.create(
        &crate::definitions::DEFINITIONS,
        definition("things", "Thing"),
    )
    .await;
    lab.gone(&MAPS, "default", "kept").await;
    lab.tasks.stop().await;
}

#[tokio::test]
async fn nothing_is_collected_before_every_kind_is_listed() {
    let fake = FakeApi::new();
    for (resource, kind) in [(&MAPS, "ConfigMap"), (&SECRETS, "Secret")] {
        fake.serve(ApiResource {
            resource: resource.clone(),
            kind: kind.into(),
            namespaced: true,
            verbs: ["list", "watch", "delete"].map(String::from).to_vec(),
            subresources: Vec::new(),
            categories: Vec::new(),
            short_names: Vec::new(),
        });
    }
    let absent = owner(
        "v1",
        "Secret",
        &json!({"metadata": {"name": "x", "uid": "x"}}),
    );
    fake.seed(
        &MAPS,
        json!({"metadata": {"name": "c", "namespace": "n", "uid": "c", "ownerReferences": absent}}),
    );
    let closed = Arc::new(AtomicBool::new(true));
    let (gate, tried) = (Arc::clone(&closed), Arc::new(AtomicBool::new(false)));
    let seen = Arc::clone(&tried);
    fake.on_call(move |call| {
        let secrets = call.resource.is_some_and(|r| *r == SECRETS) && call.verb == "list";
        seen.fetch_or(secrets, Ordering::SeqCst);
        let refused = Status::unavailable("not yet");
        (secrets && gate.load(Ordering::SeqCst)).then(|| Error::from(refused))
    });
    let api: Arc<dyn Api> = fake.clone();
    let tasks = Tasks::new(Shutdown::new());
    let informers = Informers::new(&tasks);
    let options = Options {
        clock: Arc::new(SystemClock),
        serves: |_| true,
        root_ca: watch::channel(String::new()).1,
        issue: Arc::new(|_, _, _, _| Err("none".into())),
    };
    crate::start(api, options, &informers, &tasks)
        .await
        .unwrap();
    until("secrets are asked for", async || {
        tried.load(Ordering::SeqCst)
    })
    .await;
    informers
        .get(
            &(fake.clone() as Arc<dyn Api>),
            &flotilla_runtime::Select::all(&MAPS),
        )
        .wait_synced()
        .await;
    assert!(fake.object(&MAPS, "n", "c").is_some());
    assert!(fake.writes().iter().all(|w| w.verb != "delete"));
    closed.store(false, Ordering::SeqCst);
    until("it is collected", async || {
        fake.object(&MAPS, "n", "c").is_none()
    })
    .await;
    tasks.stop().await;
}
