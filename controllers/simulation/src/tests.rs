//! Tests of the simulated claims and placements.

use interpreter::TemplateReplicas;
use std::time::Instant;

use karmada_api::well_known_keys::{
    CLUSTER_POLICY_ID, CLUSTER_POLICY_NAME, POLICY_ID, POLICY_NAME, POLICY_NAMESPACE,
};
use machinery::Gvr;
use scheduler::core::ClusterSnapshot;
use serde_json::json;

use crate::*;

fn deployments() -> ApiResource {
    ApiResource {
        resource: Gvr::from_static("apps", "v1", "deployments"),
        kind: "Deployment".into(),
        namespaced: true,
        verbs: ["list", "watch", "delete"].map(Into::into).into(),
        subresources: vec![],
        categories: vec![],
        short_names: vec![],
    }
}

fn object(value: &Value) -> Object {
    Object::from_value(value).unwrap()
}

/// `more`: fields of the spec.
fn policy(namespace: &str, name: &str, more: Value) -> Object {
    let label = if namespace.is_empty() {
        CLUSTER_POLICY_ID
    } else {
        POLICY_ID
    };
    let mut spec = json!({"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "n", "name": "web"}]});
    spec.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    object(
        &json!({"metadata": {"name": name, "namespace": namespace, "uid": name, "labels": {label: name}}, "spec": spec}),
    )
}

fn placed_on(cluster: &str) -> Value {
    json!({"placement": {"clusterAffinity": {"clusterNames": [cluster]}}})
}

/// A template that the named policy has claimed; the name of a cluster policy starts with a colon.
fn template(of: Option<&str>) -> Object {
    let (labels, annotations) = match of.map(|name| (name, name.strip_prefix(':'))) {
        None => (json!({}), json!({})),
        Some((_, Some(cluster))) => (
            json!({CLUSTER_POLICY_ID: cluster}),
            json!({CLUSTER_POLICY_NAME: cluster}),
        ),
        Some((local, None)) => (
            json!({POLICY_ID: local}),
            json!({POLICY_NAMESPACE: "n", POLICY_NAME: local}),
        ),
    };
    object(
        &json!({"metadata": {"name": "web", "namespace": "n", "uid": "u", "labels": labels, "annotations": annotations},
        "spec": {"replicas": 2, "template": {"spec": {"containers": []}}}}),
    )
}

fn clusters() -> ClusterSnapshot {
    let cluster = |name: &str| {
        let kinds = json!([{"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment"}]}]);
        object(&json!({"metadata": {"name": name}, "spec": {}, "status": {
            "apiEnablements": kinds, "conditions": [{"type": "Ready", "status": "True"}, {"type": "CompleteAPIEnablements", "status": "True"}]}}))
    };
    ClusterSnapshot::new(["m1", "m2"].map(cluster))
}

fn simulation_input<'a>(
    policies: &'a [Object],
    snapshot: &'a ClusterSnapshot,
    gates: FeatureGates,
) -> SimulationInput<'a> {
    SimulationInput {
        policies,
        overrides: &[],
        bindings: &[],
        snapshot,
        scheduler: "default-scheduler",
        gates,
        starts_anew: false,
    }
}

/// Checks where the template would go, which policy would claim it, and what prevents it.
fn check(
    policies: &[Object],
    changed: &str,
    of: Option<&str>,
    expected: (&[&str], Option<&str>, &str),
) {
    let snapshot = clusters();
    let gates =
        FeatureGates::default().with_feature(KarmadaFeature::PropagationPolicyPreemption, true);
    let input = simulation_input(policies, &snapshot, gates);
    check_input(&input, changed, of, expected);
}

fn check_input(
    input: &SimulationInput<'_>,
    changed: &str,
    of: Option<&str>,
    expected: (&[&str], Option<&str>, &str),
) {
    let changes: Vec<PolicyChange<'_>> = input
        .policies
        .iter()
        .filter(|p| p.name() == changed)
        .map(|after| PolicyChange {
            before: None,
            after,
        })
        .collect();
    let (kind, template) = (deployments(), template(of));
    let wants = Ok(InterpretedReplicas::Replicas(TemplateReplicas {
        count: 2,
        requirements: None,
    }));
    let case = SimulatedTemplate {
        api_resource: &kind,
        template: &template,
        replicas: &wants,
        binding: None,
        namespace_gate: None,
        disabled_by: None,
    };
    let simulated = simulate(
        input,
        &changes,
        &case,
        &mut SchedulingSimulation::new(Instant::now()),
    );
    let names: Vec<&str> = simulated.clusters.iter().map(|c| c.name.as_str()).collect();
    let by = simulated.claim.policy.as_ref().map(|p| p.name.as_str());
    let blocked_by = simulated.blocked_by.clone().unwrap_or_default();
    assert_eq!(
        (names.as_slice(), by),
        (expected.0, expected.1),
        "{simulated:?}"
    );
    assert!(
        blocked_by.contains(expected.2) && blocked_by.is_empty() == expected.2.is_empty(),
        "{blocked_by}"
    );
}

#[test]
fn a_template_goes_to_the_clusters_of_its_policy() {
    let one = [policy("n", "a", placed_on("m1"))];
    check(&one, "a", None, (&["m1"], Some("a"), ""));
    check(&one, "a", Some("a"), (&["m1"], Some("a"), ""));
    check(&one, "a", Some("gone"), (&["m1"], Some("a"), ""));
    check(&[], "", Some("a"), (&[], None, ""));
    let other = [policy("n", "a", json!({"resourceSelectors": []}))];
    check(&other, "a", Some("a"), (&[], None, ""));
}

#[test]
fn a_policy_keeps_its_template_unless_it_is_preempted() {
    let with = |name: &str, more: Value| {
        let mut spec = placed_on("m2");
        spec.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        policy("n", name, spec)
    };
    let high = [
        policy("n", "a", placed_on("m1")),
        with("b", json!({"priority": 5})),
    ];
    check(&high, "b", Some("a"), (&["m1"], Some("a"), ""));
    let takes = [
        policy("n", "a", placed_on("m1")),
        with("b", json!({"priority": 5, "preemption": "Always"})),
    ];
    check(&takes, "b", Some("a"), (&["m2"], Some("b"), ""));
    check(&takes, "", Some("a"), (&["m1"], Some("a"), ""));
    let wide = [
        policy("", "w", placed_on("m1")),
        with("b", json!({"preemption": "Always"})),
    ];
    check(&wide, "b", Some(":w"), (&["m2"], Some("b"), ""));
}

// proves: TKO-lazy
#[test]
fn the_result_names_what_prevents_a_change() {
    let with = |more: Value| {
        let mut spec = placed_on("m1");
        spec.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        [policy("n", "a", spec)]
    };
    let lazy = with(json!({"activationPreference": "Lazy"}));
    check(&lazy, "a", None, (&[], Some("a"), "Lazy"));
    let snapshot = clusters();
    let anew = SimulationInput {
        starts_anew: true,
        ..simulation_input(&lazy, &snapshot, FeatureGates::default())
    };
    check_input(&anew, "a", None, (&["m1"], Some("a"), ""));
    let waits = with(json!({"dependentOverrides": ["o"]}));
    check(&waits, "a", None, (&[], Some("a"), "override policies: o"));
    let other = with(json!({"schedulerName": "mine"}));
    check(&other, "a", None, (&[], Some("a"), "another scheduler"));
}

#[test]
fn the_simulation_starts_from_the_existing_binding() {
    let snapshot = clusters();
    let policies = [policy("n", "a", placed_on("m2"))];
    let input = simulation_input(&policies, &snapshot, FeatureGates::default());
    let (kind, template) = (deployments(), template(Some("a")));
    let binding = object(
        &json!({"metadata": {"name": "web-deployment", "namespace": "n", "generation": 4},
        "spec": {"replicas": 2, "clusters": [{"name": "m1", "replicas": 2}]},
        "status": {"lastScheduledTime": "2026-01-01T00:00:00Z"}}),
    );
    let wants = Ok(InterpretedReplicas::Replicas(TemplateReplicas {
        count: 2,
        requirements: None,
    }));
    let case = SimulatedTemplate {
        api_resource: &kind,
        template: &template,
        replicas: &wants,
        binding: Some(&binding),
        namespace_gate: None,
        disabled_by: None,
    };
    let simulated = simulate(
        &input,
        &[],
        &case,
        &mut SchedulingSimulation::new(Instant::now()),
    );
    let to: Vec<(&str, i64)> = simulated
        .clusters
        .iter()
        .map(|c| (c.name.as_str(), c.replicas))
        .collect();
    assert_eq!(to, [("m2", 2)]);
    assert_eq!(simulated.explanation.map(|e| e.generation), Some(5));
    let mut before = SchedulingSimulation::new(Instant::now());
    let gate = ["m1".to_owned()];
    let gated = SimulatedTemplate {
        namespace_gate: Some(&gate),
        ..case
    };
    let simulated = simulate(&input, &[], &gated, &mut before);
    assert_eq!((simulated.clusters, simulated.failure), (vec![], None));
    let disabled = SimulatedTemplate {
        disabled_by: Some("s/deployments.apps"),
        ..case
    };
    let simulated = simulate(&input, &[], &disabled, &mut before);
    assert_eq!(
        simulated.blocked_by.as_deref(),
        Some(
            "the FederatedTypeConfig s/deployments.apps switches the propagation of Deployment off"
        )
    );
}

#[test]
fn simulated_templates_do_not_share_the_same_capacity() {
    let roomy = |name: &str| {
        let mut cluster = clusters().get(name).unwrap().object.value().unwrap();
        cluster["status"]["resourceSummary"] = json!({"allocatable": {"pods": 5}});
        object(&cluster)
    };
    let snapshot = ClusterSnapshot::new(["m1", "m2"].map(roomy));
    let divided = json!({
        "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
        "placement": {"replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}},
    });
    let policies = [policy("n", "a", divided)];
    let input = simulation_input(&policies, &snapshot, FeatureGates::default());
    let (kind, mut before) = (deployments(), SchedulingSimulation::new(Instant::now()));
    let wants = Ok(InterpretedReplicas::Replicas(TemplateReplicas {
        count: 4,
        requirements: None,
    }));
    let mut to = |name: &str| {
        let mut template = template(None).value().unwrap();
        template["metadata"]["name"] = name.into();
        let case = SimulatedTemplate {
            api_resource: &kind,
            template: &object(&template),
            replicas: &wants,
            binding: None,
            namespace_gate: None,
            disabled_by: None,
        };
        let simulated = simulate(&input, &[], &case, &mut before);
        let clusters = simulated.clusters.into_iter().map(|c| c.name);
        (clusters.collect::<Vec<_>>(), simulated.failure.is_some())
    };
    assert_eq!(to("a"), (vec!["m1".to_owned()], false));
    assert_eq!(to("b"), (vec!["m2".to_owned()], false));
    assert_eq!(to("c"), (vec![], true));
}

#[test]
fn a_claim_is_explained() {
    let snapshot = clusters();
    let all = json!({"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}]});
    let explanation = |policies: &[Object], of: Option<&str>| {
        let input = simulation_input(policies, &snapshot, FeatureGates::default());
        explain_claim(&input, &deployments(), &template(of)).why
    };
    let table: [(&[Object], Option<&str>, &str); 6] = [
        (
            &[],
            None,
            "no policy selects it (PropagationPolicies in n: 0, ClusterPropagationPolicies: 0)",
        ),
        (
            &[policy("n", "a", all.clone())],
            Some("a"),
            "it alone selects the template (by its kind alone)",
        ),
        (
            &[
                policy("n", "a", json!({})),
                policy("", "w", json!({"priority": 9})),
            ],
            Some("a"),
            "it comes first of 2 policies that select the template (priority 0, by its name)",
        ),
        (
            &[policy("n", "a", all), policy("n", "b", json!({}))],
            Some("a"),
            "it claimed the template first; PropagationPolicy n/b ranks higher, but does not preempt it",
        ),
        (
            &[],
            Some("a"),
            "it claimed the template, and no longer exists",
        ),
        (
            &[policy("n", "a", json!({"dependentOverrides": ["o"]}))],
            None,
            "PropagationPolicy n/a selects it, but the policy waits for override policies: o",
        ),
    ];
    for (policies, of, expected) in table {
        assert_eq!(explanation(policies, of), expected);
    }
}
