//! Tests of which policy claims a template, and of the content of its binding.

use std::sync::Arc;

use client::{Api, DeleteOptions, ResourcePath};
use client_fake::FakeApi;
use karmada_api::resources::{BINDINGS, CLUSTER_BINDINGS, CLUSTER_POLICIES, OVERRIDES, POLICIES};
use karmada_api::{KarmadaFeature, well_known_keys};
use machinery::Gvr;
use serde_json::{Value, json};

use super::{
    CLUSTER_ROLES, CONFIG_MAPS, DEPLOYMENTS, PropagationFixture, deployment, policy, wait_until,
};

static PRIORITY_CLASSES: Gvr = Gvr::from_static("scheduling.k8s.io", "v1", "priorityclasses");

/// A policy whose name is also its permanent id.
pub(super) fn policy_named(name: &str, spec: Value) -> Value {
    let mut object = policy(spec);
    object["metadata"]["name"] = name.into();
    object["metadata"]["labels"][well_known_keys::POLICY_ID] = name.into();
    object
}

pub(super) fn cluster_policy(name: &str, spec: Value) -> Value {
    let mut object = policy(spec);
    object["kind"] = "ClusterPropagationPolicy".into();
    object["metadata"] = json!({"name": name, "labels": {well_known_keys::CLUSTER_POLICY_ID: name},
        "finalizers": [well_known_keys::CLUSTER_POLICY_FINALIZER]});
    object
}

/// The spec of a policy that preempts.
pub(super) fn preempting_spec(priority: i64, clusters: &[&str]) -> Value {
    json!({"priority": priority, "preemption": "Always",
        "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "n", "name": "web"}],
        "placement": {"clusterAffinity": {"clusterNames": clusters}}})
}

impl PropagationFixture {
    /// The ids of the policies that have claimed a Deployment and its binding.
    pub(super) fn claiming_policies(&self, name: &str) -> (Value, Value) {
        let template = self.control_plane.get_object(&DEPLOYMENTS, "n", name);
        let owner = |object: Option<Value>| {
            let labels = object.unwrap_or_default()["metadata"]["labels"].clone();
            let local = labels[well_known_keys::POLICY_ID].clone();
            if local.is_null() {
                labels[well_known_keys::CLUSTER_POLICY_ID].clone()
            } else {
                local
            }
        };
        let binding = self.binding(&format!("{name}-deployment"));
        (owner(template), owner(binding))
    }

    pub(super) async fn wait_until_claimed(&self, name: &str, policy: &str) {
        let both = (json!(policy), json!(policy));
        wait_until(policy, || self.claiming_policies(name) == both).await;
    }
}

// proves: DET-of-every-cluster
#[tokio::test]
async fn objects_that_every_cluster_creates_are_no_templates() {
    let plane = PropagationFixture::new();
    let any = json!({"resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap"}]});
    plane.control_plane.seed(&POLICIES, policy(any));
    for name in ["kube-root-ca.crt", "own"] {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "n"}});
        plane.control_plane.seed(&CONFIG_MAPS, map);
    }
    let plane = plane.started().await;
    wait_until("applied", || {
        let there = |member: &Arc<FakeApi>| member.get_object(&CONFIG_MAPS, "n", "own").is_some();
        plane.members.iter().all(there)
    })
    .await;
    assert_eq!(plane.control_plane.list_objects(&BINDINGS).len(), 1);
    plane.tasks.stop().await;
}

// proves: DET-deleted-leaves
#[tokio::test]
async fn a_deleted_policy_releases_its_claims() {
    let plane = PropagationFixture::new();
    plane.control_plane.seed(&POLICIES, policy(json!({})));
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    let plane = plane.started().await;
    plane.wait_until_applied("web").await;
    let at = ResourcePath::object(&POLICIES, "n", "p");
    plane
        .control_plane
        .delete(at, &Default::default())
        .await
        .unwrap();
    wait_until("policy gone", || {
        plane.control_plane.list_objects(&POLICIES).is_empty()
    })
    .await;
    let template = plane
        .control_plane
        .get_object(&DEPLOYMENTS, "n", "web")
        .unwrap();
    assert_eq!(
        template["metadata"]["labels"].get(well_known_keys::POLICY_ID),
        None
    );
    let binding = plane
        .control_plane
        .get_object(&BINDINGS, "n", "web-deployment")
        .unwrap();
    assert_eq!(
        binding["metadata"]["labels"].get(well_known_keys::POLICY_ID),
        None
    );
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
    let plane = PropagationFixture::new();
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    let plane = plane.started().await;
    plane
        .control_plane
        .seed(&POLICIES, policy(json!({"dependentOverrides": ["o"]})));
    plane.control_plane.seed(
        &OVERRIDES,
        json!({"metadata": {"name": "o", "namespace": "n"}, "spec": {"overrideRules": [
            {"targetCluster": {"clusterNames": ["m2"]}, "overriders": {"imageOverrider": [
                {"component": "Registry", "operator": "replace", "value": "reg.io"}]}}]}}),
    );
    plane.wait_until_applied("web").await;
    let image = |at: usize| {
        let object = plane.deployment_in_member(at, "web").unwrap();
        object["spec"]["template"]["spec"]["containers"][0]["image"].clone()
    };
    assert_eq!(
        (image(0), image(1)),
        (json!("nginx:1"), json!("reg.io/nginx:1"))
    );
    let work = plane.work("m2", "web").unwrap();
    assert_eq!(
        work["metadata"]["annotations"][well_known_keys::APPLIED_OVERRIDES],
        r#"[{"policyName":"o","overriders":{"imageOverrider":[{"component":"Registry","operator":"replace","value":"reg.io"}]}}]"#
    );
    plane.tasks.stop().await;
}

// proves: DET-lazy-new
#[tokio::test]
async fn a_lazy_policy_waits_for_the_template_to_change() {
    let plane = PropagationFixture::new();
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    let plane = plane.started().await;
    plane
        .control_plane
        .seed(&POLICIES, policy(json!({"activationPreference": "Lazy"})));
    let claimed = || {
        let template = plane
            .control_plane
            .get_object(&DEPLOYMENTS, "n", "web")
            .unwrap();
        template["metadata"]["labels"][well_known_keys::POLICY_ID] == "policy-id"
    };
    wait_until("the claim", claimed).await;
    assert!(plane.control_plane.list_objects(&BINDINGS).is_empty());
    plane.edit(&DEPLOYMENTS, "web", |d| d["spec"]["replicas"] = 3.into());
    plane.wait_until_applied("web").await;
    plane.tasks.stop().await;
}

// proves: DET-cpp-namespaced, DET-cluster-scoped, DET-pp-before-cpp, DET-binding-claim
#[tokio::test]
async fn a_cluster_policy_claims_what_no_namespaced_policy_matches() {
    let plane = PropagationFixture::new();
    let selector = |api_version: &str, kind: &str| json!({"apiVersion": api_version, "kind": kind});
    let mut cluster_policy = policy(json!({"resourceSelectors": [
        selector("rbac.authorization.k8s.io/v1", "ClusterRole"),
        selector("v1", "ConfigMap"),
        selector("apps/v1", "Deployment"),
    ]}));
    cluster_policy["kind"] = "ClusterPropagationPolicy".into();
    cluster_policy["metadata"] =
        json!({"name": "c", "labels": {well_known_keys::CLUSTER_POLICY_ID: "c-id"}});
    plane.control_plane.seed(&CLUSTER_POLICIES, cluster_policy);
    plane.control_plane.seed(&POLICIES, policy(json!({})));
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"}, "data": {"a": "b"}});
    plane.control_plane.seed(&CONFIG_MAPS, config);
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"}, "rules": []});
    plane.control_plane.seed(&CLUSTER_ROLES, role);
    let plane = plane.started().await;
    wait_until("all in both members", || {
        plane.members.iter().all(|m| {
            m.get_object(&CONFIG_MAPS, "n", "c").is_some()
                && m.get_object(&CLUSTER_ROLES, "", "r").is_some()
                && m.get_object(&DEPLOYMENTS, "n", "web").is_some()
        })
    })
    .await;
    let role = plane
        .control_plane
        .get_object(&CLUSTER_BINDINGS, "", "r-clusterrole")
        .unwrap();
    assert_eq!(
        role["metadata"]["labels"],
        json!({well_known_keys::CLUSTER_POLICY_ID: "c-id"})
    );
    assert_eq!(
        role["metadata"]["finalizers"],
        json!([well_known_keys::CLUSTER_BINDING_FINALIZER])
    );
    let config = plane
        .control_plane
        .get_object(&BINDINGS, "n", "c-configmap")
        .unwrap();
    assert_eq!(
        config["metadata"]["labels"],
        json!({well_known_keys::CLUSTER_POLICY_ID: "c-id"})
    );
    let web = plane
        .control_plane
        .get_object(&BINDINGS, "n", "web-deployment")
        .unwrap();
    assert_eq!(
        web["metadata"]["labels"],
        json!({well_known_keys::POLICY_ID: "policy-id"})
    );
    plane.tasks.stop().await;
}

// proves: DET-sticky, DET-preempt-gate
#[tokio::test]
async fn a_claimed_template_stays_with_its_policy() {
    let plane = PropagationFixture::new().started().await;
    plane
        .control_plane
        .seed(&POLICIES, policy_named("first", json!({})));
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    plane.wait_until_claimed("web", "first").await;
    plane.control_plane.seed(
        &POLICIES,
        policy_named("better", preempting_spec(9, &["m2"])),
    );
    plane.control_plane.seed(&DEPLOYMENTS, deployment("other"));
    plane.wait_until_claimed("other", "first").await;
    plane.edit(&DEPLOYMENTS, "web", |d| d["spec"]["replicas"] = 5.into());
    let scaled = || plane.binding("web-deployment").unwrap()["spec"]["replicas"] == 5;
    wait_until("the change", scaled).await;
    plane.wait_until_claimed("web", "first").await;
    plane.tasks.stop().await;
}

// proves: DET-preempt-pp, DET-preempt-cpp, DET-preempt-by-cpp, DET-preempt-strictly, DET-preempt-lowered, DET-preempt-event
#[tokio::test]
async fn policies_preempt_lower_policies_with_the_feature_gate() {
    let plane = PropagationFixture::with_events();
    let plane = plane
        .started_with_gates(&[KarmadaFeature::PropagationPolicyPreemption])
        .await;
    let low = cluster_policy(
        "low",
        json!({"priority": 1, "placement": {"clusterAffinity": {"clusterNames": ["m1"]}}}),
    );
    plane.control_plane.seed(&CLUSTER_POLICIES, low);
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    plane.wait_until_claimed("web", "low").await;

    plane.control_plane.seed(
        &CLUSTER_POLICIES,
        cluster_policy("high", preempting_spec(2, &["m2"])),
    );
    plane.wait_until_claimed("web", "high").await;

    // Any PropagationPolicy takes precedence over a cluster policy.
    plane.control_plane.seed(
        &POLICIES,
        policy_named("local", preempting_spec(0, &["m1"])),
    );
    plane.wait_until_claimed("web", "local").await;
    let marks = plane.binding("web-deployment").unwrap()["metadata"].clone();
    assert_eq!(
        marks["labels"],
        json!({well_known_keys::POLICY_ID: "local"})
    );
    assert_eq!(
        marks["annotations"].get(well_known_keys::CLUSTER_POLICY_NAME),
        None
    );
    plane.control_plane.seed(
        &POLICIES,
        policy_named("equal", preempting_spec(0, &["m2"])),
    );
    plane.control_plane.seed(
        &POLICIES,
        policy_named("upper", preempting_spec(3, &["m2"])),
    );
    plane.wait_until_claimed("web", "upper").await;
    wait_until("the placement", || plane.binding("web-deployment").unwrap()["spec"]["placement"]["clusterAffinity"]["clusterNames"] == json!(["m2"])).await;

    // A policy with lowered priority is preempted by the ones in between, the highest first.
    for (name, priority) in [("two", 2), ("one", 1)] {
        plane.control_plane.seed(
            &POLICIES,
            policy_named(name, preempting_spec(priority, &["m1"])),
        );
    }
    plane.edit(&POLICIES, "upper", |p| p["spec"]["priority"] = 0.into());
    plane.wait_until_claimed("web", "two").await;
    let expected = [
        "Cluster propagation policy(high) preempted cluster propagation policy(low) successfully",
        "Propagation policy(n/local) preempted cluster propagation policy(high) successfully",
        "Propagation policy(n/upper) preempted propagation policy(n/local) successfully",
        "Propagation policy(n/two) preempted propagation policy(n/upper) successfully",
    ];
    wait_until("the events", || {
        plane.event_messages("PreemptPolicySucceed").len() >= 4
    })
    .await;
    let mut events = plane.event_messages("PreemptPolicySucceed");
    events.sort_unstable();
    let mut expected = expected.map(str::to_owned);
    expected.sort_unstable();
    assert_eq!(events, expected);
    plane.tasks.stop().await;
}

// proves: DET-unmatched-unclaimed
#[tokio::test]
async fn a_policy_with_changed_selectors_releases_and_another_claims() {
    let plane = PropagationFixture::new().started().await;
    plane
        .control_plane
        .seed(&POLICIES, policy_named("a", json!({"priority": 1})));
    plane
        .control_plane
        .seed(&CLUSTER_POLICIES, cluster_policy("c", json!({})));
    for name in ["web", "db"] {
        plane.control_plane.seed(&DEPLOYMENTS, deployment(name));
        plane.wait_until_claimed(name, "a").await;
    }
    plane.edit(&POLICIES, "a", |p| {
        p["spec"]["resourceSelectors"][0]["name"] = "db".into()
    });
    plane.wait_until_claimed("web", "c").await;
    plane.wait_until_claimed("db", "a").await;
    let binding = plane.binding("web-deployment").unwrap();
    assert_eq!(
        binding["metadata"]["labels"],
        json!({well_known_keys::CLUSTER_POLICY_ID: "c"})
    );

    // A template that no longer matches its labels is released only when the policy changes.
    plane
        .control_plane
        .delete(
            ResourcePath::object(&CLUSTER_POLICIES, "", "c"),
            &DeleteOptions::default(),
        )
        .await
        .unwrap();
    wait_until("unclaimed", || {
        plane.claiming_policies("web") == (Value::Null, Value::Null)
    })
    .await;
    wait_until("the policy's end", || {
        plane
            .control_plane
            .list_objects(&CLUSTER_POLICIES)
            .is_empty()
    })
    .await;
    plane.tasks.stop().await;
}

// proves: DET-lazy-edit, DET-lazy-after
#[tokio::test]
async fn lazy_policies_are_edited_without_effect_until_the_template_changes() {
    let plane = PropagationFixture::new().started().await;
    plane
        .control_plane
        .seed(&POLICIES, policy(json!({"activationPreference": "Lazy"})));
    // The Deployment is created after its policy and therefore propagated at once.
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    plane.wait_until_applied("web").await;
    plane.edit(&POLICIES, "p", |p| {
        p["spec"]["placement"]["clusterAffinity"]["clusterNames"] = json!(["m1"]);
    });
    plane.control_plane.seed(&DEPLOYMENTS, deployment("new"));
    let names = |name: &str| {
        plane.binding(name).unwrap_or_default()["spec"]["placement"]["clusterAffinity"]["clusterNames"].clone()
    };
    wait_until("the new one", || names("new-deployment") == json!(["m1"])).await;
    assert_eq!(names("web-deployment"), json!(["m1", "m2"]));
    // A change by Karmada's own controllers does not count as a change of the template.
    plane.edit(&DEPLOYMENTS, "web", |d| {
        d["metadata"]["annotations"]["x.karmada.io/y"] = "z".into();
    });
    plane.control_plane.seed(&DEPLOYMENTS, deployment("later"));
    wait_until("a later one", || {
        plane.binding("later-deployment").is_some()
    })
    .await;
    assert_eq!(names("web-deployment"), json!(["m1", "m2"]));
    plane.edit(&DEPLOYMENTS, "web", |d| d["spec"]["replicas"] = 3.into());
    wait_until("the edit", || names("web-deployment") == json!(["m1"])).await;
    plane.tasks.stop().await;
}

/// A change that a policy waits for takes effect at once, even long after the last attempt.
// proves: DET-dependent-overrides, DET-priority-class
#[tokio::test(start_paused = true)]
async fn the_creation_of_a_missing_dependency_enqueues_its_policies() {
    let plane = PropagationFixture::new().started().await;
    let spec = json!({"dependentOverrides": ["o"], "schedulePriority": {"priorityClassSource": "KubePriorityClass", "priorityClassName": "high"}});
    plane.control_plane.seed(&POLICIES, policy(spec));
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    let long = std::time::Duration::from_secs(2000);
    tokio::time::sleep(long).await;
    assert_eq!(plane.claiming_policies("web"), (Value::Null, Value::Null));
    plane.control_plane.seed(
        &OVERRIDES,
        json!({"metadata": {"name": "o", "namespace": "n"}, "spec": {"overrideRules": []}}),
    );
    wait_until("the claim", || {
        plane.claiming_policies("web").0 == "policy-id"
    })
    .await;
    tokio::time::sleep(long).await;
    assert_eq!(plane.binding("web-deployment"), None);
    plane.control_plane.seed(
        &PRIORITY_CLASSES,
        json!({"metadata": {"name": "high"}, "value": 7}),
    );
    wait_until("the binding", || plane.binding("web-deployment").is_some()).await;
    let binding = plane.binding("web-deployment").unwrap();
    assert_eq!(binding["spec"]["schedulePriority"], json!({"priority": 7}));
    plane.tasks.stop().await;
}

// proves: DET-priority-class-missing, DET-foreign-owner, DET-failure-event
#[tokio::test]
async fn events_report_why_a_policy_cannot_be_applied() {
    let plane = PropagationFixture::with_events().started().await;
    let class = json!({"schedulePriority": {"priorityClassSource": "KubePriorityClass", "priorityClassName": "high"}});
    plane.control_plane.seed(&POLICIES, policy(class));
    let mut foreign = json!({"metadata": {"name": "web-deployment", "namespace": "n"}, "spec": {}});
    foreign["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "another", "controller": true}]);
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    let has = |text: &str| {
        let events = plane.event_messages("ApplyPolicyFailed");
        events.iter().any(|t| t.starts_with(text))
    };
    let missing = r#"Apply policy(n/p) failed: PriorityClass.scheduling.k8s.io "high" not found"#;
    wait_until("the class", || has(missing)).await;
    plane.control_plane.seed(&BINDINGS, foreign);
    plane.control_plane.seed(
        &PRIORITY_CLASSES,
        json!({"metadata": {"name": "high"}, "value": 7}),
    );
    let owned =
        "Apply policy(n/p) failed: failed to update binding due to different owner reference UID";
    wait_until("the owner", || has(owned)).await;
    plane.control_plane.remove(&BINDINGS, "n", "web-deployment");
    let is_own = || {
        plane
            .binding("web-deployment")
            .is_some_and(|b| b["spec"]["schedulePriority"]["priority"] == 7)
    };
    wait_until("our own", is_own).await;
    plane.tasks.stop().await;
}

// proves: DET-workload-gate, DET-quota-namespace
#[tokio::test]
async fn workloads_have_affinity_groups_with_the_feature_gate() {
    let plane = PropagationFixture::new()
        .started_with_gates(&[
            KarmadaFeature::WorkloadAffinity,
            KarmadaFeature::ResourceQuotaEstimate,
        ])
        .await;
    let affinity = json!({"affinity": {"groupByLabelKey": "app"}, "antiAffinity": {"groupByLabelKey": "tier"}});
    plane.control_plane.seed(
        &POLICIES,
        policy(json!({"placement": {"workloadAffinity": affinity}})),
    );
    let mut web = deployment("web");
    web["metadata"]["labels"] = json!({"app": "shop"});
    let pod = &mut web["spec"]["template"]["spec"];
    pod["priorityClassName"] = "high".into();
    pod["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
    plane.control_plane.seed(&DEPLOYMENTS, web);
    wait_until("the binding", || plane.binding("web-deployment").is_some()).await;
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
    let plane = PropagationFixture::new();
    let mut taken = deployment("taken");
    taken["metadata"]["labels"] = json!({well_known_keys::CLAIMED_BY: "MultiClusterService"});
    plane.control_plane.seed(&DEPLOYMENTS, taken);
    let mut reserved = deployment("web");
    reserved["metadata"]["namespace"] = "kube-public".into();
    plane.control_plane.seed(&DEPLOYMENTS, reserved);
    plane
        .control_plane
        .seed(&CLUSTER_POLICIES, cluster_policy("c", json!({})));
    let plane = plane.started().await;
    plane.control_plane.seed(&DEPLOYMENTS, deployment("free"));
    plane.wait_until_claimed("free", "c").await;
    assert_eq!(plane.claiming_policies("taken"), (Value::Null, Value::Null));
    assert_eq!(plane.control_plane.list_objects(&BINDINGS).len(), 1);
    plane.tasks.stop().await;
}

/// The binding is created and its policy edited before the binding reaches the detector's cache.
#[tokio::test]
async fn a_policy_edit_reaches_a_binding_that_is_not_in_the_cache_yet() {
    let plane = PropagationFixture::new().started().await;
    plane.control_plane.pause_watches(&BINDINGS);
    plane
        .control_plane
        .seed(&POLICIES, policy_named("a", json!({})));
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    wait_until("the binding", || plane.binding("web-deployment").is_some()).await;
    plane.edit(&POLICIES, "a", |p| {
        p["spec"]["resourceSelectors"][0]["name"] = "web".into();
        p["spec"]["conflictResolution"] = "Overwrite".into();
    });
    // One worker reconciles all policies.
    plane.control_plane.seed(&DEPLOYMENTS, deployment("other"));
    plane
        .control_plane
        .seed(&POLICIES, policy_named("b", json!({})));
    wait_until("another", || plane.binding("other-deployment").is_some()).await;
    plane.control_plane.resume_watches(&BINDINGS);
    let edited =
        || plane.binding("web-deployment").unwrap()["spec"]["conflictResolution"] == "Overwrite";
    wait_until("the edit", edited).await;

    // The same with a policy that releases its template.
    plane.control_plane.pause_watches(&BINDINGS);
    plane.control_plane.seed(&DEPLOYMENTS, deployment("late"));
    wait_until("the binding", || plane.binding("late-deployment").is_some()).await;
    plane.edit(&POLICIES, "b", |p| {
        p["spec"]["resourceSelectors"][0]["name"] = "other".into();
    });
    wait_until("unclaimed", || {
        plane.claiming_policies("late") == (Value::Null, Value::Null)
    })
    .await;
    plane.control_plane.resume_watches(&BINDINGS);
    plane.tasks.stop().await;
}
