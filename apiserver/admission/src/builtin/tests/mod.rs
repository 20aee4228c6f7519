//! One accepted and at least one rejected object per rule, by the field paths of the
//! errors.

mod access;
mod autoscaling;
mod claims;
mod cron_jobs;
mod definition;
mod jobs;
mod limits;
mod network;
mod nodes;
mod pod_systems;
mod pod_updates;
mod pods;
mod routing;
mod services;
mod storage;
mod webhooks;
mod workloads;

use super::*;

/// Validates `new`, as an update of `old` if there is one.
fn errors(api: &str, kind: &str, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let gvk = Gvk::from_api_version(api, kind);
    validate_builtin(&gvk, new, old)
}

/// Applies a merge patch: `null` removes.
fn with(base: &Value, change: &Value) -> Value {
    let (Value::Object(_), Value::Object(changes)) = (base, change) else {
        return change.clone();
    };
    let mut out = base.clone();
    let fields = out.as_object_mut().unwrap();
    for (key, value) in changes {
        let merged = with(fields.get(key).unwrap_or(&Value::Null), value);
        if value.is_null() {
            fields.remove(key);
        } else {
            fields.insert(key.clone(), merged);
        }
    }
    out
}

fn check(api: &str, kind: &str, base: &Value, table: &[(Value, &[&str])]) {
    for (change, expect) in table {
        let actual = errors(api, kind, &with(base, change), None);
        let fields: Vec<&str> = actual.iter().map(|e| e.field.as_str()).collect();
        assert_eq!(fields, *expect, "{kind} {change}\n{actual:?}");
    }
}

fn check_update(api: &str, kind: &str, base: &Value, table: &[(Value, &[&str])]) {
    for (change, expect) in table {
        let actual = errors(api, kind, &with(base, change), Some(base));
        let fields: Vec<&str> = actual.iter().map(|e| e.field.as_str()).collect();
        assert_eq!(fields, *expect, "{kind} {change}\n{actual:?}");
    }
}

/// As [`check`], with the types of the errors: `Required spec.selector`. With `old` the objects
/// are updates.
fn check_reasons(
    (api, kind): (&str, &str),
    base: &Value,
    old: Option<&Value>,
    table: &[(Value, &[&str])],
) {
    for (change, expect) in table {
        let actual = errors(api, kind, &with(base, change), old);
        let reasons: Vec<String> = actual
            .iter()
            .map(|e| format!("{:?} {}", e.error_type, e.field))
            .collect();
        assert_eq!(reasons, *expect, "{kind} {change}\n{actual:?}");
    }
}
