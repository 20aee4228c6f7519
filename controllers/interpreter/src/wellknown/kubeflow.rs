//! Third-party rules of Kubeflow's PyTorchJob and TFJob, which have a pod template per replica type.

use machinery::time::rfc3339_seconds;
use openapi::karmada::Dependency;
use openapi::karmada::binding::Component;
use serde_json::{Map, Value, json};

use super::idle::{idle, without};
use super::items::{Items, is};
use super::pods::{component, needs, own_namespace, refers};
use super::tree::{Error, Fields, at, list, readable_number, set, text};
use super::{Aggregate, Rules, Told};

/// The replica types of a kind, and the JSON pointer of their specs.
struct Roles {
    pointer: &'static str,
    names: &'static [&'static str],
}

const PYTORCH: Roles = Roles {
    pointer: "/spec/pytorchReplicaSpecs",
    names: &["Master", "Worker"],
};

const TF: Roles = Roles {
    pointer: "/spec/tfReplicaSpecs",
    names: &["PS", "Worker", "Chief", "Master", "Evaluator"],
};

pub(super) static PYTORCH_JOB: Rules = Rules {
    healthy: Some(|observed| Ok(healthy(observed))),
    components: Some(|job| components(job, &PYTORCH)),
    dependencies: Some(|job| Ok(dependencies(job, &PYTORCH))),
    aggregate: Some(Aggregate {
        unlisted: |status, _| forget(status),
        ..Aggregate::new(|status, input| {
            if input.items.is_empty() {
                forget(status);
                return Ok(());
            }
            aggregate(status, input, &PYTORCH, pytorch_end, pytorch_conditions)
        })
    }),
    ..Rules::NONE
};

pub(super) static TF_JOB: Rules = Rules {
    healthy: Some(|observed| Ok(healthy(observed))),
    components: Some(|job| components(job, &TF)),
    dependencies: Some(|job| Ok(dependencies(job, &TF))),
    aggregate: Some(Aggregate {
        unlisted: |status, _| forget(status),
        ..Aggregate::new(|status, input| aggregate(status, input, &TF, tf_end, tf_conditions))
    }),
    ..Rules::NONE
};

fn healthy(observed: &Value) -> bool {
    let mut conditions = list(observed, "/status/conditions").iter();
    at(observed, "/status/conditions").is_some() && !conditions.any(|c| is(c, "Failed", "True"))
}

impl Roles {
    fn of<'a>(&self, job: &'a Value) -> impl Iterator<Item = (&'static str, &'a Value)> {
        let specs = at(job, self.pointer);
        let names = self.names.iter();
        names.filter_map(move |name| {
            let spec = specs?.get(*name).filter(|spec| !spec.is_null())?;
            Some((*name, spec))
        })
    }
}

fn components(job: &Value, roles: &Roles) -> Result<Vec<Component>, Error> {
    let each = roles.of(job).map(|(name, spec)| {
        let replicas = readable_number(spec.get("replicas")).unwrap_or(1.0);
        let template = at(spec, "/template").map(needs).transpose()?;
        component(&name.to_ascii_lowercase(), replicas, template.flatten())
    });
    each.collect()
}

fn dependencies(job: &Value, roles: &Roles) -> Vec<Dependency> {
    let namespace = own_namespace(job);
    let templates = roles.of(job).filter_map(|(_, spec)| at(spec, "/template"));
    templates
        .flat_map(|template| refers(namespace, template))
        .collect()
}

/// Removes everything that clusters reported. An empty status remains.
fn forget(status: &mut Fields) {
    status.remove("startTime");
    status.remove("completionTime");
    for field in ["replicaStatuses", "conditions"] {
        status.insert(field.into(), json!([]));
    }
}

/// How the job of one cluster ended.
#[derive(Clone, Copy)]
enum End {
    Failed,
    Succeeded,
}

/// How the jobs of all clusters ended.
struct Outcome<'a> {
    failed: Vec<&'a str>,
    all_succeeded: bool,
}

impl<'a> Outcome<'a> {
    fn of(items: &Items<'a>, ended: fn(&Value) -> Option<End>) -> Self {
        let mut failed = Vec::new();
        let mut succeeded = 0;
        for (cluster, reported) in items.told() {
            match ended(reported) {
                Some(End::Failed) => failed.push(cluster),
                Some(End::Succeeded) => succeeded += 1,
                None => {}
            }
        }
        Self {
            failed,
            all_succeeded: succeeded > 0 && succeeded == items.len(),
        }
    }

    fn message_of_failure(&self, kind: &str) -> String {
        let clusters = self.failed.join(", ");
        format!("{kind} executed failed in member clusters: {clusters}")
    }
}

fn started(items: &Items<'_>) -> Option<Value> {
    items.times("/startTime").min().map(Value::from)
}

fn aggregate(
    status: &mut Fields,
    input: &Told<'_>,
    roles: &Roles,
    ended: fn(&Value) -> Option<End>,
    conditions: fn(&Told<'_>, &Outcome<'_>) -> Vec<Value>,
) -> Result<(), Error> {
    let items = &input.items;
    let outcome = Outcome::of(items, ended);
    let mut counts = Map::new();
    for role in roles.names {
        counts.insert((*role).to_owned(), counts_of(items, role)?);
    }
    set(status, "startTime", started(items));
    set(
        status,
        "lastReconcileTime",
        items.latest("/lastReconcileTime"),
    );
    if outcome.all_succeeded {
        set(status, "completionTime", items.latest("/completionTime"));
    }
    status.insert("replicaStatuses".into(), counts.into());
    status.insert("conditions".into(), conditions(input, &outcome).into());
    let pruned = without(Value::Object(std::mem::take(status)), idle);
    if let Some(Value::Object(pruned)) = pruned {
        *status = pruned;
    }
    Ok(())
}

/// The number of pods of a replica type per state.
fn counts_of(items: &Items<'_>, role: &str) -> Result<Value, Error> {
    let mut counts = Map::new();
    for state in ["active", "failed", "succeeded"] {
        let sum = items.sum(&format!("/replicaStatuses/{role}/{state}"))?;
        counts.insert(state.into(), sum);
    }
    Ok(counts.into())
}

fn has(reported: &Value, kind: &str) -> bool {
    let mut conditions = list(reported, "/conditions").iter();
    conditions.any(|c| is(c, kind, "True"))
}

/// The outcome by the last finished condition.
fn tf_end(reported: &Value) -> Option<End> {
    let mut latest_first = list(reported, "/conditions").iter().rev();
    latest_first.find_map(|c| {
        if is(c, "Failed", "True") {
            Some(End::Failed)
        } else {
            is(c, "Succeeded", "True").then_some(End::Succeeded)
        }
    })
}

fn tf_conditions(input: &Told<'_>, outcome: &Outcome<'_>) -> Vec<Value> {
    let now = rfc3339_seconds(input.now);
    let condition = |kind: &str, reason: &str, message: String| {
        json!({"type": kind, "status": "True",
        "reason": reason, "message": message, "lastProbeTime": now, "lastTransitionTime": now})
    };
    if !outcome.failed.is_empty() {
        let message = outcome.message_of_failure("TFJob");
        return vec![condition("Failed", "TFJobFailed", message)];
    }
    if outcome.all_succeeded {
        let message = "TFJob completed successfully".into();
        return vec![condition("Succeeded", "Completed", message)];
    }
    Vec::new()
}

/// The outcome by the finished conditions; Failed wins over Succeeded.
fn pytorch_end(reported: &Value) -> Option<End> {
    if has(reported, "Failed") {
        Some(End::Failed)
    } else {
        has(reported, "Succeeded").then_some(End::Succeeded)
    }
}

/// The conditions in the order in which a job goes through them, since clients show the last.
fn pytorch_conditions(input: &Told<'_>, outcome: &Outcome<'_>) -> Vec<Value> {
    let items = &input.items;
    let condition =
        |kind: &str, status: bool, message: &str, [updated, changed]: [Option<Value>; 2]| {
            json!({"type": kind, "status": if status { "True" } else { "False" },
            "reason": format!("PyTorchJob{kind}"), "message": message,
            "lastUpdateTime": updated, "lastTransitionTime": changed})
        };
    let mut conditions = Vec::new();
    if items.told().any(|(_, reported)| has(reported, "Created")) {
        let at = [started(items), started(items)];
        conditions.push(condition("Created", true, "PyTorchJob is created.", at));
    }
    let all = items
        .told()
        .flat_map(|(_, reported)| list(reported, "/conditions"));
    if let Some(running) = all.filter(|c| text(c, "/type") == Some("Running")).last() {
        let ended = !outcome.failed.is_empty() || outcome.all_succeeded;
        let at = ["/lastUpdateTime", "/lastTransitionTime"].map(|time| at(running, time).cloned());
        conditions.push(condition("Running", !ended, "PyTorchJob is running.", at));
    }
    let completed = [(); 2].map(|()| items.latest("/completionTime"));
    if !outcome.failed.is_empty() {
        let message = outcome.message_of_failure("PyTorchJob");
        conditions.push(condition("Failed", true, &message, completed));
    } else if outcome.all_succeeded {
        let message = "PyTorchJob is successfully completed.";
        conditions.push(condition("Succeeded", true, message, completed));
    }
    conditions
}
