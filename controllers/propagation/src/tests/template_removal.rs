//! Tests of deletions that wait for the copies of a template.

use client::{Api, ResourcePath};
use karmada_api::resources::{BINDINGS, CLUSTERS, POLICIES, WORKS};
use karmada_api::well_known_keys::{
    WAIT_FOR_REMOVAL, WAIT_FOR_REMOVAL_FINALIZER, WAITING_FOR_REMOVAL,
};
use serde_json::{Value, json};

use super::{DEPLOYMENTS, PropagationFixture, cluster, deployment, policy, wait_until};

fn policy_with(value: &str) -> Value {
    let mut waits = policy(json!({}));
    waits["metadata"]["annotations"] = json!({WAIT_FOR_REMOVAL: value});
    waits
}

impl PropagationFixture {
    fn template(&self) -> Option<Value> {
        self.control_plane.get_object(&DEPLOYMENTS, "n", "web")
    }

    fn is_held(&self) -> bool {
        let template = self.template().unwrap_or_default();
        let finalizers = template["metadata"]["finalizers"].as_array();
        finalizers.is_some_and(|all| all.iter().any(|f| f == WAIT_FOR_REMOVAL_FINALIZER))
    }

    fn waits_for(&self) -> String {
        let template = self.template().unwrap_or_default();
        let text = template["metadata"]["annotations"][WAITING_FOR_REMOVAL].as_str();
        text.unwrap_or_default().to_owned()
    }

    async fn delete_template(&self) {
        let at = ResourcePath::object(&DEPLOYMENTS, "n", "web");
        let deleted = self.control_plane.delete(at, &Default::default()).await;
        deleted.unwrap();
    }

    async fn started_with_held_template() -> Self {
        let plane = Self::new();
        plane.control_plane.seed(&POLICIES, policy_with("true"));
        plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
        let plane = plane.started().await;
        plane.wait_until_applied("web").await;
        assert!(plane.is_held());
        plane
    }

    fn set_member_finalizers(&self, finalizers: Value) {
        let mut copy = self.deployment_in_member(0, "web").unwrap();
        copy["metadata"]["finalizers"] = finalizers;
        self.members[0].seed(&DEPLOYMENTS, copy);
    }
}

/// The first member keeps the object because of a finalizer, the second is dead and is removed.
// proves: RMW-held, RMW-member-finalizers, RMW-dead-cluster
#[tokio::test]
async fn a_deleted_template_waits_for_its_copies() {
    let plane = PropagationFixture::started_with_held_template().await;
    plane.set_member_finalizers(json!(["example.org/keep"]));
    let mut dead = cluster("m2");
    dead["status"]["conditions"][0]["status"] = "False".into();
    plane.control_plane.seed(&CLUSTERS, dead);
    plane.delete_template().await;
    let m1 = "m1: WaitingForRemoval (Deployment n/web is being deleted)";
    let m2 = "m2: WaitingForRemoval (cluster m2 is not Ready)";
    let both = format!("{m1}; {m2}");
    wait_until("both are named", || plane.waits_for() == both).await;
    let has_binding = || !plane.control_plane.list_objects(&BINDINGS).is_empty();
    wait_until("the binding to go", || !has_binding()).await;
    plane.members[0].remove(&DEPLOYMENTS, "n", "web");
    wait_until("the dead one is named", || plane.waits_for() == m2).await;
    assert!(plane.is_held());
    plane.control_plane.remove(&CLUSTERS, "", "m2");
    wait_until("the template to go", || plane.template().is_none()).await;
    assert!(plane.control_plane.list_objects(&WORKS).is_empty());
    plane.tasks.stop().await;
}

// proves: RMW-released
#[tokio::test]
async fn a_policy_that_no_longer_asks_lets_its_templates_go() {
    let plane = PropagationFixture::started_with_held_template().await;
    for (value, is_held) in [("false", false), ("true", true)] {
        plane.control_plane.seed(&POLICIES, policy_with(value));
        wait_until("the finalizer", || plane.is_held() == is_held).await;
    }
    plane.set_member_finalizers(json!(["example.org/keep"]));
    plane.delete_template().await;
    wait_until("the wait", || plane.waits_for().starts_with("m1: ")).await;
    plane.control_plane.remove(&POLICIES, "n", "p");
    wait_until("the template to go", || plane.template().is_none()).await;
    plane.tasks.stop().await;
}

// proves: RMW-released
#[tokio::test]
async fn a_template_without_its_policy_has_no_finalizer() {
    let plane = PropagationFixture::started_with_held_template().await;
    plane.control_plane.remove(&POLICIES, "n", "p");
    wait_until("no finalizer", || !plane.is_held()).await;
    assert!(plane.deployment_in_member(0, "web").is_some());
    plane.tasks.stop().await;
}
