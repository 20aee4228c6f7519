//! Third-party rules of OpenKruise's BroadcastJob, AdvancedCronJob and SidecarSet.

use karmada_api::DependentObjectReference;
use serde_json::{Value, json};

use super::collected_statuses::condition_is;
use super::json_map::{
    Error, JsonMap, field_error, list_at, non_empty_string_at, number_or_zero, required_value,
    set_field, set_or_remove, set_spec_field, string_at, value_at,
};
use super::kruise::sum_counters;
use super::observed_generation::copy_status_fields;
use super::pod_templates::{core_dependency, pod_template_dependencies_at, replicas_at};
use super::{AggregationInput, StatusAggregation, ThirdPartyKindRules};

const FINISHED_CONDITIONS: [&str; 2] = ["Complete", "Failed"];

pub(super) static BROADCAST_JOB: ThirdPartyKindRules = ThirdPartyKindRules {
    interpret_health: Some(|observed| {
        let status = required_value(observed, "/status", "an object")?;
        let zero = |field: &str| value_at(status, field).and_then(Value::as_f64) == Some(0.0);
        let idle = zero("/succeeded") && zero("/active");
        Ok(!zero("/desired") && zero("/failed") && !idle)
    }),
    reflect_status: Some(|observed| {
        copy_status_fields(
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
    aggregate_status: Some(StatusAggregation::new(aggregate_broadcast_job)),
    replicas: Some(|object| replicas_at(object, "/spec/parallelism", Some(1.0))),
    revise_replica: Some(|copy, replicas| set_spec_field(copy, "parallelism", replicas.into())),
    retain: Some(retain_labels),
    dependencies: Some(|object| pod_template_dependencies_at(object, "/spec/template")),
    ..ThirdPartyKindRules::NONE
};

pub(super) static ADVANCED_CRON_JOB: ThirdPartyKindRules = ThirdPartyKindRules {
    aggregate_status: Some(StatusAggregation::new(|status, input| {
        let kind = input.items.last("/type").cloned();
        status.insert("active".into(), input.items.concatenated("/active").into());
        status.insert("type".into(), kind.unwrap_or_else(|| "".into()));
        let scheduled = input.items.last("/lastScheduleTime").cloned();
        set_or_remove(status, "lastScheduleTime", scheduled);
        Ok(())
    })),
    dependencies: Some(|object| {
        required_value(object, "/spec/template", "an object")?;
        let templates = [
            "/spec/template/broadcastJobTemplate",
            "/spec/template/jobTemplate",
        ];
        match templates
            .iter()
            .find(|pointer| value_at(object, pointer).is_some())
        {
            Some(pointer) => {
                pod_template_dependencies_at(object, &format!("{pointer}/spec/template"))
            }
            None => Ok(Vec::new()),
        }
    }),
    ..ThirdPartyKindRules::NONE
};

const POD_COUNTERS: [&str; 3] = ["matchedPods", "updatedPods", "readyPods"];

pub(super) static SIDECAR_SET: ThirdPartyKindRules = ThirdPartyKindRules {
    interpret_health: Some(|observed| {
        let Some(status) = value_at(observed, "/status") else {
            return Ok(false);
        };
        let matched = number_or_zero(status, "/matchedPods")?;
        Ok(matched == 0.0 || matched == number_or_zero(status, "/updatedPods")?)
    }),
    reflect_status: Some(|observed| {
        let Some(status) = value_at(observed, "/status") else {
            return JsonMap::new();
        };
        let count = |field: &str| status.get(field).filter(|n| !n.is_null()).cloned();
        let counts = POD_COUNTERS.map(|f| (f.to_owned(), count(f).unwrap_or_else(|| 0.into())));
        counts.into_iter().collect()
    }),
    aggregate_status: Some(StatusAggregation {
        keeps_spec: false,
        without_items: |status, _| {
            *status = POD_COUNTERS
                .map(|f| (f.to_owned(), 0.into()))
                .into_iter()
                .collect()
        },
        ..StatusAggregation::new(|status, input| {
            status.clear();
            sum_counters(status, &input.items, &POD_COUNTERS)
        })
    }),
    replicas: Some(|_| Ok(crate::native::TemplateReplicas::default())),
    retain: Some(|_, _| Ok(())),
    dependencies: Some(|object| Ok(sidecar_set_dependencies(object))),
    ..ThirdPartyKindRules::NONE
};

/// Aggregates a BroadcastJob. A cluster without a finished condition counts like the cluster before
/// it, as in Karmada's rule.
fn aggregate_broadcast_job(
    status: &mut JsonMap,
    input: &AggregationInput<'_>,
) -> Result<(), Error> {
    let mut outcome = None;
    let mut failed = Vec::new();
    let mut complete = 0;
    for item in input.items.0 {
        let conditions = item.status.map(|s| list_at(s, "/conditions"));
        let ended = |c: &&Value| {
            FINISHED_CONDITIONS
                .iter()
                .any(|kind| condition_is(c, kind, "True"))
        };
        let own = conditions.unwrap_or_default().iter().find(ended);
        outcome = own.and_then(|c| string_at(c, "/type")).or(outcome);
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
    sum_counters(
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
    let template = required_value(observed, "/spec/template", "an object")?;
    let Some(labels) = value_at(template, "/metadata/labels") else {
        return Ok(());
    };
    let metadata = desired.pointer_mut(METADATA).filter(|m| m.is_object());
    let metadata = metadata.ok_or_else(|| field_error(METADATA, "an object"))?;
    set_field(metadata, "labels", labels.clone());
    Ok(())
}

/// The dependencies of the sidecar containers.
fn sidecar_set_dependencies(object: &Value) -> Vec<DependentObjectReference> {
    let mut dependencies = Vec::new();
    let mut add_dependency = |source: &Value, pointer: &str, kind: &str, name: &str| {
        if let Some(reference) = value_at(source, pointer) {
            let name = non_empty_string_at(reference, name).unwrap_or_default();
            dependencies.push(core_dependency(object, kind, name));
        }
    };
    for container in list_at(object, "/spec/containers") {
        for variable in list_at(container, "/env") {
            add_dependency(variable, "/valueFrom/configMapKeyRef", "ConfigMap", "/name");
            add_dependency(variable, "/valueFrom/secretKeyRef", "Secret", "/name");
        }
        for source in list_at(container, "/envFrom") {
            add_dependency(source, "/configMapRef", "ConfigMap", "/name");
            add_dependency(source, "/secretRef", "Secret", "/name");
        }
    }
    for volume in list_at(object, "/spec/volumes") {
        add_dependency(volume, "/configMap", "ConfigMap", "/name");
        add_dependency(volume, "/secret", "Secret", "/secretName");
        for source in list_at(volume, "/projected/sources") {
            add_dependency(source, "/configMap", "ConfigMap", "/name");
            add_dependency(source, "/secret", "Secret", "/name");
        }
    }
    dependencies
}
