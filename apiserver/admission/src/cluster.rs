//! Cluster: canonical form and rules.
//!
//! Enters: a cluster. Leaves: the cluster as it is stored, or field errors. Pure;
//! time is an argument. Rules of Karmada's `apis/cluster/{mutation,validation}`.

mod models;

use std::collections::HashSet;

use jiff::Timestamp;
use machinery::FieldError;
use machinery::names::{dns1123_label, label_value, qualified_name};
use machinery::time::rfc3339_seconds;
use openapi::karmada::cluster::Taint;
use serde_json::Value;

use crate::attributes::Operation;
use crate::tree::{check, get, has, items, items_mut, nth, object_mut, shown, text};
use crate::url;

const MAX_NAME: usize = 48;

/// `graded`: clusters have grades of nodes (CustomizedClusterResourceModeling).
pub(crate) fn mutate(operation: Operation, graded: bool, cluster: &mut Value, now: Timestamp) {
    for taint in items_mut(cluster, "/spec/taints") {
        if text(taint, "/effect") == "NoExecute"
            && !has(taint, "/timeAdded")
            && let Some(fields) = taint.as_object_mut()
        {
            fields.insert("timeAdded".into(), rfc3339_seconds(now).into());
        }
    }
    let zone = text(cluster, "/spec/zone").to_owned();
    if !zone.is_empty()
        && items(cluster, "/spec/zones").is_empty()
        && let Some(spec) = object_mut(cluster, &["spec"])
    {
        spec.remove("zone");
        spec.insert("zones".into(), vec![zone].into());
    }
    if graded && let Some(spec) = object_mut(cluster, &["spec"]) {
        models::mutate(operation, spec);
    }
}

/// The name of a cluster, wherever it stands: with a prefix it is that of a namespace.
pub(crate) fn name(name: &str) -> Result<(), String> {
    match name.len() {
        0 => Err("must be not empty".into()),
        n if n > MAX_NAME => Err(format!("must be no more than {MAX_NAME} characters")),
        _ => dns1123_label(name),
    }
}

pub(crate) fn validate(cluster: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let own = text(cluster, "/metadata/name");
    check("metadata.name", own, name(own), &mut errors);
    let spec = get(cluster, "/spec");
    connection(spec, &mut errors);
    places(spec, &mut errors);
    taints(items(spec, "/taints"), &mut errors);
    models::validate(items(spec, "/resourceModels"), &mut errors);
    errors
}

fn connection(spec: &Value, errors: &mut Vec<FieldError>) {
    let mode = text(spec, "/syncMode");
    if mode.is_empty() {
        errors.push(FieldError::required("spec.syncMode", ""));
    }
    if !matches!(mode, "Push" | "Pull") {
        let known = ["Pull", "Push"];
        errors.push(FieldError::not_supported(
            "spec.syncMode",
            &mode.into(),
            &known,
        ));
    }
    endpoint(text(spec, "/apiEndpoint"), errors);
    for reference in ["secretRef", "impersonatorSecretRef"] {
        if !has(spec, &format!("/{reference}")) {
            continue;
        }
        for part in ["namespace", "name"] {
            if text(spec, &format!("/{reference}/{part}")).is_empty() {
                errors.push(FieldError::required(format!("spec.{reference}.{part}"), ""));
            }
        }
    }
    let proxy = text(spec, "/proxyURL");
    let scheme = url::parts(proxy).map_or("", |parts| parts.scheme);
    if !proxy.is_empty() && !matches!(scheme, "http" | "https" | "socks5") {
        let why = format!("unsupported scheme {scheme:?}, must be http, https, or socks5");
        errors.push(FieldError::invalid("spec.proxyURL", &proxy.into(), why));
    }
}

fn endpoint(endpoint: &str, errors: &mut Vec<FieldError>) {
    const FORM: &str = "desired format: hostname, hostname:port, IP or IP:port";
    if endpoint.is_empty() {
        return;
    }
    let mut refuse = |value: &str, why: &str| {
        errors.push(FieldError::invalid("spec.apiEndpoint", &value.into(), why))
    };
    let Some(parts) = url::parts(endpoint).filter(|parts| !parts.host.is_empty()) else {
        refuse("", &format!("host must be provided; {FORM}"));
        return;
    };
    if let Some(user) = parts.user {
        refuse(user, "user information is not permitted in the URL");
    }
    if !parts.fragment.is_empty() {
        refuse(parts.fragment, "fragments are not permitted in the URL");
    }
    if !parts.query.is_empty() {
        refuse(parts.query, "query parameters are not permitted in the URL");
    }
}

/// The paths are called as the fields of Karmada's internal type.
fn places(spec: &Value, errors: &mut Vec<FieldError>) {
    for field in ["provider", "region"] {
        let value = text(spec, &format!("/{field}"));
        check(format!("spec.{field}"), value, label_value(value), errors);
    }
    let (zone, zones) = (text(spec, "/zone"), items(spec, "/zones"));
    if !zone.is_empty() && !zones.is_empty() {
        errors.push(FieldError::type_invalid(
            "spec.spec",
            spec,
            "Zone and Zones cannot co-exist",
        ));
        return;
    }
    check("spec.Zone", zone, label_value(zone), errors);
    for zone in zones {
        let zone = zone.as_str().unwrap_or("");
        check("spec.Zones", zone, label_value(zone), errors);
    }
}

fn taints(taints: &[Value], errors: &mut Vec<FieldError>) {
    let mut seen = HashSet::new();
    for (i, taint) in taints.iter().enumerate() {
        let field = nth("spec.taints", i);
        let (key, value) = (text(taint, "/key"), text(taint, "/value"));
        check(format!("{field}.key"), key, qualified_name(key), errors);
        check(format!("{field}.value"), value, label_value(value), errors);
        let effect = text(taint, "/effect");
        match effect {
            "NoSchedule" | "NoExecute" => {}
            "" => errors.push(FieldError::required(format!("{field}.effect"), "")),
            other => errors.push(FieldError::not_supported(
                format!("{field}.effect"),
                &other.into(),
                &["NoSchedule", "NoExecute"],
            )),
        }
        if !seen.insert((key, effect)) {
            let taint = shown::<Taint>(taint);
            let why = "taints must be unique by key and effect pair";
            errors.push(FieldError::duplicate_shown(field, &taint, why));
        }
    }
}

#[cfg(test)]
mod tests;
