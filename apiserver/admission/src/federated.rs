//! FederatedHPA, CronFederatedHPA, MultiClusterService and MultiClusterIngress.
//!
//! Enters: an object. Leaves: the object with defaults, or field errors. Reads the
//! system's time zone names, nothing else. Rules of Karmada's
//! `webhook/{federatedhpa,cronfederatedhpa,multiclusterservice,multiclusteringress}`.

use std::collections::HashSet;

use jiff::tz;
use machinery::names::{dns1035_label, dns1123_label};
use machinery::{FieldError, Gvk};
use serde_json::Value;

use crate::binding::{SERVICE_ID, permanent_id};
use crate::builtin;
use crate::tree::{check, get, immutable, int, items, nth, text, texts};

const HPA: Gvk = Gvk::constant("autoscaling", "v2", "HorizontalPodAutoscaler");

/// A FederatedHPA has the defaults of a HorizontalPodAutoscaler.
pub(crate) fn mutate_hpa(hpa: &mut Value) {
    openapi::defaults::apply(&HPA, hpa);
}

pub(crate) fn validate_hpa(hpa: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = get(hpa, "/spec");
    builtin::replicas(spec, &mut errors);
    builtin::scale_target(spec, &mut errors);
    builtin::metrics(
        &["Object", "Pods", "Resource", "ContainerResource"],
        items(spec, "/metrics"),
        &mut errors,
    );
    builtin::behavior(get(spec, "/behavior"), &mut errors);
    errors
}

pub(crate) fn validate_cron(cron: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let target = get(cron, "/spec/scaleTargetRef");
    let federated = text(target, "/apiVersion") == "autoscaling.karmada.io/v1alpha1";
    if federated && text(target, "/kind") != "FederatedHPA" {
        errors.push(FieldError::invalid(
            "spec.scaleTargetRef.kind",
            get(target, "/kind"),
            "invalid scaleTargetRef kind, only FederatedHPA is allowed in this group",
        ));
    }
    let mut names = HashSet::new();
    for (i, rule) in items(cron, "/spec/rules").iter().enumerate() {
        let field = nth("spec.rules", i);
        let name = text(rule, "/name");
        if !names.insert(name) {
            errors.push(FieldError::duplicate(format!("{field}.name"), &name.into()));
        }
        let schedule = text(rule, "/schedule");
        check(
            format!("{field}.schedule"),
            schedule,
            builtin::schedule(schedule),
            &mut errors,
        );
        let zone = text(rule, "/timeZone");
        if !zone.is_empty() && !known_zone(zone) {
            errors.push(FieldError::invalid(
                format!("{field}.timeZone"),
                &zone.into(),
                "unknown time zone",
            ));
        }
        targets(&field, rule, federated, &mut errors);
    }
    errors
}

fn known_zone(name: &str) -> bool {
    // Without a database on this machine nothing can be said against a name.
    tz::db().is_definitively_empty() || tz::db().get(name).is_ok()
}

fn targets(field: &str, rule: &Value, federated: bool, errors: &mut Vec<FieldError>) {
    if !federated {
        match int(rule, "/targetReplicas") {
            None => errors.push(FieldError::required(
                format!("{field}.targetReplicas"),
                "targetReplicas cannot be empty if you scale the workload directly",
            )),
            Some(n) if n < 0 => errors.push(FieldError::invalid(
                format!("{field}.targetReplicas"),
                &n.into(),
                "targetReplicas should be larger than or equal to 0",
            )),
            Some(_) => {}
        }
        return;
    }
    let (min, max) = (
        int(rule, "/targetMinReplicas"),
        int(rule, "/targetMaxReplicas"),
    );
    if min.is_none() && max.is_none() {
        errors.push(FieldError::invalid(
            format!("{field}.targetMinReplicas"),
            &Value::Null,
            "targetMinReplicas and targetMaxReplicas cannot be both empty if you scale a FederatedHPA",
        ));
    }
    for (name, bound) in [("targetMinReplicas", min), ("targetMaxReplicas", max)] {
        if let Some(n) = bound
            && n <= 0
        {
            errors.push(FieldError::invalid(
                format!("{field}.{name}"),
                &n.into(),
                format!("{name} should be larger than 0"),
            ));
        }
    }
    if min.zip(max).is_some_and(|(min, max)| min > max) {
        errors.push(FieldError::invalid(
            format!("{field}.targetMinReplicas"),
            &min.into(),
            "targetMaxReplicas should be larger than or equal to targetMinReplicas",
        ));
    }
}

pub(crate) fn mutate_service(service: &mut Value) {
    permanent_id(service, SERVICE_ID);
}

pub(crate) fn validate_service(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name = text(new, "/metadata/name");
    check("metadata.name", name, dns1035_label(name), &mut errors);
    if let Some(old) = old {
        immutable(new, old, "spec.types", &mut errors);
    }
    let types: Vec<&str> = texts(new, "/spec/types").collect();
    for (i, kind) in types.iter().enumerate() {
        if !matches!(*kind, "CrossCluster" | "LoadBalancer") {
            errors.push(FieldError::not_supported(
                nth("spec.types", i),
                &(*kind).into(),
                &["CrossCluster", "LoadBalancer"],
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
    exposed(items(new, "/spec/ports"), &mut errors);
    for side in ["providerClusters", "consumerClusters"] {
        for (i, cluster) in items(new, &format!("/spec/{side}")).iter().enumerate() {
            let name = text(cluster, "/name");
            let field = format!("{}.name", nth(&format!("spec.{side}"), i));
            check(field, name, dns1123_label(name), &mut errors);
        }
    }
    errors
}

fn exposed(ports: &[Value], errors: &mut Vec<FieldError>) {
    let mut names = HashSet::new();
    for (i, port) in ports.iter().enumerate() {
        let field = nth("spec.ports", i);
        let name = text(port, "/name");
        if !name.is_empty() {
            check(format!("{field}.name"), name, dns1123_label(name), errors);
            if !names.insert(name) {
                errors.push(FieldError::duplicate(format!("{field}.name"), &name.into()));
            }
        }
        let number = int(port, "/port").unwrap_or(0);
        builtin::port(format!("{field}.port"), number, errors);
    }
}

pub(crate) fn validate_ingress(ingress: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    builtin::ingress(ingress, &mut errors);
    errors
}

#[cfg(test)]
mod tests;
