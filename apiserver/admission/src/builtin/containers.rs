//! Validates the containers of a pod spec.

use std::collections::HashSet;

use machinery::FieldError;
use machinery::names::validate_dns1123_label;
use serde_json::Value;

use super::numbers::validate_port;
use super::ports::{validate_port_name, validate_protocol};
use super::resource_claims::ResourceClaimNames;
use super::validated_pod_spec::ValidatedPodSpec;
use super::volumes::MountableVolumes;
use super::{container_resources, env, pod_security, probes, volume_mounts};
use crate::unstructured::{
    flag, get, has, index_path, int, items, non_empty_or, report_invalid, text,
};

const RESTART_POLICIES: [&str; 3] = ["Always", "Never", "OnFailure"];
const MAX_RESTART_RULES: usize = 20;
/// The fields that only containers of the pod's own work have.
const NOT_EPHEMERAL: [&str; 9] = [
    "ports",
    "resources",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
];

/// All containers of a pod spec at `field`, with their paths.
pub(super) fn all_containers<'a>(field: &str, spec: &'a Value) -> Vec<(String, &'a Value)> {
    let mut all = Vec::new();
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        let containers = items(spec, &format!("/{list}")).iter().enumerate();
        all.extend(containers.map(|(i, c)| (format!("{field}.{list}[{i}]"), c)));
    }
    all
}

/// The context on which the rules of a container depend.
struct ContainerScope<'a> {
    pod_spec: ValidatedPodSpec<'a>,
    mountable: &'a MountableVolumes<'a>,
    claims: &'a ResourceClaimNames<'a>,
}

pub(super) fn validate(
    pod_spec: ValidatedPodSpec<'_>,
    mountable: &MountableVolumes<'_>,
    claims: &ResourceClaimNames<'_>,
    errors: &mut Vec<FieldError>,
) {
    let spec = pod_spec.spec;
    let scope = ContainerScope {
        pod_spec,
        mountable,
        claims,
    };
    let containers = items(spec, "/containers");
    if containers.is_empty() {
        errors.push(FieldError::required(pod_spec.at("containers"), ""));
    }
    let mut names = HashSet::new();
    for (i, container) in containers.iter().enumerate() {
        let path = index_path(&pod_spec.at("containers"), i);
        scope.validate_container(&path, container, errors);
        validate_unique_name(&path, container, &mut names, errors);
        probes::validate(&path, container, spec, false, errors);
        validate_restart_policy(&path, container, &RESTART_POLICIES, errors);
    }
    validate_host_ports(&pod_spec.at("containers"), containers, errors);
    for (i, container) in items(spec, "/initContainers").iter().enumerate() {
        let path = index_path(&pod_spec.at("initContainers"), i);
        scope.validate_container(&path, container, errors);
        validate_restart_policy(&path, container, &RESTART_POLICIES, errors);
        validate_unique_name(&path, container, &mut names, errors);
        let field = pod_spec.at("initContainers");
        validate_host_ports(&field, std::slice::from_ref(container), errors);
        let must_end = text(container, "/restartPolicy") != "Always";
        probes::validate(&path, container, spec, must_end, errors);
    }
    scope.validate_ephemeral(names, errors);
}

fn validate_unique_name<'a>(
    field: &str,
    container: &'a Value,
    names: &mut HashSet<&'a str>,
    errors: &mut Vec<FieldError>,
) {
    let name = text(container, "/name");
    if !name.is_empty() && !names.insert(name) {
        errors.push(FieldError::duplicate(format!("{field}.name"), &name.into()));
    }
}

impl ContainerScope<'_> {
    /// Validates what all kinds of containers have.
    fn validate_container(&self, field: &str, container: &Value, errors: &mut Vec<FieldError>) {
        let name = text(container, "/name");
        if name.is_empty() {
            errors.push(FieldError::required(format!("{field}.name"), ""));
        } else {
            let result = validate_dns1123_label(name);
            report_invalid(format!("{field}.name"), name, result, errors);
        }
        let image = text(container, "/image");
        if image.is_empty() {
            errors.push(FieldError::required(format!("{field}.image"), ""));
        } else if self.pod_spec.pod.is_some() && image.trim() != image {
            errors.push(FieldError::invalid(
                format!("{field}.image"),
                &image.into(),
                "must not have leading or trailing whitespace",
            ));
        }
        validate_ports(field, container, errors);
        env::validate(field, container, errors);
        volume_mounts::validate(field, container, self.mountable, errors);
        let path = format!("{field}.resources");
        let resources = get(container, "/resources");
        container_resources::validate(&path, resources, self.claims, errors);
        self.validate_resize_policy(field, container, errors);
        let has_host_users = self.pod_spec.has_host_users();
        pod_security::validate_container(field, container, has_host_users, errors);
    }

    fn validate_resize_policy(&self, field: &str, container: &Value, errors: &mut Vec<FieldError>) {
        let path = format!("{field}.resizePolicy");
        let never = text(self.pod_spec.spec, "/restartPolicy") == "Never";
        let mut resources = HashSet::new();
        for (i, policy) in items(container, "/resizePolicy").iter().enumerate() {
            let (name, restart) = (
                text(policy, "/resourceName"),
                text(policy, "/restartPolicy"),
            );
            if !resources.insert(name) {
                errors.push(FieldError::duplicate(index_path(&path, i), &name.into()));
            }
            for (value, choices) in [
                (name, ["cpu", "memory"]),
                (restart, ["NotRequired", "RestartContainer"]),
            ] {
                match value {
                    "" => errors.push(FieldError::required(&path, "")),
                    _ if choices.contains(&value) => {}
                    _ => errors.push(FieldError::not_supported(&path, &value.into(), &choices)),
                }
            }
            if never && restart != "NotRequired" {
                let detail = "must be 'NotRequired' when `restartPolicy` is 'Never'";
                errors.push(FieldError::invalid(&path, &restart.into(), detail));
            }
        }
    }

    fn validate_ephemeral<'a>(&'a self, mut names: HashSet<&'a str>, errors: &mut Vec<FieldError>) {
        let regular_names = names.clone();
        let detail = "cannot be set for an Ephemeral Container";
        let containers = items(self.pod_spec.spec, "/ephemeralContainers").iter();
        for (i, container) in containers.enumerate() {
            let path = index_path(&self.pod_spec.at("ephemeralContainers"), i);
            self.validate_container(&path, container, errors);
            validate_unique_name(&path, container, &mut names, errors);
            let target = text(container, "/targetContainerName");
            if !target.is_empty() && !regular_names.contains(target) {
                let path = format!("{path}.targetContainerName");
                errors.push(FieldError::not_found(path, &target.into()));
            }
            let is_set = |name: &&&str| match get(container, &format!("/{name}")) {
                Value::Array(list) => !list.is_empty(),
                Value::Object(fields) => **name != "resources" || !fields.is_empty(),
                value => !value.is_null(),
            };
            for name in NOT_EPHEMERAL.iter().filter(is_set) {
                errors.push(FieldError::forbidden(format!("{path}.{name}"), detail));
            }
            for (j, mount) in items(container, "/volumeMounts").iter().enumerate() {
                for name in ["subPath", "subPathExpr"] {
                    if !text(mount, &format!("/{name}")).is_empty() {
                        let path = format!("{path}.volumeMounts[{j}].{name}");
                        errors.push(FieldError::forbidden(path, detail));
                    }
                }
            }
        }
    }
}

/// Validates the restart policy of one container, and its rules.
fn validate_restart_policy(
    field: &str,
    container: &Value,
    policies: &[&str],
    errors: &mut Vec<FieldError>,
) {
    let rules = items(container, "/restartPolicyRules");
    let path = format!("{field}.restartPolicy");
    let policy = text(container, "/restartPolicy");
    if !has(container, "/restartPolicy") {
        if !rules.is_empty() {
            let detail = "must specify restartPolicy when restart rules are used";
            errors.push(FieldError::required(path, detail));
        }
    } else if !policies.contains(&policy) {
        errors.push(FieldError::not_supported(path, &policy.into(), policies));
    }
    let path = format!("{field}.restartPolicyRules");
    if rules.len() > MAX_RESTART_RULES {
        errors.push(FieldError::too_many(&path, rules.len(), MAX_RESTART_RULES));
    }
    for (i, rule) in rules.iter().enumerate() {
        if !has(rule, "/exitCodes") {
            let path = format!("{path}[{i}].exitCodes");
            errors.push(FieldError::required(path, "must be specified"));
        }
    }
}

fn validate_ports(field: &str, container: &Value, errors: &mut Vec<FieldError>) {
    let mut names = HashSet::new();
    for (i, entry) in items(container, "/ports").iter().enumerate() {
        let path = index_path(&format!("{field}.ports"), i);
        let name = text(entry, "/name");
        if !name.is_empty() {
            match validate_port_name(name) {
                Err(detail) => {
                    let error = FieldError::invalid(format!("{path}.name"), &name.into(), detail);
                    errors.push(error);
                }
                Ok(()) if names.insert(name) => {}
                Ok(()) => {
                    errors.push(FieldError::duplicate(format!("{path}.name"), &name.into()));
                }
            }
        }
        match int(entry, "/containerPort") {
            None | Some(0) => {
                errors.push(FieldError::required(format!("{path}.containerPort"), ""));
            }
            Some(number) => validate_port(format!("{path}.containerPort"), number, errors),
        }
        if let Some(number) = int(entry, "/hostPort").filter(|n| *n != 0) {
            validate_port(format!("{path}.hostPort"), number, errors);
        }
        validate_protocol(&path, entry, errors);
    }
}

/// Requires the ports of the host to be distinct in a list of containers.
fn validate_host_ports(field: &str, containers: &[Value], errors: &mut Vec<FieldError>) {
    let mut host_ports = HashSet::new();
    for (i, container) in containers.iter().enumerate() {
        for (j, port) in items(container, "/ports").iter().enumerate() {
            let host_port = int(port, "/hostPort").unwrap_or(0);
            let protocol = non_empty_or(text(port, "/protocol"), "TCP");
            let used = format!("{protocol}/{}/{host_port}", text(port, "/hostIP"));
            if host_port != 0 && !host_ports.insert(used.clone()) {
                let field = format!("{field}[{i}].ports[{j}].hostPort");
                errors.push(FieldError::duplicate(field, &used.into()));
            }
        }
    }
}

/// Requires host ports to equal the container ports if the containers share the host's network. A
/// template may leave them out: they get a default when the pod is created.
pub(super) fn validate_host_network(pod_spec: ValidatedPodSpec<'_>, errors: &mut Vec<FieldError>) {
    if !flag(pod_spec.spec, "/hostNetwork") {
        return;
    }
    for (i, container) in items(pod_spec.spec, "/containers").iter().enumerate() {
        for (j, port) in items(container, "/ports").iter().enumerate() {
            let number = int(port, "/containerPort").unwrap_or(0);
            let host_port = int(port, "/hostPort").unwrap_or(0);
            if host_port != number && (host_port != 0 || pod_spec.pod.is_some()) {
                errors.push(FieldError::invalid(
                    pod_spec.at(&format!("containers[{i}].ports[{j}].hostPort")),
                    &host_port.into(),
                    "must match `containerPort` when `hostNetwork` is true",
                ));
            }
        }
    }
}
