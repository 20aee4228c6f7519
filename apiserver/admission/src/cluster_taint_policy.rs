//! Validates ClusterTaintPolicy. Does no I/O. Rules of Karmada's
//! `webhook/clustertaintpolicy`.

use machinery::FieldError;
use serde_json::Value;

use crate::unstructured::{index_path, items, text};

/// `allow_no_execute` is whether the operator lets policies evict.
pub(crate) fn validate(policy: &Value, allow_no_execute: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let taints = items(policy, "/spec/taints");
    for (i, taint) in taints.iter().enumerate() {
        let field = index_path("spec.taints", i);
        let (key, effect) = (text(taint, "/key"), text(taint, "/effect"));
        if effect == "NoExecute" && !allow_no_execute {
            errors.push(FieldError::forbidden(
                &field,
                "Configuring taint with NoExecute effect is not allowed, this capability must be explicitly enabled by administrators through command-line flags",
            ));
        }
        let is_duplicate =
            |other: &Value| text(other, "/key") == key && text(other, "/effect") == effect;
        if taints.iter().skip(i + 1).any(is_duplicate) {
            let detail = format!(
                "Duplicate taint with the same key({key}) and effect({effect}) is not allowed"
            );
            errors.push(FieldError::duplicate(&field, &detail.into()));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(taints: &[Value], allowed: bool, expected: &[&str]) {
        let policy = json!({"spec": {"taints": taints}});
        let errors = validate(&policy, allowed);
        let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(messages, expected, "{policy}");
    }

    fn taint(key: &str, effect: &str) -> Value {
        json!({"key": key, "effect": effect})
    }

    #[test]
    fn taints_are_unique() {
        check(
            &[taint("a", "NoSchedule"), taint("b", "NoSchedule")],
            false,
            &[],
        );
        check(
            &[taint("a", "NoExecute"), taint("a", "NoSchedule")],
            true,
            &[],
        );
        check(
            &[taint("a", "NoSchedule"), taint("a", "NoSchedule")],
            false,
            &[
                r#"spec.taints[0]: Duplicate value: "Duplicate taint with the same key(a) and effect(NoSchedule) is not allowed""#,
            ],
        );
    }

    #[test]
    fn no_execute_needs_permission() {
        let evicts = [taint("b", "NoSchedule"), taint("a", "NoExecute")];
        check(&evicts, true, &[]);
        check(
            &evicts,
            false,
            &[
                "spec.taints[1]: Forbidden: Configuring taint with NoExecute effect is not allowed, this capability must be explicitly enabled by administrators through command-line flags",
            ],
        );
    }
}
