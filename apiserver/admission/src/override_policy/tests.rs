//! Tests of the override policy rules.

use karmada_api::resources::OVERRIDES;
use machinery::{Gvk, UserInfo};
use serde_json::json;

use super::*;
use crate::attributes::{AdmissionOperation, OperationOptions};

static KIND: Gvk = Gvk::from_static("policy.karmada.io", "v1alpha1", "OverridePolicy");

fn at<'a>(namespace: &'a str, user: &'a UserInfo) -> AdmissionAttributes<'a> {
    AdmissionAttributes {
        gvk: &KIND,
        gvr: &OVERRIDES,
        namespace,
        name: "o",
        subresource: "",
        operation: AdmissionOperation::Create,
        user,
        dry_run: false,
        options: OperationOptions::None,
        audit_annotations: None,
    }
}

/// Checks the errors of an OverridePolicy, or with an empty namespace of a
/// ClusterOverridePolicy.
fn check_in(namespace: &str, spec: Value, expected: &[&str]) {
    let user = UserInfo::default();
    let policy = json!({"metadata": {"name": "o"}, "spec": spec});
    let errors = validate(&at(namespace, &user), &policy);
    let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(messages, expected, "{spec}");
}

fn check(spec: Value, expected: &[&str]) {
    check_in("n", spec, expected);
}

const RULE: &str = "spec.overrideRules[0]";

fn rule(overriders: Value) -> Value {
    json!({"overrideRules": [{ "overriders": overriders }]})
}

#[test]
fn selector_namespaces_are_defaulted() {
    let selector = json!({"apiVersion": "v1", "kind": "Secret"});
    let user = UserInfo::default();
    let mut policy = json!({"spec": {"resourceSelectors": [selector]}});
    mutate(&at("", &user), &mut policy);
    assert_eq!(policy["spec"]["resourceSelectors"], json!([selector]));
    mutate(&at("n", &user), &mut policy);
    assert_eq!(policy["spec"]["resourceSelectors"][0]["namespace"], "n");
    let mut without_selectors = json!({"spec": {}});
    mutate(&at("n", &user), &mut without_selectors);
    assert_eq!(without_selectors, json!({"spec": {}}));
}

#[test]
fn namespaced_policy_selects_its_own_namespace() {
    let other_namespace = json!({"resourceSelectors": [{"apiVersion": "v1", "kind": "Secret", "namespace": "other"}]});
    check_in("", other_namespace.clone(), &[]);
    check(
        other_namespace,
        &[
            r#"spec.resourceSelectors[0].namespace: Invalid value: "other": namespace of resource selector must be the same as the namespace of the policy"#,
        ],
    );
}

#[test]
fn target_cluster_fields_are_validated() {
    let invalid = json!({"fieldSelector": {"matchExpressions": [{"key": "x", "operator": "In", "values": ["y"]}]}});
    let detail = r#"targetCluster.fieldSelector: Invalid value: {"matchExpressions":[{"key":"x","operator":"In","values":["y"]}]}: unsupported key "x", must be provider, region, or zone"#;
    check(
        json!({ "targetCluster": invalid }),
        &[&format!("spec.{detail}")],
    );
    check(
        json!({"overrideRules": [{"targetCluster": invalid, "overriders": {}}]}),
        &[&format!("{RULE}.{detail}")],
    );
}

#[test]
fn deprecated_fields_exclude_override_rules() {
    let with_override_rules = |fields: Value| {
        let mut spec = rule(json!({}));
        spec.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        spec
    };
    check(
        with_override_rules(json!({"targetCluster": {"clusterNames": ["m"]}})),
        &[
            r#"spec.targetCluster: Invalid value: {"clusterNames":["m"]}: overrideRules and targetCluster can't co-exist"#,
        ],
    );
    check(
        with_override_rules(
            json!({"overriders": {"plaintext": [{"path": "/x", "operator": "remove"}]}}),
        ),
        &[
            r#"spec.overriders: Invalid value: {"plaintext":[{"path":"/x","operator":"remove","value":null}]}: overrideRules and overriders can't co-exist"#,
        ],
    );
    for list in [
        "imageOverrider",
        "commandOverrider",
        "argsOverrider",
        "labelsOverrider",
        "annotationsOverrider",
    ] {
        let user = UserInfo::default();
        let policy = json!({"spec": with_override_rules(json!({"overriders": {list: [{}]}}))});
        let errors = validate(&at("n", &user), &policy);
        assert_eq!(errors.len(), 1, "{list}");
        assert_eq!(errors[0].field, "spec.overriders");
    }
    check(
        with_override_rules(json!({"overriders": {"plaintext": []}})),
        &[],
    );
    let field = json!({"fieldPath": "/x", "json": [{"subPath": "/a", "operator": "remove"}]});
    check(
        with_override_rules(json!({"overriders": {"fieldOverrider": [field]}})),
        &[],
    );
}

#[test]
fn label_and_annotation_overriders_are_validated() {
    let add = |list: &str, value: Value| rule(json!({list: [{"operator": "add", "value": value}]}));
    let base = format!("{RULE}.overriders");
    check(add("labelsOverrider", json!({"a": "b"})), &[]);
    check(add("annotationsOverrider", json!({"a": "b c"})), &[]);
    let value = machinery::names::validate_label_value("b c").unwrap_err();
    check(
        add("labelsOverrider", json!({"a": "b c"})),
        &[&format!(
            r#"{base}.labelsOverrider[0].value: Invalid value: "b c": {value}"#
        )],
    );
    let key = machinery::names::validate_qualified_name("a b").unwrap_err();
    for list in ["labelsOverrider", "annotationsOverrider"] {
        check(
            add(list, json!({"a b": "c"})),
            &[&format!(
                r#"{base}.{list}[0].value: Invalid value: "a b": {key}"#
            )],
        );
    }
}

const POINTER: &str = "JSON pointer must be empty or start with a \"/\"\nJSON pointer error";

#[test]
fn image_predicate_path_is_a_json_pointer() {
    let image = |path: &str| {
        rule(
            json!({"imageOverrider": [{"predicate": {"path": path}, "component": "Tag", "operator": "remove"}]}),
        )
    };
    check(image("/spec/image"), &[]);
    check(
        image("spec"),
        &[&format!(
            r#"{RULE}.overriders.imageOverrider[0].predicate.path: Invalid value: "spec": {POINTER}"#
        )],
    );
}

fn field(overrider: Value) -> Value {
    rule(json!({ "fieldOverrider": [overrider] }))
}

const FIELD: &str = "spec.overrideRules[0].overriders.fieldOverrider[0]";

#[test]
fn field_overrider_has_json_or_yaml() {
    let remove = json!([{"subPath": "/a", "operator": "remove"}]);
    check(field(json!({"fieldPath": "/d", "json": remove})), &[]);
    check(field(json!({"fieldPath": "/d", "yaml": remove})), &[]);
    check(
        field(json!({"fieldPath": "/d"})),
        &[&format!(
            "{FIELD}: Required value: FieldOverrider must have either JSON or YAML set"
        )],
    );
    let operations_text = r#"[{"subPath":"/a","operator":"remove","value":null}]"#;
    check(
        field(json!({"fieldPath": "/d", "json": remove, "yaml": remove})),
        &[&format!(
            r#"{FIELD}: Invalid value: {{"fieldPath":"/d","json":{operations_text},"yaml":{operations_text}}}: FieldOverrider has both YAML and JSON set. Only one is allowed"#
        )],
    );
}

#[test]
fn field_overrider_paths_are_json_pointers() {
    for form in ["json", "yaml"] {
        let with_paths = |field_path: &str, sub: &str| {
            field(json!({"fieldPath": field_path, form: [{"subPath": sub, "operator": "remove"}]}))
        };
        check(
            with_paths("d", "/a"),
            &[&format!(
                r#"{FIELD}.fieldPath: Invalid value: "d": {POINTER}"#
            )],
        );
        check(
            with_paths("/d", "a"),
            &[&format!(
                r#"{FIELD}.{form}[0].subPath: Invalid value: "a": {POINTER}"#
            )],
        );
    }
}

#[test]
fn field_overrider_values_match_their_operator() {
    for form in ["json", "yaml"] {
        let with = |operator: &str, value: Value| {
            let mut operation = json!({"subPath": "/a", "operator": operator});
            if !value.is_null() {
                operation["value"] = value;
            }
            field(json!({"fieldPath": "/d", form: [operation]}))
        };
        check(with("remove", Value::Null), &[]);
        check(
            with("remove", json!(1)),
            &[&format!(
                "{FIELD}.{form}[0].value: Invalid value: 1: value is not allowed for remove operation"
            )],
        );
        for operator in ["add", "replace"] {
            check(with(operator, json!(1)), &[]);
            check(
                with(operator, Value::Null),
                &[&format!(
                    "{FIELD}.{form}[0].value: Invalid value: null: value is required for add or replace operation"
                )],
            );
        }
    }
}

#[test]
fn which_object_a_manifest_is_cannot_be_overridden() {
    let message = |field: &str, path: &str| {
        format!(
            "{RULE}.overriders.{field}: Invalid value: {path:?}: an override must not change which object a manifest is"
        )
    };
    for path in IDENTITY_FIELDS {
        for operator in ["add", "replace", "remove"] {
            let plaintext = json!([{"path": path, "operator": operator, "value": "x"}]);
            let expected = message("plaintext[0].path", path);
            check(rule(json!({ "plaintext": plaintext })), &[&expected]);
        }
        let image =
            json!([{"predicate": {"path": path}, "component": "Tag", "operator": "remove"}]);
        let expected = message("imageOverrider[0].predicate.path", path);
        check(rule(json!({ "imageOverrider": image })), &[&expected]);
        let field = json!([{"fieldPath": path, "yaml": [{"subPath": "", "operator": "replace", "value": "x"}]}]);
        let expected = message("fieldOverrider[0].fieldPath", path);
        check(rule(json!({ "fieldOverrider": field })), &[&expected]);
    }
    let plaintext = |path: &str, operator: &str| {
        rule(json!({"plaintext": [{"path": path, "operator": operator, "value": {}}]}))
    };
    let metadata_error = message("plaintext[0].path", "/metadata");
    check(plaintext("/metadata", "remove"), &[&metadata_error]);
    // Whether these change it depends on the manifest.
    check(plaintext("/metadata", "replace"), &[]);
    check(plaintext("", "replace"), &[]);
    check(plaintext("/spec/template/metadata/name", "add"), &[]);
}

// proves: OVR-retained-invalid
#[test]
fn the_annotation_about_retained_fields_is_validated() {
    let user = UserInfo::default();
    for (value, valid) in [("true", true), ("false", true), ("yes", false)] {
        let policy = json!({"metadata": {"annotations": {OVERRIDE_RETAINED: value}}, "spec": {}});
        let errors = validate(&at("n", &user), &policy);
        let fields: Vec<&str> = errors.iter().map(|e| e.field.as_str()).collect();
        let expected = ["metadata.annotations[flotilla.io/override-retained-fields]"];
        assert_eq!(fields, &expected[usize::from(valid)..], "{value}");
    }
}
