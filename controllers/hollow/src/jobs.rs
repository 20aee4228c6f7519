//! Plans the pods of a Job: runs pods until enough of them have succeeded.

use std::collections::HashSet;

use jiff::Timestamp;
use machinery::time::rfc3339_seconds;
use serde_json::{Map, Value, json};

use crate::pods::{HollowPodFields, ParentWorkload, pod_from_template, pod_name_suffix};
use crate::workload_plan::{MAX_POD_CREATES, WorkloadPlan};

fn is_finished(status: &Value) -> bool {
    let done =
        |c: &Value| (c["type"] == "Complete" || c["type"] == "Failed") && c["status"] == "True";
    status["conditions"]
        .as_array()
        .is_some_and(|all| all.iter().any(done))
}

/// Plans one Job, given the pods that belong to it.
pub(crate) fn plan_pods(
    parent: &ParentWorkload<'_>,
    job: &Value,
    pods: &[&HollowPodFields],
    now: Timestamp,
) -> WorkloadPlan {
    let mut plan = WorkloadPlan::default();
    let old = &job["status"];
    if is_finished(old) || job["spec"]["suspend"] == true {
        return plan;
    }
    let parallelism = job["spec"]["parallelism"].as_i64().unwrap_or(1);
    let succeeded = pods.iter().filter(|p| p.is_succeeded()).count() as i64;
    let active: Vec<&&HollowPodFields> = pods
        .iter()
        .filter(|p| !p.is_finished() && !p.is_deleting())
        .collect();
    let completions = job["spec"]["completions"].as_i64();
    // Without `completions` one success is enough, and running pods may finish.
    let complete = completions.map_or(succeeded > 0 && active.is_empty(), |c| succeeded >= c);
    let missing = completions.map_or(if succeeded > 0 { 0 } else { parallelism }, |c| {
        parallelism.min(c - succeeded)
    }) - active.len() as i64;
    if !complete {
        plan.create = new_pods(parent, job, pods, missing);
    }
    let running = active.len() + plan.create.len();
    let counters = [
        ("active", if complete { 0 } else { running as i64 }),
        ("succeeded", succeeded),
        (
            "ready",
            active.iter().filter(|p| p.is_ready()).count() as i64,
        ),
    ];
    let status = job_status(old, counters, complete, now);
    plan.stable = complete;
    plan.status = (status != *old).then_some(status);
    plan
}

/// As many new pods as are missing, up to the burst of one plan, with names that no pod has.
fn new_pods(
    parent: &ParentWorkload<'_>,
    job: &Value,
    pods: &[&HollowPodFields],
    missing: i64,
) -> Vec<Value> {
    let existing: HashSet<&str> = pods.iter().map(|p| &*p.metadata.name).collect();
    let names = (0..).map(|nth| {
        let suffix = pod_name_suffix(parent.object.uid(), nth);
        format!("{}-{suffix}", parent.object.name())
    });
    names
        .filter(|name| !existing.contains(&**name))
        .take(usize::try_from(missing).unwrap_or(0).min(MAX_POD_CREATES))
        .map(|name| pod_from_template(parent, &job["spec"]["template"], &name, &[]))
        .collect()
}

fn job_status(old: &Value, counters: [(&str, i64); 3], complete: bool, now: Timestamp) -> Value {
    let mut status = Map::new();
    let start = old
        .get("startTime")
        .cloned()
        .unwrap_or_else(|| rfc3339_seconds(now).into());
    status.insert("startTime".into(), start);
    for (field, value) in counters {
        if value != 0 || field == "ready" {
            status.insert(field.into(), value.into());
        }
    }
    status.insert("terminating".into(), 0.into());
    status.insert("uncountedTerminatedPods".into(), json!({}));
    if complete {
        let time = rfc3339_seconds(now);
        let condition = |kind: &str| {
            json!({"type": kind, "status": "True", "reason": "CompletionsReached", "lastProbeTime": time, "lastTransitionTime": time,
                   "message": "Reached expected number of succeeded pods"})
        };
        status.insert(
            "conditions".into(),
            json!([condition("SuccessCriteriaMet"), condition("Complete")]),
        );
        status.insert("completionTime".into(), time.clone().into());
    }
    Value::Object(status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pods::tests::pod;
    use machinery::Object;

    fn check(completions: Option<i64>, pods: &[HollowPodFields], create: usize, complete: bool) {
        let job = json!({"metadata": {"name": "j", "uid": "u"}, "spec": {"parallelism": 2, "completions": completions, "template": {"spec": {}}}});
        let object = Object::from_value(&job).unwrap();
        let parent = ParentWorkload {
            api_version: "batch/v1",
            kind: "Job",
            object: &object,
        };
        let plan = plan_pods(
            &parent,
            &job,
            &pods.iter().collect::<Vec<_>>(),
            Timestamp::UNIX_EPOCH,
        );
        assert_eq!(
            (plan.create.len(), is_finished(&plan.status.unwrap())),
            (create, complete)
        );
    }

    #[test]
    fn pods_run_until_enough_have_succeeded() {
        check(Some(3), &[], 2, false);
        check(
            Some(3),
            &[pod("a", "Succeeded"), pod("b", "Succeeded")],
            1,
            false,
        );
        check(
            Some(3),
            &[pod("a", "Succeeded"), pod("b", "Ready")],
            1,
            false,
        );
        check(
            Some(2),
            &[pod("a", "Succeeded"), pod("b", "Succeeded")],
            0,
            true,
        );
        check(None, &[pod("a", "Succeeded"), pod("b", "Ready")], 0, false);
        check(
            None,
            &[pod("a", "Succeeded"), pod("b", "Succeeded")],
            0,
            true,
        );
    }

    // proves: HOL-burst
    #[test]
    fn a_plan_creates_a_bounded_number_of_pods() {
        let job = json!({"metadata": {"name": "j", "uid": "u"},
            "spec": {"parallelism": i32::MAX, "completions": i32::MAX, "template": {"spec": {}}}});
        let object = Object::from_value(&job).unwrap();
        let parent = ParentWorkload {
            api_version: "batch/v1",
            kind: "Job",
            object: &object,
        };
        let plan = plan_pods(&parent, &job, &[], Timestamp::UNIX_EPOCH);
        assert_eq!(plan.create.len(), MAX_POD_CREATES);
    }

    #[test]
    fn a_finished_job_is_not_changed() {
        let job = json!({"metadata": {"name": "j", "uid": "u"}, "spec": {}, "status": {"conditions": [{"type": "Complete", "status": "True"}]}});
        let object = Object::from_value(&job).unwrap();
        let parent = ParentWorkload {
            api_version: "batch/v1",
            kind: "Job",
            object: &object,
        };
        assert_eq!(
            plan_pods(&parent, &job, &[], Timestamp::UNIX_EPOCH),
            WorkloadPlan::default()
        );
    }
}
