use machinery::{Gvk, UserInfo};
use openapi::karmada::resources::OVERRIDES;
use serde_json::json;

use super::*;
use crate::attributes::Operation;

static KIND: Gvk = Gvk::constant("policy.karmada.io", "v1alpha1", "OverridePolicy");

fn at<'a>(namespace: &'a str, user: &'a UserInfo) -> Attributes<'a> {
    Attributes {
        gvk: &KIND,
        gvr: &OVERRIDES,
        namespace,
        name: "o",
        subresource: "",
        operation: Operation::Create,
        user,
        dry_run: false,
    }
}

fn check(spec: Value, expect: &[&str]) {
    let user = UserInfo::default();
    let mut policy = json!({"metadata": {"name": "o"}, "spec": spec});
    mutate(&at("n", &user), &mut policy);
    let errors = validate(&at("n", &user), &policy);
    let fields: Vec<&str> = errors.iter().map(|e| e.field.as_str()).collect();
    assert_eq!(fields, expect, "{spec}\n{errors:?}");
}

fn rule(overriders: Value) -> Value {
    json!({"overrideRules": [{ "overriders": overriders }]})
}

// proves: ADM-override-legacy, ADM-override-target
#[test]
fn targets_and_legacy_fields_are_judged() {
    let bad = json!({"fieldSelector": {"matchExpressions": [{"key": "x", "operator": "In"}]}});
    let key = "fieldSelector";
    check(
        json!({"resourceSelectors": [{"apiVersion": "v1", "kind": "Secret"}]}),
        &[],
    );
    check(
        json!({"resourceSelectors": [{"apiVersion": "v1", "kind": "Secret", "namespace": "other"}]}),
        &["spec.resourceSelectors[0].namespace"],
    );
    check(
        json!({ "targetCluster": bad }),
        &[&format!("spec.targetCluster.{key}")],
    );
    check(
        json!({"overrideRules": [{"targetCluster": bad, "overriders": {}}]}),
        &[&format!("spec.overrideRules[0].targetCluster.{key}")],
    );
    check(
        json!({"targetCluster": {}, "overrideRules": [{"overriders": {}}]}),
        &["spec.targetCluster"],
    );
    check(
        json!({"overriders": {"plaintext": [{"path": "/x", "operator": "remove"}]}, "overrideRules": [{"overriders": {}}]}),
        &["spec.overriders"],
    );
    check(
        json!({"overriders": {"plaintext": []}, "overrideRules": [{"overriders": {}}]}),
        &[],
    );
}

// proves: ADM-override-field-value, ADM-override-labels
#[test]
fn overriders_are_judged() {
    let base = "spec.overrideRules[0].overriders";
    check(
        rule(json!({"labelsOverrider": [{"operator": "add", "value": {"a": "b"}}]})),
        &[],
    );
    check(
        rule(json!({"labelsOverrider": [{"operator": "add", "value": {"a": "b c"}}]})),
        &[&format!("{base}.labelsOverrider[0].value")],
    );
    check(
        rule(json!({"annotationsOverrider": [{"operator": "add", "value": {"a b": "c"}}]})),
        &[&format!("{base}.annotationsOverrider[0].value")],
    );
    let image = |path: &str| {
        rule(
            json!({"imageOverrider": [{"predicate": {"path": path}, "component": "Tag", "operator": "remove"}]}),
        )
    };
    check(image("/spec/image"), &[]);
    check(
        image("spec"),
        &[&format!("{base}.imageOverrider[0].predicate.path")],
    );

    let field = |v: Value| rule(json!({ "fieldOverrider": [v] }));
    let at = format!("{base}.fieldOverrider[0]");
    let add = json!([{"subPath": "/a", "operator": "add", "value": 1}]);
    check(field(json!({"fieldPath": "/data/x", "json": add})), &[]);
    check(
        field(json!({"fieldPath": "/data/x", "yaml": [{"subPath": "/a", "operator": "remove"}]})),
        &[],
    );
    check(field(json!({"fieldPath": "/data/x"})), &[&at]);
    check(
        field(json!({"fieldPath": "/data/x", "json": add, "yaml": add})),
        &[&at],
    );
    check(
        field(json!({"fieldPath": "data", "json": add})),
        &[&format!("{at}.fieldPath")],
    );
    check(
        field(json!({"fieldPath": "/d", "json": [{"subPath": "a", "operator": "remove"}]})),
        &[&format!("{at}.json[0].subPath")],
    );
    check(
        field(json!({"fieldPath": "/d", "json": [{"subPath": "/a", "operator": "replace"}]})),
        &[&format!("{at}.json[0].value")],
    );
    check(
        field(
            json!({"fieldPath": "/d", "yaml": [{"subPath": "/a", "operator": "remove", "value": 1}]}),
        ),
        &[&format!("{at}.yaml[0].value")],
    );
}
