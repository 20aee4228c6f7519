//! Removal and extraction of fields.

use serde::Deserialize;
use serde_json::{Value, json};

use super::fixtures::{list_by, map_of, number, schema, set_of, string};
use crate::field_set::FieldSet;
use crate::field_type::FieldType;
use crate::typed::{extract_items, extract_items_with_keys, remove_items};

/// The object without the fields, with them alone, and with them and the keys of items.
fn check(fields: Value, removed: Value, extracted: Value, with_keys: Value) {
    let schema = schema(json!({
        "number": number(),
        "list": list_by(&["name"], json!({"name": string(), "value": number(), "tags": set_of(string())})),
        "map": map_of(string()),
        "atomic": {"type": "array", "items": string()},
    }));
    let object = json!({
        "number": 1,
        "list": [{"name": "a", "value": 1, "tags": ["x", "y"]}, {"name": "b", "value": 2}],
        "map": {"k": "1", "l": "2"},
        "atomic": ["p", "q"],
    });
    let set = FieldSet::deserialize(&fields).unwrap();
    let field_type = FieldType::of_schema(&schema);
    assert_eq!(remove_items(field_type, &object, &set), removed);
    assert_eq!(extract_items(field_type, &object, &set), extracted);
    assert_eq!(
        extract_items_with_keys(field_type, &object, &set),
        with_keys
    );
}

#[test]
fn fields_are_removed_or_extracted() {
    let (a, b) = (
        json!({"name": "a", "value": 1, "tags": ["x", "y"]}),
        json!({"name": "b", "value": 2}),
    );
    check(
        json!({"f:number": {}, "f:map": {"f:k": {}}, "f:atomic": {}}),
        json!({"list": [a, b], "map": {"l": "2"}}),
        json!({"number": 1, "map": {"k": "1"}, "atomic": ["p", "q"]}),
        json!({"number": 1, "map": {"k": "1"}, "atomic": ["p", "q"]}),
    );
    check(
        json!({"f:list": {"k:{\"name\":\"a\"}": {"f:value": {}, "f:tags": {"v:\"x\"": {}}}}}),
        json!({"number": 1, "list": [{"name": "a", "tags": ["y"]}, b], "map": {"k": "1", "l": "2"}, "atomic": ["p", "q"]}),
        json!({"list": [{"value": 1, "tags": ["x"]}]}),
        json!({"list": [{"name": "a", "value": 1, "tags": ["x"]}]}),
    );
    check(
        json!({"f:list": {"k:{\"name\":\"b\"}": {".": {}, "f:value": {}}}, "f:map": {"f:k": {}, "f:l": {}}}),
        json!({"number": 1, "list": [a], "map": null, "atomic": ["p", "q"]}),
        json!({"list": [{"value": 2}], "map": {"k": "1", "l": "2"}}),
        json!({"list": [{"name": "b", "value": 2}], "map": {"k": "1", "l": "2"}}),
    );
}
