//! A change that goes through three members in three stages, is held by one that fails, and goes
//! on when it is repaired.

use client::{DeleteOptions, DeletionPropagation, ResourcePath};
use harness::api_server_client::is_rolled_out;
use serde_json::{Value, json};

use crate::flow::fleet::{FleetFixture, find_condition};
use crate::flow::objects::{
    DEPLOYMENTS, OVERRIDES, ROLLOUT_POLICIES, ROLLOUTS, deployment, override_policy, policy,
    resource_selector,
};

const NAMESPACE: &str = "staged-rollouts";
const ROLLOUT: &str = "web-deployment";
const IMAGE: &str = "/spec/template/spec/containers/0/image";
const MEMBERS: [&str; 3] = ["member1", "member2", "member3"];

fn rollout_policy(web: &Value) -> Value {
    let stages: Vec<Value> = MEMBERS[..2]
        .iter()
        .map(|member| {
            json!({"name": format!("only-{member}"), "clusterAffinity": {"clusterNames": [member]},
                "gates": {"healthyFor": "1s"}})
        })
        .collect();
    json!({"apiVersion": "rollout.flotilla.io/v1alpha1", "kind": "RolloutPolicy",
        "metadata": {"name": "web", "namespace": NAMESPACE},
        "spec": {"resourceSelectors": [resource_selector(web)], "stages": stages, "minAvailable": 2}})
}

/// The states of the three members: phase and whether they have the target.
fn phases(rollout: &Value) -> Vec<(String, String, bool)> {
    let status = &rollout["status"];
    let stages = status["stages"].as_array().into_iter().flatten();
    let clusters = stages.flat_map(|stage| stage["clusters"].as_array().into_iter().flatten());
    clusters
        .map(|cluster| {
            let text = |field: &str| cluster[field].as_str().unwrap_or_default().to_owned();
            let has_target = cluster["revision"] == status["targetRevision"];
            (text("name"), text("phase"), has_target)
        })
        .collect()
}

/// Waits until the members, in their order, are in such phases, and have the target or not.
async fn wait_for_phases(fleet: &FleetFixture, expected: [(&str, bool); 3]) -> Value {
    let expected = MEMBERS.iter().zip(expected);
    let expected: Vec<_> = expected
        .map(|(member, (phase, has_target))| ((*member).to_owned(), phase.to_owned(), has_target))
        .collect();
    let description = format!("{expected:?}");
    fleet
        .control
        .wait_until(&ROLLOUTS, NAMESPACE, ROLLOUT, &description, |rollout| {
            phases(rollout) == expected
        })
        .await
}

async fn set_progress_deadline(fleet: &FleetFixture, deadline: &str) {
    let patch = json!({"spec": {"progressDeadline": deadline}});
    fleet
        .control
        .merge_patch(&ROLLOUT_POLICIES, NAMESPACE, "web", patch)
        .await;
}

async fn images(fleet: &FleetFixture) -> Vec<Value> {
    let mut images = Vec::new();
    for member in MEMBERS {
        let web = fleet
            .member(member)
            .get(&DEPLOYMENTS, NAMESPACE, "web")
            .await;
        images.push(web.unwrap().pointer(IMAGE).unwrap().clone());
    }
    images
}

// proves: ROL-stages, ROL-deadline, ROL-overrides, ROL-reported, ROL-valid, ROL-valid-replicas, ROL-conditions
#[tokio::test]
async fn a_failing_member_holds_the_stages_after_it() {
    let fleet = FleetFixture::shared(NAMESPACE).await;
    let control = &fleet.control;
    let web = deployment(NAMESPACE, "web", 2);
    let mut invalid = rollout_policy(&web);
    invalid["spec"]["stages"][1]["maxConcurrency"] = json!(0);
    let rejection = control.try_create(invalid).await.unwrap_err().to_string();
    assert!(
        rejection.contains("spec.stages[1].maxConcurrency"),
        "{rejection}"
    );
    let mut unbounded = rollout_policy(&web);
    unbounded["spec"]["failureBudget"] = json!(i64::from(i32::MAX) + 1);
    let rejection = control.try_create(unbounded).await.unwrap_err().to_string();
    assert!(rejection.contains("spec.failureBudget"), "{rejection}");
    let mut divided = rollout_policy(&web);
    divided["spec"]["stages"][0]["batches"] = json!(["50%", "100%"]);
    let rejection = control.try_create(divided).await.unwrap_err().to_string();
    assert!(
        rejection.contains("spec.stages[0].batches: Forbidden"),
        "{rejection}"
    );
    control.create(rollout_policy(&web)).await;
    control.create(web.clone()).await;
    control
        .create(policy(NAMESPACE, "web", &web, &MEMBERS))
        .await;
    control
        .wait_until(&ROLLOUTS, NAMESPACE, ROLLOUT, "in all members", |rollout| {
            is_rolled_out(rollout, MEMBERS.len())
        })
        .await;
    let first = images(&fleet).await;
    // The first member gets the change, and the second one cannot pull its image.
    let broken = json!([{"targetCluster": {"clusterNames": ["member2"]},
        "overriders": {"plaintext": [{"path": IMAGE, "operator": "replace", "value": "fake/web"}]}}]);
    control
        .create(override_policy(NAMESPACE, "web", &web, &broken))
        .await;
    let begun = [("Done", true), ("Updating", true), ("Pending", false)];
    wait_for_phases(&fleet, begun).await;
    let has_change = |web: &Value| web.pointer(IMAGE) == Some(&"fake/web".into());
    let member = fleet.member("member2");
    member
        .wait_until(&DEPLOYMENTS, NAMESPACE, "web", "changed", has_change)
        .await;
    // The deadline is for the second member alone: how long the others take depends on the machine.
    set_progress_deadline(&fleet, "1s").await;
    let failed = [("Done", true), ("Failed", true), ("Blocked", false)];
    let rollout = wait_for_phases(&fleet, failed).await;
    assert_eq!(rollout["status"]["state"], "FailureBudgetExceeded");
    assert_eq!(find_condition(&rollout, "Paused")["status"], "True");
    assert_eq!(find_condition(&rollout, "Degraded")["status"], "True");
    let second = images(&fleet).await;
    assert_eq!((&second[0], &second[2]), (&first[0], &first[2]));
    // A newer revision repairs it, and overtakes.
    set_progress_deadline(&fleet, "10m").await;
    control.delete(&OVERRIDES, NAMESPACE, "web").await;
    let template = json!({"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}});
    control
        .merge_patch(&DEPLOYMENTS, NAMESPACE, "web", template)
        .await;
    let changed = control.get(&DEPLOYMENTS, NAMESPACE, "web").await.unwrap();
    let generation = &changed["metadata"]["generation"];
    let rollout = control
        .wait_until(&ROLLOUTS, NAMESPACE, ROLLOUT, "completed", |rollout| {
            rollout["status"]["state"] == "Completed"
                && rollout["status"]["observedTemplateGeneration"] == *generation
        })
        .await;
    for (name, phase, has_target) in phases(&rollout) {
        assert_eq!((&*phase, has_target), ("Done", true), "{name}: {rollout}");
    }
    for member in MEMBERS {
        let copy = fleet
            .member(member)
            .get(&DEPLOYMENTS, NAMESPACE, "web")
            .await
            .unwrap();
        assert_eq!(
            copy["spec"]["template"]["metadata"]["annotations"]["version"],
            "2"
        );
    }
    control.delete(&ROLLOUT_POLICIES, NAMESPACE, "web").await;
    control
        .wait_until_deleted(&ROLLOUTS, NAMESPACE, ROLLOUT)
        .await;
}

// proves: ROL-recreated
#[tokio::test]
async fn a_template_that_is_created_anew_over_what_it_left_goes_through_the_stages() {
    let namespace = "recreated-templates";
    let fleet = FleetFixture::shared(namespace).await;
    let control = &fleet.control;
    let mut web = deployment(namespace, "web", 1);
    let members = [MEMBERS[0], MEMBERS[1]];
    let stages = json!([
        {"name": "first", "clusterAffinity": {"clusterNames": [members[0]]}},
        {"name": "second", "gates": {"approval": true}},
    ]);
    control
        .create(
            json!({"apiVersion": "rollout.flotilla.io/v1alpha1", "kind": "RolloutPolicy",
            "metadata": {"name": "web", "namespace": namespace},
            "spec": {"resourceSelectors": [resource_selector(&web)], "stages": stages}}),
        )
        .await;
    let first = control.create(web.clone()).await;
    control
        .create(policy(namespace, "web", &web, &members))
        .await;
    control
        .wait_until(&ROLLOUTS, namespace, ROLLOUT, "in both", |rollout| {
            is_rolled_out(rollout, members.len())
        })
        .await;
    let options = DeleteOptions {
        propagation: Some(DeletionPropagation::Orphan),
        ..DeleteOptions::default()
    };
    let at = ResourcePath::object(&DEPLOYMENTS, namespace, "web");
    control.api.delete(at, &options).await.unwrap();
    control
        .wait_until_deleted(&DEPLOYMENTS, namespace, "web")
        .await;
    web["spec"]["template"]["metadata"]["annotations"] = json!({"version": "2"});
    let second = control.create(web).await;
    assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
    let awaits_approval = |rollout: &Value| {
        rollout["status"]["state"] == "AwaitingApproval"
            && rollout["metadata"]["ownerReferences"][0]["uid"] == second["metadata"]["uid"]
    };
    control
        .wait_until(&ROLLOUTS, namespace, ROLLOUT, "waiting", awaits_approval)
        .await;
    for (member, version) in members.iter().zip([json!("2"), Value::Null]) {
        let copy = fleet
            .member(member)
            .get(&DEPLOYMENTS, namespace, "web")
            .await;
        let copy = copy.unwrap();
        let annotations = &copy["spec"]["template"]["metadata"]["annotations"];
        assert_eq!(annotations["version"], version, "{member}: {copy}");
    }
}
