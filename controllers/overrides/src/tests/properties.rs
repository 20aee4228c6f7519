//! Property tests: no override rule makes the overriders panic, and what an overrider does not
//! name in a YAML text keeps its value.

use karmada_api::IdentityFields;
use karmada_api::policy::Overriders;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::overriders::apply_overriders;

fn json_values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z:/@ ]{0,8}".prop_map(Value::from),
        "(a: 1|\\{\"a\":1\\}|nginx:1)".prop_map(Value::from),
    ];
    let keys =
        "(kind|metadata|spec|template|containers|name|image|args|labels|annotations|data|a|0)";
    leaf.prop_recursive(6, 40, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(keys, inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn json_pointers() -> impl Strategy<Value = String> {
    let part = "(kind|metadata|spec|template|containers|labels|data|a|0|1|-|~0|)";
    prop::collection::vec(part, 0..5).prop_map(|parts| {
        let parts = parts.iter().map(|part| format!("/{part}"));
        parts.collect()
    })
}

/// Documents with texts that YAML reads as other types unless they are quoted.
fn yaml_documents() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        "[a-z:#' \\n\"-]{0,12}",
        "[ -~]{0,100}",
        "(y|no|On|1|0x1|0755|0o7|1_0|1:30|~|2001-1-1|\\.5|1e3|null|---|<<|=|\t|\u{85}|\u{1})",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text.prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map("[a-z0-9 :-]{1,10}", inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    /// Any rule on any object is applied or rejected, without a panic, and leaves it that object.
    // proves: OVR-identity
    #[test]
    fn no_rule_panics_on_any_manifest(
        mut tree in json_values(), kind in "(Pod|Deployment|ConfigMap)", path in json_pointers(),
        operator in "(add|remove|replace|other)", value in json_values(), name in "(a|name)",
    ) {
        if let Some(fields) = tree.as_object_mut() {
            fields.insert("kind".into(), kind.into());
        }
        let operation = json!([{"subPath": path, "operator": operator, "value": value}]);
        let rules = [
            json!({"imageOverrider": [{"predicate": {"path": path}, "component": "Tag", "operator": operator, "value": "1"}]}),
            json!({"imageOverrider": [{"component": "Registry", "operator": operator, "value": "r.io"}]}),
            json!({"commandOverrider": [{"containerName": name, "operator": operator, "value": ["x"]}]}),
            json!({"labelsOverrider": [{"operator": operator, "value": {"a": "b"}}]}),
            json!({"plaintext": [{"path": path, "operator": operator, "value": value}]}),
            json!({"fieldOverrider": [{"fieldPath": path, "json": operation}]}),
            json!({"fieldOverrider": [{"fieldPath": "/data/a", "yaml": operation}]}),
        ];
        for rule in rules {
            let parsed: Overriders = serde_json::from_value(rule).unwrap();
            let mut copy = tree.clone();
            let outcome = apply_overriders(&mut copy, &parsed);
            let identity = IdentityFields::of(&tree);
            prop_assert!(outcome.is_err() || identity.check(&copy).is_ok());
        }
    }

    // proves: OVR-field-yaml
    #[test]
    fn a_yaml_text_keeps_all_other_values(document in yaml_documents(), key in "[a-z0-9 :-]{1,10}") {
        let mut document = json!({"kept": document});
        let text = serde_saphyr::to_string(&document).unwrap();
        let mut manifest = json!({"kind": "ConfigMap", "data": {"y": text}});
        let overriders: Overriders = serde_json::from_value(json!({"fieldOverrider": [
            {"fieldPath": "/data/y", "yaml": [{"subPath": "/new", "operator": "add", "value": key}]},
        ]})).unwrap();
        apply_overriders(&mut manifest, &overriders).unwrap();
        document["new"] = key.into();
        let written = manifest["data"]["y"].as_str().unwrap();
        prop_assert_eq!(machinery::yaml::from_str(written).unwrap(), document, "{}", written);
    }
}
