//! Third-party rules of Flink's FlinkDeployment: one job manager and its task managers.

use karmada_api::binding::Component;
use machinery::Quantity;
use serde_json::{Map, Value};

use super::json_map::{
    Error, JsonMap, field_error, json_number, lenient_number, non_empty_string_at, set_field,
    set_or_remove, string_at, value_at,
};
use super::observed_generation::copy_status_fields;
use super::pod_templates::{namespace, new_component};
use super::{AggregationInput, StatusAggregation, ThirdPartyKindRules};
use crate::empty_values::prune_empty;
use crate::native::TemplateReplicas;

const STATUS_FIELDS: [&str; 8] = [
    "clusterInfo",
    "error",
    "jobManagerDeploymentStatus",
    "jobStatus",
    "observedGeneration",
    "lifecycleState",
    "reconciliationStatus",
    "taskManager",
];
const STRING_FIELDS: [&str; 3] = ["error", "jobManagerDeploymentStatus", "lifecycleState"];

/// Errors of the user that another cluster would not fix.
const USER_ERRORS: [&str; 3] = ["ErrImagePull", "ImagePullBackOff", "CrashLoopBackOff"];

pub(super) static FLINK_DEPLOYMENT: ThirdPartyKindRules = ThirdPartyKindRules {
    interpret_health: Some(|observed| Ok(is_healthy(observed))),
    replicas: Some(replicas),
    components: Some(components),
    reflect_status: Some(|observed| copy_status_fields(observed, &[&STATUS_FIELDS])),
    aggregate_status: Some(StatusAggregation::new(aggregate)),
    ..ThirdPartyKindRules::NONE
};

fn is_healthy(observed: &Value) -> bool {
    let Some(state) = value_at(observed, "/status/jobStatus/state") else {
        return string_at(observed, "/status/jobManagerDeploymentStatus") == Some("READY")
            && string_at(observed, "/status/lifecycleState") == Some("STABLE");
    };
    match state.as_str().unwrap_or_default() {
        "RUNNING" | "FINISHED" | "FAILED" | "CANCELED" | "SUSPENDED" => true,
        "CANCELLING" | "FAILING" | "RESTARTING" => true,
        "CREATED" | "INITIALIZING" | "RECONCILING" => {
            let error = string_at(observed, "/status/error").unwrap_or_default();
            USER_ERRORS
                .iter()
                .any(|user_error| error.contains(user_error))
        }
        _ => false,
    }
}

fn aggregate(status: &mut JsonMap, input: &AggregationInput<'_>) -> Result<(), Error> {
    let last = input.items.statuses().rev().flatten().next();
    for field in STATUS_FIELDS {
        let value = match last {
            Some(last) => last.get(field).cloned(),
            None if STRING_FIELDS.contains(&field) => Some("".into()),
            None if field == "observedGeneration" => Some(0.into()),
            None => None,
        };
        set_or_remove(status, field, value);
    }
    Ok(())
}

fn job_managers(deployment: &Value) -> f64 {
    lenient_number(value_at(deployment, "/spec/jobManager/replicas")).unwrap_or(1.0)
}

/// The task managers that are asked for, else as many as the parallelism needs slots.
fn task_managers(deployment: &Value) -> f64 {
    if let Some(replicas) = lenient_number(value_at(deployment, "/spec/taskManager/replicas")) {
        return replicas;
    }
    let slots = value_at(
        deployment,
        "/spec/flinkConfiguration/taskmanager.numberOfTaskSlots",
    );
    let parallelism = lenient_number(value_at(deployment, "/spec/job/parallelism"));
    match (parallelism, lenient_number(slots)) {
        (Some(parallelism), Some(slots)) if slots != 0.0 => (parallelism / slots).ceil(),
        _ => 1.0,
    }
}

fn parse_quantity(pointer: &str, value: &Value) -> Result<Quantity, Error> {
    Quantity::from_value(value).map_err(|_| field_error(pointer, "a quantity"))
}

/// The units of Flink's memory sizes, in powers of 1024 bytes (`MemorySize.MemoryUnit`).
const MEMORY_UNITS: [(u32, &[&str]); 5] = [
    (0, &["b", "bytes"]),
    (1, &["k", "kb", "kibibytes"]),
    (2, &["m", "mb", "mebibytes"]),
    (3, &["g", "gb", "gibibytes"]),
    (4, &["t", "tb", "tebibytes"]),
];

/// A memory size with one of Flink's units; `None` for other texts.
fn flink_memory_size(text: &str) -> Option<Quantity> {
    let text = text.trim().to_ascii_lowercase();
    let (amount, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let named = |(_, names): &&(u32, &[&str])| names.contains(&unit.trim_start());
    let (power, _) = MEMORY_UNITS.iter().find(named)?;
    let bytes = amount.parse::<i64>().ok()?;
    Some(Quantity::from_bytes(
        bytes.checked_mul(1024_i64.pow(*power))?,
    ))
}

/// A memory that is not negative. As in Flink's operator, it is a memory size of Flink, or else
/// a quantity.
fn memory_quantity(pointer: &str, value: &Value) -> Result<Quantity, Error> {
    let size = value.as_str().and_then(flink_memory_size);
    let memory = match size {
        Some(memory) => memory,
        None => parse_quantity(pointer, value)?,
    };
    let valid = (!memory.is_negative()).then_some(memory);
    valid.ok_or_else(|| field_error(pointer, "a memory size that is not negative"))
}

/// The greater of two fields, or the only one that is set; the second when they are equal.
fn greater_field<'a>(
    deployment: &'a Value,
    pointers: [&str; 2],
    amount: impl Fn(&str, &Value) -> Result<Quantity, Error>,
) -> Result<Option<&'a Value>, Error> {
    match pointers.map(|pointer| value_at(deployment, pointer)) {
        [Some(one), Some(other)] => {
            let greater = amount(pointers[0], one)? > amount(pointers[1], other)?;
            Ok(Some(if greater { one } else { other }))
        }
        [one, other] => Ok(one.or(other)),
    }
}

/// Every quantity in its canonical form.
fn canonical_quantities(request: Map<String, Value>) -> Result<Value, Error> {
    let each = request.into_iter().map(|(name, amount)| {
        let amount = parse_quantity(&name, &amount)?;
        Ok((name, Value::from(amount.to_string())))
    });
    let amounts: Result<Map<String, Value>, Error> = each.collect();
    Ok(amounts?.into())
}

fn resource_request(cpu: Option<Value>, memory: Option<Value>) -> Result<Value, Error> {
    let mut request = Map::new();
    set_or_remove(&mut request, "cpu", cpu);
    set_or_remove(&mut request, "memory", memory);
    canonical_quantities(request)
}

/// The node claim without the affinity, as in Karmada's rule.
fn node_claim(pod: &Value) -> Map<String, Value> {
    let mut claim = Map::new();
    for field in ["nodeSelector", "tolerations"] {
        set_or_remove(
            &mut claim,
            field,
            value_at(pod, &format!("/{field}")).cloned(),
        );
    }
    claim
}

fn replica_requirements(deployment: &Value, request: Value) -> Value {
    let mut all = Map::new();
    all.insert("resourceRequest".into(), request);
    if let Some(pod) = value_at(deployment, "/spec/podTemplate/spec") {
        let claim = node_claim(pod);
        if !claim.is_empty() {
            all.insert("nodeClaim".into(), claim.into());
        }
        let class = non_empty_string_at(pod, "/priorityClassName").map(Value::from);
        set_or_remove(&mut all, "priorityClassName", class);
    }
    all.into()
}

/// All managers as replicas of one kind; each requires what the larger manager requires.
fn replicas(deployment: &Value) -> Result<TemplateReplicas, Error> {
    let resource = |field: &str| {
        ["jobManager", "taskManager"].map(|who| format!("/spec/{who}/resource/{field}"))
    };
    let [job, task] = &resource("cpu");
    let cpu = greater_field(deployment, [job, task], |pointer, value| {
        lenient_number(Some(value))
            .and_then(|n| Quantity::from_value(&json_number(n)).ok())
            .ok_or_else(|| field_error(pointer, "a number"))
    })?;
    let [job, task] = &resource("memory");
    let memory = greater_field(deployment, [job, task], memory_quantity)?;
    let memory = memory
        .map(|memory| memory_quantity(job, memory))
        .transpose()?;
    let memory = memory.map(|memory| memory.to_string().into());
    let mut all = replica_requirements(deployment, resource_request(cpu.cloned(), memory)?);
    let namespace = namespace(deployment);
    if !namespace.is_empty() {
        set_field(&mut all, "namespace", namespace.into());
    }
    prune_empty(&mut all, &[]);
    Ok(TemplateReplicas {
        count: (job_managers(deployment) + task_managers(deployment)) as i64,
        requirements: Some(all),
    })
}

/// A memory quantity in bytes.
fn memory_bytes(deployment: &Value, pointer: &str) -> Result<Option<Value>, Error> {
    let Some(memory) = value_at(deployment, pointer) else {
        return Ok(None);
    };
    let memory = memory_quantity(pointer, memory)?;
    // A plain number, so that it is not encoded with a binary suffix.
    let bytes = if memory.is_integer() {
        memory.value() as f64
    } else {
        memory.milli_value() as f64 / 1000.0
    };
    Ok(Some(json_number(bytes)))
}

fn components(deployment: &Value) -> Result<Vec<Component>, Error> {
    let part = |name: &str, field: &str, replicas: f64| {
        let cpu = value_at(deployment, &format!("/spec/{field}/resource/cpu"));
        let memory = memory_bytes(deployment, &format!("/spec/{field}/resource/memory"))?;
        let mut all = replica_requirements(deployment, resource_request(cpu.cloned(), memory)?);
        prune_empty(&mut all, &[]);
        new_component(name, replicas, Some(all))
    };
    Ok(vec![
        part("jobmanager", "jobManager", job_managers(deployment))?,
        part("taskmanager", "taskManager", task_managers(deployment))?,
    ])
}
