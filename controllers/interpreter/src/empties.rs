//! Prunes empty objects and lists from the results of scripts and rules.
//!
//! Lua cannot distinguish an empty object from an empty list, so Karmada looks both up in the objects
//! from which the result was made (the references). Nulls are removed. An empty value stays only where
//! a reference has one at the same path: `{}` where a reference has `{}`, else `[]`. Indices of lists
//! are not part of the path. Source: Karmada's `luavm/lua_convert.go`.

use std::collections::HashSet;

use serde_json::{Map, Value};

/// Separates the field names of a path; no field of a Kubernetes object contains it.
const SEPARATOR: char = '\u{1f}';

/// The paths at which the references have empty values.
#[derive(Default)]
struct Known {
    lists: HashSet<String>,
    objects: HashSet<String>,
}

/// Prunes everything inside a result. The result itself stays even when it becomes empty.
pub(crate) fn settle(result: &mut Value, references: &[&Value]) {
    let mut paths = Known::default();
    for reference in references {
        paths.learn(reference, &mut String::new());
    }
    paths.settle(result, &mut String::new());
}

/// Calls `then` with the path extended by a field name.
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

    fn settle(&self, value: &mut Value, path: &mut String) {
        match value {
            Value::Array(items) => items.retain_mut(|item| self.stays(item, path)),
            Value::Object(fields) => {
                fields.retain(|name, value| within(path, name, |path| self.stays(value, path)));
            }
            _ => {}
        }
    }

    /// Prunes a value; returns whether it stays. An empty value that stays becomes `{}` or `[]`.
    fn stays(&self, value: &mut Value, path: &mut String) -> bool {
        let empty = match value {
            Value::Null => return false,
            Value::Object(fields) => fields.values().all(Value::is_null),
            Value::Array(items) => items.iter().all(Value::is_null),
            _ => return true,
        };
        if !empty {
            self.settle(value, path);
            return true;
        }
        let object = self.objects.contains(path);
        *value = if object {
            Value::Object(Map::new())
        } else {
            Value::Array(Vec::new())
        };
        object || self.lists.contains(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(mut result: Value, references: &[Value], settled: Value) {
        let before = result.to_string();
        let references: Vec<&Value> = references.iter().collect();
        settle(&mut result, &references);
        assert_eq!(result, settled, "{before}");
    }

    // proves: CRD-empty
    #[test]
    fn empty_values_are_pruned_unless_a_reference_has_them() {
        let made = json!({"a": {}, "b": [], "c": null, "d": {"e": {"f": null}}, "g": 0, "h": ""});
        check(made.clone(), &[], json!({"d": {}, "g": 0, "h": ""}));
        check(
            made,
            &[json!({"a": [], "b": []}), json!({"a": {}, "d": {"e": {}}})],
            json!({"a": {}, "b": [], "d": {"e": {}}, "g": 0, "h": ""}),
        );
    }

    // proves: CRD-empty
    #[test]
    fn indices_are_not_part_of_the_path() {
        let volumes =
            |empty: Value| json!({"v": [{"name": "a"}, {"name": "b", "emptyDir": empty}]});
        check(
            volumes(json!([])),
            &[volumes(json!({}))],
            volumes(json!({})),
        );
        check(json!({"v": [[], {}, 1, null]}), &[], json!({"v": [1]}));
        check(
            json!({"v": [{}]}),
            &[json!({"v": [{}, {}]})],
            json!({"v": [{}]}),
        );
    }

    #[test]
    fn the_result_itself_may_be_empty() {
        check(json!({"a": null}), &[], json!({}));
        check(json!([{}]), &[], json!([]));
    }

    #[test]
    fn a_reference_that_only_holds_nulls_is_not_empty() {
        let template = json!({"template": {"metadata": {"creationTimestamp": null}, "x": 1}});
        check(template.clone(), &[template], json!({"template": {"x": 1}}));
    }
}
