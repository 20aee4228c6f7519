//! Staged templates that are deleted and created anew.

use client::{Api, DeleteOptions, DeletionPropagation, Patch, ResourcePath, WriteOptions};
use karmada_api::resources::{BINDINGS, WORKS};
use karmada_api::rollout::{ROLLOUT_POLICIES, ROLLOUTS};
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
    // What the status says holds for the next one, too: this is a return.
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
