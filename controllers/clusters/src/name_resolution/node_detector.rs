//! Looks a name up on one node of a member, and keeps the outcome as a condition of the Node.

use std::sync::Arc;
use std::time::Duration;

use client::{Api, Error, Informer, InformerFactory, ListWatchSelector, TaskGroup};
use flotilla_runtime::StatusWriter;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use karmada_api::well_known_keys::SERVICE_NAME_RESOLUTION_CONDITION;
use machinery::FailureLogLimiter;
use machinery::time::{Clock, rfc3339_seconds};
use serde_json::{Value, json};
use tokio::time::MissedTickBehavior;

use super::options::{FAILED, NODES, NameResolutionOptions};
use crate::status::ready_thresholds::{LastReadyObservation, ReadyThresholds};

/// The longest that one lookup may take, whatever the period.
const MAX_LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest error text in a condition.
const MAX_ERROR_CHARACTERS: usize = 256;

/// Looks the name up once; the error says why it has failed.
pub type NameLookup = Box<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// The detector of a node.
pub struct NodeNameResolutionDetector {
    /// The member's API.
    pub member: Arc<dyn Api>,
    pub node: String,
    pub lookup: NameLookup,
    pub options: NameResolutionOptions,
    pub clock: Arc<dyn Clock>,
}

/// The detector at work.
struct RunningNodeDetector {
    detector: NodeNameResolutionDetector,
    nodes: Informer,
    last: LastReadyObservation,
    /// The lookup that has not ended in time. No other begins before it ends, so that lookups
    /// that hang do not pile up.
    pending: Option<BoxFuture<'static, Result<(), String>>>,
    failures: FailureLogLimiter,
}

impl NodeNameResolutionDetector {
    /// Detects until the tasks stop.
    pub fn run(self, tasks: &TaskGroup) {
        let informers = InformerFactory::new(tasks);
        let own = format!("metadata.name={}", self.node);
        let select = ListWatchSelector::all(&NODES).fields(own);
        let running = RunningNodeDetector {
            nodes: informers.get(&self.member, &select),
            detector: self,
            last: LastReadyObservation::default(),
            pending: None,
            failures: FailureLogLimiter::new(),
        };
        let shutdown = tasks.shutdown().clone();
        tasks.spawn(async move {
            shutdown.run_until_triggered(running.detect()).await;
            // The informer runs as long.
            drop(informers);
        });
    }
}

impl RunningNodeDetector {
    async fn detect(mut self) {
        self.nodes.wait_for_cache_sync().await;
        let mut ticks = tokio::time::interval(self.detector.options.period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let observed = self.look_up().await;
            match self.record(observed).await {
                Ok(()) => _ = self.failures.record_success(&self.detector.node),
                Err(error) => {
                    let (node, error) = (&self.detector.node, error.to_string());
                    if self.failures.record_failure(node, &error) {
                        tracing::warn!(node, error, "the condition of the node is not written");
                    }
                }
            }
        }
    }

    async fn look_up(&mut self) -> Result<(), String> {
        let timeout = self.detector.options.period.min(MAX_LOOKUP_TIMEOUT);
        let lookup = &self.detector.lookup;
        let pending = self.pending.get_or_insert_with(lookup);
        match tokio::time::timeout(timeout, pending).await {
            Ok(outcome) => {
                self.pending = None;
                outcome
            }
            Err(_) => Err(format!("no answer within {} s", timeout.as_secs_f64())),
        }
    }

    /// Writes the condition if it changes, and as often as its age requires.
    async fn record(&mut self, observed: Result<(), String>) -> Result<(), Error> {
        let NodeNameResolutionDetector {
            member,
            node,
            options,
            clock,
            ..
        } = &self.detector;
        let Some(object) = self.nodes.get("", node) else {
            let missing = format!("node {node:?} not found; --host-name names it");
            return Err(Error::Protocol(missing));
        };
        let now = clock.now();
        let mut status = object.value()?["status"].take();
        let conditions = &mut status["conditions"];
        let current = condition_of(conditions);
        let shown = current.and_then(|c| c["status"].as_str());
        let thresholds = ReadyThresholds {
            success: options.success_threshold,
            failure: options.failure_threshold,
        };
        let reports = self
            .last
            .should_report(observed.is_ok(), shown, now, thresholds);
        let desired = match (reports, current) {
            (false, Some(current)) => current.clone(),
            _ => node_condition(observed),
        };
        let is_same = current.is_some_and(|current| {
            (&current["status"], &current["reason"]) == (&desired["status"], &desired["reason"])
        });
        // Two reports may be lost before the condition is stale.
        let is_fresh = age(current, now).is_some_and(|age| age < options.stale_threshold / 3);
        set_node_condition(conditions, desired, now);
        let changed = (!is_same || !is_fresh).then_some(status);
        let writer = StatusWriter::new(&**member, "service-name-resolution");
        match writer.update(&NODES, &object, changed).await {
            // The kubelet has written meanwhile: the next lookup reports.
            Err(error) if error.is_conflict() => Ok(()),
            other => other.map(drop),
        }
    }
}

fn condition_of(conditions: &Value) -> Option<&Value> {
    let mut all = conditions.as_array().into_iter().flatten();
    all.find(|condition| condition["type"] == SERVICE_NAME_RESOLUTION_CONDITION)
}

/// How long ago the condition was reported.
fn age(condition: Option<&Value>, now: Timestamp) -> Option<Duration> {
    let reported: Timestamp = condition?["lastHeartbeatTime"].as_str()?.parse().ok()?;
    Duration::try_from(now.duration_since(reported)).ok()
}

/// Without its times. A success has no reason, as Karmada's.
fn node_condition(observed: Result<(), String>) -> Value {
    match observed {
        Ok(()) => json!({"type": SERVICE_NAME_RESOLUTION_CONDITION, "status": "True"}),
        Err(reason) => {
            let message: String = reason.chars().take(MAX_ERROR_CHARACTERS).collect();
            json!({"type": SERVICE_NAME_RESOLUTION_CONDITION, "status": "False",
                "reason": FAILED, "message": message})
        }
    }
}

fn set_node_condition(conditions: &mut Value, mut desired: Value, now: Timestamp) {
    let now = Value::from(rfc3339_seconds(now));
    let current = condition_of(conditions);
    let same_status = current.filter(|current| current["status"] == desired["status"]);
    let transition = same_status.map(|current| current["lastTransitionTime"].clone());
    desired["lastTransitionTime"] = match transition {
        Some(time @ Value::String(_)) => time,
        _ => now.clone(),
    };
    desired["lastHeartbeatTime"] = now;
    let Some(all) = conditions.as_array_mut() else {
        *conditions = json!([desired]);
        return;
    };
    all.retain(|condition| condition["type"] != SERVICE_NAME_RESOLUTION_CONDITION);
    all.push(desired);
}
