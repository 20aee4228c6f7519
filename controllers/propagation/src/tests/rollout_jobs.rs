//! Jobs that stages await.

use controller_testing::{policy, serve};
use karmada_api::resources::{POLICIES, WORKS};
use karmada_api::rollout::{JOB_OF, ROLLOUT_POLICIES, ROLLOUTS};
use karmada_api::well_known_keys::{POLICY_ID, POLICY_NAME};
use machinery::Gvr;
use serde_json::{Value, json};

use super::rollouts::{ROLLOUT, rollout_policy};
use super::{PropagationFixture, applied_status, wait_until};

static JOBS: Gvr = Gvr::from_static("batch", "v1", "jobs");
static CRON_JOBS: Gvr = Gvr::from_static("batch", "v1", "cronjobs");

impl PropagationFixture {
    /// A staged Deployment, whose first stage awaits a Job.
    fn with_job_gate() -> Self {
        let plane = Self::new().with_web_deployment();
        serve(&plane.control_plane, &JOBS, "Job", true);
        for member in &plane.members {
            serve(member, &JOBS, "Job", true);
        }
        let mut policy = rollout_policy();
        policy["spec"]["stages"][0]["gates"]["job"] = json!({"cronJob": "smoke"});
        plane.control_plane.seed(&ROLLOUT_POLICIES, policy);
        // Labels and annotations of another template.
        let labels = json!({"test": "smoke", POLICY_ID: "other", "karmada.io/managed": "no"});
        let annotations = json!({"test": "smoke", POLICY_NAME: "other", JOB_OF: "n/other"});
        let template = json!({"metadata": {"labels": labels, "annotations": annotations, "finalizers": ["f"]},
            "spec": {"backoffLimit": 2, "ttlSecondsAfterFinished": 5}});
        plane.control_plane.seed(
            &CRON_JOBS,
            json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "smoke", "namespace": "n"},
                "spec": {"jobTemplate": template}}),
        );
        plane
    }

    /// The Works of Jobs.
    fn jobs(&self) -> Vec<Value> {
        let mut works = self.control_plane.list_objects(&WORKS);
        works.retain(|work| work["metadata"]["labels"][JOB_OF].is_string());
        works
    }

    fn stage_job(&self) -> Value {
        self.rollout()["status"]["stages"][0]["job"].clone()
    }

    /// Rolls out an image to the first stage, whose Job is running then; returns its Work.
    async fn run_job(&self, image: &str, before: &str) -> Value {
        self.set_image(image).await;
        self.wait_for_images(image, before).await;
        self.report_healthy("m1");
        wait_until("the Job runs", || self.stage_job()["state"] == "Running").await;
        let job = || {
            let name = self.stage_job()["name"].clone();
            let mut jobs = self.jobs().into_iter();
            jobs.find(|work| manifest(work)["metadata"]["name"] == name)
        };
        let is_applied = || job().is_some_and(|work| applied_status(&work) == Some("True"));
        wait_until("the Job is applied", is_applied).await;
        job().unwrap()
    }

    /// The member of the first stage reports that the Job has ended.
    fn finish_job(&self, condition: &str) {
        let name = self.stage_job()["name"].clone();
        let mut jobs = self.jobs().into_iter();
        let mut work = jobs
            .find(|work| manifest(work)["metadata"]["name"] == name)
            .unwrap();
        let identifier = json!({"ordinal": 0, "version": "v1", "kind": "Job", "name": name});
        work["status"]["manifestStatuses"] =
            json!([{"identifier": identifier, "status": finished(condition)}]);
        self.control_plane.seed(&WORKS, work);
    }
}

fn manifest(work: &Value) -> &Value {
    &work["spec"]["workload"]["manifests"][0]
}

/// The status of a Job that has ended.
fn finished(condition: &str) -> Value {
    json!({"conditions": [{"type": condition, "status": "True", "message": "as it was told"}]})
}

// proves: ROL-job-made, ROL-job-metadata, ROL-job-pruned
#[tokio::test]
async fn a_job_is_made_from_the_template_of_its_cron_job() {
    let plane = PropagationFixture::with_job_gate().started().await;
    plane.wait_for_images("nginx:1", "nginx:1").await;
    plane.complete().await;
    assert_eq!(plane.jobs(), Vec::<Value>::new());
    let work = plane.run_job("nginx:2", "nginx:1").await;
    assert_eq!(work["metadata"]["namespace"], "karmada-es-m1");
    assert_eq!(plane.stage_job()["clusters"], json!(["m1"]));
    let job = manifest(&work);
    assert_eq!(job["metadata"]["namespace"], "n", "{job}");
    assert_eq!(job["metadata"]["labels"]["test"], "smoke", "{job}");
    assert!(job["metadata"]["labels"][JOB_OF].is_string(), "{job}");
    assert_eq!(job["metadata"]["labels"]["karmada.io/managed"], "true");
    assert_eq!(job["metadata"]["labels"].get(POLICY_ID), None, "{job}");
    let annotations = &job["metadata"]["annotations"];
    assert_eq!(annotations["test"], "smoke", "{job}");
    for key in [POLICY_NAME, JOB_OF] {
        assert_eq!(annotations.get(key), None, "{job}");
    }
    assert_eq!(job["metadata"].get("finalizers"), None, "{job}");
    assert_eq!(job["spec"], json!({"backoffLimit": 2}), "{job}");
    assert_eq!(plane.jobs().len(), 1);
    plane.finish_job("Complete");
    plane.wait_for_images("nginx:2", "nginx:2").await;
    plane.complete().await;
    // The next rollout has another one.
    let next = plane.run_job("nginx:3", "nginx:2").await;
    assert_ne!(next["metadata"]["name"], work["metadata"]["name"]);
    let is_deleted = || {
        let mut jobs = plane.jobs().into_iter();
        jobs.all(|job| job["metadata"]["name"] == next["metadata"]["name"])
    };
    wait_until("the first one is deleted", is_deleted).await;
    // All go with their policy.
    plane.control_plane.remove(&ROLLOUT_POLICIES, "n", "p");
    wait_until("no Job is left", || plane.jobs().is_empty()).await;
    plane.tasks.stop().await;
}

// proves: ROL-job-once, ROL-job-failed
#[tokio::test]
async fn a_job_survives_a_restart_and_is_not_made_again() {
    let mut plane = PropagationFixture::with_job_gate().started().await;
    plane.wait_for_images("nginx:1", "nginx:1").await;
    plane.complete().await;
    let job = plane.run_job("nginx:2", "nginx:1").await;
    plane.tasks.stop().await;
    plane.control_plane.clear_writes();
    plane.start().await;
    plane.finish_job("Failed");
    wait_until("failed", || plane.stage_job()["state"] == "Failed").await;
    assert_eq!(plane.stage_job()["message"], "in m1: as it was told");
    assert_eq!(plane.jobs().len(), 1);
    assert_eq!(plane.rollout()["status"]["state"], "JobFailed");
    // One that is deleted while it runs is not made again either.
    plane.set_image("nginx:1").await;
    plane.wait_for_images("nginx:1", "nginx:1").await;
    plane.complete().await;
    let next = plane.run_job("nginx:4", "nginx:1").await;
    assert_ne!(next["metadata"]["name"], job["metadata"]["name"]);
    let name = next["metadata"]["name"].as_str().unwrap();
    plane.control_plane.remove(&WORKS, "karmada-es-m1", name);
    wait_until("failed", || plane.stage_job()["state"] == "Failed").await;
    assert_eq!(plane.stage_job()["message"], "the Job was deleted in m1");
    plane.tasks.stop().await;
}

// proves: ROL-job-not-applied
#[tokio::test]
async fn a_job_that_a_member_refuses_says_why() {
    let plane = PropagationFixture::with_job_gate();
    plane.members[0].on_call(|call| {
        let is_job = call.verb == "create" && call.resource == Some(&JOBS);
        is_job.then(|| machinery::Status::failure(403, "Forbidden", "exceeded quota").into())
    });
    let plane = plane.started().await;
    plane.wait_for_images("nginx:1", "nginx:1").await;
    plane.complete().await;
    plane.set_image("nginx:2").await;
    plane.wait_for_images("nginx:2", "nginx:1").await;
    plane.report_healthy("m1");
    let says_why = || {
        let job = plane.stage_job();
        let message = job["message"].as_str().unwrap_or_default().to_owned();
        job["state"] == "Running"
            && message.starts_with("in m1: ")
            && message.contains("exceeded quota")
    };
    wait_until("it says why", says_why).await;
    plane.tasks.stop().await;
}

// proves: ROL-job-foreign
#[tokio::test]
async fn what_others_write_in_the_namespace_opens_no_gate() {
    let plane = PropagationFixture::with_job_gate().started().await;
    plane.wait_for_images("nginx:1", "nginx:1").await;
    plane.complete().await;
    plane.run_job("nginx:2", "nginx:1").await;
    // A finished Job with all that a Job of the rollout would have, sent to a member.
    let (name, uid) = (
        plane.stage_job()["name"].clone(),
        plane.rollout()["metadata"]["uid"].clone(),
    );
    let owner = json!({"apiVersion": ROLLOUTS.api_version(), "kind": "Rollout", "name": ROLLOUT,
        "uid": uid, "controller": true});
    let own = plane.jobs()[0]["metadata"].clone();
    let metadata = json!({"name": name, "namespace": "n", "ownerReferences": [owner],
        "labels": own["labels"], "annotations": own["annotations"]});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata,
        "spec": {}, "status": finished("Complete")});
    plane.control_plane.seed(&JOBS, job);
    let selector = json!({"apiVersion": "batch/v1", "kind": "Job", "name": name});
    let placement = json!({"clusterAffinity": {"clusterNames": ["m2"]}});
    let mut sender = policy(json!({"resourceSelectors": [selector], "placement": placement}));
    sender["metadata"]["name"] = name.clone();
    plane.control_plane.seed(&POLICIES, sender);
    let name = name.as_str().unwrap().to_owned();
    let is_claimed = || plane.binding(&format!("{name}-job")).is_some();
    wait_until("it is claimed", is_claimed).await;
    plane.edit(&ROLLOUTS, ROLLOUT, |rollout| {
        rollout["spec"]["paused"] = true.into();
    });
    let generation = plane.rollout()["metadata"]["generation"].clone();
    let is_seen = || plane.rollout()["status"]["observedGeneration"] == generation;
    wait_until("the pause is seen", is_seen).await;
    assert_eq!(plane.stage_job()["state"], "Running");
    plane.finish_job("Failed");
    wait_until("failed", || plane.stage_job()["state"] == "Failed").await;
    assert_eq!(plane.stage_job()["message"], "in m1: as it was told");
    plane.tasks.stop().await;
}

// proves: ROL-job-held
#[tokio::test]
async fn a_job_that_cannot_be_made_for_now_holds_its_stage_alone() {
    let plane = PropagationFixture::with_job_gate().started().await;
    plane.wait_for_images("nginx:1", "nginx:1").await;
    plane.complete().await;
    plane.control_plane.on_call(|call| {
        let is_cron_job = call.resource == Some(&CRON_JOBS);
        is_cron_job.then(|| machinery::Status::conflict(&CRON_JOBS, call.name, "down").into())
    });
    plane.set_image("nginx:2").await;
    plane.wait_for_images("nginx:2", "nginx:1").await;
    plane.report_healthy("m1");
    let is_named = || plane.stage_job()["state"] == "Pending";
    wait_until("the stage awaits it", is_named).await;
    // Another change of the template is not held by it.
    plane.set_image("nginx:3").await;
    plane.wait_for_images("nginx:3", "nginx:1").await;
    plane.set_image("nginx:2").await;
    plane.wait_for_images("nginx:2", "nginx:1").await;
    plane.tasks.stop().await;
}
