//! Warns of pods and of the kinds that make pods from a template
//! (`pkg/api/pod/warnings.go`, `pkg/api/job/warnings.go`).

use std::collections::HashSet;

use machinery::names::validate_dns1123_label;
use serde_json::Value;

use super::annotations::has_annotation;
use super::byte_amounts::{claim_spec, warn_of_fraction};
use super::node_labels;
use super::ports::{port_names, ports};
use super::volumes::pod_volumes;
use crate::builtin::containers::all_containers;
use crate::builtin::ip_addresses::address_warning;
use crate::unstructured::{entries, get, has, int, items, text};

/// Deprecated annotations of pods, and what replaces them.
const DEPRECATED_ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        r#"non-functional in v1.16+; use the "priorityClassName" field instead"#,
    ),
    (
        "security.alpha.kubernetes.io/sysctls",
        r#"non-functional in v1.11+; use the "sysctls" field instead"#,
    ),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        r#"non-functional in v1.11+; use the "sysctls" field instead"#,
    ),
];
const SECCOMP_POD_ANNOTATION: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER_PREFIX: &str = "container.seccomp.security.alpha.kubernetes.io/";
const APP_ARMOR_PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP_DEPRECATION: &str =
    r#"non-functional in v1.27+; use the "seccompProfile" field instead"#;
const APP_ARMOR_DEPRECATION: &str =
    r#"deprecated since v1.30; use the "appArmorProfile" field instead"#;
/// Indexed Jobs beyond both limits may lose track of their failed indexes.
const MAX_TRACKED_COMPLETIONS: i64 = 100_000;
const MAX_TRACKED_PARALLELISM: i64 = 10_000;

pub(super) fn pod(pod: &Value, out: &mut Vec<String>) {
    warn_of_name(pod, "this is used in the Pod's hostname", out);
    pod_spec_and_metadata("", pod, out);
}

pub(super) fn pod_template(new: &Value, old: Option<&Value>, out: &mut Vec<String>) {
    if old.is_none_or(|old| get(old, "/template") != get(new, "/template")) {
        pod_spec_and_metadata("template.", get(new, "/template"), out);
    }
}

/// Warns of a kind with a template. An update warns if it makes a new generation of the spec.
pub(super) fn workload(kind: &str, new: &Value, old: Option<&Value>, out: &mut Vec<String>) {
    if old.is_none() && kind != "DaemonSet" {
        warn_of_name(new, "this is used in Pod names and hostnames", out);
    }
    if old.is_some_and(|old| !is_raised(kind, new, old)) {
        return;
    }
    let (field, spec) = match kind {
        "CronJob" => ("spec.jobTemplate.spec", get(new, "/spec/jobTemplate/spec")),
        _ => ("spec", get(new, "/spec")),
    };
    if matches!(kind, "Job" | "CronJob") {
        warn_of_untracked_indexes(field, spec, out);
    }
    pod_spec_and_metadata(&format!("{field}.template."), get(spec, "/template"), out);
    match kind {
        "StatefulSet" => stateful_set(spec, old.is_some(), out),
        "CronJob" if old.is_some() && text(new, "/spec/schedule").contains("TZ") => {
            out.push(
                "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see \
                 https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
                    .to_owned(),
            );
        }
        _ => {}
    }
}

/// The changes of an update after which Kubernetes looks at the template again.
fn is_raised(kind: &str, new: &Value, old: &Value) -> bool {
    let changes = |path: &str| get(new, path) != get(old, path);
    match kind {
        "DaemonSet" => changes("/spec/template"),
        "Deployment" => changes("/spec") || changes("/metadata/annotations"),
        _ => changes("/spec"),
    }
}

fn warn_of_name(object: &Value, used: &str, out: &mut Vec<String>) {
    if let Err(detail) = validate_dns1123_label(text(object, "/metadata/name")) {
        out.push(format!(
            "metadata.name: {used}, which can result in surprising behavior; a DNS label is \
             recommended: [{detail}]"
        ));
    }
}

fn warn_of_untracked_indexes(field: &str, spec: &Value, out: &mut Vec<String>) {
    let exceeds = |path: &str, limit: i64| int(spec, path).is_some_and(|n| n > limit);
    if text(spec, "/completionMode") == "Indexed"
        && exceeds("/completions", MAX_TRACKED_COMPLETIONS)
        && exceeds("/parallelism", MAX_TRACKED_PARALLELISM)
    {
        out.push(format!(
            "{field}: In Indexed Jobs with a number of completions higher than 10^5 and a \
             parallelism higher than 10^4, Kubernetes might not be able to track \
             completedIndexes when a big number of indexes fail"
        ));
    }
}

fn stateful_set(spec: &Value, is_update: bool, out: &mut Vec<String>) {
    // Kubernetes' own paths.
    let suffix = if is_update { ".Spec" } else { "" };
    for (i, claim) in items(spec, "/volumeClaimTemplates").iter().enumerate() {
        let field = format!("spec.volumeClaimTemplates[{i}]{suffix}");
        claim_spec(&field, get(claim, "/spec"), out);
    }
    if int(spec, "/revisionHistoryLimit").is_some_and(|n| n < 0) {
        out.push(
            "spec.revisionHistoryLimit: a negative value retains all historical revisions; a \
             value >= 0 is recommended"
                .to_owned(),
        );
    }
}

/// Warns of a pod or a pod template, whose fields have the path `prefix`.
fn pod_spec_and_metadata(prefix: &str, template: &Value, out: &mut Vec<String>) {
    let spec = get(template, "/spec");
    let field = format!("{prefix}spec");
    let containers = all_containers(&field, spec);
    warn_of_node_labels(&field, spec, out);
    let annotations = format!("{prefix}metadata.annotations");
    for (key, detail) in DEPRECATED_ANNOTATIONS {
        if has_annotation(template, key) {
            out.push(format!("{annotations}[{key}]: {detail}"));
        }
    }
    pod_volumes(&field, spec, out);
    warn_of_lists(&field, spec, out);
    for resource in ["memory", "ephemeral-storage"] {
        let overhead = get(spec, "/overhead");
        warn_of_fraction(&format!("{field}.overhead"), overhead, resource, out);
    }
    if !has(spec, "/securityContext/seccompProfile")
        && has_annotation(template, SECCOMP_POD_ANNOTATION)
    {
        out.push(format!(
            "{annotations}[{SECCOMP_POD_ANNOTATION}]: {SECCOMP_DEPRECATION}"
        ));
    }
    for (path, container) in &containers {
        warn_of_profiles(&annotations, template, container, out);
        warn_of_container(path, container, out);
    }
    ports(&containers, out);
    port_names(&containers, out);
    if int(spec, "/terminationGracePeriodSeconds").is_some_and(|n| n < 0) {
        out.push(format!(
            "{field}.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and \
             will be treated as 1"
        ));
    }
    warn_of_affinity(&field, spec, out);
    warn_of_addresses(&field, spec, out);
}

fn warn_of_node_labels(field: &str, spec: &Value, out: &mut Vec<String>) {
    for (label, _) in entries(spec, "/nodeSelector") {
        if let Some(detail) = node_labels::deprecation(label) {
            out.push(format!("{field}.nodeSelector[{label}]: {detail}"));
        }
    }
    let affinity = get(spec, "/affinity/nodeAffinity");
    let field = format!("{field}.affinity.nodeAffinity");
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let terms = items(affinity, &format!("/{required}/nodeSelectorTerms"));
    for (i, term) in terms.iter().enumerate() {
        let field = format!("{field}.{required}.nodeSelectorTerms[{i}]");
        node_labels::expressions(&field, items(term, "/matchExpressions"), out);
    }
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    let terms = items(affinity, &format!("/{preferred}"));
    for (i, term) in terms.iter().enumerate() {
        let field = format!("{field}.{preferred}[{i}].preference");
        let expressions = items(term, "/preference/matchExpressions");
        node_labels::expressions(&field, expressions, out);
        node_labels::label_values(&field, expressions, out);
    }
}

/// Warns of lists of a pod spec that name a thing twice.
fn warn_of_lists(field: &str, spec: &Value, out: &mut Vec<String>) {
    let constraints = items(spec, "/topologySpreadConstraints");
    for (i, constraint) in constraints.iter().enumerate() {
        let field = format!("{field}.topologySpreadConstraints[{i}]");
        let key = text(constraint, "/topologyKey");
        if let Some(detail) = node_labels::deprecation(key) {
            out.push(format!("{field}.topologyKey: {key} is {detail}"));
        }
        warn_of_null_selector(&field, constraint, out);
    }
    let mut addresses = HashSet::new();
    for (i, alias) in items(spec, "/hostAliases").iter().enumerate() {
        let address = text(alias, "/ip");
        if !addresses.insert(address) {
            out.push(format!(
                "{field}.hostAliases[{i}].ip: duplicate ip {address:?}"
            ));
        }
    }
    let secrets = items(spec, "/imagePullSecrets");
    let mut names = HashSet::new();
    for (i, secret) in secrets.iter().enumerate() {
        let name = text(secret, "/name");
        if !names.insert(name) {
            out.push(format!(
                "{field}.imagePullSecrets[{i}].name: duplicate name {name:?}"
            ));
        }
    }
    for (i, _) in secrets
        .iter()
        .enumerate()
        .filter(|(_, s)| text(s, "/name").is_empty())
    {
        out.push(format!(
            "{field}.imagePullSecrets[{i}].name: invalid empty name \"\""
        ));
    }
}

fn warn_of_null_selector(field: &str, term: &Value, out: &mut Vec<String>) {
    if !has(term, "/labelSelector") {
        out.push(format!(
            "{field}.labelSelector: a null labelSelector results in matching no pod"
        ));
    }
}

/// Warns of annotations that fields of a container have replaced.
fn warn_of_profiles(annotations: &str, template: &Value, container: &Value, out: &mut Vec<String>) {
    let name = text(container, "/name");
    let context = "/securityContext";
    let seccomp = format!("{SECCOMP_CONTAINER_PREFIX}{name}");
    if !has(container, &format!("{context}/seccompProfile")) && has_annotation(template, &seccomp) {
        out.push(format!("{annotations}[{seccomp}]: {SECCOMP_DEPRECATION}"));
    }
    let app_armor = format!("{APP_ARMOR_PREFIX}{name}");
    let has_field = has(container, &format!("{context}/appArmorProfile"))
        || has(template, "/spec/securityContext/appArmorProfile");
    if !has_field && has_annotation(template, &app_armor) {
        out.push(format!(
            "{annotations}[{app_armor}]: {APP_ARMOR_DEPRECATION}"
        ));
    }
}

fn warn_of_container(field: &str, container: &Value, out: &mut Vec<String>) {
    for resource in ["memory", "ephemeral-storage"] {
        for side in ["limits", "requests"] {
            let amounts = get(container, &format!("/resources/{side}"));
            warn_of_fraction(&format!("{field}.resources.{side}"), amounts, resource, out);
        }
    }
    let mut names = HashSet::new();
    for (i, variable) in items(container, "/env").iter().enumerate() {
        let name = text(variable, "/name");
        if names.insert(name) {
            continue;
        }
        // A value that extends the previous one hides nothing.
        let reference = format!("$({name})");
        let value = text(variable, "/value");
        let extends = value.contains(&reference) && value != reference;
        if !extends || has(variable, "/valueFrom") {
            out.push(format!(
                "{field}.env[{i}]: hides previous definition of {name:?}, which may be dropped \
                 when using apply"
            ));
        }
    }
}

fn warn_of_affinity(field: &str, spec: &Value, out: &mut Vec<String>) {
    for side in ["podAffinity", "podAntiAffinity"] {
        let affinity = get(spec, &format!("/affinity/{side}"));
        let field = format!("{field}.affinity.{side}");
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        let terms = items(affinity, &format!("/{required}"));
        for (i, term) in terms.iter().enumerate() {
            warn_of_null_selector(&format!("{field}.{required}[{i}]"), term, out);
        }
        let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
        let terms = items(affinity, &format!("/{preferred}"));
        for (i, term) in terms.iter().enumerate() {
            let field = format!("{field}.{preferred}[{i}].podAffinityTerm");
            warn_of_null_selector(&field, get(term, "/podAffinityTerm"), out);
        }
    }
}

fn warn_of_addresses(field: &str, spec: &Value, out: &mut Vec<String>) {
    let servers = items(spec, "/dnsConfig/nameservers");
    for (i, server) in servers.iter().enumerate() {
        let path = format!("{field}.dnsConfig.nameservers[{i}]");
        out.extend(address_warning(&path, server.as_str().unwrap_or("")));
    }
    for (i, alias) in items(spec, "/hostAliases").iter().enumerate() {
        let path = format!("{field}.hostAliases[{i}].ip");
        out.extend(address_warning(&path, text(alias, "/ip")));
    }
}
