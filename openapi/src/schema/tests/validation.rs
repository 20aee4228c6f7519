//! Tables of values and the errors that they have, with the texts of the API server.

use serde_json::{Value, json};

use crate::schema::Schema;

fn check(schema: &Schema, table: &[(Value, &[&str])]) {
    for (value, expect) in table {
        let errors: Vec<String> = schema
            .validate(value)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(errors, *expect, "{value}");
    }
}

#[test]
fn errors_have_the_texts_of_the_api_server() {
    let schema = Schema::from_crd(&json!({"type": "object", "properties": {
    "spec": {"type": "object", "required": ["must"], "properties": {
        "must": {"type": "string"},
        "n": {"type": "integer", "minimum": 1, "maximum": 5},
        "i": {"type": "integer", "format": "int32"},
        "e": {"type": "string", "enum": ["a", "b"]},
        "p": {"type": "string", "pattern": "^x+$", "minLength": 2, "maxLength": 3},
        "a": {"type": "array", "minItems": 1, "maxItems": 2, "items": {
            "type": "object", "properties": {"b": {"type": "boolean"}}}},
        "s": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "k": {"type": "array", "x-kubernetes-list-type": "map",
              "x-kubernetes-list-map-keys": ["name"],
              "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
        "t": {"type": "string", "format": "date-time"},
        "f": {"type": "number", "format": "double"},
        "u": {"type": "string", "format": "unknown"},
        "ios": {"x-kubernetes-int-or-string": true},
        "nul": {"type": "string", "nullable": true},
        "any": {"anyOf": [{"required": ["x"]}, {"required": ["y"]}],
                "type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }}}}))
    .unwrap();
    let with = |name: &str, value: Value| json!({"spec": {"must": "", name: value}});
    check(
        &schema,
        &[
            (json!({}), &[]),
            (json!({"spec": {}}), &["spec.must: Required value"]),
            (
                with("n", json!("3")),
                &[
                    "spec.n: Invalid value: \"string\": spec.n in body must be of type integer: \"string\"",
                ],
            ),
            (
                with("n", json!(0)),
                &["spec.n: Invalid value: 0: spec.n in body should be greater than or equal to 1"],
            ),
            (
                with("n", json!(9)),
                &["spec.n: Invalid value: 9: spec.n in body should be less than or equal to 5"],
            ),
            (
                with("i", json!(3_000_000_000_u64)),
                &[
                    "<nil>: Invalid value: \"\": Checked value must be of type integer with format int32 in spec.i",
                ],
            ),
            (
                with("e", json!("c")),
                &["spec.e: Unsupported value: \"c\": supported values: \"a\", \"b\""],
            ),
            (
                with("p", json!("y")),
                &["spec.p: Invalid value: \"y\": spec.p in body should be at least 2 chars long"],
            ),
            (
                with("p", json!("xxxx")),
                &["spec.p: Too long: may not be more than 3 bytes"],
            ),
            (
                with("a", json!([])),
                &["spec.a: Invalid value: 0: spec.a in body should have at least 1 items"],
            ),
            (
                with("a", json!([{}, {}, {}])),
                &["spec.a: Too many: 3: must have at most 2 items"],
            ),
            (
                with("a", json!([{"b": 1}])),
                &[
                    "spec.a[0].b: Invalid value: \"integer\": spec.a[0].b in body must be of type boolean: \"integer\"",
                ],
            ),
            (
                with("s", json!(["x", "x"])),
                &["spec.s[1]: Duplicate value: \"x\""],
            ),
            (
                with("k", json!([{"name": "x"}, {"name": "x"}])),
                &["spec.k[1]: Duplicate value: {\"name\":\"x\"}"],
            ),
            (
                with("t", json!("noon")),
                &[
                    "spec.t: Invalid value: \"noon\": spec.t in body must be of type date-time: \"noon\"",
                ],
            ),
            (
                with("t", json!(5)),
                &[
                    "spec.t: Invalid value: \"int64\": spec.t in body must be of type date-time: \"int64\"",
                ],
            ),
            (with("t", json!([])), &[]),
            (
                with("i", json!({})),
                &["spec.i: Invalid value: \"\": spec.i in body must be of type int32: \"\""],
            ),
            (
                with("i", json!("3")),
                &[
                    "spec.i: Invalid value: \"string\": spec.i in body must be of type integer: \"string\"",
                ],
            ),
            (
                with("f", json!(true)),
                &["spec.f: Invalid value: \"\": spec.f in body must be of type double: \"\""],
            ),
            (
                with("u", json!(true)),
                &[
                    "spec.u: Invalid value: \"boolean\": spec.u in body must be of type string: \"boolean\"",
                ],
            ),
            (with("ios", json!("50%")), &[]),
            (with("ios", json!(5)), &[]),
            (
                with("ios", json!(true)),
                &[
                    "spec.ios: Invalid value: \"boolean\": spec.ios in body must be of type integer,string: \"boolean\"",
                ],
            ),
            (with("nul", Value::Null), &[]),
            (
                with("e", Value::Null),
                &[
                    "spec.e: Invalid value: \"null\": spec.e in body must be of type string: \"null\"",
                ],
            ),
            (with("any", json!({"y": 1})), &[]),
            (
                with("any", json!({})),
                &[
                    "<nil>: Invalid value: \"\": \"spec.any\" must validate at least one schema (anyOf)",
                    "spec.any.x: Required value",
                ],
            ),
        ],
    );
}

#[test]
fn depth_is_bounded() {
    let schema = crate::catalog()
        .definition_schema("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
        .unwrap();
    check(
        &schema,
        &[(json!({"labels": {}, "creationTimestamp": null}), &[])],
    );
    let recursive = Schema::from_crd(&json!({"type": "object", "properties": {
        "a": {"x-kubernetes-preserve-unknown-fields": true}}}))
    .unwrap();
    let mut deep = json!(1);
    for _ in 0..1000 {
        deep = json!([deep]);
    }
    check(&recursive, &[(json!({"a": deep}), &[])]);
}

#[test]
fn list_types_name_map_keys_and_items_without_keys() {
    let set =
        json!({"type": "array", "items": {"type": "integer"}, "x-kubernetes-list-type": "set"});
    let keyed = json!({"type": "array", "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object",
        "required": ["k"], "properties": {"k": {"type": "string"}}}});
    let schema = Schema::from_crd(&json!({"type": "object", "properties": {
        "m": {"type": "object", "additionalProperties": set}, "l": keyed}}))
    .unwrap();
    for (value, expected) in [
        (json!({"m": {"a": [1, 1]}}), "m[a][1]: Duplicate value: 1"),
        (
            json!({"l": [1]}),
            "l[0]: Invalid value: 1: must be an object for an array of list-type map",
        ),
    ] {
        let errors = schema.validate(&value);
        assert_eq!(errors.last().unwrap().to_string(), expected);
    }
}
