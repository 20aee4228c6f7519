//! Tests from bindings to their Works: events, waiting and retries.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use client::{Api, DeleteOptions, Error, ResourcePath};
use karmada_api::resources::{
    BINDINGS, CLUSTER_OVERRIDES, CLUSTER_POLICIES, OVERRIDES, POLICIES, WORKS,
};
use karmada_api::{names, well_known_keys};
use machinery::Status;
use serde_json::{Value, json};

use super::{
    CLUSTER_ROLES, DEPLOYMENTS, EVENTS, PropagationFixture, applied_status, deployment, policy,
    wait_until,
};

const BINDING: &str = "web-deployment";

impl PropagationFixture {
    pub(super) fn with_web_deployment(self) -> Self {
        self.control_plane.seed(&POLICIES, policy(json!({})));
        self.control_plane.seed(&DEPLOYMENTS, deployment("web"));
        self
    }

    /// The messages of all events with a reason on objects of a kind.
    fn event_messages_on(&self, kind: &str, reason: &str) -> Vec<String> {
        let mut all = self.control_plane.list_objects(&EVENTS);
        all.retain(|e| e["reason"] == reason && e["involvedObject"]["kind"] == kind);
        all.iter()
            .map(|e| e["message"].as_str().unwrap().to_owned())
            .collect()
    }

    async fn wait_for_event_on(&self, kind: &str, reason: &str, message: &str) {
        let what = format!("{kind} {reason}: {message}");
        let recorded = || {
            self.event_messages_on(kind, reason)
                .iter()
                .any(|m| m == message)
        };
        wait_until(&what, recorded).await;
    }

    fn set_clusters(&self, clusters: &[&str]) {
        let all = clusters.iter().map(|c| json!({"name": c, "replicas": 4}));
        let all: Value = all.collect();
        self.edit(&BINDINGS, BINDING, |b| b["spec"]["clusters"] = all);
    }

    fn is_work_deleting(&self, cluster: &str) -> bool {
        let work = self.work(cluster, "web");
        work.is_some_and(|w| w["metadata"]["deletionTimestamp"].is_string())
    }

    /// Whether a cluster has the object and an applied Work that is not being deleted.
    fn is_applied_in(&self, at: usize, cluster: &str) -> bool {
        self.deployment_in_member(at, "web").is_some()
            && self
                .work(cluster, "web")
                .is_some_and(|w| applied_status(&w) == Some("True"))
            && !self.is_work_deleting(cluster)
    }
}

/// Lets the first member reject deletions until the flag is set.
fn reject_member_deletes(plane: &PropagationFixture) -> Arc<AtomicBool> {
    let let_it = Arc::new(AtomicBool::new(false));
    let open = Arc::clone(&let_it);
    plane.members[0].on_call(move |call| {
        let is_rejected = call.verb == "delete" && !open.load(Ordering::SeqCst);
        is_rejected.then(|| Error::from(Status::internal("not now")))
    });
    let_it
}

/// Lets the control plane reject calls until the flag is set.
fn reject_work_writes(
    plane: &PropagationFixture,
    verb: &'static str,
    reason: &'static str,
) -> Arc<AtomicBool> {
    let let_it = Arc::new(AtomicBool::new(false));
    let open = Arc::clone(&let_it);
    plane.control_plane.on_call(move |call| {
        let is_rejected =
            call.verb == verb && call.resource == Some(&WORKS) && !open.load(Ordering::SeqCst);
        let message = format!("{reason} in {}", call.namespace);
        is_rejected.then(|| Error::from(Status::internal(&message)))
    });
    let_it
}

// proves: BND-event
#[tokio::test]
async fn written_works_record_events_on_binding_and_template() {
    let plane = PropagationFixture::with_events()
        .with_web_deployment()
        .started()
        .await;
    let text = "Sync work of ResourceBinding(n/web-deployment) successful.";
    for kind in ["ResourceBinding", "Deployment"] {
        plane.wait_for_event_on(kind, "SyncWorkSucceed", text).await;
    }
    plane.tasks.stop().await;
}

// proves: BND-failure-event, BND-errors-together, BND-retry
#[tokio::test]
async fn failures_in_several_clusters_record_one_event_and_are_retried() {
    let plane = PropagationFixture::with_events().with_web_deployment();
    let let_it = reject_work_writes(&plane, "create", "no room");
    let plane = plane.started().await;
    let of = |cluster: &str| format!("Internal error occurred: no room in karmada-es-{cluster}");
    let text = format!("[{}, {}]", of("m1"), of("m2"));
    for kind in ["ResourceBinding", "Deployment"] {
        plane.wait_for_event_on(kind, "SyncWorkFailed", &text).await;
    }
    let_it.store(true, Ordering::SeqCst);
    plane.wait_until_applied("web").await;
    plane.tasks.stop().await;
}

// proves: BND-cleanup-failed
#[tokio::test]
async fn a_failed_orphan_deletion_is_reported_and_delays_the_other_works() {
    let plane = PropagationFixture::with_events()
        .with_web_deployment()
        .started()
        .await;
    plane.wait_until_applied("web").await;
    let let_it = reject_work_writes(&plane, "delete", "locked");
    plane.edit(&BINDINGS, BINDING, |b| {
        b["spec"]["clusters"] = json!([{"name": "m2", "replicas": 9}]);
    });
    let text = "Internal error occurred: locked in karmada-es-m1";
    plane
        .wait_for_event_on("ResourceBinding", "CleanupWorkFailed", text)
        .await;
    assert!(
        plane
            .event_messages_on("Deployment", "CleanupWorkFailed")
            .is_empty()
    );
    let replicas = |work: Value| {
        let manifest = &work["spec"]["workload"]["manifests"][0];
        manifest["spec"]["replicas"].clone()
    };
    assert_eq!(replicas(plane.work("m2", "web").unwrap()), 4, "not yet");
    let_it.store(true, Ordering::SeqCst);
    wait_until("the orphan's end", || plane.work("m1", "web").is_none()).await;
    wait_until("the rest", || {
        replicas(plane.work("m2", "web").unwrap()) == 9
    })
    .await;
    plane.tasks.stop().await;
}

// proves: BND-lets-go
#[tokio::test]
async fn a_deleted_binding_does_not_wait_for_its_works() {
    let plane = PropagationFixture::new()
        .with_web_deployment()
        .started()
        .await;
    plane.wait_until_applied("web").await;
    let let_it = reject_member_deletes(&plane);
    let options = DeleteOptions::default();
    let at = ResourcePath::object(&DEPLOYMENTS, "n", "web");
    plane.control_plane.delete(at, &options).await.unwrap();
    wait_until("the binding's end", || plane.binding(BINDING).is_none()).await;
    wait_until("the work's last state", || plane.is_work_deleting("m1")).await;
    assert!(plane.deployment_in_member(0, "web").is_some());
    let_it.store(true, Ordering::SeqCst);
    wait_until("all gone", || {
        plane.control_plane.list_objects(&WORKS).is_empty()
            && plane.deployment_in_member(0, "web").is_none()
    })
    .await;
    plane.tasks.stop().await;
}

// proves: BND-found-by-id
#[tokio::test]
async fn works_are_found_by_the_id_of_their_binding_and_not_by_name() {
    let plane = PropagationFixture::new()
        .with_web_deployment()
        .started()
        .await;
    plane.wait_until_applied("web").await;
    let mut odd = plane.work("m1", "web").unwrap();
    let metadata = odd["metadata"].as_object_mut().unwrap();
    metadata.insert("name".into(), "odd".into());
    metadata.insert("finalizers".into(), json!([]));
    metadata.remove("uid");
    metadata.remove("annotations");
    odd["spec"]["suspendDispatching"] = true.into();
    let mut others = odd.clone();
    others["metadata"]["name"] = "others".into();
    others["metadata"]["labels"] = json!({well_known_keys::BINDING_ID: "another"});
    plane.control_plane.seed(&WORKS, odd);
    plane.control_plane.seed(&WORKS, others);
    plane.set_clusters(&["m2"]);
    let there = |name: &str| {
        plane
            .control_plane
            .get_object(&WORKS, "karmada-es-m1", name)
            .is_some()
    };
    wait_until("the odd one's end", || !there("odd")).await;
    wait_until("the usual one's end", || plane.work("m1", "web").is_none()).await;
    assert!(there("others"));
    plane.tasks.stop().await;
}

// proves: BND-template-gone
#[tokio::test]
async fn a_binding_without_its_template_is_ignored() {
    let plane = PropagationFixture::with_events().with_web_deployment();
    let alone = json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {"name": "gone-deployment", "namespace": "n", "generation": 1, "labels": {well_known_keys::BINDING_ID: "gone"}},
        "spec": {"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "n", "name": "gone"},
                 "clusters": [{"name": "m1", "replicas": 1}, {"name": "m9", "replicas": 1}]}});
    plane.control_plane.seed(&BINDINGS, alone);
    let plane = plane.started().await;
    plane.wait_until_applied("web").await;
    let text = "Sync work of ResourceBinding(n/web-deployment) successful.";
    plane
        .wait_for_event_on("ResourceBinding", "SyncWorkSucceed", text)
        .await;
    assert_eq!(plane.work("m1", "gone"), None);
    assert!(plane.event_messages("SyncWorkFailed").is_empty());
    plane.tasks.stop().await;
}

// proves: OVR-cluster-exists
#[tokio::test]
async fn a_cluster_that_does_not_exist_gets_no_work() {
    let plane = PropagationFixture::with_events()
        .with_web_deployment()
        .started()
        .await;
    plane.wait_until_applied("web").await;
    plane.set_clusters(&["m1", "m9"]);
    let text = "clusters.cluster.karmada.io \"m9\" not found";
    plane
        .wait_for_event_on("ResourceBinding", "SyncWorkFailed", text)
        .await;
    wait_until("m2's end", || plane.work("m2", "web").is_none()).await;
    assert!(plane.work("m1", "web").is_some() && plane.work("m9", "web").is_none());
    plane.tasks.stop().await;
}

// proves: WRK-deleting
#[tokio::test]
async fn a_work_that_is_being_deleted_is_created_again_afterwards() {
    let plane = PropagationFixture::with_events()
        .with_web_deployment()
        .started()
        .await;
    plane.wait_until_applied("web").await;
    let let_it = reject_member_deletes(&plane);
    plane.set_clusters(&["m2"]);
    wait_until("the deletion", || plane.is_work_deleting("m1")).await;
    let before = plane.work("m1", "web").unwrap()["metadata"]["uid"].clone();
    plane.set_clusters(&["m1", "m2"]);
    let name = names::work_name("Deployment", "web", "n");
    let text = format!("work karmada-es-m1/{name} is being deleted");
    plane
        .wait_for_event_on("ResourceBinding", "SyncWorkFailed", &text)
        .await;
    let_it.store(true, Ordering::SeqCst);
    wait_until("the new one", || plane.is_applied_in(0, "m1")).await;
    let after = plane.work("m1", "web").unwrap()["metadata"]["uid"].clone();
    assert_ne!(before, after);
    plane.tasks.stop().await;
}

/// The order is replica revision, overrides, labels: each step sees the result of the one before.
// proves: WRK-order
#[tokio::test]
async fn overrides_apply_after_replica_revision_and_before_the_labels() {
    let plane = PropagationFixture::new();
    let overriders = json!({
        "labelsOverrider": [{"operator": "add", "value": {well_known_keys::BINDING_ID: "forged", "own": "1"}}],
        "annotationsOverrider": [{"operator": "add", "value": {well_known_keys::CONFLICT_RESOLUTION: "overwrite"}}],
        "plaintext": [{"path": "/spec/replicas", "operator": "replace", "value": 7}]});
    let rules = json!([{"targetCluster": {"clusterNames": ["m1"]}, "overriders": overriders}]);
    let over =
        json!({"metadata": {"name": "o", "namespace": "n"}, "spec": {"overrideRules": rules}});
    plane.control_plane.seed(&OVERRIDES, over);
    let plane = plane.with_web_deployment().started().await;
    for at in [0, 1] {
        wait_until("the copies", || {
            plane.deployment_in_member(at, "web").is_some()
        })
        .await;
    }
    let work = plane.work("m1", "web").unwrap();
    let manifest = &work["spec"]["workload"]["manifests"][0];
    assert_eq!(manifest["spec"]["replicas"], 7);
    let id = &work["metadata"]["labels"][well_known_keys::BINDING_ID];
    assert!(id.is_string() && id != "forged");
    assert_eq!(
        &manifest["metadata"]["labels"][well_known_keys::BINDING_ID],
        id
    );
    let resolution = |object: &Value| {
        object["metadata"]["annotations"][well_known_keys::CONFLICT_RESOLUTION].clone()
    };
    assert_eq!(
        (resolution(&work), resolution(manifest)),
        (json!("overwrite"), json!("overwrite"))
    );
    let managed = manifest["metadata"]["annotations"][well_known_keys::MANAGED_LABELS].as_str();
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
    let plane = PropagationFixture::new()
        .with_web_deployment()
        .started()
        .await;
    plane.wait_until_applied("web").await;
    plane.edit(&BINDINGS, BINDING, |b| {
        b["spec"]["clusters"] = json!([{"name": "m1", "replicas": 3}]);
        b["spec"]["requiredBy"] = json!([
            {"namespace": "n", "name": "r", "clusters": [{"name": "m1", "replicas": 8}, {"name": "m2", "replicas": 5}]},
            {"namespace": "n", "name": "s", "clusters": [{"name": "m2", "replicas": 7}]}]);
    });
    let replicas =
        |at: usize| plane.deployment_in_member(at, "web").unwrap()["spec"]["replicas"].clone();
    wait_until("the first of each", || replicas(0) == 3 && replicas(1) == 5).await;
    plane.tasks.stop().await;
}

// proves: BND-override-scope, OVR-no-selectors
#[tokio::test]
async fn override_policies_apply_to_objects_of_their_namespace_only() {
    let plane = PropagationFixture::new();
    let adding = |name: &str, namespace: &str| {
        let add = json!({"labelsOverrider": [{"operator": "add", "value": {name: "1"}}]});
        json!({"metadata": {"name": name, "namespace": namespace}, "spec": {"overrideRules": [{"overriders": add}]}})
    };
    plane
        .control_plane
        .seed(&CLUSTER_OVERRIDES, adding("wide", ""));
    plane.control_plane.seed(&OVERRIDES, adding("local", "n"));
    plane
        .control_plane
        .seed(&OVERRIDES, adding("foreign", "other"));
    let mut of_roles = policy(json!({"resourceSelectors": [
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}]}));
    of_roles["kind"] = "ClusterPropagationPolicy".into();
    of_roles["metadata"] =
        json!({"name": "c", "labels": {well_known_keys::CLUSTER_POLICY_ID: "c-id"}});
    plane.control_plane.seed(&CLUSTER_POLICIES, of_roles);
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"}, "rules": []});
    plane.control_plane.seed(&CLUSTER_ROLES, role);
    let plane = plane.with_web_deployment().started().await;
    let role = || plane.members[0].get_object(&CLUSTER_ROLES, "", "r");
    wait_until("both", || {
        role().is_some() && plane.deployment_in_member(0, "web").is_some()
    })
    .await;
    let applied_policies = |object: Value| {
        let all = ["foreign", "local", "wide"].into_iter();
        all.filter(|key| !object["metadata"]["labels"][key].is_null())
            .collect::<Vec<_>>()
    };
    assert_eq!(applied_policies(role().unwrap()), ["wide"]);
    assert_eq!(
        applied_policies(plane.deployment_in_member(0, "web").unwrap()),
        ["local", "wide"]
    );
    plane.tasks.stop().await;
}

// proves: OVR-event
#[tokio::test]
async fn every_applied_rule_records_an_event() {
    let plane = PropagationFixture::with_events();
    let add = |key: &str| json!({"overriders": {"labelsOverrider": [{"operator": "add", "value": {key: "1"}}]}});
    let spec = json!({"overrideRules": [add("a"), add("b"), {"targetCluster": {"clusterNames": ["m2"]}, "overriders": {}}]});
    let over = json!({"metadata": {"name": "o", "namespace": "n"}, "spec": spec});
    plane.control_plane.seed(&OVERRIDES, over);
    let plane = plane.with_web_deployment().started().await;
    let event_count = |cluster: &str| {
        let text = format!("Apply override policy(n/o) for cluster({cluster}) succeed.");
        let mut all = plane.control_plane.list_objects(&EVENTS).into_iter();
        let event =
            all.find(|e| e["message"] == text && e["reason"] == "ApplyOverridePolicySucceed");
        event.map_or(0, |e| {
            assert_eq!(e["involvedObject"]["kind"], "Deployment");
            e["count"].as_u64().unwrap_or(1)
        })
    };
    wait_until("all rules", || {
        event_count("m1") == 2 && event_count("m2") == 3
    })
    .await;
    plane.tasks.stop().await;
}
