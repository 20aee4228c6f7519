//! Third-party rules of Kubeflow's MPIJob, whose replica types are the keys of a map.

use karmada_api::binding::Component;
use serde_json::{Map, Value, json};

use super::collected_statuses::{CollectedStatuses, condition_is};
use super::json_map::{
    Error, JsonMap, fields_at, json_number, lenient_number, list_at, non_empty_string_at,
    number_or_zero, string_at, value_at,
};
use super::observed_generation::copy_status_fields;
use super::pod_templates::{new_component, pod_template_requirements};
use super::zero_values::prune_values;
use super::{AggregationInput, StatusAggregation, ThirdPartyKindRules};

const POD_STATES: [&str; 3] = ["active", "succeeded", "failed"];

pub(super) static MPI_JOB: ThirdPartyKindRules = ThirdPartyKindRules {
    interpret_health: Some(|observed| {
        let conditions = list_at(observed, "/status/conditions");
        let failed = conditions.iter().any(|c| condition_is(c, "Failed", "True"));
        Ok(!conditions.is_empty() && !failed)
    }),
    components: Some(components),
    reflect_status: Some(reflect),
    aggregate_status: Some(StatusAggregation {
        copies_single_item: true,
        ..StatusAggregation::new(aggregate)
    }),
    ..ThirdPartyKindRules::NONE
};

fn components(job: &Value) -> Result<Vec<Component>, Error> {
    let mut components = Vec::new();
    for (role, spec) in fields_at(job, "/spec/mpiReplicaSpecs") {
        let Some(template) = value_at(spec, "/template") else {
            continue;
        };
        let absent = if role.eq_ignore_ascii_case("worker") {
            0.0
        } else {
            1.0
        };
        let replicas = lenient_number(spec.get("replicas")).unwrap_or(absent);
        components.push(new_component(
            role,
            replicas,
            pod_template_requirements(template)?,
        )?);
    }
    Ok(components)
}

fn reflect(observed: &Value) -> JsonMap {
    let times = ["startTime", "completionTime", "lastReconcileTime"];
    let mut status = copy_status_fields(observed, &[&["conditions"], &times]);
    let mut roles = Map::new();
    for (role, counts) in fields_at(observed, "/status/replicaStatuses") {
        let fields = POD_STATES.into_iter().chain(["selector"]);
        let fields =
            fields.filter_map(|field| Some((field.to_owned(), counts.get(field)?.clone())));
        roles.insert(role.clone(), Value::Object(fields.collect()));
    }
    status.insert("replicaStatuses".into(), roles.into());
    status
}

fn aggregate(status: &mut JsonMap, input: &AggregationInput<'_>) -> Result<(), Error> {
    let items = &input.items;
    if items.is_empty() {
        return Ok(());
    }
    let times = |field: &'static str| items.times(field).filter(|time| !time.is_empty());
    let aggregated = json!({
        "replicaStatuses": replica_counts(items)?,
        "startTime": times("/startTime").min(),
        "completionTime": times("/completionTime").max(),
        "lastReconcileTime": times("/lastReconcileTime").max(),
        "conditions": latest_conditions(items),
    });
    *status = match prune_values(aggregated, |_| false) {
        Some(Value::Object(aggregated)) => aggregated,
        _ => Map::new(),
    };
    Ok(())
}

/// The number of pods per replica type and state.
fn replica_counts(items: &CollectedStatuses<'_>) -> Result<Value, Error> {
    let mut all = json!({});
    for (_, reported) in items.reported() {
        for (role, counts) in fields_at(reported, "/replicaStatuses") {
            for count in POD_STATES {
                let sum = &mut all[role][count];
                let more = number_or_zero(counts, &format!("/{count}"))?;
                *sum = json_number(sum.as_f64().unwrap_or(0.0) + more);
            }
        }
    }
    Ok(all)
}

/// The latest condition of each type.
fn latest_conditions(items: &CollectedStatuses<'_>) -> Vec<Value> {
    let mut latest: Vec<(&str, &Value)> = Vec::new();
    for condition in items
        .reported()
        .flat_map(|(_, reported)| list_at(reported, "/conditions"))
    {
        let Some(time) = last_update_time(condition) else {
            continue;
        };
        let kind = string_at(condition, "/type");
        match latest
            .iter_mut()
            .find(|(_, c)| string_at(c, "/type") == kind)
        {
            Some(entry) if time > entry.0 => *entry = (time, condition),
            Some(_) => {}
            None => latest.push((time, condition)),
        }
    }
    latest.into_iter().map(|(_, c)| c.clone()).collect()
}

/// The lastUpdateTime, else the lastTransitionTime. An empty lastUpdateTime gives none.
fn last_update_time(condition: &Value) -> Option<&str> {
    match value_at(condition, "/lastUpdateTime") {
        Some(_) => non_empty_string_at(condition, "/lastUpdateTime"),
        None => non_empty_string_at(condition, "/lastTransitionTime"),
    }
}
