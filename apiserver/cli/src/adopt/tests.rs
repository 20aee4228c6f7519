//! Tests of adoptions with a control plane and a member in memory.

use std::sync::Arc;
use std::time::Duration;

use client::ApiResource;
use client_fake::FakeApi;
use karmada_api::resources::{CLUSTERS, POLICIES};
use machinery::Gvr;
use serde_json::{Value, json};

use super::report::{AdoptionReport, AdoptionResult};
use super::{AdoptionRequest, adopt};
use crate::field_differences::field_differences;

static NAMESPACES: Gvr = Gvr::from_static("", "v1", "namespaces");
static CONFIG_MAPS: Gvr = Gvr::from_static("", "v1", "configmaps");
static WIDGETS: Gvr = Gvr::from_static("example.io", "v1", "widgets");

fn resource(gvr: &Gvr, kind: &str, namespaced: bool) -> ApiResource {
    ApiResource {
        resource: gvr.clone(),
        kind: kind.to_owned(),
        namespaced,
        verbs: ["list", "watch", "create", "delete"]
            .map(str::to_owned)
            .into(),
        subresources: vec![],
        categories: vec![],
        short_names: vec![],
    }
}

fn config_map(name: &str, color: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "shop", "name": name, "uid": format!("uid-{name}")},
        "data": {"color": color}})
}

/// A member with a namespace `shop`, and a control plane that serves no Widgets.
fn fixture() -> (Arc<FakeApi>, Arc<FakeApi>) {
    let (control, member) = (FakeApi::new(), FakeApi::new());
    for api in [&control, &member] {
        api.add_resource(resource(&NAMESPACES, "Namespace", false));
        api.add_resource(resource(&CONFIG_MAPS, "ConfigMap", true));
    }
    member.add_resource(resource(&WIDGETS, "Widget", true));
    for name in ["m1", "m2"] {
        control.seed(
            &CLUSTERS,
            json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
                "metadata": {"name": name}, "spec": {"syncMode": "Push"}}),
        );
    }
    for name in ["shop", "kube-system", "karmada-cluster"] {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        member.seed(&NAMESPACES, namespace);
    }
    (control, member)
}

async fn run(
    control: &FakeApi,
    member: &FakeApi,
    change: impl Fn(&mut AdoptionRequest<'_>),
) -> AdoptionReport {
    let mut request = AdoptionRequest {
        cluster: "m1",
        namespace: Some("shop"),
        allow_changes: false,
        dry_run: false,
        timeout: Duration::ZERO,
    };
    change(&mut request);
    adopt(control, member, &request).await.unwrap()
}

fn result(report: &AdoptionReport, name: &str) -> AdoptionResult {
    let mut rows = report.objects.iter();
    rows.find(|row| row.name == name).unwrap().result
}

fn cluster_names(control: &FakeApi) -> Value {
    let policies = control.list_objects(&POLICIES);
    assert_eq!(policies.len(), 1, "{policies:?}");
    policies[0]["spec"]["placement"]["clusterAffinity"]["clusterNames"].clone()
}

// proves: ADO-equal, ADO-skipped, ADO-repeated
#[tokio::test]
async fn objects_become_templates_with_policies() {
    let (control, member) = fixture();
    member.seed(&CONFIG_MAPS, config_map("settings", "red"));
    member.seed(&CONFIG_MAPS, config_map("kube-root-ca.crt", "x"));
    let mut owned = config_map("owned", "x");
    owned["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Pod",
        "name": "p", "uid": "u", "controller": true}]);
    member.seed(&CONFIG_MAPS, owned);
    member.seed(
        &WIDGETS,
        json!({"apiVersion": "example.io/v1", "kind": "Widget",
            "metadata": {"namespace": "shop", "name": "w", "uid": "w"}}),
    );
    let dry = run(&control, &member, |request| request.dry_run = true).await;
    assert_eq!(result(&dry, "settings"), AdoptionResult::Adoptable);
    assert!(control.writes().is_empty());

    let report = run(&control, &member, |_| {}).await;
    let table = [
        ("shop", AdoptionResult::Pending),
        ("settings", AdoptionResult::Pending),
        ("kube-root-ca.crt", AdoptionResult::Skipped),
        ("owned", AdoptionResult::Skipped),
        ("w", AdoptionResult::Skipped),
    ];
    for (name, expected) in table {
        assert_eq!(result(&report, name), expected, "{name}: {report:?}");
    }
    assert!(member.writes().is_empty());
    let template = control
        .get_object(&CONFIG_MAPS, "shop", "settings")
        .unwrap();
    assert_eq!(template["data"]["color"], "red");
    assert_ne!(template["metadata"]["uid"], "uid-settings");
    assert_eq!(cluster_names(&control), json!(["m1"]));
    let namespace = control.get_object(&NAMESPACES, "", "shop").unwrap();
    let label = &namespace["metadata"]["labels"]["namespace.karmada.io/skip-auto-propagation"];
    assert_eq!(label, "true");

    // A repeated adoption completes an interrupted one.
    control.remove(&CONFIG_MAPS, "shop", "settings");
    run(&control, &member, |_| {}).await;
    assert!(
        control
            .get_object(&CONFIG_MAPS, "shop", "settings")
            .is_some()
    );
    control.clear_writes();
    run(&control, &member, |_| {}).await;
    assert!(control.writes().is_empty());
}

// proves: ADO-equal, ADO-second-member
#[tokio::test]
async fn an_object_that_differs_is_adopted_only_if_changes_are_allowed() {
    let (control, member) = fixture();
    member.seed(&CONFIG_MAPS, config_map("settings", "red"));
    run(&control, &member, |_| {}).await;
    let (_, other) = fixture();
    other.seed(&CONFIG_MAPS, config_map("settings", "blue"));
    let report = run(&control, &other, |request| request.cluster = "m2").await;
    assert_eq!(result(&report, "settings"), AdoptionResult::Different);
    assert!(!report.is_complete());
    let text = report.text(false);
    assert!(text.contains("data.color: \"blue\" -> \"red\""), "{text}");
    assert_eq!(cluster_names(&control), json!(["m1"]));

    run(&control, &other, |request| {
        request.cluster = "m2";
        request.allow_changes = true;
    })
    .await;
    assert_eq!(cluster_names(&control), json!(["m1", "m2"]));
}

// proves: ADO-cluster
#[tokio::test]
async fn the_namespaces_of_the_system_are_left_out() {
    let (control, member) = fixture();
    let mut system = config_map("settings", "red");
    system["metadata"]["namespace"] = json!("kube-system");
    member.seed(&CONFIG_MAPS, system);
    let report = run(&control, &member, |request| request.namespace = None).await;
    let names: Vec<&str> = report.objects.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["shop"]);
    let request = AdoptionRequest {
        cluster: "m1",
        namespace: Some("kube-system"),
        allow_changes: false,
        dry_run: false,
        timeout: Duration::ZERO,
    };
    let error = adopt(&*control, &*member, &request).await.unwrap_err();
    assert!(
        error.to_string().contains("belongs to the system"),
        "{error}"
    );
}

// proves: ADO-differences
#[test]
fn differences_name_fields_and_hide_secrets() {
    let object = |more: Value| {
        let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "uid": "u", "labels": {"karmada.io/managed": "true"}}});
        for (key, value) in more.as_object().unwrap() {
            object[key] = value.clone();
        }
        object
    };
    let check = |member: Value, work: Value, expected: &[&str]| {
        let differences = field_differences(&object(member), &object(work));
        let lines: Vec<String> = differences.iter().map(ToString::to_string).collect();
        assert_eq!(lines, expected);
    };
    check(json!({"data": {}}), json!({"status": {"a": 1}}), &[]);
    check(
        json!({"a": [{"b": 1}, 2]}),
        json!({"a": [{"b": 3}, 2]}),
        &["a[0].b: 1 -> 3"],
    );
    check(
        json!({"a": [1]}),
        json!({"a": [1, 2], "x.y/z": true}),
        &["a: [1] -> [1,2]", "[\"x.y/z\"]: (absent) -> true"],
    );
    check(
        json!({"metadata": {"labels": {"app": "web"}}}),
        json!({"metadata": {"annotations": {"work.karmada.io/conflict-resolution": "overwrite"}}}),
        &["metadata.labels: {\"app\":\"web\"} -> (absent)"],
    );
    check(
        json!({"kind": "Secret", "data": {"key": "eA=="}}),
        json!({"kind": "Secret", "data": {"key": "eQ=="}}),
        &["data.key: \"(hidden)\" -> \"(hidden)\""],
    );
}
