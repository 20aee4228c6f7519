//! The strategies of workloads and related kinds: their initial status, as typed encoders
//! write it, and which changes raise their generation.

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
pub(super) static DAEMON_SET: Strategy = Strategy {
    generation: Generation::Spec,
    create: |new| {
        new["status"] = json!({"currentNumberScheduled": 0, "desiredNumberScheduled": 0,
                               "numberMisscheduled": 0, "numberReady": 0});
        count_templates(new, 1);
    },
    update: |new, old| {
        let before = old["metadata"]["annotations"][TEMPLATES].as_str();
        let before: i64 = before.and_then(|n| n.parse().ok()).unwrap_or(1);
        let changed = new["spec"]["template"] != old["spec"]["template"];
        count_templates(new, before + i64::from(changed));
    },
    ..PLAIN
};

/// The annotation with the template generation of a DaemonSet, formerly a field
/// (`apis/apps/v1/conversion.go`).
const TEMPLATES: &str = "deprecated.daemonset.template.generation";

fn count_templates(new: &mut Value, count: i64) {
    if !new["metadata"]["annotations"].is_object() {
        new["metadata"]["annotations"] = json!({});
    }
    new["metadata"]["annotations"][TEMPLATES] = count.to_string().into();
}
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
