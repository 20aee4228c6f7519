//! Objects and lists that become atomic or granular while they have managers.

use serde_json::{Value, json};

use super::ManagedObjectHistory;
use super::fixtures::{OneSchema, number, schema, set_of, string};

fn with_struct(map_type: &str) -> OneSchema {
    OneSchema::new(schema(json!({"struct": {
        "type": "object",
        "x-kubernetes-map-type": map_type,
        "properties": {"numeric": number(), "string": string()},
    }})))
}

fn numeric(value: i64) -> Value {
    json!({"struct": {"numeric": value}})
}

fn text(value: &str) -> Value {
    json!({"struct": {"string": value}})
}

#[test]
fn owners_of_fields_own_the_object_that_became_atomic() {
    let (granular, atomic) = (with_struct("granular"), with_struct("atomic"));
    let mut history = ManagedObjectHistory::new(&granular);
    history.apply("one", "v1", numeric(1));
    history.converter = &atomic;
    history
        .conflicting("two", "v1", text("string"), &[("one", ".struct")])
        .force("two", "v1", text("string"))
        .live("v1", text("string"))
        .owned(&[("two", "v1", ".struct")]);

    let mut history = ManagedObjectHistory::new(&granular);
    history
        .apply("one", "v1", numeric(1))
        .force("two", "v1", numeric(2))
        .owned(&[("two", "v1", ".struct.numeric")]);
    history.converter = &atomic;
    history
        .conflicting("three", "v1", text("string"), &[("two", ".struct")])
        .force("two", "v1", text("string"))
        .live("v1", text("string"))
        .owned(&[("two", "v1", ".struct")]);
}

#[test]
fn fields_of_an_object_that_became_granular_are_free() {
    let (granular, atomic) = (with_struct("granular"), with_struct("atomic"));
    let mut history = ManagedObjectHistory::new(&atomic);
    history
        .apply(
            "one",
            "v1",
            json!({"struct": {"numeric": 1, "string": "a"}}),
        )
        .conflicting("two", "v1", text("b"), &[("one", ".struct")]);
    history.converter = &granular;
    history
        .apply("two", "v1", text("b"))
        .live("v1", json!({"struct": {"numeric": 1, "string": "b"}}))
        .owned(&[("one", "v1", ".struct"), ("two", "v1", ".struct.string")]);
}

#[test]
fn owners_of_items_own_the_list_that_became_atomic() {
    let granular = OneSchema::new(schema(json!({"list": set_of(string())})));
    let atomic = OneSchema::new(schema(
        json!({"list": {"type": "array", "items": string()}}),
    ));
    let mut history = ManagedObjectHistory::new(&granular);
    history
        .apply("one", "v1", json!({"list": ["a"]}))
        .apply("two", "v1", json!({"list": ["b"]}));
    history.converter = &atomic;
    history
        .update("three", "v1", json!({"list": ["a", "b"]}))
        .owned(&[("one", "v1", ".list"), ("two", "v1", ".list")]);
}
