//! Override policies on manifests.

use machinery::{Gvk, Object};
use openapi::karmada::ClusterFacts;
use serde_json::{Value, json};

use super::apply_one_sort;

const DEPLOYMENT: Gvk = Gvk::constant("apps", "v1", "Deployment");

fn manifest() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "n", "labels": {"app": "x"}},
        "spec": {"replicas": 1, "template": {"spec": {"containers": [
            {"name": "c", "image": "nginx:1", "args": ["-a", "-b"]}]}}}})
}

fn policy(name: &str, spec: Value) -> Object {
    Object::from_value(&json!({"metadata": {"name": name, "namespace": "n"}, "spec": spec}))
        .unwrap()
}

fn run(policies: &[Object]) -> (Value, Result<Vec<String>, (String, String)>) {
    let facts = ClusterFacts {
        name: "m1",
        labels: &[],
        provider: "",
        region: "",
        zones: &[],
    };
    let mut copy = manifest();
    copy["data"] = json!({"j": r#"{"a":1,"b":[1]}"#, "y": "a: 1\nb:\n- 1\n"});
    let applied = apply_one_sort(&mut copy, &DEPLOYMENT, &facts, policies);
    let names = applied.map(|list| list.into_iter().map(|(name, _)| name).collect());
    (copy, names)
}

fn replicas(name: &str, selectors: Value, to: i64) -> Object {
    policy(
        name,
        json!({"resourceSelectors": selectors, "overrideRules": [{"overriders": {"plaintext": [
            {"path": "/spec/replicas", "operator": "replace", "value": to}]}}]}),
    )
}

fn check(overriders: Value, path: &str, expected: Value) {
    let policy = policy("p", json!({"overrideRules": [{"overriders": overriders}]}));
    let (copy, applied) = run(&[policy]);
    assert_eq!(applied.unwrap(), ["n/p"]);
    assert_eq!(copy.pointer(path), Some(&expected), "{overriders}");
}

#[test]
fn the_closest_policy_has_the_last_word() {
    let selector = |more: Value| {
        let mut all = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
        all.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!([all])
    };
    let policies = [
        replicas("named", selector(json!({"name": "web"})), 4),
        replicas("all", json!([]), 2),
        replicas(
            "label",
            selector(json!({"labelSelector": {"matchLabels": {"app": "x"}}})),
            3,
        ),
        replicas("other", selector(json!({"name": "db"})), 9),
    ];
    let (copy, applied) = run(&policies);
    assert_eq!(applied.unwrap(), ["n/all", "n/label", "n/named"]);
    assert_eq!(copy["spec"]["replicas"], 4);
}

#[test]
fn a_rule_is_for_the_clusters_it_names() {
    let rule = |cluster: &str, to: i64| {
        json!({"targetCluster": {"clusterNames": [cluster]}, "overriders": {"plaintext": [
            {"path": "/spec/replicas", "operator": "replace", "value": to}]}})
    };
    let (copy, _) = run(&[policy(
        "p",
        json!({"overrideRules": [rule("m1", 7), rule("m2", 8)]}),
    )]);
    assert_eq!(copy["spec"]["replicas"], 7);
    let (copy, _) = run(&[policy("legacy", rule("m1", 6))]);
    assert_eq!(copy["spec"]["replicas"], 6);
}

#[test]
fn overriders_change_what_they_name() {
    let args = "/spec/template/spec/containers/0/args";
    check(
        json!({"imageOverrider": [{"component": "Tag", "operator": "replace", "value": "2"}]}),
        "/spec/template/spec/containers/0/image",
        json!("nginx:2"),
    );
    check(
        json!({"argsOverrider": [{"containerName": "c", "operator": "add", "value": ["-c"]}]}),
        args,
        json!(["-a", "-b", "-c"]),
    );
    check(
        json!({"argsOverrider": [{"containerName": "c", "operator": "remove", "value": ["-a"]}]}),
        args,
        json!(["-b"]),
    );
    check(
        json!({"commandOverrider": [{"containerName": "c", "operator": "add", "value": ["sh"]}]}),
        "/spec/template/spec/containers/0/command",
        json!(["sh"]),
    );
    check(
        json!({"labelsOverrider": [{"operator": "replace", "value": {"app": "y", "none": "z"}}]}),
        "/metadata/labels",
        json!({"app": "y"}),
    );
    check(
        json!({"annotationsOverrider": [{"operator": "add", "value": {"a/b": "c"}}]}),
        "/metadata/annotations",
        json!({"a/b": "c"}),
    );
    check(
        json!({"fieldOverrider": [{"fieldPath": "/data/j", "json": [
            {"subPath": "/a", "operator": "replace", "value": 2}, {"subPath": "/b/-", "operator": "add", "value": 2}]}]}),
        "/data/j",
        json!(r#"{"a":2,"b":[1,2]}"#),
    );
    let yaml = json!({"fieldOverrider": [{"fieldPath": "/data/y", "yaml": [
        {"subPath": "/b", "operator": "remove"}, {"subPath": "/a", "operator": "replace", "value": "x"}]}]});
    check(yaml, "/data/y", json!("a: x\n"));
}

#[test]
fn what_cannot_be_applied_names_policy_and_rule() {
    let refused = |overriders: Value| {
        let rules = json!({"overrideRules": [{"overriders": {}}, {"overriders": overriders}]});
        let (name, why) = run(&[policy("p", rules)]).1.unwrap_err();
        assert_eq!(name, "n/p");
        assert!(why.starts_with("rule 1: "), "{why}");
    };
    refused(json!({"plaintext": [{"path": "/none/x", "operator": "replace", "value": 1}]}));
    refused(json!({"fieldOverrider": [{"fieldPath": "/data/x", "json": []}]}));
    refused(
        json!({"fieldOverrider": [{"fieldPath": "/data/j", "json": [{"subPath": "/none", "operator": "remove"}]}]}),
    );
    refused(
        json!({"imageOverrider": [{"predicate": {"path": "/spec/none"}, "component": "Tag", "operator": "remove"}]}),
    );
}
