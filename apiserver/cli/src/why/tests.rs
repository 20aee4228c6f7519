//! Tests of the report on a template, from its inputs to its lines.

use std::collections::BTreeMap;
use std::sync::Arc;

use client::ApiResource;
use karmada_api::well_known_keys::{POLICY_ID, POLICY_NAME, POLICY_NAMESPACE, TEMPLATE_GENERATION};
use karmada_api::{Cluster, ResourceBinding, Work};
use machinery::{Gvr, Object};
use serde_json::{Value, json};

use super::inputs::WhyInputs;
use super::{preference, report, text};
use crate::type_configs::DisablingConfigs;

fn object(value: &Value) -> Object {
    Object::from_value(value).unwrap()
}

fn cluster(ready: &str) -> (Object, Arc<Cluster>) {
    let condition = json!({"type": "Ready", "status": ready, "reason": "ClusterNotReachable", "message": "no answer"});
    let value = json!({"metadata": {"name": "x"}, "status": {"conditions": [condition]}});
    let object = object(&value);
    let view = object.decode().unwrap();
    (object, view)
}

fn work(cluster: &str, applied: Value, health: &str) -> (String, (Object, Arc<Work>)) {
    let value = json!({"metadata": {"name": "web-1", "namespace": format!("karmada-es-{cluster}")},
        "status": {"conditions": applied, "manifestStatuses": [{"health": health}]}});
    let object = object(&value);
    let view = object.decode().unwrap();
    (cluster.to_owned(), (object, view))
}

/// A Deployment that a policy has claimed, without a binding.
fn claimed_template() -> WhyInputs {
    let template = json!({"metadata": {"name": "web", "namespace": "n", "labels": {POLICY_ID: "p"},
        "annotations": {POLICY_NAMESPACE: "n", POLICY_NAME: "p"}}});
    let selector = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let policy = json!({"metadata": {"name": "p", "namespace": "n", "labels": {POLICY_ID: "p"}}, "spec": {"resourceSelectors": [selector]}});
    WhyInputs {
        api_resource: ApiResource {
            resource: Gvr::from_static("apps", "v1", "deployments"),
            kind: "Deployment".into(),
            namespaced: true,
            verbs: ["list", "watch", "delete"].map(str::to_owned).into(),
            subresources: vec![],
            categories: vec![],
            short_names: vec![],
        },
        template: object(&template),
        policies: vec![object(&policy)],
        overrides: vec![],
        binding: None,
        last_failure: None,
        decision: None,
        clusters: BTreeMap::new(),
        works: BTreeMap::new(),
        rollout: None,
        namespace_gate: None,
        disabled_by: DisablingConfigs::default(),
        preference_remarks: vec![],
    }
}

// proves: DET-why-switched, DET-why-gate, SCH-nowhere
#[test]
fn switches_gates_and_nowhere_are_shown() {
    let status = json!({"schedulerObservedGeneration": 3, "conditions":
        [{"type": "Scheduled", "status": "True", "reason": "PlacedNowhere"}]});
    let decision = json!({"generation": 3, "rule": "Object"});
    let mut inputs = bound_template(json!({"placement": {}}), status, decision);
    inputs.namespace_gate = Some(vec![]);
    inputs.disabled_by.propagation = Some("kube-federation-system/deployments.apps".into());
    inputs.disabled_by.status = Some("kube-federation-system/deployments.apps".into());
    let text = |inputs: &WhyInputs| text::format_report(&report::build_report(inputs), false);
    let all = text(&inputs);
    for expected in [
        "scheduled: in no cluster, as the placement and the gate say",
        "Gate:       the namespace lets it go to no cluster",
        "the FederatedTypeConfig kube-federation-system/deployments.apps switches the propagation of Deployment off",
        "the FederatedTypeConfig kube-federation-system/deployments.apps switches the collection of the status of Deployment off",
    ] {
        assert!(all.contains(expected), "{expected:?} in {all}");
    }
    inputs.namespace_gate = Some(vec!["a".into(), "b".into()]);
    let expected = "Gate:       the namespace lets it go only to a, b";
    assert!(text(&inputs).contains(expected), "{}", text(&inputs));
    inputs.namespace_gate = None;
    let expected = "scheduled: in no cluster, as the placement says";
    assert!(text(&inputs).contains(expected), "{}", text(&inputs));
}

#[test]
fn a_template_whose_name_is_too_long_says_so() {
    let name = "w".repeat(250);
    let mut inputs = claimed_template();
    let mut template = inputs.template.value().unwrap();
    template["metadata"]["name"] = name.as_str().into();
    inputs.template = object(&template);
    let mut policy = inputs.policies[0].value().unwrap();
    policy["spec"]["resourceSelectors"][0]["name"] = name.into();
    inputs.policies = vec![object(&policy)];
    let report = report::build_report(&inputs);
    let [reason] = &report.pending[..] else {
        panic!("{:?}", report.pending);
    };
    assert!(
        reason.contains("must be no more than 253 characters"),
        "{reason}"
    );
}

fn bound_template(spec: Value, status: Value, decision: Value) -> WhyInputs {
    let value = json!({"metadata": {"name": "web-deployment", "namespace": "n", "generation": 3}, "spec": spec, "status": status});
    let binding = object(&value);
    let view = binding.decode::<ResourceBinding>().unwrap();
    WhyInputs {
        binding: Some((binding, view)),
        decision: Some(Ok(decision)),
        ..claimed_template()
    }
}

// proves: RSP-why
#[test]
fn a_division_by_a_replica_preference_names_it() {
    let decision = json!({
        "generation": 3, "strategy": "StaticWeight", "rule": "ReplicaSchedulingPreference",
        "replicaPreference": "web", "totalClusters": 1, "feasibleClusters": 1, "chosenClusters": 1,
    });
    let spec = json!({"placement": {}, "replicas": 9, "clusters": [{"name": "a", "replicas": 1}]});
    let mut inputs = bound_template(spec, json!({}), decision);
    inputs.preference_remarks = vec!["a remark".into()];
    let text = text::format_report(&report::build_report(&inputs), false);
    for line in [
        "divided by ReplicaSchedulingPreference web; of 1 clusters 1 fit and 1 is chosen",
        "8 of 9 replicas are in no cluster: the ReplicaSchedulingPreference web lets",
        "a remark",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

// proves: RSP-why
#[test]
fn a_replica_preference_that_has_no_effect_says_why() {
    let clusters = BTreeMap::from([("a".to_owned(), ())]);
    for (spec, expected) in [
        (json!({"targetKind": "FederatedDeployment"}), ""),
        (
            json!({"targetKind": "Deployment", "clusters": {"a": {}, "*": {}}}),
            "",
        ),
        (
            json!({"targetKind": "Deployment", "clusters": {"a": {}, "b": {}, "c": {}}}),
            "names clusters that do not exist (spec.clusters): b, c",
        ),
        (
            json!({"targetKind": "StatefulSet"}),
            "does not divide it: its spec.targetKind is StatefulSet, not Deployment",
        ),
    ] {
        let view = serde_json::from_value(spec.clone()).unwrap();
        let remarks = preference::remarks(&view, "Deployment", &clusters);
        assert_eq!(remarks.join("\n"), expected, "{spec}");
    }
}

// proves: CLI-why-rollout, CLI-why-one-line, CLI-rollout-message, ROL-kept-replicas-why
#[test]
fn a_staged_template_says_which_revision_each_cluster_has() {
    let mut inputs = bound_template(json!({}), json!({}), json!({}));
    inputs.template = object(&json!({"metadata": {"name": "web", "generation": 2}}));
    let staged = |name: &str, phase: &str, revision: &str, reason: &str| json!({"name": name, "phase": phase, "revision": revision, "reason": reason});
    let mut rollout = json!({"metadata": {"name": "web-deployment", "namespace": "n"}, "status": {
        "policy": "RolloutPolicy/p uid/1", "state": "AwaitingApproval", "stage": "all", "progress": "1/2", "targetRevision": "web-2",
        "observedTemplateGeneration": 2, "stages": [
            {"name": "first", "phase": "Done", "clusters": [staged("a", "Done", "web-2", "")]},
            {"name": "all", "phase": "Blocked", "clusters": [staged("b", "Blocked", "web-1", "AwaitingApproval")]}]}});
    inputs.rollout = Some(object(&rollout));
    let text = text::format_report(&report::build_report(&inputs), false);
    for line in [
        "Rollout:    AwaitingApproval in stage all, 1/2 clusters done with web-2, by RolloutPolicy/p",
        "CLUSTER   STAGE   PHASE     REVISION   REASON",
        "a         first   Done      web-2      -",
        "b         all     Blocked   web-1      AwaitingApproval",
        "  b keeps the revision web-1: stage all, Blocked (AwaitingApproval)",
    ] {
        assert!(text.lines().any(|other| other == line), "{text}");
    }
    rollout["status"]["stages"][0]["clusters"][0]["batch"] = 1.into();
    rollout["status"]["stages"][0]["clusters"][0]["batchPercent"] = 50.into();
    inputs.rollout = Some(object(&rollout));
    let text = text::format_report(&report::build_report(&inputs), false);
    assert!(text.contains("web-2      batch 1 (50%)\n"), "{text}");
    let job = json!({"name": "smoke-1", "state": "Failed", "message": "one\ntwo"});
    rollout["status"]["stages"][1]["job"] = job;
    inputs.rollout = Some(object(&rollout));
    let text = text::format_report(&report::build_report(&inputs), false);
    for line in [
        "-         all     Failed    -          job/smoke-1: one two",
        "  stage all awaits job/smoke-1: one two (Failed)",
    ] {
        assert!(text.lines().any(|other| other == line), "{text}");
    }
    rollout["status"]["message"] = "no\ncluster".into();
    rollout["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    inputs.rollout = Some(object(&rollout));
    let text = text::format_report(&report::build_report(&inputs), false);
    for line in [
        "  rollout AwaitingApproval: no cluster",
        "  the Rollout is being deleted: it stays until it has ended, and is made again then",
    ] {
        assert!(text.lines().any(|other| other == line), "{text}");
    }
    rollout["status"]["replicas"] = json!([
        {"cluster": "m1", "replicas": 2},
        {"cluster": "m9", "replicas": 4, "since": "2026-01-01T00:00:00Z", "message": "2 are missing"},
    ]);
    inputs.rollout = Some(object(&rollout));
    // Of a cluster that is no target any more, one sentence says both.
    let applied = json!([{"type": "Applied", "status": "True"}]);
    inputs.works = BTreeMap::from(["m8", "m9"].map(|name| work(name, applied.clone(), "Healthy")));
    inputs.clusters = ["m8", "m9"]
        .map(|name| (name.to_owned(), cluster("True")))
        .into();
    let pending = report::build_report(&inputs).pending;
    let of = |name: &str| {
        pending
            .iter()
            .filter(|line| line.starts_with(name))
            .collect::<Vec<_>>()
    };
    assert_eq!(of("m8"), ["m8: it is being removed from the cluster"]);
    let text = "m9 keeps 4 replicas since 2026-01-01T00:00:00Z, until enough others are available: 2 are missing";
    assert_eq!(of("m9"), [text]);
    rollout["status"]["observedTemplateGeneration"] = 1.into();
    inputs.rollout = Some(object(&rollout));
    let report = report::build_report(&inputs);
    let last = report.pending.last().unwrap();
    assert!(last.contains("does not have the last change"), "{last}");
}

// proves: CLI-why-deletion
#[test]
fn what_a_deletion_leaves_or_waits_for_is_shown() {
    for (metadata, spec, expected) in [
        (json!({}), json!({}), None),
        (
            json!({"annotations": {"flotilla.io/orphan": "true"}}),
            json!({}),
            Some("Deletion:   leaves the objects in the members"),
        ),
        (
            json!({}),
            json!({"preserveResourcesOnDeletion": true}),
            Some("Deletion:   leaves the objects in the members"),
        ),
        (
            json!({"finalizers": ["flotilla.io/wait-for-removal"]}),
            json!({}),
            Some("Deletion:   keeps the template until its copies are gone"),
        ),
    ] {
        let mut inputs = bound_template(spec, json!({}), json!({}));
        inputs.template = object(&json!({"metadata": metadata}));
        let text = text::format_report(&report::build_report(&inputs), false);
        let line = text.lines().find(|line| line.starts_with("Deletion:"));
        assert_eq!(line, expected, "{metadata}");
    }
    let mut inputs = claimed_template();
    let mut deleted = inputs.template.value().unwrap();
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    deleted["metadata"]["annotations"]["flotilla.io/waiting-for-removal"] = json!("a: it is held");
    inputs.template = object(&deleted);
    let report = report::build_report(&inputs);
    let expected = "it is deleted, and held until its copies are gone: a: it is held";
    assert_eq!(report.pending, [expected]);
}

// proves: CLI-why-namespace
#[test]
fn a_namespace_without_a_policy_goes_everywhere() {
    let mut inputs = claimed_template();
    inputs.policies = vec![];
    inputs.api_resource.resource = Gvr::from_static("", "v1", "namespaces");
    inputs.api_resource.kind = "Namespace".into();
    inputs.api_resource.namespaced = false;
    inputs.template = object(&json!({"metadata": {"name": "shop"}}));
    let applied = json!([{"type": "Applied", "status": "True"}]);
    inputs.works = BTreeMap::from([work("a", applied, "Healthy")]);
    inputs.clusters = BTreeMap::from([("a".to_owned(), cluster("True"))]);
    let shown = |inputs: &WhyInputs| text::format_report(&report::build_report(inputs), false);
    let text = shown(&inputs);
    assert!(
        text.contains("a Namespace then goes to every cluster"),
        "{text}"
    );
    assert!(text.ends_with("Nothing is pending."), "{text}");
    inputs.template = object(&json!({"metadata": {"name": "shop",
        "labels": {"namespace.karmada.io/skip-auto-propagation": "true"}}}));
    inputs.works.clear();
    let text = shown(&inputs);
    assert!(text.contains("skip-auto-propagation keeps it"), "{text}");
}

#[test]
fn a_template_with_clusters() {
    let condition = |kind: &str, status: &str, message: &str| json!([{"type": kind, "status": status, "message": message}]);
    let decision = json!({
        "generation": 3, "fresh": false, "strategy": "DynamicWeight", "rule": "ScaleUp", "replicas": 5,
        "totalClusters": 4, "feasibleClusters": 3, "chosenClusters": 2, "omittedClusters": 0,
        "failedEstimators": ["b", "c"],
        "clusters": [
            {"name": "a", "score": 100, "currentReplicas": 1, "availableReplicas": 10, "estimate": "Summary", "chosen": true, "replicas": 3, "weight": 10},
            {"name": "b", "score": 0, "availableReplicas": 7, "estimate": "Summary", "chosen": true, "replicas": 2, "weight": 7},
            {"name": "c", "score": 0, "availableReplicas": 2_147_483_647, "estimate": "Unbounded", "chosen": false},
            {"name": "d", "chosen": false, "refused": [{"plugin": "TaintToleration", "reason": "untolerated taint {k}"}]},
        ],
    });
    let spec = json!({"replicas": 5, "placement": {}, "clusters": [{"name": "a", "replicas": 3}, {"name": "b", "replicas": 2}]});
    let status =
        json!({"schedulerObservedGeneration": 3, "conditions": condition("Scheduled", "True", "")});
    let mut inputs = bound_template(spec, status, decision);
    let clusters = [("a", "True"), ("b", "False"), ("c", "True"), ("d", "True")];
    inputs.clusters = clusters
        .map(|(name, ready)| (name.to_owned(), cluster(ready)))
        .into();
    inputs.works = BTreeMap::from([
        work("a", condition("Applied", "True", ""), "Healthy"),
        work("b", condition("Applied", "False", "denied by quota"), ""),
        work("e", condition("Applied", "True", ""), "Healthy"),
    ]);
    let report = report::build_report(&inputs);
    let expected = "\
Deployment n/web
Policy:     PropagationPolicy n/p: it alone selects the template (by its name)
Binding:    web-deployment, generation 3, scheduled: yes
Decision:   of generation 3
            strategy DynamicWeight, rule ScaleUp (current replicas stay, and new ones are divided by available replicas); of 4 clusters 3 fit and 2 are chosen
            no accurate estimates were used: the scheduler estimators failed of b, c

CLUSTER   MEMBER                FITS   SCORE   AVAILABLE   REPLICAS   WORK         HEALTH    WHY
a         Ready                 yes    100     10          3          Applied      Healthy   chosen, weight 10
b         ClusterNotReachable   yes    0       7           2          NotApplied   -         chosen, weight 7
c         Ready                 yes    0       -           -          -            -         fits, and is not chosen
d         Ready                 no     -       -           -          -            -         TaintToleration: untolerated taint {k}
e         no such cluster       -      -       -           -          Applied      Healthy   no longer a target

Pending:
  b: not applied: denied by quota; the cluster is not Ready: ClusterNotReachable: no answer
  e: it is being removed from the cluster; the cluster is not Ready: no such cluster";
    assert_eq!(text::format_report(&report, false), expected);
    let wide = text::format_report(&report, true);
    assert!(
        wide.contains("PropagationPolicy n/p: priority 0, selects by Name"),
        "{wide}"
    );
    assert!(wide.contains("karmada-es-a/web-1"), "{wide}");
}

/// An OverridePolicy for one cluster.
fn override_policy(name: &str, cluster: &str, rule: Value) -> Object {
    object(&json!({"metadata": {"name": name, "namespace": "n"},
        "spec": {"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
            "overrideRules": [{"targetCluster": {"clusterNames": [cluster]}, "overriders": {"plaintext": [rule]}}]}}))
}

/// Gives the object of a cluster the name that the rules of overrides select by.
fn name_cluster(inputs: &mut WhyInputs, name: &str) {
    let (cluster, view) = inputs.clusters.remove(name).unwrap();
    let mut value = cluster.value().unwrap();
    value["metadata"]["name"] = name.into();
    inputs
        .clusters
        .insert(name.to_owned(), (object(&value), view));
}

// proves: CLI-why-overrides
#[test]
fn override_policies_are_named_with_their_clusters() {
    let spec = json!({"clusters": [{"name": "a"}, {"name": "b"}]});
    let mut inputs = bound_template(spec, json!({}), json!({}));
    inputs.clusters = ["a", "b"]
        .map(|name| (name.to_owned(), cluster("True")))
        .into();
    name_cluster(&mut inputs, "a");
    name_cluster(&mut inputs, "b");
    let rule = json!({"path": "/metadata/annotations", "operator": "add", "value": {"k": "v"}});
    inputs.overrides = vec![
        override_policy("of-a", "a", rule.clone()),
        override_policy("of-b", "b", rule),
    ];
    let text = text::format_report(&report::build_report(&inputs), false);
    let lines = "\nOverrides:  OverridePolicy n/of-a: a\n            OverridePolicy n/of-b: b\n";
    assert!(text.contains(lines), "{text}");
}

// proves: CLI-why-reason
#[test]
fn the_reason_and_the_generation_of_each_cluster_are_shown() {
    let spec = json!({"clusters": [{"name": "a"}, {"name": "b"}, {"name": "c"}]});
    let mut inputs = bound_template(spec, json!({}), json!({}));
    let names = ["a", "b", "c"];
    inputs.clusters = names.map(|name| (name.to_owned(), cluster("True"))).into();
    let applied = |status: &str| json!({"type": "Applied", "status": status, "observedGeneration": 2, "message": "a sum"});
    let propagated = |reason: &str, message: &str| json!({"type": "Propagated", "status": "False", "reason": reason, "message": message});
    inputs.works = [
        ("a", json!([applied("True")])),
        ("b", json!([applied("False"), propagated("UpdateFailed", "no, the member has generation 6")])),
        ("c", json!([propagated("ClusterNotReady", "it sleeps")])),
    ]
    .map(|(name, conditions)| {
        let manifest = json!({"metadata": {"annotations": {TEMPLATE_GENERATION: "7"}}});
        let value = json!({"metadata": {"name": "web-1", "namespace": format!("karmada-es-{name}"), "generation": 2},
            "spec": {"workload": {"manifests": [manifest]}}, "status": {"conditions": conditions}});
        let object = object(&value);
        let view = object.decode().unwrap();
        (name.to_owned(), (object, view))
    })
    .into();
    let report = report::build_report(&inputs);
    let rows = report.clusters.iter();
    let shown = rows.map(|row| {
        (
            row.reason.as_str(),
            row.work.as_ref().unwrap().generation.as_str(),
        )
    });
    let expected = [("", "7"), ("UpdateFailed", ""), ("ClusterNotReady", "")];
    assert_eq!(shown.collect::<Vec<_>>(), expected);
    let pending = [
        "b: not applied: no, the member has generation 6",
        "c: not applied yet: ClusterNotReady: it sleeps",
    ];
    assert_eq!(report.pending[report.pending.len() - 2..], pending);
    let wide = text::format_report(&report, true);
    assert!(
        wide.contains("GENERATION") && wide.contains("UpdateFailed"),
        "{wide}"
    );
}

#[test]
fn failing_overrides_and_contested_fields_are_pending() {
    let spec = json!({"clusters": [{"name": "a"}, {"name": "b"}]});
    let mut inputs = bound_template(spec, json!({}), json!({}));
    inputs.clusters = ["a", "b"]
        .map(|name| (name.to_owned(), cluster("True")))
        .into();
    let conditions = json!([{"type": "Applied", "status": "True"},
        {"type": "FieldConflict", "status": "True", "message": "spec.replicas of Deployment n/web by hpa"}]);
    inputs.works = [
        work("a", json!([{"type": "Applied", "status": "True"}]), ""),
        work("b", conditions, ""),
    ]
    .into();
    let rule = json!({"path": "/spec/none/x", "operator": "replace", "value": 1});
    inputs.overrides = vec![override_policy("o", "a", rule)];
    name_cluster(&mut inputs, "a");
    let pending = report::build_report(&inputs).pending;
    assert!(
        pending[0].starts_with(
            "a: its Work is not written: override policy(n/o) cannot be applied for cluster(a): "
        ),
        "{pending:?}"
    );
    assert_eq!(
        pending[1..],
        ["b: another manager undoes repairs: spec.replicas of Deployment n/web by hpa"]
    );
}

#[test]
fn a_template_without_clusters() {
    let pending = |inputs: WhyInputs| report::build_report(&inputs).pending;
    assert_eq!(
        pending(claimed_template()),
        ["its binding has not been created yet"]
    );
    let mut alone = claimed_template();
    alone.template = object(&json!({"metadata": {"name": "web", "namespace": "n"}}));
    alone.policies.clear();
    let none = "no policy selects it (PropagationPolicies in n: 0, ClusterPropagationPolicies: 0)";
    assert_eq!(pending(alone), [none]);
    for (name, kind, namespace, deleted, expected) in [
        (
            "web",
            "Deployment",
            "n",
            true,
            "the template is being deleted",
        ),
        (
            "web",
            "Event",
            "n",
            false,
            "objects of the kind Event are never propagated",
        ),
        (
            "kube-root-ca.crt",
            "ConfigMap",
            "n",
            false,
            "every cluster creates this object for itself",
        ),
        (
            "web",
            "ConfigMap",
            "karmada-system",
            false,
            "nothing is propagated from the namespace karmada-system",
        ),
        (
            "web",
            "ConfigMap",
            "kube-system",
            false,
            "nothing is propagated from the namespace kube-system, unless --skipped-propagating-namespaces allows it",
        ),
    ] {
        let mut alone = claimed_template();
        let mut template = json!({"metadata": {"name": name, "namespace": namespace}});
        if deleted {
            template["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        alone.template = object(&template);
        let plural = format!("{}s", kind.to_lowercase());
        alone.api_resource.resource = Gvr::new("", "v1", &*plural);
        alone.api_resource.kind = kind.into();
        alone.last_failure = Some("Apply policy(n/p) failed: over quota".to_owned());
        let expected = [expected, "Apply policy(n/p) failed: over quota"];
        assert_eq!(pending(alone), expected);
    }

    let failed = json!({"conditions": [{"type": "Scheduled", "status": "False", "reason": "NoClusterFit", "message": "0/2 clusters"}]});
    let of = |spec: Value, status: &Value| {
        bound_template(
            spec,
            status.clone(),
            json!({"rule": "Object", "failure": "0/2 clusters"}),
        )
    };
    let placed = json!({"placement": {}});
    assert_eq!(
        pending(of(placed.clone(), &failed)),
        ["not scheduled: NoClusterFit: 0/2 clusters"]
    );
    let lines = text::format_report(&report::build_report(&of(placed.clone(), &failed)), false);
    assert!(
        lines.contains("scheduled: no: NoClusterFit: 0/2 clusters"),
        "{lines}"
    );
    assert!(lines.contains("failed: 0/2 clusters"), "{lines}");
    let unseen = "the scheduler has not observed generation 3 of the binding yet";
    assert_eq!(pending(of(placed, &json!({}))), [unseen]);
    let suspended =
        json!({"placement": {}, "suspension": {"scheduling": true, "dispatching": true}});
    let reasons = pending(of(suspended, &json!({})));
    assert_eq!(reasons.len(), 3, "{reasons:?}");
    let mut forbidden_inputs = of(
        json!({"requiredBy": [{"namespace": "n", "name": "db"}]}),
        &json!({}),
    );
    forbidden_inputs.decision = Some(Err("forbidden".into()));
    assert_eq!(
        pending(forbidden_inputs),
        ["the decision cannot be read: forbidden"]
    );
}
