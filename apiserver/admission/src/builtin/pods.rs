//! Validates the specs of pods and of pod templates.

use machinery::FieldError;
use machinery::names::{
    validate_dns1123_label, validate_dns1123_subdomain, validate_qualified_name,
};
use serde_json::Value;

use super::ip_addresses::validate_address;
use super::validated_pod_spec::ValidatedPodSpec;
use super::{
    container_resources, containers, pod_annotations, pod_resources, pod_scheduling, pod_security,
    pod_systems, resource_claims, volumes,
};
use crate::unstructured::{
    flag, get, has, index_path, int, items, non_empty_or, pointer, report_invalid, text, texts,
};

pub(super) const RESTART_POLICIES: &[&str] = &["Always", "OnFailure", "Never"];
/// Resolvers of C libraries read no more.
const MAX_NAMESERVERS: usize = 3;
const MAX_SEARCH_PATHS: usize = 32;
const MAX_SEARCH_CHARACTERS: usize = 2048;
const INVALID_SEARCH_PATH: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')";
/// A host name of Linux is no longer.
const MAX_HOSTNAME_LENGTH: usize = 64;

/// Validates the pod template of an object; `field` is the dotted path of its spec, `policies` are
/// the allowed restart policies. A template that an update leaves as it is stays valid.
pub(super) fn validate(
    field: &str,
    object: &Value,
    old: Option<&Value>,
    policies: &[&str],
    errors: &mut Vec<FieldError>,
) {
    let field_of_template = field.strip_suffix(".spec").unwrap_or(field);
    let path = pointer(field_of_template);
    let template = get(object, &path);
    let old = old.map(|old| get(old, &path));
    if old == Some(template) {
        return;
    }
    pod_annotations::validate(field_of_template, template, old, errors);
    let pod_spec = ValidatedPodSpec {
        field,
        spec: get(template, "/spec"),
        old: old.map_or(&Value::Null, |old| get(old, "/spec")),
        pod: None,
    };
    let claims = items(object, "/spec/volumeClaimTemplates").iter();
    let claims = claims.map(|claim| text(claim, "/metadata/name")).collect();
    validate_spec(pod_spec, claims, policies, errors);
    pod_annotations::validate_profiles(field, template, errors);
    if !items(pod_spec.spec, "/ephemeralContainers").is_empty() {
        errors.push(FieldError::forbidden(
            pod_spec.at("ephemeralContainers"),
            "ephemeral containers not allowed in pod template",
        ));
    }
}

/// `claims` are the names of the volumes that a StatefulSet creates for each of its pods.
pub(super) fn validate_spec(
    pod_spec: ValidatedPodSpec<'_>,
    claims: Vec<&str>,
    policies: &[&str],
    errors: &mut Vec<FieldError>,
) {
    let ValidatedPodSpec { field, spec, .. } = pod_spec;
    let mut mountable = volumes::validate_all(pod_spec, errors);
    mountable.extend(claims.into_iter().map(|name| (name, &*volumes::CLAIM)));
    let resource_claims = resource_claims::validate(pod_spec, errors);
    containers::validate(pod_spec, &mountable, &resource_claims, errors);
    pod_resources::validate(pod_spec, errors);
    containers::validate_host_network(pod_spec, errors);
    let policy = non_empty_or(text(spec, "/restartPolicy"), "Always");
    if !policies.contains(&policy) {
        let policy = policy.into();
        let error = FieldError::not_supported(pod_spec.at("restartPolicy"), &policy, policies);
        errors.push(error);
    }
    pod_security::validate_pod(pod_spec, errors);
    pod_scheduling::validate(pod_spec, errors);
    validate_dns(pod_spec, errors);
    validate_gates(field, spec, errors);
    pod_systems::validate(pod_spec, errors);
    validate_names(field, spec, errors);
    validate_hostname_override(field, spec, errors);
    if let Some(seconds) = int(spec, "/activeDeadlineSeconds")
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        errors.push(FieldError::invalid(
            pod_spec.at("activeDeadlineSeconds"),
            &seconds.into(),
            "must be between 1 and 2147483647, inclusive",
        ));
    }
    validate_host_aliases(pod_spec, errors);
    let overhead = get(spec, "/overhead");
    container_resources::validate_limits(&pod_spec.at("overhead"), overhead, errors);
}

/// Validates the names of referenced objects and the pod's names in the network.
fn validate_names(field: &str, spec: &Value, errors: &mut Vec<FieldError>) {
    for name in [
        "serviceAccountName",
        "nodeName",
        "priorityClassName",
        "runtimeClassName",
    ] {
        let value = text(spec, &format!("/{name}"));
        if !value.is_empty() || name == "runtimeClassName" && has(spec, "/runtimeClassName") {
            let result = validate_dns1123_subdomain(value);
            report_invalid(format!("{field}.{name}"), value, result, errors);
        }
    }
    for name in ["hostname", "subdomain"] {
        let value = text(spec, &format!("/{name}"));
        if !value.is_empty() {
            let result = validate_dns1123_label(value);
            report_invalid(format!("{field}.{name}"), value, result, errors);
        }
    }
}

fn validate_hostname_override(field: &str, spec: &Value, errors: &mut Vec<FieldError>) {
    if !has(spec, "/hostnameOverride") {
        return;
    }
    let name = text(spec, "/hostnameOverride");
    let path = format!("{field}.hostnameOverride");
    if name.len() > MAX_HOSTNAME_LENGTH {
        errors.push(FieldError::too_long(&path, MAX_HOSTNAME_LENGTH));
    }
    report_invalid(&path, name, validate_dns1123_subdomain(name), errors);
    for other in ["setHostnameAsFQDN", "hostNetwork"] {
        if flag(spec, &format!("/{other}")) {
            let detail = format!("may not be specified when {other} is true");
            errors.push(FieldError::forbidden(&path, &detail));
        }
    }
}

fn validate_gates(field: &str, spec: &Value, errors: &mut Vec<FieldError>) {
    for (i, gate) in items(spec, "/readinessGates").iter().enumerate() {
        let condition = text(gate, "/conditionType");
        let path = format!("{field}.readinessGates[{i}].conditionType");
        report_invalid(path, condition, validate_qualified_name(condition), errors);
    }
    let mut names: Vec<&str> = Vec::new();
    for (i, gate) in items(spec, "/schedulingGates").iter().enumerate() {
        let name = text(gate, "/name");
        let path = format!("{field}.schedulingGates[{i}]");
        report_invalid(&path, name, validate_qualified_name(name), errors);
        if names.contains(&name) {
            errors.push(FieldError::duplicate(path, &name.into()));
        }
        names.push(name);
    }
}

fn validate_host_aliases(pod_spec: ValidatedPodSpec<'_>, errors: &mut Vec<FieldError>) {
    let old_addresses = items(pod_spec.old, "/hostAliases").iter();
    let old_addresses: Vec<Value> = old_addresses
        .map(|alias| get(alias, "/ip").clone())
        .collect();
    for (i, alias) in items(pod_spec.spec, "/hostAliases").iter().enumerate() {
        let path = index_path(&pod_spec.at("hostAliases"), i);
        validate_address(
            &format!("{path}.ip"),
            text(alias, "/ip"),
            &old_addresses,
            errors,
        );
        for (j, name) in texts(alias, "/hostnames").enumerate() {
            let result = validate_dns1123_subdomain(name);
            report_invalid(format!("{path}.hostnames[{j}]"), name, result, errors);
        }
    }
}

fn validate_dns(pod_spec: ValidatedPodSpec<'_>, errors: &mut Vec<FieldError>) {
    let (path, spec) = (pod_spec.at("dnsConfig"), pod_spec.spec);
    let config = get(spec, "/dnsConfig");
    let servers = items(config, "/nameservers");
    if text(spec, "/dnsPolicy") == "None" && servers.is_empty() {
        errors.push(match config.is_null() {
            true => FieldError::required(path, "must provide `dnsConfig` when `dnsPolicy` is None"),
            false => FieldError::required(
                format!("{path}.nameservers"),
                "must provide at least one DNS nameserver when `dnsPolicy` is None",
            ),
        });
        return;
    }
    if servers.len() > MAX_NAMESERVERS {
        errors.push(FieldError::invalid(
            format!("{path}.nameservers"),
            &servers.into(),
            format!("must not have more than {MAX_NAMESERVERS} nameservers"),
        ));
    }
    let old_servers = items(pod_spec.old, "/dnsConfig/nameservers");
    for (i, server) in servers.iter().enumerate() {
        let server = server.as_str().unwrap_or("");
        validate_address(
            &format!("{path}.nameservers[{i}]"),
            server,
            old_servers,
            errors,
        );
    }
    validate_searches(
        &format!("{path}.searches"),
        items(config, "/searches"),
        errors,
    );
    for (i, option) in items(config, "/options").iter().enumerate() {
        if text(option, "/name").is_empty() {
            let path = format!("{path}.options[{i}]");
            errors.push(FieldError::required(path, "must not be empty"));
        }
    }
}

fn validate_searches(field: &str, searches: &[Value], errors: &mut Vec<FieldError>) {
    if searches.len() > MAX_SEARCH_PATHS {
        errors.push(FieldError::invalid(
            field,
            &searches.into(),
            format!("must not have more than {MAX_SEARCH_PATHS} search paths"),
        ));
    }
    let paths = searches.iter().map(|path| path.as_str().unwrap_or(""));
    let spaces = searches.len().saturating_sub(1);
    if paths.clone().map(str::len).sum::<usize>() + spaces > MAX_SEARCH_CHARACTERS {
        errors.push(FieldError::invalid(
            field,
            &searches.into(),
            format!(
                "must not have more than {MAX_SEARCH_CHARACTERS} characters (including spaces) in the search list"
            ),
        ));
    }
    for (i, path) in paths.enumerate().filter(|(_, path)| *path != ".") {
        let path = path.strip_suffix('.').unwrap_or(path);
        // A label may begin with an underscore, and have more where hyphens are allowed.
        let labels = path
            .split('.')
            .map(|label| label.strip_prefix('_').unwrap_or(label));
        let normalized_labels: Vec<String> = labels.map(|label| label.replace('_', "-")).collect();
        if validate_dns1123_subdomain(&normalized_labels.join(".")).is_err() {
            errors.push(FieldError::invalid(
                index_path(field, i),
                &path.into(),
                INVALID_SEARCH_PATH,
            ));
        }
    }
}
