//! Third-party rules of Spark's SparkApplication: a driver and its executors.

use karmada_api::binding::Component;
use machinery::Quantity;
use serde_json::{Map, Value};

use super::json_map::{
    Error, JsonMap, field_error, fields_at, lenient_number, non_empty_string_at, required_value,
    set_or_remove, string_at, value_at,
};
use super::kruise::sum_counters;
use super::observed_generation::copy_status_fields;
use super::pod_templates::new_component;
use super::{AggregationInput, StatusAggregation, ThirdPartyKindRules};
use crate::empty_values::prune_empty;

const STATUS_FIELDS: &[&str] = &[
    "applicationState",
    "driverInfo",
    "executorState",
    "sparkApplicationId",
    "lastSubmissionAttemptTime",
    "submissionAttempts",
    "executionAttempts",
    "submissionID",
    "terminationTime",
];
const STATE_POINTER: &str = "/applicationState/state";

pub(super) static SPARK_APPLICATION: ThirdPartyKindRules = ThirdPartyKindRules {
    interpret_health: Some(|observed| {
        let state = value_at(observed, "/status/applicationState/state");
        Ok(state.is_some_and(|state| *state != "FAILED"))
    }),
    components: Some(components),
    reflect_status: Some(|observed| copy_status_fields(observed, &[STATUS_FIELDS])),
    aggregate_status: Some(StatusAggregation {
        copies_single_item: true,
        ..StatusAggregation::new(aggregate)
    }),
    ..ThirdPartyKindRules::NONE
};

fn state_rank(state: &str) -> Option<u8> {
    Some(match state {
        "FAILED" | "FAILING" | "SUBMISSION_FAILED" => 6,
        "INVALIDATING" => 5,
        "RUNNING" | "RESUMING" | "SUCCEEDING" => 4,
        "SUSPENDING" | "SUSPENDED" => 3,
        "COMPLETED" => 2,
        "SUBMITTED" | "PENDING_RERUN" => 1,
        "UNKNOWN" | "" => 0,
        _ => return None,
    })
}

fn aggregate(status: &mut JsonMap, input: &AggregationInput<'_>) -> Result<(), Error> {
    let items = &input.items;
    let worst = items.highest_ranked(|reported| {
        if value_at(reported, "/applicationState").is_none() {
            return Ok(None);
        }
        let rank = string_at(reported, STATE_POINTER).and_then(state_rank);
        rank.map(Some)
            .ok_or_else(|| field_error(STATE_POINTER, "a known state"))
    })?;
    let state = worst.and_then(|reported| reported.get("applicationState"));
    set_or_remove(status, "applicationState", state.cloned());
    sum_counters(status, items, &["executionAttempts", "submissionAttempts"])?;
    for time in ["lastSubmissionAttemptTime", "terminationTime"] {
        let latest = items.latest(&format!("/{time}"));
        status.insert(time.into(), latest.unwrap_or_else(|| "".into()));
    }
    let mut executors = Map::new();
    for (_, reported) in items.reported() {
        for (executor, state) in fields_at(reported, "/executorState") {
            executors.insert(executor.clone(), state.clone());
        }
    }
    status.insert("executorState".into(), executors.into());
    Ok(())
}

fn components(application: &Value) -> Result<Vec<Component>, Error> {
    let kind = required_value(application, "/spec/type", "a text")?;
    let kind = kind.as_str().unwrap_or_default().to_ascii_lowercase();
    let absent = if ["java", "scala"].contains(&&*kind) {
        0.1
    } else {
        0.4
    };
    let factor = lenient_number(value_at(application, "/spec/memoryOverheadFactor"));
    let factor = factor.unwrap_or(absent);
    let part = |name: &str, replicas: f64| {
        let requirements = replica_requirements(application, &format!("/spec/{name}"), factor)?;
        new_component(name, replicas, Some(requirements))
    };
    Ok(vec![
        part("driver", 1.0)?,
        part("executor", executor_count(application))?,
    ])
}

/// The configured executors; with dynamic allocation at least the initial and minimum number.
fn executor_count(application: &Value) -> f64 {
    let count = |pointer: &str| lenient_number(value_at(application, pointer)).unwrap_or(1.0);
    let instances = count("/spec/executor/instances");
    let dynamic = value_at(application, "/spec/dynamicAllocation/enabled");
    if dynamic.is_none_or(|dynamic| *dynamic == false) {
        return instances;
    }
    instances
        .max(count("/spec/dynamicAllocation/initialExecutors"))
        .max(count("/spec/dynamicAllocation/minExecutors"))
}

fn replica_requirements(application: &Value, pointer: &str, factor: f64) -> Result<Value, Error> {
    let absent = Value::Null;
    let part = value_at(application, pointer).unwrap_or(&absent);
    let mut request = Map::new();
    let cores = value_at(part, "/cores")
        .cloned()
        .unwrap_or_else(|| 1.into());
    let cores = Quantity::from_value(&cores).map_err(|_| field_error("cores", "a quantity"))?;
    request.insert("cpu".into(), cores.to_string().into());
    let memory = memory_with_overhead(part, factor)?;
    request.insert("memory".into(), memory.to_string().into());
    let devices = lenient_number(value_at(part, "/gpu/quantity")).unwrap_or(0.0);
    if let Some(device) = non_empty_string_at(part, "/gpu/name").filter(|_| devices > 0.0) {
        let devices = Quantity::from_value(&devices.into());
        let devices = devices.map_err(|_| field_error("gpu.quantity", "a quantity"))?;
        request.insert(device.into(), devices.to_string().into());
    }
    let mut all = Map::new();
    all.insert("resourceRequest".into(), request.into());
    let mut claim = Map::new();
    for (field, pointer) in [
        ("nodeSelector", "/nodeSelector"),
        ("tolerations", "/tolerations"),
        (
            "hardNodeAffinity",
            "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution",
        ),
    ] {
        set_or_remove(&mut claim, field, value_at(part, pointer).cloned());
    }
    if !claim.is_empty() {
        all.insert("nodeClaim".into(), claim.into());
    }
    set_or_remove(
        &mut all,
        "priorityClassName",
        non_empty_string_at(part, "/priorityClassName").map(Value::from),
    );
    let mut all = Value::Object(all);
    prune_empty(&mut all, &[]);
    Ok(all)
}

/// A memory size in the notation of the JVM, with units in powers of 1024.
#[derive(Clone, Copy)]
struct JvmMemorySize {
    amount: f64,
    /// 0 bytes, 1 `Ki`, 2 `Mi` …
    power: i32,
}

const UNITS: [&str; 6] = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];

impl JvmMemorySize {
    /// The minimum overhead when none is configured: 384 MiB.
    const MIN_OVERHEAD: Self = Self {
        amount: 384.0,
        power: 2,
    };

    fn parse(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.');
        let (amount, unit) = text.split_at(digits.unwrap_or(text.len()));
        let power = match unit {
            "b" => 0,
            "k" | "kb" => 1,
            "m" | "mb" => 2,
            "g" | "gb" => 3,
            "t" | "tb" => 4,
            "p" | "pb" => 5,
            _ => return None,
        };
        let starts_well = amount.starts_with(|c: char| c.is_ascii_digit());
        let amount = amount.parse().ok().filter(|_| starts_well)?;
        Some(Self { amount, power })
    }

    fn in_power(self, power: i32) -> f64 {
        self.amount * 1024_f64.powi(self.power - power)
    }
}

fn memory_with_overhead(part: &Value, factor: f64) -> Result<Quantity, Error> {
    let size = |pointer: &str, value: &Value| {
        let memory = value.as_str().and_then(JvmMemorySize::parse);
        memory.ok_or_else(|| field_error(pointer, "a size such as 512m"))
    };
    let own = match value_at(part, "/memory") {
        Some(memory) => size("memory", memory)?,
        None => JvmMemorySize {
            amount: 1.0,
            power: 3,
        },
    };
    let more = match value_at(part, "/memoryOverhead") {
        Some(overhead) => size("memoryOverhead", overhead)?,
        None => {
            let share = JvmMemorySize {
                amount: own.amount * factor,
                ..own
            };
            let power = own.power.min(JvmMemorySize::MIN_OVERHEAD.power);
            JvmMemorySize {
                amount: share
                    .in_power(power)
                    .max(JvmMemorySize::MIN_OVERHEAD.in_power(power)),
                power,
            }
        }
    };
    let power = own.power.min(more.power);
    let total = own.in_power(power) + more.in_power(power);
    let unit = usize::try_from(power).ok().and_then(|p| UNITS.get(p));
    let text = format!("{total:.6}{}", unit.unwrap_or(&""));
    Quantity::parse(&text).map_err(|_| field_error("memory", "a quantity"))
}
