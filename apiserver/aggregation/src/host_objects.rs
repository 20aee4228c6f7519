//! The objects that Flotilla creates for itself at the host: the Service that they lead to,
//! their labels, and whether one that exists is as desired.

use serde_json::{Value, json};

pub(super) const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";

/// The Service by which the host reaches this server.
#[derive(Clone, Debug)]
pub struct ApiServiceTarget {
    pub namespace: String,
    pub name: String,
    pub port: u16,
}

/// The labels of the objects that Flotilla creates for itself at the host.
pub(super) fn labels() -> Value {
    json!({MANAGED_BY_LABEL: "flotilla", "app.kubernetes.io/name": "flotilla"})
}

/// Whether `found` has every field of `desired` with the same value.
pub(super) fn contains(existing: &Value, desired: &Value) -> bool {
    match (existing, desired) {
        (Value::Object(existing), Value::Object(desired)) => desired.iter().all(|(key, value)| {
            // False and absent mean the same.
            existing
                .get(key)
                .map_or(*value == json!(false), |f| contains(f, value))
        }),
        _ => existing == desired,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absence_is_false() {
        let check = |existing: Value, desired: Value, expect: bool| {
            assert_eq!(
                contains(&existing, &desired),
                expect,
                "{existing} {desired}"
            );
        };
        check(json!({"a": 1, "b": 2}), json!({"a": 1}), true);
        check(json!({"a": 1}), json!({"a": 1, "b": false}), true);
        check(json!({"a": {"c": 1}}), json!({"a": {"c": 2}}), false);
        check(json!({}), json!({"a": 1}), false);
    }
}
