//! The strategies of workloads and related kinds: their initial status, as typed encoders
//! write it, and which changes raise their generation.

use serde_json::{Value, json};

use super::{DEFAULT_STRATEGY, GenerationPolicy, RestStrategy};

const fn strategy_with(generation: GenerationPolicy, create: fn(&mut Value)) -> RestStrategy {
    RestStrategy {
        generation,
        create,
        ..DEFAULT_STRATEGY
    }
}

/// The status of a kind whose Go type has only fields that are left out when empty.
pub(super) fn empty_status(new: &mut Value) {
    new["status"] = json!({});
}

pub(super) static DEPLOYMENT: RestStrategy =
    strategy_with(GenerationPolicy::SpecOrAnnotations, empty_status);
pub(super) static REPLICA_SET: RestStrategy = strategy_with(GenerationPolicy::Spec, |new| {
    new["status"] = json!({"replicas": 0})
});
pub(super) static STATEFUL_SET: RestStrategy = strategy_with(GenerationPolicy::Spec, |new| {
    new["status"] = json!({"availableReplicas": 0, "replicas": 0});
});
pub(super) static DAEMON_SET: RestStrategy = RestStrategy {
    generation: GenerationPolicy::Spec,
    create: |new| {
        new["status"] = json!({"currentNumberScheduled": 0, "desiredNumberScheduled": 0,
                               "numberMisscheduled": 0, "numberReady": 0});
        set_template_generation(new, 1);
    },
    update: |new, old| {
        let before = old["metadata"]["annotations"][TEMPLATE_GENERATION_ANNOTATION].as_str();
        let before: i64 = before.and_then(|n| n.parse().ok()).unwrap_or(1);
        let changed = new["spec"]["template"] != old["spec"]["template"];
        set_template_generation(new, before + i64::from(changed));
    },
    ..DEFAULT_STRATEGY
};

/// The annotation with the template generation of a DaemonSet, formerly a field
/// (`apis/apps/v1/conversion.go`).
const TEMPLATE_GENERATION_ANNOTATION: &str = "deprecated.daemonset.template.generation";

fn set_template_generation(new: &mut Value, count: i64) {
    if !new["metadata"]["annotations"].is_object() {
        new["metadata"]["annotations"] = json!({});
    }
    new["metadata"]["annotations"][TEMPLATE_GENERATION_ANNOTATION] = count.to_string().into();
}
pub(super) static CRON_JOB: RestStrategy = strategy_with(GenerationPolicy::Spec, empty_status);
pub(super) static HORIZONTAL_POD_AUTOSCALER: RestStrategy =
    strategy_with(GenerationPolicy::Absent, |new| {
        new["status"] = json!({"currentMetrics": null, "desiredReplicas": 0});
    });
pub(super) static INGRESS: RestStrategy = strategy_with(GenerationPolicy::Spec, |new| {
    new["status"] = json!({"loadBalancer": {}})
});
pub(super) static POD_DISRUPTION_BUDGET: RestStrategy =
    strategy_with(GenerationPolicy::Spec, |new| {
        new["status"] = json!({"currentHealthy": 0, "desiredHealthy": 0,
                           "disruptionsAllowed": 0, "expectedPods": 0});
    });
pub(super) static REPLICATION_CONTROLLER: RestStrategy =
    strategy_with(GenerationPolicy::Spec, |new| {
        new["status"] = json!({"replicas": 0})
    });
pub(super) static PERSISTENT_VOLUME: RestStrategy =
    strategy_with(GenerationPolicy::Absent, |new| {
        let now = new["metadata"]["creationTimestamp"].clone();
        new["status"] = json!({"lastPhaseTransitionTime": now, "phase": "Pending"});
    });
pub(super) static VOLUME_ATTACHMENT: RestStrategy =
    strategy_with(GenerationPolicy::Absent, |new| {
        new["status"] = json!({"attached": false})
    });
pub(super) static RESOURCE_QUOTA: RestStrategy =
    strategy_with(GenerationPolicy::Absent, empty_status);
pub(super) static FLOW_CONTROL: RestStrategy = strategy_with(GenerationPolicy::Spec, empty_status);
pub(super) static PERSISTENT_VOLUME_CLAIM: RestStrategy =
    strategy_with(GenerationPolicy::Absent, |new| {
        new["status"] = json!({"phase": "Pending"})
    });
