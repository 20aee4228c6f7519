//! Third-party rules of Spark's SparkApplication: a driver and its executors.

use machinery::Quantity;
use openapi::karmada::binding::Component;
use serde_json::{Map, Value};

use super::generations::copied;
use super::kruise::sums;
use super::pods::component;
use super::tree::{Error, Fields, at, entries, lacks, needed, readable_number, said, set, text};
use super::{Aggregate, Rules, Told};
use crate::empties::settle;

const STATUS: &[&str] = &[
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
const STATE: &str = "/applicationState/state";

pub(super) static SPARK_APPLICATION: Rules = Rules {
    healthy: Some(|observed| {
        let state = at(observed, "/status/applicationState/state");
        Ok(state.is_some_and(|state| *state != "FAILED"))
    }),
    components: Some(components),
    reflect: Some(|observed| copied(observed, &[STATUS])),
    aggregate: Some(Aggregate {
        sole: true,
        ..Aggregate::new(aggregate)
    }),
    ..Rules::NONE
};

fn rank(state: &str) -> Option<u8> {
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

fn aggregate(status: &mut Fields, input: &Told<'_>) -> Result<(), Error> {
    let items = &input.items;
    let worst = items.worst(|reported| {
        if at(reported, "/applicationState").is_none() {
            return Ok(None);
        }
        let rank = text(reported, STATE).and_then(rank);
        rank.map(Some).ok_or_else(|| lacks(STATE, "a known state"))
    })?;
    let state = worst.and_then(|reported| reported.get("applicationState"));
    set(status, "applicationState", state.cloned());
    sums(status, items, &["executionAttempts", "submissionAttempts"])?;
    for time in ["lastSubmissionAttemptTime", "terminationTime"] {
        let latest = items.latest(&format!("/{time}"));
        status.insert(time.into(), latest.unwrap_or_else(|| "".into()));
    }
    let mut executors = Map::new();
    for (_, reported) in items.told() {
        for (executor, state) in entries(reported, "/executorState") {
            executors.insert(executor.clone(), state.clone());
        }
    }
    status.insert("executorState".into(), executors.into());
    Ok(())
}

fn components(application: &Value) -> Result<Vec<Component>, Error> {
    let kind = needed(application, "/spec/type", "a text")?;
    let kind = kind.as_str().unwrap_or_default().to_ascii_lowercase();
    let absent = if ["java", "scala"].contains(&&*kind) {
        0.1
    } else {
        0.4
    };
    let factor = readable_number(at(application, "/spec/memoryOverheadFactor"));
    let factor = factor.unwrap_or(absent);
    let part = |name: &str, replicas: f64| {
        let requirements = requirements(application, &format!("/spec/{name}"), factor)?;
        component(name, replicas, Some(requirements))
    };
    Ok(vec![
        part("driver", 1.0)?,
        part("executor", executors(application))?,
    ])
}

/// The configured executors; with dynamic allocation at least the initial and minimum number.
fn executors(application: &Value) -> f64 {
    let count = |pointer: &str| readable_number(at(application, pointer)).unwrap_or(1.0);
    let instances = count("/spec/executor/instances");
    let dynamic = at(application, "/spec/dynamicAllocation/enabled");
    if dynamic.is_none_or(|dynamic| *dynamic == false) {
        return instances;
    }
    instances
        .max(count("/spec/dynamicAllocation/initialExecutors"))
        .max(count("/spec/dynamicAllocation/minExecutors"))
}

fn requirements(application: &Value, pointer: &str, factor: f64) -> Result<Value, Error> {
    let absent = Value::Null;
    let part = at(application, pointer).unwrap_or(&absent);
    let mut request = Map::new();
    let cores = at(part, "/cores").cloned().unwrap_or_else(|| 1.into());
    let cores = Quantity::from_value(&cores).map_err(|_| lacks("cores", "a quantity"))?;
    request.insert("cpu".into(), cores.to_string().into());
    let memory = memory(part, factor)?;
    request.insert("memory".into(), memory.to_string().into());
    let devices = readable_number(at(part, "/gpu/quantity")).unwrap_or(0.0);
    if let Some(device) = said(part, "/gpu/name").filter(|_| devices > 0.0) {
        let devices = Quantity::from_value(&devices.into());
        let devices = devices.map_err(|_| lacks("gpu.quantity", "a quantity"))?;
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
        set(&mut claim, field, at(part, pointer).cloned());
    }
    if !claim.is_empty() {
        all.insert("nodeClaim".into(), claim.into());
    }
    set(
        &mut all,
        "priorityClassName",
        said(part, "/priorityClassName").map(Value::from),
    );
    let mut all = Value::Object(all);
    settle(&mut all, &[]);
    Ok(all)
}

/// A memory size in the notation of the JVM, with units in powers of 1024.
#[derive(Clone, Copy)]
struct Memory {
    amount: f64,
    /// 0 bytes, 1 `Ki`, 2 `Mi` …
    power: i32,
}

const UNITS: [&str; 6] = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];

impl Memory {
    /// The minimum overhead when none is configured: 384 MiB.
    const LEAST: Self = Self {
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

    fn to_power(self, power: i32) -> f64 {
        self.amount * 1024_f64.powi(self.power - power)
    }
}

fn memory(part: &Value, factor: f64) -> Result<Quantity, Error> {
    let size = |pointer: &str, value: &Value| {
        let memory = value.as_str().and_then(Memory::parse);
        memory.ok_or_else(|| lacks(pointer, "a size such as 512m"))
    };
    let own = match at(part, "/memory") {
        Some(memory) => size("memory", memory)?,
        None => Memory {
            amount: 1.0,
            power: 3,
        },
    };
    let more = match at(part, "/memoryOverhead") {
        Some(overhead) => size("memoryOverhead", overhead)?,
        None => {
            let share = Memory {
                amount: own.amount * factor,
                ..own
            };
            let power = own.power.min(Memory::LEAST.power);
            Memory {
                amount: share.to_power(power).max(Memory::LEAST.to_power(power)),
                power,
            }
        }
    };
    let power = own.power.min(more.power);
    let total = own.to_power(power) + more.to_power(power);
    let unit = usize::try_from(power).ok().and_then(|p| UNITS.get(p));
    let text = format!("{total:.6}{}", unit.unwrap_or(&""));
    Quantity::parse(&text).map_err(|_| lacks("memory", "a quantity"))
}
