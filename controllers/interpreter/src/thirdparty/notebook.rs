//! Third-party rules of Kubeflow's Notebook: a single pod.

use machinery::time::rfc3339_seconds;
use serde_json::{Value, json};

use super::json_map::{
    Error, JsonMap, number_or_zero, set_field, set_or_remove, string_at, value_at,
};
use super::observed_generation::copy_status_fields;
use super::pod_templates::requirements_at;
use super::{AggregationInput, StatusAggregation, ThirdPartyKindRules};
use crate::native::TemplateReplicas;

pub(super) static NOTEBOOK: ThirdPartyKindRules = ThirdPartyKindRules {
    interpret_health: Some(is_healthy),
    replicas: Some(|notebook| {
        Ok(TemplateReplicas {
            count: 1,
            requirements: requirements_at(notebook, "/spec/template")?,
        })
    }),
    reflect_status: Some(|observed| {
        let mut status = copy_status_fields(
            observed,
            &[&["readyReplicas", "containerState", "conditions"]],
        );
        let unknown = status.get("readyReplicas").is_none_or(Value::is_null);
        if value_at(observed, "/status").is_some() && unknown {
            status.insert("readyReplicas".into(), 0.into());
        }
        status
    }),
    aggregate_status: Some(StatusAggregation {
        copies_single_item: true,
        ..StatusAggregation::new(aggregate)
    }),
    ..ThirdPartyKindRules::NONE
};

fn is_healthy(observed: &Value) -> Result<bool, Error> {
    let Some(state) = value_at(observed, "/status/containerState") else {
        return Ok(false);
    };
    if value_at(state, "/running").is_some() {
        return Ok(true);
    }
    if let Some(waiting) = value_at(state, "/waiting") {
        return Ok(string_at(waiting, "/reason") == Some("ContainerCreating"));
    }
    let Some(ended) = value_at(state, "/terminated") else {
        return Ok(false);
    };
    let reason = string_at(ended, "/reason").unwrap_or_default();
    let bad = ["Error", "OOMKilled", "ContainerCannotRun"].contains(&reason);
    Ok(!bad && number_or_zero(ended, "/exitCode")? == 0.0)
}

/// Accumulates the states of the notebook in all clusters.
#[derive(Default)]
struct NotebookStateAccumulator<'a> {
    failed: Vec<&'a str>,
    running: usize,
    state: Option<Value>,
    started: Option<&'a Value>,
}

impl<'a> NotebookStateAccumulator<'a> {
    fn add(&mut self, cluster: &'a str, status: &'a Value) {
        let state = value_at(status, "/containerState");
        let state = state.filter(|state| state.as_object().is_none_or(|s| !s.is_empty()));
        let runs = |state: &&Value| {
            ["/terminated", "/waiting"]
                .iter()
                .all(|end| value_at(state, end).is_none())
        };
        match state.filter(runs) {
            Some(state) => self.add_running(state),
            None => {
                self.failed.push(cluster);
                let none = || json!({"waiting": {"reason": "Unschedulable"}});
                self.state = Some(state.cloned().unwrap_or_else(none));
            }
        }
    }

    /// Running notebooks are ignored after a failed one.
    fn add_running(&mut self, state: &'a Value) {
        let Some(running) = value_at(state, "/running").filter(|_| self.failed.is_empty()) else {
            return;
        };
        self.running += 1;
        let started = value_at(running, "/startedAt");
        let later = started.and_then(Value::as_str) > self.started.and_then(Value::as_str);
        if self.state.is_none() || later {
            self.started = started;
            self.state = Some(json!({"running": {"startedAt": started}}));
        }
    }
}

fn aggregate(status: &mut JsonMap, input: &AggregationInput<'_>) -> Result<(), Error> {
    let mut shown = NotebookStateAccumulator::default();
    for (cluster, reported) in input.items.reported() {
        shown.add(cluster, reported);
    }
    let mut conditions = Vec::new();
    let mut hold = |kind: &str, reason: &str, message: String| {
        let now = rfc3339_seconds(input.now);
        let mut condition =
            json!({"type": kind, "status": "True", "reason": reason, "message": message});
        set_field(&mut condition, "lastProbeTime", now.as_str().into());
        set_field(&mut condition, "lastTransitionTime", now.into());
        conditions.push(condition);
    };
    if !shown.failed.is_empty() {
        let clusters = shown.failed.join(", ");
        let message = format!("Notebook executed failed in member clusters: {clusters}");
        hold("Failed", "NotebookFailed", message);
    }
    if shown.running > 0 && shown.running == input.items.len() {
        hold("Ready", "Ready", "All notebooks are ready".into());
    }
    status.clear();
    status.insert("readyReplicas".into(), input.items.sum("/readyReplicas")?);
    status.insert("conditions".into(), conditions.into());
    set_or_remove(status, "containerState", shown.state);
    Ok(())
}
