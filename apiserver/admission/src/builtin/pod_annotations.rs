//! Validates the annotations of pods and pod templates that act as fields.

use machinery::FieldError;
use serde_json::Value;

use super::containers::all_containers;
use super::pod_scheduling::validate_tolerations;
use super::volume_paths::validate_descending_path;
use crate::unstructured::{entries, get, text};

const MIRROR: &str = "kubernetes.io/config.mirror";
const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Validates the annotations of a pod or template; `field` is the dotted path of its metadata, or
/// of the template.
pub(super) fn validate(
    field: &str,
    template: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    let field = format!("{field}.annotations");
    let annotations = get(template, "/metadata/annotations");
    let spec = get(template, "/spec");
    for (key, value) in entries(annotations, "") {
        let value = value.as_str().unwrap_or("");
        let path = format!("{field}[{key}]");
        match key {
            MIRROR if text(spec, "/nodeName").is_empty() => {
                let detail = "must set spec.nodeName if mirror pod annotation is set";
                errors.push(FieldError::invalid(path, &value.into(), detail));
            }
            TOLERATIONS if !value.is_empty() => {
                match machinery::json::from_str::<Vec<Value>>(value) {
                    Ok(tolerations) => {
                        validate_tolerations(&format!("{field}.{key}"), &tolerations, errors);
                    }
                    Err(detail) => {
                        errors.push(FieldError::invalid(&field, &key.into(), detail.to_string()));
                    }
                }
            }
            DELETION_COST if !is_deletion_cost(value) && !had_invalid_cost(old) => {
                errors.push(FieldError::invalid(
                    path,
                    &value.into(),
                    "must be a 32bit integer",
                ));
            }
            _ if key == SECCOMP_POD || key.starts_with(SECCOMP_CONTAINER) => {
                validate_seccomp(&format!("{field}.{key}"), value, errors);
            }
            _ => {
                if let Some(container) = key.strip_prefix(APP_ARMOR) {
                    validate_app_armor(&path, container, value, spec, errors);
                }
            }
        }
    }
}

/// A sign or a leading zero is refused, as in Kubernetes.
fn is_deletion_cost(value: &str) -> bool {
    let is_plain = value == "0" || !value.starts_with(['+', '0']);
    is_plain && value.parse::<i32>().is_ok()
}

fn had_invalid_cost(old: Option<&Value>) -> bool {
    let old = old.map(|old| get(old, "/metadata/annotations"));
    let cost = old.and_then(|annotations| annotations.get(DELETION_COST)?.as_str());
    cost.is_some_and(|cost| !is_deletion_cost(cost))
}

fn validate_seccomp(field: &str, profile: &str, errors: &mut Vec<FieldError>) {
    match profile {
        "runtime/default" | "docker/default" | "unconfined" => {}
        _ => match profile.strip_prefix("localhost/") {
            Some(path) => validate_descending_path(field, path, errors),
            None => {
                let detail = "must be a valid seccomp profile";
                errors.push(FieldError::invalid(field, &profile.into(), detail));
            }
        },
    }
}

fn validate_app_armor(
    field: &str,
    container: &str,
    profile: &str,
    spec: &Value,
    errors: &mut Vec<FieldError>,
) {
    let containers = all_containers("", spec);
    if !containers
        .iter()
        .any(|(_, c)| text(c, "/name") == container)
    {
        let detail = "container not found";
        errors.push(FieldError::invalid(field, &container.into(), detail));
    }
    let is_known = matches!(profile, "" | "runtime/default" | "unconfined");
    if !is_known && !profile.starts_with("localhost/") {
        let detail = format!("invalid AppArmor profile name: {profile:?}");
        errors.push(FieldError::invalid(field, &profile.into(), detail));
    }
}

/// Requires profiles that a new pod or a template has twice, as annotation and as field, to be the
/// same. `field` is the dotted path of its spec.
pub(super) fn validate_profiles(field: &str, template: &Value, errors: &mut Vec<FieldError>) {
    let annotations = get(template, "/metadata/annotations");
    let annotation = |key: &str| annotations.get(key).and_then(Value::as_str);
    let spec = get(template, "/spec");
    let of_pod = |name: &str| get(spec, &format!("/securityContext/{name}"));
    if let Some(value) = annotation(SECCOMP_POD) {
        let path = format!("{field}.securityContext.seccompProfile");
        compare_profiles(&path, "seccomp", value, of_pod("seccompProfile"), errors);
    }
    for (path, container) in all_containers(field, spec) {
        let name = text(container, "/name");
        let container_profile = |name: &str| get(container, &format!("/securityContext/{name}"));
        if let Some(value) = annotation(&format!("{SECCOMP_CONTAINER}{name}")) {
            let path = format!("{path}.securityContext.seccompProfile");
            compare_profiles(
                &path,
                "seccomp",
                value,
                container_profile("seccompProfile"),
                errors,
            );
        }
        let profile = match container_profile("appArmorProfile") {
            Value::Null => of_pod("appArmorProfile"),
            container_profile => container_profile,
        };
        if let Some(value) = annotation(&format!("{APP_ARMOR}{name}"))
            && text(spec, "/os/name") != "windows"
        {
            let path = format!("{path}.securityContext.appArmorProfile");
            compare_profiles(&path, "apparmor", value, profile, errors);
        }
    }
}

fn compare_profiles(
    field: &str,
    profile_kind: &str,
    annotation: &str,
    profile: &Value,
    errors: &mut Vec<FieldError>,
) {
    let same_type = match text(profile, "/type") {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => {
            annotation == "runtime/default"
                || profile_kind == "seccomp" && annotation == "docker/default"
        }
        "Localhost" => annotation.starts_with("localhost/"),
        _ => return,
    };
    let local = annotation.strip_prefix("localhost/").unwrap_or("");
    if !same_type {
        let detail = format!("{profile_kind} type in annotation and field must match");
        errors.push(FieldError::forbidden(format!("{field}.type"), &detail));
    } else if text(profile, "/type") == "Localhost" && text(profile, "/localhostProfile") != local {
        let detail = format!("{profile_kind} profile in annotation and field must match");
        let path = format!("{field}.localhostProfile");
        errors.push(FieldError::forbidden(path, &detail));
    }
}

/// Forbids changes of annotations that act only when a pod is created.
pub(super) fn validate_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let annotations = |pod| get(pod, "/metadata/annotations");
    let (old_annotations, new_annotations) = (annotations(old), annotations(new));
    for (key, annotation_kind) in concerned_keys(old_annotations) {
        if old_annotations.get(key) != new_annotations.get(key) {
            let path = format!("metadata.annotations[{key}]");
            errors.push(FieldError::forbidden(
                path,
                &format!("may not remove or update {annotation_kind}"),
            ));
        }
    }
    for (key, annotation_kind) in
        concerned_keys(new_annotations).filter(|(key, _)| old_annotations.get(key).is_none())
    {
        let path = format!("metadata.annotations[{key}]");
        errors.push(FieldError::forbidden(
            path,
            &format!("may not add {annotation_kind}"),
        ));
    }
}

fn concerned_keys(annotations: &Value) -> impl Iterator<Item = (&str, &'static str)> {
    entries(annotations, "").filter_map(|(key, _)| match key {
        MIRROR => Some((key, "mirror pod annotation")),
        _ if key.starts_with(APP_ARMOR) => Some((key, "AppArmor annotations")),
        _ => None,
    })
}
