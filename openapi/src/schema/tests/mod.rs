//! Tests of the embedded schemas on objects, and that no JSON makes them panic.

mod ratcheting;
mod validation;

use machinery::Gvk;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::Schema;
use crate::catalog::catalog;

fn schema(group: &'static str, version: &'static str, kind: &'static str) -> Schema {
    let kind = catalog()
        .kind(&Gvk::from_static(group, version, kind))
        .unwrap();
    catalog().schema(kind)
}

fn policy(spec: Value) -> Value {
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": "p", "creationTimestamp": null},
        "spec": spec,
    })
}

#[test]
fn policies_are_defaulted_where_the_parent_is_present() {
    let schema = schema("policy.karmada.io", "v1alpha1", "PropagationPolicy");
    let selectors = json!([{"apiVersion": "v1", "kind": "ConfigMap"}]);
    let mut minimal = policy(json!({"resourceSelectors": selectors}));
    schema.apply_defaults(&mut minimal).unwrap();
    assert_eq!(
        minimal["spec"],
        json!({
            "resourceSelectors": selectors,
            "conflictResolution": "Abort",
            "preemption": "Never",
            "priority": 0,
            "schedulerName": "default-scheduler",
        })
    );
    assert!(minimal["metadata"].get("creationTimestamp").is_none());
    let mut complete = policy(json!({
        "resourceSelectors": selectors,
        "conflictResolution": null,
        "placement": {"replicaScheduling": {}},
        "failover": {"application": {"decisionConditions": {}}, "cluster": {}},
    }));
    schema.apply_defaults(&mut complete).unwrap();
    let spec = &complete["spec"];
    assert_eq!(spec["conflictResolution"], "Abort");
    assert_eq!(
        spec["placement"]["replicaScheduling"],
        json!({"replicaSchedulingType": "Divided"})
    );
    assert_eq!(
        spec["failover"],
        json!({
            "application": {"decisionConditions": {"tolerationSeconds": 300},
                            "purgeMode": "Gracefully"},
            "cluster": {"purgeMode": "Gracefully"},
        })
    );
    assert!(schema.validate(&complete).is_empty());
}

fn check(schema: &Schema, value: &Value, expect: &[&str]) {
    let errors: Vec<String> = schema
        .validate(value)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(errors, expect, "{value}");
}

#[test]
fn validations_of_karmadas_crds_apply() {
    let policies = schema("policy.karmada.io", "v1alpha1", "PropagationPolicy");
    check(
        &policies,
        &policy(json!({})),
        &["spec.resourceSelectors: Required value"],
    );
    check(
        &policies,
        &policy(json!({"resourceSelectors": [], "preemption": "Maybe"})),
        &[
            "spec.resourceSelectors: Invalid value: 0: spec.resourceSelectors in body should have at least 1 items",
            "spec.preemption: Unsupported value: \"Maybe\": supported values: \"Always\", \"Never\"",
        ],
    );
    let bindings = schema("work.karmada.io", "v1alpha2", "ResourceBinding");
    check(
        &bindings,
        &json!({"spec": {"resource": {"apiVersion": "v1", "kind": "A", "name": "a"},
            "gracefulEvictionTasks": [{"fromCluster": "m", "reason": "1x", "producer": "p"}],
            "replicaRequirements": {"resourceRequest": {"cpu": "100m", "memory": 5}}}}),
        &[
            "spec.gracefulEvictionTasks[0].reason: Invalid value: \"1x\": spec.gracefulEvictionTasks[0].reason in body should match '^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$'",
        ],
    );
    let works = schema("work.karmada.io", "v1alpha1", "Work");
    check(
        &works,
        &json!({"spec": {}, "status": {"manifestStatuses": [{"identifier": {
            "ordinal": 0, "version": "v1", "kind": "A", "name": "a"}}]}}),
        &["status.manifestStatuses[0].identifier.resource: Required value"],
    );
}

#[test]
fn manifests_and_override_values_are_preserved() {
    let mut work = json!({"spec": {"typo": 1, "workload": {"manifests": [
        {"apiVersion": "v1", "kind": "A", "data": {"x": 1}}]}}});
    let removed = schema("work.karmada.io", "v1alpha1", "Work").prune(&mut work);
    assert_eq!(removed, ["spec.typo"]);
    assert_eq!(work["spec"]["workload"]["manifests"][0]["data"]["x"], 1);
    let rules = json!([{"overriders": {"plaintext": [
        {"path": "/a", "operator": "add", "value": {"any": [1, {"b": 2}]}}]}}]);
    let mut policy = json!({"spec": {"overrideRules": rules}});
    let overrides = schema("policy.karmada.io", "v1alpha1", "OverridePolicy");
    assert!(overrides.prune(&mut policy).is_empty());
    assert_eq!(policy["spec"]["overrideRules"], rules);
    assert!(overrides.validate(&policy).is_empty());
}

/// JSON whose keys are often field names of the schemas.
fn json_values() -> impl Strategy<Value = Value> {
    let key = prop_oneof![
        "metadata|spec|status|labels|name|placement|clusterAffinity|replicas|conditions|type|x",
        "[a-z]{1,4}",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key.clone(), inner, 0..6)
                .prop_map(|m| m.into_iter().collect()),
        ]
    })
}

proptest! {
    #[test]
    fn no_json_panics_and_repetition_changes_nothing(value in json_values(), at in any::<prop::sample::Index>()) {
        let kind = at.get(catalog().kinds());
        let schema = catalog().schema(kind);
        let mut prepared = value;
        schema.prune(&mut prepared);
        schema.apply_defaults(&mut prepared).unwrap();
        let mut prepared_again = prepared.clone();
        prop_assert!(schema.prune(&mut prepared_again).is_empty());
        schema.apply_defaults(&mut prepared_again).unwrap();
        prop_assert_eq!(&prepared_again, &prepared);
        schema.validate(&prepared);
    }

    #[test]
    fn no_schema_of_a_custom_kind_panics(value in json_values(), schema in json_values()) {
        let crd_schema = json!({"type": "object", "properties": {"spec": schema}});
        if let Ok(schema) = Schema::from_crd(&crd_schema) {
            let mut value = value;
            schema.apply_defaults(&mut value).unwrap();
            schema.prune(&mut value);
            schema.validate(&value);
        }
    }
}

#[test]
fn values_of_a_wrong_type_get_gos_decode_error() {
    fn check(schema: &Schema, value: Value, text: &str) {
        let actual = schema.decode_error(&value).unwrap_or_default();
        assert_eq!(actual, text, "{value}");
    }
    let deployment = schema("apps", "v1", "Deployment");
    let pod = |spec: Value| json!({"spec": {"template": {"spec": spec}}});
    check(
        &deployment,
        json!({"spec": {"replicas": 2, "unknown": 1}, "status": null}),
        "",
    );
    check(
        &deployment,
        json!({"spec": {"replicas": "two"}}),
        "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
    );
    check(
        &deployment,
        json!({"spec": {"replicas": 1.5}}),
        "json: cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32",
    );
    check(
        &deployment,
        pod(json!({"containers": [{"env": [{"name": "A", "value": 1}]}]})),
        "json: cannot unmarshal number into Go struct field EnvVar.spec.template.spec.containers.env.value of type string",
    );
    check(
        &deployment,
        pod(json!({"containers": {}})),
        "json: cannot unmarshal object into Go struct field PodSpec.spec.template.spec.containers of type []v1.Container",
    );
    check(
        &deployment,
        json!({"metadata": {"labels": {"a": true}}}),
        "json: cannot unmarshal bool into Go struct field ObjectMeta.metadata.labels of type string",
    );
    check(
        &deployment,
        json!({"metadata": {"labels": "a"}}),
        "json: cannot unmarshal string into Go struct field ObjectMeta.metadata.labels of type map[string]string",
    );
    check(
        &deployment,
        pod(json!({"containers": [{"resources": {"limits": {"cpu": "much"}}}]})),
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
    );
    check(
        &deployment,
        json!({"spec": {"strategy": {"rollingUpdate": {"maxSurge": true}}}}),
        "json: cannot unmarshal bool into Go struct field RollingUpdateDeployment.spec.strategy.rollingUpdate.maxSurge of type int32",
    );
    let secret = schema("", "v1", "Secret");
    check(&secret, json!({"data": {"a": "YWJj\nZGVm\n"}}), "");
    check(
        &secret,
        json!({"data": {"a": "a*b="}}),
        "illegal base64 data at input byte 1",
    );
}
