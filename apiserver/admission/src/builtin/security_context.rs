//! Validates the security contexts of pods and containers.

use machinery::FieldError;
use serde_json::Value;

use crate::unstructured::{get, has, index_path, int, items, text, texts};

const MAX_ID: i64 = i32::MAX as i64;
const PROFILE_TYPES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];

/// Validates the security context of a pod spec at `field`.
pub(super) fn validate_pod(field: &str, spec: &Value, errors: &mut Vec<FieldError>) {
    if get(spec, "/shareProcessNamespace") == true && get(spec, "/hostPID") == true {
        errors.push(FieldError::invalid(
            format!("{field}.shareProcessNamespace"),
            &true.into(),
            "ShareProcessNamespace and HostPID cannot both be enabled",
        ));
    }
    let context = get(spec, "/securityContext");
    let field = format!("{field}.securityContext");
    validate_ids(
        &field,
        context,
        &["fsGroup", "runAsGroup", "runAsUser"],
        errors,
    );
    for (i, group) in items(context, "/supplementalGroups").iter().enumerate() {
        let group = group.as_i64().unwrap_or(0);
        validate_id(
            &index_path(&format!("{field}.supplementalGroups"), i),
            group,
            errors,
        );
    }
    validate_profiles(&field, context, errors);
}

/// Validates the security context of a container at `field`.
pub(super) fn validate_container(field: &str, container: &Value, errors: &mut Vec<FieldError>) {
    let context = get(container, "/securityContext");
    let field = format!("{field}.securityContext");
    validate_ids(&field, context, &["runAsGroup", "runAsUser"], errors);
    validate_profiles(&field, context, errors);
    if get(context, "/allowPrivilegeEscalation") != false {
        return;
    }
    let is_admin = |capability: &str| matches!(capability, "CAP_SYS_ADMIN" | "SYS_ADMIN");
    let why = if get(context, "/privileged") == true {
        "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
    } else if texts(context, "/capabilities/add").any(is_admin) {
        "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
    } else {
        return;
    };
    errors.push(FieldError::invalid(field, context, why));
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

fn validate_profiles(field: &str, context: &Value, errors: &mut Vec<FieldError>) {
    for (name, what) in [
        ("seccompProfile", "seccomp"),
        ("appArmorProfile", "AppArmor"),
    ] {
        let path = format!("/{name}");
        if !has(context, &path) {
            continue;
        }
        let (at, profile) = (format!("{field}.{name}"), get(context, &path));
        let kind = text(profile, "/type");
        let local = text(profile, "/localhostProfile");
        let at_local = format!("{at}.localhostProfile");
        if kind.is_empty() {
            errors.push(FieldError::required(
                format!("{at}.type"),
                &format!("type is required when {name} is set"),
            ));
        } else if !PROFILE_TYPES.contains(&kind) {
            errors.push(FieldError::not_supported(
                format!("{at}.type"),
                &kind.into(),
                &PROFILE_TYPES,
            ));
        } else if kind == "Localhost" && local.is_empty() {
            let why = format!("must be set when {what} type is Localhost");
            errors.push(FieldError::required(at_local, &why));
        } else if kind != "Localhost" && has(profile, "/localhostProfile") {
            let why = format!("can only be set when {what} type is Localhost");
            errors.push(FieldError::invalid(at_local, &local.into(), why));
        }
    }
}
