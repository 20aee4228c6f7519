//! ClusterTaintPolicy.
//!
//! Enters: a policy. Leaves: field errors. Pure. Rules of Karmada's
//! `webhook/clustertaintpolicy`.

use machinery::FieldError;
use serde_json::Value;

use crate::tree::{items, nth, text};

/// `allow_no_execute`: an operator permits policies to evict.
pub(crate) fn validate(policy: &Value, allow_no_execute: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let taints = items(policy, "/spec/taints");
    for (i, taint) in taints.iter().enumerate() {
        let field = nth("spec.taints", i);
        let (key, effect) = (text(taint, "/key"), text(taint, "/effect"));
        if effect == "NoExecute" && !allow_no_execute {
            errors.push(FieldError::forbidden(
                &field,
                "Configuring taint with NoExecute effect is not allowed, this capability must be explicitly enabled by administrators through command-line flags",
            ));
        }
        let same = |other: &Value| text(other, "/key") == key && text(other, "/effect") == effect;
        if taints.iter().skip(i + 1).any(same) {
            let why = format!(
                "Duplicate taint with the same key({key}) and effect({effect}) is not allowed"
            );
            errors.push(FieldError::duplicate(&field, &why.into()));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // proves: ADM-taint-policy
    #[test]
    fn taints_are_unique_and_do_not_evict() {
        let taint = |key: &str, effect: &str| json!({"key": key, "effect": effect});
        let table = [
            (
                vec![taint("a", "NoSchedule"), taint("b", "NoSchedule")],
                false,
                0,
            ),
            (
                vec![taint("a", "NoSchedule"), taint("a", "NoSchedule")],
                false,
                1,
            ),
            (vec![taint("a", "NoExecute")], false, 1),
            (
                vec![taint("a", "NoExecute"), taint("a", "NoSchedule")],
                true,
                0,
            ),
        ];
        for (taints, allowed, count) in table {
            let policy = json!({"spec": {"taints": taints}});
            assert_eq!(validate(&policy, allowed).len(), count, "{policy}");
        }
    }
}
