//! Validates the security contexts of pods and containers.

use std::collections::HashSet;

use machinery::FieldError;
use serde_json::Value;

use super::validated_pod_spec::ValidatedPodSpec;
use super::volume_paths::validate_descending_path;
use super::windows_options;
use crate::unstructured::{flag, get, has, index_path, int, items, text, texts};

const MAX_ID: i64 = i32::MAX as i64;
const PROFILE_TYPES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];
/// The length of a path on Linux.
const MAX_PROFILE_LENGTH: usize = 4095;
const MAX_SYSCTL_LENGTH: usize = 253;
const INVALID_SYSCTL: &str = "must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
/// Fields with few values, which the schema does not list.
const CHOICES: [(&str, &[&str]); 3] = [
    ("fsGroupChangePolicy", &["Always", "OnRootMismatch"]),
    ("seLinuxChangePolicy", &["MountOption", "Recursive"]),
    ("supplementalGroupsPolicy", &["Merge", "Strict"]),
];

/// Validates the security context of a pod spec.
pub(super) fn validate_pod(pod_spec: ValidatedPodSpec<'_>, errors: &mut Vec<FieldError>) {
    let spec = pod_spec.spec;
    let context = get(spec, "/securityContext");
    let field = pod_spec.at("securityContext");
    validate_ids(
        &field,
        context,
        &["fsGroup", "runAsUser", "runAsGroup"],
        errors,
    );
    for (i, group) in items(context, "/supplementalGroups").iter().enumerate() {
        let group = group.as_i64().unwrap_or(0);
        let path = index_path(&format!("{field}.supplementalGroups"), i);
        validate_id(&path, group, errors);
    }
    if flag(spec, "/shareProcessNamespace") && flag(spec, "/hostPID") {
        errors.push(FieldError::invalid(
            format!("{field}.shareProcessNamespace"),
            &true.into(),
            "ShareProcessNamespace and HostPID cannot both be enabled",
        ));
    }
    validate_sysctls(pod_spec, errors);
    for (name, choices) in CHOICES {
        let value = text(context, &format!("/{name}"));
        if has(context, &format!("/{name}")) && !choices.contains(&value) {
            let path = format!("{field}.{name}");
            errors.push(FieldError::not_supported(path, &value.into(), choices));
        }
    }
    validate_profiles(&field, context, errors);
    windows_options::validate(&field, context, errors);
}

/// Validates the security context of a container at `field`.
pub(super) fn validate_container(
    field: &str,
    container: &Value,
    has_host_users: bool,
    errors: &mut Vec<FieldError>,
) {
    let context = get(container, "/securityContext");
    let field = format!("{field}.securityContext");
    validate_ids(&field, context, &["runAsUser", "runAsGroup"], errors);
    let mount = text(context, "/procMount");
    let path = format!("{field}.procMount");
    if has(context, "/procMount") && !matches!(mount, "Default" | "Unmasked") {
        let choices = ["Default", "Unmasked"];
        errors.push(FieldError::not_supported(&path, &mount.into(), &choices));
    }
    if has_host_users && mount == "Unmasked" {
        let detail = "`hostUsers` must be false to use `Unmasked`";
        errors.push(FieldError::invalid(path, &mount.into(), detail));
    }
    validate_profiles(&field, context, errors);
    if get(context, "/allowPrivilegeEscalation") == false {
        if flag(context, "/privileged") {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            errors.push(FieldError::invalid(&field, context, detail));
        }
        for _ in texts(context, "/capabilities/add").filter(|name| *name == "CAP_SYS_ADMIN") {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            errors.push(FieldError::invalid(&field, context, detail));
        }
    }
    windows_options::validate(&field, context, errors);
}

fn validate_ids(field: &str, context: &Value, names: &[&str], errors: &mut Vec<FieldError>) {
    for name in names {
        if let Some(id) = int(context, &format!("/{name}")) {
            validate_id(&format!("{field}.{name}"), id, errors);
        }
    }
}

fn validate_id(field: &str, id: i64, errors: &mut Vec<FieldError>) {
    if !(0..=MAX_ID).contains(&id) {
        errors.push(FieldError::invalid(
            field,
            &id.into(),
            format!("must be between 0 and {MAX_ID}, inclusive"),
        ));
    }
}

fn validate_sysctls(pod_spec: ValidatedPodSpec<'_>, errors: &mut Vec<FieldError>) {
    let field = pod_spec.at("securityContext.sysctls");
    let sysctls = items(pod_spec.spec, "/securityContext/sysctls");
    let mut names = HashSet::new();
    let mut old = items(pod_spec.old, "/securityContext/sysctls").iter();
    let had_host_sysctl = old.any(|s| host_namespace(pod_spec.old, text(s, "/name")).is_some());
    for (i, sysctl) in sysctls.iter().enumerate() {
        let path = format!("{field}[{i}].name");
        let name = text(sysctl, "/name");
        if name.is_empty() {
            errors.push(FieldError::required(&path, ""));
        } else if !is_sysctl_name(name) {
            errors.push(FieldError::invalid(&path, &name.into(), INVALID_SYSCTL));
        } else if !names.insert(name) {
            errors.push(FieldError::duplicate(&path, &name.into()));
        }
        if let Some(namespace) = host_namespace(pod_spec.spec, name)
            && !had_host_sysctl
        {
            let detail = format!("may not be specified when '{namespace}' is true");
            errors.push(FieldError::invalid(path, &name.into(), detail));
        }
    }
}

fn is_sysctl_name(name: &str) -> bool {
    let is_edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let is_inner = |b: &u8| is_edge(Some(b)) || b"-_".contains(b);
    let is_valid_part = |part: &str| {
        let bytes = part.as_bytes();
        is_edge(bytes.first()) && is_edge(bytes.last()) && bytes.iter().all(is_inner)
    };
    name.len() <= MAX_SYSCTL_LENGTH && name.split(['.', '/']).all(is_valid_part)
}

/// The field by which a pod shares the namespace of a sysctl with its host.
fn host_namespace(spec: &Value, sysctl: &str) -> Option<&'static str> {
    // The name of a sysctl is written with dots or with slashes.
    let slash_form = sysctl
        .find(['.', '/'])
        .is_some_and(|i| sysctl[i..].starts_with('/'));
    let name = match slash_form {
        true => sysctl.replace('/', "."),
        false => sysctl.to_owned(),
    };
    let is_ipc = name == "kernel.sem"
        || ["kernel.shm", "kernel.msg", "fs.mqueue."]
            .iter()
            .any(|prefix| name.starts_with(prefix));
    if name.starts_with("net.") {
        flag(spec, "/hostNetwork").then_some("hostNetwork")
    } else if is_ipc {
        flag(spec, "/hostIPC").then_some("hostIPC")
    } else {
        None
    }
}

fn validate_profiles(field: &str, context: &Value, errors: &mut Vec<FieldError>) {
    for (name, profile_kind) in [
        ("seccompProfile", "seccomp"),
        ("appArmorProfile", "AppArmor"),
    ] {
        let path = format!("/{name}");
        if !has(context, &path) {
            continue;
        }
        let (profile_path, profile) = (format!("{field}.{name}"), get(context, &path));
        let kind = text(profile, "/type");
        let at_local = format!("{profile_path}.localhostProfile");
        if kind.is_empty() {
            errors.push(FieldError::required(
                format!("{profile_path}.type"),
                &format!("type is required when {name} is set"),
            ));
        } else if !PROFILE_TYPES.contains(&kind) {
            errors.push(FieldError::not_supported(
                format!("{profile_path}.type"),
                &kind.into(),
                &PROFILE_TYPES,
            ));
        }
        let is_known = PROFILE_TYPES.contains(&kind);
        if kind == "Localhost" {
            validate_local_profile(&at_local, profile_kind, profile, errors);
        } else if has(profile, "/localhostProfile") && (is_known || profile_kind == "seccomp") {
            let detail = format!("can only be set when {profile_kind} type is Localhost");
            let local = get(profile, "/localhostProfile");
            errors.push(FieldError::invalid(at_local, local, detail));
        }
    }
}

fn validate_local_profile(
    field: &str,
    profile_kind: &str,
    profile: &Value,
    errors: &mut Vec<FieldError>,
) {
    let local = text(profile, "/localhostProfile");
    let detail = format!("must be set when {profile_kind} type is Localhost");
    if !has(profile, "/localhostProfile") {
        errors.push(FieldError::required(field, &detail));
    } else if profile_kind == "seccomp" {
        validate_descending_path(field, local, errors);
    } else {
        if local.trim() != local {
            let detail = "must not be padded with whitespace";
            errors.push(FieldError::invalid(field, &local.into(), detail));
        } else if local.is_empty() {
            errors.push(FieldError::required(field, &detail));
        }
        if local.len() > MAX_PROFILE_LENGTH {
            errors.push(FieldError::too_long(field, MAX_PROFILE_LENGTH));
        }
    }
}
