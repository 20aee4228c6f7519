//! Jobs that stages await.

use controller_testing::serve;
use karmada_api::names::binding_reference_key;
use karmada_api::resources::POLICIES;
use karmada_api::rollout::{JOB_OF, ROLLOUT_POLICIES, ROLLOUTS};
use machinery::Gvr;
use serde_json::{Value, json};

use super::rollouts::rollout_policy;
use super::{PropagationFixture, wait_until};

static JOBS: Gvr = Gvr::from_static("batch", "v1", "jobs");
static CRON_JOBS: Gvr = Gvr::from_static("batch", "v1", "cronjobs");

impl PropagationFixture {
    /// A staged Deployment, whose first stage awaits a Job.
    fn with_job_gate() -> Self {
        let plane = Self::new().with_web_deployment();
        serve(&plane.control_plane, &JOBS, "Job", true);
        let mut policy = rollout_policy();
        policy["spec"]["stages"][0]["gates"]["job"] = json!({"cronJob": "smoke"});
        plane.control_plane.seed(&ROLLOUT_POLICIES, policy);
        let template = json!({"metadata": {"labels": {"test": "smoke"}, "finalizers": ["f"]},
            "spec": {"backoffLimit": 2, "ttlSecondsAfterFinished": 5}});
        plane.control_plane.seed(
            &CRON_JOBS,
            json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "smoke", "namespace": "n"},
                "spec": {"jobTemplate": template}}),
        );
        plane
    }

    fn jobs(&self) -> Vec<Value> {
        self.control_plane.list_objects(&JOBS)
    }

    fn stage_job(&self) -> Value {
        let rollout = self
            .control_plane
            .get_object(&ROLLOUTS, "n", "web-deployment");
        rollout.map_or(Value::Null, |r| r["status"]["stages"][0]["job"].clone())
    }

    /// Rolls out an image to the first stage, whose Job is running then; returns the Job.
    async fn run_job(&self, image: &str, before: &str) -> Value {
        self.set_image(image).await;
        self.wait_for_images(image, before).await;
        self.report_healthy("m1");
        wait_until("the Job runs", || self.stage_job()["state"] == "Running").await;
        let name = self.stage_job()["name"].clone();
        let mut jobs = self.jobs().into_iter();
        jobs.find(|job| job["metadata"]["name"] == name).unwrap()
    }

    /// The name of the Job of the next rollout, to `nginx:2`, as another plane has it.
    async fn next_job_name() -> String {
        let other = Self::with_job_gate().started().await;
        other.wait_for_images("nginx:1", "nginx:1").await;
        other.complete().await;
        let job = other.run_job("nginx:2", "nginx:1").await;
        other.tasks.stop().await;
        job["metadata"]["name"].as_str().unwrap().to_owned()
    }

    /// The Job of the first stage ends.
    fn finish_job(&self, condition: &str) {
        let name = self.stage_job()["name"].as_str().unwrap().to_owned();
        self.edit(&JOBS, &name, |job| {
            job["status"]["conditions"] =
                json!([{"type": condition, "status": "True", "message": "as it was told"}]);
        });
    }
}

// proves: ROL-job-made, ROL-job-pruned
#[tokio::test]
async fn a_job_is_made_from_the_template_of_its_cron_job() {
    let plane = PropagationFixture::with_job_gate().started().await;
    plane.wait_for_images("nginx:1", "nginx:1").await;
    plane.complete().await;
    assert_eq!(plane.jobs(), Vec::<Value>::new());
    let job = plane.run_job("nginx:2", "nginx:1").await;
    let owner = &job["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["name"]),
        (&json!("Rollout"), &json!("web-deployment"))
    );
    assert_eq!(job["metadata"]["labels"]["test"], "smoke", "{job}");
    assert!(job["metadata"]["labels"][JOB_OF].is_string(), "{job}");
    assert_eq!(job["metadata"].get("finalizers"), None, "{job}");
    assert_eq!(job["spec"], json!({"backoffLimit": 2}), "{job}");
    let name = job["metadata"]["name"].as_str().unwrap().to_owned();
    let policy = plane
        .control_plane
        .get_object(&POLICIES, "n", &name)
        .unwrap();
    let selector = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": name}]);
    assert_eq!(policy["spec"]["resourceSelectors"], selector);
    let clusters = &policy["spec"]["placement"]["clusterAffinity"]["clusterNames"];
    assert_eq!(*clusters, json!(["m1"]));
    plane.finish_job("Complete");
    plane.wait_for_images("nginx:2", "nginx:2").await;
    plane.complete().await;
    // The next rollout has another one.
    let next = plane.run_job("nginx:3", "nginx:2").await;
    assert_ne!(next["metadata"]["name"], job["metadata"]["name"]);
    wait_until("the first one is deleted", || {
        plane.jobs().len() == 1
            && plane
                .control_plane
                .get_object(&POLICIES, "n", &name)
                .is_none()
    })
    .await;
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
    assert_eq!(plane.stage_job()["message"], "as it was told");
    assert_eq!(plane.jobs().len(), 1);
    let rollout = plane
        .control_plane
        .get_object(&ROLLOUTS, "n", "web-deployment");
    assert_eq!(rollout.unwrap()["status"]["state"], "JobFailed");
    // One that is deleted while it runs is not made again either.
    plane.set_image("nginx:1").await;
    plane.wait_for_images("nginx:1", "nginx:1").await;
    plane.complete().await;
    let next = plane.run_job("nginx:4", "nginx:1").await;
    assert_ne!(next["metadata"]["name"], job["metadata"]["name"]);
    let name = next["metadata"]["name"].as_str().unwrap();
    plane.control_plane.remove(&JOBS, "n", name);
    wait_until("failed", || plane.stage_job()["state"] == "Failed").await;
    assert_eq!(plane.stage_job()["message"], "the Job was deleted");
    plane.tasks.stop().await;
}

// proves: ROL-job-foreign
#[tokio::test]
async fn a_job_of_someone_else_is_left_alone_and_a_retry_passes_it() {
    let plane = PropagationFixture::with_job_gate().started().await;
    plane.wait_for_images("nginx:1", "nginx:1").await;
    plane.complete().await;
    let name = PropagationFixture::next_job_name().await;
    let foreign = json!({"metadata": {"name": name, "namespace": "n", "uid": "foreign"}});
    plane.control_plane.seed(&JOBS, foreign);
    plane.set_image("nginx:2").await;
    plane.wait_for_images("nginx:2", "nginx:1").await;
    plane.report_healthy("m1");
    wait_until("failed", || plane.stage_job()["state"] == "Failed").await;
    let message = format!("the Job {name} is not one of this rollout");
    assert_eq!(plane.stage_job()["message"], message);
    assert_eq!(plane.jobs().len(), 1);
    plane.edit(&ROLLOUTS, "web-deployment", |rollout| {
        let revision = rollout["status"]["targetRevision"].clone();
        rollout["spec"]["retry"] = json!({"revision": revision, "number": 1});
    });
    wait_until("the Job runs", || plane.stage_job()["state"] == "Running").await;
    assert_ne!(plane.stage_job()["name"], name);
    plane.tasks.stop().await;
}

// proves: ROL-job-held
#[tokio::test]
async fn a_job_that_an_earlier_rollout_left_holds_its_stage_alone() {
    let plane = PropagationFixture::with_job_gate().started().await;
    plane.wait_for_images("nginx:1", "nginx:1").await;
    plane.complete().await;
    let name = PropagationFixture::next_job_name().await;
    let labels = json!({JOB_OF: binding_reference_key("n", "web-deployment")});
    let metadata = json!({"name": name, "namespace": "n", "uid": "earlier", "labels": labels});
    plane
        .control_plane
        .seed(&JOBS, json!({"metadata": metadata}));
    plane.set_image("nginx:2").await;
    plane.wait_for_images("nginx:2", "nginx:1").await;
    plane.report_healthy("m1");
    wait_until("the stage awaits it", || plane.stage_job()["name"] == name).await;
    // Another change of the template is not held by it.
    plane.set_image("nginx:3").await;
    plane.wait_for_images("nginx:3", "nginx:1").await;
    plane.set_image("nginx:2").await;
    plane.wait_for_images("nginx:2", "nginx:1").await;
    plane.tasks.stop().await;
}
