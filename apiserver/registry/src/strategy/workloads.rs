//! Workloads and their kin: the status they begin with, as typed encoders print
//! it, and what raises their generation.

use serde_json::{Value, json};

use super::{Generation, PLAIN, Strategy};

const fn with(generation: Generation, create: fn(&mut Value)) -> Strategy {
    Strategy {
        generation,
        create,
        ..PLAIN
    }
}

pub(super) static DEPLOYMENT: Strategy = with(Generation::SpecOrAnnotations, |new| {
    new["status"] = json!({})
});
pub(super) static REPLICA_SET: Strategy = with(Generation::Spec, |new| {
    new["status"] = json!({"replicas": 0})
});
pub(super) static STATEFUL_SET: Strategy = with(Generation::Spec, |new| {
    new["status"] = json!({"availableReplicas": 0, "replicas": 0});
});
pub(super) static DAEMON_SET: Strategy = with(Generation::Spec, |new| {
    new["status"] = json!({"currentNumberScheduled": 0, "desiredNumberScheduled": 0,
                           "numberMisscheduled": 0, "numberReady": 0});
});
pub(super) static CRON_JOB: Strategy = with(Generation::Spec, |new| new["status"] = json!({}));
pub(super) static AUTOSCALER: Strategy = with(Generation::Absent, |new| {
    new["status"] = json!({"currentMetrics": null, "desiredReplicas": 0});
});
pub(super) static INGRESS: Strategy = with(Generation::Spec, |new| {
    new["status"] = json!({"loadBalancer": {}})
});
pub(super) static DISRUPTION_BUDGET: Strategy = with(Generation::Spec, |new| {
    new["status"] = json!({"currentHealthy": 0, "desiredHealthy": 0,
                           "disruptionsAllowed": 0, "expectedPods": 0});
});
pub(super) static CLAIM: Strategy = with(Generation::Absent, |new| {
    new["status"] = json!({"phase": "Pending"})
});
