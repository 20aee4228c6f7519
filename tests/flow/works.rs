//! Works: suspension, eviction, conflict resolution, preservation and retention.

use serde_json::{Value, json};

use crate::flow::fleet::{ApiServerClient, FleetFixture, find_condition};
use crate::flow::objects::{
    BINDINGS, CLUSTER_BINDINGS, CLUSTER_ROLES, CONFIG_MAPS, POLICIES, WORKS, cluster_scoped,
    config_map, execution_space, policy,
};

fn work_name(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let kind = object["kind"].as_str().unwrap();
    karmada_api::names::work_name(kind, text("name"), text("namespace"))
}

async fn wait_until_applied(control: &ApiServerClient, cluster: &str, work: &str) -> Value {
    control
        .wait_until(&WORKS, &execution_space(cluster), work, "applied", |w| {
            find_condition(w, "Applied")["status"] == "True"
        })
        .await
}

// proves: WRK-marks, WRK-finalizer, WRK-generation, WRK-managed-keys, WRK-preserve, WRK-work-id, WRK-no-write, EXE-applied, EXE-dispatching
#[tokio::test]
async fn work_and_its_object_have_their_labels_and_annotations() {
    let ns = "marks";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    let mut object = config_map(ns, "c", "v");
    object["metadata"]["labels"] = json!({"own": "1"});
    object["metadata"]["annotations"] = json!({"note": "x"});
    control.create(policy(ns, "p", &object, &["member1"])).await;
    let created = control.create(object.clone()).await;
    let name = work_name(&object);
    let work = wait_until_applied(control, "member1", &name).await;
    let binding = control
        .wait_until_exists(&BINDINGS, ns, "c-configmap")
        .await;
    let id = &binding["metadata"]["labels"]["resourcebinding.karmada.io/permanent-id"];
    let work_id = &work["metadata"]["labels"]["work.karmada.io/permanent-id"];
    assert_eq!(
        work["metadata"]["labels"],
        json!({"resourcebinding.karmada.io/permanent-id": id, "work.karmada.io/permanent-id": work_id})
    );
    assert_eq!(
        work["metadata"]["annotations"],
        json!({
        "resourcebinding.karmada.io/name": "c-configmap", "resourcebinding.karmada.io/namespace": ns,
        "work.karmada.io/conflict-resolution": "abort"})
    );
    assert_eq!(
        work["metadata"]["finalizers"],
        json!(["karmada.io/execution-controller"])
    );
    assert_eq!(work["spec"]["suspendDispatching"], false);
    assert_eq!(work["spec"]["preserveResourcesOnDeletion"], false);
    let applied = find_condition(&work, "Applied");
    assert_eq!(
        (&applied["reason"], &applied["message"]),
        (
            &json!("AppliedSuccessful"),
            &json!("Manifest has been successfully applied")
        )
    );
    let dispatching = find_condition(&work, "Dispatching");
    assert_eq!(
        (&dispatching["reason"], &dispatching["message"]),
        (
            &json!("Dispatching"),
            &json!("Work is being dispatched to member clusters.")
        )
    );

    let policy_id =
        binding["metadata"]["labels"]["propagationpolicy.karmada.io/permanent-id"].clone();
    let there = fleet
        .member("member1")
        .wait_until_exists(&CONFIG_MAPS, ns, "c")
        .await;
    let labels = json!({"own": "1", "karmada.io/managed": "true", "resourcebinding.karmada.io/permanent-id": id,
        "work.karmada.io/permanent-id": work_id, "propagationpolicy.karmada.io/permanent-id": policy_id});
    assert_eq!(there["metadata"]["labels"], labels);
    let keys = |value: &Value| {
        value
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect::<Vec<_>>()
            .join(",")
    };
    let annotations = &there["metadata"]["annotations"];
    let expected = json!({"note": "x",
        "propagationpolicy.karmada.io/name": "p", "propagationpolicy.karmada.io/namespace": ns,
        "resourcebinding.karmada.io/name": "c-configmap", "resourcebinding.karmada.io/namespace": ns,
        "resourcetemplate.karmada.io/managed-annotations": keys(annotations),
        "resourcetemplate.karmada.io/managed-labels": keys(&labels),
        "resourcetemplate.karmada.io/uid": created["metadata"]["uid"],
        "work.karmada.io/conflict-resolution": "abort",
        "work.karmada.io/name": name, "work.karmada.io/namespace": "karmada-es-member1"});
    assert_eq!(annotations, &expected);

    expect_no_write_without_a_change(&fleet, ns, &name).await;
}

/// Changes the template of a Work in a field that the member does not get.
async fn expect_no_write_without_a_change(fleet: &FleetFixture, ns: &str, work: &str) {
    let control = &fleet.control;
    let space = execution_space("member1");
    let reported = control
        .wait_until(&WORKS, &space, work, "reported", |w| {
            w["status"]["manifestStatuses"][0]["health"] == "Healthy"
        })
        .await;
    let finalizers = json!({"metadata": {"finalizers": ["example.io/kept"]}});
    let patched = control.merge_patch(&CONFIG_MAPS, ns, "c", finalizers).await;
    let version = &patched["metadata"]["resourceVersion"];
    control
        .wait_until(
            &BINDINGS,
            ns,
            "c-configmap",
            "of the patched template",
            |b| b["spec"]["resource"]["resourceVersion"] == *version,
        )
        .await;
    // When a later template has passed all controllers, this binding has passed them, too.
    let later = config_map(ns, "later", "v");
    control
        .create(policy(ns, "later", &later, &["member1"]))
        .await;
    let later_work = work_name(&control.create(later).await);
    wait_until_applied(control, "member1", &later_work).await;
    let unchanged = control.get(&WORKS, &space, work).await.unwrap();
    assert_eq!(
        unchanged["metadata"]["resourceVersion"],
        reported["metadata"]["resourceVersion"]
    );
    let finalizers = json!({"metadata": {"finalizers": null}});
    control.merge_patch(&CONFIG_MAPS, ns, "c", finalizers).await;
}

// proves: WRK-suspend-cluster, EXE-suspend, EXE-suspend-later, EXE-suspend-delete
#[tokio::test]
async fn dispatching_is_suspended_in_one_cluster() {
    let ns = "suspend-one";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    let (one, two) = (fleet.member("member1"), fleet.member("member2"));
    let object = config_map(ns, "c", "v1");
    let work = work_name(&object);
    control
        .create(policy(ns, "p", &object, &["member1", "member2"]))
        .await;
    control.create(object).await;
    for member in [one, two] {
        member.wait_until_exists(&CONFIG_MAPS, ns, "c").await;
    }
    let only =
        json!({"spec": {"suspension": {"dispatchingOnClusters": {"clusterNames": ["member1"]}}}});
    control.merge_patch(&POLICIES, ns, "p", only).await;
    let suspended = control
        .wait_until(
            &WORKS,
            &execution_space("member1"),
            &work,
            "suspended",
            |w| find_condition(w, "Dispatching")["status"] == "False",
        )
        .await;
    let dispatching = find_condition(&suspended, "Dispatching");
    assert_eq!(
        (&dispatching["reason"], &dispatching["message"]),
        (
            &json!("SuspendDispatching"),
            &json!("Work dispatching is in a suspended state.")
        )
    );
    control
        .merge_patch(&CONFIG_MAPS, ns, "c", json!({"data": {"k": "v2"}}))
        .await;
    two.wait_until(&CONFIG_MAPS, ns, "c", "changed", |c| c["data"]["k"] == "v2")
        .await;
    control
        .wait_until(
            &WORKS,
            &execution_space("member1"),
            &work,
            "up to date",
            |w| w["spec"]["workload"]["manifests"][0]["data"]["k"] == "v2",
        )
        .await;
    let kept = one.get(&CONFIG_MAPS, ns, "c").await.unwrap();
    assert_eq!(kept["data"]["k"], "v1");
    control
        .merge_patch(&POLICIES, ns, "p", json!({"spec": {"suspension": null}}))
        .await;
    one.wait_until(&CONFIG_MAPS, ns, "c", "changed", |c| c["data"]["k"] == "v2")
        .await;
    // A suspended Work is deleted like others.
    let all = json!({"spec": {"suspension": {"dispatching": true}}});
    control.merge_patch(&POLICIES, ns, "p", all).await;
    control
        .wait_until(
            &WORKS,
            &execution_space("member1"),
            &work,
            "suspended",
            |w| find_condition(w, "Dispatching")["status"] == "False",
        )
        .await;
    control.delete(&CONFIG_MAPS, ns, "c").await;
    for member in [one, two] {
        member.wait_until_deleted(&CONFIG_MAPS, ns, "c").await;
    }
}

/// Evicts a new binding from `member1`, with an affinity that excludes it from then on.
/// Returns the name of the Work.
async fn evict_from_member1(fleet: &FleetFixture, ns: &str, mode: &str) -> String {
    let control = &fleet.control;
    let name = mode.to_lowercase();
    let object = config_map(ns, &name, "v");
    let work = work_name(&object);
    control
        .create(policy(ns, &name, &object, &["member1", "member2"]))
        .await;
    control.create(object).await;
    for cluster in ["member1", "member2"] {
        wait_until_applied(control, cluster, &work).await;
    }
    // `suppressDeletion` keeps controllers from ending the task.
    let task = json!({"fromCluster": "member1", "purgeMode": mode, "reason": "TaintUntolerated",
                      "producer": "TaintManager", "suppressDeletion": true});
    let spec = json!({"clusters": [{"name": "member2"}], "gracefulEvictionTasks": [task]});
    let binding = format!("{name}-configmap");
    control
        .merge_patch(&BINDINGS, ns, &binding, json!({"spec": spec}))
        .await;
    let only = json!({"spec": {"placement": {"clusterAffinity": {"clusterNames": ["member2"]}}}});
    control
        .merge_patch(&POLICIES, ns, &name, only.clone())
        .await;
    control
        .wait_until(&BINDINGS, ns, &binding, "placed elsewhere", |b| {
            b["spec"]["placement"]["clusterAffinity"]
                == only["spec"]["placement"]["clusterAffinity"]
                && b["spec"]["clusters"] == json!([{"name": "member2"}])
        })
        .await;
    work
}

// proves: BND-graceful-kept, BND-directly-gone
#[tokio::test]
async fn purge_modes_of_evictions() {
    let ns = "evictions";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    let one = fleet.member("member1");
    let gone = evict_from_member1(&fleet, ns, "Directly").await;
    one.wait_until_deleted(&CONFIG_MAPS, ns, "directly").await;
    control
        .wait_until_deleted(&WORKS, &execution_space("member1"), &gone)
        .await;
    for mode in ["Gracefully", "Never"] {
        let name = mode.to_lowercase();
        let work = evict_from_member1(&fleet, ns, mode).await;
        // Changes reach the cluster until the task ends.
        control
            .merge_patch(&CONFIG_MAPS, ns, &name, json!({"data": {"k": "later"}}))
            .await;
        fleet
            .member("member2")
            .wait_until(&CONFIG_MAPS, ns, &name, "changed", |c| {
                c["data"]["k"] == "later"
            })
            .await;
        control
            .get(&WORKS, &execution_space("member1"), &work)
            .await
            .unwrap();
        one.get(&CONFIG_MAPS, ns, &name).await.unwrap();
        let done = json!({"spec": {"gracefulEvictionTasks": null}});
        control
            .merge_patch(&BINDINGS, ns, &format!("{name}-configmap"), done)
            .await;
        one.wait_until_deleted(&CONFIG_MAPS, ns, &name).await;
    }
}

// proves: EXE-conflict-overwrite, WRK-resolution-template, EXE-exact
#[tokio::test]
async fn template_annotation_overwrites_conflicts() {
    let ns = "conflict-template";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    crate::flow::fleet::wait_for_namespace(&fleet, ns).await;
    let one = fleet.member("member1");
    let mut existing = config_map(ns, "c", "theirs");
    existing["metadata"]["labels"] = json!({"theirs": "yes"});
    existing["data"]["more"] = "theirs".into();
    let before = one.create(existing).await;
    let mut template = config_map(ns, "c", "ours");
    template["metadata"]["annotations"] =
        json!({"work.karmada.io/conflict-resolution": "overwrite"});
    control
        .create(policy(ns, "p", &template, &["member1"]))
        .await;
    control.create(template).await;
    let adopted = one
        .wait_until(&CONFIG_MAPS, ns, "c", "adopted", |c| {
            c["data"]["k"] == "ours"
        })
        .await;
    assert_eq!(adopted["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(adopted["metadata"]["labels"]["theirs"], "yes");
    assert_eq!(
        adopted["data"],
        json!({"k": "ours"}),
        "keys that the template lacks are removed"
    );
    // It is deleted like an object that Flotilla created.
    control.delete(&CONFIG_MAPS, ns, "c").await;
    one.wait_until_deleted(&CONFIG_MAPS, ns, "c").await;
}

// proves: MBR-managed, EXE-delete-own, EXE-conflict-abort
#[tokio::test]
async fn an_object_that_is_not_managed_outlives_its_work() {
    let ns = "unmanaged";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    let one = fleet.member("member1");
    let object = config_map(ns, "c", "v");
    let work = work_name(&object);
    control.create(policy(ns, "p", &object, &["member1"])).await;
    control.create(object).await;
    wait_until_applied(control, "member1", &work).await;
    one.merge_patch(
        &CONFIG_MAPS,
        ns,
        "c",
        json!({"metadata": {"labels": {"karmada.io/managed": null}}}),
    )
    .await;
    control
        .wait_until(&WORKS, &execution_space("member1"), &work, "refused", |w| {
            let message = find_condition(w, "Applied")["message"]
                .as_str()
                .unwrap_or_default();
            message.contains("already exists in the cluster member1")
        })
        .await;
    control.delete(&CONFIG_MAPS, ns, "c").await;
    control
        .wait_until_deleted(&WORKS, &execution_space("member1"), &work)
        .await;
    one.get(&CONFIG_MAPS, ns, "c").await.unwrap();
}

// proves: EXE-preserve, BND-wide
#[tokio::test]
async fn cluster_scoped_objects_are_preserved() {
    let ns = "preserve-wide";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    let one = fleet.member("member1");
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "flow-kept"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]});
    let work = work_name(&role);
    let mut keeping = cluster_scoped(policy("", "flow-kept", &role, &["member1"]));
    keeping["spec"]["preserveResourcesOnDeletion"] = json!(true);
    control.create(keeping).await;
    control.create(role).await;
    wait_until_applied(control, "member1", &work).await;
    control.delete(&CLUSTER_ROLES, "", "flow-kept").await;
    control
        .wait_until_deleted(&CLUSTER_BINDINGS, "", "flow-kept-clusterrole")
        .await;
    control
        .wait_until_deleted(&WORKS, &execution_space("member1"), &work)
        .await;
    let kept = one.get(&CLUSTER_ROLES, "", "flow-kept").await.unwrap();
    assert_eq!(kept["metadata"]["labels"], Value::Null);
    assert_eq!(
        kept["metadata"]["annotations"],
        json!({"work.karmada.io/conflict-resolution": "abort"})
    );
}
