//! Native rules of Job. The status of a finished Job is final.

use jiff::Timestamp;
use machinery::Object;
use machinery::time::rfc3339_seconds;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::native::{
    CollectedStatus, Error, NativeRules, TemplateReplicas, parse_collected_status, parse_object,
};
use crate::replica_requirements::{PodTemplateSpec, generate_replica_requirements};

pub(crate) struct NativeJobRules;

#[derive(Deserialize)]
struct BatchJob {
    #[serde(default)]
    spec: BatchJobSpec,
    status: Option<BatchJobStatus>,
}

#[derive(Default, Deserialize)]
struct BatchJobSpec {
    parallelism: Option<i64>,
    completions: Option<i64>,
    #[serde(default)]
    template: PodTemplateSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BatchJobStatus {
    #[serde(default)]
    active: i64,
    #[serde(default)]
    succeeded: i64,
    #[serde(default)]
    failed: i64,
    #[serde(default)]
    conditions: Vec<JobCondition>,
    // RFC 3339 in UTC: comparing the texts compares the times.
    start_time: Option<String>,
    completion_time: Option<String>,
}

#[derive(Deserialize)]
struct JobCondition {
    #[serde(rename = "type")]
    condition_type: String,
    status: String,
}

impl BatchJobStatus {
    fn has_condition(&self, kind: &str) -> bool {
        self.conditions
            .iter()
            .any(|c| c.condition_type == kind && c.status == "True")
    }
}

/// The sums over the statuses of all clusters.
#[derive(Default)]
struct JobStatusAccumulator {
    active: i64,
    succeeded: i64,
    failed: i64,
    complete: usize,
    criteria_met: usize,
    failed_in: Vec<String>,
    started: Vec<String>,
    completed: Vec<String>,
}

impl JobStatusAccumulator {
    fn add(&mut self, cluster: &str, one: BatchJobStatus) {
        self.active = self.active.saturating_add(one.active);
        self.succeeded = self.succeeded.saturating_add(one.succeeded);
        self.failed = self.failed.saturating_add(one.failed);
        if one.has_condition("Complete") {
            self.complete += 1;
        } else if one.has_condition("Failed") {
            self.failed_in.push(cluster.to_owned());
        }
        self.criteria_met += usize::from(one.has_condition("SuccessCriteriaMet"));
        self.started.extend(one.start_time);
        self.completed.extend(one.completion_time);
    }

    fn conditions(&self, clusters: usize, now: Timestamp) -> Vec<Value> {
        let condition = |kind: &str, reason: &str, message: String| {
            let now = rfc3339_seconds(now);
            json!({"type": kind, "status": "True", "lastProbeTime": now, "lastTransitionTime": now,
                   "reason": reason, "message": message})
        };
        let mut out = Vec::new();
        if !self.failed_in.is_empty() {
            let text = format!(
                "Job executed failed in member clusters {}",
                self.failed_in.join(",")
            );
            out.push(condition("Failed", "JobFailed", text));
        }
        if self.complete > 0 && self.complete == clusters {
            out.push(condition("Complete", "Completed", "Job completed".into()));
            if self.criteria_met == clusters {
                let text = "All member clusters have met success criteria".into();
                out.push(condition("SuccessCriteriaMet", "CompletionsReached", text));
            }
        }
        out
    }

    fn into_status(self, started_before: Option<String>, clusters: usize, now: Timestamp) -> Value {
        let mut status = Map::new();
        for (field, sum) in [
            ("active", self.active),
            ("succeeded", self.succeeded),
            ("failed", self.failed),
        ] {
            if sum != 0 {
                status.insert(field.into(), sum.into());
            }
        }
        let conditions = self.conditions(clusters, now);
        if !conditions.is_empty() {
            status.insert("conditions".into(), conditions.into());
        }
        let all = |times: &[String]| times.len() == clusters;
        let start = started_before.or_else(|| {
            all(&self.started)
                .then(|| self.started.iter().min().cloned())
                .flatten()
        });
        let end = all(&self.completed)
            .then(|| self.completed.iter().max().cloned())
            .flatten();
        for (field, time) in [("startTime", start), ("completionTime", end)] {
            if let Some(time) = time {
                status.insert(field.into(), time.into());
            }
        }
        Value::Object(status)
    }
}

impl NativeRules for NativeJobRules {
    fn replicas(&self, object: &Object) -> Result<Option<TemplateReplicas>, Error> {
        let job: BatchJob = parse_object(object, "replicas")?;
        let parallelism = job.spec.parallelism.unwrap_or(0);
        Ok(Some(TemplateReplicas {
            count: parallelism.min(job.spec.completions.unwrap_or(parallelism)),
            requirements: generate_replica_requirements(&job.spec.template.spec),
        }))
    }

    fn replica_field(&self) -> Option<&'static str> {
        Some("parallelism")
    }

    fn retain(&self, desired: &mut Value, observed: &Value) -> Result<(), Error> {
        for (parents, leaf) in [
            (&["spec", "selector"] as &[&str], "matchLabels"),
            (&["spec", "template", "metadata"], "labels"),
        ] {
            let current = parents
                .iter()
                .try_fold(observed, |at, p| at.get(p))
                .and_then(|at| at.get(leaf));
            let Some(current) = current else { continue };
            let mut at = &mut *desired;
            for parent in parents {
                at = object_field_mut(at, parent);
            }
            *object_field_mut(at, leaf) = current.clone();
        }
        Ok(())
    }

    fn reflect_status(&self, observed: &Object) -> Result<Option<Value>, Error> {
        #[derive(Deserialize)]
        struct ObservedJob {
            status: Option<Map<String, Value>>,
        }
        let observed: ObservedJob = parse_object(observed, "status")?;
        let Some(mut status) = observed.status else {
            return Ok(None);
        };
        let reflected = [
            "active",
            "succeeded",
            "failed",
            "conditions",
            "startTime",
            "completionTime",
        ];
        status.retain(|field, value| {
            reflected.contains(&&**field) && *value != json!(0) && *value != json!([])
        });
        Ok(Some(Value::Object(status)))
    }

    fn aggregate_status(
        &self,
        template: &Object,
        items: &[CollectedStatus<'_>],
        now: Timestamp,
    ) -> Result<Option<Value>, Error> {
        let job: BatchJob = parse_object(template, "status")?;
        let old = job.status.unwrap_or_default();
        if old.has_condition("Complete") || old.has_condition("Failed") {
            return Ok(None);
        }
        let mut total = JobStatusAccumulator::default();
        for item in items {
            let Some(reported) = item.status else {
                continue;
            };
            total.add(item.cluster, parse_collected_status(item, reported)?);
        }
        Ok(Some(total.into_status(old.start_time, items.len(), now)))
    }
}

/// A field of a JSON object; the object and the field are created when absent.
fn object_field_mut<'a>(at: &'a mut Value, field: &str) -> &'a mut Value {
    if !at.is_object() {
        *at = Value::Object(Map::new());
    }
    &mut at[field]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::fixtures::object;

    const NOW: &str = "2026-01-02T03:04:05Z";

    fn aggregate_job(template: Value, items: &[Value]) -> Option<Value> {
        let names = ["a", "b", "c"];
        let items: Vec<CollectedStatus<'_>> = items
            .iter()
            .zip(names)
            .map(|(s, cluster)| CollectedStatus::new(cluster, (!s.is_null()).then_some(s)))
            .collect();
        NativeJobRules
            .aggregate_status(&object(template), &items, NOW.parse().unwrap())
            .unwrap()
    }

    fn finished_status(kind: &str, end: &str) -> Value {
        json!({"succeeded": 1, "startTime": "2026-01-01T00:00:00Z", "completionTime": end,
               "conditions": [{"type": kind, "status": "True"}]})
    }

    // proves: NAT-job
    #[test]
    fn parallelism_is_bounded_by_completions() {
        let job = |p: i64, c: Option<i64>| {
            object(json!({"metadata": {"name": "j"}, "spec": {"parallelism": p, "completions": c}}))
        };
        for (parallelism, completions, count) in [(3, Some(2), 2), (2, Some(5), 2), (4, None, 4)] {
            assert_eq!(
                NativeJobRules
                    .replicas(&job(parallelism, completions))
                    .unwrap()
                    .unwrap()
                    .count,
                count
            );
        }
    }

    // proves: NAT-job-complete, NAT-job-failed
    #[test]
    fn job_is_complete_when_every_cluster_is() {
        let job = json!({"metadata": {"name": "j"}});
        let one = aggregate_job(
            job.clone(),
            &[
                finished_status("Complete", "2026-01-01T01:00:00Z"),
                json!({"active": 1}),
            ],
        )
        .unwrap();
        assert!(one.get("conditions").is_none() && one.get("completionTime").is_none());
        let both = aggregate_job(
            job.clone(),
            &[
                finished_status("Complete", "2026-01-01T01:00:00Z"),
                finished_status("Complete", "2026-01-01T02:00:00Z"),
            ],
        )
        .unwrap();
        assert_eq!(both["conditions"][0]["type"], "Complete");
        assert_eq!(both["completionTime"], "2026-01-01T02:00:00Z");
        assert_eq!(both["succeeded"], 2);
        let failed = aggregate_job(
            job,
            &[
                finished_status("Failed", "2026-01-01T01:00:00Z"),
                Value::Null,
            ],
        )
        .unwrap();
        assert_eq!(
            failed["conditions"][0]["message"],
            "Job executed failed in member clusters a"
        );
    }

    // proves: NAT-job-finished
    #[test]
    fn finished_job_never_changes() {
        let finished = json!({"metadata": {"name": "j"}, "status": {"conditions": [{"type": "Complete", "status": "True"}]}});
        assert_eq!(aggregate_job(finished, &[json!({"active": 3})]), None);
    }

    // proves: NAT-job-retain
    #[test]
    fn selector_of_the_member_is_retained() {
        let observed = json!({"spec": {"selector": {"matchLabels": {"uid": "1"}}, "template": {"metadata": {"labels": {"uid": "1"}}}}});
        let mut desired = json!({"spec": {"template": {"spec": {}}}});
        NativeJobRules.retain(&mut desired, &observed).unwrap();
        assert_eq!(desired["spec"]["selector"], observed["spec"]["selector"]);
        assert_eq!(
            desired["spec"]["template"]["metadata"],
            observed["spec"]["template"]["metadata"]
        );
    }
}
