//! What becomes of empty objects and lists in what a rule has made.
//!
//! Enters: a result, and the objects it was made of. Leaves: the result without nulls
//! and without what is empty, except where one of those objects is empty too. Source:
//! `pkg/resourceinterpreter/customized/declarative/luavm/lua_convert.go` of Karmada,
//! whose scripts cannot tell an empty object from an empty list.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// Paths of fields, without the indices of lists.
#[derive(Default)]
struct Empty {
    objects: BTreeSet<String>,
    lists: BTreeSet<String>,
}

/// A character that no field's name has.
const SEPARATOR: char = '\0';

fn inside(path: &str, field: &str) -> String {
    format!("{path}{SEPARATOR}{field}")
}

impl Empty {
    fn note(&mut self, path: &str, value: &Value) {
        match value {
            Value::Object(fields) => {
                for (field, value) in fields {
                    self.note_child(inside(path, field), value);
                }
            }
            Value::Array(items) => {
                for item in items {
                    self.note_child(path.to_owned(), item);
                }
            }
            _ => {}
        }
    }

    fn note_child(&mut self, path: String, value: &Value) {
        match value {
            Value::Object(fields) if fields.is_empty() => {
                self.objects.insert(path);
            }
            Value::Array(items) if items.is_empty() => {
                self.lists.insert(path);
            }
            _ => self.note(&path, value),
        }
    }

    /// Settles what is inside a value.
    fn settle(&self, path: &str, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.retain(|field, value| self.stays(&inside(path, field), value));
            }
            Value::Array(items) => items.retain_mut(|item| self.stays(path, item)),
            _ => {}
        }
    }

    fn stays(&self, path: &str, value: &mut Value) -> bool {
        let empty = match value {
            Value::Null => return false,
            Value::Object(fields) => fields.values().all(Value::is_null),
            Value::Array(items) => items.iter().all(Value::is_null),
            _ => return true,
        };
        if !empty {
            self.settle(path, value);
            return true;
        }
        *value = if self.objects.contains(path) {
            Value::Object(Map::new())
        } else {
            Value::Array(Vec::new())
        };
        value.is_object() || self.lists.contains(path)
    }
}

pub(super) fn settle(result: &mut Value, references: &[&Value]) {
    let mut empty = Empty::default();
    for reference in references {
        empty.note("", reference);
    }
    empty.settle("", result);
}

/// Leaves out what is empty, and what is `idle`, at any depth; nothing if nothing is
/// left.
pub(super) fn without(value: Value, idle: fn(&Value) -> bool) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Object(fields) => {
            let kept = fields
                .into_iter()
                .filter_map(|(field, value)| Some((field, without(value, idle)?)));
            let kept: Map<String, Value> = kept.collect();
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        Value::Array(items) => {
            let kept = items.into_iter().filter_map(|item| without(item, idle));
            let kept: Vec<Value> = kept.collect();
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        value => (!idle(&value)).then_some(value),
    }
}

/// What a job that has not begun says.
pub(super) fn idle(value: &Value) -> bool {
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

    fn check(mut result: Value, references: &[Value], settled: Value) {
        let said = result.to_string();
        let references: Vec<&Value> = references.iter().collect();
        settle(&mut result, &references);
        assert_eq!(result, settled, "{said}");
    }

    // proves: CRD-empty
    #[test]
    fn what_is_empty_goes_unless_a_reference_has_it_empty() {
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
    fn indices_do_not_count() {
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
    fn a_whole_may_be_empty() {
        check(json!({"a": null}), &[], json!({}));
        check(json!([{}]), &[], json!([]));
    }

    #[test]
    fn a_reference_that_only_holds_nulls_is_not_empty() {
        let template = json!({"template": {"metadata": {"creationTimestamp": null}, "x": 1}});
        check(template.clone(), &[template], json!({"template": {"x": 1}}));
    }

    #[test]
    fn what_is_idle_goes_at_any_depth() {
        let status = json!({"a": 0, "b": "", "c": "0s", "d": false, "e": {"f": {"g": 0}}, "h": [{"i": 0, "j": 1}]});
        assert_eq!(
            without(status, idle),
            Some(json!({"d": false, "h": [{"j": 1}]}))
        );
        assert_eq!(without(json!({"a": {"b": 0}}), idle), None);
    }
}
