//! Prunes empty objects and lists from the results of scripts and rules.
//!
//! Lua cannot distinguish an empty object from an empty list, so Karmada looks both up in the objects
//! from which the result was made (the references). Nulls are removed. An empty value stays only where
//! a reference has one at the same path: `{}` where a reference has `{}`, else `[]`. Indices of lists
//! are not part of the path. Source: Karmada's `luavm/lua_convert.go`.

use std::collections::HashSet;

use serde_json::{Map, Value};

/// Separates the field names of a path; no field of a Kubernetes object contains it.
const PATH_SEPARATOR: char = '\u{1f}';

/// The paths at which the references have empty values.
#[derive(Default)]
struct ReferenceEmptyValuePaths {
    lists: HashSet<String>,
    objects: HashSet<String>,
}

/// Prunes everything inside a result. The result itself stays even when it becomes empty.
pub(crate) fn prune_empty(result: &mut Value, references: &[&Value]) {
    let mut paths = ReferenceEmptyValuePaths::default();
    for reference in references {
        paths.collect(reference, &mut String::new());
    }
    paths.prune(result, &mut String::new());
}

/// Calls `then` with the path extended by a field name.
fn with_field_path<T>(path: &mut String, name: &str, then: impl FnOnce(&mut String) -> T) -> T {
    let before = path.len();
    path.push(PATH_SEPARATOR);
    path.push_str(name);
    let done = then(path);
    path.truncate(before);
    done
}

impl ReferenceEmptyValuePaths {
    fn collect(&mut self, value: &Value, path: &mut String) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.record(item, path)),
            Value::Object(fields) => {
                for (name, value) in fields {
                    with_field_path(path, name, |path| self.record(value, path));
                }
            }
            _ => {}
        }
    }

    fn record(&mut self, value: &Value, path: &mut String) {
        match value {
            Value::Array(items) if items.is_empty() => {
                self.lists.insert(path.clone());
            }
            Value::Object(fields) if fields.is_empty() => {
                self.objects.insert(path.clone());
            }
            other => self.collect(other, path),
        }
    }

    fn prune(&self, value: &mut Value, path: &mut String) {
        match value {
            Value::Array(items) => items.retain_mut(|item| self.prune_value(item, path)),
            Value::Object(fields) => {
                fields.retain(|name, value| {
                    with_field_path(path, name, |path| self.prune_value(value, path))
                });
            }
            _ => {}
        }
    }

    /// Prunes a value; returns whether it stays. An empty value that stays becomes `{}` or `[]`.
    fn prune_value(&self, value: &mut Value, path: &mut String) -> bool {
        let empty = match value {
            Value::Null => return false,
            Value::Object(fields) => fields.values().all(Value::is_null),
            Value::Array(items) => items.iter().all(Value::is_null),
            _ => return true,
        };
        if !empty {
            self.prune(value, path);
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

    fn check_pruned(mut result: Value, references: &[Value], settled: Value) {
        let before = result.to_string();
        let references: Vec<&Value> = references.iter().collect();
        prune_empty(&mut result, &references);
        assert_eq!(result, settled, "{before}");
    }

    // proves: CRD-empty
    #[test]
    fn empty_values_are_pruned_unless_a_reference_has_them() {
        let object = json!({"a": {}, "b": [], "c": null, "d": {"e": {"f": null}}, "g": 0, "h": ""});
        check_pruned(object.clone(), &[], json!({"d": {}, "g": 0, "h": ""}));
        check_pruned(
            object,
            &[json!({"a": [], "b": []}), json!({"a": {}, "d": {"e": {}}})],
            json!({"a": {}, "b": [], "d": {"e": {}}, "g": 0, "h": ""}),
        );
    }

    // proves: CRD-empty
    #[test]
    fn indices_are_not_part_of_the_path() {
        let volumes =
            |empty: Value| json!({"v": [{"name": "a"}, {"name": "b", "emptyDir": empty}]});
        check_pruned(
            volumes(json!([])),
            &[volumes(json!({}))],
            volumes(json!({})),
        );
        check_pruned(json!({"v": [[], {}, 1, null]}), &[], json!({"v": [1]}));
        check_pruned(
            json!({"v": [{}]}),
            &[json!({"v": [{}, {}]})],
            json!({"v": [{}]}),
        );
    }

    #[test]
    fn the_result_itself_may_be_empty() {
        check_pruned(json!({"a": null}), &[], json!({}));
        check_pruned(json!([{}]), &[], json!([]));
    }

    #[test]
    fn a_reference_that_only_holds_nulls_is_not_empty() {
        let template = json!({"template": {"metadata": {"creationTimestamp": null}, "x": 1}});
        check_pruned(template.clone(), &[template], json!({"template": {"x": 1}}));
    }
}
