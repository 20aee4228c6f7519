//! ClusterTaintPolicy.
//!
//! Enters: a policy. Leaves: field errors. Pure. Rules of Karmada's
//! `webhook/clustertaintpolicy`.

use std::collections::HashSet;

use machinery::FieldError;
use serde_json::Value;

use crate::affinity;
use crate::tree::{get, items, nth, text};

/// `allow_no_execute`: an operator permits policies to evict.
pub(crate) fn validate(policy: &Value, allow_no_execute: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    affinity::validate(
        "spec.targetClusters",
        get(policy, "/spec/targetClusters"),
        &mut errors,
    );
    let mut seen = HashSet::new();
    for (i, taint) in items(policy, "/spec/taints").iter().enumerate() {
        let field = nth("spec.taints", i);
        let (key, effect) = (text(taint, "/key"), text(taint, "/effect"));
        if !seen.insert((key, effect)) {
            errors.push(FieldError::duplicate(&field, taint));
        }
        if effect == "NoExecute" && !allow_no_execute {
            errors.push(FieldError::forbidden(
                format!("{field}.effect"),
                "the NoExecute effect is not allowed unless --allow-no-execute-taint-policy is set",
            ));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
