//! Results of scripts, in which every empty table is a list.
//!
//! Enters: such a result, and the objects it was made from. Leaves: the result with its
//! empty tables settled, an object where it has to be one.

use serde_json::{Map, Value};

use crate::empties::settle;

/// Whether there is something to settle.
pub(super) fn has_empty(result: &Value) -> bool {
    match result {
        Value::Array(items) => items.is_empty() || items.iter().any(has_empty),
        Value::Object(fields) => fields.is_empty() || fields.values().any(has_empty),
        _ => false,
    }
}

/// A result that is an object whatever is in it.
pub(super) fn mended(result: Value, references: &[&Value]) -> Value {
    match mended_list(result, references) {
        Value::Array(items) if items.is_empty() => Value::Object(Map::new()),
        other => other,
    }
}

/// A result that may be a list.
pub(super) fn mended_list(mut result: Value, references: &[&Value]) -> Value {
    settle(&mut result, references);
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // proves: LUA-empty-tables
    #[test]
    fn empty_tables_are_what_they_were() {
        let was = json!({"spec": {"a": {}, "b": [], "both": [{"x": {}}, {"x": []}], "rules": [{"r": []}], "m": {"n": {}}}});
        for (result, references, expected) in [
            (
                json!({"spec": {"a": [], "b": [], "new": [], "rules": [{"r": []}, {"r": [], "s": []}], "m": {"n": []}}}),
                vec![&was],
                json!({"spec": {"a": {}, "b": [], "rules": [{"r": []}, {"r": []}], "m": {"n": {}}}}),
            ),
            // An object somewhere makes it an object.
            (
                json!({"spec": {"both": [{"x": []}]}}),
                vec![&was],
                json!({"spec": {"both": [{"x": {}}]}}),
            ),
            // What loses its last field stays.
            (
                json!({"status": {"list": [[], 1], "deep": {"gone": []}}}),
                vec![],
                json!({"status": {"list": [1], "deep": {}}}),
            ),
            (json!([]), vec![&was], json!({})),
        ] {
            assert_eq!(mended(result.clone(), &references), expected, "{result}");
        }
        assert_eq!(mended_list(json!([]), &[]), json!([]));
    }
}
