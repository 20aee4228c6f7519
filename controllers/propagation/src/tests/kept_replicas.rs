//! Templates that move between members under `minAvailable`: which Works stay until when.

use karmada_api::resources::{BINDINGS, WORKS};
use karmada_api::rollout::{REVISION, ROLLOUT_POLICIES, ROLLOUTS};
use serde_json::{Value, json};

use super::rollouts::rollout_policy;
use super::{PropagationFixture, wait_until};

const BINDING: &str = "web-deployment";

impl PropagationFixture {
    async fn started_with_min_available() -> Self {
        let plane = Self::new().with_web_deployment();
        let mut policy = rollout_policy();
        policy["spec"]["minAvailable"] = json!("100%");
        plane.control_plane.seed(&ROLLOUT_POLICIES, policy);
        let plane = plane.started().await;
        for cluster in ["m1", "m2"] {
            wait_until("a Work", || plane.work_replicas(cluster).is_some()).await;
            plane.report_available(cluster, 4);
        }
        // A placement keeps replicas whose reports the rollout has seen.
        wait_until("completed", || plane.state() == "Completed").await;
        plane
            .wait_for_kept(json!([["m1", 4, false], ["m2", 4, false]]))
            .await;
        plane
    }

    fn work_replicas(&self, cluster: &str) -> Option<i64> {
        let work = self.work(cluster, "web")?;
        work.pointer("/spec/workload/manifests/0/spec/replicas")?
            .as_i64()
    }

    /// Lets a member report so many available replicas with the revision of its Work.
    fn report_available(&self, cluster: &str, available: i64) {
        let mut work = self.work(cluster, "web").unwrap();
        let identifier = json!({"ordinal": 0, "group": "apps", "version": "v1", "kind": "Deployment", "name": "web"});
        let revision = work["metadata"]["annotations"][REVISION].clone();
        let status = json!({"generation": 1, "observedGeneration": 1, "replicas": available,
            "availableReplicas": available, "updatedReplicas": available});
        work["status"]["manifestStatuses"] = json!([{"identifier": identifier, "health": "Healthy",
            "revision": revision, "status": status}]);
        self.control_plane.seed(&WORKS, work);
    }

    fn place(&self, clusters: &Value, more: &Value) {
        self.edit(&BINDINGS, BINDING, |binding| {
            binding["spec"]["clusters"] = clusters.clone();
            for (field, value) in more.as_object().unwrap() {
                binding["spec"][field] = value.clone();
            }
        });
    }

    /// Waits until the Rollout has seen the binding, and says for each cluster how many replicas it
    /// keeps, and whether these are more than it should have.
    async fn wait_for_kept(&self, expected: Value) {
        let kept = || {
            let rollout = self.control_plane.get_object(&ROLLOUTS, "n", BINDING)?;
            let status = rollout["status"].clone();
            let generation = self.binding(BINDING)?["metadata"]["generation"].clone();
            (status["observedBindingGeneration"] == generation).then_some(())?;
            let all = status["replicas"].as_array()?.iter();
            let kept = all.map(|c| json!([c["cluster"], c["replicas"], c["since"].is_string()]));
            Some(Value::from_iter(kept))
        };
        wait_until(&format!("{expected} is kept"), || {
            kept().as_ref() == Some(&expected)
        })
        .await;
    }
}

// proves: ROL-kept-replicas-works
#[tokio::test]
async fn replicas_stay_until_those_elsewhere_are_available() {
    let plane = PropagationFixture::started_with_min_available().await;
    // Two replicas move from m1 to m2.
    plane.place(
        &json!([{"name": "m1", "replicas": 2}, {"name": "m2", "replicas": 6}]),
        &json!({}),
    );
    plane
        .wait_for_kept(json!([["m1", 4, true], ["m2", 6, false]]))
        .await;
    wait_until("m2 has more", || plane.work_replicas("m2") == Some(6)).await;
    assert_eq!(plane.work_replicas("m1"), Some(4));
    plane.report_available("m2", 6);
    wait_until("m1 has less", || plane.work_replicas("m1") == Some(2)).await;
    plane.report_available("m1", 2);
    // All of m1 move.
    plane.place(&json!([{"name": "m2", "replicas": 8}]), &json!({}));
    plane
        .wait_for_kept(json!([["m1", 2, true], ["m2", 8, false]]))
        .await;
    wait_until("m2 has all", || plane.work_replicas("m2") == Some(8)).await;
    assert_eq!(plane.work_replicas("m1"), Some(2));
    plane.report_available("m2", 8);
    wait_until("m1 has none", || plane.work_replicas("m1").is_none()).await;
    plane.tasks.stop().await;
}

// proves: ROL-kept-replicas-unplaced
#[tokio::test]
async fn replicas_stay_while_no_cluster_fits_unless_none_is_wanted() {
    let plane = PropagationFixture::started_with_min_available().await;
    plane.place(&json!([]), &json!({}));
    plane
        .wait_for_kept(json!([["m1", 4, true], ["m2", 4, true]]))
        .await;
    assert_eq!(plane.work_replicas("m1"), Some(4));
    let nowhere = json!({"labelSelector": {"matchExpressions":
        [{"key": "flotilla.io/nowhere", "operator": "Exists"}]}});
    let nowhere = json!({"placement": {"clusterAffinity": nowhere}});
    plane.place(&json!([]), &nowhere);
    wait_until("m1 has none", || plane.work_replicas("m1").is_none()).await;
    plane.tasks.stop().await;
}

// proves: ROL-kept-replicas-purged
#[tokio::test]
async fn an_eviction_that_purges_directly_keeps_nothing() {
    let plane = PropagationFixture::started_with_min_available().await;
    let task =
        json!({"fromCluster": "m1", "purgeMode": "Directly", "reason": "r", "producer": "p"});
    plane.place(
        &json!([{"name": "m2", "replicas": 8}]),
        &json!({"gracefulEvictionTasks": [task]}),
    );
    wait_until("m1 has none", || plane.work_replicas("m1").is_none()).await;
    wait_until("m2 has all", || plane.work_replicas("m2") == Some(8)).await;
    plane.tasks.stop().await;
}
