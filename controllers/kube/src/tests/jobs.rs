//! Tests of the deletion of finished Jobs.

use super::*;

static JOBS: Gvr = Gvr::from_static("batch", "v1", "jobs");

#[tokio::test]
async fn finished_jobs_are_deleted_when_their_time_has_passed() {
    let fixture = KubeControllersFixture::new().await;
    for (name, ttl, finished) in [
        ("expired", json!(0), true),
        ("later", json!(36_000), true),
        ("without", Value::Null, true),
        ("running", json!(0), false),
    ] {
        let container = json!({"name": "c", "image": "i"});
        let job = json!({"apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"ttlSecondsAfterFinished": ttl, "template":
                {"spec": {"restartPolicy": "Never", "containers": [container]}}}});
        let mut created = fixture.create(&JOBS, job).await;
        if !finished {
            continue;
        }
        let now = created["metadata"]["creationTimestamp"].clone();
        let condition = |kind: &str| {
            json!({"type": kind, "status": "True", "reason": "R", "message": "",
                "lastTransitionTime": now, "lastProbeTime": now})
        };
        created["status"] = json!({"startTime": now, "completionTime": now,
            "succeeded": 1, "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]});
        let at = ResourcePath::object(&JOBS, "default", name).subresource("status");
        let options = WriteOptions::default();
        fixture
            .api
            .update(at, created.into(), &options)
            .await
            .unwrap();
    }
    fixture.wait_until_gone(&JOBS, "default", "expired").await;
    for name in ["later", "without", "running"] {
        assert!(
            fixture.get(&JOBS, "default", name).await.is_some(),
            "{name}"
        );
    }
    fixture.tasks.stop().await;
}
