//! Third-party rules of OpenKruise's BroadcastJob, AdvancedCronJob and SidecarSet.

use openapi::karmada::Dependency;
use serde_json::{Value, json};

use super::generations::copied;
use super::items::is;
use super::kruise::sums;
use super::pods::{core, refers_at, replicas};
use super::tree::{
    Error, Fields, at, lacks, list, needed, number_or_zero, put, put_in_spec, said, set, text,
};
use super::{Aggregate, Rules, Told};

const OUTCOMES: [&str; 2] = ["Complete", "Failed"];

pub(super) static BROADCAST_JOB: Rules = Rules {
    healthy: Some(|observed| {
        let status = needed(observed, "/status", "an object")?;
        let zero = |field: &str| at(status, field).and_then(Value::as_f64) == Some(0.0);
        let idle = zero("/succeeded") && zero("/active");
        Ok(!zero("/desired") && zero("/failed") && !idle)
    }),
    reflect: Some(|observed| {
        copied(
            observed,
            &[&[
                "conditions",
                "startTime",
                "completionTime",
                "active",
                "succeeded",
                "failed",
                "desired",
                "phase",
            ]],
        )
    }),
    aggregate: Some(Aggregate::new(broadcast)),
    replicas: Some(|object| replicas(object, "/spec/parallelism", Some(1.0))),
    revise: Some(|copy, replicas| put_in_spec(copy, "parallelism", replicas.into())),
    retain: Some(retain_labels),
    dependencies: Some(|object| refers_at(object, "/spec/template")),
    ..Rules::NONE
};

pub(super) static ADVANCED_CRON_JOB: Rules = Rules {
    aggregate: Some(Aggregate::new(|status, input| {
        let kind = input.items.last("/type").cloned();
        status.insert("active".into(), input.items.joined("/active").into());
        status.insert("type".into(), kind.unwrap_or_else(|| "".into()));
        let scheduled = input.items.last("/lastScheduleTime").cloned();
        set(status, "lastScheduleTime", scheduled);
        Ok(())
    })),
    dependencies: Some(|object| {
        needed(object, "/spec/template", "an object")?;
        let templates = [
            "/spec/template/broadcastJobTemplate",
            "/spec/template/jobTemplate",
        ];
        match templates
            .iter()
            .find(|pointer| at(object, pointer).is_some())
        {
            Some(pointer) => refers_at(object, &format!("{pointer}/spec/template")),
            None => Ok(Vec::new()),
        }
    }),
    ..Rules::NONE
};

const PODS: [&str; 3] = ["matchedPods", "updatedPods", "readyPods"];

pub(super) static SIDECAR_SET: Rules = Rules {
    healthy: Some(|observed| {
        let Some(status) = at(observed, "/status") else {
            return Ok(false);
        };
        let matched = number_or_zero(status, "/matchedPods")?;
        Ok(matched == 0.0 || matched == number_or_zero(status, "/updatedPods")?)
    }),
    reflect: Some(|observed| {
        let Some(status) = at(observed, "/status") else {
            return Fields::new();
        };
        let count = |field: &str| status.get(field).filter(|n| !n.is_null()).cloned();
        let counts = PODS.map(|f| (f.to_owned(), count(f).unwrap_or_else(|| 0.into())));
        counts.into_iter().collect()
    }),
    aggregate: Some(Aggregate {
        keeps_spec: false,
        unlisted: |status, _| {
            *status = PODS.map(|f| (f.to_owned(), 0.into())).into_iter().collect()
        },
        ..Aggregate::new(|status, input| {
            status.clear();
            sums(status, &input.items, &PODS)
        })
    }),
    replicas: Some(|_| Ok(crate::native::Replicas::default())),
    retain: Some(|_, _| Ok(())),
    dependencies: Some(|object| Ok(sidecars(object))),
    ..Rules::NONE
};

/// Aggregates a BroadcastJob. A cluster without a finished condition counts like the cluster before
/// it, as in Karmada's rule.
fn broadcast(status: &mut Fields, input: &Told<'_>) -> Result<(), Error> {
    let mut outcome = None;
    let mut failed = Vec::new();
    let mut complete = 0;
    for item in input.items.0 {
        let conditions = item.status.map(|s| list(s, "/conditions"));
        let ended = |c: &&Value| OUTCOMES.iter().any(|kind| is(c, kind, "True"));
        let own = conditions.unwrap_or_default().iter().find(ended);
        outcome = own.and_then(|c| text(c, "/type")).or(outcome);
        match outcome {
            Some("Failed") => failed.push(item.cluster),
            Some(_) => complete += 1,
            None => {}
        }
    }
    let mut conditions = Vec::new();
    if !failed.is_empty() {
        let clusters = failed.join(", ");
        conditions.push(
            json!({"type": "Failed", "status": "True", "reason": "JobFailed",
            "message": format!("Job executed failed in member clusters: {clusters}")}),
        );
    }
    if complete > 0 && complete == input.items.len() {
        conditions.push(
            json!({"type": "Completed", "status": "True", "reason": "Completed",
            "message": "Job completed"}),
        );
    }
    sums(
        status,
        &input.items,
        &["active", "succeeded", "failed", "desired"],
    )?;
    let phase = input.items.last("/phase").cloned();
    status.insert("phase".into(), phase.unwrap_or_else(|| "".into()));
    status.insert("conditions".into(), conditions.into());
    Ok(())
}

fn retain_labels(desired: &mut Value, observed: &Value) -> Result<(), Error> {
    const METADATA: &str = "/spec/template/metadata";
    let template = needed(observed, "/spec/template", "an object")?;
    let Some(labels) = at(template, "/metadata/labels") else {
        return Ok(());
    };
    let metadata = desired.pointer_mut(METADATA).filter(|m| m.is_object());
    let metadata = metadata.ok_or_else(|| lacks(METADATA, "an object"))?;
    put(metadata, "labels", labels.clone());
    Ok(())
}

/// The dependencies of the sidecar containers.
fn sidecars(object: &Value) -> Vec<Dependency> {
    let mut found = Vec::new();
    let mut add_dependency = |source: &Value, pointer: &str, kind: &str, name: &str| {
        if let Some(reference) = at(source, pointer) {
            let name = said(reference, name).unwrap_or_default();
            found.push(core(object, kind, name));
        }
    };
    for container in list(object, "/spec/containers") {
        for variable in list(container, "/env") {
            add_dependency(variable, "/valueFrom/configMapKeyRef", "ConfigMap", "/name");
            add_dependency(variable, "/valueFrom/secretKeyRef", "Secret", "/name");
        }
        for source in list(container, "/envFrom") {
            add_dependency(source, "/configMapRef", "ConfigMap", "/name");
            add_dependency(source, "/secretRef", "Secret", "/name");
        }
    }
    for volume in list(object, "/spec/volumes") {
        add_dependency(volume, "/configMap", "ConfigMap", "/name");
        add_dependency(volume, "/secret", "Secret", "/secretName");
        for source in list(volume, "/projected/sources") {
            add_dependency(source, "/configMap", "ConfigMap", "/name");
            add_dependency(source, "/secret", "Secret", "/name");
        }
    }
    found
}
