//! Third-party rules of Flink's FlinkDeployment: one job manager and its task managers.

use machinery::Quantity;
use openapi::karmada::binding::Component;
use serde_json::{Map, Value};

use super::generations::copied;
use super::pods::{component, namespace};
use super::tree::{Error, Fields, at, lacks, number, put, readable_number, said, set, text};
use super::{Aggregate, Rules, Told};
use crate::empties::settle;
use crate::native::Replicas;

const STATUS: [&str; 8] = [
    "clusterInfo",
    "error",
    "jobManagerDeploymentStatus",
    "jobStatus",
    "observedGeneration",
    "lifecycleState",
    "reconciliationStatus",
    "taskManager",
];
const TEXTS: [&str; 3] = ["error", "jobManagerDeploymentStatus", "lifecycleState"];

/// Errors of the user that another cluster would not fix.
const OF_THE_USER: [&str; 3] = ["ErrImagePull", "ImagePullBackOff", "CrashLoopBackOff"];

pub(super) static FLINK_DEPLOYMENT: Rules = Rules {
    healthy: Some(|observed| Ok(healthy(observed))),
    replicas: Some(replicas),
    components: Some(components),
    reflect: Some(|observed| copied(observed, &[&STATUS])),
    aggregate: Some(Aggregate::new(aggregate)),
    ..Rules::NONE
};

fn healthy(observed: &Value) -> bool {
    let Some(state) = at(observed, "/status/jobStatus/state") else {
        return text(observed, "/status/jobManagerDeploymentStatus") == Some("READY")
            && text(observed, "/status/lifecycleState") == Some("STABLE");
    };
    match state.as_str().unwrap_or_default() {
        "RUNNING" | "FINISHED" | "FAILED" | "CANCELED" | "SUSPENDED" => true,
        "CANCELLING" | "FAILING" | "RESTARTING" => true,
        "CREATED" | "INITIALIZING" | "RECONCILING" => {
            let error = text(observed, "/status/error").unwrap_or_default();
            OF_THE_USER.iter().any(|known| error.contains(known))
        }
        _ => false,
    }
}

fn aggregate(status: &mut Fields, input: &Told<'_>) -> Result<(), Error> {
    let last = input.items.statuses().rev().flatten().next();
    for field in STATUS {
        let value = match last {
            Some(last) => last.get(field).cloned(),
            None if TEXTS.contains(&field) => Some("".into()),
            None if field == "observedGeneration" => Some(0.into()),
            None => None,
        };
        set(status, field, value);
    }
    Ok(())
}

fn job_managers(deployment: &Value) -> f64 {
    readable_number(at(deployment, "/spec/jobManager/replicas")).unwrap_or(1.0)
}

/// The task managers that are asked for, else as many as the parallelism needs slots.
fn task_managers(deployment: &Value) -> f64 {
    if let Some(replicas) = readable_number(at(deployment, "/spec/taskManager/replicas")) {
        return replicas;
    }
    let slots = at(
        deployment,
        "/spec/flinkConfiguration/taskmanager.numberOfTaskSlots",
    );
    let parallelism = readable_number(at(deployment, "/spec/job/parallelism"));
    match (parallelism, readable_number(slots)) {
        (Some(parallelism), Some(slots)) if slots != 0.0 => (parallelism / slots).ceil(),
        _ => 1.0,
    }
}

fn quantity(pointer: &str, value: &Value) -> Result<Quantity, Error> {
    Quantity::from_value(value).map_err(|_| lacks(pointer, "a quantity"))
}

/// The greater of two fields, or the only one that is set; the second when they are equal.
fn greater<'a>(
    deployment: &'a Value,
    pointers: [&str; 2],
    amount: impl Fn(&str, &Value) -> Result<Quantity, Error>,
) -> Result<Option<&'a Value>, Error> {
    match pointers.map(|pointer| at(deployment, pointer)) {
        [Some(one), Some(other)] => {
            let greater = amount(pointers[0], one)? > amount(pointers[1], other)?;
            Ok(Some(if greater { one } else { other }))
        }
        [one, other] => Ok(one.or(other)),
    }
}

/// Every quantity in its canonical form.
fn amounts(request: Map<String, Value>) -> Result<Value, Error> {
    let each = request.into_iter().map(|(name, amount)| {
        let amount = quantity(&name, &amount)?;
        Ok((name, Value::from(amount.to_string())))
    });
    let amounts: Result<Map<String, Value>, Error> = each.collect();
    Ok(amounts?.into())
}

fn request(cpu: Option<Value>, memory: Option<Value>) -> Result<Value, Error> {
    let mut request = Map::new();
    set(&mut request, "cpu", cpu);
    set(&mut request, "memory", memory);
    amounts(request)
}

/// The node claim without the affinity, as in Karmada's rule.
fn claim(pod: &Value) -> Map<String, Value> {
    let mut claim = Map::new();
    for field in ["nodeSelector", "tolerations"] {
        set(&mut claim, field, at(pod, &format!("/{field}")).cloned());
    }
    claim
}

fn requirements(deployment: &Value, request: Value) -> Value {
    let mut all = Map::new();
    all.insert("resourceRequest".into(), request);
    if let Some(pod) = at(deployment, "/spec/podTemplate/spec") {
        let claim = claim(pod);
        if !claim.is_empty() {
            all.insert("nodeClaim".into(), claim.into());
        }
        let class = said(pod, "/priorityClassName").map(Value::from);
        set(&mut all, "priorityClassName", class);
    }
    all.into()
}

/// All managers as replicas of one kind; each requires what the larger manager requires.
fn replicas(deployment: &Value) -> Result<Replicas, Error> {
    let resource = |field: &str| {
        ["jobManager", "taskManager"].map(|who| format!("/spec/{who}/resource/{field}"))
    };
    let [job, task] = &resource("cpu");
    let cpu = greater(deployment, [job, task], |pointer, value| {
        readable_number(Some(value))
            .and_then(|n| Quantity::from_value(&number(n)).ok())
            .ok_or_else(|| lacks(pointer, "a number"))
    })?;
    let [job, task] = &resource("memory");
    let memory = greater(deployment, [job, task], |pointer, value| {
        let memory = quantity(pointer, value)?;
        let valid = (!memory.is_negative()).then_some(memory);
        valid.ok_or_else(|| lacks(pointer, "a quantity that is not negative"))
    })?;
    let mut all = requirements(deployment, request(cpu.cloned(), memory.cloned())?);
    let namespace = namespace(deployment);
    if !namespace.is_empty() {
        put(&mut all, "namespace", namespace.into());
    }
    settle(&mut all, &[]);
    Ok(Replicas {
        count: (job_managers(deployment) + task_managers(deployment)) as i64,
        requirements: Some(all),
    })
}

/// A memory quantity in bytes.
fn bytes(deployment: &Value, pointer: &str) -> Result<Option<Value>, Error> {
    let Some(memory) = at(deployment, pointer) else {
        return Ok(None);
    };
    let memory = quantity(pointer, memory)?;
    if memory.is_negative() {
        return Err(lacks(pointer, "a quantity that is not negative"));
    }
    // A plain number, so that it is not encoded with a binary suffix.
    let bytes = if memory.is_whole() {
        memory.value() as f64
    } else {
        memory.milli() as f64 / 1000.0
    };
    Ok(Some(number(bytes)))
}

fn components(deployment: &Value) -> Result<Vec<Component>, Error> {
    let part = |name: &str, field: &str, replicas: f64| {
        let cpu = at(deployment, &format!("/spec/{field}/resource/cpu"));
        let memory = bytes(deployment, &format!("/spec/{field}/resource/memory"))?;
        let mut all = requirements(deployment, request(cpu.cloned(), memory)?);
        settle(&mut all, &[]);
        component(name, replicas, Some(all))
    };
    Ok(vec![
        part("jobmanager", "jobManager", job_managers(deployment))?,
        part("taskmanager", "taskManager", task_managers(deployment))?,
    ])
}
