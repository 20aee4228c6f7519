//! The status of a template whose changes are staged.

use karmada_api::resources::WORKS;
use karmada_api::rollout::{REVISION, ROLLOUTS};
use serde_json::json;

use super::{DEPLOYMENTS, StatusFixture, member_object, work};

// proves: ROL-status
#[tokio::test]
async fn a_rollout_takes_replicas_of_older_revisions_out_of_the_updated_ones() {
    let plane = StatusFixture::new();
    for (member, revision) in ["web-2", "web-1"].into_iter().enumerate() {
        let mut work = work(&format!("m{member}"), "True");
        work["metadata"]["annotations"] = json!({REVISION: revision});
        plane.control.seed(&WORKS, work);
        let mut copy = member_object(member, 1);
        copy["metadata"]["annotations"][REVISION] = revision.into();
        plane.members[member].seed(&DEPLOYMENTS, copy);
    }
    plane.start();
    plane.wait_until(|c| StatusFixture::ready(c) == 2).await;
    let template = plane.control.get_object(&DEPLOYMENTS, "n", "web").unwrap();
    assert_eq!(template["status"]["updatedReplicas"], 2);
    let owner = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web",
        "uid": template["metadata"]["uid"], "controller": true});
    let rollout = json!({"apiVersion": "rollout.flotilla.io/v1alpha1", "kind": "Rollout",
        "metadata": {"name": "web-deployment", "namespace": "n", "ownerReferences": [owner]},
        "status": {"targetRevision": "web-2", "stableRevision": "web-1"}});
    plane.control.seed(&ROLLOUTS, rollout);
    plane
        .wait_until(|c| {
            let template = c.get_object(&DEPLOYMENTS, "n", "web").unwrap();
            template["status"]["updatedReplicas"] == 1
        })
        .await;
    assert_eq!(StatusFixture::ready(&plane.control), 2);
    plane.tasks.stop().await;
}
