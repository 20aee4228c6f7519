//! A stage that awaits a Job in its members before it ends.

use harness::api_server_client::is_rolled_out;
use serde_json::{Value, json};

use crate::flow::fleet::FleetFixture;
use crate::flow::objects::{
    DEPLOYMENTS, JOBS, POLICIES, ROLLOUTS, deployment, pod_template, policy, resource_selector,
};

const NAMESPACE: &str = "rollout-jobs";
const ROLLOUT: &str = "web-deployment";

fn rollout_policy(web: &Value) -> Value {
    let gates = json!({"job": {"cronJob": "smoke"}});
    let canary =
        json!({"name": "canary", "clusterAffinity": {"clusterNames": ["member1"]}, "gates": gates});
    json!({"apiVersion": "rollout.flotilla.io/v1alpha1", "kind": "RolloutPolicy",
        "metadata": {"name": "web", "namespace": NAMESPACE},
        "spec": {"resourceSelectors": [resource_selector(web)], "stages": [canary]}})
}

fn cron_job() -> Value {
    let mut pods = pod_template("smoke");
    pods["spec"]["restartPolicy"] = "Never".into();
    let template = json!({"metadata": {"labels": {"test": "smoke"}},
        "spec": {"template": pods, "ttlSecondsAfterFinished": 1}});
    json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "smoke", "namespace": NAMESPACE},
        "spec": {"schedule": "@yearly", "suspend": true, "jobTemplate": template}})
}

// proves: ROL-job, ROL-job-made, ROL-job-failed, ROL-job-pruned, ROL-request-number
#[tokio::test]
async fn a_job_runs_in_the_members_of_its_stage() {
    let fleet = FleetFixture::shared(NAMESPACE).await;
    let control = &fleet.control;
    let wait_for_state = |state: &'static str| {
        control.wait_until(&ROLLOUTS, NAMESPACE, ROLLOUT, state, move |rollout| {
            rollout["status"]["state"] == state
        })
    };
    let web = deployment(NAMESPACE, "web", 1);
    control.create(rollout_policy(&web)).await;
    control.create(web.clone()).await;
    let members = ["member1", "member2"];
    control
        .create(policy(NAMESPACE, "web", &web, &members))
        .await;
    control
        .wait_until(&ROLLOUTS, NAMESPACE, ROLLOUT, "in both", |rollout| {
            is_rolled_out(rollout, members.len())
        })
        .await;
    let template = json!({"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}});
    control
        .merge_patch(&DEPLOYMENTS, NAMESPACE, "web", template)
        .await;
    let rollout = wait_for_state("JobFailed").await;
    let status = &rollout["status"];
    let message = &status["stages"][0]["job"]["message"];
    assert_eq!(*message, "cronjobs.batch \"smoke\" not found", "{rollout}");
    assert_eq!(status["progress"], "1/2", "{rollout}");
    control.create(cron_job()).await;
    let retry = |number: i64| {
        let request = json!({"revision": status["targetRevision"], "number": number});
        control.merge_patch(
            &ROLLOUTS,
            NAMESPACE,
            ROLLOUT,
            json!({"spec": {"retry": request}}),
        )
    };
    retry(1).await;
    let rollout = wait_for_state("Completed").await;
    let job = &rollout["status"]["stages"][0]["job"];
    assert_eq!(job["state"], "Succeeded", "{rollout}");
    assert_eq!(job["clusters"], json!(["member1"]), "{rollout}");
    let name = job["name"].as_str().unwrap();
    let member = fleet.member("member1");
    let job = member.get(&JOBS, NAMESPACE, name).await.unwrap();
    assert_eq!(job["metadata"]["labels"]["test"], "smoke", "{job}");
    assert_eq!(job["spec"].get("ttlSecondsAfterFinished"), None, "{job}");
    assert_eq!(job["status"]["succeeded"], 1, "{job}");
    // It is nowhere else, and not in the namespace of the template, where others may write.
    let copies = [
        fleet.member("member2").get(&JOBS, NAMESPACE, name).await,
        control.get(&JOBS, NAMESPACE, name).await,
        control.get(&POLICIES, NAMESPACE, name).await,
    ];
    assert_eq!(copies, [None, None, None]);
    // It goes with its Rollout.
    control.delete(&DEPLOYMENTS, NAMESPACE, "web").await;
    member.wait_until_deleted(&JOBS, NAMESPACE, name).await;
}
