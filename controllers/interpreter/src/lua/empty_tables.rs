//! Corrects the empty tables in the results of scripts, which arrive as empty lists.

use serde_json::{Map, Value};

use crate::empty_values::prune_empty;

/// Whether a result contains an empty list or object.
pub(super) fn has_empty(result: &Value) -> bool {
    match result {
        Value::Array(items) => items.is_empty() || items.iter().any(has_empty),
        Value::Object(fields) => fields.is_empty() || fields.values().any(has_empty),
        _ => false,
    }
}

/// Prunes a result that is an object even when it is empty.
pub(super) fn prune_object(result: Value, references: &[&Value]) -> Value {
    match prune_list(result, references) {
        Value::Array(items) if items.is_empty() => Value::Object(Map::new()),
        other => other,
    }
}

/// Prunes a result that may be a list.
pub(super) fn prune_list(mut result: Value, references: &[&Value]) -> Value {
    prune_empty(&mut result, references);
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // proves: LUA-empty-tables
    #[test]
    fn empty_tables_become_what_the_references_have() {
        let reference = json!({"spec": {"a": {}, "b": [], "both": [{"x": {}}, {"x": []}], "rules": [{"r": []}], "m": {"n": {}}}});
        for (result, references, expected) in [
            (
                json!({"spec": {"a": [], "b": [], "new": [], "rules": [{"r": []}, {"r": [], "s": []}], "m": {"n": []}}}),
                vec![&reference],
                json!({"spec": {"a": {}, "b": [], "rules": [{"r": []}, {"r": []}], "m": {"n": {}}}}),
            ),
            // `{}` in any element of the reference wins over `[]`.
            (
                json!({"spec": {"both": [{"x": []}]}}),
                vec![&reference],
                json!({"spec": {"both": [{"x": {}}]}}),
            ),
            // An object that loses its last field stays.
            (
                json!({"status": {"list": [[], 1], "deep": {"gone": []}}}),
                vec![],
                json!({"status": {"list": [1], "deep": {}}}),
            ),
            (json!([]), vec![&reference], json!({})),
        ] {
            assert_eq!(
                prune_object(result.clone(), &references),
                expected,
                "{result}"
            );
        }
        assert_eq!(prune_list(json!([]), &[]), json!([]));
    }
}
