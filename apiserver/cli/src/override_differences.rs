//! Compares the override policies of two revisions of a template, policy by policy and value by
//! value. Pure.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::field_differences::{FieldDifference, HIDDEN, MAX_DIFFERENCES, field_path};

/// The values of a policy that are neither objects nor arrays, or empty, by their paths.
type ValuesByPath = BTreeMap<String, Value>;

/// The values that differ between the override policies of two revisions, each with its policy. The
/// values that a policy writes are hidden if it may select Secrets.
pub(crate) fn override_differences(before: &Value, after: &Value) -> Vec<String> {
    let (before, after) = (policies_by_name(before), policies_by_name(after));
    let mut lines = Vec::new();
    for name in union_of_keys(&before, &after) {
        let (before, after) = (before.get(name).copied(), after.get(name).copied());
        let change = match (before, after) {
            (None, _) => " (added)",
            (_, None) => " (removed)",
            _ => "",
        };
        let mut policies = [before, after].into_iter().flatten();
        let hides_values = policies.any(may_select_secrets);
        for mut difference in leaf_differences(before, after) {
            if hides_values && is_written_value(&difference.path) {
                let hidden = |value: &mut Value| *value = HIDDEN.into();
                difference.before.as_mut().map(hidden);
                difference.after.as_mut().map(hidden);
            }
            lines.push(format!("{name}{change}: {difference}"));
        }
    }
    let further = lines.len().saturating_sub(MAX_DIFFERENCES);
    if further > 0 {
        lines.truncate(MAX_DIFFERENCES);
        lines.push(format!("override policies: {further} further differences"));
    }
    lines
}

/// Whether an override policy selects a kind of secrets, or every object.
pub(crate) fn may_select_secrets(policy: &Value) -> bool {
    let selectors = policy["spec"]["resourceSelectors"].as_array();
    let mut selectors = selectors.into_iter().flatten().peekable();
    selectors.peek().is_none()
        || selectors.any(|selector| selector["kind"].as_str().is_some_and(is_secret))
}

/// Whether objects of a kind have secret values.
pub(crate) fn is_secret(kind: &str) -> bool {
    kind.ends_with("Secret")
}

/// Whether a path is in a field `value` of an overrider.
fn is_written_value(path: &str) -> bool {
    path.split(['.', '[']).any(|segment| segment == "value")
}

fn policies_by_name(policies: &Value) -> BTreeMap<String, &Value> {
    let policies = policies.as_array().into_iter().flatten();
    let named = policies.map(|policy| {
        let text = |field: &str| policy["metadata"][field].as_str().unwrap_or_default();
        let name = match (text("namespace"), text("name")) {
            ("", name) => format!("ClusterOverridePolicy {name}"),
            (namespace, name) => format!("OverridePolicy {namespace}/{name}"),
        };
        (name, policy)
    });
    named.collect()
}

fn union_of_keys<'a, V>(
    before: &'a BTreeMap<String, V>,
    after: &'a BTreeMap<String, V>,
) -> Vec<&'a str> {
    let added = after.keys().filter(|key| !before.contains_key(*key));
    let mut keys: Vec<&str> = before.keys().chain(added).map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

/// The values that differ between two versions of a policy, each on its own also where one version is
/// absent or an array has grown.
fn leaf_differences(before: Option<&Value>, after: Option<&Value>) -> Vec<FieldDifference> {
    let leaves_of = |policy: Option<&Value>| {
        let mut leaves = ValuesByPath::new();
        if let Some(policy) = policy {
            collect_leaves("spec", &policy["spec"], &mut leaves);
        }
        leaves
    };
    let (before, after) = (leaves_of(before), leaves_of(after));
    let paths = union_of_keys(&before, &after).into_iter();
    let changed = paths.filter(|path| before.get(*path) != after.get(*path));
    let difference = |path: &str| FieldDifference {
        path: path.to_owned(),
        before: before.get(path).cloned(),
        after: after.get(path).cloned(),
    };
    changed.map(difference).collect()
}

fn collect_leaves(path: &str, value: &Value, leaves: &mut ValuesByPath) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (key, field) in fields {
                collect_leaves(&field_path(path, key), field, leaves);
            }
        }
        Value::Array(elements) if !elements.is_empty() => {
            for (index, element) in elements.iter().enumerate() {
                collect_leaves(&format!("{path}[{index}]"), element, leaves);
            }
        }
        leaf => {
            leaves.insert(path.to_owned(), leaf.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn policy(name: &str, kind: &str, writes: &[&str]) -> Value {
        let plaintext = writes
            .iter()
            .map(|value| json!({"path": "/a", "value": value}));
        let plaintext: Vec<Value> = plaintext.collect();
        let (namespace, name) = name.split_once('/').unwrap_or(("", name));
        let mut metadata = json!({"name": name});
        if !namespace.is_empty() {
            metadata["namespace"] = namespace.into();
        }
        json!({"metadata": metadata, "spec": {"resourceSelectors": [{"kind": kind}],
            "overrideRules": [{"overriders": {"plaintext": plaintext}}]}})
    }

    // proves: CON-approve, CLI-plan-rollout, MCP-secrets
    #[test]
    fn what_changes_in_override_policies_is_shown() {
        let rule = "spec.overrideRules[0].overriders.plaintext";
        let web = |writes: &[&str]| policy("shop/web", "Deployment", writes);
        let path = |index: usize| format!("OverridePolicy shop/web: {rule}[{index}]");
        for (before, after, expected) in [
            (json!(null), json!([]), vec![]),
            (json!([web(&["1"])]), json!([web(&["1"])]), vec![]),
            (
                json!([web(&["1"])]),
                json!([web(&["2"])]),
                vec![format!("{}.value: \"1\" -> \"2\"", path(0))],
            ),
            (
                json!([web(&["1"])]),
                json!([web(&["1", "2"])]),
                vec![
                    format!("{}.path: (absent) -> \"/a\"", path(1)),
                    format!("{}.value: (absent) -> \"2\"", path(1)),
                ],
            ),
            (
                json!([]),
                json!([policy("all", "Deployment", &["1"])]),
                vec![
                    format!("ClusterOverridePolicy all (added): {rule}[0].path: (absent) -> \"/a\""),
                    format!("ClusterOverridePolicy all (added): {rule}[0].value: (absent) -> \"1\""),
                    "ClusterOverridePolicy all (added): spec.resourceSelectors[0].kind: (absent) -> \"Deployment\"".to_owned(),
                ],
            ),
            (
                json!([{"metadata": {"name": "all"}, "spec": {"resourceSelectors": [{"kind": "Deployment"}]}}]),
                json!([]),
                vec!["ClusterOverridePolicy all (removed): spec.resourceSelectors[0].kind: \"Deployment\" -> (absent)".to_owned()],
            ),
            (
                json!([policy("all", "Secret", &["hidden"])]),
                json!([policy("all", "Secret", &["secret"])]),
                vec![format!("ClusterOverridePolicy all: {rule}[0].value: \"(hidden)\" -> \"(hidden)\"")],
            ),
        ] {
            assert_eq!(override_differences(&before, &after), expected);
        }
    }

    // proves: CON-approve, CLI-plan-rollout
    #[test]
    fn of_many_differences_the_number_is_shown() {
        let values: Vec<String> = (0..30).map(|number| number.to_string()).collect();
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        let before = json!([policy("all", "Deployment", &["x"; 30])]);
        let after = json!([policy("all", "Deployment", &values)]);
        let lines = override_differences(&before, &after);
        assert_eq!(lines.len(), MAX_DIFFERENCES + 1);
        let last = lines.last().map(String::as_str);
        assert_eq!(last, Some("override policies: 10 further differences"));
    }
}
