//! Generates structural schemas, objects that fit them or nearly do, and sequences of requests by
//! several managers. A seed stands for one schema and its sequences.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Map, Value, json};

use crate::differential::case::CaseStep;

const SEQUENCES: usize = 5;
const SCHEMA_DEPTH: u32 = 3;
const FIELD_NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// The seed's test input.
#[derive(Clone, Debug)]
pub(crate) struct GeneratedTheme {
    pub(crate) schema: Value,
    pub(crate) sequences: Vec<Vec<CaseStep>>,
}

/// The theme of a seed; `plural` is the name of its resource in the requests.
pub(crate) fn generate(seed: u64, plural: &str) -> GeneratedTheme {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let spec = sample(&object_schema(SCHEMA_DEPTH), &mut runner);
    let steps = sequence(&spec, plural);
    let sequences = (0..SEQUENCES).map(|_| sample(&steps, &mut runner));
    GeneratedTheme {
        sequences: sequences.collect(),
        schema: json!({"type": "object", "properties": {"spec": spec}}),
    }
}

fn sample<T: std::fmt::Debug>(strategy: &BoxedStrategy<T>, runner: &mut TestRunner) -> T {
    strategy.new_tree(runner).unwrap().current()
}

fn leaf_schema() -> BoxedStrategy<Value> {
    select(vec![
        json!({"type": "string"}),
        json!({"type": "string", "maxLength": 3}),
        json!({"type": "string", "minLength": 2}),
        json!({"type": "string", "enum": ["x", "y", "z"]}),
        json!({"type": "string", "pattern": "^[a-c]*$"}),
        json!({"type": "string", "default": "d"}),
        json!({"type": "string", "nullable": true}),
        json!({"type": "string", "nullable": true, "default": "n"}),
        json!({"type": "string", "format": "date"}),
        json!({"type": "integer"}),
        json!({"type": "integer", "minimum": 0, "maximum": 5}),
        json!({"type": "integer", "default": 3}),
        json!({"type": "integer", "format": "int32", "multipleOf": 2}),
        json!({"type": "number"}),
        json!({"type": "number", "minimum": 0, "exclusiveMinimum": true}),
        json!({"type": "boolean"}),
        json!({"type": "boolean", "default": true}),
        json!({"x-kubernetes-int-or-string": true}),
        json!({"x-kubernetes-preserve-unknown-fields": true}),
    ])
    .boxed()
}

/// The items of a set.
fn scalar_schema() -> BoxedStrategy<Value> {
    select(vec![
        json!({"type": "string"}),
        json!({"type": "string", "maxLength": 2}),
        json!({"type": "integer"}),
    ])
    .boxed()
}

fn any_schema(depth: u32) -> BoxedStrategy<Value> {
    if depth == 0 {
        return leaf_schema();
    }
    let values = any_schema(depth - 1);
    let map = values.prop_map(|of| json!({"type": "object", "additionalProperties": of}));
    prop_oneof![
        4 => leaf_schema(),
        3 => object_schema(depth - 1),
        3 => list_schema(depth - 1),
        1 => map,
    ]
    .boxed()
}

fn object_schema(depth: u32) -> BoxedStrategy<Value> {
    let fields = btree_map(select(&FIELD_NAMES[..]), any_schema(depth), 1..4);
    let required = subsequence(FIELD_NAMES.to_vec(), 0..2);
    let extension = prop_oneof![
        6 => Just(None),
        1 => Just(Some(("x-kubernetes-preserve-unknown-fields", json!(true)))),
        1 => Just(Some(("x-kubernetes-map-type", json!("atomic")))),
        1 => Just(Some(("nullable", json!(true)))),
        1 => Just(Some(("maxProperties", json!(2)))),
        1 => Just(Some(("default", json!({})))),
    ];
    (fields, required, extension)
        .prop_map(|(fields, mut required, extension)| {
            required.retain(|name| fields.contains_key(name));
            let mut schema = json!({"type": "object", "properties": fields});
            if let Some((name, value)) = extension {
                // An empty default would lack what is required.
                if name == "default" {
                    required.clear();
                }
                schema[name] = value;
            }
            if !required.is_empty() {
                schema["required"] = json!(required);
            }
            schema
        })
        .boxed()
}

fn list_schema(depth: u32) -> BoxedStrategy<Value> {
    let plain = any_schema(depth).prop_map(|of| json!({"type": "array", "items": of}));
    let atomic = any_schema(depth)
        .prop_map(|of| json!({"type": "array", "items": of, "x-kubernetes-list-type": "atomic"}));
    let set = scalar_schema()
        .prop_map(|of| json!({"type": "array", "items": of, "x-kubernetes-list-type": "set"}));
    let keyed = btree_map(select(&FIELD_NAMES[..]), any_schema(depth), 0..3).prop_map(|fields| {
        let mut item = json!({"type": "object", "properties": fields, "required": ["k"]});
        item["properties"]["k"] = json!({"type": "string"});
        json!({"type": "array", "items": item, "x-kubernetes-list-type": "map",
               "x-kubernetes-list-map-keys": ["k"]})
    });
    prop_oneof![1 => plain, 1 => atomic, 2 => set, 4 => keyed].boxed()
}

/// Values that fit a schema; most of the time, if some are `odd`.
fn value_of(schema: &Value, odd: bool) -> BoxedStrategy<Value> {
    let fitting = fitting_value(schema, odd);
    if !odd {
        return fitting;
    }
    let odd = select(vec![
        json!(null),
        json!("odd"),
        json!(7),
        json!({}),
        json!([]),
    ]);
    let has_format = schema.get("format").is_some();
    let odd = odd.prop_map(move |value| match value {
        // Kubernetes takes a list for a string with a format, and then loses the managers.
        Value::Array(_) if has_format => json!({}),
        other => other,
    });
    let nulls = if schema["nullable"] == true { 6 } else { 1 };
    prop_oneof![40 => fitting, nulls => Just(Value::Null), 1 => odd].boxed()
}

fn fitting_value(schema: &Value, odd: bool) -> BoxedStrategy<Value> {
    if let Some(enum_values) = schema["enum"].as_array() {
        return select(enum_values.clone()).boxed();
    }
    let text = || "[a-d]{0,4}".prop_map(Value::from);
    let integer = || (-1_i64..9).prop_map(Value::from);
    match schema["type"].as_str() {
        Some("string") if schema["format"] == "date" => Just(json!("2026-01-02")).boxed(),
        Some("string") => text().boxed(),
        Some("integer") => integer().boxed(),
        // With a fraction: Kubernetes takes 3.0 for a change of the 3 that it stores for it.
        Some("number") => (-2_i32..9).prop_map(|n| json!(f64::from(n) + 0.5)).boxed(),
        Some("boolean") => any::<bool>().prop_map(Value::from).boxed(),
        Some("array") => vec(value_of(&schema["items"], odd), 0..4)
            .prop_map(Value::from)
            .boxed(),
        Some("object") => object_of(schema, odd),
        _ if schema["x-kubernetes-int-or-string"] == true => prop_oneof![text(), integer()].boxed(),
        _ => prop_oneof![
            text(),
            integer(),
            Just(json!({"p": {"q": 1}})),
            Just(json!([1, "x"]))
        ]
        .boxed(),
    }
}

fn object_of(schema: &Value, odd: bool) -> BoxedStrategy<Value> {
    if schema["additionalProperties"].is_object() {
        let values = value_of(&schema["additionalProperties"], odd);
        let fields = btree_map("[a-c]", values, 0..3);
        return fields
            .prop_map(|fields| Value::Object(fields.into_iter().collect()))
            .boxed();
    }
    let properties = schema["properties"].as_object().cloned();
    let mut fields = Just(Map::new()).boxed();
    for (name, of) in properties.unwrap_or_default() {
        let required = schema["required"].as_array();
        let is_required = required.is_some_and(|names| names.contains(&json!(name)));
        let chance = if is_required { 0.97 } else { 0.6 };
        fields = (fields, weighted(chance, value_of(&of, odd)))
            .prop_map(move |(mut fields, value)| {
                if let Some(value) = value {
                    fields.insert(name.clone(), value);
                }
                fields
            })
            .boxed();
    }
    if !odd {
        return fields.prop_map(Value::Object).boxed();
    }
    (fields, weighted(0.04, Just(json!(1))))
        .prop_map(|(mut fields, unknown)| {
            if let Some(value) = unknown {
                fields.insert("unknown".to_owned(), value);
            }
            Value::Object(fields)
        })
        .boxed()
}

/// Requests on an object, the first of which creates it unless its value is refused.
fn sequence(spec: &Value, plural: &str) -> BoxedStrategy<Vec<CaseStep>> {
    let path = format!("v1/{plural}");
    let object_of = |odd: bool| {
        let specs = value_of(spec, odd);
        specs.prop_map(|spec| json!({ "spec": spec })).boxed()
    };
    let object = object_of(true);
    // `apply.yaml` has the cases of values of a wrong type.
    let configuration = object_of(false);
    let step = |title: String, body: Value| -> CaseStep { BTreeMap::from([(title, body)]) };
    let with = |title: String, bodies: &BoxedStrategy<Value>| {
        let bodies = bodies.clone();
        bodies
            .prop_map(move |body| step(title.clone(), body))
            .boxed()
    };
    let at = format!("{path}/x");
    let create = |object: BoxedStrategy<Value>| {
        let title = format!("POST {path}");
        object.prop_map(move |mut body| {
            body["metadata"] = json!({"name": "x"});
            step(title.clone(), body)
        })
    };
    let update = {
        let title = format!("PUT {at}");
        object.clone().prop_map(move |mut body| {
            body["metadata"] = json!({"resourceVersion": "{rv}"});
            step(title.clone(), body)
        })
    };
    let apply = |manager: &str| with(format!("APPLY:{manager} {at}"), &configuration);
    let first = prop_oneof![create(object.clone()), apply("one")];
    let next = prop_oneof![
        1 => create(object.clone()),
        3 => update,
        4 => with(format!("MERGE {at}"), &object),
        3 => apply("one"),
        3 => apply("two"),
        1 => apply("three"),
        2 => apply("one!"),
        2 => apply("two!"),
        1 => Just(step(format!("DELETE {at}"), Value::Null)),
    ];
    (first, vec(next, 2..8))
        .prop_map(|(first, mut steps)| {
            steps.insert(0, first);
            steps
        })
        .boxed()
}
