//! Third-party rules of Kubeflow's MPIJob, whose replica types are the keys of a map.

use openapi::karmada::binding::Component;
use serde_json::{Map, Value, json};

use super::generations::copied;
use super::idle::without;
use super::items::{Items, is};
use super::pods::{component, needs};
use super::tree::{
    Error, Fields, at, entries, list, number, number_or_zero, readable_number, said, text,
};
use super::{Aggregate, Rules, Told};

const COUNTS: [&str; 3] = ["active", "succeeded", "failed"];

pub(super) static MPI_JOB: Rules = Rules {
    healthy: Some(|observed| {
        let conditions = list(observed, "/status/conditions");
        let failed = conditions.iter().any(|c| is(c, "Failed", "True"));
        Ok(!conditions.is_empty() && !failed)
    }),
    components: Some(components),
    reflect: Some(reflect),
    aggregate: Some(Aggregate {
        sole: true,
        ..Aggregate::new(aggregate)
    }),
    ..Rules::NONE
};

fn components(job: &Value) -> Result<Vec<Component>, Error> {
    let mut found = Vec::new();
    for (role, spec) in entries(job, "/spec/mpiReplicaSpecs") {
        let Some(template) = at(spec, "/template") else {
            continue;
        };
        let absent = if role.eq_ignore_ascii_case("worker") {
            0.0
        } else {
            1.0
        };
        let replicas = readable_number(spec.get("replicas")).unwrap_or(absent);
        found.push(component(role, replicas, needs(template)?)?);
    }
    Ok(found)
}

fn reflect(observed: &Value) -> Fields {
    let times = ["startTime", "completionTime", "lastReconcileTime"];
    let mut status = copied(observed, &[&["conditions"], &times]);
    let mut roles = Map::new();
    for (role, counts) in entries(observed, "/status/replicaStatuses") {
        let fields = COUNTS.into_iter().chain(["selector"]);
        let fields =
            fields.filter_map(|field| Some((field.to_owned(), counts.get(field)?.clone())));
        roles.insert(role.clone(), Value::Object(fields.collect()));
    }
    status.insert("replicaStatuses".into(), roles.into());
    status
}

fn aggregate(status: &mut Fields, input: &Told<'_>) -> Result<(), Error> {
    let items = &input.items;
    if items.is_empty() {
        return Ok(());
    }
    let times = |field: &'static str| items.times(field).filter(|time| !time.is_empty());
    let aggregated = json!({
        "replicaStatuses": counts(items)?,
        "startTime": times("/startTime").min(),
        "completionTime": times("/completionTime").max(),
        "lastReconcileTime": times("/lastReconcileTime").max(),
        "conditions": conditions(items),
    });
    *status = match without(aggregated, |_| false) {
        Some(Value::Object(aggregated)) => aggregated,
        _ => Map::new(),
    };
    Ok(())
}

/// The number of pods per replica type and state.
fn counts(items: &Items<'_>) -> Result<Value, Error> {
    let mut all = json!({});
    for (_, reported) in items.told() {
        for (role, counts) in entries(reported, "/replicaStatuses") {
            for count in COUNTS {
                let sum = &mut all[role][count];
                let more = number_or_zero(counts, &format!("/{count}"))?;
                *sum = number(sum.as_f64().unwrap_or(0.0) + more);
            }
        }
    }
    Ok(all)
}

/// The latest condition of each type.
fn conditions(items: &Items<'_>) -> Vec<Value> {
    let mut latest: Vec<(&str, &Value)> = Vec::new();
    for condition in items
        .told()
        .flat_map(|(_, reported)| list(reported, "/conditions"))
    {
        let Some(time) = last_told(condition) else {
            continue;
        };
        let kind = text(condition, "/type");
        match latest.iter_mut().find(|(_, c)| text(c, "/type") == kind) {
            Some(known) if time > known.0 => *known = (time, condition),
            Some(_) => {}
            None => latest.push((time, condition)),
        }
    }
    latest.into_iter().map(|(_, c)| c.clone()).collect()
}

/// The lastUpdateTime, else the lastTransitionTime. An empty lastUpdateTime gives none.
fn last_told(condition: &Value) -> Option<&str> {
    match at(condition, "/lastUpdateTime") {
        Some(_) => said(condition, "/lastUpdateTime"),
        None => said(condition, "/lastTransitionTime"),
    }
}
