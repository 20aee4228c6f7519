//! Tables of updates: which errors count when part of the object stays as it was.

use machinery::FieldError;
use serde_json::{Value, json};

use crate::schema::Schema;

fn schema() -> Schema {
    let text = json!({"type": "string", "maxLength": 2});
    let item = json!({"type": "object", "required": ["name", "size"], "properties": {
        "name": {"type": "string"}, "size": {"type": "integer", "maximum": 9}, "free": {"type": "string"}}});
    let properties = json!({
        "a": text, "b": text,
        "atomic": {"type": "array", "items": text},
        "keyed": {"type": "array", "items": item, "maxItems": 3,
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "map": {"type": "object", "additionalProperties": text},
        "inner": {"type": "object", "required": ["x"], "properties": {"x": text, "y": text}},
        "any": {"type": "object", "properties": {"x": {"type": "string"}},
                "anyOf": [{"properties": {"x": {"pattern": "^ok$"}}}]},
    });
    let root = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": properties}}});
    Schema::from_crd(&root).unwrap()
}

fn object(spec: &Value) -> Value {
    json!({"apiVersion": "g.io/v1", "kind": "T", "metadata": {"name": "a"}, "spec": spec})
}

fn check(old: &Value, new: &Value, expected: &[&str]) {
    let errors: Vec<FieldError> = schema().validate_update(&object(new), &object(old));
    let fields: Vec<&str> = errors.iter().map(|e| e.field.as_str()).collect();
    assert_eq!(fields, expected, "{old} -> {new}: {errors:?}");
}

#[test]
fn unchanged_values_may_stay_invalid() {
    let old = json!({"a": "UPPER", "b": "x", "map": {"k": "LONG"}, "inner": {"y": "LONG"}});
    let with = |field: &str, value: Value| {
        let mut new = old.clone();
        new[field] = value;
        new
    };
    check(&old, &old, &[]);
    check(&old, &with("b", json!("y")), &[]);
    check(&old, &with("b", json!("yyy")), &["spec.b"]);
    check(&old, &with("a", json!("CHANGED")), &["spec.a"]);
    check(&old, &with("map", json!({"k": "LONG", "l": "xx"})), &[]);
    check(
        &old,
        &with("map", json!({"k": "LONG", "l": "xxx"})),
        &["spec.map.l"],
    );
    // A missing field is an error of the object, which changes here; that of `y` stays.
    check(
        &old,
        &with("inner", json!({"y": "LONG", "z": 1})),
        &["spec.inner.x"],
    );
}

#[test]
fn items_correspond_by_key_and_only_in_keyed_lists() {
    let atomic = |items: Value| json!({"atomic": items});
    check(
        &atomic(json!(["ONE"])),
        &atomic(json!(["ONE", "ab"])),
        &["spec.atomic[0]"],
    );
    check(&atomic(json!(["ONE"])), &atomic(json!(["ONE"])), &[]);
    let keyed = |items: Value| json!({"keyed": items});
    let old = keyed(json!([{"name": "a", "size": 99}, {"name": "b"}]));
    check(
        &old,
        &keyed(json!([{"name": "b"}, {"name": "a", "size": 99}])),
        &[],
    );
    let changed =
        keyed(json!([{"name": "b", "free": "x"}, {"name": "a", "size": 99, "free": "x"}]));
    check(&old, &changed, &["spec.keyed[0].size"]);
    let added = keyed(json!([{"name": "c", "size": 99}, {"name": "a", "size": 99}]));
    check(&old, &added, &["spec.keyed[0].size"]);
    let long = |names: &[&str]| {
        keyed(
            names
                .iter()
                .map(|n| json!({"name": n, "size": 1}))
                .collect(),
        )
    };
    check(
        &long(&["a", "b", "c", "d"]),
        &long(&["d", "c", "b", "a"]),
        &[],
    );
    check(
        &long(&["a", "b", "c", "d"]),
        &long(&["a", "b", "c", "e"]),
        &["spec.keyed"],
    );
}

#[test]
fn duplicate_items_are_tolerated_if_there_were_any() {
    let set = |items: Value| json!({"set": items, "a": "x"});
    check(&set(json!(["a", "a"])), &set(json!(["b", "b"])), &[]);
    check(
        &set(json!(["a"])),
        &set(json!(["b", "b"])),
        &["spec.set[1]"],
    );
}

#[test]
fn compositions_are_ratcheted_with_their_value() {
    let object_with_any = |x: &str, b: &str| json!({"any": {"x": x}, "b": b});
    check(
        &object_with_any("bad", "x"),
        &object_with_any("bad", "y"),
        &[],
    );
    check(
        &object_with_any("ok", "x"),
        &object_with_any("bad", "x"),
        &["<nil>", "spec.any.x"],
    );
}
