//! Tests of the levels together: scripts of customizations before the native rules.

use std::collections::BTreeSet;

use jiff::Timestamp;
use karmada_api::binding::AggregatedStatusItem;
use machinery::{Gvk, Object};
use serde_json::{Value, json};

use crate::native::fixtures::object;
use crate::{LuaLimits, ResourceInterpreter};

fn customization(name: &str, scripts: &[(&str, &str)]) -> Object {
    customization_of(name, "example.io/v1", "Thing", scripts)
}

fn customization_of(name: &str, api_version: &str, kind: &str, scripts: &[(&str, &str)]) -> Object {
    let scripts = scripts.iter().map(|(operation, script)| {
        let script = json!({"luaScript": script});
        ((*operation).to_owned(), script)
    });
    object(json!({"metadata": {"name": name},
        "spec": {"target": {"apiVersion": api_version, "kind": kind},
                 "customizations": Value::Object(scripts.collect())}}))
}

fn interpreter_with(all: &[Object]) -> ResourceInterpreter {
    ResourceInterpreter::from_customizations(all, LuaLimits::default())
}

fn interpreter_with_scripts(scripts: &[(&str, &str)]) -> ResourceInterpreter {
    interpreter_with(&[customization("mine", scripts)])
}

fn thing() -> Gvk {
    Gvk::from_static("example.io", "v1", "Thing")
}

fn aggregated_item(cluster: &str, status: Value) -> AggregatedStatusItem {
    AggregatedStatusItem {
        cluster_name: cluster.into(),
        status: (!status.is_null()).then_some(status),
        applied: true,
        ..AggregatedStatusItem::default()
    }
}

// proves: INT-lua-first, INT-per-operation
#[tokio::test]
async fn script_precedes_the_native_rule_of_its_operation_only() {
    let scripts = [(
        "replicaResource",
        "function GetReplicas(obj) return obj.spec.replicas * 2 end",
    )];
    let interpreter =
        interpreter_with(&[customization_of("mine", "apps/v1", "Deployment", &scripts)]);
    let kind = Gvk::from_static("apps", "v1", "Deployment");
    let deployment = object(json!({"metadata": {"name": "a", "generation": 1},
        "spec": {"replicas": 2, "template": {"spec": {"containers": []}}},
        "status": {"observedGeneration": 1, "updatedReplicas": 2, "availableReplicas": 2}}));
    let replicas = interpreter
        .replicas(&kind, &deployment)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(replicas.count, 4);
    assert_eq!(
        interpreter
            .interpret_health(&kind, &deployment)
            .await
            .unwrap(),
        Some(true)
    );
    let revised = interpreter
        .revise_replica(&kind, json!({"spec": {"replicas": 2}}), 5)
        .await;
    assert_eq!(revised.unwrap(), json!({"spec": {"replicas": 5}}));
    // A customization applies to one version of a kind only.
    let beta = Gvk::from_static("apps", "v1beta1", "Deployment");
    let replicas = interpreter
        .replicas(&beta, &deployment)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(replicas.count, 2);
    // The error of a script is returned; no other level is tried.
    let broken = [(
        "replicaResource",
        "function GetReplicas(obj) return obj.no.where end",
    )];
    let interpreter =
        interpreter_with(&[customization_of("broken", "apps/v1", "Deployment", &broken)]);
    let error = interpreter
        .replicas(&kind, &deployment)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("ResourceInterpreterCustomization broken: GetReplicas: script:1:"),
        "{error}"
    );
    assert!(
        interpreter
            .components(&kind, &deployment)
            .await
            .unwrap()
            .is_none()
    );
}

// proves: LUA-replicas
#[tokio::test]
async fn replicas_and_what_they_require() {
    let bare = object(json!({"metadata": {"name": "a"}}));
    for (body, count, requirements) in [
        ("return 3", 3, Value::Null),
        ("return 2.9, nil", 2, Value::Null),
        ("return 0, {}", 0, json!({})),
        (
            "return 1, {resourceRequest = {cpu = '0.5', memory = 1024}, nodeClaim = {nodeSelector = {a = 'b'}}}",
            1,
            json!({"resourceRequest": {"cpu": "500m", "memory": "1024"}, "nodeClaim": {"nodeSelector": {"a": "b"}}}),
        ),
    ] {
        let script = format!("function GetReplicas(obj) {body} end");
        let interpreter = interpreter_with_scripts(&[("replicaResource", &script)]);
        let actual = interpreter
            .replicas(&thing(), &bare)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(actual.count, count, "{body}");
        assert_eq!(json!(actual.requirements), requirements, "{body}");
    }
    for (body, reason) in [
        ("", "type is number but got nil"),
        ("return '3'", "type is number but got string"),
        ("return 1, 2", "type is table but got number"),
        (
            "return 1, {resourceRequest = {cpu = 'many'}}",
            "resourceRequest: cpu",
        ),
        ("return 1, {resourceRequest = {1}}", "resourceRequest"),
    ] {
        let script = format!("function GetReplicas(obj) {body} end");
        let interpreter = interpreter_with_scripts(&[("replicaResource", &script)]);
        let error = interpreter
            .replicas(&thing(), &bare)
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains(reason), "{body}: {error}");
    }
}

// proves: LUA-components
#[tokio::test]
async fn components_come_sorted_by_name() {
    let job = object(json!({"metadata": {"name": "a"}, "spec": {"roles": [
        {"name": "worker", "replicas": 3, "cpu": "1"}, {"name": "master", "replicas": 1}]}}));
    let script = "function GetComponents(obj)
        local all = {}
        for _, role in ipairs(obj.spec.roles) do
            local one = {name = role.name, replicas = role.replicas}
            if role.cpu then one.replicaRequirements = {resourceRequest = {cpu = role.cpu}} end
            table.insert(all, one)
        end
        return all
    end";
    let interpreter = interpreter_with_scripts(&[("componentResource", script)]);
    let actual = interpreter.components(&thing(), &job).await.unwrap();
    assert_eq!(
        json!(actual),
        json!([{"name": "master", "replicas": 1},
               {"name": "worker", "replicas": 3, "replicaRequirements": {"resourceRequest": {"cpu": "1"}}}])
    );
    for body in ["return nil", "return {}", ""] {
        let script = format!("function GetComponents(obj) {body} end");
        let interpreter = interpreter_with_scripts(&[("componentResource", &script)]);
        assert_eq!(
            interpreter.components(&thing(), &job).await.unwrap(),
            Some(vec![]),
            "{body}"
        );
    }
    for body in [
        "return 1",
        "return {{name = 1}}",
        "return {{replicaRequirements = 1}}",
    ] {
        let script = format!("function GetComponents(obj) {body} end");
        let interpreter = interpreter_with_scripts(&[("componentResource", &script)]);
        assert!(
            interpreter.components(&thing(), &job).await.is_err(),
            "{body}"
        );
    }
}

// proves: LUA-revise, LUA-retain
#[tokio::test]
async fn objects_are_revised_and_retain_with_their_empty_fields() {
    let interpreter = interpreter_with_scripts(&[
        (
            "replicaRevision",
            "function ReviseReplica(obj, replicas) obj.spec.parallel = replicas obj.spec.new = {} return obj end",
        ),
        (
            "retention",
            "function Retain(desired, observed) desired.spec.node = observed.spec.node desired.spec.opts = observed.spec.opts return desired end",
        ),
    ]);
    let copy = json!({"spec": {"parallel": 1, "volume": {"emptyDir": {}}, "args": []}});
    let revised = interpreter
        .revise_replica(&thing(), copy.clone(), 7)
        .await
        .unwrap();
    assert_eq!(
        revised,
        json!({"spec": {"parallel": 7, "volume": {"emptyDir": {}}, "args": []}})
    );
    let observed = json!({"spec": {"node": "n1", "opts": {}}});
    let retained = interpreter.retain(&thing(), copy, &observed).await.unwrap();
    assert_eq!(
        retained,
        json!({"spec": {"parallel": 1, "volume": {"emptyDir": {}}, "args": [], "node": "n1", "opts": {}}})
    );
    for body in ["return nil", "return 'x'", "return {1}", ""] {
        let script = format!("function Retain(desired, observed) {body} end");
        let interpreter = interpreter_with_scripts(&[("retention", &script)]);
        let error = interpreter
            .retain(&thing(), json!({"a": 1}), &json!({}))
            .await;
        assert!(error.is_err(), "{body}");
    }
}

// proves: LUA-status, LUA-health, LUA-aggregate
#[tokio::test]
async fn status_and_health_of_a_custom_kind() {
    let interpreter = interpreter_with_scripts(&[
        (
            "statusReflection",
            "function ReflectStatus(obj) if obj.status == nil then return {} end return {ready = obj.status.ready} end",
        ),
        (
            "healthInterpretation",
            "function InterpretHealth(obj) return obj.status.ready == obj.spec.size end",
        ),
        (
            "statusAggregation",
            "function AggregateStatus(obj, items)
                obj.status = {ready = 0, clusters = {}}
                for _, item in ipairs(items) do
                    if item.status ~= nil then obj.status.ready = obj.status.ready + item.status.ready end
                    if item.applied then table.insert(obj.status.clusters, item.clusterName) end
                end
                return obj
            end",
        ),
    ]);
    let of = |status: Value| {
        object(json!({"metadata": {"name": "a"}, "spec": {"size": 2}, "status": status}))
    };
    let now = Timestamp::UNIX_EPOCH;
    let full = of(json!({"ready": 2, "phase": "x"}));
    assert_eq!(
        interpreter.reflect_status(&thing(), &full).await.unwrap(),
        Some(json!({"ready": 2}))
    );
    assert_eq!(
        interpreter.interpret_health(&thing(), &full).await.unwrap(),
        Some(true)
    );
    let part = of(json!({"ready": 1}));
    assert_eq!(
        interpreter.interpret_health(&thing(), &part).await.unwrap(),
        Some(false)
    );
    let none = of(Value::Null);
    assert_eq!(
        interpreter.reflect_status(&thing(), &none).await.unwrap(),
        Some(json!({}))
    );
    assert!(interpreter.interpret_health(&thing(), &none).await.is_err());
    let none_scheduled = BTreeSet::new();
    let items = [
        aggregated_item("m1", json!({"ready": 2})),
        aggregated_item("m2", Value::Null),
        aggregated_item("m3", json!({"ready": 1})),
    ];
    assert_eq!(
        interpreter
            .aggregate_status(&thing(), &full, &items, &none_scheduled, now)
            .await
            .unwrap(),
        Some(json!({"ready": 3, "clusters": ["m1", "m2", "m3"]}))
    );
    assert_eq!(
        interpreter
            .aggregate_status(&thing(), &full, &[], &none_scheduled, now)
            .await
            .unwrap(),
        Some(json!({"ready": 0})),
        "an empty list in no reference is pruned"
    );
}

// proves: LUA-dependencies
#[tokio::test]
async fn dependencies_of_all_customizations_are_joined_sorted_and_verified() {
    let script = |names: &[&str]| {
        let refs = names.iter().map(|name| {
            format!("{{apiVersion = 'v1', kind = 'Secret', namespace = 'n', name = '{name}'}},")
        });
        format!(
            "function GetDependencies(obj) return {{ {} }} end",
            refs.collect::<String>()
        )
    };
    let (first, second) = (script(&["z", "b"]), script(&["a", "b"]));
    let interpreter = interpreter_with(&[
        customization("x", &[("dependencyInterpretation", &first)]),
        customization("y", &[("dependencyInterpretation", &second)]),
    ]);
    let bare = object(json!({"metadata": {"name": "a"}}));
    let actual = interpreter
        .dependencies(&thing(), &bare)
        .await
        .unwrap()
        .unwrap();
    let names: Vec<&str> = actual.iter().map(|d| d.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "z"]);
    for (body, reason) in [
        (
            "return {{kind = 'Secret', name = 'a'}}",
            "dependencies[0].apiVersion",
        ),
        (
            "return {{apiVersion = 'v1', name = 'a'}}",
            "dependencies[0].kind",
        ),
        (
            "return {{apiVersion = 'v1', kind = 'Secret'}}",
            "name and labelSelector all empty",
        ),
        ("return nil", "type is table but got nil"),
        ("return {a = 1}", ""),
    ] {
        let script = format!("function GetDependencies(obj) {body} end");
        let interpreter = interpreter_with_scripts(&[("dependencyInterpretation", &script)]);
        let error = interpreter
            .dependencies(&thing(), &bare)
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains(reason), "{body}: {error}");
    }
    let selected = "function GetDependencies(obj)
        return {{apiVersion = 'v1', kind = 'Secret', namespace = 'n', labelSelector = {matchLabels = {app = 'a'}}}} end";
    let interpreter = interpreter_with_scripts(&[("dependencyInterpretation", selected)]);
    let actual = interpreter.dependencies(&thing(), &bare).await.unwrap();
    assert_eq!(
        json!(actual),
        json!([{"apiVersion": "v1", "kind": "Secret", "namespace": "n", "labelSelector": {"matchLabels": {"app": "a"}}}])
    );
}

// proves: INT-identity
#[tokio::test]
async fn an_operation_returns_the_object_that_it_was_given() {
    let copy = json!({"apiVersion": "example.io/v1", "kind": "Thing", "metadata": {"name": "a", "namespace": "n"}});
    for (statement, path) in [
        ("obj.apiVersion = 'v1'", "/apiVersion"),
        ("obj.kind = 'Secret'", "/kind"),
        (
            "obj.metadata.namespace = 'kube-system'",
            "/metadata/namespace",
        ),
        ("obj.metadata.name = nil", "/metadata/name"),
        ("obj.metadata = nil", "/metadata/namespace"),
    ] {
        let retain = format!("function Retain(obj, observed) {statement} return obj end");
        let revise = format!("function ReviseReplica(obj, replicas) {statement} return obj end");
        let interpreter =
            interpreter_with_scripts(&[("retention", &retain), ("replicaRevision", &revise)]);
        for (operation, returned) in [
            (
                "Retain",
                interpreter.retain(&thing(), copy.clone(), &json!({})).await,
            ),
            (
                "ReviseReplica",
                interpreter.revise_replica(&thing(), copy.clone(), 2).await,
            ),
        ] {
            let error = returned.unwrap_err().to_string();
            let expected = format!(
                "ResourceInterpreterCustomization mine: {operation}: {path:?}: which object this is must not change (from "
            );
            assert!(error.starts_with(&expected), "{error}");
        }
    }
}
