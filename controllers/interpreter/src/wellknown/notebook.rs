//! Third-party rules of Kubeflow's Notebook: a single pod.

use machinery::time::rfc3339_seconds;
use serde_json::{Value, json};

use super::generations::copied;
use super::pods::needs_at;
use super::tree::{Error, Fields, at, number_or_zero, put, set, text};
use super::{Aggregate, Rules, Told};
use crate::native::Replicas;

pub(super) static NOTEBOOK: Rules = Rules {
    healthy: Some(healthy),
    replicas: Some(|notebook| {
        Ok(Replicas {
            count: 1,
            requirements: needs_at(notebook, "/spec/template")?,
        })
    }),
    reflect: Some(|observed| {
        let mut status = copied(
            observed,
            &[&["readyReplicas", "containerState", "conditions"]],
        );
        let unknown = status.get("readyReplicas").is_none_or(Value::is_null);
        if at(observed, "/status").is_some() && unknown {
            status.insert("readyReplicas".into(), 0.into());
        }
        status
    }),
    aggregate: Some(Aggregate {
        sole: true,
        ..Aggregate::new(aggregate)
    }),
    ..Rules::NONE
};

fn healthy(observed: &Value) -> Result<bool, Error> {
    let Some(state) = at(observed, "/status/containerState") else {
        return Ok(false);
    };
    if at(state, "/running").is_some() {
        return Ok(true);
    }
    if let Some(waiting) = at(state, "/waiting") {
        return Ok(text(waiting, "/reason") == Some("ContainerCreating"));
    }
    let Some(ended) = at(state, "/terminated") else {
        return Ok(false);
    };
    let reason = text(ended, "/reason").unwrap_or_default();
    let bad = ["Error", "OOMKilled", "ContainerCannotRun"].contains(&reason);
    Ok(!bad && number_or_zero(ended, "/exitCode")? == 0.0)
}

/// Accumulates the states of the notebook in all clusters.
#[derive(Default)]
struct Shown<'a> {
    failed: Vec<&'a str>,
    running: usize,
    state: Option<Value>,
    started: Option<&'a Value>,
}

impl<'a> Shown<'a> {
    fn add(&mut self, cluster: &'a str, status: &'a Value) {
        let state = at(status, "/containerState");
        let state = state.filter(|state| state.as_object().is_none_or(|s| !s.is_empty()));
        let runs = |state: &&Value| {
            ["/terminated", "/waiting"]
                .iter()
                .all(|end| at(state, end).is_none())
        };
        match state.filter(runs) {
            Some(state) => self.run(state),
            None => {
                self.failed.push(cluster);
                let none = || json!({"waiting": {"reason": "Unschedulable"}});
                self.state = Some(state.cloned().unwrap_or_else(none));
            }
        }
    }

    /// Running notebooks are ignored after a failed one.
    fn run(&mut self, state: &'a Value) {
        let Some(running) = at(state, "/running").filter(|_| self.failed.is_empty()) else {
            return;
        };
        self.running += 1;
        let started = at(running, "/startedAt");
        let later = started.and_then(Value::as_str) > self.started.and_then(Value::as_str);
        if self.state.is_none() || later {
            self.started = started;
            self.state = Some(json!({"running": {"startedAt": started}}));
        }
    }
}

fn aggregate(status: &mut Fields, input: &Told<'_>) -> Result<(), Error> {
    let mut shown = Shown::default();
    for (cluster, reported) in input.items.told() {
        shown.add(cluster, reported);
    }
    let mut conditions = Vec::new();
    let mut hold = |kind: &str, reason: &str, message: String| {
        let now = rfc3339_seconds(input.now);
        let mut condition =
            json!({"type": kind, "status": "True", "reason": reason, "message": message});
        put(&mut condition, "lastProbeTime", now.as_str().into());
        put(&mut condition, "lastTransitionTime", now.into());
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
    set(status, "containerState", shown.state);
    Ok(())
}
