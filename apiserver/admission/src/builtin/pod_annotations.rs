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
        let at = format!("{field}[{key}]");
        match key {
            MIRROR if text(spec, "/nodeName").is_empty() => {
                let why = "must set spec.nodeName if mirror pod annotation is set";
                errors.push(FieldError::invalid(at, &value.into(), why));
            }
            TOLERATIONS if !value.is_empty() => {
                match machinery::json::from_str::<Vec<Value>>(value) {
                    Ok(tolerations) => {
                        validate_tolerations(&format!("{field}.{key}"), &tolerations, errors);
                    }
                    Err(why) => {
                        errors.push(FieldError::invalid(&field, &key.into(), why.to_string()));
                    }
                }
            }
            DELETION_COST if !is_deletion_cost(value) && !had_invalid_cost(old) => {
                errors.push(FieldError::invalid(
                    at,
                    &value.into(),
                    "must be a 32bit integer",
                ));
            }
            _ if key == SECCOMP_POD || key.starts_with(SECCOMP_CONTAINER) => {
                validate_seccomp(&format!("{field}.{key}"), value, errors);
            }
            _ => {
                if let Some(container) = key.strip_prefix(APP_ARMOR) {
                    validate_app_armor(&at, container, value, spec, errors);
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
                let why = "must be a valid seccomp profile";
                errors.push(FieldError::invalid(field, &profile.into(), why));
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
        let why = "container not found";
        errors.push(FieldError::invalid(field, &container.into(), why));
    }
    let is_known = matches!(profile, "" | "runtime/default" | "unconfined");
    if !is_known && !profile.starts_with("localhost/") {
        let why = format!("invalid AppArmor profile name: {profile:?}");
        errors.push(FieldError::invalid(field, &profile.into(), why));
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
        let at = format!("{field}.securityContext.seccompProfile");
        compare_profiles(&at, "seccomp", value, of_pod("seccompProfile"), errors);
    }
    for (at, container) in all_containers(field, spec) {
        let name = text(container, "/name");
        let own = |name: &str| get(container, &format!("/securityContext/{name}"));
        if let Some(value) = annotation(&format!("{SECCOMP_CONTAINER}{name}")) {
            let at = format!("{at}.securityContext.seccompProfile");
            compare_profiles(&at, "seccomp", value, own("seccompProfile"), errors);
        }
        let profile = match own("appArmorProfile") {
            Value::Null => of_pod("appArmorProfile"),
            own => own,
        };
        if let Some(value) = annotation(&format!("{APP_ARMOR}{name}"))
            && text(spec, "/os/name") != "windows"
        {
            let at = format!("{at}.securityContext.appArmorProfile");
            compare_profiles(&at, "apparmor", value, profile, errors);
        }
    }
}

fn compare_profiles(
    field: &str,
    what: &str,
    annotation: &str,
    profile: &Value,
    errors: &mut Vec<FieldError>,
) {
    let same_type = match text(profile, "/type") {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => {
            annotation == "runtime/default" || what == "seccomp" && annotation == "docker/default"
        }
        "Localhost" => annotation.starts_with("localhost/"),
        _ => return,
    };
    let local = annotation.strip_prefix("localhost/").unwrap_or("");
    if !same_type {
        let why = format!("{what} type in annotation and field must match");
        errors.push(FieldError::forbidden(format!("{field}.type"), &why));
    } else if text(profile, "/type") == "Localhost" && text(profile, "/localhostProfile") != local {
        let why = format!("{what} profile in annotation and field must match");
        let at = format!("{field}.localhostProfile");
        errors.push(FieldError::forbidden(at, &why));
    }
}

/// Forbids changes of annotations that act only when a pod is created.
pub(super) fn validate_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let annotations = |pod| get(pod, "/metadata/annotations");
    let (was, is) = (annotations(old), annotations(new));
    for (key, what) in concerned_keys(was) {
        if was.get(key) != is.get(key) {
            let at = format!("metadata.annotations[{key}]");
            errors.push(FieldError::forbidden(
                at,
                &format!("may not remove or update {what}"),
            ));
        }
    }
    for (key, what) in concerned_keys(is).filter(|(key, _)| was.get(key).is_none()) {
        let at = format!("metadata.annotations[{key}]");
        errors.push(FieldError::forbidden(at, &format!("may not add {what}")));
    }
}

fn concerned_keys(annotations: &Value) -> impl Iterator<Item = (&str, &'static str)> {
    entries(annotations, "").filter_map(|(key, _)| match key {
        MIRROR => Some((key, "mirror pod annotation")),
        _ if key.starts_with(APP_ARMOR) => Some((key, "AppArmor annotations")),
        _ => None,
    })
}
