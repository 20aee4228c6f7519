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
use serde_json::Value;

use crate::attributes::Operation;
use crate::tree::{check, get, has, items, items_mut, nth, object_mut, text};
use crate::url;

const MAX_NAME: usize = 48;

pub(crate) fn mutate(operation: Operation, cluster: &mut Value, now: Timestamp) {
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
    if let Some(spec) = object_mut(cluster, &["spec"]) {
        models::mutate(operation, spec);
    }
}

pub(crate) fn validate(cluster: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name = text(cluster, "/metadata/name");
    if name.len() > MAX_NAME {
        errors.push(FieldError::invalid(
            "metadata.name",
            &name.into(),
            format!("must be no more than {MAX_NAME} characters"),
        ));
    } else {
        check("metadata.name", name, dns1123_label(name), &mut errors);
    }
    let spec = get(cluster, "/spec");
    connection(spec, &mut errors);
    places(spec, &mut errors);
    taints(items(spec, "/taints"), &mut errors);
    models::validate(items(spec, "/resourceModels"), &mut errors);
    errors
}

fn connection(spec: &Value, errors: &mut Vec<FieldError>) {
    let mode = get(spec, "/syncMode");
    if !matches!(mode.as_str(), Some("Push" | "Pull")) {
        errors.push(FieldError::not_supported(
            "spec.syncMode",
            mode,
            &["Push", "Pull"],
        ));
    }
    let endpoint = text(spec, "/apiEndpoint");
    if !endpoint.is_empty() {
        check(
            "spec.apiEndpoint",
            endpoint,
            url::plain(endpoint).map(drop),
            errors,
        );
    }
    for reference in ["secretRef", "impersonatorSecretRef"] {
        if !has(spec, &format!("/{reference}")) {
            continue;
        }
        for part in ["namespace", "name"] {
            if text(spec, &format!("/{reference}/{part}")).is_empty() {
                errors.push(FieldError::required(
                    format!("spec.{reference}.{part}"),
                    &format!("{part} of the secret must be specified"),
                ));
            }
        }
    }
    let proxy = text(spec, "/proxyURL");
    if !proxy.is_empty() {
        let why = match url::parts(proxy) {
            None => "must be an absolute URL, as in http://host:port",
            Some(parts) if parts.host.is_empty() => "host must be specified",
            Some(parts) if !matches!(parts.scheme, "http" | "https" | "socks5") => {
                "unsupported scheme, must be http, https, or socks5"
            }
            Some(_) => "",
        };
        if !why.is_empty() {
            errors.push(FieldError::invalid("spec.proxyURL", &proxy.into(), why));
        }
    }
}

fn places(spec: &Value, errors: &mut Vec<FieldError>) {
    for field in ["provider", "region", "zone"] {
        let value = text(spec, &format!("/{field}"));
        check(format!("spec.{field}"), value, label_value(value), errors);
    }
    let zones = items(spec, "/zones");
    for (i, zone) in zones.iter().enumerate() {
        let zone = zone.as_str().unwrap_or("");
        check(nth("spec.zones", i), zone, label_value(zone), errors);
    }
    if !zones.is_empty() && !text(spec, "/zone").is_empty() {
        errors.push(FieldError::invalid(
            "spec.zone",
            get(spec, "/zone"),
            "zone and zones can't co-exist",
        ));
    }
}

fn taints(taints: &[Value], errors: &mut Vec<FieldError>) {
    let mut seen = HashSet::new();
    for (i, taint) in taints.iter().enumerate() {
        let field = nth("spec.taints", i);
        let (key, value) = (text(taint, "/key"), text(taint, "/value"));
        let effect = text(taint, "/effect");
        check(format!("{field}.key"), key, qualified_name(key), errors);
        check(format!("{field}.value"), value, label_value(value), errors);
        if !matches!(effect, "NoSchedule" | "NoExecute") {
            errors.push(FieldError::not_supported(
                format!("{field}.effect"),
                &effect.into(),
                &["NoSchedule", "NoExecute"],
            ));
        }
        if !seen.insert((key, effect)) {
            errors.push(FieldError::duplicate(&field, taint));
        }
    }
}

#[cfg(test)]
mod tests;
