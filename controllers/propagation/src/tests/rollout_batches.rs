//! Batches of staged workloads: which partition each Work has.

use karmada_api::names::work_name;
use karmada_api::resources::{CLUSTERS, OVERRIDES, POLICIES, WORKS};
use karmada_api::rollout::{REVISION, ROLLOUT_POLICIES, ROLLOUTS};
use machinery::Gvr;
use serde_json::{Value, json};

use super::{PropagationFixture, cluster, policy, serve, wait_until};

static STATEFUL_SETS: Gvr = Gvr::from_static("apps", "v1", "statefulsets");
const PARTITION: &str = "/spec/updateStrategy/rollingUpdate/partition";

/// A StatefulSet of four replicas in each of two clusters, the first of which has batches, with an
/// override of the partition.
fn stateful_set_plane() -> PropagationFixture {
    let plane = PropagationFixture::new();
    let control_plane = &plane.control_plane;
    serve(control_plane, &STATEFUL_SETS, "StatefulSet", true);
    for name in ["m1", "m2"] {
        let mut cluster = cluster(name);
        let resources = json!([{"kind": "StatefulSet", "name": "statefulsets"}]);
        cluster["status"]["apiEnablements"][0]["resources"] = resources;
        control_plane.seed(&CLUSTERS, cluster);
    }
    let selectors = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db"}]);
    control_plane.seed(&POLICIES, policy(json!({"resourceSelectors": selectors})));
    let container = json!({"name": "c", "image": "db:1"});
    let strategy = json!({"rollingUpdate": {"partition": 0}});
    let db = json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": "db", "namespace": "n", "generation": 1},
        "spec": {"replicas": 4, "updateStrategy": strategy, "template": {"spec": {"containers": [container]}}}});
    control_plane.seed(&STATEFUL_SETS, db);
    let partition = json!([{"path": PARTITION, "operator": "replace", "value": 1}]);
    let override_policy = json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy",
        "metadata": {"name": "partition", "namespace": "n", "generation": 1},
        "spec": {"resourceSelectors": selectors, "overrideRules": [{"overriders": {"plaintext": partition}}]}});
    control_plane.seed(&OVERRIDES, override_policy);
    let stage = json!({"name": "first", "clusterAffinity": {"clusterNames": ["m1"]}, "batches": ["50%", "100%"]});
    let rollout_policy = json!({"apiVersion": "rollout.flotilla.io/v1alpha1", "kind": "RolloutPolicy",
        "metadata": {"name": "p", "namespace": "n", "generation": 1},
        "spec": {"resourceSelectors": selectors, "stages": [stage], "progressDeadline": "10m", "onFailure": "Pause"}});
    control_plane.seed(&ROLLOUT_POLICIES, rollout_policy);
    plane
}

impl PropagationFixture {
    fn work_of_set(&self, cluster: &str) -> Option<Value> {
        let name = work_name("StatefulSet", "db", "n");
        let namespace = format!("karmada-es-{cluster}");
        self.control_plane.get_object(&WORKS, &namespace, &name)
    }

    /// The image and the partition that a cluster gets.
    fn image_and_partition(&self, cluster: &str) -> Option<(String, i64)> {
        let work = self.work_of_set(cluster)?;
        let manifest = &work["spec"]["workload"]["manifests"][0];
        let image = manifest.pointer("/spec/template/spec/containers/0/image")?;
        let partition = manifest.pointer(PARTITION)?.as_i64()?;
        Some((image.as_str()?.to_owned(), partition))
    }

    async fn wait_for_partition(&self, cluster: &str, image: &str, partition: i64) {
        let expected = Some((image.to_owned(), partition));
        let what = format!("{cluster} has {expected:?}");
        wait_until(&what, || self.image_and_partition(cluster) == expected).await;
    }

    /// Lets a member report how many of its replicas have the revision.
    fn report_updated(&self, cluster: &str, updated: i64) {
        let mut work = self.work_of_set(cluster).unwrap();
        let identifier = json!({"ordinal": 0, "group": "apps", "version": "v1", "kind": "StatefulSet", "name": "db"});
        let health = if updated == 4 { "Healthy" } else { "Unhealthy" };
        let revision = work["metadata"]["annotations"][REVISION].clone();
        let status = json!({"generation": 1, "observedGeneration": 1, "replicas": 4,
            "availableReplicas": 4, "updatedReplicas": updated});
        work["status"]["manifestStatuses"] = json!([{"identifier": identifier, "health": health, "revision": revision, "status": status}]);
        self.control_plane.seed(&WORKS, work);
    }
}

// proves: ROL-batch-works
#[tokio::test]
async fn the_work_of_a_batch_has_its_partition() {
    let plane = stateful_set_plane().started().await;
    for cluster in ["m1", "m2"] {
        plane.wait_for_partition(cluster, "db:1", 1).await;
        plane.report_updated(cluster, 4);
    }
    let batch = || {
        let rollout = plane
            .control_plane
            .get_object(&ROLLOUTS, "n", "db-statefulset");
        let cluster = rollout?.pointer("/status/stages/0/clusters/0")?.clone();
        Some((cluster["phase"].clone(), cluster["batchPercent"].as_i64()))
    };
    wait_until("done", || batch() == Some((json!("Done"), None))).await;
    plane.edit(&STATEFUL_SETS, "db", |db| {
        db["spec"]["template"]["spec"]["containers"][0]["image"] = "db:2".into();
    });
    // Two of four replicas keep the revision before.
    plane.wait_for_partition("m1", "db:2", 2).await;
    plane.wait_for_partition("m2", "db:1", 1).await;
    plane.report_updated("m1", 2);
    // All may be updated, as far as the override lets them.
    plane.wait_for_partition("m1", "db:2", 1).await;
    assert_eq!(batch(), Some((json!("Updating"), Some(100))));
    plane.report_updated("m1", 4);
    plane.wait_for_partition("m2", "db:2", 1).await;
    plane.tasks.stop().await;
}
