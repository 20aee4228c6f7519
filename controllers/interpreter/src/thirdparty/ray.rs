//! Third-party rules of RayCluster and RayJob: a head and groups of workers.

use karmada_api::DependentObjectReference;
use karmada_api::binding::Component;
use machinery::Quantity;
use serde_json::Value;

use super::collected_statuses::{CollectedStatuses, condition_is};
use super::json_map::{
    Error, JsonMap, field_error, json_number, lenient_number, list_at, non_empty_string_at,
    number_or_zero, set_or_remove, string_at, value_at,
};
use super::kruise::sum_counters;
use super::pod_templates::{
    namespace, new_component, pod_template_dependencies, pod_template_requirements,
};
use super::{AggregationInput, StatusAggregation, ThirdPartyKindRules};

pub(super) const HEAD_TEMPLATE: &str = "/headGroupSpec/template";
pub(super) const WORKER_GROUPS: &str = "/workerGroupSpecs";
const JOB_CLUSTER_SPEC: &str = "/spec/rayClusterSpec";

pub(super) static RAY_CLUSTER: ThirdPartyKindRules = ThirdPartyKindRules {
    interpret_health: Some(|observed| {
        let holds = |kind: &str| {
            let mut conditions = list_at(observed, "/status/conditions").iter();
            conditions.any(|c| condition_is(c, kind, "True"))
        };
        let up = holds("HeadPodReady") && holds("RayClusterProvisioned");
        Ok(up && !holds("RayClusterReplicaFailure"))
    }),
    components: Some(|cluster| components(value_at(cluster, "/spec"))),
    aggregate_status: Some(StatusAggregation {
        copies_single_item: true,
        keeps_spec: false,
        ..StatusAggregation::new(aggregate_ray_cluster)
    }),
    ..ThirdPartyKindRules::NONE
};

pub(super) static RAY_JOB: ThirdPartyKindRules = ThirdPartyKindRules {
    interpret_health: Some(|observed| {
        let job = string_at(observed, "/status/jobStatus");
        Ok(match string_at(observed, "/status/jobDeploymentStatus") {
            Some("Running") => true,
            Some("Complete") => job == Some("SUCCEEDED"),
            _ => false,
        })
    }),
    components: Some(|job| components(value_at(job, JOB_CLUSTER_SPEC))),
    aggregate_status: Some(StatusAggregation {
        copies_single_item: true,
        keeps_spec: false,
        ..StatusAggregation::new(aggregate_ray_job)
    }),
    dependencies: Some(|job| {
        let submitter = value_at(job, "/spec/submitterPodTemplate");
        Ok(cluster_dependencies(
            job,
            value_at(job, JOB_CLUSTER_SPEC),
            submitter,
        ))
    }),
    ..ThirdPartyKindRules::NONE
};

fn components(cluster: Option<&Value>) -> Result<Vec<Component>, Error> {
    let mut components = Vec::new();
    let Some(cluster) = cluster else {
        return Ok(components);
    };
    if let Some(head) = value_at(cluster, HEAD_TEMPLATE) {
        components.push(new_component(
            "ray-head",
            1.0,
            pod_template_requirements(head)?,
        )?);
    }
    for (index, group) in list_at(cluster, WORKER_GROUPS).iter().enumerate() {
        let name = non_empty_string_at(group, "/groupName").map(str::to_owned);
        let name = name.unwrap_or_else(|| format!("worker-{}", index + 1));
        let template = value_at(group, "/template")
            .map(pod_template_requirements)
            .transpose()?;
        components.push(new_component(
            &name,
            worker_count(group)?,
            template.flatten(),
        )?);
    }
    Ok(components)
}

/// The number of workers in a group.
pub(super) fn worker_count(group: &Value) -> Result<f64, Error> {
    number_or_zero(group, "/replicas")
}

/// The dependencies of the head, the workers and one more pod template.
pub(super) fn cluster_dependencies(
    object: &Value,
    cluster: Option<&Value>,
    more: Option<&Value>,
) -> Vec<DependentObjectReference> {
    let head = cluster.and_then(|cluster| value_at(cluster, HEAD_TEMPLATE));
    let groups = cluster.map(|cluster| list_at(cluster, WORKER_GROUPS));
    let groups = groups.unwrap_or_default().iter();
    let workers = groups.filter_map(|group| value_at(group, "/template"));
    let templates = head.into_iter().chain(workers).chain(more);
    let namespace = namespace(object);
    templates
        .flat_map(|template| pod_template_dependencies(namespace, template))
        .collect()
}

fn aggregate_ray_cluster(status: &mut JsonMap, input: &AggregationInput<'_>) -> Result<(), Error> {
    let items = &input.items;
    let counters = [
        "readyWorkerReplicas",
        "availableWorkerReplicas",
        "maxWorkerReplicas",
        "minWorkerReplicas",
        "desiredWorkerReplicas",
    ];
    sum_counters(status, items, &counters)?;
    for resource in ["desiredCPU", "desiredMemory"] {
        status.insert(resource.into(), sum_quantities(items, resource)?);
    }
    for device in ["desiredGPU", "desiredTPU"] {
        status.insert(device.into(), sum_devices(items, device)?);
    }
    status.insert(
        "conditions".into(),
        items.concatenated("/conditions").into(),
    );
    set_or_remove(status, "lastUpdateTime", items.latest("/lastUpdateTime"));
    for field in ["endpoints", "head"] {
        set_or_remove(status, field, items.first(&format!("/{field}")).cloned());
    }
    let mut statuses = items.statuses().flatten();
    let in_a_state = statuses.find(|reported| value_at(reported, "/state").is_some());
    for field in ["state", "stateTransitionTimes"] {
        let value = in_a_state.and_then(|reported| reported.get(field));
        set_or_remove(status, field, value.cloned());
    }
    Ok(())
}

fn sum_quantities(items: &CollectedStatuses<'_>, resource: &str) -> Result<Value, Error> {
    let mut sum = Quantity::ZERO;
    for (_, reported) in items.reported() {
        let amount = value_at(reported, &format!("/{resource}"));
        if let Some(amount) = amount.filter(|amount| **amount != "") {
            let amount = amount
                .as_str()
                .and_then(|amount| Quantity::parse(amount).ok());
            sum += amount.ok_or_else(|| field_error(resource, "the text of a quantity"))?;
        }
    }
    Ok(sum.to_string().into())
}

/// The sum of a device count, which is a plain number as text.
fn sum_devices(items: &CollectedStatuses<'_>, device: &str) -> Result<Value, Error> {
    let mut sum = 0.0;
    for (_, reported) in items.reported() {
        let count = value_at(reported, &format!("/{device}"));
        if let Some(count) = count.filter(|count| **count != "") {
            let count = lenient_number(Some(count));
            sum += count.ok_or_else(|| field_error(device, "a plain number"))?;
        }
    }
    Ok(json_number(sum).to_string().into())
}

fn deployment_rank(status: &str) -> u8 {
    match status {
        "Failed" => 8,
        "ValidationFailed" => 7,
        "Complete" => 6,
        "Running" => 5,
        "Retrying" => 4,
        "Suspended" | "Suspending" => 3,
        "Waiting" => 2,
        "Initializing" => 1,
        _ => 0,
    }
}

fn job_rank(status: &str) -> u8 {
    match status {
        "FAILED" => 5,
        "STOPPED" => 4,
        "SUCCEEDED" => 3,
        "RUNNING" => 2,
        "PENDING" => 1,
        _ => 0,
    }
}

fn aggregate_ray_job(status: &mut JsonMap, input: &AggregationInput<'_>) -> Result<(), Error> {
    let deployed = input.items.highest_ranked(|reported| {
        let deployment = value_at(reported, "/jobDeploymentStatus");
        Ok(deployment.map(|d| deployment_rank(d.as_str().unwrap_or_default())))
    })?;
    for field in ["jobDeploymentStatus", "reason", "message"] {
        set_or_remove(status, field, deployed.and_then(|d| d.get(field)).cloned());
    }
    let run = input.items.highest_ranked(|reported| {
        let run = value_at(reported, "/jobStatus").filter(|run| **run != "");
        Ok(run.map(|run| job_rank(run.as_str().unwrap_or_default())))
    })?;
    let run = run.and_then(|reported| reported.get("jobStatus"));
    set_or_remove(status, "jobStatus", run.cloned());
    Ok(())
}
