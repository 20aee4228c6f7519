//! Validates what a pod may have on its operating system, and in its host's namespaces.

use machinery::FieldError;
use serde_json::Value;

use super::containers::all_containers;
use super::validated_pod_spec::ValidatedPodSpec;
use crate::unstructured::{flag, get, has, items, text};

const SYSTEMS: [&str; 2] = ["linux", "windows"];
/// The fields of a pod spec that Windows does not know, with their paths.
const NOT_ON_WINDOWS: [&str; 15] = [
    "securityContext.appArmorProfile",
    "securityContext.seLinuxOptions",
    "hostUsers",
    "hostPID",
    "hostIPC",
    "securityContext.seccompProfile",
    "securityContext.fsGroup",
    "securityContext.fsGroupChangePolicy",
    "securityContext.sysctls",
    "shareProcessNamespace",
    "securityContext.runAsUser",
    "securityContext.runAsGroup",
    "securityContext.supplementalGroups",
    "securityContext.supplementalGroupsPolicy",
    "securityContext.seLinuxChangePolicy",
];
/// Fields of a container's security context that a Windows pod must not set.
const NOT_IN_WINDOWS_CONTAINERS: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];

pub(super) fn validate(pod_spec: ValidatedPodSpec<'_>, errors: &mut Vec<FieldError>) {
    validate_host_processes(pod_spec, errors);
    validate_user_namespace(pod_spec, errors);
    let spec = pod_spec.spec;
    if !has(spec, "/os") {
        return;
    }
    match text(spec, "/os/name") {
        "" => errors.push(FieldError::required(
            pod_spec.at("os.name"),
            "cannot be empty",
        )),
        "linux" => validate_linux(pod_spec, errors),
        "windows" => validate_windows(pod_spec, errors),
        other => {
            let path = pod_spec.at("os");
            errors.push(FieldError::not_supported(path, &other.into(), &SYSTEMS));
        }
    }
}

fn validate_linux(pod_spec: ValidatedPodSpec<'_>, errors: &mut Vec<FieldError>) {
    let detail = "windows options cannot be set for a linux pod";
    let mut owners = vec![(pod_spec.field.to_owned(), pod_spec.spec)];
    owners.extend(all_containers(pod_spec.field, pod_spec.spec));
    for (path, owner) in owners {
        if has(owner, "/securityContext/windowsOptions") {
            let path = format!("{path}.securityContext.windowsOptions");
            errors.push(FieldError::forbidden(path, detail));
        }
    }
}

fn validate_windows(pod_spec: ValidatedPodSpec<'_>, errors: &mut Vec<FieldError>) {
    let detail = "cannot be set for a windows pod";
    // An absent flag and an empty list are not set.
    let is_set = |name: &str, value: &Value| match name {
        "hostPID" | "hostIPC" => *value == true,
        "securityContext.sysctls" => !items(value, "").is_empty(),
        _ => !value.is_null(),
    };
    for name in NOT_ON_WINDOWS {
        let path = format!("/{}", name.replace('.', "/"));
        if is_set(name, get(pod_spec.spec, &path)) {
            errors.push(FieldError::forbidden(pod_spec.at(name), detail));
        }
    }
    for (container_path, container) in all_containers(pod_spec.field, pod_spec.spec) {
        for name in NOT_IN_WINDOWS_CONTAINERS {
            if has(container, &format!("/securityContext/{name}")) {
                let container_path = format!("{container_path}.securityContext.{name}");
                errors.push(FieldError::forbidden(container_path, detail));
            }
        }
    }
}

/// Either all containers are processes of a Windows host, or none.
fn validate_host_processes(pod_spec: ValidatedPodSpec<'_>, errors: &mut Vec<FieldError>) {
    let path = "/securityContext/windowsOptions/hostProcess";
    let of_pod = get(pod_spec.spec, path).as_bool();
    let containers = all_containers(pod_spec.field, pod_spec.spec);
    let mut count = 0;
    for (container_path, container) in &containers {
        let of_container = get(container, path).as_bool();
        if let (Some(of_pod), Some(of_container)) = (of_pod, of_container)
            && of_pod != of_container
        {
            errors.push(FieldError::invalid(
                format!("{container_path}.securityContext.windowsOptions.hostProcess"),
                &of_container.into(),
                format!(
                    "pod hostProcess value must be identical if both are specified, was {of_pod}"
                ),
            ));
        }
        count += usize::from(of_container.or(of_pod) == Some(true));
    }
    if count == 0 {
        return;
    }
    if count != containers.len() {
        let detail = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.push(FieldError::invalid(pod_spec.field, &"".into(), detail));
    }
    if !flag(pod_spec.spec, "/hostNetwork") {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.push(FieldError::invalid(
            pod_spec.at("hostNetwork"),
            &false.into(),
            detail,
        ));
    }
}

/// A pod with a user namespace of its own shares no other namespace with the host. Kubernetes
/// writes the names of two of these fields with a capital.
fn validate_user_namespace(pod_spec: ValidatedPodSpec<'_>, errors: &mut Vec<FieldError>) {
    if pod_spec.has_host_users() {
        return;
    }
    for (name, go_name) in [
        ("hostNetwork", "hostNetwork"),
        ("hostPID", "HostPID"),
        ("hostIPC", "HostIPC"),
    ] {
        if flag(pod_spec.spec, &format!("/{name}")) {
            let detail = "when `pod.Spec.HostUsers` is false";
            errors.push(FieldError::forbidden(pod_spec.at(go_name), detail));
        }
    }
}
