//! Decides which graceful eviction tasks are finished. Pure (Karmada's
//! `evictiontask.go`).

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use karmada_api::binding::GracefulEvictionTask;
use karmada_api::{FeatureGates, KarmadaFeature, ResourceBinding};
use machinery::time::{parse, rfc3339_seconds};

/// The creation timestamp of a new task. Setting it with the eviction saves the write
/// that would only add it. Without the graceful eviction controller there is none, as in
/// Karmada.
pub(in crate::failover) fn creation_timestamp(
    gates: FeatureGates,
    now: Timestamp,
) -> Option<String> {
    gates
        .enabled(KarmadaFeature::GracefulEviction)
        .then(|| rfc3339_seconds(now))
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct AssessedEvictionTasks {
    pub(super) kept_tasks: Vec<GracefulEvictionTask>,
    /// The clusters whose task is finished.
    pub(super) evicted_clusters: Vec<String>,
    /// When the next of the other tasks times out.
    pub(super) next_deadline: Option<Timestamp>,
}

/// Assesses the eviction tasks of a binding. A new task gets `now` as its creation
/// timestamp.
pub(super) fn assess_eviction_tasks(
    binding: &ResourceBinding,
    generation: i64,
    timeout: Duration,
    now: Timestamp,
) -> AssessedEvictionTasks {
    let scheduled = binding.status.scheduler_observed_generation == generation;
    let replaced = scheduled && all_healthy(binding);
    let mut assessment = AssessedEvictionTasks {
        kept_tasks: Vec::new(),
        evicted_clusters: Vec::new(),
        next_deadline: None,
    };
    for task in &binding.spec.graceful_eviction_tasks {
        let mut task = task.clone();
        let is_new = task.creation_timestamp.is_none();
        if is_new {
            task.creation_timestamp = Some(rfc3339_seconds(now));
        }
        let end = task_deadline(&task, timeout);
        let over = match task.suppress_deletion {
            _ if is_new => false,
            Some(kept) => !kept,
            None => replaced || end.is_some_and(|end| end < now),
        };
        if over {
            assessment.evicted_clusters.push(task.from_cluster);
            continue;
        }
        if task.suppress_deletion.is_none() {
            assessment.next_deadline = [assessment.next_deadline, end].into_iter().flatten().min();
        }
        assessment.kept_tasks.push(task);
    }
    assessment
}

/// The deadline of a task; `None` if its creation timestamp cannot be parsed, which
/// admission prevents.
fn task_deadline(task: &GracefulEvictionTask, timeout: Duration) -> Option<Timestamp> {
    let created = parse(task.creation_timestamp.as_deref()?).ok()?;
    let grace = match task.grace_period_seconds {
        Some(seconds) => SignedDuration::from_secs(seconds),
        None => SignedDuration::try_from(timeout).unwrap_or(SignedDuration::MAX),
    };
    created.checked_add(grace).ok()
}

/// Whether the workload is healthy on every target. True without targets, as in Karmada:
/// if nothing replaces the old workload, it is removed.
pub(in crate::failover) fn all_healthy(binding: &ResourceBinding) -> bool {
    let statuses = &binding.status.aggregated_status;
    binding.spec.clusters.iter().all(|target| {
        let item = statuses.iter().find(|i| i.cluster_name == target.name);
        item.is_some_and(|i| i.health == "Healthy")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_767_225_600 + second).unwrap()
    }

    fn binding(
        tasks: &Value,
        clusters: &[&str],
        healthy: &[&str],
        observed: i64,
    ) -> ResourceBinding {
        let clusters: Vec<Value> = clusters.iter().map(|c| json!({"name": c})).collect();
        let items: Vec<Value> = healthy
            .iter()
            .map(|c| json!({"clusterName": c, "health": "Healthy"}))
            .chain([json!({"clusterName": "sick", "health": "Unhealthy"})])
            .collect();
        serde_json::from_value(json!({
            "spec": {"clusters": clusters, "gracefulEvictionTasks": tasks},
            "status": {"schedulerObservedGeneration": observed, "aggregatedStatus": items},
        }))
        .unwrap()
    }

    fn task(more: Value) -> Value {
        let mut task = json!({"fromCluster": "a", "reason": "r", "producer": "p", "creationTimestamp": rfc3339_seconds(at(0))});
        task.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        task
    }

    /// Whether the single task stays, and when it is assessed again.
    fn check(more: Value, clusters: &[&str], observed: i64, second: i64) -> (bool, Option<i64>) {
        let binding = binding(&json!([task(more)]), clusters, &["well"], observed);
        let actual = assess_eviction_tasks(&binding, 7, MINUTE, at(second));
        assert_eq!(actual.kept_tasks.len() + actual.evicted_clusters.len(), 1);
        let next = actual
            .next_deadline
            .map(|t| t.as_second() - at(0).as_second());
        (actual.evicted_clusters.is_empty(), next)
    }

    // proves: GRA-healthy, GRA-grace, GRA-suppress, GRA-nowhere, GRA-directly
    #[test]
    fn tasks_end_by_health_timeout_or_suppress_deletion() {
        let none = || json!({});
        for (more, clusters, observed, second, expected) in [
            // Health counts once the scheduler has observed this generation.
            (none(), &["well"][..], 7, 5, (false, None)),
            (none(), &["well"], 6, 5, (true, Some(60))),
            (none(), &["well", "sick"], 7, 5, (true, Some(60))),
            (none(), &["well", "unheard"], 7, 5, (true, Some(60))),
            // Without targets all are healthy.
            (none(), &[], 7, 5, (false, None)),
            (none(), &[], 6, 5, (true, Some(60))),
            // The timeout of the flag, or the task's own grace period.
            (none(), &["sick"], 7, 60, (true, Some(60))),
            (none(), &["sick"], 7, 61, (false, None)),
            (
                json!({"gracePeriodSeconds": 90}),
                &["sick"],
                7,
                61,
                (true, Some(90)),
            ),
            (
                json!({"gracePeriodSeconds": 5}),
                &["sick"],
                7,
                6,
                (false, None),
            ),
            // `suppressDeletion` overrides health and time.
            (
                json!({"suppressDeletion": true}),
                &["well"],
                7,
                99,
                (true, None),
            ),
            (
                json!({"suppressDeletion": false}),
                &["sick"],
                6,
                1,
                (false, None),
            ),
            // The purge mode does not matter here.
            (
                json!({"purgeMode": "Directly"}),
                &["sick"],
                7,
                5,
                (true, Some(60)),
            ),
        ] {
            let actual = check(more.clone(), clusters, observed, second);
            assert_eq!(actual, expected, "{more} {clusters:?} {observed} {second}");
        }
    }

    // proves: GRA-stamp
    #[test]
    fn a_new_task_gets_its_creation_timestamp_and_stays() {
        let mut new = task(json!({"suppressDeletion": false}));
        new.as_object_mut().unwrap().remove("creationTimestamp");
        let mut plain = new.clone();
        plain.as_object_mut().unwrap().remove("suppressDeletion");
        plain["fromCluster"] = "b".into();
        let binding = binding(&json!([new, plain]), &["well"], &["well"], 7);
        let actual = assess_eviction_tasks(&binding, 7, MINUTE, at(3));
        assert_eq!(actual.evicted_clusters, Vec::<String>::new());
        assert_eq!(actual.next_deadline, Some(at(63)));
        for kept in actual.kept_tasks {
            assert_eq!(kept.creation_timestamp, Some(rfc3339_seconds(at(3))));
        }
    }
}
