//! Tests of FederatedResourceQuotas.

use std::time::Duration;

use client::{Api, Patch, ResourcePath, WriteOptions};
use karmada_api::resources::{BINDINGS, CLUSTERS, QUOTAS, WORKS};
use karmada_api::{FeatureGates, KarmadaFeature, names, well_known_keys};
use machinery::Gvr;
use serde_json::{Value, json};

use super::{PropagationFixture, cluster, serve, wait_until};

static RESOURCE_QUOTAS: Gvr = Gvr::from_static("", "v1", "resourcequotas");

fn quota(overall: Value, assigned: &[(&str, Value)]) -> Value {
    let assigned = assigned.iter();
    let assigned: Value = assigned
        .map(|(cluster, hard)| json!({"clusterName": cluster, "hard": hard}))
        .collect();
    json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "FederatedResourceQuota",
        "metadata": {"name": "q", "namespace": "n"}, "spec": {"overall": overall, "staticAssignments": assigned}})
}

impl PropagationFixture {
    fn quota_status(&self) -> Value {
        let quota = self
            .control_plane
            .get_object(&QUOTAS, "n", "q")
            .unwrap_or_default();
        quota["status"].clone()
    }

    fn quota_work(&self, cluster: &str) -> Option<Value> {
        let name = names::work_name("ResourceQuota", "q", "n");
        let space = names::execution_space_name(cluster);
        self.control_plane.get_object(&WORKS, &space, &name)
    }

    fn member_quota(&self, at: usize) -> Option<Value> {
        self.members[at].get_object(&RESOURCE_QUOTAS, "n", "q")
    }

    /// Writes the status that the member's quota controller would report.
    async fn report_usage(&self, cluster: &str, used: &str) {
        let name = names::work_name("ResourceQuota", "q", "n");
        let space = names::execution_space_name(cluster);
        let status = json!({"status": {"manifestStatuses": [{
            "identifier": {"ordinal": 0, "version": "v1", "kind": "ResourceQuota", "resource": "", "name": "q", "namespace": "n"},
            "status": {"hard": {"cpu": "2"}, "used": {"cpu": used}}}]}});
        let at = ResourcePath::object(&WORKS, &space, &name).subresource("status");
        let options = WriteOptions::default();
        let patched = self
            .control_plane
            .patch(at, Patch::Merge(status), &options)
            .await;
        patched.unwrap();
    }
}

// proves: QUO-share, QUO-leaves, QUO-collected, QUO-overall, QUO-share-event, QUO-collected-event
#[tokio::test]
async fn shares_are_propagated_and_their_usage_is_collected() {
    let plane = PropagationFixture::with_events();
    serve(
        &plane.control_plane,
        &RESOURCE_QUOTAS,
        "ResourceQuota",
        true,
    );
    let share = |cpu: &str| json!({"cpu": cpu});
    let assigned = [("m1", share("2")), ("m2", share("2"))];
    plane
        .control_plane
        .seed(&QUOTAS, quota(json!({"cpu": "4"}), &assigned));
    let plane = plane.started().await;
    wait_until("both have theirs", || {
        [0, 1]
            .map(|m| plane.member_quota(m))
            .iter()
            .flatten()
            .count()
            == 2
    })
    .await;
    assert_eq!(
        plane.member_quota(0).unwrap()["spec"],
        json!({"hard": {"cpu": "2"}})
    );
    let work = plane.quota_work("m1").unwrap();
    assert_eq!(
        work["metadata"]["labels"],
        json!({well_known_keys::QUOTA_NAMESPACE: "n", well_known_keys::QUOTA_NAME: "q"})
    );
    wait_until("overall", || {
        plane.quota_status()["overall"] == json!({"cpu": "4"})
    })
    .await;
    plane.report_usage("m2", "1500m").await;
    plane.report_usage("m1", "1").await;
    let used = |cluster: &str, used: &str| json!({"clusterName": cluster, "hard": {"cpu": "2"}, "used": {"cpu": used}});
    let expected = json!({"overall": {"cpu": "4"}, "overallUsed": {"cpu": "2500m"},
        "aggregatedStatus": [used("m1", "1"), used("m2", "1500m")]});
    wait_until("usage", || plane.quota_status() == expected).await;
    wait_until("events", || {
        let of_works = plane.event_messages("SyncWorkSucceed");
        let of_use = plane.event_messages("AggregateStatusSucceed");
        of_works
            .iter()
            .any(|m| m == "Sync works for FederatedResourceQuota(n/q) succeed.")
            && of_use
                .iter()
                .any(|m| m == "Collect status of FederatedResourceQuota(n/q) succeed.")
    })
    .await;

    plane.edit(&QUOTAS, "q", |quota| {
        quota["spec"]["staticAssignments"] = json!([{"clusterName": "m1", "hard": share("3")}]);
    });
    wait_until("the changed shares", || {
        let more = plane
            .member_quota(0)
            .is_some_and(|s| s["spec"]["hard"] == share("3"));
        more && plane.quota_work("m2").is_none() && plane.member_quota(1).is_none()
    })
    .await;
    wait_until("the reduced usage", || {
        plane.quota_status()["aggregatedStatus"] == json!([used("m1", "1")])
    })
    .await;
    plane.control_plane.remove(&QUOTAS, "n", "q");
    wait_until("the deletion of all shares", || {
        plane.quota_work("m1").is_none() && plane.member_quota(0).is_none()
    })
    .await;
    plane.tasks.stop().await;
}

fn binding(name: &str, replicas: i64) -> Value {
    json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {"name": name, "namespace": "n"},
        "spec": {"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "n", "name": "none"},
            "replicas": replicas, "clusters": [{"name": "m1", "replicas": replicas}],
            "replicaRequirements": {"resourceRequest": {"cpu": "500m", "memory": "1Gi"}}}})
}

// proves: QUO-recount, QUO-limited
#[tokio::test]
async fn usage_is_recounted_when_quotas_change_and_bindings_are_deleted() {
    let plane = PropagationFixture::new();
    plane.control_plane.seed(&BINDINGS, binding("a", 2));
    plane.control_plane.seed(&BINDINGS, binding("b", 1));
    plane
        .control_plane
        .seed(&QUOTAS, quota(json!({"cpu": "4"}), &[]));
    let plane = plane
        .started_with_gates(&[KarmadaFeature::FederatedQuotaEnforcement])
        .await;
    let counted = |overall: Value, used: Value| json!({"overall": overall, "overallUsed": used});
    let first = counted(json!({"cpu": "4"}), json!({"cpu": "1500m"}));
    wait_until("counted", || plane.quota_status() == first).await;

    // The next recount corrects a charge that admission added for a write that failed.
    let charged = json!({"status": {"overallUsed": {"cpu": "2"}}});
    let at = ResourcePath::object(&QUOTAS, "n", "q").subresource("status");
    let options = WriteOptions::default();
    let patched = plane
        .control_plane
        .patch(at, Patch::Merge(charged), &options);
    patched.await.unwrap();
    plane.edit(&QUOTAS, "q", |quota| {
        quota["spec"]["overall"] = json!({"cpu": "4", "memory": "8Gi"});
    });
    let more = counted(
        json!({"cpu": "4", "memory": "8Gi"}),
        json!({"cpu": "1500m", "memory": "3Gi"}),
    );
    wait_until("counted by the new limits", || plane.quota_status() == more).await;
    plane.control_plane.remove(&BINDINGS, "n", "a");
    wait_until("less is used", || {
        plane.quota_status()["overallUsed"] == json!({"cpu": "500m", "memory": "1Gi"})
    })
    .await;
    plane.tasks.stop().await;
}

/// A share is removed before the watch delivers the creation of its Work.
// proves: QUO-unseen-work
#[tokio::test]
async fn a_work_that_appears_after_its_share_was_removed_is_deleted() {
    let plane = PropagationFixture::new();
    serve(
        &plane.control_plane,
        &RESOURCE_QUOTAS,
        "ResourceQuota",
        true,
    );
    plane
        .control_plane
        .seed(&QUOTAS, quota(json!({"cpu": "4"}), &[]));
    let plane = plane.started().await;
    plane.control_plane.pause_watches(&WORKS);
    for cluster in ["m2", "m1"] {
        plane.edit(&QUOTAS, "q", |quota| {
            quota["spec"]["staticAssignments"] =
                json!([{"clusterName": cluster, "hard": {"cpu": "2"}}]);
        });
        wait_until(cluster, || plane.quota_work(cluster).is_some()).await;
    }
    plane.control_plane.resume_watches(&WORKS);
    wait_until("the first one gone", || plane.quota_work("m2").is_none()).await;
    assert!(plane.quota_work("m1").is_some());
    plane.tasks.stop().await;
}

// proves: QUO-late-cluster
#[tokio::test]
async fn a_new_cluster_gets_its_share() {
    let plane = PropagationFixture::new();
    let assigned = [("m3", json!({"cpu": "2"}))];
    plane
        .control_plane
        .seed(&QUOTAS, quota(json!({"cpu": "4"}), &assigned));
    let plane = plane.started().await;
    wait_until("it is looked at", || {
        plane.quota_status()["overall"] == json!({"cpu": "4"})
    })
    .await;
    assert!(plane.quota_work("m3").is_none());
    plane.control_plane.seed(&CLUSTERS, cluster("m3"));
    wait_until("its share", || plane.quota_work("m3").is_some()).await;
    let work = plane.quota_work("m3").unwrap();
    let share =
        json!({"apiVersion": "v1", "kind": "ResourceQuota", "spec": {"hard": {"cpu": "2"}}});
    let manifest = &work["spec"]["workload"]["manifests"][0];
    for (field, value) in share.as_object().unwrap() {
        assert_eq!(manifest[field], *value);
    }
    plane.tasks.stop().await;
}

// proves: QUO-recount, QUO-collected-event
#[tokio::test]
async fn usage_is_recounted_periodically() {
    let mut plane = PropagationFixture::with_events();
    plane.control_plane.seed(&BINDINGS, binding("a", 2));
    plane
        .control_plane
        .seed(&QUOTAS, quota(json!({"cpu": "4"}), &[]));
    let gates =
        FeatureGates::default().with_feature(KarmadaFeature::FederatedQuotaEnforcement, true);
    plane
        .start_with(gates, |options| {
            options.quota_resync = Duration::from_millis(20);
        })
        .await;
    let used = |cpu: &str| plane.quota_status()["overallUsed"] == json!({ "cpu": cpu });
    wait_until("counted", || used("1")).await;
    // No event reports that the sum is wrong.
    let charged = json!({"status": {"overallUsed": {"cpu": "3"}}});
    let at = ResourcePath::object(&QUOTAS, "n", "q").subresource("status");
    let options = WriteOptions::default();
    let patched = plane
        .control_plane
        .patch(at, Patch::Merge(charged), &options);
    patched.await.unwrap();
    wait_until("counted again", || used("1")).await;
    wait_until("the event", || {
        let events = plane.event_messages("CollectOverallStatusSucceed");
        events
            .iter()
            .any(|m| m == "Collect status of FederatedResourceQuota(n/q) succeed.")
    })
    .await;
    plane.tasks.stop().await;
}
