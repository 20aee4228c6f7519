//! Tests of the result of each overrider, and of their order.

use serde_json::{Value, json};

use super::{apply_policies, apply_to_manifest, manifest, policy, with_rule};
use crate::CandidateOverridePolicies;

const ARGS: &str = "/spec/template/spec/containers/0/args";
const IMAGE: &str = "/spec/template/spec/containers/0/image";

/// Checks the value at a path after one rule.
fn check(overriders: Value, path: &str, expected: Value) {
    let (copy, applied) = apply_to_manifest(&[], &[("p", with_rule(&overriders))]);
    assert_eq!(applied.unwrap(), ["n/p"]);
    let actual = copy.pointer(path).unwrap_or(&Value::Null);
    assert_eq!(actual, &expected, "{overriders}");
}

/// Checks that a rule changes nothing.
fn check_unchanged(overriders: Value) {
    let (copy, applied) = apply_to_manifest(&[], &[("p", with_rule(&overriders))]);
    applied.unwrap();
    assert_eq!(copy, manifest(), "{overriders}");
}

// proves: OVR-image, OVR-image-init
#[test]
fn images() {
    let one = |path: Value, component: &str| json!({"imageOverrider": [{"predicate": path, "component": component, "operator": "replace", "value": "v"}]});
    let side = "/spec/template/spec/containers/1/image";
    let init = "/spec/template/spec/initContainers/0/image";
    check(one(Value::Null, "Tag"), IMAGE, json!("nginx:v"));
    check(one(Value::Null, "Tag"), side, json!("reg.io/side:v"));
    check(one(Value::Null, "Tag"), init, json!("busybox:1"));
    check(one(json!({"path": init}), "Tag"), init, json!("busybox:v"));
    check(one(json!({"path": init}), "Tag"), IMAGE, json!("nginx:1"));
    check(one(Value::Null, "Registry"), side, json!("v/side:2"));
    check(one(Value::Null, "Repository"), side, json!("reg.io/v:2"));
    let twice = json!({"imageOverrider": [
        {"component": "Registry", "operator": "add", "value": "r.io"},
        {"component": "Tag", "operator": "remove"}]});
    check(twice, IMAGE, json!("r.io/nginx"));
}

// proves: OVR-image-kinds
#[test]
fn pod_specs_are_found_by_kind() {
    let rule = with_rule(&json!({
        "imageOverrider": [{"component": "Tag", "operator": "replace", "value": "v"}],
        "commandOverrider": [{"containerName": "c", "operator": "add", "value": ["sh"]}]}));
    let candidates = CandidateOverridePolicies {
        cluster_policies: vec![],
        policies: vec![policy("p", "n", &rule)],
    };
    let containers = json!({"containers": [{"name": "c", "image": "a:1"}]});
    let table = [
        ("Pod", json!(containers), "/spec", true),
        (
            "Deployment",
            json!({"template": {"spec": containers}}),
            "/spec/template/spec",
            true,
        ),
        (
            "ReplicaSet",
            json!({"template": {"spec": containers}}),
            "/spec/template/spec",
            true,
        ),
        (
            "StatefulSet",
            json!({"template": {"spec": containers}}),
            "/spec/template/spec",
            true,
        ),
        (
            "DaemonSet",
            json!({"template": {"spec": containers}}),
            "/spec/template/spec",
            true,
        ),
        (
            "Job",
            json!({"template": {"spec": containers}}),
            "/spec/template/spec",
            true,
        ),
        (
            "CloneSet",
            json!({"template": {"spec": containers}}),
            "/spec/template/spec",
            false,
        ),
        (
            "CronJob",
            json!({"jobTemplate": {"spec": {"template": {"spec": containers}}}}),
            "/spec/jobTemplate/spec/template/spec",
            false,
        ),
    ];
    for (kind, spec, pods, changed) in table {
        let mut copy = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "a", "namespace": "n"}, "spec": spec});
        apply_policies(&mut copy, &candidates).unwrap();
        let container = copy.pointer(&format!("{pods}/containers/0")).unwrap();
        let expected = if changed {
            json!({"name": "c", "image": "a:v", "command": ["sh"]})
        } else {
            json!({"name": "c", "image": "a:1"})
        };
        assert_eq!(container, &expected, "{kind}");
    }
}

// proves: OVR-command, OVR-args, OVR-command-absent, OVR-command-replace
#[test]
fn commands_and_arguments() {
    let one = |name: &str, container: &str, operator: &str, value: Value| json!({name: [{"containerName": container, "operator": operator, "value": value}]});
    let command = "/spec/template/spec/containers/0/command";
    check(
        one("argsOverrider", "c", "add", json!(["-c"])),
        ARGS,
        json!(["-a", "-b", "-c"]),
    );
    check(
        one("argsOverrider", "c", "remove", json!(["-a", "-x"])),
        ARGS,
        json!(["-b"]),
    );
    check(
        one("argsOverrider", "c", "remove", json!(["-a", "-b"])),
        ARGS,
        json!([]),
    );
    check(
        one("commandOverrider", "c", "add", json!(["sh", "-c"])),
        command,
        json!(["sh", "-c"]),
    );
    check(
        one("commandOverrider", "c", "remove", json!(["sh"])),
        command,
        json!([]),
    );
    check_unchanged(one("argsOverrider", "none", "add", json!(["-c"])));
    check_unchanged(one("argsOverrider", "c", "replace", json!(["-c"])));
}

// proves: OVR-labels, OVR-annotations, OVR-map-absent, OVR-map-slash
#[test]
fn labels_and_annotations() {
    let one = |name: &str, operator: &str, value: Value| json!({name: [{"operator": operator, "value": value}]});
    let (labels, annotations) = ("/metadata/labels", "/metadata/annotations");
    check(
        one("labelsOverrider", "add", json!({"a": "b", "app": "z"})),
        labels,
        json!({"a": "b", "app": "z"}),
    );
    check(
        one(
            "labelsOverrider",
            "replace",
            json!({"app": "y", "none": "z"}),
        ),
        labels,
        json!({"app": "y"}),
    );
    check(
        one("labelsOverrider", "remove", json!({"app": "", "none": ""})),
        labels,
        json!({}),
    );
    check(
        one("annotationsOverrider", "add", json!({"a/b": "c"})),
        annotations,
        json!({"a/b": "c"}),
    );
    // The key is not a JSON pointer.
    let slashed = json!({"annotationsOverrider": [{"operator": "add", "value": {"a/b~1": "c"}},
        {"operator": "replace", "value": {"a/b~1": "d"}}]});
    check(slashed.clone(), annotations, json!({"a/b~1": "d"}));
    let mut removed = slashed;
    removed["annotationsOverrider"]
        .as_array_mut()
        .unwrap()
        .push(json!({"operator": "remove", "value": {"a/b~1": ""}}));
    check(removed, annotations, json!({}));
    check_unchanged(one("annotationsOverrider", "replace", json!({"a": "b"})));
    check_unchanged(one("annotationsOverrider", "remove", json!({"a": "b"})));
    check_unchanged(one("annotationsOverrider", "add", json!({})));
}

// proves: OVR-field-json, OVR-field-yaml
#[test]
fn documents_in_a_string() {
    let one = |path: &str, form: &str, operations: Value| json!({"fieldOverrider": [{"fieldPath": path, form: operations}]});
    check(
        one(
            "/data/j",
            "json",
            json!([
            {"subPath": "/b/-", "operator": "add", "value": 2}, {"subPath": "/a", "operator": "add", "value": {"k": "<"}}]),
        ),
        "/data/j",
        json!("{\"z\":1,\"b\":[1,2],\"a\":{\"k\":\"\\u003c\"}}"),
    );
    check(
        one(
            "/data/y",
            "yaml",
            json!([
            {"subPath": "/b/0", "operator": "replace", "value": "yes"}, {"subPath": "/c", "operator": "add", "value": {"d": null}}]),
        ),
        "/data/y",
        json!("a: 420\nb:\n- \"yes\"\nc:\n  d: null\n"),
    );
    check(
        one(
            "/data/y",
            "yaml",
            json!([{"subPath": "/b", "operator": "remove"}]),
        ),
        "/data/y",
        json!("a: 420\n"),
    );
}

// proves: OVR-plaintext
#[test]
fn plaintext() {
    let one = |path: &str, operator: &str, value: Value| json!({"plaintext": [{"path": path, "operator": operator, "value": value}]});
    check(
        one("/metadata/annotations", "add", json!({"a": "b"})),
        "/metadata/annotations/a",
        json!("b"),
    );
    check(
        one("/metadata/labels/app", "remove", Value::Null),
        "/metadata/labels",
        json!({}),
    );
    check(
        one(
            "/spec/template/spec/containers/-",
            "add",
            json!({"name": "e"}),
        ),
        "/spec/template/spec/containers/2/name",
        json!("e"),
    );
    check(
        one("/data/n", "replace", Value::Null),
        "/data/n",
        Value::Null,
    );
}

/// One overrider uses the result of another and therefore comes after it.
// proves: OVR-overrider-order
#[test]
fn overriders_are_applied_in_order() {
    let add = |name: &str, value: Value| {
        (
            name.to_owned(),
            json!([{"operator": "add", "value": value}]),
        )
    };
    let args = |value: &str| {
        let one = json!([{"containerName": "c", "operator": "add", "value": [value]}]);
        ("argsOverrider".to_owned(), one)
    };
    let field = |path: &str| {
        let one = json!([{"fieldPath": path, "json": [{"subPath": "/z", "operator": "replace", "value": 2}]}]);
        ("fieldOverrider".to_owned(), one)
    };
    let image = |path: &str| {
        let one = json!([{"predicate": {"path": path}, "component": "Tag", "operator": "replace", "value": "first"}]);
        ("imageOverrider".to_owned(), one)
    };
    let plain = |path: &str, value: &str| {
        let one = json!([{"path": path, "operator": "replace", "value": value}]);
        ("plaintext".to_owned(), one)
    };
    let document = r#"{"z":1}"#;
    let (label, annotation) = ("/metadata/labels/app", "/metadata/annotations/doc");
    let arg = format!("{ARGS}/2");
    let table = [
        (
            vec![
                image(label),
                add("labelsOverrider", json!({"app": "later"})),
            ],
            label,
            "later",
        ),
        (
            vec![
                field(label),
                add("labelsOverrider", json!({"app": document})),
            ],
            label,
            r#"{"z":2}"#,
        ),
        (
            vec![
                field(annotation),
                add("annotationsOverrider", json!({"doc": document})),
            ],
            annotation,
            r#"{"z":2}"#,
        ),
        (vec![field(&arg), args(document)], &arg, r#"{"z":2}"#),
        (
            vec![plain("/data/j", "last"), field("/data/j")],
            "/data/j",
            "last",
        ),
        (vec![plain(IMAGE, "last"), image(IMAGE)], IMAGE, "last"),
        (vec![plain(&arg, "last"), args(document)], &arg, "last"),
    ];
    for (overriders, path, expected) in table {
        let rule = Value::Object(overriders.into_iter().collect());
        check(rule, path, json!(expected));
    }
    // An image at a path that an args overrider creates later.
    let early = with_rule(&Value::Object(
        [image(&arg), args("nginx:1")].into_iter().collect(),
    ));
    let error = apply_to_manifest(&[], &[("p", early)]).1.unwrap_err();
    assert!(error.ends_with("there is nothing at this path"), "{error}");
}
