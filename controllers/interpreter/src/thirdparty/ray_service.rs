//! Third-party rules of RayService: a Ray cluster and the applications that it serves.

use machinery::Quantity;
use serde_json::{Map, Value};

use super::collected_statuses::has_true_condition;
use super::json_map::{
    Error, JsonMap, field_error, fields_at, json_number, list_at, number_or_zero, set_field,
    set_or_remove, string_at, take_object, value_at,
};
use super::pod_templates::pod_template_requirements;
use super::ray::{HEAD_TEMPLATE, WORKER_GROUPS, cluster_dependencies, worker_count};
use super::{AggregationInput, StatusAggregation, ThirdPartyKindRules};
use crate::native::TemplateReplicas;

const CLUSTER_CONFIG: &str = "/spec/rayClusterConfig";

pub(super) static RAY_SERVICE: ThirdPartyKindRules = ThirdPartyKindRules {
    interpret_health: Some(|observed| Ok(has_true_condition(observed, "Ready", &[]))),
    replicas: Some(replicas),
    revise_replica: Some(revise),
    aggregate_status: Some(StatusAggregation {
        copies_single_item: true,
        keeps_spec: false,
        ..StatusAggregation::new(aggregate)
    }),
    dependencies: Some(|service| {
        Ok(cluster_dependencies(
            service,
            value_at(service, CLUSTER_CONFIG),
            None,
        ))
    }),
    ..ThirdPartyKindRules::NONE
};

/// Head and workers as replicas of one kind; each requires the greatest CPU and memory of all.
fn replicas(service: &Value) -> Result<TemplateReplicas, Error> {
    let cluster = value_at(service, CLUSTER_CONFIG);
    let Some((cluster, head)) = cluster.and_then(|c| Some((c, value_at(c, HEAD_TEMPLATE)?))) else {
        return Ok(TemplateReplicas::default());
    };
    let mut count = 1.0;
    let mut all = vec![pod_template_requirements(head)?];
    for group in list_at(cluster, WORKER_GROUPS) {
        count += worker_count(group)?;
        if let Some(template) = value_at(group, "/template") {
            all.push(pod_template_requirements(template)?);
        }
    }
    let mut requirements = all[0].clone();
    if let Some(requirements) = &mut requirements {
        for resource in ["cpu", "memory"] {
            if let Some(greatest) = greatest_request(&all, resource)? {
                let mut request = take_object(requirements, "resourceRequest");
                request.insert(resource.into(), greatest.clone());
                set_field(requirements, "resourceRequest", request.into());
            }
        }
    }
    Ok(TemplateReplicas {
        count: count as i64,
        requirements,
    })
}

fn greatest_request<'a>(
    all: &'a [Option<Value>],
    resource: &str,
) -> Result<Option<&'a Value>, Error> {
    let mut greatest: Option<(Quantity, &Value)> = None;
    for needs in all.iter().flatten() {
        let Some(amount) = value_at(needs, &format!("/resourceRequest/{resource}")) else {
            continue;
        };
        let quantity =
            Quantity::from_value(amount).map_err(|_| field_error(resource, "a quantity"))?;
        if greatest.is_none_or(|(so_far, _)| quantity > so_far) {
            greatest = Some((quantity, amount));
        }
    }
    Ok(greatest.map(|(_, amount)| amount))
}

/// Divides the replicas, minus the head, among the worker groups in proportion to their current
/// sizes. The last group gets the remainder.
fn revise(service: &mut Value, replicas: i64) -> Result<(), Error> {
    let groups = service
        .pointer_mut(CLUSTER_CONFIG)
        .and_then(|c| c.pointer_mut(WORKER_GROUPS));
    let Some(groups) = groups.and_then(Value::as_array_mut) else {
        return Ok(());
    };
    let all = replicas.saturating_sub(1).max(0) as f64;
    let now: Result<Vec<f64>, Error> = groups.iter().map(worker_count).collect();
    for (group, share) in groups.iter_mut().zip(divide_workers(all, &now?)) {
        set_field(group, "replicas", json_number(share));
    }
    Ok(())
}

fn divide_workers(all: f64, now: &[f64]) -> Vec<f64> {
    let total: f64 = now.iter().sum();
    let groups = now.len() as f64;
    let mut left = all;
    let share = |(index, has): (usize, &f64)| {
        let share = if index + 1 == now.len() {
            left
        } else if all == 0.0 {
            0.0
        } else if total == 0.0 {
            let more = index as f64 + 1.0 <= all % groups;
            (all / groups).floor() + f64::from(u8::from(more))
        } else {
            (all * (has / total) + 0.5).floor()
        };
        left -= share;
        share
    };
    now.iter().enumerate().map(share).collect()
}

fn application_rank(application: &Value) -> u8 {
    match string_at(application, "/status").unwrap_or_default() {
        "DEPLOY_FAILED" => 5,
        "UNHEALTHY" => 4,
        "DELETING" => 3,
        "DEPLOYING" => 2,
        "NOT_STARTED" => 1,
        _ => 0,
    }
}

fn aggregate(status: &mut JsonMap, input: &AggregationInput<'_>) -> Result<(), Error> {
    let items = &input.items;
    let mut observed_generation = 0.0_f64;
    let mut applications: Map<String, Value> = Map::new();
    for (_, reported) in items.reported() {
        observed_generation =
            observed_generation.max(number_or_zero(reported, "/observedGeneration")?);
        for (name, application) in fields_at(reported, "/activeServiceStatus/applicationStatuses") {
            let rank = applications.get(name).map(application_rank);
            if rank.is_none_or(|rank| application_rank(application) > rank) {
                applications.insert(name.clone(), application.clone());
            }
        }
    }
    let stopped = items
        .reported()
        .any(|(_, reported)| string_at(reported, "/serviceStatus") == Some(""));
    let service = if stopped { "" } else { "Running" };
    status.insert(
        "conditions".into(),
        items.concatenated("/conditions").into(),
    );
    status.insert("numServeEndpoints".into(), items.sum("/numServeEndpoints")?);
    set_or_remove(status, "lastUpdateTime", items.latest("/lastUpdateTime"));
    status.insert(
        "observedGeneration".into(),
        json_number(observed_generation),
    );
    status.insert("serviceStatus".into(), service.into());
    if let Some(active) = items.first("/activeServiceStatus") {
        let mut active = active.clone();
        set_field(&mut active, "applicationStatuses", applications.into());
        status.insert("activeServiceStatus".into(), active);
    }
    if let Some(pending) = items.first("/pendingServiceStatus") {
        status.insert("pendingServiceStatus".into(), pending.clone());
    }
    Ok(())
}
