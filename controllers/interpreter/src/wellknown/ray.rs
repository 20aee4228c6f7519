//! Third-party rules of RayCluster and RayJob: a head and groups of workers.

use machinery::Quantity;
use openapi::karmada::Dependency;
use openapi::karmada::binding::Component;
use serde_json::Value;

use super::items::{Items, is};
use super::kruise::sums;
use super::pods::{component, namespace, needs, refers};
use super::tree::{
    Error, Fields, at, lacks, list, number, number_or_zero, readable_number, said, set, text,
};
use super::{Aggregate, Rules, Told};

pub(super) const HEAD: &str = "/headGroupSpec/template";
pub(super) const GROUPS: &str = "/workerGroupSpecs";
const OF_JOB: &str = "/spec/rayClusterSpec";

pub(super) static RAY_CLUSTER: Rules = Rules {
    healthy: Some(|observed| {
        let holds = |kind: &str| {
            let mut conditions = list(observed, "/status/conditions").iter();
            conditions.any(|c| is(c, kind, "True"))
        };
        let up = holds("HeadPodReady") && holds("RayClusterProvisioned");
        Ok(up && !holds("RayClusterReplicaFailure"))
    }),
    components: Some(|cluster| components(at(cluster, "/spec"))),
    aggregate: Some(Aggregate {
        sole: true,
        keeps_spec: false,
        ..Aggregate::new(cluster)
    }),
    ..Rules::NONE
};

pub(super) static RAY_JOB: Rules = Rules {
    healthy: Some(|observed| {
        let job = text(observed, "/status/jobStatus");
        Ok(match text(observed, "/status/jobDeploymentStatus") {
            Some("Running") => true,
            Some("Complete") => job == Some("SUCCEEDED"),
            _ => false,
        })
    }),
    components: Some(|job| components(at(job, OF_JOB))),
    aggregate: Some(Aggregate {
        sole: true,
        keeps_spec: false,
        ..Aggregate::new(job)
    }),
    dependencies: Some(|job| {
        let submitter = at(job, "/spec/submitterPodTemplate");
        Ok(dependencies(job, at(job, OF_JOB), submitter))
    }),
    ..Rules::NONE
};

fn components(cluster: Option<&Value>) -> Result<Vec<Component>, Error> {
    let mut found = Vec::new();
    let Some(cluster) = cluster else {
        return Ok(found);
    };
    if let Some(head) = at(cluster, HEAD) {
        found.push(component("ray-head", 1.0, needs(head)?)?);
    }
    for (index, group) in list(cluster, GROUPS).iter().enumerate() {
        let name = said(group, "/groupName").map(str::to_owned);
        let name = name.unwrap_or_else(|| format!("worker-{}", index + 1));
        let template = at(group, "/template").map(needs).transpose()?;
        found.push(component(&name, workers(group)?, template.flatten())?);
    }
    Ok(found)
}

/// The number of workers in a group.
pub(super) fn workers(group: &Value) -> Result<f64, Error> {
    number_or_zero(group, "/replicas")
}

/// The dependencies of the head, the workers and one more pod template.
pub(super) fn dependencies(
    object: &Value,
    cluster: Option<&Value>,
    more: Option<&Value>,
) -> Vec<Dependency> {
    let head = cluster.and_then(|cluster| at(cluster, HEAD));
    let groups = cluster.map(|cluster| list(cluster, GROUPS));
    let groups = groups.unwrap_or_default().iter();
    let workers = groups.filter_map(|group| at(group, "/template"));
    let templates = head.into_iter().chain(workers).chain(more);
    let namespace = namespace(object);
    templates
        .flat_map(|template| refers(namespace, template))
        .collect()
}

fn cluster(status: &mut Fields, input: &Told<'_>) -> Result<(), Error> {
    let items = &input.items;
    let counters = [
        "readyWorkerReplicas",
        "availableWorkerReplicas",
        "maxWorkerReplicas",
        "minWorkerReplicas",
        "desiredWorkerReplicas",
    ];
    sums(status, items, &counters)?;
    for resource in ["desiredCPU", "desiredMemory"] {
        status.insert(resource.into(), quantities(items, resource)?);
    }
    for device in ["desiredGPU", "desiredTPU"] {
        status.insert(device.into(), devices(items, device)?);
    }
    status.insert("conditions".into(), items.joined("/conditions").into());
    set(status, "lastUpdateTime", items.latest("/lastUpdateTime"));
    for field in ["endpoints", "head"] {
        set(status, field, items.first(&format!("/{field}")).cloned());
    }
    let mut statuses = items.statuses().flatten();
    let in_a_state = statuses.find(|reported| at(reported, "/state").is_some());
    for field in ["state", "stateTransitionTimes"] {
        let value = in_a_state.and_then(|reported| reported.get(field));
        set(status, field, value.cloned());
    }
    Ok(())
}

fn quantities(items: &Items<'_>, resource: &str) -> Result<Value, Error> {
    let mut sum = Quantity::ZERO;
    for (_, reported) in items.told() {
        let amount = at(reported, &format!("/{resource}"));
        if let Some(amount) = amount.filter(|amount| **amount != "") {
            let amount = amount
                .as_str()
                .and_then(|amount| Quantity::parse(amount).ok());
            sum += amount.ok_or_else(|| lacks(resource, "the text of a quantity"))?;
        }
    }
    Ok(sum.to_string().into())
}

/// The sum of a device count, which is a plain number as text.
fn devices(items: &Items<'_>, device: &str) -> Result<Value, Error> {
    let mut sum = 0.0;
    for (_, reported) in items.told() {
        let count = at(reported, &format!("/{device}"));
        if let Some(count) = count.filter(|count| **count != "") {
            let count = readable_number(Some(count));
            sum += count.ok_or_else(|| lacks(device, "a plain number"))?;
        }
    }
    Ok(number(sum).to_string().into())
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

fn job(status: &mut Fields, input: &Told<'_>) -> Result<(), Error> {
    let deployed = input.items.worst(|reported| {
        let deployment = at(reported, "/jobDeploymentStatus");
        Ok(deployment.map(|d| deployment_rank(d.as_str().unwrap_or_default())))
    })?;
    for field in ["jobDeploymentStatus", "reason", "message"] {
        set(status, field, deployed.and_then(|d| d.get(field)).cloned());
    }
    let run = input.items.worst(|reported| {
        let run = at(reported, "/jobStatus").filter(|run| **run != "");
        Ok(run.map(|run| job_rank(run.as_str().unwrap_or_default())))
    })?;
    let run = run.and_then(|reported| reported.get("jobStatus"));
    set(status, "jobStatus", run.cloned());
    Ok(())
}
