//! Objects in members that are edited, deleted or already exist.

use serde_json::json;

use crate::flow::fleet::{FleetFixture, find_condition, wait_for_namespace};
use crate::flow::objects::{
    BINDINGS, CONFIG_MAPS, DEPLOYMENTS, POLICIES, SERVICES, WORKS, config_map, deployment,
    execution_space, policy,
};

// proves: EXE-drift-change, EXE-drift-delete, EXE-retain-labels, EXE-drop-labels
#[tokio::test]
async fn edits_and_deletions_in_a_member_are_undone() {
    let ns = "drift";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    let one = fleet.member("member1");
    let (web, map) = (deployment(ns, "web", 2), config_map(ns, "c", "v"));
    for object in [&web, &map] {
        let name = object["metadata"]["name"].as_str().unwrap();
        control.create(policy(ns, name, object, &["member1"])).await;
        control.create(object.clone()).await;
    }
    one.wait_until(&DEPLOYMENTS, ns, "web", "ready", |d| {
        d["status"]["readyReplicas"] == 2
    })
    .await;
    one.merge_patch(
        &DEPLOYMENTS,
        ns,
        "web",
        json!({"spec": {"replicas": 9, "minReadySeconds": 1}}),
    )
    .await;
    // A field that the template does not set is the member's.
    one.wait_until(&DEPLOYMENTS, ns, "web", "repaired", |d| {
        d["spec"]["replicas"] == 2 && d["spec"]["minReadySeconds"] == 1
    })
    .await;
    let first = one.wait_until_exists(&CONFIG_MAPS, ns, "c").await;
    one.merge_patch(&CONFIG_MAPS, ns, "c", json!({"data": {"k": "edited"}}))
        .await;
    one.wait_until(&CONFIG_MAPS, ns, "c", "repaired", |c| c["data"]["k"] == "v")
        .await;
    one.delete(&CONFIG_MAPS, ns, "c").await;
    one.wait_until(&CONFIG_MAPS, ns, "c", "made again", |c| {
        c["metadata"]["uid"] != first["metadata"]["uid"] && c["data"]["k"] == "v"
    })
    .await;

    // A label that the member adds stays; a label that the template drops is removed.
    one.merge_patch(
        &CONFIG_MAPS,
        ns,
        "c",
        json!({"metadata": {"labels": {"own": "yes"}}}),
    )
    .await;
    control
        .merge_patch(
            &CONFIG_MAPS,
            ns,
            "c",
            json!({"metadata": {"labels": {"from": "template"}}}),
        )
        .await;
    one.wait_until(&CONFIG_MAPS, ns, "c", "labelled", |c| {
        c["metadata"]["labels"]["own"] == "yes" && c["metadata"]["labels"]["from"] == "template"
    })
    .await;
    control
        .merge_patch(
            &CONFIG_MAPS,
            ns,
            "c",
            json!({"metadata": {"labels": {"from": null}}}),
        )
        .await;
    one.wait_until(&CONFIG_MAPS, ns, "c", "without the label", |c| {
        c["metadata"]["labels"]["own"] == "yes" && c["metadata"]["labels"]["from"].is_null()
    })
    .await;
}

// proves: EXE-conflict-abort, EXE-conflict-overwrite, STA-unapplied
#[tokio::test]
async fn conflicts_with_existing_objects_of_a_member() {
    let ns = "conflict";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    wait_for_namespace(&fleet, ns).await;
    let one = fleet.member("member1");
    let existing = one.create(config_map(ns, "c", "theirs")).await;
    let template = config_map(ns, "c", "ours");
    control
        .create(policy(ns, "p", &template, &["member1"]))
        .await;
    control.create(template).await;

    let work = karmada_api::names::work_name("ConfigMap", "c", ns);
    let conflicting_work = control
        .wait_until(&WORKS, &execution_space("member1"), &work, "refused", |w| {
            find_condition(w, "Applied")["status"] == "False"
        })
        .await;
    let applied = find_condition(&conflicting_work, "Applied");
    assert_eq!(applied["reason"], "AppliedFailed");
    let text = applied["message"].as_str().unwrap();
    assert!(
        text.starts_with("Failed to apply all manifests (0/1): "),
        "{text}"
    );
    let expected = "resource(kind=ConfigMap, conflict/c) already exists in the cluster member1 and the work.karmada.io/conflict-resolution strategy value is empty";
    assert!(text.contains(expected), "{text}");
    control
        .wait_until(&BINDINGS, ns, "c-configmap", "not applied", |b| {
            find_condition(b, "FullyApplied")["reason"] == "FullyAppliedFailed"
                && b["status"]["aggregatedStatus"][0]["appliedMessage"] == text
        })
        .await;
    let still = one.get(&CONFIG_MAPS, ns, "c").await.unwrap();
    assert_eq!(
        still["metadata"]["resourceVersion"],
        existing["metadata"]["resourceVersion"]
    );

    control
        .merge_patch(
            &POLICIES,
            ns,
            "p",
            json!({"spec": {"conflictResolution": "Overwrite"}}),
        )
        .await;
    let adopted = one
        .wait_until(&CONFIG_MAPS, ns, "c", "adopted", |c| {
            c["data"]["k"] == "ours" && c["metadata"]["labels"]["karmada.io/managed"] == "true"
        })
        .await;
    assert_eq!(adopted["metadata"]["uid"], existing["metadata"]["uid"]);
    control
        .wait_until(&BINDINGS, ns, "c-configmap", "applied", |b| {
            find_condition(b, "FullyApplied")["status"] == "True"
        })
        .await;
}

/// An API server allocates node ports before it compares names: it rejects the create of an
/// existing Service with 422, not with 409.
// proves: EXE-refused-create
#[tokio::test]
async fn a_service_that_holds_its_node_port_already_is_adopted() {
    let ns = "node-port";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    wait_for_namespace(&fleet, ns).await;
    let one = fleet.member("member1");
    let service = |name: &str, port: u16| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": ns},
            "spec": {"type": "NodePort", "selector": {"app": name}, "ports": [{"port": 80, "nodePort": port}]}})
    };
    for (name, port, resolution) in [("web", 30971, "Overwrite"), ("theirs", 30972, "Abort")] {
        let there = one.create(service(name, port)).await;
        let template = service(name, port);
        let mut policy = policy(ns, name, &template, &["member1"]);
        policy["spec"]["conflictResolution"] = resolution.into();
        control.create(policy).await;
        control.create(template).await;
        let work = karmada_api::names::work_name("Service", name, ns);
        let work = control
            .wait_until(&WORKS, &execution_space("member1"), &work, "decided", |w| {
                find_condition(w, "Applied")["status"].is_string()
            })
            .await;
        let applied = find_condition(&work, "Applied");
        let after = one.get(&SERVICES, ns, name).await.unwrap();
        assert_eq!(after["metadata"]["uid"], there["metadata"]["uid"]);
        let is_ours = after["metadata"]["labels"]["karmada.io/managed"] == "true";
        assert_eq!(is_ours, resolution == "Overwrite", "{after:#}");
        if is_ours {
            assert_eq!(applied["status"], "True", "{applied:#}");
            assert_eq!(after["spec"]["clusterIP"], there["spec"]["clusterIP"]);
        } else {
            let text = applied["message"].as_str().unwrap();
            assert!(
                text.contains("already exists in the cluster member1"),
                "{text}"
            );
        }
    }
}
