//! Deletes Jobs when the time to live that they set has passed since they finished
//! (`pkg/controller/ttlafterfinished`).
//!
//! A propagated Job has finished when its aggregated status says so. Its copies do not expire by
//! themselves; they go with it.

use std::sync::Arc;
use std::time::Duration;

use client::{
    Api, DeleteOptions, DeletionPropagation, Error, Informer, ResourcePath, ignore_not_found,
};
use flotilla_runtime::{ControllerContext, ReconcileAction, Workqueue, run_workers};
use jiff::{SignedDuration, Timestamp};
use machinery::time::{self, Clock};
use machinery::{Gvr, Object};
use serde_json::Value;

use crate::shutdown_waits::wait_for_cache_sync;

static JOBS: Gvr = Gvr::from_static("batch", "v1", "jobs");
const WORKERS: usize = 2;

struct TtlAfterFinishedController {
    api: Arc<dyn Api>,
    clock: Arc<dyn Clock>,
    jobs: Informer,
}

pub(crate) fn start(context: &ControllerContext) {
    let queue: Workqueue<String> = Workqueue::new();
    let jobs = context.informer(&JOBS);
    let controller = Arc::new(TtlAfterFinishedController {
        api: Arc::clone(&context.control_plane),
        clock: Arc::clone(&context.clock),
        jobs,
    });
    let wake = queue.clone();
    controller.jobs.add_event_handler(move |change| {
        if change.new.is_some() {
            wake.add_event(change.key(), change);
        }
    });
    let workers = context.tasks.clone();
    context.tasks.spawn(async move {
        if !wait_for_cache_sync(&workers, [&controller.jobs]).await {
            return;
        }
        let name = "ttl-after-finished";
        run_workers(&workers, name, &queue, WORKERS, move |key: String| {
            let controller = Arc::clone(&controller);
            async move { controller.reconcile(&key).await }
        });
    });
}

impl TtlAfterFinishedController {
    async fn reconcile(&self, key: &str) -> Result<ReconcileAction, Error> {
        let Some(cached) = self.jobs.get_by_key(key) else {
            return Ok(ReconcileAction::Done);
        };
        match self.remaining_time(&cached)? {
            None => return Ok(ReconcileAction::Done),
            Some(remaining) if !remaining.is_zero() => {
                return Ok(ReconcileAction::RequeueAfter(remaining));
            }
            Some(_) => {}
        }
        // The informer may not show yet that somebody prolonged its life.
        let at = ResourcePath::of_object(&JOBS, &cached);
        let Some(job) = ignore_not_found(self.api.get(at).await)? else {
            return Ok(ReconcileAction::Done);
        };
        if job.uid() != cached.uid() || self.remaining_time(&job)? != Some(Duration::ZERO) {
            return Ok(ReconcileAction::Done);
        }
        let options = DeleteOptions {
            uid: Some(job.uid().to_owned()),
            resource_version: Some(job.revision().to_string()),
            propagation: Some(DeletionPropagation::Foreground),
            ..DeleteOptions::default()
        };
        ignore_not_found(self.api.delete(at, &options).await)?;
        Ok(ReconcileAction::Done)
    }

    /// How long a finished Job still lives; `None` for one that does not expire.
    fn remaining_time(&self, job: &Object) -> Result<Option<Duration>, Error> {
        if job.meta().deleting {
            return Ok(None);
        }
        let expiry = expiry(&job.value()?);
        let now = self.clock.now();
        // A time that has passed has no positive duration.
        Ok(expiry.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default()))
    }
}

/// When a Job expires; `None` if it has no time to live or has not finished.
fn expiry(job: &Value) -> Option<Timestamp> {
    let ttl = job["spec"]["ttlSecondsAfterFinished"].as_i64()?;
    let mut conditions = job["status"]["conditions"].as_array()?.iter();
    let finished = conditions.find(|condition| {
        condition["status"] == "True"
            && matches!(condition["type"].as_str(), Some("Complete" | "Failed"))
    })?;
    let finished_at = time::parse(finished["lastTransitionTime"].as_str()?).ok()?;
    finished_at.checked_add(SignedDuration::from_secs(ttl)).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_finished_job_with_a_time_to_live_expires() {
        let job = |ttl: Value, condition: &str, status: &str| {
            json!({"spec": {"ttlSecondsAfterFinished": ttl}, "status": {"conditions": [
                {"type": "Suspended", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                {"type": condition, "status": status, "lastTransitionTime": "2026-01-01T00:01:00Z"}]}})
        };
        for (job, expected) in [
            (
                job(json!(5), "Complete", "True"),
                Some("2026-01-01T00:01:05Z"),
            ),
            (
                job(json!(0), "Failed", "True"),
                Some("2026-01-01T00:01:00Z"),
            ),
            (job(json!(5), "Complete", "False"), None),
            (job(json!(5), "SuccessCriteriaMet", "True"), None),
            (job(Value::Null, "Complete", "True"), None),
            (json!({"spec": {"ttlSecondsAfterFinished": 5}}), None),
        ] {
            let expected = expected.map(|at| at.parse().unwrap());
            assert_eq!(expiry(&job), expected, "{job}");
        }
    }
}
