//! Policies that are edited, compete for templates and are deleted.

use harness::api_server_client::wait_until;
use serde_json::{Value, json};

use crate::flow::cache_waits::wait_until_detector_sees;
use crate::flow::fleet::{ApiServerClient, FleetFixture};
use crate::flow::objects::{
    BINDINGS, CLUSTER_BINDINGS, CLUSTER_POLICIES, CLUSTER_ROLES, CONFIG_MAPS, EVENTS, POLICIES,
    PRIORITY_CLASSES, cluster_scoped, config_map, policy, resource_selector, secret,
};

const POLICY_ID_LABEL: &str = "propagationpolicy.karmada.io/permanent-id";
const CLUSTER_POLICY_ID_LABEL: &str = "clusterpropagationpolicy.karmada.io/permanent-id";

fn placement_patch(clusters: &[&str]) -> Value {
    json!({"spec": {"placement": {"clusterAffinity": {"clusterNames": clusters}}}})
}

fn claiming_policy(object: &Value) -> &Value {
    &object["metadata"]["annotations"]["propagationpolicy.karmada.io/name"]
}

async fn wait_until_claimed(control: &ApiServerClient, ns: &str, name: &str, by: &str) {
    let claimed = |c: &Value| claiming_policy(c) == by;
    control
        .wait_until(&CONFIG_MAPS, ns, name, by, claimed)
        .await;
}

#[tokio::test]
async fn placement_edits_move_objects_and_a_deleted_policy_keeps_them() {
    let ns = "policy-edit";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    let [one, two, three] = ["member1", "member2", "member3"].map(|m| fleet.member(m));
    let object = config_map(ns, "c", "v");
    control.create(policy(ns, "p", &object, &["member1"])).await;
    control.create(object).await;
    one.wait_until_exists(&CONFIG_MAPS, ns, "c").await;

    control
        .merge_patch(
            &POLICIES,
            ns,
            "p",
            placement_patch(&["member1", "member2", "member3"]),
        )
        .await;
    two.wait_until_exists(&CONFIG_MAPS, ns, "c").await;
    three.wait_until_exists(&CONFIG_MAPS, ns, "c").await;

    control
        .merge_patch(&POLICIES, ns, "p", placement_patch(&["member2", "member3"]))
        .await;
    one.wait_until_deleted(&CONFIG_MAPS, ns, "c").await;

    control.delete(&POLICIES, ns, "p").await;
    control.wait_until_deleted(&POLICIES, ns, "p").await;
    let unclaimed = |o: &Value| {
        claiming_policy(o).is_null() && o["metadata"]["labels"][POLICY_ID_LABEL].is_null()
    };
    control
        .wait_until(&CONFIG_MAPS, ns, "c", "unclaimed", unclaimed)
        .await;
    let binding = control
        .wait_until(&BINDINGS, ns, "c-configmap", "unclaimed", unclaimed)
        .await;
    assert_eq!(binding["spec"]["clusters"].as_array().unwrap().len(), 2);
    two.get(&CONFIG_MAPS, ns, "c").await.unwrap();
    three.get(&CONFIG_MAPS, ns, "c").await.unwrap();
}

#[tokio::test]
async fn cluster_policy_for_both_scopes() {
    let ns = "cluster-policy";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "flow-reader"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    });
    let map = config_map(ns, "wide", "v");
    for object in [&role, &map] {
        let name = format!("flow-{}", object["metadata"]["name"].as_str().unwrap());
        control
            .create(cluster_scoped(policy("", &name, object, &["member2"])))
            .await;
        control.create(object.clone()).await;
    }
    let two = fleet.member("member2");
    let there = two
        .wait_until_exists(&CLUSTER_ROLES, "", "flow-reader")
        .await;
    assert_eq!(there["rules"], role["rules"]);
    two.wait_until_exists(&CONFIG_MAPS, ns, "wide").await;
    let binding = control
        .wait_until_exists(&CLUSTER_BINDINGS, "", "flow-reader-clusterrole")
        .await;
    assert!(binding["metadata"]["labels"][CLUSTER_POLICY_ID_LABEL].is_string());
    let binding = control
        .wait_until_exists(&BINDINGS, ns, "wide-configmap")
        .await;
    assert!(binding["metadata"]["labels"][CLUSTER_POLICY_ID_LABEL].is_string());

    let more = json!({"rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]});
    control
        .merge_patch(&CLUSTER_ROLES, "", "flow-reader", more.clone())
        .await;
    two.wait_until(&CLUSTER_ROLES, "", "flow-reader", "changed", |r| {
        r["rules"] == more["rules"]
    })
    .await;
    control.delete(&CLUSTER_ROLES, "", "flow-reader").await;
    two.wait_until_deleted(&CLUSTER_ROLES, "", "flow-reader")
        .await;
    for name in ["flow-flow-reader", "flow-wide"] {
        control.delete(&CLUSTER_POLICIES, "", name).await;
        control
            .wait_until_deleted(&CLUSTER_POLICIES, "", name)
            .await;
    }
}

#[tokio::test]
async fn policy_with_higher_explicit_or_implicit_priority_wins() {
    let ns = "priority";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    let with = |name: &str, priority: i64, selector: Value, cluster: &str| {
        let mut with_priority = policy(ns, name, &config_map(ns, "any", ""), &[cluster]);
        with_priority["spec"]["priority"] = json!(priority);
        with_priority["spec"]["resourceSelectors"] = json!([selector]);
        with_priority
    };
    let all = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    let labelled = json!({"apiVersion": "v1", "kind": "ConfigMap", "labelSelector": {"matchLabels": {"tier": "gold"}}});
    let named = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "named"});
    for (name, priority, selector, cluster) in [
        ("all", 0, &all, "member1"),
        ("gold", 0, &labelled, "member2"),
        ("named", 0, &named, "member3"),
        (
            "important",
            5,
            &json!({"apiVersion": "v1", "kind": "ConfigMap", "labelSelector": {"matchLabels": {"important": "yes"}}}),
            "member2",
        ),
    ] {
        control
            .create(with(name, priority, selector.clone(), cluster))
            .await;
    }
    wait_until_detector_sees(control, ns, secret(ns, "last", "v")).await;
    for (name, labels, by, cluster) in [
        ("plain", json!({}), "all", "member1"),
        ("shiny", json!({"tier": "gold"}), "gold", "member2"),
        ("named", json!({"tier": "gold"}), "named", "member3"),
        (
            "urgent",
            json!({"important": "yes", "tier": "gold"}),
            "important",
            "member2",
        ),
    ] {
        let mut object = config_map(ns, name, "v");
        object["metadata"]["labels"] = labels;
        control.create(object).await;
        wait_until_claimed(control, ns, name, by).await;
        fleet
            .member(cluster)
            .wait_until_exists(&CONFIG_MAPS, ns, name)
            .await;
    }

    // Another policy claims the template when the claiming one is deleted.
    control.delete(&POLICIES, ns, "gold").await;
    wait_until_claimed(control, ns, "shiny", "all").await;
    fleet
        .member("member1")
        .wait_until_exists(&CONFIG_MAPS, ns, "shiny")
        .await;
    fleet
        .member("member2")
        .wait_until_deleted(&CONFIG_MAPS, ns, "shiny")
        .await;
}

#[tokio::test]
async fn a_lazy_policy_waits_for_its_templates() {
    let ns = "lazy";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    let object = config_map(ns, "c", "1");
    control.create(object.clone()).await;
    // A template that the detector sees after its policy gets its binding at once.
    wait_until_detector_sees(control, ns, config_map(ns, "last", "v")).await;
    let mut lazy = policy(ns, "p", &object, &["member1"]);
    lazy["spec"]["activationPreference"] = json!("Lazy");
    control.create(lazy).await;
    wait_until_claimed(control, ns, "c", "p").await;
    assert!(control.get(&BINDINGS, ns, "c-configmap").await.is_none());

    control
        .merge_patch(&CONFIG_MAPS, ns, "c", json!({"data": {"k": "2"}}))
        .await;
    let one = fleet.member("member1");
    one.wait_until_exists(&CONFIG_MAPS, ns, "c").await;
    control
        .merge_patch(&POLICIES, ns, "p", placement_patch(&["member2"]))
        .await;
    // A policy created later shows that the edit has been processed.
    control.create(config_map(ns, "d", "1")).await;
    control
        .create(policy(ns, "q", &config_map(ns, "d", ""), &["member2"]))
        .await;
    let two = fleet.member("member2");
    two.wait_until_exists(&CONFIG_MAPS, ns, "d").await;
    one.get(&CONFIG_MAPS, ns, "c").await.unwrap();
    control
        .merge_patch(&CONFIG_MAPS, ns, "c", json!({"data": {"k": "3"}}))
        .await;
    two.wait_until(&CONFIG_MAPS, ns, "c", "moved", |c| c["data"]["k"] == "3")
        .await;
    one.wait_until_deleted(&CONFIG_MAPS, ns, "c").await;
}

#[tokio::test]
async fn a_policy_waits_for_its_overrides() {
    let ns = "dependent-overrides";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    let object = config_map(ns, "c", "1");
    let mut waiting = policy(ns, "p", &object, &["member1"]);
    waiting["spec"]["dependentOverrides"] = json!(["mark"]);
    control.create(waiting).await;
    control.create(object.clone()).await;
    // Created later, and propagated earlier.
    control.create(config_map(ns, "d", "1")).await;
    control
        .create(policy(ns, "q", &config_map(ns, "d", ""), &["member1"]))
        .await;
    let one = fleet.member("member1");
    one.wait_until_exists(&CONFIG_MAPS, ns, "d").await;
    assert!(claiming_policy(&control.get(&CONFIG_MAPS, ns, "c").await.unwrap()).is_null());
    control
        .create(json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy",
            "metadata": {"name": "mark", "namespace": ns},
            "spec": {"resourceSelectors": [resource_selector(&object)], "overrideRules": [
                {"overriders": {"plaintext": [{"path": "/data/k", "operator": "replace", "value": "2"}]}}]},
        }))
        .await;
    let there = one.wait_until_exists(&CONFIG_MAPS, ns, "c").await;
    assert_eq!(there["data"]["k"], "2", "never without its override");
}

#[tokio::test]
async fn policy_releases_templates_that_it_no_longer_selects() {
    let ns = "selects-less";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    let mut object = config_map(ns, "c", "v");
    object["metadata"]["labels"] = json!({"tier": "gold"});
    let by_label = |name: &str, tier: &str, cluster: &str| {
        let mut with_selector = policy(ns, name, &object, &[cluster]);
        with_selector["spec"]["resourceSelectors"] = json!([{"apiVersion": "v1", "kind": "ConfigMap",
            "labelSelector": {"matchLabels": {"tier": tier}}}]);
        with_selector
    };
    control.create(by_label("p", "gold", "member1")).await;
    control.create(object.clone()).await;
    let one = fleet.member("member1");
    one.wait_until_exists(&CONFIG_MAPS, ns, "c").await;
    // A template that no longer matches keeps its claim until its policy is reconciled.
    let silver = json!({"metadata": {"labels": {"tier": "silver"}}});
    control.merge_patch(&CONFIG_MAPS, ns, "c", silver).await;
    let selectors = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "other"}]);
    control
        .merge_patch(
            &POLICIES,
            ns,
            "p",
            json!({"spec": {"resourceSelectors": selectors}}),
        )
        .await;
    let unclaimed = |o: &Value| {
        claiming_policy(o).is_null() && o["metadata"]["labels"][POLICY_ID_LABEL].is_null()
    };
    control
        .wait_until(&CONFIG_MAPS, ns, "c", "unclaimed", unclaimed)
        .await;
    control
        .wait_until(&BINDINGS, ns, "c-configmap", "unclaimed", unclaimed)
        .await;
    one.get(&CONFIG_MAPS, ns, "c").await.unwrap();

    control.create(by_label("q", "silver", "member2")).await;
    fleet
        .member("member2")
        .wait_until_exists(&CONFIG_MAPS, ns, "c")
        .await;
    one.wait_until_deleted(&CONFIG_MAPS, ns, "c").await;
    wait_until_claimed(control, ns, "c", "q").await;
}

#[tokio::test]
async fn bindings_have_the_priority_of_their_class() {
    let ns = "priority-class";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    let object = config_map(ns, "c", "v");
    let mut important = policy(ns, "p", &object, &["member1"]);
    important["spec"]["schedulePriority"] =
        json!({"priorityClassSource": "KubePriorityClass", "priorityClassName": "flow-high"});
    control.create(important).await;
    control.create(object).await;
    let missing = r#"Apply policy(priority-class/p) failed: PriorityClass.scheduling.k8s.io "flow-high" not found"#;
    let has_event = async || {
        let events = control.list(&EVENTS, ns).await;
        events
            .iter()
            .any(|e| e["reason"] == "ApplyPolicyFailed" && e["message"] == missing)
    };
    wait_until(missing, has_event).await;
    assert!(control.get(&BINDINGS, ns, "c-configmap").await.is_none());
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": "flow-high"}, "value": 1000});
    control.create(class).await;
    let binding = control
        .wait_until_exists(&BINDINGS, ns, "c-configmap")
        .await;
    assert_eq!(
        binding["spec"]["schedulePriority"],
        json!({"priority": 1000})
    );
    fleet
        .member("member1")
        .wait_until_exists(&CONFIG_MAPS, ns, "c")
        .await;
    control.delete(&PRIORITY_CLASSES, "", "flow-high").await;
}
