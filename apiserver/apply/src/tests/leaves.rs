//! Scalars, atomic values and objects without schema.

use openapi::Schema;
use serde_json::json;

use super::ManagedObjectHistory;
use super::fixtures::{OneSchema, number, schema, string};
use crate::reset_fields::ResetFields;

fn leaf_schema() -> Schema {
    schema(
        json!({"numeric": number(), "string": string(), "bool": {"type": "boolean"},
        "list": {"type": "array", "items": {"type": "string"}}}),
    )
}

fn check(test: impl Fn(&mut ManagedObjectHistory<'_>)) {
    for converter in [OneSchema::new(leaf_schema()), OneSchema::deduced()] {
        test(&mut ManagedObjectHistory::new(&converter));
    }
}

#[test]
fn an_applier_owns_what_it_last_applied() {
    check(|history| {
        history
            .apply("default", "v1", json!({"numeric": 1, "string": "string"}))
            .apply(
                "default",
                "v1",
                json!({"numeric": 2, "string": "string", "bool": false}),
            )
            .live(
                "v1",
                json!({"numeric": 2, "string": "string", "bool": false}),
            )
            .owned(&[("default", "v1", ".numeric .string .bool")])
            .apply("default", "v2", json!({"string": "new string"}))
            .live("v1", json!({"string": "new string"}))
            .owned(&[("default", "v2", ".string")])
            .apply("default", "v2", json!({}))
            .live("v1", json!({}))
            .owned(&[]);
    });
}

#[test]
fn an_update_owns_what_it_changes() {
    for version in ["v1", "v2"] {
        check(|history| {
            history
                .apply("default", "v1", json!({"numeric": 1, "string": "string"}))
                .update(
                    "controller",
                    version,
                    json!({"numeric": 1, "string": "string", "bool": true}),
                )
                .apply("default", "v1", json!({"numeric": 2, "string": "string"}))
                .live(
                    "v1",
                    json!({"numeric": 2, "string": "string", "bool": true}),
                )
                .owned(&[
                    ("default", "v1", ".numeric .string"),
                    ("controller", version, ".bool"),
                ]);
        });
    }
}

#[test]
fn a_changed_field_of_another_manager_is_a_conflict() {
    for version in ["v1", "v2"] {
        check(|history| {
            let controller_config =
                json!({"numeric": 1, "string": "controller string", "bool": true});
            let applied_config = json!({"numeric": 2, "string": "user string"});
            history
                .apply("default", "v1", json!({"numeric": 1, "string": "string"}))
                .update("controller", version, controller_config.clone())
                .owned(&[
                    ("default", "v1", ".numeric"),
                    ("controller", version, ".string .bool"),
                ])
                .conflicting(
                    "default",
                    "v1",
                    applied_config.clone(),
                    &[("controller", ".string")],
                )
                .live("v1", controller_config)
                .force("default", "v1", applied_config)
                .live(
                    "v1",
                    json!({"numeric": 2, "string": "user string", "bool": true}),
                )
                .owned(&[
                    ("default", "v1", ".numeric .string"),
                    ("controller", version, ".bool"),
                ]);
        });
    }
}

#[test]
fn a_field_that_another_manager_took_is_not_removed() {
    check(|history| {
        history
            .apply("default", "v1", json!({"numeric": 2}))
            .update("controller", "v1", json!({"numeric": 1}))
            .owned(&[("controller", "v1", ".numeric")])
            .apply("default", "v1", json!({}))
            .live("v1", json!({"numeric": 1}))
            .owned(&[("controller", "v1", ".numeric")]);
    });
}

#[test]
fn equal_values_are_shared() {
    check(|history| {
        history
            .apply("one", "v1", json!({"numeric": 1, "list": ["a"]}))
            .apply("two", "v1", json!({"numeric": 1.0, "list": ["a"]}))
            .owned(&[
                ("one", "v1", ".numeric .list"),
                ("two", "v1", ".numeric .list"),
            ])
            .apply("one", "v1", json!({}))
            .live("v1", json!({"numeric": 1, "list": ["a"]}))
            .owned(&[("two", "v1", ".numeric .list")])
            .apply("two", "v1", json!({}))
            .live("v1", json!({}));
    });
}

#[test]
fn an_atomic_list_is_owned_as_a_whole() {
    check(|history| {
        history
            .apply("one", "v1", json!({"list": ["a", "b"]}))
            .conflicting(
                "two",
                "v1",
                json!({"list": ["a", "b", "c"]}),
                &[("one", ".list")],
            )
            .update("two", "v1", json!({"list": ["b"]}))
            .owned(&[("two", "v1", ".list")])
            .update("two", "v1", json!({}))
            .owned(&[]);
    });
}

#[test]
fn an_update_that_changes_nothing_changes_no_owner() {
    check(|history| {
        history
            .apply("one", "v1", json!({"numeric": 1, "list": ["a"]}))
            .update("two", "v1", json!({"numeric": 1.0, "list": ["a"]}))
            .owned(&[("one", "v1", ".numeric .list")]);
    });
}

#[test]
fn reset_fields_are_never_owned() {
    let converter = OneSchema::deduced();
    let body = json!({"numeric": 1, "obj": {"string": "foo", "numeric": 2}});
    let reset = ResetFields::of_paths(&[&["obj"]]);
    let mut history = ManagedObjectHistory::new(&converter);
    history.reset_fields = reset.clone();
    history
        .update("default", "v1", body.clone())
        .live("v1", body.clone())
        .owned(&[("default", "v1", ".numeric")]);
    let mut history = ManagedObjectHistory::new(&converter);
    history.reset_fields = reset;
    history
        .apply("default", "v1", body.clone())
        .live("v1", body)
        .owned(&[("default", "v1", ".numeric")]);
}

#[test]
fn null_is_owned_like_a_value() {
    check(|history| {
        history
            .apply("one", "v1", json!({"string": null}))
            .live("v1", json!({"string": null}))
            .owned(&[("one", "v1", ".string")])
            .conflicting("two", "v1", json!({"string": "a"}), &[("one", ".string")]);
    });
}
