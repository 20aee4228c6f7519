//! Mutates and validates Cluster. Does no I/O; time is an argument. Rules of Karmada's
//! `apis/cluster/{mutation,validation}`.

mod resource_models;

use jiff::Timestamp;
use karmada_api::cluster::Taint;
use karmada_api::impersonated_identity::{extra_keys, validate_extra_key};
use karmada_api::tls_validations::DisabledTlsValidations;
use karmada_api::well_known_keys::{
    DISABLED_TLS_VALIDATIONS, IMPERSONATE_EXTRA_KEYS, IMPERSONATE_UID,
};
use machinery::FieldError;
use machinery::names::{validate_dns1123_label, validate_label_value};
use machinery::time::rfc3339_seconds;
use serde_json::Value;

use crate::attributes::AdmissionOperation;
use crate::secret_access::{SecretReferenceFields, is_changed};
use crate::unstructured::{
    entries, flag, get, go_json, has, items, items_mut, object_mut, report_invalid, text,
};
use crate::{taints, url};

const MAX_CLUSTER_NAME_LENGTH: usize = 48;

/// `graded` is the feature gate CustomizedClusterResourceModeling.
pub(crate) fn mutate(
    operation: AdmissionOperation,
    graded: bool,
    cluster: &mut Value,
    now: Timestamp,
) {
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
        resource_models::mutate(operation, spec);
    }
}

/// Validates a cluster name wherever it occurs; prefixed, it is also the name of a
/// namespace.
pub(crate) fn validate_cluster_name(name: &str) -> Result<(), String> {
    match name.len() {
        0 => Err("must be not empty".into()),
        n if n > MAX_CLUSTER_NAME_LENGTH => Err(format!(
            "must be no more than {MAX_CLUSTER_NAME_LENGTH} characters"
        )),
        _ => validate_dns1123_label(name),
    }
}

/// The Secrets of a Cluster, and the fields that decide where their tokens are sent.
pub(crate) const SECRETS: SecretReferenceFields = SecretReferenceFields {
    references: &[
        ("/spec/secretRef", "spec.secretRef"),
        ("/spec/impersonatorSecretRef", "spec.impersonatorSecretRef"),
    ],
    connection: &[
        "/spec/apiEndpoint",
        "/spec/proxyURL",
        "/spec/proxyHeader",
        "/spec/insecureSkipTLSVerification",
        "/metadata/annotations/flotilla.io~1disabled-tls-validations",
    ],
    sent_to: "spec.apiEndpoint",
};

/// `old` is the stored cluster, whose connection is not validated again while
/// unchanged.
pub(crate) fn validate(cluster: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name = text(cluster, "/metadata/name");
    report_invalid(
        "metadata.name",
        name,
        validate_cluster_name(name),
        &mut errors,
    );
    validate_impersonation(cluster, &mut errors);
    validate_disabled_tls_validations(cluster, &mut errors);
    let spec = get(cluster, "/spec");
    validate_connection(spec, &mut errors);
    let transport = ["/spec/apiEndpoint", "/spec/insecureSkipTLSVerification"];
    if old.is_none_or(|old| transport.into_iter().any(|f| is_changed(cluster, old, f))) {
        validate_encryption(spec, &mut errors);
    }
    validate_location(spec, &mut errors);
    taints::validate(
        "spec.taints",
        items(spec, "/taints"),
        &["NoSchedule", "NoExecute"],
        go_json::<Taint>,
        &mut errors,
    );
    resource_models::validate(items(spec, "/resourceModels"), &mut errors);
    errors
}

/// Validates the annotations about the uid and extras of users, which Karmada does not have.
fn validate_impersonation(cluster: &Value, errors: &mut Vec<FieldError>) {
    for (key, value) in entries(cluster, "/metadata/annotations") {
        let text = value.as_str().unwrap_or_default();
        let checked = match key {
            IMPERSONATE_UID if !matches!(text, "true" | "false") => Err("must be true or false"),
            IMPERSONATE_EXTRA_KEYS => extra_keys(text).try_for_each(validate_extra_key),
            _ => Ok(()),
        };
        if let Err(detail) = checked {
            let field = format!("metadata.annotations[{key}]");
            errors.push(FieldError::invalid(field, value, detail));
        }
    }
}

/// Validates the annotation that switches off parts of the verification of the API server's
/// certificate, which Karmada does not have.
fn validate_disabled_tls_validations(cluster: &Value, errors: &mut Vec<FieldError>) {
    let value = &get(cluster, "/metadata/annotations")[DISABLED_TLS_VALIDATIONS];
    if value.is_null() {
        return;
    }
    let text = value.as_str().unwrap_or_default();
    if let Err(detail) = DisabledTlsValidations::parse(text) {
        let field = format!("metadata.annotations[{DISABLED_TLS_VALIDATIONS}]");
        errors.push(FieldError::invalid(field, value, detail));
    }
}

/// Warns of an API server whose certificate is not verified completely.
pub(crate) fn warnings(cluster: &Value) -> Vec<String> {
    let value = &get(cluster, "/metadata/annotations")[DISABLED_TLS_VALIDATIONS];
    let parsed = value.as_str().map(DisabledTlsValidations::parse);
    let Some(Ok(parts)) = parsed else {
        return Vec::new();
    };
    let parts = parts.to_text();
    vec![format!(
        "metadata.annotations[{DISABLED_TLS_VALIDATIONS}]: {parts} of the certificate of the API server is not verified, so that another server may receive the credentials of this cluster"
    )]
}

fn validate_connection(spec: &Value, errors: &mut Vec<FieldError>) {
    let mode = text(spec, "/syncMode");
    if mode.is_empty() {
        errors.push(FieldError::required("spec.syncMode", ""));
    }
    if !matches!(mode, "Push" | "Pull") {
        let modes = ["Pull", "Push"];
        errors.push(FieldError::not_supported(
            "spec.syncMode",
            &mode.into(),
            &modes,
        ));
    }
    validate_endpoint(text(spec, "/apiEndpoint"), errors);
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
    let scheme = url::split_url(proxy).map_or("", |parts| parts.scheme);
    if !proxy.is_empty() && !matches!(scheme, "http" | "https" | "socks5") {
        let detail = format!("unsupported scheme {scheme:?}, must be http, https, or socks5");
        let redacted_proxy = without_credentials(proxy).into();
        errors.push(FieldError::invalid(
            "spec.proxyURL",
            &redacted_proxy,
            detail,
        ));
    }
}

/// A URL for an error, which logs may repeat.
fn without_credentials(url: &str) -> String {
    match url::split_url(url) {
        Some(parts) if parts.user.is_some() => format!("{}://xxxxx@{}", parts.scheme, parts.host),
        None if url.contains('@') => "xxxxx".to_owned(),
        _ => url.to_owned(),
    }
}

fn validate_endpoint(endpoint: &str, errors: &mut Vec<FieldError>) {
    const FORM: &str = "desired format: hostname, hostname:port, IP or IP:port";
    if endpoint.is_empty() {
        return;
    }
    let mut refuse = |value: &str, detail: &str| {
        errors.push(FieldError::invalid(
            "spec.apiEndpoint",
            &value.into(),
            detail,
        ))
    };
    let Some(parts) = url::split_url(endpoint).filter(|parts| !parts.host.is_empty()) else {
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

/// Requires TLS, because tokens are sent to the endpoint.
fn validate_encryption(spec: &Value, errors: &mut Vec<FieldError>) {
    let scheme = url::split_url(text(spec, "/apiEndpoint")).map_or("", |parts| parts.scheme);
    let insecure = flag(spec, "/insecureSkipTLSVerification");
    let encrypted = scheme.eq_ignore_ascii_case("https");
    if scheme.is_empty() || encrypted || (insecure && scheme.eq_ignore_ascii_case("http")) {
        return;
    }
    let detail = "must be an https URL; spec.insecureSkipTLSVerification permits http";
    errors.push(FieldError::invalid(
        "spec.apiEndpoint",
        &scheme.into(),
        detail,
    ));
}

/// Validates provider, region and zones. Error paths use the field names of Karmada's
/// internal type.
fn validate_location(spec: &Value, errors: &mut Vec<FieldError>) {
    for field in ["provider", "region"] {
        let value = text(spec, &format!("/{field}"));
        report_invalid(
            format!("spec.{field}"),
            value,
            validate_label_value(value),
            errors,
        );
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
    report_invalid("spec.Zone", zone, validate_label_value(zone), errors);
    for zone in zones {
        let zone = zone.as_str().unwrap_or("");
        report_invalid("spec.Zones", zone, validate_label_value(zone), errors);
    }
}

#[cfg(test)]
mod tests;
