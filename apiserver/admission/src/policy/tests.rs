use machinery::{Gvk, UserInfo};
use openapi::karmada::resources::POLICIES;
use serde_json::json;

use super::*;

static KIND: Gvk = Gvk::constant("policy.karmada.io", "v1alpha1", "PropagationPolicy");

fn at<'a>(namespace: &'a str, operation: Operation, user: &'a UserInfo) -> Attributes<'a> {
    Attributes {
        gvk: &KIND,
        gvr: &POLICIES,
        namespace,
        name: "p",
        subresource: "",
        operation,
        user,
        dry_run: false,
    }
}

fn policy(change: Value) -> Value {
    let mut spec = json!({"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "namespace": "n"}],
        "schedulerName": "default-scheduler"});
    for (k, v) in change.as_object().unwrap() {
        spec[k] = v.clone();
    }
    json!({"metadata": {"name": "p", "namespace": "n", "labels": {NAMESPACED.label: "id"}}, "spec": spec})
}

/// The spec after mutation differs from the one before only at `path`.
fn check_mutation(change: Value, path: &str, expect: Value) {
    let user = UserInfo::default();
    let mut new = policy(change.clone());
    mutate(&at("n", Operation::Update, &user), &mut new);
    assert_eq!(get(&new, path), &expect, "{change}");
}

// proves: ADM-policy-selector-namespace, ADM-policy-spread-defaults, ADM-policy-weighted
// proves: ADM-policy-import-deps, ADM-policy-grace-default
#[test]
fn defaults_are_filled() {
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
}

// proves: ADM-policy-created
#[test]
fn creation_marks_the_policy() {
    let user = UserInfo::default();
    for (namespace, variant) in [("n", NAMESPACED), ("", CLUSTER)] {
        let mut new = json!({"metadata": {"name": "p", "labels": {variant.label: "mine"}, "finalizers": null}, "spec": {}});
        mutate(&at(namespace, Operation::Create, &user), &mut new);
        let id = new["metadata"]["labels"][variant.label]
            .as_str()
            .unwrap()
            .to_owned();
        assert_eq!(id.len(), 36, "{id}");
        assert_eq!(new["metadata"]["finalizers"], json!([variant.finalizer]));
        mutate(&at(namespace, Operation::Update, &user), &mut new);
        assert_eq!(new["metadata"]["labels"][variant.label], id.as_str());
    }
}

fn check_rules(change: Value, expect: &[&str]) {
    let user = UserInfo::default();
    let errors = validate(&at("n", Operation::Create, &user), &policy(change.clone()));
    let fields: Vec<&str> = errors.iter().map(|e| e.field.as_str()).collect();
    assert_eq!(fields, expect, "{change}\n{errors:?}");
}

// proves: ADM-policy-affinity-both, ADM-policy-affinity-names, ADM-policy-field-selector
// proves: ADM-policy-overflow
#[test]
fn affinities_are_judged() {
    let p = |v: Value| json!({ "placement": v });
    let zone = |key: &str, op: &str| json!({"fieldSelector": {"matchExpressions": [{"key": key, "operator": op, "values": ["x"]}]}});
    let term = |name: &str, extra: Value| {
        let mut term = json!({"affinityName": name, "clusterNames": ["m1"]});
        for (k, v) in extra.as_object().unwrap() {
            term[k] = v.clone();
        }
        term
    };
    let one = "spec.placement.clusterAffinities[0]";
    check_rules(p(json!({"clusterAffinity": zone("zone", "In")})), &[]);
    check_rules(
        p(json!({"clusterAffinity": zone("area", "In")})),
        &["spec.placement.clusterAffinity.fieldSelector"],
    );
    check_rules(
        p(json!({"clusterAffinity": zone("zone", "Exists")})),
        &["spec.placement.clusterAffinity.fieldSelector"],
    );
    check_rules(
        p(json!({"clusterAffinity": {}, "clusterAffinities": [term("a", json!({}))]})),
        &["spec.placement"],
    );
    check_rules(
        p(json!({"clusterAffinities": [term("a", json!({})), term("b", json!({}))]})),
        &[],
    );
    check_rules(
        p(json!({"clusterAffinities": [term("a", json!({})), term("a", json!({}))]})),
        &["spec.placement.clusterAffinities"],
    );
    check_rules(
        p(json!({"clusterAffinities": [term("a b", json!({}))]})),
        &[one],
    );
    check_rules(
        p(json!({"clusterAffinities": [term("a", zone("x", "In"))]})),
        &[&format!("{one}.fieldSelector")],
    );
    let overflow = |strategy: Value, primary: Value, tiers: Value| {
        let mut term = primary;
        term["overflowAffinities"] = tiers;
        p(json!({"clusterAffinities": [term], "replicaScheduling": strategy}))
    };
    let aggregated =
        json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"});
    let dynamic = json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
        "weightPreference": {"dynamicWeight": "AvailableReplicas"}});
    let fixed =
        json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted"});
    let primary = term("a", json!({}));
    let tiers = json!([{"affinityName": "b", "clusterNames": ["m2"]}]);
    let field = format!("{one}.overflowAffinities");
    check_rules(
        overflow(aggregated.clone(), primary.clone(), tiers.clone()),
        &[],
    );
    check_rules(overflow(dynamic, primary.clone(), tiers.clone()), &[]);
    check_rules(overflow(fixed, primary.clone(), tiers.clone()), &[&field]);
    check_rules(
        overflow(aggregated.clone(), json!({"affinityName": "a"}), tiers),
        &[&field],
    );
    check_rules(
        overflow(
            aggregated.clone(),
            primary.clone(),
            json!([{"affinityName": "a"}, {"affinityName": "b c"}]),
        ),
        &[
            &format!("{field}[0].affinityName"),
            &format!("{field}[1].affinityName"),
        ],
    );
    let mut tier = zone("x", "In");
    tier["affinityName"] = "b".into();
    check_rules(
        overflow(aggregated, primary, json!([tier])),
        &[&format!("{field}[0].fieldSelector")],
    );
}

// proves: ADM-policy-spread-both, ADM-policy-spread-bounds, ADM-policy-spread-cluster
// proves: ADM-policy-spread-twice, ADM-policy-tolerations, ADM-policy-workload-affinity
#[test]
fn spreading_and_the_rest_of_placement_is_judged() {
    let spread = |c: Value| json!({"placement": {"spreadConstraints": c}});
    let base = "spec.placement.spreadConstraints";
    let cluster = json!({"spreadByField": "cluster", "minGroups": 1});
    check_rules(
        spread(json!([cluster, {"spreadByField": "region", "maxGroups": 2, "minGroups": 1}])),
        &[],
    );
    check_rules(spread(json!([{"spreadByLabel": "x"}])), &[]);
    check_rules(
        spread(json!([{"spreadByField": "cluster", "spreadByLabel": "x"}])),
        &[&format!("{base}[0]")],
    );
    check_rules(
        spread(json!([{"spreadByField": "cluster", "minGroups": -1}])),
        &[&format!("{base}[0]")],
    );
    check_rules(
        spread(json!([{"spreadByField": "cluster", "maxGroups": -1}])),
        &[&format!("{base}[0]")],
    );
    check_rules(
        spread(json!([{"spreadByField": "cluster", "maxGroups": 1, "minGroups": 2}])),
        &[&format!("{base}[0]")],
    );
    check_rules(spread(json!([cluster, cluster, cluster])), &[base]);
    check_rules(spread(json!([{"spreadByField": "region"}])), &[base]);
    let toleration =
        |op: &str| json!({"placement": {"clusterTolerations": [{"key": "a", "operator": op}]}});
    check_rules(toleration("Exists"), &[]);
    check_rules(
        toleration("Gt"),
        &["spec.placement.clusterTolerations[0].operator"],
    );
    let workload = |a: &str, b: &str| json!({"placement": {"workloadAffinity": {"affinity": {"groupByLabelKey": a}, "antiAffinity": {"groupByLabelKey": b}}}});
    check_rules(workload("a", "b"), &[]);
    check_rules(
        workload("a b", "b"),
        &["spec.placement.workloadAffinity.affinity.groupByLabelKey"],
    );
    check_rules(workload("a", "a"), &["spec.placement.workloadAffinity"]);
}

// proves: ADM-policy-failover-deps, ADM-policy-grace, ADM-policy-preserved-labels
// proves: ADM-policy-preemption, ADM-policy-namespace, ADM-policy-suspension
#[test]
fn failover_preemption_and_suspension_are_judged() {
    let app = |deps: bool, v: Value| json!({"propagateDeps": deps, "failover": {"application": v}});
    let base = "spec.failover.application";
    let grace = format!("{base}.gracePeriodSeconds");
    check_rules(
        app(
            true,
            json!({"purgeMode": "Gracefully", "gracePeriodSeconds": 1, "decisionConditions": {"tolerationSeconds": 0}}),
        ),
        &[],
    );
    check_rules(app(true, json!({"purgeMode": "Never"})), &[]);
    check_rules(
        app(false, json!({"purgeMode": "Never"})),
        &["spec.propagateDeps"],
    );
    check_rules(
        app(
            true,
            json!({"purgeMode": "Never", "decisionConditions": {"tolerationSeconds": -1}}),
        ),
        &[&format!("{base}.decisionConditions.tolerationSeconds")],
    );
    check_rules(
        app(true, json!({"purgeMode": "Never", "gracePeriodSeconds": 1})),
        &[&grace],
    );
    check_rules(app(true, json!({"purgeMode": "Gracefully"})), &[&grace]);
    check_rules(
        app(
            true,
            json!({"purgeMode": "Gracefully", "gracePeriodSeconds": 0}),
        ),
        &[&grace],
    );
    let rules = |name: &str| json!({"failover": {"cluster": {"statePreservation": {"rules": [{"aliasLabelName": name, "jsonPath": "{.x}"}]}}}});
    check_rules(rules("a"), &[]);
    check_rules(
        rules("a b"),
        &["spec.failover.cluster.statePreservation.rules[0].aliasLabelName"],
    );

    let selector = |ns: &str, name: &str| json!([{"apiVersion": "v1", "kind": "Secret", "namespace": ns, "name": name}]);
    check_rules(json!({"preemption": "Always"}), &[]);
    check_rules(
        json!({"preemption": "Always", "resourceSelectors": selector("n", "")}),
        &["spec.resourceSelectors[0].name"],
    );
    check_rules(
        json!({"resourceSelectors": selector("other", "x")}),
        &["spec.resourceSelectors[0].namespace"],
    );
    let suspension = |all: bool, clusters: Value| json!({"suspension": {"dispatching": all, "dispatchingOnClusters": {"clusterNames": clusters}}});
    check_rules(suspension(true, json!([])), &[]);
    check_rules(suspension(false, json!(["m1"])), &[]);
    check_rules(
        suspension(true, json!(["m1"])),
        &["spec.suspension.suspension"],
    );
}

// proves: ADM-policy-scheduler, ADM-policy-id
#[test]
fn annotations_of_the_automatic_failover_are_judged() {
    let check = |annotations: Value, fields: &[&str]| {
        let policy = json!({"metadata": {"annotations": annotations}, "spec": {}});
        let mut errors = Vec::new();
        automatic_failover(&policy, &mut errors);
        let found: Vec<&str> = errors.iter().map(|e| e.field.as_str()).collect();
        assert_eq!(found, fields, "{policy}");
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

#[test]
fn id_and_scheduler_stay() {
    let user = UserInfo::default();
    let old = policy(json!({}));
    let relabel = |labels: Value| {
        let mut new = policy(json!({}));
        new["metadata"]["labels"] = labels;
        new
    };
    let label = NAMESPACED.label;
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
        let verdict = identity(&at("n", Operation::Update, &user), &new, Some(&old));
        assert_eq!(verdict.err().as_deref(), expect);
    }
    let bare = relabel(json!({}));
    let verdict = identity(&at("n", Operation::Create, &user), &bare, None);
    let required = format!(
        "label {label} is required, it should be set by the mutating admission webhook during creation"
    );
    assert_eq!(verdict, Err(required));
}

/// The texts clients see, as Karmada's webhook writes them.
#[test]
fn denials_are_in_the_words_of_karmada() {
    let user = UserInfo::default();
    let said = |change: Value| {
        let errors = validate(&at("n", Operation::Create, &user), &policy(change));
        machinery::fields::aggregate(&errors)
    };
    let placement = |v: Value| json!({ "placement": v });
    let table = [
        (
            placement(
                json!({"clusterAffinity": {"clusterNames": ["m"]}, "clusterAffinities": [{"affinityName": "a"}]}),
            ),
            r#"spec.placement: Invalid value: {"clusterAffinity":{"clusterNames":["m"]},"clusterAffinities":[{"affinityName":"a"}]}: clusterAffinities cannot co-exist with clusterAffinity"#,
        ),
        (
            placement(
                json!({"spreadConstraints": [{"spreadByField": "cluster", "maxGroups": 1, "minGroups": 2}]}),
            ),
            r#"spec.placement.spreadConstraints[0]: Invalid value: {"spreadByField":"cluster","maxGroups":1,"minGroups":2}: maxGroups lower than minGroups is not allowed"#,
        ),
        (
            placement(
                json!({"clusterAffinity": {"fieldSelector": {"matchExpressions": [{"key": "x", "operator": "In", "values": ["y"]}]}}}),
            ),
            r#"spec.placement.clusterAffinity.fieldSelector: Invalid value: {"matchExpressions":[{"key":"x","operator":"In","values":["y"]}]}: unsupported key "x", must be provider, region, or zone"#,
        ),
        (
            placement(json!({"clusterTolerations": [{"operator": "Lt"}]})),
            r#"spec.placement.clusterTolerations[0].operator: Unsupported value: "Lt": supported values: "", "Exists", "Equal""#,
        ),
        (
            json!({"suspension": {"dispatching": true, "dispatchingOnClusters": {"clusterNames": ["m"]}}}),
            r#"spec.suspension.suspension: Invalid value: {"dispatching":true,"dispatchingOnClusters":{"clusterNames":["m"]}}: suspension dispatching cannot co-exist with dispatchingOnClusters.clusterNames"#,
        ),
        (
            json!({"resourceSelectors": [{"apiVersion": "v1", "kind": "Secret", "namespace": "o"}], "preemption": "Always"}),
            r#"[spec.resourceSelectors[0].namespace: Invalid value: "o": namespace of resource selector must be the same as the namespace of the policy, spec.resourceSelectors[0].name: Invalid value: "": name cannot be empty if preemption is Always, the empty name may cause unexpected resources preemption]"#,
        ),
        (
            json!({"propagateDeps": true, "failover": {"application": {"purgeMode": "Gracefully"}}}),
            "spec.failover.application.gracePeriodSeconds: Invalid value: null: should not be empty when purgeMode is gracefully",
        ),
    ];
    for (change, expect) in table {
        assert_eq!(said(change), expect);
    }
}
