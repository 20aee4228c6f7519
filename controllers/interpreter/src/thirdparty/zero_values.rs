//! Prunes empty values, zeros and empty strings: what the status of a job contains before it starts.

use serde_json::{Map, Value};

/// Removes empty values, and those for which `idle` holds, at any depth; `None` if nothing is left.
pub(super) fn prune_values(value: Value, idle: fn(&Value) -> bool) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Object(fields) => {
            let pruned = fields
                .into_iter()
                .filter_map(|(field, value)| Some((field, prune_values(value, idle)?)));
            let pruned: Map<String, Value> = pruned.collect();
            (!pruned.is_empty()).then_some(Value::Object(pruned))
        }
        Value::Array(items) => {
            let pruned = items
                .into_iter()
                .filter_map(|item| prune_values(item, idle));
            let pruned: Vec<Value> = pruned.collect();
            (!pruned.is_empty()).then_some(Value::Array(pruned))
        }
        value => (!idle(&value)).then_some(value),
    }
}

/// Whether a value is a zero, an empty string or a zero duration.
pub(super) fn is_zero_value(value: &Value) -> bool {
    match value {
        Value::Number(n) => n.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty() || text == "0s",
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn zero_values_are_pruned_at_any_depth() {
        let status = json!({"a": 0, "b": "", "c": "0s", "d": false, "e": {"f": {"g": 0}}, "h": [{"i": 0, "j": 1}]});
        assert_eq!(
            prune_values(status, is_zero_value),
            Some(json!({"d": false, "h": [{"j": 1}]}))
        );
        assert_eq!(prune_values(json!({"a": {"b": 0}}), is_zero_value), None);
    }
}
