//! Staged templates: which revision each Work is made from.

use std::time::Duration;

use client::{Api, DeleteOptions, ResourcePath};
use controller_context::{WorkHealth, set_derived_conditions};
use controller_testing::{deployment, policy};
use karmada_api::binding::Condition;
use karmada_api::resources::{CLUSTER_POLICIES, OVERRIDES, WORKS};
use karmada_api::rollout::{
    CLUSTER_ROLLOUT_POLICIES, REVISION, ROLLOUT_POLICIES, ROLLOUTS, UNSTAGED,
};
use karmada_api::well_known_keys::CLUSTER_POLICY_ID;
use machinery::Gvr;
use machinery::time::{Clock, SystemClock};
use serde_json::{Value, json};

use super::{DEPLOYMENTS, PropagationFixture, wait_until};

pub(super) static REVISIONS: Gvr = Gvr::from_static("apps", "v1", "controllerrevisions");
pub(super) const ROLLOUT: &str = "web-deployment";

pub(super) fn rollout_policy() -> Value {
    let first = json!({"name": "first", "clusterAffinity": {"clusterNames": ["m1"]}});
    json!({"apiVersion": "rollout.flotilla.io/v1alpha1", "kind": "RolloutPolicy",
        "metadata": {"name": "p", "namespace": "n", "generation": 1},
        "spec": {"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}],
            "stages": [first], "progressDeadline": "10m", "onFailure": "Pause", "revisionHistoryLimit": 1}})
}

impl PropagationFixture {
    fn image_in(&self, cluster: &str) -> Option<String> {
        let work = self.work(cluster, "web")?;
        let image = "/spec/workload/manifests/0/spec/template/spec/containers/0/image";
        Some(work.pointer(image)?.as_str()?.to_owned())
    }

    fn revision_in(&self, cluster: &str) -> Option<String> {
        let work = self.work(cluster, "web")?;
        Some(
            work["metadata"]["annotations"][REVISION]
                .as_str()?
                .to_owned(),
        )
    }

    pub(super) fn rollout(&self) -> Value {
        let rollout = self.control_plane.get_object(&ROLLOUTS, "n", ROLLOUT);
        rollout.unwrap_or_default()
    }

    pub(super) fn state(&self) -> String {
        let state = &self.rollout()["status"]["state"];
        state.as_str().unwrap_or_default().to_owned()
    }

    /// Lets a member report that the object is healthy with the revision of its Work, as the
    /// controller of Work status writes it: with the conditions that follow.
    pub(super) fn report_healthy(&self, cluster: &str) {
        let mut work = self.work(cluster, "web").unwrap();
        let revision = self.revision_in(cluster).unwrap();
        let identifier =
            json!({"ordinal": 0, "version": "v1", "kind": "Deployment", "name": "web"});
        work["status"]["manifestStatuses"] =
            json!([{"identifier": identifier, "health": "Healthy", "revision": revision}]);
        let conditions = work["status"]["conditions"].take();
        let mut conditions: Vec<Condition> = serde_json::from_value(conditions).unwrap_or_default();
        let health = WorkHealth {
            manifests: 1,
            reported: vec!["Healthy"],
        };
        set_derived_conditions(&mut conditions, &health, SystemClock.now());
        work["status"]["conditions"] = json!(conditions);
        self.control_plane.seed(&WORKS, work);
    }

    pub(super) async fn wait_for_images(&self, m1: &str, m2: &str) {
        let what = format!("m1 has {m1}, m2 has {m2}");
        let images = || {
            self.image_in("m1").as_deref() == Some(m1) && self.image_in("m2").as_deref() == Some(m2)
        };
        wait_until(&what, images).await;
    }

    pub(super) async fn set_image(&self, image: &str) {
        let path = "/spec/template/spec/containers/0/image";
        self.edit(&DEPLOYMENTS, "web", |web| {
            *web.pointer_mut(path).unwrap() = image.into();
        });
    }

    pub(super) async fn delete_rollout(&self) {
        let at = ResourcePath::object(&ROLLOUTS, "n", ROLLOUT);
        let options = DeleteOptions::default();
        self.control_plane.delete(at, &options).await.unwrap();
    }

    /// Lets both members report until the rollout has ended.
    pub(super) async fn complete(&self) {
        for cluster in ["m1", "m2"] {
            let target = || {
                let rollout = self.control_plane.get_object(&ROLLOUTS, "n", ROLLOUT);
                let target = rollout.map(|rollout| rollout["status"]["targetRevision"].clone());
                target.is_some_and(|target| {
                    Some(target) == self.revision_in(cluster).map(Value::from)
                })
            };
            wait_until("the Work has the target", target).await;
            self.report_healthy(cluster);
        }
        wait_until("completed", || self.state() == "Completed").await;
    }
}

// proves: ROL-works, ROL-scale, ROL-overrides, ROL-owned, ROL-history
#[tokio::test]
async fn works_are_made_from_the_revision_of_their_stage() {
    let plane = PropagationFixture::new().with_web_deployment();
    plane
        .control_plane
        .seed(&ROLLOUT_POLICIES, rollout_policy());
    let plane = plane.started().await;
    plane.wait_for_images("nginx:1", "nginx:1").await;
    plane.complete().await;
    plane.set_image("nginx:2").await;
    plane.wait_for_images("nginx:2", "nginx:1").await;
    // Replicas act at once, with the revision that the cluster has.
    plane.edit(&DEPLOYMENTS, "web", |web| {
        web["spec"]["replicas"] = 6.into()
    });
    wait_until("both are scaled", || {
        ["m1", "m2"].iter().all(|cluster| {
            let work = plane.work(cluster, "web").unwrap();
            work["spec"]["workload"]["manifests"][0]["spec"]["replicas"] == 6
        })
    })
    .await;
    plane.wait_for_images("nginx:2", "nginx:1").await;
    plane.complete().await;
    plane.wait_for_images("nginx:2", "nginx:2").await;
    // So do override policies go through the stages.
    let override_policy = json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy",
        "metadata": {"name": "tag", "namespace": "n", "generation": 1},
        "spec": {"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}],
            "overrideRules": [{"overriders": {"imageOverrider": [{"component": "Tag", "operator": "replace", "value": "3"}]}}]}});
    plane.control_plane.seed(&OVERRIDES, override_policy);
    plane.wait_for_images("nginx:3", "nginx:2").await;
    plane.complete().await;
    plane.wait_for_images("nginx:3", "nginx:3").await;
    let rollout = plane.control_plane.get_object(&ROLLOUTS, "n", ROLLOUT);
    let web = plane.control_plane.get_object(&DEPLOYMENTS, "n", "web");
    let (rollout, web) = (rollout.unwrap(), web.unwrap());
    let owners = [
        &rollout["metadata"]["ownerReferences"][0]["uid"],
        &web["metadata"]["uid"],
    ];
    assert_eq!(owners[0], owners[1]);
    // One revision beside the current one is kept.
    wait_until("old revisions are deleted", || {
        plane.control_plane.list_objects(&REVISIONS).len() == 2
    })
    .await;
    plane.tasks.stop().await;
}

// proves: ROL-revision-last, ROL-revision-number
#[tokio::test]
async fn a_revision_with_the_greatest_number_holds_no_change() {
    let plane = PropagationFixture::new().with_web_deployment();
    plane
        .control_plane
        .seed(&ROLLOUT_POLICIES, rollout_policy());
    let plane = plane.started().await;
    plane.complete().await;
    let mut last = plane.control_plane.list_objects(&REVISIONS).remove(0);
    last["metadata"]["name"] = "web-deployment-last".into();
    last["metadata"]["uid"] = "last".into();
    last["revision"] = i64::MAX.into();
    plane.control_plane.seed(&REVISIONS, last);
    plane.set_image("nginx:2").await;
    plane.wait_for_images("nginx:2", "nginx:1").await;
    let target = plane.rollout()["status"]["targetRevision"].clone();
    let target = target.as_str().unwrap();
    let revision = plane.control_plane.get_object(&REVISIONS, "n", target);
    assert_eq!(revision.unwrap()["revision"], 2);
    plane.tasks.stop().await;
}

// proves: ROL-revision-unusable
#[tokio::test]
async fn a_rollout_says_which_revision_is_missing_or_was_replaced() {
    let plane = PropagationFixture::with_events().with_web_deployment();
    plane
        .control_plane
        .seed(&ROLLOUT_POLICIES, rollout_policy());
    let plane = plane.started().await;
    plane.complete().await;
    plane.set_image("nginx:2").await;
    plane.wait_for_images("nginx:2", "nginx:1").await;
    let stable = plane.rollout()["status"]["stableRevision"].clone();
    let stable = stable.as_str().unwrap();
    let revision = plane.control_plane.get_object(&REVISIONS, "n", stable);
    let revision = revision.unwrap();
    let message = || {
        let message = plane.rollout()["status"]["message"].clone();
        message.as_str().unwrap_or_default().to_owned()
    };
    plane.control_plane.remove(&REVISIONS, "n", stable);
    let expected = format!("controllerrevision {stable} not found; the Works of m2 stay");
    wait_until("missing", || message().starts_with(&expected)).await;
    let events = || plane.event_messages("RevisionUnusable");
    wait_until("an event", || {
        events().iter().any(|event| event.starts_with(&expected))
    })
    .await;
    let mut replaced = revision.clone();
    replaced["data"]["template"]["spec"]["paused"] = true.into();
    plane.control_plane.seed(&REVISIONS, replaced);
    let expected = "its data is not the one that its name stands for; the Works of m2 stay";
    wait_until("replaced", || message().contains(expected)).await;
    plane.control_plane.remove(&REVISIONS, "n", stable);
    plane.control_plane.seed(&REVISIONS, revision);
    wait_until("as it was", || message().is_empty()).await;
    plane.tasks.stop().await;
}

// proves: ROL-unselected, ROL-deleted-policy, ROL-unstaged-running
#[tokio::test]
async fn a_template_without_a_policy_is_not_staged() {
    let plane = PropagationFixture::with_events()
        .with_web_deployment()
        .started()
        .await;
    plane.wait_for_images("nginx:1", "nginx:1").await;
    plane.set_image("nginx:2").await;
    plane.wait_for_images("nginx:2", "nginx:2").await;
    assert!(plane.control_plane.list_objects(&ROLLOUTS).is_empty());
    assert!(plane.control_plane.list_objects(&REVISIONS).is_empty());
    // With a policy, the present content is the first revision.
    plane
        .control_plane
        .seed(&ROLLOUT_POLICIES, rollout_policy());
    plane.complete().await;
    plane.set_image("nginx:3").await;
    plane.wait_for_images("nginx:3", "nginx:2").await;
    // Without it again, all clusters get the template, and the template and its history say so.
    plane.control_plane.remove(&ROLLOUT_POLICIES, "n", "p");
    plane.wait_for_images("nginx:3", "nginx:3").await;
    wait_until("the marks are removed", || {
        plane.revision_in("m1").is_none() && plane.revision_in("m2").is_none()
    })
    .await;
    wait_until("nothing of the staging remains", || {
        [&ROLLOUTS, &REVISIONS]
            .iter()
            .all(|resource| plane.control_plane.list_objects(resource).is_empty())
    })
    .await;
    let text = "No RolloutPolicy selects the template any more: 1 cluster gets its present content at once, without their stages: m2";
    wait_until("an event", || {
        plane.event_messages("StagesSkipped") == [text]
    })
    .await;
    wait_until("an entry in the history", || {
        let entries = plane.history_entries();
        entries
            .iter()
            .any(|entry| entry["reason"] == UNSTAGED && entry["message"] == text)
    })
    .await;
    plane.tasks.stop().await;
}

// proves: ROL-unselected
#[tokio::test]
async fn a_template_that_loses_the_label_by_which_all_its_policies_select_it_is_not_staged() {
    let selector = json!([{"apiVersion": "apps/v1", "kind": "Deployment",
        "labelSelector": {"matchLabels": {"staged": "yes"}}}]);
    let plane = PropagationFixture::new();
    let mut template = deployment("web");
    template["metadata"]["labels"] = json!({"staged": "yes"});
    plane.control_plane.seed(&DEPLOYMENTS, template);
    let mut propagation = policy(json!({"resourceSelectors": selector}));
    propagation["kind"] = "ClusterPropagationPolicy".into();
    propagation["metadata"] =
        json!({"name": "p", "generation": 1, "labels": {CLUSTER_POLICY_ID: "id"}});
    plane.control_plane.seed(&CLUSTER_POLICIES, propagation);
    let mut staging = rollout_policy();
    staging["kind"] = "ClusterRolloutPolicy".into();
    staging["metadata"] = json!({"name": "p", "generation": 1});
    staging["spec"]["resourceSelectors"] = selector;
    plane.control_plane.seed(&CLUSTER_ROLLOUT_POLICIES, staging);
    let plane = plane.started().await;
    plane.complete().await;
    plane.set_image("nginx:2").await;
    plane.wait_for_images("nginx:2", "nginx:1").await;
    // Nothing else is on its way that would have the Rollout looked at.
    tokio::time::sleep(Duration::from_millis(400)).await;
    plane.edit(&DEPLOYMENTS, "web", |web| {
        web["metadata"]["labels"]
            .as_object_mut()
            .unwrap()
            .remove("staged");
    });
    wait_until("the Rollout is gone", || {
        plane.control_plane.list_objects(&ROLLOUTS).is_empty()
    })
    .await;
    plane.tasks.stop().await;
}

/// A version of a policy with one stage, in which both members soak.
fn soaking_policy(generation: i64, healthy_for: &str) -> Value {
    let mut policy = rollout_policy();
    policy["metadata"]["generation"] = generation.into();
    policy["spec"]["stages"] = json!([{"name": "all", "gates": {"healthyFor": healthy_for}}]);
    policy
}

// proves: ROL-deleted-held
#[tokio::test]
async fn a_deleted_rollout_stays_until_it_has_ended() {
    let plane = PropagationFixture::new().with_web_deployment();
    plane
        .control_plane
        .seed(&ROLLOUT_POLICIES, soaking_policy(1, "0s"));
    let plane = plane.started().await;
    plane.complete().await;
    plane
        .control_plane
        .seed(&ROLLOUT_POLICIES, soaking_policy(2, "10m"));
    plane.set_image("nginx:2").await;
    plane.wait_for_images("nginx:2", "nginx:2").await;
    let rollout = || plane.control_plane.get_object(&ROLLOUTS, "n", ROLLOUT);
    let first = rollout().unwrap()["metadata"]["uid"].clone();
    let has_policy = || {
        let policy = rollout().map(|rollout| rollout["status"]["policy"].clone());
        policy.is_some_and(|policy| policy.as_str().is_some_and(|id| id.ends_with("/2")))
    };
    wait_until("the policy is observed", has_policy).await;
    plane.delete_rollout().await;
    // The last stage still has its gate, though all Works have the target.
    for cluster in ["m1", "m2"] {
        plane.report_healthy(cluster);
    }
    let phases = || {
        let clusters = rollout().map(|r| r["status"]["stages"][0]["clusters"].clone());
        let clusters = clusters.and_then(|clusters| clusters.as_array().cloned());
        let clusters = clusters.unwrap_or_default().into_iter();
        clusters.map(|c| c["phase"].clone()).collect::<Vec<_>>()
    };
    wait_until("both soak", || phases() == ["Soaking", "Soaking"]).await;
    let object = rollout().unwrap();
    assert_eq!(object["metadata"]["uid"], first);
    let status = &object["status"];
    assert_ne!(status["stableRevision"], status["targetRevision"]);
    // Once it has ended, another one takes its place.
    plane
        .control_plane
        .seed(&ROLLOUT_POLICIES, soaking_policy(3, "0s"));
    let is_new = || rollout().is_some_and(|rollout| rollout["metadata"]["uid"] != first);
    wait_until("it is made again", is_new).await;
    plane.complete().await;
    // A policy that is deleted ends it, too.
    plane
        .control_plane
        .seed(&ROLLOUT_POLICIES, soaking_policy(4, "10m"));
    plane.set_image("nginx:3").await;
    plane.wait_for_images("nginx:3", "nginx:3").await;
    plane.delete_rollout().await;
    plane.control_plane.remove(&ROLLOUT_POLICIES, "n", "p");
    wait_until("it is deleted", || rollout().is_none()).await;
    plane.tasks.stop().await;
}

// proves: ROL-restart-writes-nothing
#[tokio::test(start_paused = true)]
async fn a_restart_writes_nothing() {
    let plane = PropagationFixture::new().with_web_deployment();
    plane
        .control_plane
        .seed(&ROLLOUT_POLICIES, rollout_policy());
    let mut plane = plane.started().await;
    plane.complete().await;
    plane.set_image("nginx:2").await;
    plane.wait_for_images("nginx:2", "nginx:1").await;
    wait_until("the members apply", || {
        let image = |at: usize| {
            let web = plane.deployment_in_member(at, "web")?;
            Some(web["spec"]["template"]["spec"]["containers"][0]["image"].clone())
        };
        image(0) == Some("nginx:2".into()) && image(1) == Some("nginx:1".into())
    })
    .await;
    plane.wait_until_applied("web").await;
    plane.tasks.stop().await;
    plane.control_plane.clear_writes();
    plane.start().await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let writes = plane.control_plane.writes();
    let is_of_rollout = |resource: &Gvr| [&ROLLOUTS, &REVISIONS, &WORKS].contains(&resource);
    let mut of_rollout = writes.iter().filter(|write| is_of_rollout(&write.resource));
    assert!(of_rollout.next().is_none(), "{writes:?}");
    plane.tasks.stop().await;
}
