//! Mutates and validates FederatedHPA, CronFederatedHPA, MultiClusterService and
//! MultiClusterIngress. Reads the system's time zone names, nothing else. Rules of
//! Karmada's
//! `webhook/{federatedhpa,cronfederatedhpa,multiclusterservice,multiclusteringress}`.

use std::collections::HashSet;

use jiff::tz;
use karmada_api::well_known_keys::MULTI_CLUSTER_SERVICE_ID;
use machinery::names::{validate_dns1035_label, validate_dns1123_label};
use machinery::{FieldError, Gvk};
use serde_json::Value;

use crate::binding::set_permanent_id;
use crate::builtin;
use crate::cluster;
use crate::unstructured::{get, index_path, int, items, report_invalid, text, texts};

const HPA_KIND: Gvk = Gvk::from_static("autoscaling", "v2", "HorizontalPodAutoscaler");

/// Applies the defaults of a HorizontalPodAutoscaler.
pub(crate) fn mutate_hpa(hpa: &mut Value) {
    openapi::defaults::apply(&HPA_KIND, hpa);
}

pub(crate) fn validate_hpa(hpa: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = get(hpa, "/spec");
    builtin::validate_replica_bounds(spec, 1, &mut errors);
    builtin::validate_scale_target(spec, &mut errors);
    builtin::validate_metrics(spec, builtin::MetricRules::FEDERATED, &mut errors);
    builtin::validate_behavior(get(spec, "/behavior"), &mut errors);
    for count in ["currentReplicas", "desiredReplicas"] {
        let replicas = int(hpa, &format!("/status/{count}")).unwrap_or(0);
        if replicas < 0 {
            errors.push(FieldError::invalid(
                format!("status.{count}"),
                &replicas.into(),
                "must be greater than or equal to 0",
            ));
        }
    }
    errors
}

pub(crate) fn validate_cron_hpa(cron: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let target = get(cron, "/spec/scaleTargetRef");
    let federated = text(target, "/apiVersion") == "autoscaling.karmada.io/v1alpha1";
    let kind = text(target, "/kind");
    if federated && kind != "FederatedHPA" {
        let detail = format!("invalid scaleTargetRef kind: {kind}, only support FederatedHPA");
        let field = "spec.scaleTargetRef.kind";
        return vec![FieldError::invalid(field, &kind.into(), detail)];
    }
    builtin::validate_scale_target(get(cron, "/spec"), &mut errors);
    let mut names = HashSet::new();
    for (i, rule) in items(cron, "/spec/rules").iter().enumerate() {
        let field = index_path("spec.rules", i);
        let name = text(rule, "/name");
        if !names.insert(name) {
            errors.push(FieldError::duplicate(format!("{field}.name"), &name.into()));
        }
        let schedule = text(rule, "/schedule");
        if builtin::validate_schedule(schedule).is_err() {
            errors.push(FieldError::invalid(
                format!("{field}.schedule"),
                &schedule.into(),
                "invalid cron format",
            ));
        }
        let zone = text(rule, "/timeZone");
        if !zone.is_empty() && !is_known_time_zone(zone) {
            errors.push(FieldError::invalid(
                format!("{field}.timeZone"),
                &zone.into(),
                format!("unknown time zone {zone}"),
            ));
        }
        if federated {
            validate_target_bounds(&field, rule, &mut errors);
        } else {
            validate_target_replicas(&field, rule, kind, &mut errors);
        }
    }
    errors
}

fn is_known_time_zone(name: &str) -> bool {
    tz::db().get(name).is_ok()
}

/// Validates the target of a rule that scales a workload of `kind`.
fn validate_target_replicas(field: &str, rule: &Value, kind: &str, errors: &mut Vec<FieldError>) {
    let detail = match int(rule, "/targetReplicas") {
        None => format!("targetReplicas cannot be nil if you want to scale {kind}"),
        Some(n) if n < 0 => "targetReplicas should be larger than or equal to 0".into(),
        Some(_) => return,
    };
    let field = format!("{field}.targetReplicas");
    errors.push(FieldError::invalid(field, &"".into(), detail));
}

/// Validates the bounds of a rule that scales a FederatedHPA.
fn validate_target_bounds(field: &str, rule: &Value, errors: &mut Vec<FieldError>) {
    let (min, max) = (
        int(rule, "/targetMinReplicas"),
        int(rule, "/targetMaxReplicas"),
    );
    let rules = [
        (
            min.is_none() && max.is_none(),
            "targetMaxReplicas",
            "targetMinReplicas and targetMaxReplicas cannot be nil at the same time if you want to scale FederatedHPA",
        ),
        (
            min.is_some_and(|n| n <= 0),
            "targetMinReplicas",
            "targetMinReplicas should be larger than 0",
        ),
        (
            max.is_some_and(|n| n <= 0),
            "targetMaxReplicas",
            "targetMaxReplicas should be larger than 0",
        ),
        (
            min.unwrap_or(1) > max.unwrap_or(i64::from(i32::MAX)),
            "targetMinReplicas",
            "targetMaxReplicas should be larger than or equal to targetMinReplicas",
        ),
    ];
    for (_, name, detail) in rules.into_iter().filter(|(broken, ..)| *broken) {
        let field = format!("{field}.{name}");
        errors.push(FieldError::invalid(field, &"".into(), detail));
    }
}

pub(crate) fn mutate_multi_cluster_service(service: &mut Value) {
    set_permanent_id(service, MULTI_CLUSTER_SERVICE_ID);
}

pub(crate) fn validate_multi_cluster_service(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name = text(new, "/metadata/name");
    report_invalid(
        "metadata.name",
        name,
        validate_dns1035_label(name),
        &mut errors,
    );
    if let Some(before) = old.map(|old| get(old, "/spec/types"))
        && before != get(new, "/spec/types")
    {
        errors.push(FieldError::invalid(
            "spec.types",
            before,
            "MultiClusterService types are immutable",
        ));
    }
    validate_exposed_ports(items(new, "/spec/ports"), &mut errors);
    let types: Vec<&str> = texts(new, "/spec/types").collect();
    for (i, kind) in types.iter().enumerate() {
        if !matches!(*kind, "CrossCluster" | "LoadBalancer") {
            errors.push(FieldError::invalid(
                index_path("spec.types", i),
                &(*kind).into(),
                "ExposureType Error",
            ));
        }
    }
    if types.iter().collect::<HashSet<_>>().len() > 1 {
        errors.push(FieldError::invalid(
            "spec.types",
            get(new, "/spec/types"),
            "MultiClusterService types should not contain more than one type",
        ));
    }
    for side in ["providerClusters", "consumerClusters"] {
        for (i, cluster) in items(new, &format!("/spec/{side}")).iter().enumerate() {
            let name = text(cluster, "/name");
            // The path is that of an earlier API version, as in Karmada.
            let field = index_path(&format!("spec.range.{side}"), i);
            report_invalid(
                field,
                name,
                cluster::validate_cluster_name(name),
                &mut errors,
            );
        }
    }
    errors
}

fn validate_exposed_ports(ports: &[Value], errors: &mut Vec<FieldError>) {
    let mut names = HashSet::new();
    for (i, port) in ports.iter().enumerate() {
        let field = index_path("spec.ports", i);
        let name = text(port, "/name");
        if !name.is_empty() {
            report_invalid(
                format!("{field}.name"),
                name,
                validate_dns1123_label(name),
                errors,
            );
            if !names.insert(name) {
                errors.push(FieldError::duplicate(format!("{field}.name"), &name.into()));
            }
        }
        let number = int(port, "/port").unwrap_or(0);
        builtin::validate_port(format!("{field}.port"), number, errors);
    }
}

pub(crate) fn validate_multi_cluster_ingress(ingress: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    builtin::ingress(ingress, &mut errors);
    errors
}

#[cfg(test)]
mod tests;
