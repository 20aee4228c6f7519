//! Tests from bindings to their Works: events, waiting and retries.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use client::{Api, At, DeleteOptions, Error};
use machinery::Status;
use openapi::karmada::resources::{
    BINDINGS, CLUSTER_OVERRIDES, CLUSTER_POLICIES, OVERRIDES, POLICIES, WORKS,
};
use openapi::karmada::{labels, names};
use serde_json::{Value, json};

use super::{CLUSTER_ROLES, DEPLOYMENTS, EVENTS, Plane, applied, deployment, policy, until};

const BINDING: &str = "web-deployment";

impl Plane {
    fn with_web(self) -> Self {
        self.control.seed(&POLICIES, policy(json!({})));
        self.control.seed(&DEPLOYMENTS, deployment("web"));
        self
    }

    /// The messages of all events with a reason on objects of a kind.
    fn told_on(&self, kind: &str, reason: &str) -> Vec<String> {
        let mut all = self.control.objects(&EVENTS);
        all.retain(|e| e["reason"] == reason && e["involvedObject"]["kind"] == kind);
        all.iter()
            .map(|e| e["message"].as_str().unwrap().to_owned())
            .collect()
    }

    async fn until_told_on(&self, kind: &str, reason: &str, message: &str) {
        let what = format!("{kind} {reason}: {message}");
        let recorded = || self.told_on(kind, reason).iter().any(|m| m == message);
        until(&what, recorded).await;
    }

    fn place(&self, clusters: &[&str]) {
        let all = clusters.iter().map(|c| json!({"name": c, "replicas": 4}));
        let all: Value = all.collect();
        self.change(&BINDINGS, BINDING, |b| b["spec"]["clusters"] = all);
    }

    fn is_leaving(&self, cluster: &str) -> bool {
        let work = self.work(cluster, "web");
        work.is_some_and(|w| w["metadata"]["deletionTimestamp"].is_string())
    }

    /// Whether a cluster has the object and an applied Work that is not being deleted.
    fn is_whole(&self, at: usize, cluster: &str) -> bool {
        self.in_member(at, "web").is_some()
            && self
                .work(cluster, "web")
                .is_some_and(|w| applied(&w) == Some("True"))
            && !self.is_leaving(cluster)
    }
}

/// Lets the first member reject deletions until the flag is set.
fn holding(plane: &Plane) -> Arc<AtomicBool> {
    let let_it = Arc::new(AtomicBool::new(false));
    let open = Arc::clone(&let_it);
    plane.members[0].on_call(move |call| {
        let refused = call.verb == "delete" && !open.load(Ordering::SeqCst);
        refused.then(|| Error::from(Status::internal("not now")))
    });
    let_it
}

/// Lets the control plane reject calls until the flag is set.
fn refusing(plane: &Plane, verb: &'static str, why: &'static str) -> Arc<AtomicBool> {
    let let_it = Arc::new(AtomicBool::new(false));
    let open = Arc::clone(&let_it);
    plane.control.on_call(move |call| {
        let refused =
            call.verb == verb && call.resource == Some(&WORKS) && !open.load(Ordering::SeqCst);
        let why = format!("{why} in {}", call.namespace);
        refused.then(|| Error::from(Status::internal(&why)))
    });
    let_it
}

// proves: BND-told
#[tokio::test]
async fn written_works_record_events_on_binding_and_template() {
    let plane = Plane::telling_events().with_web().started().await;
    let text = "Sync work of ResourceBinding(n/web-deployment) successful.";
    for kind in ["ResourceBinding", "Deployment"] {
        plane.until_told_on(kind, "SyncWorkSucceed", text).await;
    }
    plane.tasks.stop().await;
}

// proves: BND-told-failed, BND-errors-together, BND-retry
#[tokio::test]
async fn failures_in_several_clusters_record_one_event_and_are_retried() {
    let plane = Plane::telling_events().with_web();
    let let_it = refusing(&plane, "create", "no room");
    let plane = plane.started().await;
    let of = |cluster: &str| format!("Internal error occurred: no room in karmada-es-{cluster}");
    let text = format!("[{}, {}]", of("m1"), of("m2"));
    for kind in ["ResourceBinding", "Deployment"] {
        plane.until_told_on(kind, "SyncWorkFailed", &text).await;
    }
    let_it.store(true, Ordering::SeqCst);
    plane.applied("web").await;
    plane.tasks.stop().await;
}

// proves: BND-cleanup-failed
#[tokio::test]
async fn a_failed_orphan_deletion_is_reported_and_delays_the_other_works() {
    let plane = Plane::telling_events().with_web().started().await;
    plane.applied("web").await;
    let let_it = refusing(&plane, "delete", "locked");
    plane.change(&BINDINGS, BINDING, |b| {
        b["spec"]["clusters"] = json!([{"name": "m2", "replicas": 9}]);
    });
    let text = "Internal error occurred: locked in karmada-es-m1";
    plane
        .until_told_on("ResourceBinding", "CleanupWorkFailed", text)
        .await;
    assert!(plane.told_on("Deployment", "CleanupWorkFailed").is_empty());
    let replicas = |work: Value| {
        let manifest = &work["spec"]["workload"]["manifests"][0];
        manifest["spec"]["replicas"].clone()
    };
    assert_eq!(replicas(plane.work("m2", "web").unwrap()), 4, "not yet");
    let_it.store(true, Ordering::SeqCst);
    until("the orphan's end", || plane.work("m1", "web").is_none()).await;
    until("the rest", || {
        replicas(plane.work("m2", "web").unwrap()) == 9
    })
    .await;
    plane.tasks.stop().await;
}

// proves: BND-lets-go
#[tokio::test]
async fn a_deleted_binding_does_not_wait_for_its_works() {
    let plane = Plane::new().with_web().started().await;
    plane.applied("web").await;
    let let_it = holding(&plane);
    let options = DeleteOptions::default();
    let at = At::one(&DEPLOYMENTS, "n", "web");
    plane.control.delete(at, &options).await.unwrap();
    until("the binding's end", || plane.binding(BINDING).is_none()).await;
    until("the work's last state", || plane.is_leaving("m1")).await;
    assert!(plane.in_member(0, "web").is_some());
    let_it.store(true, Ordering::SeqCst);
    until("all gone", || {
        plane.control.objects(&WORKS).is_empty() && plane.in_member(0, "web").is_none()
    })
    .await;
    plane.tasks.stop().await;
}

// proves: BND-found-by-id
#[tokio::test]
async fn works_are_found_by_the_id_of_their_binding_and_not_by_name() {
    let plane = Plane::new().with_web().started().await;
    plane.applied("web").await;
    let mut odd = plane.work("m1", "web").unwrap();
    let metadata = odd["metadata"].as_object_mut().unwrap();
    metadata.insert("name".into(), "odd".into());
    metadata.insert("finalizers".into(), json!([]));
    metadata.remove("uid");
    metadata.remove("annotations");
    odd["spec"]["suspendDispatching"] = true.into();
    let mut others = odd.clone();
    others["metadata"]["name"] = "others".into();
    others["metadata"]["labels"] = json!({labels::BINDING_ID: "another"});
    plane.control.seed(&WORKS, odd);
    plane.control.seed(&WORKS, others);
    plane.place(&["m2"]);
    let there = |name: &str| {
        plane
            .control
            .object(&WORKS, "karmada-es-m1", name)
            .is_some()
    };
    until("the odd one's end", || !there("odd")).await;
    until("the usual one's end", || plane.work("m1", "web").is_none()).await;
    assert!(there("others"));
    plane.tasks.stop().await;
}

// proves: BND-template-gone
#[tokio::test]
async fn a_binding_without_its_template_is_ignored() {
    let plane = Plane::telling_events().with_web();
    let alone = json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {"name": "gone-deployment", "namespace": "n", "generation": 1, "labels": {labels::BINDING_ID: "gone"}},
        "spec": {"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "n", "name": "gone"},
                 "clusters": [{"name": "m1", "replicas": 1}, {"name": "m9", "replicas": 1}]}});
    plane.control.seed(&BINDINGS, alone);
    let plane = plane.started().await;
    plane.applied("web").await;
    let text = "Sync work of ResourceBinding(n/web-deployment) successful.";
    plane
        .until_told_on("ResourceBinding", "SyncWorkSucceed", text)
        .await;
    assert_eq!(plane.work("m1", "gone"), None);
    assert!(plane.told("SyncWorkFailed").is_empty());
    plane.tasks.stop().await;
}

// proves: OVR-cluster-exists
#[tokio::test]
async fn a_cluster_that_does_not_exist_gets_no_work() {
    let plane = Plane::telling_events().with_web().started().await;
    plane.applied("web").await;
    plane.place(&["m1", "m9"]);
    let text = "clusters.cluster.karmada.io \"m9\" not found";
    plane
        .until_told_on("ResourceBinding", "SyncWorkFailed", text)
        .await;
    until("m2's end", || plane.work("m2", "web").is_none()).await;
    assert!(plane.work("m1", "web").is_some() && plane.work("m9", "web").is_none());
    plane.tasks.stop().await;
}

// proves: WRK-deleting
#[tokio::test]
async fn a_work_that_is_being_deleted_is_created_again_afterwards() {
    let plane = Plane::telling_events().with_web().started().await;
    plane.applied("web").await;
    let let_it = holding(&plane);
    plane.place(&["m2"]);
    until("the deletion", || plane.is_leaving("m1")).await;
    let before = plane.work("m1", "web").unwrap()["metadata"]["uid"].clone();
    plane.place(&["m1", "m2"]);
    let name = names::work("Deployment", "web", "n");
    let text = format!("work karmada-es-m1/{name} is being deleted");
    plane
        .until_told_on("ResourceBinding", "SyncWorkFailed", &text)
        .await;
    let_it.store(true, Ordering::SeqCst);
    until("the new one", || plane.is_whole(0, "m1")).await;
    let after = plane.work("m1", "web").unwrap()["metadata"]["uid"].clone();
    assert_ne!(before, after);
    plane.tasks.stop().await;
}

/// The order is replica revision, overrides, labels: each step sees the result of the one before.
// proves: WRK-order, WRK-name-overridden
#[tokio::test]
async fn overrides_apply_after_replica_revision_and_before_the_labels() {
    let plane = Plane::new();
    let overriders = json!({
        "labelsOverrider": [{"operator": "add", "value": {labels::BINDING_ID: "forged", "own": "1"}}],
        "annotationsOverrider": [{"operator": "add", "value": {labels::CONFLICT_RESOLUTION: "overwrite"}}],
        "plaintext": [{"path": "/spec/replicas", "operator": "replace", "value": 7},
                      {"path": "/metadata/name", "operator": "replace", "value": "web-eu"}]});
    let rules = json!([{"targetCluster": {"clusterNames": ["m1"]}, "overriders": overriders}]);
    let over =
        json!({"metadata": {"name": "o", "namespace": "n"}, "spec": {"overrideRules": rules}});
    plane.control.seed(&OVERRIDES, over);
    let plane = plane.with_web().started().await;
    until("the copy", || plane.in_member(0, "web-eu").is_some()).await;
    until("the other", || plane.in_member(1, "web").is_some()).await;
    assert_eq!(plane.in_member(0, "web"), None);
    assert_eq!(plane.work("m1", "web"), None, "named after what it holds");
    let work = plane.work("m1", "web-eu").unwrap();
    let manifest = &work["spec"]["workload"]["manifests"][0];
    assert_eq!(manifest["spec"]["replicas"], 7);
    let id = &work["metadata"]["labels"][labels::BINDING_ID];
    assert!(id.is_string() && id != "forged");
    assert_eq!(&manifest["metadata"]["labels"][labels::BINDING_ID], id);
    let resolution =
        |object: &Value| object["metadata"]["annotations"][labels::CONFLICT_RESOLUTION].clone();
    assert_eq!(
        (resolution(&work), resolution(manifest)),
        (json!("overwrite"), json!("overwrite"))
    );
    let managed = manifest["metadata"]["annotations"][labels::MANAGED_LABELS].as_str();
    assert!(
        managed.unwrap().split(',').any(|key| key == "own"),
        "what overrides add is managed"
    );
    let other = plane.work("m2", "web").unwrap();
    assert_eq!(
        other["spec"]["workload"]["manifests"][0]["spec"]["replicas"],
        4
    );
    assert_eq!(resolution(&other), "abort");
    plane.tasks.stop().await;
}

// proves: BND-first-target-wins
#[tokio::test]
async fn the_first_target_of_a_cluster_decides_its_replicas() {
    let plane = Plane::new().with_web().started().await;
    plane.applied("web").await;
    plane.change(&BINDINGS, BINDING, |b| {
        b["spec"]["clusters"] = json!([{"name": "m1", "replicas": 3}]);
        b["spec"]["requiredBy"] = json!([
            {"namespace": "n", "name": "r", "clusters": [{"name": "m1", "replicas": 8}, {"name": "m2", "replicas": 5}]},
            {"namespace": "n", "name": "s", "clusters": [{"name": "m2", "replicas": 7}]}]);
    });
    let replicas = |at: usize| plane.in_member(at, "web").unwrap()["spec"]["replicas"].clone();
    until("the first of each", || replicas(0) == 3 && replicas(1) == 5).await;
    plane.tasks.stop().await;
}

// proves: BND-override-scope, OVR-no-selectors
#[tokio::test]
async fn override_policies_apply_to_objects_of_their_namespace_only() {
    let plane = Plane::new();
    let adding = |name: &str, namespace: &str| {
        let add = json!({"labelsOverrider": [{"operator": "add", "value": {name: "1"}}]});
        json!({"metadata": {"name": name, "namespace": namespace}, "spec": {"overrideRules": [{"overriders": add}]}})
    };
    plane.control.seed(&CLUSTER_OVERRIDES, adding("wide", ""));
    plane.control.seed(&OVERRIDES, adding("local", "n"));
    plane.control.seed(&OVERRIDES, adding("foreign", "other"));
    let mut of_roles = policy(json!({"resourceSelectors": [
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}]}));
    of_roles["kind"] = "ClusterPropagationPolicy".into();
    of_roles["metadata"] = json!({"name": "c", "labels": {labels::CLUSTER_POLICY_ID: "c-id"}});
    plane.control.seed(&CLUSTER_POLICIES, of_roles);
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"}, "rules": []});
    plane.control.seed(&CLUSTER_ROLES, role);
    let plane = plane.with_web().started().await;
    let role = || plane.members[0].object(&CLUSTER_ROLES, "", "r");
    until("both", || {
        role().is_some() && plane.in_member(0, "web").is_some()
    })
    .await;
    let applied_policies = |object: Value| {
        let all = ["foreign", "local", "wide"].into_iter();
        all.filter(|key| !object["metadata"]["labels"][key].is_null())
            .collect::<Vec<_>>()
    };
    assert_eq!(applied_policies(role().unwrap()), ["wide"]);
    assert_eq!(
        applied_policies(plane.in_member(0, "web").unwrap()),
        ["local", "wide"]
    );
    plane.tasks.stop().await;
}

// proves: OVR-told
#[tokio::test]
async fn every_applied_rule_records_an_event() {
    let plane = Plane::telling_events();
    let add = |key: &str| json!({"overriders": {"labelsOverrider": [{"operator": "add", "value": {key: "1"}}]}});
    let spec = json!({"overrideRules": [add("a"), add("b"), {"targetCluster": {"clusterNames": ["m2"]}, "overriders": {}}]});
    let over = json!({"metadata": {"name": "o", "namespace": "n"}, "spec": spec});
    plane.control.seed(&OVERRIDES, over);
    let plane = plane.with_web().started().await;
    let event_count = |cluster: &str| {
        let text = format!("Apply override policy(n/o) for cluster({cluster}) succeed.");
        let mut all = plane.control.objects(&EVENTS).into_iter();
        let found =
            all.find(|e| e["message"] == text && e["reason"] == "ApplyOverridePolicySucceed");
        found.map_or(0, |e| {
            assert_eq!(e["involvedObject"]["kind"], "Deployment");
            e["count"].as_u64().unwrap_or(1)
        })
    };
    until("all rules", || {
        event_count("m1") == 2 && event_count("m2") == 3
    })
    .await;
    plane.tasks.stop().await;
}
