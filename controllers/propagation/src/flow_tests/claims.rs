//! Tests of which policy claims a template, and of the content of its binding.

use std::sync::Arc;

use client::fake::FakeApi;
use client::{Api, At, DeleteOptions};
use machinery::Gvr;
use openapi::karmada::resources::{
    BINDINGS, CLUSTER_BINDINGS, CLUSTER_POLICIES, OVERRIDES, POLICIES,
};
use openapi::karmada::{Gate, labels};
use serde_json::{Value, json};

use super::{CLUSTER_ROLES, CONFIG_MAPS, DEPLOYMENTS, Plane, deployment, policy, until};

static PRIORITY_CLASSES: Gvr = Gvr::constant("scheduling.k8s.io", "v1", "priorityclasses");

/// A policy whose name is also its permanent id.
pub(super) fn named(name: &str, spec: Value) -> Value {
    let mut made = policy(spec);
    made["metadata"]["name"] = name.into();
    made["metadata"]["labels"][labels::POLICY_ID] = name.into();
    made
}

pub(super) fn of_cluster(name: &str, spec: Value) -> Value {
    let mut made = policy(spec);
    made["kind"] = "ClusterPropagationPolicy".into();
    made["metadata"] = json!({"name": name, "labels": {labels::CLUSTER_POLICY_ID: name},
        "finalizers": [labels::CLUSTER_POLICY_FINALIZER]});
    made
}

/// The spec of a policy that preempts.
pub(super) fn preempting(priority: i64, clusters: &[&str]) -> Value {
    json!({"priority": priority, "preemption": "Always",
        "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "n", "name": "web"}],
        "placement": {"clusterAffinity": {"clusterNames": clusters}}})
}

impl Plane {
    /// The ids of the policies that have claimed a Deployment and its binding.
    pub(super) fn owners(&self, name: &str) -> (Value, Value) {
        let template = self.control.object(&DEPLOYMENTS, "n", name);
        let owner = |object: Option<Value>| {
            let labels = object.unwrap_or_default()["metadata"]["labels"].clone();
            let local = labels[labels::POLICY_ID].clone();
            if local.is_null() {
                labels[labels::CLUSTER_POLICY_ID].clone()
            } else {
                local
            }
        };
        let binding = self.binding(&format!("{name}-deployment"));
        (owner(template), owner(binding))
    }

    pub(super) async fn belongs_to(&self, name: &str, policy: &str) {
        let both = (json!(policy), json!(policy));
        until(policy, || self.owners(name) == both).await;
    }
}

// proves: DET-of-every-cluster
#[tokio::test]
async fn objects_that_every_cluster_creates_are_no_templates() {
    let plane = Plane::new();
    let any = json!({"resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap"}]});
    plane.control.seed(&POLICIES, policy(any));
    for name in ["kube-root-ca.crt", "own"] {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "n"}});
        plane.control.seed(&CONFIG_MAPS, map);
    }
    let plane = plane.started().await;
    until("applied", || {
        let there = |member: &Arc<FakeApi>| member.object(&CONFIG_MAPS, "n", "own").is_some();
        plane.members.iter().all(there)
    })
    .await;
    assert_eq!(plane.control.objects(&BINDINGS).len(), 1);
    plane.tasks.stop().await;
}

// proves: DET-deleted-leaves
#[tokio::test]
async fn a_deleted_policy_releases_its_claims() {
    let plane = Plane::new();
    plane.control.seed(&POLICIES, policy(json!({})));
    plane.control.seed(&DEPLOYMENTS, deployment("web"));
    let plane = plane.started().await;
    plane.applied("web").await;
    let at = At::one(&POLICIES, "n", "p");
    plane.control.delete(at, &Default::default()).await.unwrap();
    until("policy gone", || {
        plane.control.objects(&POLICIES).is_empty()
    })
    .await;
    let template = plane.control.object(&DEPLOYMENTS, "n", "web").unwrap();
    assert_eq!(template["metadata"]["labels"].get(labels::POLICY_ID), None);
    let binding = plane
        .control
        .object(&BINDINGS, "n", "web-deployment")
        .unwrap();
    assert_eq!(binding["metadata"]["labels"].get(labels::POLICY_ID), None);
    assert_eq!(
        binding["spec"]["clusters"].as_array().unwrap().len(),
        2,
        "what runs, runs on"
    );
    plane.tasks.stop().await;
}

// proves: DET-waiting, DET-dependent-overrides
#[tokio::test]
async fn a_template_waits_for_its_policy() {
    let plane = Plane::new();
    plane.control.seed(&DEPLOYMENTS, deployment("web"));
    let plane = plane.started().await;
    plane
        .control
        .seed(&POLICIES, policy(json!({"dependentOverrides": ["o"]})));
    plane.control.seed(
        &OVERRIDES,
        json!({"metadata": {"name": "o", "namespace": "n"}, "spec": {"overrideRules": [
            {"targetCluster": {"clusterNames": ["m2"]}, "overriders": {"imageOverrider": [
                {"component": "Registry", "operator": "replace", "value": "reg.io"}]}}]}}),
    );
    plane.applied("web").await;
    let image = |at: usize| {
        let object = plane.in_member(at, "web").unwrap();
        object["spec"]["template"]["spec"]["containers"][0]["image"].clone()
    };
    assert_eq!(
        (image(0), image(1)),
        (json!("nginx:1"), json!("reg.io/nginx:1"))
    );
    let work = plane.work("m2", "web").unwrap();
    assert_eq!(
        work["metadata"]["annotations"][labels::APPLIED_OVERRIDES],
        r#"[{"policyName":"o","overriders":{"imageOverrider":[{"component":"Registry","operator":"replace","value":"reg.io"}]}}]"#
    );
    plane.tasks.stop().await;
}

// proves: DET-lazy-new
#[tokio::test]
async fn a_lazy_policy_waits_for_the_template_to_change() {
    let plane = Plane::new();
    plane.control.seed(&DEPLOYMENTS, deployment("web"));
    let plane = plane.started().await;
    plane
        .control
        .seed(&POLICIES, policy(json!({"activationPreference": "Lazy"})));
    let claimed = || {
        let template = plane.control.object(&DEPLOYMENTS, "n", "web").unwrap();
        template["metadata"]["labels"][labels::POLICY_ID] == "policy-id"
    };
    until("the claim", claimed).await;
    assert!(plane.control.objects(&BINDINGS).is_empty());
    plane.change(&DEPLOYMENTS, "web", |d| d["spec"]["replicas"] = 3.into());
    plane.applied("web").await;
    plane.tasks.stop().await;
}

// proves: DET-cpp-namespaced, DET-cluster-scoped, DET-pp-before-cpp, DET-binding-claim
#[tokio::test]
async fn a_cluster_policy_claims_what_no_namespaced_policy_matches() {
    let plane = Plane::new();
    let selector = |api_version: &str, kind: &str| json!({"apiVersion": api_version, "kind": kind});
    let mut cluster_policy = policy(json!({"resourceSelectors": [
        selector("rbac.authorization.k8s.io/v1", "ClusterRole"),
        selector("v1", "ConfigMap"),
        selector("apps/v1", "Deployment"),
    ]}));
    cluster_policy["kind"] = "ClusterPropagationPolicy".into();
    cluster_policy["metadata"] =
        json!({"name": "c", "labels": {labels::CLUSTER_POLICY_ID: "c-id"}});
    plane.control.seed(&CLUSTER_POLICIES, cluster_policy);
    plane.control.seed(&POLICIES, policy(json!({})));
    plane.control.seed(&DEPLOYMENTS, deployment("web"));
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"}, "data": {"a": "b"}});
    plane.control.seed(&CONFIG_MAPS, config);
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"}, "rules": []});
    plane.control.seed(&CLUSTER_ROLES, role);
    let plane = plane.started().await;
    until("all in both members", || {
        plane.members.iter().all(|m| {
            m.object(&CONFIG_MAPS, "n", "c").is_some()
                && m.object(&CLUSTER_ROLES, "", "r").is_some()
                && m.object(&DEPLOYMENTS, "n", "web").is_some()
        })
    })
    .await;
    let role = plane
        .control
        .object(&CLUSTER_BINDINGS, "", "r-clusterrole")
        .unwrap();
    assert_eq!(
        role["metadata"]["labels"],
        json!({labels::CLUSTER_POLICY_ID: "c-id"})
    );
    assert_eq!(
        role["metadata"]["finalizers"],
        json!([labels::CLUSTER_BINDING_FINALIZER])
    );
    let config = plane.control.object(&BINDINGS, "n", "c-configmap").unwrap();
    assert_eq!(
        config["metadata"]["labels"],
        json!({labels::CLUSTER_POLICY_ID: "c-id"})
    );
    let web = plane
        .control
        .object(&BINDINGS, "n", "web-deployment")
        .unwrap();
    assert_eq!(
        web["metadata"]["labels"],
        json!({labels::POLICY_ID: "policy-id"})
    );
    plane.tasks.stop().await;
}

// proves: DET-sticky, DET-preempt-gate
#[tokio::test]
async fn a_claimed_template_stays_with_its_policy() {
    let plane = Plane::new().started().await;
    plane.control.seed(&POLICIES, named("first", json!({})));
    plane.control.seed(&DEPLOYMENTS, deployment("web"));
    plane.belongs_to("web", "first").await;
    plane
        .control
        .seed(&POLICIES, named("better", preempting(9, &["m2"])));
    plane.control.seed(&DEPLOYMENTS, deployment("other"));
    plane.belongs_to("other", "first").await;
    plane.change(&DEPLOYMENTS, "web", |d| d["spec"]["replicas"] = 5.into());
    let scaled = || plane.binding("web-deployment").unwrap()["spec"]["replicas"] == 5;
    until("the change", scaled).await;
    plane.belongs_to("web", "first").await;
    plane.tasks.stop().await;
}

// proves: DET-preempt-pp, DET-preempt-cpp, DET-preempt-by-cpp, DET-preempt-strictly, DET-preempt-lowered, DET-preempt-told
#[tokio::test]
async fn policies_preempt_lower_policies_with_the_feature_gate() {
    let plane = Plane::telling_events();
    let plane = plane
        .started_with(&[Gate::PropagationPolicyPreemption])
        .await;
    let low = of_cluster(
        "low",
        json!({"priority": 1, "placement": {"clusterAffinity": {"clusterNames": ["m1"]}}}),
    );
    plane.control.seed(&CLUSTER_POLICIES, low);
    plane.control.seed(&DEPLOYMENTS, deployment("web"));
    plane.belongs_to("web", "low").await;

    plane.control.seed(
        &CLUSTER_POLICIES,
        of_cluster("high", preempting(2, &["m2"])),
    );
    plane.belongs_to("web", "high").await;

    // Any PropagationPolicy takes precedence over a cluster policy.
    plane
        .control
        .seed(&POLICIES, named("local", preempting(0, &["m1"])));
    plane.belongs_to("web", "local").await;
    let marks = plane.binding("web-deployment").unwrap()["metadata"].clone();
    assert_eq!(marks["labels"], json!({labels::POLICY_ID: "local"}));
    assert_eq!(marks["annotations"].get(labels::CLUSTER_POLICY_NAME), None);
    plane
        .control
        .seed(&POLICIES, named("equal", preempting(0, &["m2"])));
    plane
        .control
        .seed(&POLICIES, named("upper", preempting(3, &["m2"])));
    plane.belongs_to("web", "upper").await;
    until("the placement", || plane.binding("web-deployment").unwrap()["spec"]["placement"]["clusterAffinity"]["clusterNames"] == json!(["m2"])).await;

    // A policy with lowered priority is preempted by the ones in between, the highest first.
    for (name, priority) in [("two", 2), ("one", 1)] {
        plane
            .control
            .seed(&POLICIES, named(name, preempting(priority, &["m1"])));
    }
    plane.change(&POLICIES, "upper", |p| p["spec"]["priority"] = 0.into());
    plane.belongs_to("web", "two").await;
    let expected = [
        "Cluster propagation policy(high) preempted cluster propagation policy(low) successfully",
        "Propagation policy(n/local) preempted cluster propagation policy(high) successfully",
        "Propagation policy(n/upper) preempted propagation policy(n/local) successfully",
        "Propagation policy(n/two) preempted propagation policy(n/upper) successfully",
    ];
    until("the events", || {
        plane.told("PreemptPolicySucceed").len() >= 4
    })
    .await;
    let mut events = plane.told("PreemptPolicySucceed");
    events.sort_unstable();
    let mut expected = expected.map(str::to_owned);
    expected.sort_unstable();
    assert_eq!(events, expected);
    plane.tasks.stop().await;
}

// proves: DET-unmatched-unclaimed
#[tokio::test]
async fn a_policy_with_changed_selectors_releases_and_another_claims() {
    let plane = Plane::new().started().await;
    plane
        .control
        .seed(&POLICIES, named("a", json!({"priority": 1})));
    plane
        .control
        .seed(&CLUSTER_POLICIES, of_cluster("c", json!({})));
    for name in ["web", "db"] {
        plane.control.seed(&DEPLOYMENTS, deployment(name));
        plane.belongs_to(name, "a").await;
    }
    plane.change(&POLICIES, "a", |p| {
        p["spec"]["resourceSelectors"][0]["name"] = "db".into()
    });
    plane.belongs_to("web", "c").await;
    plane.belongs_to("db", "a").await;
    let binding = plane.binding("web-deployment").unwrap();
    assert_eq!(
        binding["metadata"]["labels"],
        json!({labels::CLUSTER_POLICY_ID: "c"})
    );

    // A template that no longer matches its labels is released only when the policy changes.
    plane
        .control
        .delete(
            At::one(&CLUSTER_POLICIES, "", "c"),
            &DeleteOptions::default(),
        )
        .await
        .unwrap();
    until("unclaimed", || {
        plane.owners("web") == (Value::Null, Value::Null)
    })
    .await;
    until("the policy's end", || {
        plane.control.objects(&CLUSTER_POLICIES).is_empty()
    })
    .await;
    plane.tasks.stop().await;
}

// proves: DET-lazy-edit, DET-lazy-after
#[tokio::test]
async fn lazy_policies_are_edited_without_effect_until_the_template_changes() {
    let plane = Plane::new().started().await;
    plane
        .control
        .seed(&POLICIES, policy(json!({"activationPreference": "Lazy"})));
    // The Deployment is created after its policy and therefore propagated at once.
    plane.control.seed(&DEPLOYMENTS, deployment("web"));
    plane.applied("web").await;
    plane.change(&POLICIES, "p", |p| {
        p["spec"]["placement"]["clusterAffinity"]["clusterNames"] = json!(["m1"]);
    });
    plane.control.seed(&DEPLOYMENTS, deployment("new"));
    let names = |name: &str| {
        plane.binding(name).unwrap_or_default()["spec"]["placement"]["clusterAffinity"]["clusterNames"].clone()
    };
    until("the new one", || names("new-deployment") == json!(["m1"])).await;
    assert_eq!(names("web-deployment"), json!(["m1", "m2"]));
    // A change by Karmada's own controllers does not count as a change of the template.
    plane.change(&DEPLOYMENTS, "web", |d| {
        d["metadata"]["annotations"]["x.karmada.io/y"] = "z".into();
    });
    plane.control.seed(&DEPLOYMENTS, deployment("later"));
    until("a later one", || {
        plane.binding("later-deployment").is_some()
    })
    .await;
    assert_eq!(names("web-deployment"), json!(["m1", "m2"]));
    plane.change(&DEPLOYMENTS, "web", |d| d["spec"]["replicas"] = 3.into());
    until("the edit", || names("web-deployment") == json!(["m1"])).await;
    plane.tasks.stop().await;
}

/// What a policy waits for takes effect at once, even long after the last attempt.
// proves: DET-dependent-overrides, DET-priority-class
#[tokio::test(start_paused = true)]
async fn the_creation_of_a_missing_dependency_enqueues_its_policies() {
    let plane = Plane::new().started().await;
    let spec = json!({"dependentOverrides": ["o"], "schedulePriority": {"priorityClassSource": "KubePriorityClass", "priorityClassName": "high"}});
    plane.control.seed(&POLICIES, policy(spec));
    plane.control.seed(&DEPLOYMENTS, deployment("web"));
    let long = std::time::Duration::from_secs(2000);
    tokio::time::sleep(long).await;
    assert_eq!(plane.owners("web"), (Value::Null, Value::Null));
    plane.control.seed(
        &OVERRIDES,
        json!({"metadata": {"name": "o", "namespace": "n"}, "spec": {"overrideRules": []}}),
    );
    until("the claim", || plane.owners("web").0 == "policy-id").await;
    tokio::time::sleep(long).await;
    assert_eq!(plane.binding("web-deployment"), None);
    plane.control.seed(
        &PRIORITY_CLASSES,
        json!({"metadata": {"name": "high"}, "value": 7}),
    );
    until("the binding", || plane.binding("web-deployment").is_some()).await;
    let binding = plane.binding("web-deployment").unwrap();
    assert_eq!(binding["spec"]["schedulePriority"], json!({"priority": 7}));
    plane.tasks.stop().await;
}

// proves: DET-priority-class-missing, DET-foreign-owner, DET-told-failed
#[tokio::test]
async fn events_report_why_a_policy_cannot_be_applied() {
    let plane = Plane::telling_events().started().await;
    let class = json!({"schedulePriority": {"priorityClassSource": "KubePriorityClass", "priorityClassName": "high"}});
    plane.control.seed(&POLICIES, policy(class));
    let mut foreign = json!({"metadata": {"name": "web-deployment", "namespace": "n"}, "spec": {}});
    foreign["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "another", "controller": true}]);
    plane.control.seed(&DEPLOYMENTS, deployment("web"));
    let has = |text: &str| {
        let events = plane.told("ApplyPolicyFailed");
        events.iter().any(|t| t.starts_with(text))
    };
    let missing = r#"Apply policy(n/p) failed: PriorityClass.scheduling.k8s.io "high" not found"#;
    until("the class", || has(missing)).await;
    plane.control.seed(&BINDINGS, foreign);
    plane.control.seed(
        &PRIORITY_CLASSES,
        json!({"metadata": {"name": "high"}, "value": 7}),
    );
    let owned =
        "Apply policy(n/p) failed: failed to update binding due to different owner reference UID";
    until("the owner", || has(owned)).await;
    plane.control.remove(&BINDINGS, "n", "web-deployment");
    let ours = || {
        plane
            .binding("web-deployment")
            .is_some_and(|b| b["spec"]["schedulePriority"]["priority"] == 7)
    };
    until("our own", ours).await;
    plane.tasks.stop().await;
}

// proves: DET-workload-gate, DET-quota-namespace
#[tokio::test]
async fn workloads_have_affinity_groups_with_the_feature_gate() {
    let plane = Plane::new()
        .started_with(&[Gate::WorkloadAffinity, Gate::ResourceQuotaEstimate])
        .await;
    let affinity = json!({"affinity": {"groupByLabelKey": "app"}, "antiAffinity": {"groupByLabelKey": "tier"}});
    plane.control.seed(
        &POLICIES,
        policy(json!({"placement": {"workloadAffinity": affinity}})),
    );
    let mut web = deployment("web");
    web["metadata"]["labels"] = json!({"app": "shop"});
    let pod = &mut web["spec"]["template"]["spec"];
    pod["priorityClassName"] = "high".into();
    pod["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
    plane.control.seed(&DEPLOYMENTS, web);
    until("the binding", || plane.binding("web-deployment").is_some()).await;
    let spec = plane.binding("web-deployment").unwrap()["spec"].clone();
    assert_eq!(
        spec["workloadAffinityGroups"],
        json!({"affinityGroup": "app=shop"})
    );
    assert_eq!(
        spec["replicaRequirements"],
        json!({"resourceRequest": {"cpu": "1"}, "namespace": "n", "priorityClassName": "high"})
    );
    assert_eq!(spec.get("clusters"), None, "left to the scheduler");
    plane.tasks.stop().await;
}

// proves: DET-claimed-by
#[tokio::test]
async fn a_template_claimed_by_another_controller_is_ignored() {
    let plane = Plane::new();
    let mut taken = deployment("taken");
    taken["metadata"]["labels"] = json!({labels::CLAIMED_BY: "MultiClusterService"});
    plane.control.seed(&DEPLOYMENTS, taken);
    let mut reserved = deployment("web");
    reserved["metadata"]["namespace"] = "kube-public".into();
    plane.control.seed(&DEPLOYMENTS, reserved);
    plane
        .control
        .seed(&CLUSTER_POLICIES, of_cluster("c", json!({})));
    let plane = plane.started().await;
    plane.control.seed(&DEPLOYMENTS, deployment("free"));
    plane.belongs_to("free", "c").await;
    assert_eq!(plane.owners("taken"), (Value::Null, Value::Null));
    assert_eq!(plane.control.objects(&BINDINGS).len(), 1);
    plane.tasks.stop().await;
}

/// The binding is created and its policy edited before the binding reaches the detector's cache.
#[tokio::test]
async fn a_policy_edit_reaches_a_binding_that_is_not_in_the_cache_yet() {
    let plane = Plane::new().started().await;
    plane.control.hold(&BINDINGS);
    plane.control.seed(&POLICIES, named("a", json!({})));
    plane.control.seed(&DEPLOYMENTS, deployment("web"));
    until("the binding", || plane.binding("web-deployment").is_some()).await;
    plane.change(&POLICIES, "a", |p| {
        p["spec"]["resourceSelectors"][0]["name"] = "web".into();
        p["spec"]["conflictResolution"] = "Overwrite".into();
    });
    // One worker reconciles all policies.
    plane.control.seed(&DEPLOYMENTS, deployment("other"));
    plane.control.seed(&POLICIES, named("b", json!({})));
    until("another", || plane.binding("other-deployment").is_some()).await;
    plane.control.release(&BINDINGS);
    let edited =
        || plane.binding("web-deployment").unwrap()["spec"]["conflictResolution"] == "Overwrite";
    until("the edit", edited).await;

    // The same with a policy that releases its template.
    plane.control.hold(&BINDINGS);
    plane.control.seed(&DEPLOYMENTS, deployment("late"));
    until("the binding", || plane.binding("late-deployment").is_some()).await;
    plane.change(&POLICIES, "b", |p| {
        p["spec"]["resourceSelectors"][0]["name"] = "other".into();
    });
    until("unclaimed", || {
        plane.owners("late") == (Value::Null, Value::Null)
    })
    .await;
    plane.control.release(&BINDINGS);
    plane.tasks.stop().await;
}
