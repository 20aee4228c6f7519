//! JSON merge patch (RFC 7386), as `gopkg.in/evanphx/json-patch.v4` does it in kube-apiserver.

use serde_json::Value;

/// Merges `patch` into `doc`: objects are merged field by field, `null` removes a field,
/// any other value replaces it.
///
/// Unlike in the RFC, objects in a list that replaces a missing value or one that is not an
/// object lose their fields with `null`.
pub fn apply_merge_patch(doc: &mut Value, patch: &Value) {
    match (doc, patch) {
        (Value::Object(doc), Value::Object(changes)) => {
            for (field, change) in changes {
                if change.is_null() {
                    doc.remove(field);
                    continue;
                }
                match doc.get_mut(field).filter(|current| !current.is_null()) {
                    Some(current) => apply_merge_patch(current, change),
                    None => {
                        doc.insert(field.clone(), without_null_fields(change));
                    }
                }
            }
        }
        (doc @ Value::Object(_), replacement) => *doc = replacement.clone(),
        (doc, replacement) => *doc = without_null_fields(replacement),
    }
}

/// The value without the fields of objects that are `null`; items of lists stay.
fn without_null_fields(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, value)| !value.is_null());
            let fields = fields.map(|(name, value)| (name.clone(), without_null_fields(value)));
            Value::Object(fields.collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_null_fields).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn examples_of_the_rfc() {
        let table = [
            (json!({"a":"b"}), json!({"a":"c"}), json!({"a":"c"})),
            (json!({"a":"b"}), json!({"b":"c"}), json!({"a":"b","b":"c"})),
            (json!({"a":"b"}), json!({"a":null}), json!({})),
            (
                json!({"a":"b","b":"c"}),
                json!({"a":null}),
                json!({"b":"c"}),
            ),
            (json!({"a":["b"]}), json!({"a":"c"}), json!({"a":"c"})),
            (json!({"a":"c"}), json!({"a":["b"]}), json!({"a":["b"]})),
            (
                json!({"a":{"b":"c"}}),
                json!({"a":{"b":"d","c":null}}),
                json!({"a":{"b":"d"}}),
            ),
            (json!({"a":[{"b":"c"}]}), json!({"a":[1]}), json!({"a":[1]})),
            (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
            (json!({"e":null}), json!({"a":1}), json!({"e":null,"a":1})),
            (json!([1, 2]), json!({"a":"b","c":null}), json!({"a":"b"})),
            (
                json!({}),
                json!({"a":{"bb":{"ccc":null}}}),
                json!({"a":{"bb":{}}}),
            ),
        ];
        for (mut doc, patch, expect) in table {
            apply_merge_patch(&mut doc, &patch);
            assert_eq!(doc, expect, "{patch}");
        }
    }

    #[test]
    fn fields_with_null_in_lists_are_removed_as_in_kubernetes() {
        let list = || json!({"a":[{"b":null,"c":1},null,[{"b":null}]]});
        let removed = || json!({"a":[{"c":1},null,[{}]]});
        let table = [
            (json!({}), list(), removed()),
            (json!({"a":null}), list(), removed()),
            (json!({"a":[]}), list(), removed()),
            (json!({"a":"x"}), list(), removed()),
            (json!({"a":{"x":1}}), list(), list()),
        ];
        for (mut doc, patch, expect) in table {
            apply_merge_patch(&mut doc, &patch);
            assert_eq!(doc, expect, "{patch}");
        }
    }

    pub(crate) fn json_tree() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i16>().prop_map(Value::from),
            "[a-c]{0,2}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-c]", inner, 0..4)
                    .prop_map(|m| Value::Object(m.into_iter().collect())),
            ]
        })
    }

    fn without_null_fields_in_lists(value: Value) -> Value {
        match value {
            Value::Object(fields) => {
                let fields = fields.into_iter();
                let fields =
                    fields.map(|(name, value)| (name, without_null_fields_in_lists(value)));
                Value::Object(fields.collect())
            }
            list @ Value::Array(_) => without_null_fields(&list),
            other => other,
        }
    }

    proptest! {
        #[test]
        fn merging_twice_is_merging_once(doc in json_tree(), patch in json_tree()) {
            // An object that a list replaces keeps nulls that the second merge removes.
            let patch = without_null_fields_in_lists(patch);
            let mut merged = doc;
            apply_merge_patch(&mut merged, &patch);
            let mut merged_twice = merged.clone();
            apply_merge_patch(&mut merged_twice, &patch);
            prop_assert_eq!(merged_twice, merged);
        }

        #[test]
        fn the_empty_patch_changes_no_object(doc in json_tree()) {
            prop_assume!(doc.is_object());
            let mut merged = doc.clone();
            apply_merge_patch(&mut merged, &json!({}));
            prop_assert_eq!(merged, doc);
        }
    }
}
