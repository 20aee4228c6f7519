//! Tests of ReplicaSchedulingPreferences: what bindings record of them, and the capacities that are
//! observed in members.

use std::time::Duration;

use karmada_api::resources::{BINDINGS, POLICIES, REPLICA_PREFERENCES};
use karmada_api::well_known_keys::{OBSERVED_CAPACITY, REPLICA_PREFERENCE};
use machinery::Gvr;
use serde_json::{Value, json};

use super::{DEPLOYMENTS, PropagationFixture, deployment, policy, wait_until};

static PODS: Gvr = Gvr::from_static("", "v1", "pods");

fn preference(generation: i64, spec: Value) -> Value {
    json!({"apiVersion": "scheduling.kubefed.io/v1alpha1", "kind": "ReplicaSchedulingPreference",
        "metadata": {"name": "web", "namespace": "n", "generation": generation}, "spec": spec})
}

impl PropagationFixture {
    fn web_binding(&self) -> Value {
        self.binding("web-deployment").unwrap_or_default()
    }

    fn annotation(&self, key: &str) -> Value {
        self.web_binding()["metadata"]["annotations"][key].clone()
    }
}

// proves: RSP-binding, RSP-total, RSP-target
#[tokio::test]
async fn a_binding_records_the_preference_of_its_template_as_long_as_it_exists() {
    let mut plane = PropagationFixture::new();
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    plane.control_plane.seed(&POLICIES, policy(json!({})));
    let spec = json!({"targetKind": "FederatedDeployment", "totalReplicas": 6});
    plane
        .control_plane
        .seed(&REPLICA_PREFERENCES, preference(1, spec.clone()));
    plane.start().await;
    let recorded = spec.to_string();
    wait_until("the preference is recorded", || {
        plane.annotation(REPLICA_PREFERENCE) == recorded
    })
    .await;
    let binding = plane.web_binding();
    let divided =
        json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted"});
    assert_eq!(binding["spec"]["replicas"], 6);
    assert_eq!(binding["spec"]["replicaRequirements"], json!({}));
    assert_eq!(
        binding["spec"]["placement"],
        json!({"replicaScheduling": divided})
    );
    // The scheduler divides, which knows what clusters can run.
    assert_eq!(binding["spec"].get("clusters"), None);

    // Without replicas it is still the binding of a workload.
    let mut none = spec.clone();
    none["totalReplicas"] = 0.into();
    none["intersectWithClusterSelector"] = true.into();
    plane
        .control_plane
        .seed(&REPLICA_PREFERENCES, preference(2, none));
    wait_until("no replicas", || {
        plane.web_binding()["spec"].get("replicas").is_none()
    })
    .await;
    let binding = plane.web_binding();
    assert_eq!(binding["spec"]["replicaRequirements"], json!({}));
    assert_eq!(
        binding["spec"]["placement"],
        json!({"clusterAffinity": {"clusterNames": ["m1", "m2"]}, "replicaScheduling": divided})
    );

    // A preference about another kind is none about this template.
    let mut other = spec;
    other["targetKind"] = "FederatedReplicaSet".into();
    plane
        .control_plane
        .seed(&REPLICA_PREFERENCES, preference(3, other));
    wait_until("the policy's own division", || {
        plane.web_binding()["spec"]["replicas"] == 4
    })
    .await;
    assert_eq!(plane.annotation(REPLICA_PREFERENCE), Value::Null);
    assert_eq!(
        plane.web_binding()["spec"]["placement"],
        json!({"clusterAffinity": {"clusterNames": ["m1", "m2"]}})
    );
    plane.tasks.stop().await;
}

/// The event of the preference comes before the informer has the binding that was built without it.
// proves: RSP-binding
#[tokio::test(start_paused = true)]
async fn a_preference_that_comes_while_the_binding_is_created_is_recorded() {
    let mut plane = PropagationFixture::new();
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    plane.start().await;
    plane.control_plane.pause_watches(&BINDINGS);
    plane.control_plane.seed(&POLICIES, policy(json!({})));
    wait_until("the binding", || plane.binding("web-deployment").is_some()).await;
    let spec = json!({"targetKind": "Deployment", "totalReplicas": 6});
    plane
        .control_plane
        .seed(&REPLICA_PREFERENCES, preference(1, spec));
    tokio::time::sleep(Duration::from_millis(50)).await;
    plane.control_plane.resume_watches(&BINDINGS);
    wait_until("the preference is recorded", || {
        plane.annotation(REPLICA_PREFERENCE).is_string()
    })
    .await;
    plane.tasks.stop().await;
}

fn pod(name: &str, reason: &str, since: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "n", "labels": {"app": "web"}},
        "status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": reason, "lastTransitionTime": since}]}})
}

// proves: RSP-capacity
#[tokio::test]
async fn the_capacity_of_a_cluster_lacks_the_replicas_that_it_cannot_place() {
    let mut plane = PropagationFixture::new();
    let mut template = deployment("web");
    template["spec"]["selector"] = json!({"matchLabels": {"app": "web"}});
    let mut copy = template.clone();
    copy["spec"]["replicas"] = 3.into();
    plane.control_plane.seed(&DEPLOYMENTS, template);
    plane.control_plane.seed(&POLICIES, policy(json!({})));
    let spec = json!({"targetKind": "Deployment", "totalReplicas": 6, "rebalance": true});
    plane
        .control_plane
        .seed(&REPLICA_PREFERENCES, preference(1, spec));
    for member in &plane.members {
        member.seed(&DEPLOYMENTS, copy.clone());
    }
    let long_ago = "2020-01-01T00:00:00Z";
    for pod in [
        pod("a", "Unschedulable", long_ago),
        pod("b", "Unschedulable", long_ago),
        pod("c", "SchedulingGated", long_ago),
        pod("d", "Unschedulable", "2999-01-01T00:00:00Z"),
    ] {
        plane.members[0].seed(&PODS, pod);
    }
    plane.start().await;
    wait_until("the preference is recorded", || {
        plane.annotation(REPLICA_PREFERENCE).is_string()
    })
    .await;
    let clusters = json!([{"name": "m1", "replicas": 3}, {"name": "m2", "replicas": 3}]);
    plane.edit(&BINDINGS, "web-deployment", |binding| {
        binding["spec"]["clusters"] = clusters;
    });
    let capacity = json!({"m1": 1}).to_string();
    wait_until("the capacity is recorded", || {
        plane.annotation(OBSERVED_CAPACITY) == capacity
    })
    .await;

    let report = |cluster: &str| json!({"clusterName": cluster, "applied": true, "status": {"readyReplicas": 3}});
    plane.edit(&BINDINGS, "web-deployment", |binding| {
        binding["status"]["aggregatedStatus"] = json!([report("m1"), report("m2")]);
    });
    wait_until("all replicas run", || {
        plane.annotation(OBSERVED_CAPACITY).is_null()
    })
    .await;
    plane.tasks.stop().await;
}
