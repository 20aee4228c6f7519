//! Fields of propagated objects that controllers of a member set, too.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use machinery::Gvr;
use serde_json::{Value, json};

use crate::flow::fleet::{ApiServerClient, FleetFixture, find_condition};
use crate::flow::objects::{
    CLUSTER_ROLES, CONFIG_MAPS, DEFINITIONS, VALIDATING_WEBHOOKS, WORKS, cluster_scoped,
    config_map, execution_space, policy,
};

/// Propagates a cluster-scoped object to the first member, and waits for it there.
async fn propagate(fleet: &FleetFixture, resource: &Gvr, object: &Value) {
    let name = object["metadata"]["name"].as_str().unwrap();
    let policy = cluster_scoped(policy("", name, object, &["member1"]));
    fleet.control.create(policy).await;
    fleet.control.create(object.clone()).await;
    let one = fleet.member("member1");
    one.wait_until_exists(resource, "", name).await;
}

async fn condition_of_work(control: &ApiServerClient, object: &Value, kind: &str) -> Value {
    let name = object["metadata"]["name"].as_str().unwrap();
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or("");
    let kind_name = object["kind"].as_str().unwrap();
    let work = karmada_api::names::work_name(kind_name, name, namespace);
    let work = control
        .get(&WORKS, &execution_space("member1"), &work)
        .await;
    find_condition(&work.unwrap(), kind).clone()
}

// proves: NAT-aggregated-role, EXE-repair-backoff
#[tokio::test]
async fn the_rules_of_an_aggregated_role_are_the_members() {
    let fleet = FleetFixture::shared("aggregated-role").await;
    let one = fleet.member("member1");
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "flow-aggregated"}, "rules": [],
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"flow-part": "yes"}}]}});
    propagate(&fleet, &CLUSTER_ROLES, &role).await;
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    one.create(
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "flow-part", "labels": {"flow-part": "yes"}}, "rules": rules}),
    )
    .await;
    let aggregated = one
        .wait_until(&CLUSTER_ROLES, "", "flow-aggregated", "aggregated", |r| {
            r["rules"] == rules
        })
        .await;
    // An edit of the template leaves them alone, and no write follows.
    let edit = json!({"metadata": {"labels": {"edited": "yes"}}});
    fleet
        .control
        .merge_patch(&CLUSTER_ROLES, "", "flow-aggregated", edit)
        .await;
    let edited = one
        .wait_until(&CLUSTER_ROLES, "", "flow-aggregated", "edited", |r| {
            r["metadata"]["labels"]["edited"] == "yes"
        })
        .await;
    assert_eq!(edited["rules"], aggregated["rules"]);
    let conflict = condition_of_work(&fleet.control, &role, "FieldConflict").await;
    assert_eq!(conflict, Value::Null);
}

// proves: EXE-three-way, EXE-exact
#[tokio::test]
async fn an_edit_of_the_template_keeps_what_the_member_added() {
    let fleet = FleetFixture::shared("kept-bundle").await;
    let one = fleet.member("member1");
    let name = "flows.fields.example.com";
    let client_config = json!({"service": {"name": "s", "namespace": "nowhere", "path": "/c"}});
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": name}, "spec": {
            "group": "fields.example.com", "scope": "Namespaced",
            "names": {"kind": "Flow", "plural": "flows", "singular": "flow", "shortNames": ["fl"]},
            "conversion": {"strategy": "Webhook", "webhook": {
                "clientConfig": client_config, "conversionReviewVersions": ["v1"]}},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}});
    propagate(&fleet, &DEFINITIONS, &definition).await;
    let bundle = ca_bundle(one).await;
    let inject =
        json!({"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": bundle}}}}});
    one.merge_patch(&DEFINITIONS, "", name, inject).await;
    let edit =
        json!({"metadata": {"labels": {"edited": "yes"}}, "spec": {"names": {"shortNames": null}}});
    fleet
        .control
        .merge_patch(&DEFINITIONS, "", name, edit)
        .await;
    let edited = one
        .wait_until(&DEFINITIONS, "", name, "edited", |d| {
            d["metadata"]["labels"]["edited"] == "yes"
        })
        .await;
    let webhook = &edited["spec"]["conversion"]["webhook"];
    assert_eq!(webhook["clientConfig"]["caBundle"], json!(bundle));
    assert_eq!(
        edited["spec"]["names"]["shortNames"],
        Value::Null,
        "what the template used to set goes"
    );
}

// proves: NAT-injected-bundle
#[tokio::test]
async fn an_injected_bundle_replaces_the_placeholder_of_the_template() {
    let fleet = FleetFixture::shared("injected-bundle").await;
    let one = fleet.member("member1");
    let hook = |bundle: &str| {
        json!({"name": "a.fields.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"url": "https://localhost:1/", "caBundle": bundle}})
    };
    let hooks = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "flow-injected"}, "webhooks": [hook("Cg==")]});
    propagate(&fleet, &VALIDATING_WEBHOOKS, &hooks).await;
    let bundle = ca_bundle(one).await;
    let inject = json!({"webhooks": [hook(&bundle)]});
    let injected = one
        .merge_patch(&VALIDATING_WEBHOOKS, "", "flow-injected", inject)
        .await;
    let edit = json!({"metadata": {"labels": {"edited": "yes"}}});
    fleet
        .control
        .merge_patch(&VALIDATING_WEBHOOKS, "", "flow-injected", edit)
        .await;
    let edited = one
        .wait_until(&VALIDATING_WEBHOOKS, "", "flow-injected", "edited", |w| {
            w["metadata"]["labels"]["edited"] == "yes"
        })
        .await;
    assert_eq!(edited["webhooks"], injected["webhooks"]);
}

/// An object that somebody in the member changes back after every repair.
// proves: EXE-repair-backoff, EXE-repair-condition
#[tokio::test]
async fn a_contested_field_is_reported_and_repaired_rarely() {
    let ns = "contested";
    let fleet = FleetFixture::shared(ns).await;
    let (control, one) = (&fleet.control, fleet.member("member1"));
    let map = config_map(ns, "contested", "ours");
    control.create(policy(ns, "p", &map, &["member1"])).await;
    control.create(map.clone()).await;
    let mut undone = 0;
    let conflict = loop {
        one.wait_until(&CONFIG_MAPS, ns, "contested", "repaired", |c| {
            c["data"]["k"] == "ours"
        })
        .await;
        let conflict = condition_of_work(control, &map, "FieldConflict").await;
        if conflict["status"] == "True" {
            break conflict;
        }
        undone += 1;
        let member_change = json!({"data": {"k": "theirs"}});
        one.merge_patch(&CONFIG_MAPS, ns, "contested", member_change)
            .await;
    };
    assert!(undone <= 4, "undone {undone} times before it was reported");
    assert_eq!(conflict["reason"], "RepairsUndone");
    let text = "ConfigMap contested/contested: field .data.k is changed back by test-client";
    assert_eq!(conflict["message"], text);
}

/// A CA bundle that a member has.
async fn ca_bundle(member: &ApiServerClient) -> String {
    let root = member
        .wait_until_exists(&CONFIG_MAPS, "default", "kube-root-ca.crt")
        .await;
    STANDARD.encode(root["data"]["ca.crt"].as_str().unwrap())
}
