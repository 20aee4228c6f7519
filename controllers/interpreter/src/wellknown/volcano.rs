//! Third-party rules of Volcano's Job, which has a pod template per task.

use machinery::time::rfc3339_seconds;
use openapi::karmada::binding::Component;
use serde_json::{Map, Value, json};

use super::generations::copied;
use super::idle::{idle, without};
use super::items::Items;
use super::kruise::sums;
use super::pods::{component, needs_at};
use super::tree::{
    Error, Fields, at, entries, list, number, number_or_zero, readable_number, said, text,
};
use super::{Aggregate, Rules, Told};

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
const REST: &[&str] = &[
    "version",
    "runningDuration",
    "taskStatusCount",
    "controlledResources",
    "state",
    "conditions",
];

/// All phases but Failed.
const HEALTHY: [&str; 9] = [
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
const WRONG: [&str; 5] = ["Failed", "Aborted", "Aborting", "Terminated", "Terminating"];

pub(super) static JOB: Rules = Rules {
    healthy: Some(|observed| {
        let phase = text(observed, "/status/state/phase");
        Ok(phase.is_some_and(|phase| HEALTHY.contains(&phase)))
    }),
    components: Some(components),
    reflect: Some(|observed| copied(observed, &[COUNTERS, REST])),
    aggregate: Some(Aggregate {
        sole: true,
        ..Aggregate::new(aggregate)
    }),
    ..Rules::NONE
};

fn components(job: &Value) -> Result<Vec<Component>, Error> {
    let tasks = list(job, "/spec/tasks").iter().enumerate();
    let each = tasks.map(|(at, task)| {
        let name = said(task, "/name").map(str::to_owned);
        let name = name.unwrap_or_else(|| format!("task-{at}"));
        let replicas = readable_number(task.get("minAvailable")).unwrap_or(1.0);
        component(&name, replicas, needs_at(task, "/template")?)
    });
    each.collect()
}

fn aggregate(status: &mut Fields, input: &Told<'_>) -> Result<(), Error> {
    let items = &input.items;
    let mut aggregated = Map::new();
    sums(&mut aggregated, items, COUNTERS)?;
    aggregated.insert("version".into(), version(items)?);
    aggregated.insert("taskStatusCount".into(), tasks(items)?);
    let mut controlled = Map::new();
    for (_, reported) in items.told() {
        for (key, value) in entries(reported, "/controlledResources") {
            controlled.insert(key.clone(), value.clone());
        }
    }
    aggregated.insert("controlledResources".into(), controlled.into());
    aggregated.insert("runningDuration".into(), longest(items)?);
    aggregated.insert("state".into(), state(input));
    aggregated.insert("conditions".into(), conditions(items)?.into());
    *status = match without(aggregated.into(), idle) {
        Some(Value::Object(aggregated)) => aggregated,
        _ => Map::new(),
    };
    Ok(())
}

fn version(items: &Items<'_>) -> Result<Value, Error> {
    let mut greatest = 0.0_f64;
    for (_, reported) in items.told() {
        greatest = greatest.max(number_or_zero(reported, "/version")?);
    }
    Ok(number(greatest))
}

/// The number of pods per task and phase.
fn tasks(items: &Items<'_>) -> Result<Value, Error> {
    let mut all = json!({});
    for (_, reported) in items.told() {
        for (task, counts) in entries(reported, "/taskStatusCount") {
            for (phase, count) in entries(counts, "/phase") {
                let sum = &mut all[task]["phase"][phase];
                let count = count.as_f64().ok_or_else(|| Error::Field {
                    path: format!("status.taskStatusCount.{task}.phase.{phase}"),
                    expected: "a number",
                })?;
                *sum = number(sum.as_f64().unwrap_or(0.0) + count);
            }
        }
    }
    Ok(all)
}

fn longest(items: &Items<'_>) -> Result<Value, Error> {
    let mut longest = (0.0, Value::Null);
    for (_, reported) in items.told() {
        if let Some(duration) = at(reported, "/runningDuration") {
            let seconds = seconds(duration)?;
            if seconds > longest.0 {
                longest = (seconds, duration.clone());
            }
        }
    }
    Ok(longest.1)
}

/// The seconds of a duration like `1h2m3.5s`. Every number directly before an h, m or s counts.
fn seconds(duration: &Value) -> Result<f64, Error> {
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
    Ok(readable_number(Some(duration)).unwrap_or(0.0))
}

/// The state, if the job failed in a cluster or completed in all; else null.
fn state(input: &Told<'_>) -> Value {
    let phases = || {
        let each = input.items.told();
        each.map(|(cluster, reported)| (cluster, text(reported, "/state/phase")))
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
fn conditions(items: &Items<'_>) -> Result<Vec<Value>, Error> {
    let of = |reported| list(reported, "/conditions");
    let wrong = |c: &Value| text(c, "/status").is_some_and(|status| WRONG.contains(&status));
    let mut all = items.told().map(|(_, reported)| of(reported));
    if let Some(gone_wrong) = all.find(|conditions| conditions.iter().any(wrong)) {
        return Ok(gone_wrong.to_vec());
    }
    let mut latest: Vec<&Value> = Vec::new();
    for condition in items.told().flat_map(|(_, reported)| of(reported)) {
        let status = at(condition, "/status");
        match latest.iter_mut().find(|c| at(c, "/status") == status) {
            Some(known) => {
                if transition(condition)? > transition(known)? {
                    *known = condition;
                }
            }
            None => latest.push(condition),
        }
    }
    Ok(latest.into_iter().cloned().collect())
}

fn transition(condition: &Value) -> Result<&str, Error> {
    text(condition, "/lastTransitionTime").ok_or_else(|| Error::Field {
        path: "status.conditions".into(),
        expected: "lastTransitionTime in each of them",
    })
}
