//! Third-party rules of Volcano's Job, which has a pod template per task.

use karmada_api::binding::Component;
use machinery::time::rfc3339_seconds;
use serde_json::{Map, Value, json};

use super::collected_statuses::CollectedStatuses;
use super::json_map::{
    Error, JsonMap, fields_at, json_number, lenient_number, list_at, non_empty_string_at,
    number_or_zero, string_at, value_at,
};
use super::kruise::sum_counters;
use super::observed_generation::copy_status_fields;
use super::pod_templates::{new_component, requirements_at};
use super::zero_values::{is_zero_value, prune_values};
use super::{AggregationInput, StatusAggregation, ThirdPartyKindRules};

const COUNTERS: &[&str] = &[
    "minAvailable",
    "pending",
    "running",
    "succeeded",
    "failed",
    "terminating",
    "unknown",
    "retryCount",
];
const OTHER_STATUS_FIELDS: &[&str] = &[
    "version",
    "runningDuration",
    "taskStatusCount",
    "controlledResources",
    "state",
    "conditions",
];

/// All phases but Failed.
const HEALTHY_PHASES: [&str; 9] = [
    "Pending",
    "Running",
    "Completing",
    "Completed",
    "Aborting",
    "Aborted",
    "Restarting",
    "Terminating",
    "Terminated",
];

/// Condition statuses of a job that failed or was stopped.
const FAILURE_STATUSES: [&str; 5] = ["Failed", "Aborted", "Aborting", "Terminated", "Terminating"];

pub(super) static VOLCANO_JOB: ThirdPartyKindRules = ThirdPartyKindRules {
    interpret_health: Some(|observed| {
        let phase = string_at(observed, "/status/state/phase");
        Ok(phase.is_some_and(|phase| HEALTHY_PHASES.contains(&phase)))
    }),
    components: Some(components),
    reflect_status: Some(|observed| copy_status_fields(observed, &[COUNTERS, OTHER_STATUS_FIELDS])),
    aggregate_status: Some(StatusAggregation {
        copies_single_item: true,
        ..StatusAggregation::new(aggregate)
    }),
    ..ThirdPartyKindRules::NONE
};

fn components(job: &Value) -> Result<Vec<Component>, Error> {
    let tasks = list_at(job, "/spec/tasks").iter().enumerate();
    let each = tasks.map(|(at, task)| {
        let name = non_empty_string_at(task, "/name").map(str::to_owned);
        let name = name.unwrap_or_else(|| format!("task-{at}"));
        let replicas = lenient_number(task.get("minAvailable")).unwrap_or(1.0);
        new_component(&name, replicas, requirements_at(task, "/template")?)
    });
    each.collect()
}

fn aggregate(status: &mut JsonMap, input: &AggregationInput<'_>) -> Result<(), Error> {
    let items = &input.items;
    let mut aggregated = Map::new();
    sum_counters(&mut aggregated, items, COUNTERS)?;
    aggregated.insert("version".into(), highest_version(items)?);
    aggregated.insert("taskStatusCount".into(), task_status_counts(items)?);
    let mut controlled = Map::new();
    for (_, reported) in items.reported() {
        for (key, value) in fields_at(reported, "/controlledResources") {
            controlled.insert(key.clone(), value.clone());
        }
    }
    aggregated.insert("controlledResources".into(), controlled.into());
    aggregated.insert("runningDuration".into(), longest_duration(items)?);
    aggregated.insert("state".into(), job_state(input));
    aggregated.insert("conditions".into(), aggregate_conditions(items)?.into());
    *status = match prune_values(aggregated.into(), is_zero_value) {
        Some(Value::Object(aggregated)) => aggregated,
        _ => Map::new(),
    };
    Ok(())
}

fn highest_version(items: &CollectedStatuses<'_>) -> Result<Value, Error> {
    let mut greatest = 0.0_f64;
    for (_, reported) in items.reported() {
        greatest = greatest.max(number_or_zero(reported, "/version")?);
    }
    Ok(json_number(greatest))
}

/// The number of pods per task and phase.
fn task_status_counts(items: &CollectedStatuses<'_>) -> Result<Value, Error> {
    let mut all = json!({});
    for (_, reported) in items.reported() {
        for (task, counts) in fields_at(reported, "/taskStatusCount") {
            for (phase, count) in fields_at(counts, "/phase") {
                let sum = &mut all[task]["phase"][phase];
                let count = count.as_f64().ok_or_else(|| Error::Field {
                    path: format!("status.taskStatusCount.{task}.phase.{phase}"),
                    expected: "a number",
                })?;
                *sum = json_number(sum.as_f64().unwrap_or(0.0) + count);
            }
        }
    }
    Ok(all)
}

fn longest_duration(items: &CollectedStatuses<'_>) -> Result<Value, Error> {
    let mut longest = (0.0, Value::Null);
    for (_, reported) in items.reported() {
        if let Some(duration) = value_at(reported, "/runningDuration") {
            let seconds = duration_seconds(duration)?;
            if seconds > longest.0 {
                longest = (seconds, duration.clone());
            }
        }
    }
    Ok(longest.1)
}

/// The seconds of a duration like `1h2m3.5s`. Every number directly before an h, m or s counts.
fn duration_seconds(duration: &Value) -> Result<f64, Error> {
    let text = match duration {
        Value::String(text) => text,
        other => return Ok(other.as_f64().unwrap_or(0.0)),
    };
    let mut sum = 0.0;
    let mut digits = String::new();
    for letter in text.chars() {
        if letter.is_ascii_digit() || letter == '.' {
            digits.push(letter);
            continue;
        }
        let unit = match letter {
            'h' => 3600.0,
            'm' => 60.0,
            's' => 1.0,
            _ => 0.0,
        };
        if unit > 0.0 && !digits.is_empty() {
            let amount: Result<f64, _> = digits.parse();
            sum += unit
                * amount.map_err(|_| Error::Field {
                    path: "status.runningDuration".into(),
                    expected: "a duration",
                })?;
        }
        digits.clear();
    }
    if sum > 0.0 {
        return Ok(sum);
    }
    Ok(lenient_number(Some(duration)).unwrap_or(0.0))
}

/// The state, if the job failed in a cluster or completed in all; else null.
fn job_state(input: &AggregationInput<'_>) -> Value {
    let phases = || {
        let each = input.items.reported();
        each.map(|(cluster, reported)| (cluster, string_at(reported, "/state/phase")))
    };
    let failed = phases().filter(|(_, phase)| matches!(phase, Some("Failed" | "Aborted")));
    let failed: Vec<&str> = failed.map(|(cluster, _)| cluster).collect();
    let completed = phases().filter(|(_, phase)| *phase == Some("Completed"));
    let state = |phase: &str, reason: &str, message: String| {
        json!({"phase": phase, "reason": reason,
        "message": message, "lastTransitionTime": rfc3339_seconds(input.now)})
    };
    if !failed.is_empty() {
        let message = format!("Job failed in clusters: {}", failed.join(","));
        return state("Failed", "VolcanoJobFailed", message);
    }
    if !input.items.is_empty() && completed.count() == input.items.len() {
        return state(
            "Completed",
            "Completed",
            "Job completed successfully".into(),
        );
    }
    Value::Null
}

/// The conditions of the first cluster where the job failed or was stopped, else the latest
/// condition of each status.
fn aggregate_conditions(items: &CollectedStatuses<'_>) -> Result<Vec<Value>, Error> {
    let of = |reported| list_at(reported, "/conditions");
    let wrong = |c: &Value| {
        string_at(c, "/status").is_some_and(|status| FAILURE_STATUSES.contains(&status))
    };
    let mut all = items.reported().map(|(_, reported)| of(reported));
    if let Some(gone_wrong) = all.find(|conditions| conditions.iter().any(wrong)) {
        return Ok(gone_wrong.to_vec());
    }
    let mut latest: Vec<&Value> = Vec::new();
    for condition in items.reported().flat_map(|(_, reported)| of(reported)) {
        let status = value_at(condition, "/status");
        match latest.iter_mut().find(|c| value_at(c, "/status") == status) {
            Some(newest) => {
                if transition_time(condition)? > transition_time(newest)? {
                    *newest = condition;
                }
            }
            None => latest.push(condition),
        }
    }
    Ok(latest.into_iter().cloned().collect())
}

fn transition_time(condition: &Value) -> Result<&str, Error> {
    string_at(condition, "/lastTransitionTime").ok_or_else(|| Error::Field {
        path: "status.conditions".into(),
        expected: "lastTransitionTime in each of them",
    })
}
