//! Completes the stored roles and bindings with what the bootstrap policy grants, at every
//! start. Nothing that an administrator added is removed, but for one role, and objects with the annotation
//! `rbac.authorization.kubernetes.io/autoupdate: "false"` are left alone.
//!
//! Facts: `component-helpers/auth/rbac/reconciliation` of Kubernetes.

use auth::rbac::{PolicyRule, uncovered_rules};
use machinery::Status;
use serde::Deserialize;
use serde_json::{Value, json};

const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// The action for a stored object.
#[derive(Debug, PartialEq)]
pub(super) enum Reconciliation {
    Keep,
    Update(Value),
    /// The binding references another role, which cannot be changed.
    Recreate,
}

/// The roles with exactly the rules of the policy: earlier releases, and servers that register agents
/// as Karmada does, gave them more.
const EXACT_ROLE: &str = "system:karmada:agent-rbac-generator";

/// Compares a stored object with the one of the policy.
pub(super) fn reconcile(mut stored: Value, expected: &Value) -> Result<Reconciliation, Status> {
    if stored["metadata"]["annotations"][AUTOUPDATE] == "false" {
        return Ok(Reconciliation::Keep);
    }
    let before = stored.clone();
    if let Some(role) = expected.get("roleRef") {
        if stored["roleRef"] != *role {
            return Ok(Reconciliation::Recreate);
        }
        add_missing(
            &mut stored["subjects"],
            &expected["subjects"],
            is_same_subject,
        );
    }
    for field in ["labels", "annotations"] {
        for (key, value) in expected["metadata"][field]
            .as_object()
            .into_iter()
            .flatten()
        {
            if stored["metadata"][field].get(key).is_none() {
                stored["metadata"][field][key] = value.clone();
            }
        }
    }
    let selectors = "/aggregationRule/clusterRoleSelectors";
    match expected.pointer(selectors) {
        Some(expected) if stored["aggregationRule"].is_object() => {
            let stored = &mut stored["aggregationRule"]["clusterRoleSelectors"];
            add_missing(stored, expected, |a, b| a == b);
        }
        Some(_) => stored["aggregationRule"] = expected["aggregationRule"].clone(),
        None if expected["metadata"]["name"] == EXACT_ROLE && expected["rules"].is_array() => {
            stored["rules"] = expected["rules"].clone();
        }
        None => add_missing_rules(&mut stored, expected)?,
    }
    Ok(match stored == before {
        true => Reconciliation::Keep,
        false => Reconciliation::Update(stored),
    })
}

fn add_missing(stored: &mut Value, expected: &Value, is_same: fn(&Value, &Value) -> bool) {
    let mut all = stored.as_array().cloned().unwrap_or_default();
    for item in expected.as_array().into_iter().flatten() {
        if !all.iter().any(|existing| is_same(existing, item)) {
            all.push(item.clone());
        }
    }
    if !all.is_empty() {
        *stored = all.into();
    }
}

/// Whether two subjects are the same; an empty group or namespace is an absent one.
fn is_same_subject(a: &Value, b: &Value) -> bool {
    ["kind", "apiGroup", "namespace", "name"].iter().all(|f| {
        let text = |subject: &Value| subject[f].as_str().unwrap_or_default().to_owned();
        text(a) == text(b)
    })
}

fn add_missing_rules(stored: &mut Value, expected: &Value) -> Result<(), Status> {
    let rules = |role: &Value| -> Result<Vec<PolicyRule>, Status> {
        let rules = Option::deserialize(&role["rules"]).map_err(Status::internal)?;
        Ok(rules.unwrap_or_default())
    };
    let mut all = stored["rules"].as_array().cloned().unwrap_or_default();
    let missing = uncovered_rules(&rules(stored)?, &rules(expected)?);
    if missing.is_empty() {
        return Ok(());
    }
    all.extend(missing.iter().map(|rule| json!(rule)));
    stored["rules"] = all.into();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(rules: Value) -> Value {
        json!({"metadata": {"name": "r", "labels": {"l": "1"}, "annotations": {AUTOUPDATE: "true"}},
            "rules": rules})
    }

    fn pods(verbs: &[&str]) -> Value {
        json!({"apiGroups": [""], "resources": ["pods"], "verbs": verbs})
    }

    #[test]
    fn missing_rules_are_added_and_others_are_kept() {
        let expected = role(json!([pods(&["get", "list", "watch"])]));
        let wider_role = role(json!([pods(&["*"]), pods(&["proxy"])]));
        assert_eq!(
            reconcile(wider_role, &expected).unwrap(),
            Reconciliation::Keep
        );
        let partial = role(json!([pods(&["get", "delete"])]));
        let completed = role(json!([pods(&["get", "delete"]), pods(&["list", "watch"])]));
        assert_eq!(
            reconcile(partial.clone(), &expected).unwrap(),
            Reconciliation::Update(completed)
        );
        let mut protected = partial;
        protected["metadata"]["annotations"][AUTOUPDATE] = "false".into();
        assert_eq!(
            reconcile(protected, &expected).unwrap(),
            Reconciliation::Keep
        );
    }

    // proves: AGT-generator
    #[test]
    fn the_role_of_whoever_registers_clusters_is_exact() {
        let role_of_registrars = |rules: Value| {
            let mut role = role(rules);
            role["metadata"]["name"] = EXACT_ROLE.into();
            role
        };
        let expected = role_of_registrars(json!([pods(&["get"])]));
        let wider_role = role_of_registrars(json!([pods(&["get", "delete"])]));
        let update = Reconciliation::Update(expected.clone());
        assert_eq!(reconcile(wider_role, &expected).unwrap(), update);
        let empty = role_of_registrars(json!([]));
        let update = Reconciliation::Update(empty.clone());
        assert_eq!(reconcile(expected, &empty).unwrap(), update);
    }

    #[test]
    fn labels_of_the_administrator_win() {
        let expected = role(json!([]));
        let mut changed = role(json!([]));
        changed["metadata"]["labels"] = json!({"l": "2", "own": "x"});
        assert_eq!(reconcile(changed, &expected).unwrap(), Reconciliation::Keep);
        let mut without_labels = role(json!([]));
        without_labels["metadata"] = json!({"name": "r"});
        assert_eq!(
            reconcile(without_labels, &expected).unwrap(),
            Reconciliation::Update(expected)
        );
    }

    #[test]
    fn aggregated_rules_belong_to_their_controller() {
        let selector = |key: &str| json!({"matchLabels": {key: "true"}});
        let aggregated = |selectors: Value, rules: Value| {
            let mut role = role(rules);
            role["aggregationRule"] = json!({"clusterRoleSelectors": selectors});
            role
        };
        let expected = aggregated(json!([selector("a")]), Value::Null);
        let filled = aggregated(
            json!([selector("b"), selector("a")]),
            json!([pods(&["get"])]),
        );
        assert_eq!(reconcile(filled, &expected).unwrap(), Reconciliation::Keep);
        let other = aggregated(json!([selector("b")]), json!([]));
        let updated = aggregated(json!([selector("b"), selector("a")]), json!([]));
        assert_eq!(
            reconcile(other, &expected).unwrap(),
            Reconciliation::Update(updated)
        );
        let not_aggregated = role(json!([pods(&["get"])]));
        let updated = aggregated(json!([selector("a")]), json!([pods(&["get"])]));
        assert_eq!(
            reconcile(not_aggregated, &expected).unwrap(),
            Reconciliation::Update(updated)
        );
    }

    #[test]
    fn missing_subjects_are_added_and_another_role_replaces_the_binding() {
        let user = |name: &str| json!({"kind": "User", "apiGroup": "g", "name": name});
        let binding = |role: &str, subjects: Value| json!({"metadata": {"name": "b"}, "roleRef": {"name": role}, "subjects": subjects});
        let expected = binding("r", json!([user("a"), user("b")]));
        let stored = binding("r", json!([user("c"), user("a")]));
        let updated = binding("r", json!([user("c"), user("a"), user("b")]));
        assert_eq!(
            reconcile(stored, &expected).unwrap(),
            Reconciliation::Update(updated)
        );
        let with_extra_subject = binding("r", json!([user("b"), user("c"), user("a")]));
        assert_eq!(
            reconcile(with_extra_subject, &expected).unwrap(),
            Reconciliation::Keep
        );
        let other = binding("other", json!([]));
        assert_eq!(
            reconcile(other, &expected).unwrap(),
            Reconciliation::Recreate
        );
    }
}
