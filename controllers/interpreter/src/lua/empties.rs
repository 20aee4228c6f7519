//! Empty tables of results: Lua does not know an empty list from an empty object.
//!
//! Enters: a result in which all of them are lists, and the objects it was made from.
//! Leaves: the result with `{}` where one of these has `{}`, `[]` where they have `[]`,
//! and without what none of them has. Places in lists all count as one. Source:
//! Karmada's `luavm/lua_convert.go`.

use std::collections::HashSet;

use serde_json::{Map, Value};

/// Between the names of a path; in no name of a Kubernetes object.
const SEPARATOR: char = '\u{1f}';

#[derive(Default)]
struct Known {
    lists: HashSet<String>,
    objects: HashSet<String>,
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
    let mut known = Known::default();
    for reference in references {
        known.learn(reference, &mut String::new());
    }
    if !is_empty_list(&result) {
        known.mend(&mut result, &mut String::new());
    }
    result
}

fn is_empty_list(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}

/// Runs `then` with the path extended by a name.
fn within<T>(path: &mut String, name: &str, then: impl FnOnce(&mut String) -> T) -> T {
    let before = path.len();
    path.push(SEPARATOR);
    path.push_str(name);
    let done = then(path);
    path.truncate(before);
    done
}

impl Known {
    fn learn(&mut self, value: &Value, path: &mut String) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.note(item, path)),
            Value::Object(fields) => {
                for (name, value) in fields {
                    within(path, name, |path| self.note(value, path));
                }
            }
            _ => {}
        }
    }

    fn note(&mut self, value: &Value, path: &mut String) {
        match value {
            Value::Array(items) if items.is_empty() => {
                self.lists.insert(path.clone());
            }
            Value::Object(fields) if fields.is_empty() => {
                self.objects.insert(path.clone());
            }
            other => self.learn(other, path),
        }
    }

    fn mend(&self, value: &mut Value, path: &mut String) {
        match value {
            Value::Array(items) => items.retain_mut(|item| self.keep(item, path)),
            Value::Object(fields) => {
                fields.retain(|name, value| within(path, name, |path| self.keep(value, path)));
            }
            _ => {}
        }
    }

    /// Whether a value stays; where it does, it is made what it should be.
    fn keep(&self, value: &mut Value, path: &mut String) -> bool {
        if !is_empty_list(value) {
            self.mend(value, path);
            return true;
        }
        if self.objects.contains(path) {
            *value = Value::Object(Map::new());
            return true;
        }
        self.lists.contains(path)
    }
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
