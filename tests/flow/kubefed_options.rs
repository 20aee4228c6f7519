//! Options of KubeFed: kinds that are switched while the control plane runs, namespaces that
//! gate their contents, and objects that a member keeps for itself.

use serde_json::{Value, json};

use crate::flow::fleet::{FleetFixture, run_with_kubeconfig, wait_until};
use crate::flow::objects::{
    BINDINGS, CLUSTER_POLICIES, CONFIG_MAPS, FEDERATED_TYPE_CONFIGS, NAMESPACES, ROLES, WORKS,
    cluster_scoped, config_map, execution_space, policy,
};

const SYSTEM: &str = "kube-federation-system";

fn type_config(namespace: &str, name: &str, propagation: &str) -> Value {
    let resource = |group: &str, kind: &str| {
        json!({"group": group, "version": "v1", "kind": kind,
            "pluralName": format!("{}s", kind.to_lowercase()), "scope": "Namespaced"})
    };
    json!({"apiVersion": "core.kubefed.io/v1beta1", "kind": "FederatedTypeConfig",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"targetType": resource("rbac.authorization.k8s.io", "Role"),
            "federatedType": resource("types.kubefed.io", "FederatedRole"),
            "propagation": propagation}})
}

fn role(namespace: &str, verb: &str) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "r", "namespace": namespace},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}]})
}

// proves: DET-type-config-off, DET-type-config-on, DET-type-config-status, ADM-type-config
#[tokio::test]
async fn a_kind_is_switched_off_and_on() {
    let fleet = FleetFixture::shared("switched-kind").await;
    let control = &fleet.control;
    control.create_namespace(SYSTEM).await;
    for (namespace, name, field) in [
        (
            "switched-kind",
            "roles.rbac.authorization.k8s.io",
            "metadata.namespace",
        ),
        (SYSTEM, "roles", "metadata.name"),
        (
            SYSTEM,
            "roles.rbac.authorization.k8s.io",
            "spec.propagation",
        ),
    ] {
        let propagation = if field == "spec.propagation" {
            "Sometimes"
        } else {
            "Enabled"
        };
        let rejection = control
            .try_create(type_config(namespace, name, propagation))
            .await;
        let rejection = rejection.unwrap_err().to_string();
        assert!(rejection.contains(field), "{rejection}");
    }
    let template = role("switched-kind", "get");
    control.create(template.clone()).await;
    control
        .create(policy("switched-kind", "p", &template, &["member1"]))
        .await;
    let verb = async || {
        let copy = fleet
            .member("member1")
            .get(&ROLES, "switched-kind", "r")
            .await;
        copy.unwrap_or_default()["rules"][0]["verbs"][0].clone()
    };
    wait_until("the role", async || verb().await == "get").await;
    let name = "roles.rbac.authorization.k8s.io";
    control.create(type_config(SYSTEM, name, "Disabled")).await;
    let wait_for_state = |expected: &'static str| async move {
        control
            .wait_until(
                &FEDERATED_TYPE_CONFIGS,
                SYSTEM,
                name,
                expected,
                move |config| {
                    config["status"]["propagationController"] == expected
                        && config["status"]["observedGeneration"]
                            == config["metadata"]["generation"]
                },
            )
            .await;
    };
    wait_for_state("NotRunning").await;
    let edit = json!({"rules": role("switched-kind", "list")["rules"]});
    control
        .merge_patch(&ROLES, "switched-kind", "r", edit)
        .await;
    // A second template shows that the detector has had its turn.
    let marker = config_map("switched-kind", "marker", "x");
    control.create(marker.clone()).await;
    control
        .create(policy("switched-kind", "q", &marker, &["member1"]))
        .await;
    fleet
        .member("member1")
        .wait_until_exists(&CONFIG_MAPS, "switched-kind", "marker")
        .await;
    assert_eq!(verb().await, "get");
    let arguments = ["why", "role", "r", "-n", "switched-kind"];
    let (_, text) = run_with_kubeconfig(&fleet.kubeconfig(), &arguments).await;
    assert!(
        text.contains("switches the propagation of Role off"),
        "{text}"
    );
    let enabled = json!({"spec": {"propagation": "Enabled"}});
    control
        .merge_patch(&FEDERATED_TYPE_CONFIGS, SYSTEM, name, enabled)
        .await;
    wait_until("the edit", async || verb().await == "list").await;
    wait_for_state("Running").await;
    control.delete(&FEDERATED_TYPE_CONFIGS, SYSTEM, name).await;
}

// proves: DET-namespace-gate, DET-namespace-gate-changes, EXE-left-alone, EXE-left-alone-condition
#[tokio::test]
async fn a_namespace_gates_its_contents_and_a_member_keeps_an_object() {
    let fleet = FleetFixture::shared("gate-marker").await;
    let control = &fleet.control;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gated",
        "labels": {"namespace.karmada.io/skip-auto-propagation": "true"},
        "annotations": {"flotilla.io/namespace-gate": "true"}}});
    control.create(namespace.clone()).await;
    control
        .create(cluster_scoped(policy(
            "",
            "gated",
            &namespace,
            &["member1", "member2"],
        )))
        .await;
    let map = config_map("gated", "c", "v");
    control.create(map.clone()).await;
    control
        .create(policy("gated", "p", &map, &["member2", "member3"]))
        .await;
    let clusters = async || {
        let binding = control.get(&BINDINGS, "gated", "c-configmap").await;
        let binding = binding.unwrap_or_default();
        let placement = binding["spec"]["placement"]["clusterAffinity"]["clusterNames"].clone();
        (placement, binding["spec"]["clusters"][0]["name"].clone())
    };
    wait_until("the gate", async || {
        clusters().await == (json!(["member2"]), json!("member2"))
    })
    .await;
    let second = fleet.member("member2");
    second.wait_until_exists(&CONFIG_MAPS, "gated", "c").await;
    let keep =
        json!({"metadata": {"labels": {"kubefed.io/managed": "false"}}, "data": {"k": "own"}});
    second.merge_patch(&CONFIG_MAPS, "gated", "c", keep).await;
    wait_until("the condition of the Work", async || {
        let works = control.list(&WORKS, &execution_space("member2")).await;
        works.iter().any(|work| {
            let conditions = work["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            conditions.any(|c| {
                let message = c["message"].as_str().unwrap_or_default();
                c["reason"] == "ManagedLabelFalse" && message.contains("gated/c")
            })
        })
    })
    .await;
    let copy = second.get(&CONFIG_MAPS, "gated", "c").await.unwrap();
    assert_eq!(copy["data"]["k"], "own");
    let open = json!({"metadata": {"labels": {"kubefed.io/managed": null}}});
    second.merge_patch(&CONFIG_MAPS, "gated", "c", open).await;
    wait_until("the repair", async || {
        let copy = second.get(&CONFIG_MAPS, "gated", "c").await;
        copy.unwrap_or_default()["data"] == map["data"]
    })
    .await;
    // The cluster is taken from the namespace: it is emptied, and the binding goes nowhere.
    let one = json!({"spec": {"placement": {"clusterAffinity": {"clusterNames": ["member1"]}}}});
    control
        .merge_patch(&CLUSTER_POLICIES, "", "gated", one)
        .await;
    second.wait_until_deleted(&NAMESPACES, "", "gated").await;
    wait_until("no cluster", async || {
        clusters().await == (Value::Null, Value::Null)
    })
    .await;
    let arguments = ["why", "configmap", "c", "-n", "gated"];
    let (_, text) = run_with_kubeconfig(&fleet.kubeconfig(), &arguments).await;
    assert!(
        text.contains("Gate:       the namespace lets it go only to member1"),
        "{text}"
    );
}
