//! Tests of the garbage collector.

use std::sync::atomic::{AtomicBool, Ordering};

use client::{ApiResource, Error};
use client_fake::FakeApi;
use machinery::Status;

use super::*;

/// Creates a deployment, a replica set and a pod, and deletes the deployment.
async fn check(how: DeletionPropagation, kept: bool) {
    let fixture = KubeControllersFixture::new().await;
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "default"}, "spec": spec});
    let deployment = fixture.create(&DEPLOYMENTS, deployment).await;
    let of = owner("apps/v1", "Deployment", &deployment);
    let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "spec": spec,
        "metadata": {"name": "s", "namespace": "default", "ownerReferences": of}});
    let set = fixture.create(&REPLICA_SETS, set).await;
    let of = owner("apps/v1", "ReplicaSet", &set);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": template["spec"],
        "metadata": {"name": "p", "namespace": "default", "ownerReferences": of}});
    fixture.create(&PODS, pod).await;
    // The collector acts on its graph, which is a moment behind.
    let probe = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x"}]);
    fixture.create_config_map("default", "probe", probe).await;
    fixture
        .wait_until_gone(&CONFIG_MAPS, "default", "probe")
        .await;

    fixture
        .delete(&DEPLOYMENTS, "default", "d", Some(how))
        .await;
    fixture.wait_until_gone(&DEPLOYMENTS, "default", "d").await;
    if kept {
        let set = fixture.get(&REPLICA_SETS, "default", "s").await.unwrap();
        assert!(
            set["metadata"]["ownerReferences"]
                .as_array()
                .is_none_or(Vec::is_empty),
            "{set}"
        );
        let pod = fixture.get(&PODS, "default", "p").await.unwrap();
        assert_eq!(pod["metadata"]["ownerReferences"][0]["name"], "s");
    } else {
        if how == DeletionPropagation::Foreground {
            assert!(fixture.get(&REPLICA_SETS, "default", "s").await.is_none());
        }
        fixture.wait_until_gone(&REPLICA_SETS, "default", "s").await;
        fixture.wait_until_gone(&PODS, "default", "p").await;
    }
    fixture.tasks.stop().await;
}

#[tokio::test]
async fn background_takes_the_dependents_afterwards() {
    check(DeletionPropagation::Background, false).await;
}

#[tokio::test]
async fn foreground_takes_the_dependents_first() {
    check(DeletionPropagation::Foreground, false).await;
}

#[tokio::test]
async fn orphans_stay() {
    check(DeletionPropagation::Orphan, true).await;
}

/// Deletes one of two owners; the other keeps the dependent.
async fn check_two_owners(how: DeletionPropagation) {
    let fixture = KubeControllersFixture::new().await;
    let a = fixture.create_config_map("default", "a", json!([])).await;
    let b = fixture.create_config_map("default", "b", json!([])).await;
    let mut both = owner("v1", "ConfigMap", &a);
    both[0]["controller"] = false.into();
    both.as_array_mut()
        .unwrap()
        .push(owner("v1", "ConfigMap", &b)[0].clone());
    fixture.create_config_map("default", "c", both).await;
    fixture
        .delete(&CONFIG_MAPS, "default", "a", Some(how))
        .await;
    fixture.wait_until_gone(&CONFIG_MAPS, "default", "a").await;
    wait_until("one reference is left", async || {
        let c = fixture.get(&CONFIG_MAPS, "default", "c").await.unwrap();
        c["metadata"]["ownerReferences"].as_array().unwrap().len() == 1
    })
    .await;
    fixture
        .delete(&CONFIG_MAPS, "default", "b", Some(how))
        .await;
    fixture.wait_until_gone(&CONFIG_MAPS, "default", "c").await;
    fixture.tasks.stop().await;
}

#[tokio::test]
async fn one_owner_is_enough() {
    check_two_owners(DeletionPropagation::Background).await;
    check_two_owners(DeletionPropagation::Foreground).await;
}

#[tokio::test]
async fn owners_in_other_namespaces_do_not_count() {
    let fixture = KubeControllersFixture::new().await;
    let a = fixture.create_config_map("default", "a", json!([])).await;
    fixture
        .create_config_map("kube-system", "c", owner("v1", "ConfigMap", &a))
        .await;
    fixture
        .wait_until_gone(&CONFIG_MAPS, "kube-system", "c")
        .await;
    fixture.wait_for_event("OwnerRefInvalidNamespace").await;
    fixture.tasks.stop().await;
}

/// As in Kubernetes, an owner is the object at the coordinates of the reference, and its uid only
/// confirms it.
#[tokio::test]
async fn owners_of_another_kind_or_name_do_not_count() {
    let fixture = KubeControllersFixture::new().await;
    let a = fixture.create_config_map("default", "a", json!([])).await;
    let wrong_kind = owner("v1", "Secret", &a);
    let mut wrong_name = owner("v1", "ConfigMap", &a);
    wrong_name[0]["name"] = "b".into();
    fixture
        .create_config_map("default", "of-a-kind", wrong_kind)
        .await;
    fixture
        .create_config_map("default", "of-a-name", wrong_name)
        .await;
    fixture
        .create_config_map("default", "kept", owner("v1", "ConfigMap", &a))
        .await;
    for name in ["of-a-kind", "of-a-name"] {
        fixture.wait_until_gone(&CONFIG_MAPS, "default", name).await;
    }
    assert!(fixture.get(&CONFIG_MAPS, "default", "kept").await.is_some());
    fixture.tasks.stop().await;
}

#[tokio::test]
async fn a_cluster_wide_object_of_a_namespaced_owner_is_left_alone() {
    let fixture = KubeControllersFixture::new().await;
    let a = fixture.create_config_map("default", "a", json!([])).await;
    let roles = Gvr::from_static("rbac.authorization.k8s.io", "v1", "clusterroles");
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": [],
        "metadata": {"name": "c", "ownerReferences": owner("v1", "ConfigMap", &a)}});
    fixture.create(&roles, role).await;
    fixture.delete(&CONFIG_MAPS, "default", "a", None).await;
    fixture.wait_for_event("OwnerRefInvalidNamespace").await;
    assert!(fixture.get(&roles, "", "c").await.is_some());
    fixture.tasks.stop().await;
}

#[tokio::test]
async fn an_unknown_kind_proves_nothing_until_it_is_served() {
    let fixture = KubeControllersFixture::new().await;
    let stranger = json!({"metadata": {"name": "x", "uid": "x"}});
    fixture
        .create_config_map("default", "kept", owner("g.io/v1", "Thing", &stranger))
        .await;
    fixture
        .create_config_map("default", "probe", owner("v1", "Secret", &stranger))
        .await;
    fixture
        .wait_until_gone(&CONFIG_MAPS, "default", "probe")
        .await;
    assert!(fixture.get(&CONFIG_MAPS, "default", "kept").await.is_some());
    fixture
        .create(
            &crate::custom_resource_definitions::DEFINITIONS,
            definition("things", "Thing"),
        )
        .await;
    fixture
        .wait_until_gone(&CONFIG_MAPS, "default", "kept")
        .await;
    fixture.tasks.stop().await;
}

#[tokio::test]
async fn nothing_is_collected_before_every_kind_is_listed() {
    let fake = FakeApi::new();
    for (resource, kind) in [(&CONFIG_MAPS, "ConfigMap"), (&SECRETS, "Secret")] {
        fake.add_resource(ApiResource {
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
        &CONFIG_MAPS,
        json!({"metadata": {"name": "c", "namespace": "n", "uid": "c", "ownerReferences": absent}}),
    );
    let closed = Arc::new(AtomicBool::new(true));
    let (gate, tried) = (Arc::clone(&closed), Arc::new(AtomicBool::new(false)));
    let tried_secrets = Arc::clone(&tried);
    fake.on_call(move |call| {
        let secrets = call.resource.is_some_and(|r| *r == SECRETS) && call.verb == "list";
        tried_secrets.fetch_or(secrets, Ordering::SeqCst);
        let rejection = Status::unavailable("not yet");
        (secrets && gate.load(Ordering::SeqCst)).then(|| Error::from(rejection))
    });
    let api: Arc<dyn Api> = fake.clone();
    let tasks = TaskGroup::new(ShutdownToken::new());
    let options = KubeControllersOptions {
        serves_group: |_| true,
        root_ca: watch::channel(String::new()).1,
        client_ca: watch::channel(String::new()).1,
        issue_token: Arc::new(|_, _, _, _| Err("none".into())),
        sign_certificate: Arc::new(|_| Err("none".into())),
        type_check: Arc::new(|_| Vec::new()),
        cluster_info_url: None,
    };
    let context = context(&api, &tasks);
    crate::start(&context, options).await.unwrap();
    wait_until("secrets are asked for", async || {
        tried.load(Ordering::SeqCst)
    })
    .await;
    context.informer(&CONFIG_MAPS).wait_for_cache_sync().await;
    assert!(fake.get_object(&CONFIG_MAPS, "n", "c").is_some());
    assert!(fake.writes().iter().all(|w| w.verb != "delete"));
    closed.store(false, Ordering::SeqCst);
    wait_until("it is collected", async || {
        fake.get_object(&CONFIG_MAPS, "n", "c").is_none()
    })
    .await;
    tasks.stop().await;
}
