//! Staged templates that are deleted and created anew, and bindings that are.

use client::{Api, DeleteOptions, DeletionPropagation, Patch, ResourcePath, WriteOptions};
use karmada_api::resources::{BINDINGS, POLICIES, WORKS};
use karmada_api::rollout::{ROLLOUT_POLICIES, ROLLOUTS};
use karmada_api::well_known_keys::{BINDING_ID, POLICY_ID};
use serde_json::{Value, json};

use super::rollouts::{REVISIONS, ROLLOUT, rollout_policy};
use super::{DEPLOYMENTS, PropagationFixture, deployment, wait_until};

impl PropagationFixture {
    /// Starts with a template that has gone through all stages.
    async fn completed() -> Self {
        let plane = Self::new().with_web_deployment();
        plane
            .control_plane
            .seed(&ROLLOUT_POLICIES, rollout_policy());
        let plane = plane.started().await;
        plane.wait_for_images("nginx:1", "nginx:1").await;
        plane.complete().await;
        plane
    }

    /// Deletes the template, as with `--cascade=orphan`: the garbage collector takes it from what it
    /// owns.
    async fn orphan(&self) {
        let at = ResourcePath::object(&DEPLOYMENTS, "n", "web");
        let options = DeleteOptions {
            propagation: Some(DeletionPropagation::Orphan),
            ..DeleteOptions::default()
        };
        self.control_plane.delete(at, &options).await.unwrap();
        for resource in [&BINDINGS, &REVISIONS, &ROLLOUTS] {
            for object in self.control_plane.list_objects(resource) {
                let name = object["metadata"]["name"].as_str().unwrap();
                let at = ResourcePath::object(resource, "n", name);
                let patch = Patch::Merge(json!({"metadata": {"ownerReferences": null}}));
                let options = WriteOptions::default();
                let patched = self.control_plane.patch(at, patch, &options).await;
                patched.unwrap();
            }
        }
        self.control_plane.remove(&DEPLOYMENTS, "n", "web");
    }

    fn create_web(&self, image: &str) -> Value {
        let mut web = deployment("web");
        web["spec"]["template"]["spec"]["containers"][0]["image"] = image.into();
        let created = self.control_plane.seed(&DEPLOYMENTS, web);
        created.value().unwrap()
    }

    async fn delete_binding(&self) {
        let at = ResourcePath::object(&BINDINGS, "n", ROLLOUT);
        let options = DeleteOptions::default();
        self.control_plane.delete(at, &options).await.unwrap();
    }

    fn uid_of_binding(&self) -> Value {
        let binding = self.binding(ROLLOUT).unwrap_or_default();
        binding["metadata"]["uid"].clone()
    }

    fn is_staged(&self) -> bool {
        let status = self.rollout()["status"].clone();
        status["targetRevision"] != status["stableRevision"]
    }
}

// proves: ROL-recreated
#[tokio::test]
async fn a_template_that_takes_over_what_an_earlier_one_left_is_a_change() {
    let plane = PropagationFixture::completed().await;
    let first = plane.rollout()["metadata"]["uid"].clone();
    plane.orphan().await;
    let web = plane.create_web("nginx:2");
    plane.wait_for_images("nginx:2", "nginx:1").await;
    assert!(plane.is_staged());
    assert_eq!(plane.rollout()["metadata"]["uid"], first);
    let owner = |object: &Value| object["metadata"]["ownerReferences"][0]["uid"].clone();
    assert_eq!(owner(&plane.rollout()), web["metadata"]["uid"]);
    let revisions = plane.control_plane.list_objects(&REVISIONS);
    let owners: Vec<Value> = revisions.iter().map(owner).collect();
    assert_eq!(owners, vec![web["metadata"]["uid"].clone(); 2]);
    // The status holds for the next template, too: this is a return.
    plane.orphan().await;
    plane.create_web("nginx:1");
    plane.wait_for_images("nginx:1", "nginx:1").await;
    plane.complete().await;
    plane.set_image("nginx:3").await;
    plane.wait_for_images("nginx:3", "nginx:1").await;
    plane.complete().await;
    plane.wait_for_images("nginx:3", "nginx:3").await;
    plane.tasks.stop().await;
}

// proves: ROL-recreated, ROL-deleted-held
#[tokio::test]
async fn a_rollout_that_was_deleted_waits_for_the_next_template() {
    let mut plane = PropagationFixture::completed().await;
    plane.set_image("nginx:2").await;
    plane.wait_for_images("nginx:2", "nginx:1").await;
    let first = plane.rollout()["metadata"]["uid"].clone();
    plane.delete_rollout().await;
    plane.orphan().await;
    // All are reconciled once more while there is no template.
    plane.tasks.stop().await;
    plane.start().await;
    plane.create_web("nginx:3");
    plane.wait_for_images("nginx:3", "nginx:1").await;
    assert_eq!(plane.rollout()["metadata"]["uid"], first);
    assert!(plane.is_staged());
    // Two changes and the first revision: a deletion alone makes none.
    assert_eq!(plane.control_plane.list_objects(&REVISIONS).len(), 3);
    plane.tasks.stop().await;
}

// proves: ROL-recreated-nowhere
#[tokio::test]
async fn a_template_whose_copies_are_gone_is_placed_anew() {
    let plane = PropagationFixture::completed().await;
    let first = plane.rollout()["metadata"]["uid"].clone();
    plane.orphan().await;
    plane.delete_binding().await;
    wait_until("nothing is left", || {
        [&BINDINGS, &WORKS, &ROLLOUTS, &REVISIONS]
            .iter()
            .all(|resource| plane.control_plane.list_objects(resource).is_empty())
    })
    .await;
    plane.create_web("nginx:2");
    plane.wait_for_images("nginx:2", "nginx:2").await;
    assert!(!plane.is_staged());
    assert_ne!(plane.rollout()["metadata"]["uid"], first);
    plane.tasks.stop().await;
}

// proves: ROL-deleted-binding
#[tokio::test]
async fn a_rollout_that_is_deleted_with_its_binding_keeps_its_gates() {
    for is_binding_first in [false, true] {
        let plane = PropagationFixture::completed().await;
        plane.set_image("nginx:2").await;
        plane.wait_for_images("nginx:2", "nginx:1").await;
        let rollout = plane.rollout()["metadata"]["uid"].clone();
        let binding = plane.uid_of_binding();
        if is_binding_first {
            plane.delete_binding().await;
            plane.delete_rollout().await;
        } else {
            plane.delete_rollout().await;
            plane.delete_binding().await;
        }
        let has_new_works = || {
            let current = plane.uid_of_binding();
            let is_of_current = |cluster: &str| {
                let work = plane.work(cluster, "web").unwrap_or_default();
                work["metadata"]["labels"][BINDING_ID] == current
            };
            ![&binding, &Value::Null].contains(&&current)
                && ["m1", "m2"].into_iter().all(is_of_current)
        };
        wait_until("binding and Works are made again", has_new_works).await;
        plane.wait_for_images("nginx:2", "nginx:1").await;
        assert_eq!(plane.rollout()["metadata"]["uid"], rollout);
        assert!(plane.is_staged());
        plane.complete().await;
        plane.wait_for_images("nginx:2", "nginx:2").await;
        let is_new = || plane.rollout()["metadata"]["uid"] != rollout;
        wait_until("the Rollout is made again", is_new).await;
        plane.tasks.stop().await;
    }
}

// proves: ROL-deleted-binding
#[tokio::test(start_paused = true)]
async fn a_rollout_without_a_binding_goes_with_its_template() {
    let plane = PropagationFixture::completed().await;
    plane.set_image("nginx:2").await;
    plane.wait_for_images("nginx:2", "nginx:1").await;
    // Without a policy, the template gets no other binding.
    plane.control_plane.remove(&POLICIES, "n", "p");
    wait_until("the claim is released", || {
        let web = plane.control_plane.get_object(&DEPLOYMENTS, "n", "web");
        web.unwrap()["metadata"]["labels"].get(POLICY_ID).is_none()
    })
    .await;
    plane.delete_rollout().await;
    plane.delete_binding().await;
    wait_until("no Work is left", || {
        plane.control_plane.list_objects(&WORKS).is_empty()
    })
    .await;
    assert_eq!(plane.uid_of_binding(), Value::Null);
    assert!(plane.is_staged());
    plane.control_plane.remove(&DEPLOYMENTS, "n", "web");
    wait_until("the Rollout is deleted", || plane.rollout().is_null()).await;
    plane.tasks.stop().await;
}
