//! Third-party rules of RayService: a Ray cluster and the applications that it serves.

use machinery::Quantity;
use serde_json::{Map, Value};

use super::items::holds;
use super::pods::needs;
use super::ray::{GROUPS, HEAD, dependencies, workers};
use super::tree::{
    Error, Fields, at, entries, lacks, list, number, number_or_zero, put, set, take, text,
};
use super::{Aggregate, Rules, Told};
use crate::native::Replicas;

const CLUSTER: &str = "/spec/rayClusterConfig";

pub(super) static RAY_SERVICE: Rules = Rules {
    healthy: Some(|observed| Ok(holds(observed, "Ready", &[]))),
    replicas: Some(replicas),
    revise: Some(revise),
    aggregate: Some(Aggregate {
        sole: true,
        keeps_spec: false,
        ..Aggregate::new(aggregate)
    }),
    dependencies: Some(|service| Ok(dependencies(service, at(service, CLUSTER), None))),
    ..Rules::NONE
};

/// Head and workers as replicas of one kind; each requires the greatest CPU and memory of all.
fn replicas(service: &Value) -> Result<Replicas, Error> {
    let cluster = at(service, CLUSTER);
    let Some((cluster, head)) = cluster.and_then(|c| Some((c, at(c, HEAD)?))) else {
        return Ok(Replicas::default());
    };
    let mut count = 1.0;
    let mut all = vec![needs(head)?];
    for group in list(cluster, GROUPS) {
        count += workers(group)?;
        if let Some(template) = at(group, "/template") {
            all.push(needs(template)?);
        }
    }
    let mut requirements = all[0].clone();
    if let Some(requirements) = &mut requirements {
        for resource in ["cpu", "memory"] {
            if let Some(greatest) = greatest(&all, resource)? {
                let mut request = take(requirements, "resourceRequest");
                request.insert(resource.into(), greatest.clone());
                put(requirements, "resourceRequest", request.into());
            }
        }
    }
    Ok(Replicas {
        count: count as i64,
        requirements,
    })
}

fn greatest<'a>(all: &'a [Option<Value>], resource: &str) -> Result<Option<&'a Value>, Error> {
    let mut greatest: Option<(Quantity, &Value)> = None;
    for needs in all.iter().flatten() {
        let Some(amount) = at(needs, &format!("/resourceRequest/{resource}")) else {
            continue;
        };
        let quantity = Quantity::from_value(amount).map_err(|_| lacks(resource, "a quantity"))?;
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
        .pointer_mut(CLUSTER)
        .and_then(|c| c.pointer_mut(GROUPS));
    let Some(groups) = groups.and_then(Value::as_array_mut) else {
        return Ok(());
    };
    let all = replicas.saturating_sub(1).max(0) as f64;
    let now: Result<Vec<f64>, Error> = groups.iter().map(workers).collect();
    for (group, share) in groups.iter_mut().zip(shares(all, &now?)) {
        put(group, "replicas", number(share));
    }
    Ok(())
}

fn shares(all: f64, now: &[f64]) -> Vec<f64> {
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

fn rank(application: &Value) -> u8 {
    match text(application, "/status").unwrap_or_default() {
        "DEPLOY_FAILED" => 5,
        "UNHEALTHY" => 4,
        "DELETING" => 3,
        "DEPLOYING" => 2,
        "NOT_STARTED" => 1,
        _ => 0,
    }
}

fn aggregate(status: &mut Fields, input: &Told<'_>) -> Result<(), Error> {
    let items = &input.items;
    let mut observed_generation = 0.0_f64;
    let mut applications: Map<String, Value> = Map::new();
    for (_, reported) in items.told() {
        observed_generation =
            observed_generation.max(number_or_zero(reported, "/observedGeneration")?);
        for (name, application) in entries(reported, "/activeServiceStatus/applicationStatuses") {
            let known = applications.get(name).map(rank);
            if known.is_none_or(|known| rank(application) > known) {
                applications.insert(name.clone(), application.clone());
            }
        }
    }
    let stopped = items
        .told()
        .any(|(_, reported)| text(reported, "/serviceStatus") == Some(""));
    let service = if stopped { "" } else { "Running" };
    status.insert("conditions".into(), items.joined("/conditions").into());
    status.insert("numServeEndpoints".into(), items.sum("/numServeEndpoints")?);
    set(status, "lastUpdateTime", items.latest("/lastUpdateTime"));
    status.insert("observedGeneration".into(), number(observed_generation));
    status.insert("serviceStatus".into(), service.into());
    if let Some(active) = items.first("/activeServiceStatus") {
        let mut active = active.clone();
        put(&mut active, "applicationStatuses", applications.into());
        status.insert("activeServiceStatus".into(), active);
    }
    if let Some(pending) = items.first("/pendingServiceStatus") {
        status.insert("pendingServiceStatus".into(), pending.clone());
    }
    Ok(())
}
