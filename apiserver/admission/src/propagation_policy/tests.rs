//! Tests of the propagation policy rules.

use karmada_api::resources::POLICIES;
use machinery::{Gvk, UserInfo};
use serde_json::json;

use super::*;
use crate::attributes::OperationOptions;

static KIND: Gvk = Gvk::from_static("policy.karmada.io", "v1alpha1", "PropagationPolicy");

fn at<'a>(
    namespace: &'a str,
    operation: AdmissionOperation,
    user: &'a UserInfo,
) -> AdmissionAttributes<'a> {
    AdmissionAttributes {
        gvk: &KIND,
        gvr: &POLICIES,
        namespace,
        name: "p",
        subresource: "",
        operation,
        user,
        dry_run: false,
        options: OperationOptions::None,
        audit_annotations: None,
    }
}

fn policy(change: Value) -> Value {
    let mut spec = json!({"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "namespace": "n"}],
        "schedulerName": "default-scheduler"});
    for (k, v) in change.as_object().unwrap() {
        spec[k] = v.clone();
    }
    json!({"metadata": {"name": "p", "namespace": "n", "labels": {NAMESPACED_POLICY.label: "id"}}, "spec": spec})
}

/// Checks that mutation changes the spec at `path` only.
fn check_mutation(change: Value, path: &str, expect: Value) {
    let user = UserInfo::default();
    let mut new = policy(change.clone());
    mutate(&at("n", AdmissionOperation::Update, &user), &mut new);
    assert_eq!(get(&new, path), &expect, "{change}");
}

#[test]
fn defaults_are_applied() {
    let spread = |c: Value| json!({"placement": {"spreadConstraints": [c]}});
    let constraint = "/spec/placement/spreadConstraints/0";
    check_mutation(
        json!({"resourceSelectors": [{"apiVersion": "v1", "kind": "Secret"}]}),
        "/spec/resourceSelectors/0/namespace",
        json!("n"),
    );
    check_mutation(
        spread(json!({"maxGroups": 2})),
        constraint,
        json!({"spreadByField": "cluster", "minGroups": 1, "maxGroups": 2}),
    );
    check_mutation(
        spread(json!({})),
        constraint,
        json!({"spreadByField": "cluster", "minGroups": 1}),
    );
    check_mutation(
        spread(json!({"spreadByLabel": "x", "minGroups": 3})),
        constraint,
        json!({"spreadByLabel": "x", "minGroups": 3}),
    );
    check_mutation(
        json!({"resourceSelectors": [{"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceImport"}]}),
        "/spec/propagateDeps",
        json!(true),
    );
    check_mutation(
        json!({"placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}}}),
        "/spec/placement/replicaScheduling/replicaDivisionPreference",
        json!("Weighted"),
    );
    check_mutation(
        json!({"placement": {"replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}}}),
        "/spec/placement/replicaScheduling/replicaDivisionPreference",
        json!("Aggregated"),
    );
    check_mutation(
        json!({"placement": {"replicaScheduling": {"replicaSchedulingType": "Duplicated"}}}),
        "/spec/placement/replicaScheduling/replicaDivisionPreference",
        json!(null),
    );
    check_mutation(
        json!({"failover": {"application": {"purgeMode": "Gracefully"}}}),
        "/spec/failover/application/gracePeriodSeconds",
        json!(600),
    );
    check_mutation(
        json!({"failover": {"application": {"purgeMode": "Never"}}}),
        "/spec/failover/application/gracePeriodSeconds",
        json!(null),
    );
    check_mutation(
        json!({"failover": {"application": {"purgeMode": "Gracefully", "gracePeriodSeconds": 5}}}),
        "/spec/failover/application/gracePeriodSeconds",
        json!(5),
    );
}

#[test]
fn cluster_policy_selectors_keep_empty_namespaces() {
    let user = UserInfo::default();
    let mut new = policy(json!({"resourceSelectors": [{"apiVersion": "v1", "kind": "Secret"}]}));
    mutate(&at("", AdmissionOperation::Update, &user), &mut new);
    assert_eq!(
        get(&new, "/spec/resourceSelectors/0"),
        &json!({"apiVersion": "v1", "kind": "Secret"})
    );
}

#[test]
fn creation_sets_permanent_id_and_finalizer() {
    let user = UserInfo::default();
    for (namespace, variant) in [("n", NAMESPACED_POLICY), ("", CLUSTER_POLICY)] {
        let mut new = json!({"metadata": {"name": "p", "labels": {variant.label: "mine"}, "finalizers": null}, "spec": {}});
        mutate(&at(namespace, AdmissionOperation::Create, &user), &mut new);
        let id = new["metadata"]["labels"][variant.label]
            .as_str()
            .unwrap()
            .to_owned();
        assert_eq!(id.len(), 36, "{id}");
        assert_eq!(new["metadata"]["finalizers"], json!([variant.finalizer]));
        new["metadata"]["finalizers"] = json!([]);
        mutate(&at(namespace, AdmissionOperation::Update, &user), &mut new);
        assert_eq!(new["metadata"]["labels"][variant.label], id.as_str());
        assert_eq!(new["metadata"]["finalizers"], json!([]));
    }
}

/// Checks the errors of a policy in the namespace n.
fn check(change: Value, expected: &[&str]) {
    let user = UserInfo::default();
    let errors = validate(
        &at("n", AdmissionOperation::Create, &user),
        &policy(change.clone()),
    );
    let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(messages, expected, "{change}");
}

const APPLICATION: &str = "spec.failover.application";

fn application(fields: Value) -> Value {
    json!({"propagateDeps": true, "failover": {"application": fields}})
}

#[test]
fn application_failover_needs_propagate_deps() {
    let never = json!({"purgeMode": "Never"});
    check(application(never.clone()), &[]);
    check(
        json!({"failover": {"application": never}}),
        &[
            "spec.propagateDeps: Invalid value: false: application failover is set, propagateDeps must be true",
        ],
    );
}

#[test]
fn toleration_seconds_are_not_negative() {
    let tolerated = |seconds: i64| {
        application(
            json!({"purgeMode": "Never", "decisionConditions": {"tolerationSeconds": seconds}}),
        )
    };
    check(tolerated(0), &[]);
    check(
        tolerated(-1),
        &[&format!(
            "{APPLICATION}.decisionConditions.tolerationSeconds: Invalid value: -1: must be greater than or equal to 0"
        )],
    );
}

#[test]
fn grace_period_needs_graceful_purge() {
    let grace = |mode: &str, seconds: Option<i64>| {
        application(json!({"purgeMode": mode, "gracePeriodSeconds": seconds}))
    };
    let message =
        |detail: &str| format!("{APPLICATION}.gracePeriodSeconds: Invalid value: {detail}");
    check(grace("Gracefully", Some(1)), &[]);
    check(grace("Directly", None), &[]);
    for mode in ["Directly", "Never"] {
        check(
            grace(mode, Some(1)),
            &[&message(
                "1: only takes effect when purgeMode is gracefully",
            )],
        );
    }
    check(
        grace("Gracefully", None),
        &[&message(
            "null: should not be empty when purgeMode is gracefully",
        )],
    );
    check(
        grace("Gracefully", Some(0)),
        &[&message("0: must be greater than 0")],
    );
}

#[test]
fn state_preservation_aliases_are_label_keys() {
    let detail = validate_qualified_name("a b").unwrap_err();
    for scope in ["application", "cluster"] {
        let preserved = |name: &str| {
            let rules = json!({"rules": [{"aliasLabelName": name, "jsonPath": "{.x}"}]});
            json!({"propagateDeps": true, "failover": {scope: {"purgeMode": "Never", "statePreservation": rules}}})
        };
        check(preserved("a"), &[]);
        check(
            preserved("a b"),
            &[&format!(
                r#"spec.failover.{scope}.statePreservation.rules[0].aliasLabelName: Invalid value: "a b": {detail}"#
            )],
        );
    }
}

fn selecting(namespace: &str, name: &str) -> Value {
    json!([{"apiVersion": "v1", "kind": "Secret", "namespace": namespace, "name": name}])
}

#[test]
fn namespaced_policy_selects_its_own_namespace() {
    let other_namespace = json!({"resourceSelectors": selecting("other", "x")});
    check(
        other_namespace.clone(),
        &[
            r#"spec.resourceSelectors[0].namespace: Invalid value: "other": namespace of resource selector must be the same as the namespace of the policy"#,
        ],
    );
    let user = UserInfo::default();
    let of_cluster = at("", AdmissionOperation::Create, &user);
    assert_eq!(validate(&of_cluster, &policy(other_namespace)), []);
}

#[test]
fn preemption_needs_resource_names() {
    let spec_with_name = |preemption: &str, name: &str| json!({"preemption": preemption, "resourceSelectors": selecting("n", name)});
    check(spec_with_name("Always", "x"), &[]);
    check(spec_with_name("Never", ""), &[]);
    check(
        spec_with_name("Always", ""),
        &[
            r#"spec.resourceSelectors[0].name: Invalid value: "": name cannot be empty if preemption is Always, the empty name may cause unexpected resources preemption"#,
        ],
    );
}

#[test]
fn suspension_excludes_cluster_names() {
    let suspended = |everywhere: bool, clusters: &[&str]| json!({"suspension": {"dispatching": everywhere, "dispatchingOnClusters": {"clusterNames": clusters}}});
    check(suspended(true, &[]), &[]);
    check(suspended(false, &["m"]), &[]);
    check(
        suspended(true, &["m"]),
        &[
            r#"spec.suspension.suspension: Invalid value: {"dispatching":true,"dispatchingOnClusters":{"clusterNames":["m"]}}: suspension dispatching cannot co-exist with dispatchingOnClusters.clusterNames"#,
        ],
    );
}

#[test]
fn automatic_failover_annotations_are_validated() {
    let check = |annotations: Value, fields: &[&str]| {
        let policy = json!({"metadata": {"annotations": annotations}, "spec": {}});
        let mut errors = Vec::new();
        validate_automatic_failover(&policy, &mut errors);
        let actual: Vec<&str> = errors.iter().map(|e| e.field.as_str()).collect();
        assert_eq!(actual, fields, "{policy}");
    };
    let (mode, after) = ("flotilla.io/failover", "flotilla.io/failover-after");
    check(json!({"other": "x"}), &[]);
    check(json!({mode: "auto", after: "1m30s"}), &[]);
    check(
        json!({mode: "always"}),
        &[&format!("metadata.annotations[{mode}]")],
    );
    check(
        json!({mode: "auto", after: "5"}),
        &[&format!("metadata.annotations[{after}]")],
    );
}

// proves: ADM-policy-id-required
#[test]
fn permanent_id_and_scheduler_are_immutable() {
    let user = UserInfo::default();
    let old = policy(json!({}));
    let relabel = |labels: Value| {
        let mut new = policy(json!({}));
        new["metadata"]["labels"] = labels;
        new
    };
    let label = NAMESPACED_POLICY.label;
    let immutable =
        format!("label {label} is immutable, it can only be set by the system during creation");
    let table = [
        (policy(json!({"priority": 3})), None),
        (
            policy(json!({"schedulerName": "other"})),
            Some("the schedulerName should not be updated"),
        ),
        (relabel(json!({ label: "new" })), Some(immutable.as_str())),
        (relabel(json!({})), Some(immutable.as_str())),
    ];
    for (new, expect) in table {
        let result = validate_identity(
            &at("n", AdmissionOperation::Update, &user),
            &new,
            Some(&old),
        );
        assert_eq!(result.err().as_deref(), expect);
    }
    let bare = relabel(json!({}));
    let result = validate_identity(&at("n", AdmissionOperation::Create, &user), &bare, None);
    let required = format!(
        "label {label} is required, it should be set by the mutating admission webhook during creation"
    );
    assert_eq!(result, Err(required));
}

// proves: RMW-invalid
#[test]
fn the_annotation_that_holds_deletions_is_validated() {
    let user = UserInfo::default();
    for (value, valid) in [
        (json!("true"), true),
        (json!("false"), true),
        (json!("yes"), false),
        (json!(""), false),
    ] {
        let annotations = json!({well_known_keys::WAIT_FOR_REMOVAL: value});
        let policy = json!({"metadata": {"annotations": annotations}, "spec": {}});
        let errors = validate(&at("n", AdmissionOperation::Create, &user), &policy);
        let fields: Vec<&str> = errors.iter().map(|e| e.field.as_str()).collect();
        let expected = ["metadata.annotations[flotilla.io/wait-for-removal]"];
        assert_eq!(fields, &expected[usize::from(valid)..], "{value}");
    }
}
