//! Tests of selecting, ordering and recording override policies.

mod overrider;
mod properties;

use karmada_api::ClusterAttributes;
use karmada_api::kind_in_namespace::KindInNamespace;
use machinery::{Gvk, Object};
use serde_json::{Value, json};

use crate::{
    AppliedOverrides, CandidateOverridePolicies, SelectableObjects, index_keys, lookup_keys,
    manifest_meta, may_select, selectable_objects, selects,
};

const DEPLOYMENT: Gvk = Gvk::from_static("apps", "v1", "Deployment");

pub(crate) fn manifest() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "n", "labels": {"app": "x"}},
        "spec": {"replicas": 1, "template": {"spec": {
            "initContainers": [{"name": "i", "image": "busybox:1"}],
            "containers": [
                {"name": "c", "image": "nginx:1", "args": ["-a", "-b"]},
                {"name": "d", "image": "reg.io/side:2"}]}}},
        "data": {"j": r#"{"z":1,"b":[1]}"#, "y": "b:\n- 1\na: 0644\n", "n": 3}})
}

pub(crate) fn policy(name: &str, namespace: &str, spec: &Value) -> Object {
    let metadata = json!({"name": name, "namespace": namespace});
    Object::from_value(&json!({"metadata": metadata, "spec": spec})).unwrap()
}

pub(crate) fn apply_policies(
    copy: &mut Value,
    candidates: &CandidateOverridePolicies,
) -> Result<AppliedOverrides, String> {
    let facts = ClusterAttributes {
        name: "m1",
        labels: &[("tier".into(), "gold".into())],
        provider: "p1",
        region: "r1",
        zones: &["z1".into(), "z2".into()],
    };
    let kind = copy["kind"].as_str().unwrap().to_owned();
    let kind = Gvk::from_api_version(copy["apiVersion"].as_str().unwrap(), &kind);
    candidates
        .apply(copy, &kind, &facts)
        .map_err(|e| e.to_string())
}

/// The manifest after the overrides, and the applied policies.
pub(crate) fn apply_to_manifest(
    of_cluster: &[(&str, Value)],
    local: &[(&str, Value)],
) -> (Value, Result<Vec<String>, String>) {
    let mut copy = manifest();
    let lookup_keys = lookup_keys(&DEPLOYMENT, &manifest_meta(&copy));
    let is_indexed = |policy: &Object| {
        let keys = index_keys(policy);
        keys.iter().any(|key| lookup_keys.contains(key))
    };
    let policies = local.iter().map(|(n, s)| policy(n, "n", s));
    let candidates = CandidateOverridePolicies {
        cluster_policies: of_cluster.iter().map(|(n, s)| policy(n, "", s)).collect(),
        policies: policies
            .filter(|policy| !of_cluster.is_empty() || is_indexed(policy))
            .collect(),
    };
    let record = apply_policies(&mut copy, &candidates);
    let names = |r: AppliedOverrides| r.0.into_iter().map(|a| a.policy).collect();
    (copy, record.map(names))
}

pub(crate) fn with_rule(overriders: &Value) -> Value {
    json!({"overrideRules": [{"overriders": overriders}]})
}

fn replicas_overrider(to: i64) -> Value {
    json!({"plaintext": [{"path": "/spec/replicas", "operator": "replace", "value": to}]})
}

// proves: OVR-order, OVR-no-selectors
#[test]
fn the_most_specific_policy_is_applied_last() {
    let with = |more: Value, to: i64| {
        let mut selector = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
        selector
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let mut spec = with_rule(&replicas_overrider(to));
        spec["resourceSelectors"] = json!([selector]);
        spec
    };
    let labelled = |value: &str| json!({"labelSelector": {"matchLabels": {"app": value}}});
    let table = [
        (
            vec![
                ("named", with(json!({"name": "web"}), 4)),
                ("all", with_rule(&replicas_overrider(2))),
                ("label", with(labelled("x"), 3)),
                ("other", with(json!({"name": "db"}), 9)),
                ("others", with(labelled("y"), 9)),
            ],
            vec!["n/all", "n/label", "n/named"],
            4,
        ),
        (
            vec![
                ("b", with_rule(&replicas_overrider(2))),
                ("a", with(json!({}), 3)),
            ],
            vec!["n/a", "n/b"],
            2,
        ),
        (
            vec![("b", with(labelled("x"), 2)), ("a", with(labelled("x"), 3))],
            vec!["n/a", "n/b"],
            2,
        ),
        // The name is decisive, whatever the label selector says.
        (
            vec![(
                "a",
                with(
                    json!({"name": "web", "labelSelector": {"matchLabels": {"app": "y"}}}),
                    5,
                ),
            )],
            vec!["n/a"],
            5,
        ),
        (
            vec![("a", with(json!({"namespace": "other"}), 5))],
            vec![],
            1,
        ),
    ];
    for (policies, applied, expected) in table {
        let (copy, actual) = apply_to_manifest(&[], &policies);
        assert_eq!(actual.unwrap(), applied);
        assert_eq!(copy["spec"]["replicas"], expected);
    }
}

// proves: OVR-cluster-first
#[test]
fn cluster_policies_apply_first_and_affect_later_selectors() {
    let label =
        with_rule(&json!({"labelsOverrider": [{"operator": "add", "value": {"made": "yes"}}]}));
    let mut selecting_policy = with_rule(&replicas_overrider(5));
    selecting_policy["resourceSelectors"] = json!([{"apiVersion": "apps/v1", "kind": "Deployment",
        "labelSelector": {"matchLabels": {"made": "yes"}}}]);
    let (copy, applied) = apply_to_manifest(&[("z", label)], &[("a", selecting_policy.clone())]);
    assert_eq!(applied.unwrap(), ["z", "n/a"]);
    assert_eq!(copy["spec"]["replicas"], 5);
    assert_eq!(
        apply_to_manifest(&[], &[("a", selecting_policy)])
            .1
            .unwrap(),
        [""; 0]
    );
}

// proves: OVR-cluster-selector, OVR-legacy
#[test]
fn rules_apply_to_their_target_clusters() {
    let table = [
        (json!({"clusterNames": ["m1"]}), true),
        (json!({"clusterNames": ["m2"]}), false),
        (json!({}), true),
        (Value::Null, true),
        (json!({"clusterNames": ["m1"], "exclude": ["m1"]}), false),
        (json!({"exclude": ["m2"]}), true),
        (
            json!({"labelSelector": {"matchLabels": {"tier": "gold"}}}),
            true,
        ),
        (
            json!({"labelSelector": {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}}),
            false,
        ),
        (
            json!({"fieldSelector": {"matchExpressions": [{"key": "region", "operator": "In", "values": ["r1"]}]}}),
            true,
        ),
        (
            json!({"fieldSelector": {"matchExpressions": [{"key": "provider", "operator": "NotIn", "values": ["p1"]}]}}),
            false,
        ),
        (
            json!({"fieldSelector": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z2"]}]}}),
            true,
        ),
        (
            json!({"fieldSelector": {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["z2"]}]}}),
            false,
        ),
        (
            json!({"clusterNames": ["m1"], "labelSelector": {"matchLabels": {"tier": "tin"}}}),
            false,
        ),
    ];
    for (target, matches) in table {
        let rule = json!({"targetCluster": target, "overriders": replicas_overrider(7)});
        let expected = if matches { 7 } else { 1 };
        for spec in [rule.clone(), json!({"overrideRules": [rule]})] {
            let (copy, applied) = apply_to_manifest(&[], &[("p", spec)]);
            assert_eq!(applied.unwrap().len(), usize::from(matches), "{target}");
            assert_eq!(copy["spec"]["replicas"], expected, "{target}");
        }
    }
    let rule = |cluster: &str, to: i64| json!({"targetCluster": {"clusterNames": [cluster]}, "overriders": replicas_overrider(to)});
    let rules = json!([rule("m1", 7), rule("m2", 8), rule("m1", 9)]);
    let (copy, applied) = apply_to_manifest(
        &[],
        &[(
            "p",
            json!({"overrideRules": rules, "overriders": replicas_overrider(3)}),
        )],
    );
    assert_eq!(
        applied.unwrap(),
        ["n/p", "n/p"],
        "once for each rule; the old form is not read"
    );
    assert_eq!(copy["spec"]["replicas"], 9);
}

// proves: OVR-failure, OVR-absent, OVR-field-text
#[test]
fn failures_name_path_and_reason() {
    let check = |overriders: Value, expected: &str| {
        let rules = json!({"overrideRules": [{"overriders": {}}, {"overriders": overriders}]});
        let error = apply_to_manifest(&[], &[("p", rules)]).1.unwrap_err();
        let start = "override policy(n/p) cannot be applied for cluster(m1): spec.overrideRules[1].overriders.";
        assert_eq!(error.strip_prefix(start), Some(expected), "{error}");
    };
    let plain = |path: &str, operator: &str| {
        json!({"plaintext": [{"path": "/spec/replicas", "operator": "replace", "value": 2},
        {"path": path, "operator": operator, "value": 1}]})
    };
    check(
        plain("/none/x", "add"),
        "plaintext[1]: \"/none/x\": the parent of this path does not exist",
    );
    check(
        plain("/spec/none", "replace"),
        "plaintext[1]: \"/spec/none\": there is nothing at this path",
    );
    check(
        plain("/spec/none", "remove"),
        "plaintext[1]: \"/spec/none\": there is nothing at this path",
    );
    check(
        plain("spec", "add"),
        "plaintext[1]: \"spec\": a JSON pointer must be empty or start with \"/\"",
    );
    check(
        plain("/spec/template/spec/containers/7", "add"),
        "plaintext[1]: \"/spec/template/spec/containers/7\": the index is out of bounds",
    );
    check(
        plain("/kind", "remove"),
        "plaintext[1]: \"/kind\": which object this is must not change (from \"Deployment\" to none)",
    );
    let field = |path: &str, form: &str| json!({"fieldOverrider": [{"fieldPath": path, form: [{"subPath": "/none", "operator": "remove"}]}]});
    check(
        field("/data/x", "json"),
        "fieldOverrider[0]: \"/data/x\": there is nothing at this path",
    );
    check(
        field("/data/n", "json"),
        "fieldOverrider[0]: \"/data/n\": the value is not a string",
    );
    check(
        field("/data/j", "json"),
        "fieldOverrider[0].json[0]: \"/data/j\": \"/none\" in the text: there is nothing at this path",
    );
    check(
        field("/data/y", "yaml"),
        "fieldOverrider[0].yaml[0]: \"/data/y\": \"/none\" in the text: there is nothing at this path",
    );
    let image = |path: &str| json!({"imageOverrider": [{"predicate": {"path": path}, "component": "Tag", "operator": "remove"}]});
    check(
        image("/spec/none"),
        "imageOverrider[0]: \"/spec/none\": there is nothing at this path",
    );
    check(
        image("/data/y"),
        "imageOverrider[0]: \"/data/y\": failed to parse image value(b:\n- 1\na: 0644\n), error: invalid reference format",
    );
    let (_, legacy) = apply_to_manifest(
        &[("c", json!({"overriders": plain("/none/x", "add")}))],
        &[],
    );
    let expected = "cluster override policy(c) cannot be applied for cluster(m1): spec.overriders.plaintext[1]: ";
    assert!(legacy.unwrap_err().starts_with(expected));
    let no_json = with_rule(
        &json!({"fieldOverrider": [{"fieldPath": "/data/y", "json": [{"subPath": "/a", "operator": "remove"}]}]}),
    );
    assert!(
        apply_to_manifest(&[], &[("p", no_json)])
            .1
            .unwrap_err()
            .contains("\"/data/y\": the text is not valid JSON: ")
    );
}

// proves: OVR-record-size
#[test]
fn a_policy_whose_record_is_too_long_is_named() {
    let text = |length: usize| {
        with_rule(
            &json!({"plaintext": [{"path": "/data/j", "operator": "replace", "value": "x".repeat(length)}]}),
        )
    };
    let policies = [("short", text(100)), ("long", text(250_000))];
    let error = apply_to_manifest(&[], &policies).1.unwrap_err();
    assert!(
        error.starts_with("override policy(n/long) cannot be applied for cluster(m1): the applied overriders take 25"),
        "{error}"
    );
    let cluster_policies = [("c", text(130_000))];
    let result = apply_to_manifest(&cluster_policies, &[("p", text(129_000))]).1;
    assert!(
        result
            .unwrap_err()
            .starts_with("cluster override policy(c)")
    );
    apply_to_manifest(&[], &[("fits", text(200_000))])
        .1
        .unwrap();
}

// proves: OVR-recorded
#[test]
fn the_annotation_is_ordered_by_policy_name() {
    let add = |key: &str, value: &str| {
        with_rule(&json!({"labelsOverrider": [{"operator": "add", "value": {key: value}}]}))
    };
    let candidates = CandidateOverridePolicies {
        cluster_policies: vec![],
        policies: vec![
            policy("b", "n", &add("k", "<&>")),
            policy("a", "n", &add("l", "v")),
        ],
    };
    let mut copy = manifest();
    let record = apply_policies(&mut copy, &candidates).unwrap();
    assert_eq!(record.cluster_policies_annotation(), None);
    assert_eq!(
        record.policies_annotation().unwrap(),
        "[{\"policyName\":\"a\",\"overriders\":{\"labelsOverrider\":[{\"operator\":\"add\",\"value\":{\"l\":\"v\"}}]}},{\"policyName\":\"b\",\"overriders\":{\"labelsOverrider\":[{\"operator\":\"add\",\"value\":{\"k\":\"\\u003c\\u0026\\u003e\"}}]}}]"
    );
    assert_eq!(AppliedOverrides::default().policies_annotation(), None);
    let none = CandidateOverridePolicies {
        cluster_policies: vec![],
        policies: vec![],
    };
    assert_eq!(
        none.apply(
            &mut copy,
            &DEPLOYMENT,
            &ClusterAttributes {
                name: "m",
                labels: &[],
                provider: "",
                region: "",
                zones: &[]
            }
        )
        .unwrap(),
        AppliedOverrides::default()
    );
}

#[test]
fn policies_select_by_present_and_by_possible_labels() {
    let object = Object::from_value(&manifest()).unwrap();
    let selector = |more: Value| {
        let mut all = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
        all.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({"resourceSelectors": [{"apiVersion": "v1", "kind": "Secret"}, all]})
    };
    let labels = |value: &str| json!({"labelSelector": {"matchLabels": {"app": value}}});
    for (spec, now, perhaps) in [
        (json!({}), true, true),
        (selector(json!({})), true, true),
        (selector(json!({"name": "web"})), true, true),
        (selector(json!({"name": "db"})), false, false),
        (selector(labels("x")), true, true),
        (selector(labels("y")), false, true),
        (
            json!({"resourceSelectors": [{"apiVersion": "v1", "kind": "Secret"}]}),
            false,
            false,
        ),
    ] {
        let policy = policy("p", "n", &spec);
        let actual = [selects, may_select].map(|f| f(&policy, &DEPLOYMENT, object.meta()));
        assert_eq!(actual, [now, perhaps], "{spec}");
    }
}

/// Asserts that the policies of a namespace fail at a field, and that those of an administrator apply.
fn check_rights_stay(manifest: Value, overrider: Value, field: &str) {
    let rule = with_rule(&json!({"plaintext": [overrider]}));
    let mut copy = manifest.clone();
    let local = CandidateOverridePolicies {
        cluster_policies: vec![],
        policies: vec![policy("o", "n", &rule)],
    };
    let failure = apply_policies(&mut copy, &local).unwrap_err();
    let expected = format!(
        "override policy(n/o) cannot be applied for cluster(m1): spec.overrideRules: {field:?}: which rights an object grants"
    );
    assert!(failure.starts_with(&expected), "{failure}");
    let mut copy = manifest;
    let of_administrator = CandidateOverridePolicies {
        cluster_policies: vec![policy("o", "", &rule)],
        policies: vec![],
    };
    apply_policies(&mut copy, &of_administrator).unwrap();
}

// proves: OVR-rights
#[test]
fn the_policies_of_a_namespace_do_not_change_what_an_object_grants() {
    let object = |kind: &str, more: Value| {
        let mut object = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
            "metadata": {"name": "a", "namespace": "n"}});
        object
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        object
    };
    let role = object(
        "Role",
        json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
    );
    let binding = object(
        "RoleBinding",
        json!({"roleRef": {"kind": "Role", "name": "a"}, "subjects": []}),
    );
    let replace =
        |path: &str, value: Value| json!({"path": path, "operator": "replace", "value": value});
    check_rights_stay(
        role.clone(),
        replace("/rules/0/verbs", json!(["*"])),
        "/rules",
    );
    check_rights_stay(
        role.clone(),
        json!({"path": "/rules", "operator": "remove"}),
        "/rules",
    );
    check_rights_stay(
        binding.clone(),
        replace("/roleRef/name", json!("b")),
        "/roleRef",
    );
    check_rights_stay(
        binding,
        replace("/subjects", json!([{"kind": "User", "name": "evil"}])),
        "/subjects",
    );
    let labelled = json!({"path": "/metadata/labels", "operator": "add", "value": {"a": "b"}});
    let local = CandidateOverridePolicies {
        cluster_policies: vec![],
        policies: vec![policy(
            "o",
            "n",
            &with_rule(&json!({"plaintext": [labelled]})),
        )],
    };
    let mut copy = role;
    apply_policies(&mut copy, &local).unwrap();
    assert_eq!(copy["metadata"]["labels"], json!({"a": "b"}));
}

// proves: BND-override-selected, BND-override-scope
#[test]
fn policies_may_select_named_objects_or_all_of_a_kind() {
    let group = KindInNamespace {
        api_version: "apps/v1",
        kind: "Deployment",
        namespace: "n",
    };
    let named = |name: &str| json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name});
    let by_label = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "labelSelector": {"matchLabels": {"app": "x"}}});
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    let names = |all: &[&str]| {
        SelectableObjects::Named(all.iter().map(|name| (*name).to_owned()).collect())
    };
    for (policies, expected) in [
        (vec![("n", json!([named("a")]))], names(&["a"])),
        (vec![("", json!([named("a"), config]))], names(&["a"])),
        (vec![("other", json!([named("a")]))], names(&[])),
        (vec![("n", json!([config]))], names(&[])),
        (
            vec![("n", json!([named("a")])), ("n", json!([named("b")]))],
            names(&["a", "b"]),
        ),
        (
            vec![("n", json!([named("a"), by_label]))],
            SelectableObjects::All,
        ),
        (vec![("n", json!([]))], SelectableObjects::All),
        (
            vec![("n", json!([named("a")])), ("n", json!([by_label]))],
            SelectableObjects::All,
        ),
    ] {
        let policies: Vec<Object> = policies
            .iter()
            .map(|(namespace, selectors)| {
                policy("o", namespace, &json!({"resourceSelectors": selectors}))
            })
            .collect();
        assert_eq!(
            selectable_objects(&policies, &group),
            expected,
            "{policies:?}"
        );
    }
}
