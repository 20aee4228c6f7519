//! The merged value of a live one and a configuration, above all the order of lists.

use openapi::Schema;
use serde_json::{Value, json};

use super::fixtures::{list_by, map_of, number, object, schema, set_of, string};
use crate::field_type::FieldType;
use crate::typed::{DuplicateItems, merge, validate};

fn check(schema: &Schema, field: &str, triplets: &[(Value, Value, Value)]) {
    let field_type = FieldType::of_schema(schema);
    for (live, config, expected) in triplets {
        let (live, config) = (json!({field: live}), json!({field: config}));
        validate(field_type, &live, DuplicateItems::Allowed).unwrap();
        validate(field_type, &config, DuplicateItems::Forbidden).unwrap();
        let merged = merge(field_type, &live, &config).unwrap();
        assert_eq!(merged, json!({field: expected}), "{live} {config}");
    }
}

/// Lists of one-letter items.
fn letters(text: &str) -> Value {
    text.chars().map(|c| json!(c.to_string())).collect()
}

#[test]
fn set_items_follow_the_configuration_and_live_items_stay_behind_theirs() {
    let schema = schema(json!({"set": set_of(string())}));
    for (live, config, expected) in [
        ("abc", "ab", "abc"),
        ("ab", "abc", "abc"),
        ("abc", "", "abc"),
        ("", "abc", "abc"),
        ("ab", "ba", "ba"),
        ("abc", "def", "abcdef"),
        ("abc", "cdef", "abcdef"),
        ("abcgf", "cdef", "abcgdef"),
        ("abc", "defxyz", "abcdefxyz"),
        ("cdef", "ace", "acdef"),
        ("abcxyz", "def", "abcxyzdef"),
        ("abcxyz", "defxyz", "abcdefxyz"),
        ("cagf", "cfag", "cfag"),
        ("abcd", "defa", "bcdefa"),
        ("cdefghij", "2h3e4kl", "cdfg2hij3e4kl"),
        ("abcdefghij", "1b2h3e4kl", "a1bcdfg2hij3e4kl"),
        // The live list has items twice.
        ("abb", "c", "abbc"),
        ("abb", "b", "ab"),
        ("abb", "a", "abb"),
        ("abcdec", "1b2ed", "a1bc2ecd"),
        ("abcdec", "1b2ced", "a1b2ced"),
        ("aabb", "bcd", "aabcd"),
        ("aabb", "", "aabb"),
        ("cagfca", "cfag", "cfag"),
    ] {
        let triplet = (letters(live), letters(config), letters(expected));
        check(&schema, "set", &[triplet]);
    }
}

#[test]
fn sets_contain_numbers_and_booleans() {
    let schema = schema(json!({"n": set_of(number()), "b": set_of(json!({"type": "boolean"}))}));
    check(
        &schema,
        "n",
        &[
            (json!([1, 2, 3.5]), json!([1, 2, 3]), json!([1, 2, 3.5, 3])),
            (
                json!([1, 2, 3.5, 1, 2]),
                json!([1, 2, 3]),
                json!([1, 2, 3.5, 3]),
            ),
        ],
    );
    check(
        &schema,
        "b",
        &[
            (json!([true]), json!([false]), json!([true, false])),
            (
                json!([true, false, true]),
                json!([false]),
                json!([true, false, true]),
            ),
            (
                json!([true, false, true]),
                json!([true]),
                json!([true, false]),
            ),
        ],
    );
}

#[test]
fn keyed_items_are_merged() {
    let schema = schema(json!({"list": list_by(&["key", "id"], json!({
        "key": string(), "id": number(), "value": map_of(string()),
        "bv": {"type": "boolean"}, "nv": number()}))}));
    let item = |key: &str, id: i64| json!({"key": key, "id": id});
    let (a, b, c) = (item("a", 1), item("b", 2), item("c", 3));
    check(
        &schema,
        "list",
        &[
            (json!([a]), json!([item("a", 2)]), json!([a, item("a", 2)])),
            (
                json!([a, item("b", 1)]),
                json!([a, item("a", 2)]),
                json!([a, item("b", 1), item("a", 2)]),
            ),
            (json!([b]), json!([a, b, c]), json!([a, b, c])),
            (json!([a, b, c]), json!([c, b]), json!([a, c, b])),
            (json!([a, b, c]), json!([c, a]), json!([b, c, a])),
            (
                json!([{"key": "a", "id": 1, "bv": true, "value": {"x": "1"}}]),
                json!([{"key": "a", "id": 1, "nv": 1, "value": {"y": "2"}}]),
                json!([{"key": "a", "id": 1, "bv": true, "nv": 1, "value": {"x": "1", "y": "2"}}]),
            ),
            // Which live item would be merged is ambiguous.
            (
                json!([{"key": "a", "id": 1, "bv": true}, b, {"key": "a", "id": 1, "nv": 2}]),
                json!([{"key": "a", "id": 1, "nv": 3}, c, b]),
                json!([{"key": "a", "id": 1, "nv": 3}, c, b]),
            ),
            (
                json!([{"key": "a", "id": 1, "nv": 1}, {"key": "a", "id": 1, "nv": 2}]),
                json!([]),
                json!([{"key": "a", "id": 1, "nv": 1}, {"key": "a", "id": 1, "nv": 2}]),
            ),
        ],
    );
}

#[test]
fn null_and_empty_differ() {
    let (empty_list, empty) = (json!([]), json!({}));
    let schema = schema(json!({
        "map": map_of(string()),
        "struct": object(json!({"value": string()})),
        "list": {"type": "array", "items": string()},
        "any": {"x-kubernetes-preserve-unknown-fields": true},
    }));
    for field in ["map", "struct"] {
        for (live, config) in [
            (json!(null), empty.clone()),
            (empty.clone(), json!(null)),
            (empty.clone(), empty.clone()),
        ] {
            check(&schema, field, &[(live, config.clone(), config)]);
        }
    }
    for (live, config) in [
        (json!(null), empty_list.clone()),
        (empty_list.clone(), json!(null)),
        (json!(["a", "a"]), json!(null)),
        (json!(["a", "b"]), empty_list),
        (json!(["a", "a", "a"]), json!(["a", "a"])),
    ] {
        check(&schema, "list", &[(live, config.clone(), config)]);
    }
    for (live, config) in [
        (empty.clone(), json!(1)),
        (json!(1), empty.clone()),
        (json!(null), empty),
        (json!({"a": 1}), json!([1])),
        (json!([1]), json!({"a": 1})),
    ] {
        check(&schema, "any", &[(live, config.clone(), config)]);
    }
}

#[test]
fn errors_name_the_field() {
    let schema = schema(json!({
        "list": list_by(&["name"], json!({"name": string(), "value": number()})),
        "set": set_of(string()),
        "struct": object(json!({"value": string()})),
    }));
    let field_type = FieldType::of_schema(&schema);
    for (config, message) in [
        (
            json!({"list": [{"name": "a"}, {"name": "a"}]}),
            r#".list: duplicate entries for key [name="a"]"#,
        ),
        (
            json!({"set": ["x", "x"]}),
            r#".set: duplicate entries for key [="x"]"#,
        ),
        (
            json!({"list": [{"name": "a", "value": "b"}]}),
            r#".list[name="a"].value: expected numeric (int or float), got string"#,
        ),
        (
            json!({"struct": {"other": 1}}),
            ".struct.other: field not declared in schema",
        ),
        (json!({"set": {}}), ".set: expected list, got &{map[]}"),
        (json!({"struct": []}), ".struct: expected map, got &{[]}"),
        (
            json!({"list": [{"value": 1}]}),
            r#".list: element 0: associative list with keys has an element that omits all key fields ["name"] (and doesn't have default values for any key fields)"#,
        ),
        (
            json!({"list": [null], "set": [["a"]]}),
            "errors:\n  .list: element 0: associative list with keys may not have a null element\n  .set: element 0: not supported: associative list with lists as elements",
        ),
    ] {
        let errors = validate(field_type, &config, DuplicateItems::Forbidden).unwrap_err();
        assert_eq!(errors.to_string(), message);
    }
    let duplicates = json!({"set": ["x", "x"], "list": [{"name": "a"}, {"name": "a"}]});
    validate(field_type, &duplicates, DuplicateItems::Allowed).unwrap();
}
