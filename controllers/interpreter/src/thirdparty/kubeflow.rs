//! Third-party rules of Kubeflow's PyTorchJob and TFJob, which have a pod template per replica type.

use karmada_api::DependentObjectReference;
use karmada_api::binding::Component;
use machinery::time::rfc3339_seconds;
use serde_json::{Map, Value, json};

use super::collected_statuses::{CollectedStatuses, condition_is};
use super::json_map::{
    Error, JsonMap, lenient_number, list_at, set_or_remove, string_at, value_at,
};
use super::pod_templates::{
    namespace_or_default, new_component, pod_template_dependencies, pod_template_requirements,
};
use super::zero_values::{is_zero_value, prune_values};
use super::{AggregationInput, StatusAggregation, ThirdPartyKindRules};

/// The replica types of a kind, and the JSON pointer of their specs.
struct ReplicaTypes {
    pointer: &'static str,
    names: &'static [&'static str],
}

const PYTORCH_REPLICA_TYPES: ReplicaTypes = ReplicaTypes {
    pointer: "/spec/pytorchReplicaSpecs",
    names: &["Master", "Worker"],
};

const TF_REPLICA_TYPES: ReplicaTypes = ReplicaTypes {
    pointer: "/spec/tfReplicaSpecs",
    names: &["PS", "Worker", "Chief", "Master", "Evaluator"],
};

pub(super) static PYTORCH_JOB: ThirdPartyKindRules = ThirdPartyKindRules {
    interpret_health: Some(|observed| Ok(is_healthy(observed))),
    components: Some(|job| components(job, &PYTORCH_REPLICA_TYPES)),
    dependencies: Some(|job| Ok(dependencies(job, &PYTORCH_REPLICA_TYPES))),
    aggregate_status: Some(StatusAggregation {
        without_items: |status, _| clear_status(status),
        ..StatusAggregation::new(|status, input| {
            if input.items.is_empty() {
                clear_status(status);
                return Ok(());
            }
            aggregate(
                status,
                input,
                &PYTORCH_REPLICA_TYPES,
                pytorch_job_outcome,
                pytorch_conditions,
            )
        })
    }),
    ..ThirdPartyKindRules::NONE
};

pub(super) static TF_JOB: ThirdPartyKindRules = ThirdPartyKindRules {
    interpret_health: Some(|observed| Ok(is_healthy(observed))),
    components: Some(|job| components(job, &TF_REPLICA_TYPES)),
    dependencies: Some(|job| Ok(dependencies(job, &TF_REPLICA_TYPES))),
    aggregate_status: Some(StatusAggregation {
        without_items: |status, _| clear_status(status),
        ..StatusAggregation::new(|status, input| {
            aggregate(
                status,
                input,
                &TF_REPLICA_TYPES,
                tf_job_outcome,
                tf_conditions,
            )
        })
    }),
    ..ThirdPartyKindRules::NONE
};

fn is_healthy(observed: &Value) -> bool {
    let mut conditions = list_at(observed, "/status/conditions").iter();
    value_at(observed, "/status/conditions").is_some()
        && !conditions.any(|c| condition_is(c, "Failed", "True"))
}

impl ReplicaTypes {
    fn specs<'a>(&self, job: &'a Value) -> impl Iterator<Item = (&'static str, &'a Value)> {
        let specs = value_at(job, self.pointer);
        let names = self.names.iter();
        names.filter_map(move |name| {
            let spec = specs?.get(*name).filter(|spec| !spec.is_null())?;
            Some((*name, spec))
        })
    }
}

fn components(job: &Value, roles: &ReplicaTypes) -> Result<Vec<Component>, Error> {
    let each = roles.specs(job).map(|(name, spec)| {
        let replicas = lenient_number(spec.get("replicas")).unwrap_or(1.0);
        let template = value_at(spec, "/template")
            .map(pod_template_requirements)
            .transpose()?;
        new_component(&name.to_ascii_lowercase(), replicas, template.flatten())
    });
    each.collect()
}

fn dependencies(job: &Value, roles: &ReplicaTypes) -> Vec<DependentObjectReference> {
    let namespace = namespace_or_default(job);
    let templates = roles
        .specs(job)
        .filter_map(|(_, spec)| value_at(spec, "/template"));
    templates
        .flat_map(|template| pod_template_dependencies(namespace, template))
        .collect()
}

/// Removes everything that clusters reported. An empty status remains.
fn clear_status(status: &mut JsonMap) {
    status.remove("startTime");
    status.remove("completionTime");
    for field in ["replicaStatuses", "conditions"] {
        status.insert(field.into(), json!([]));
    }
}

/// How the job of one cluster ended.
#[derive(Clone, Copy)]
enum JobOutcome {
    Failed,
    Succeeded,
}

/// How the jobs of all clusters ended.
struct MemberJobOutcomes<'a> {
    failed: Vec<&'a str>,
    all_succeeded: bool,
}

impl<'a> MemberJobOutcomes<'a> {
    fn collect(items: &CollectedStatuses<'a>, ended: fn(&Value) -> Option<JobOutcome>) -> Self {
        let mut failed = Vec::new();
        let mut succeeded = 0;
        for (cluster, reported) in items.reported() {
            match ended(reported) {
                Some(JobOutcome::Failed) => failed.push(cluster),
                Some(JobOutcome::Succeeded) => succeeded += 1,
                None => {}
            }
        }
        Self {
            failed,
            all_succeeded: succeeded > 0 && succeeded == items.len(),
        }
    }

    fn failure_message(&self, kind: &str) -> String {
        let clusters = self.failed.join(", ");
        format!("{kind} executed failed in member clusters: {clusters}")
    }
}

fn earliest_start_time(items: &CollectedStatuses<'_>) -> Option<Value> {
    items.times("/startTime").min().map(Value::from)
}

fn aggregate(
    status: &mut JsonMap,
    input: &AggregationInput<'_>,
    roles: &ReplicaTypes,
    ended: fn(&Value) -> Option<JobOutcome>,
    conditions: fn(&AggregationInput<'_>, &MemberJobOutcomes<'_>) -> Vec<Value>,
) -> Result<(), Error> {
    let items = &input.items;
    let outcome = MemberJobOutcomes::collect(items, ended);
    let mut counts = Map::new();
    for role in roles.names {
        counts.insert((*role).to_owned(), replica_counts(items, role)?);
    }
    set_or_remove(status, "startTime", earliest_start_time(items));
    set_or_remove(
        status,
        "lastReconcileTime",
        items.latest("/lastReconcileTime"),
    );
    if outcome.all_succeeded {
        set_or_remove(status, "completionTime", items.latest("/completionTime"));
    }
    status.insert("replicaStatuses".into(), counts.into());
    status.insert("conditions".into(), conditions(input, &outcome).into());
    let pruned = prune_values(Value::Object(std::mem::take(status)), is_zero_value);
    if let Some(Value::Object(pruned)) = pruned {
        *status = pruned;
    }
    Ok(())
}

/// The number of pods of a replica type per state.
fn replica_counts(items: &CollectedStatuses<'_>, role: &str) -> Result<Value, Error> {
    let mut counts = Map::new();
    for state in ["active", "failed", "succeeded"] {
        let sum = items.sum(&format!("/replicaStatuses/{role}/{state}"))?;
        counts.insert(state.into(), sum);
    }
    Ok(counts.into())
}

fn has_condition(reported: &Value, kind: &str) -> bool {
    let mut conditions = list_at(reported, "/conditions").iter();
    conditions.any(|c| condition_is(c, kind, "True"))
}

/// The outcome by the last finished condition.
fn tf_job_outcome(reported: &Value) -> Option<JobOutcome> {
    let mut latest_first = list_at(reported, "/conditions").iter().rev();
    latest_first.find_map(|c| {
        if condition_is(c, "Failed", "True") {
            Some(JobOutcome::Failed)
        } else {
            condition_is(c, "Succeeded", "True").then_some(JobOutcome::Succeeded)
        }
    })
}

fn tf_conditions(input: &AggregationInput<'_>, outcome: &MemberJobOutcomes<'_>) -> Vec<Value> {
    let now = rfc3339_seconds(input.now);
    let condition = |kind: &str, reason: &str, message: String| {
        json!({"type": kind, "status": "True",
        "reason": reason, "message": message, "lastProbeTime": now, "lastTransitionTime": now})
    };
    if !outcome.failed.is_empty() {
        let message = outcome.failure_message("TFJob");
        return vec![condition("Failed", "TFJobFailed", message)];
    }
    if outcome.all_succeeded {
        let message = "TFJob completed successfully".into();
        return vec![condition("Succeeded", "Completed", message)];
    }
    Vec::new()
}

/// The outcome by the finished conditions; Failed wins over Succeeded.
fn pytorch_job_outcome(reported: &Value) -> Option<JobOutcome> {
    if has_condition(reported, "Failed") {
        Some(JobOutcome::Failed)
    } else {
        has_condition(reported, "Succeeded").then_some(JobOutcome::Succeeded)
    }
}

/// The conditions in the order in which a job goes through them, since clients show the last.
fn pytorch_conditions(input: &AggregationInput<'_>, outcome: &MemberJobOutcomes<'_>) -> Vec<Value> {
    let items = &input.items;
    let condition =
        |kind: &str, status: bool, message: &str, [updated, changed]: [Option<Value>; 2]| {
            json!({"type": kind, "status": if status { "True" } else { "False" },
            "reason": format!("PyTorchJob{kind}"), "message": message,
            "lastUpdateTime": updated, "lastTransitionTime": changed})
        };
    let mut conditions = Vec::new();
    if items
        .reported()
        .any(|(_, reported)| has_condition(reported, "Created"))
    {
        let at = [earliest_start_time(items), earliest_start_time(items)];
        conditions.push(condition("Created", true, "PyTorchJob is created.", at));
    }
    let all = items
        .reported()
        .flat_map(|(_, reported)| list_at(reported, "/conditions"));
    if let Some(running) = all
        .filter(|c| string_at(c, "/type") == Some("Running"))
        .last()
    {
        let ended = !outcome.failed.is_empty() || outcome.all_succeeded;
        let at =
            ["/lastUpdateTime", "/lastTransitionTime"].map(|time| value_at(running, time).cloned());
        conditions.push(condition("Running", !ended, "PyTorchJob is running.", at));
    }
    let completed = [(); 2].map(|()| items.latest("/completionTime"));
    if !outcome.failed.is_empty() {
        let message = outcome.failure_message("PyTorchJob");
        conditions.push(condition("Failed", true, &message, completed));
    } else if outcome.all_succeeded {
        let message = "PyTorchJob is successfully completed.";
        conditions.push(condition("Succeeded", true, message, completed));
    }
    conditions
}
