//! Sets, and lists whose items are not unique.

use openapi::Schema;
use serde_json::json;

use super::ManagedObjectHistory;
use super::fixtures::{OneSchema, list_by, number, schema, set_of, string};

fn set_schema() -> Schema {
    schema(json!({"list": set_of(string())}))
}

#[test]
fn items_of_a_set_have_owners() {
    for version in ["v1", "v2"] {
        let converter = OneSchema::new(set_schema());
        ManagedObjectHistory::new(&converter)
            .apply("default", "v1", json!({"list": ["a", "c"]}))
            .update("controller", version, json!({"list": ["a", "b", "c", "d"]}))
            .apply(
                "default",
                "v1",
                json!({"list": ["a", "aprime", "c", "cprime"]}),
            )
            .live(
                "v1",
                json!({"list": ["a", "b", "aprime", "c", "d", "cprime"]}),
            )
            .owned(&[
                (
                    "default",
                    "v1",
                    r#".list[="a"] .list[="aprime"] .list[="c"] .list[="cprime"]"#,
                ),
                ("controller", version, r#".list[="b"] .list[="d"]"#),
            ])
            .apply("default", "v1", json!({"list": ["a", "b", "c"]}))
            .live("v1", json!({"list": ["a", "b", "c", "d"]}))
            .owned(&[
                ("default", "v1", r#".list[="a"] .list[="b"] .list[="c"]"#),
                ("controller", version, r#".list[="b"] .list[="d"]"#),
            ]);
    }
}

#[test]
fn an_apply_orders_the_items_that_it_lists() {
    let converter = OneSchema::new(set_schema());
    let all = r#".list[="a"] .list[="b"] .list[="c"] .list[="d"]"#;
    ManagedObjectHistory::new(&converter)
        .apply("default", "v1", json!({"list": ["a", "b", "c", "d"]}))
        .apply("default", "v1", json!({"list": ["a", "d", "c", "b"]}))
        .live("v1", json!({"list": ["a", "d", "c", "b"]}))
        .owned(&[("default", "v1", all)])
        .update("controller", "v1", json!({"list": ["d", "a", "c", "b"]}))
        .owned(&[("default", "v1", all)])
        .apply("default", "v2", json!({"list": ["a", "b", "c", "d"]}))
        .live("v1", json!({"list": ["a", "b", "c", "d"]}))
        .owned(&[("default", "v2", all)])
        .apply("default", "v1", json!({"list": ["a", "c", "e"]}))
        .live("v1", json!({"list": ["a", "c", "e"]}))
        .owned(&[("default", "v1", r#".list[="a"] .list[="c"] .list[="e"]"#)]);
}

fn duplicates_schema() -> Schema {
    schema(json!({
        "list": list_by(&["name"], json!({"name": string(), "value1": number(), "value2": number()})),
        "unrelated": number(),
        "set": set_of(number()),
    }))
}

fn check(test: impl Fn(&mut ManagedObjectHistory<'_>)) {
    let converter = OneSchema::new(duplicates_schema());
    test(&mut ManagedObjectHistory::new(&converter));
}

#[test]
fn repeated_set_items_are_owned_once() {
    check(|history| {
        history
            .update("one", "v1", json!({"set": [1, 1, 3, 4]}))
            .owned(&[("one", "v1", ".set .set[=1] .set[=3] .set[=4]")])
            .update("two", "v1", json!({"set": [1, 3, 4]}))
            .owned(&[
                ("one", "v1", ".set .set[=3] .set[=4]"),
                ("two", "v1", ".set[=1]"),
            ])
            .update("three", "v1", json!({"set": [1, 1, 3, 4]}))
            .owned(&[
                ("one", "v1", ".set .set[=3] .set[=4]"),
                ("three", "v1", ".set[=1]"),
            ]);
    });
}

#[test]
fn an_apply_unites_repeated_items_that_it_lists() {
    check(|history| {
        history
            .update("updater", "v1", json!({"set": [1, 1, 3, 4]}))
            .conflicting(
                "applier",
                "v1",
                json!({"set": [1]}),
                &[("updater", ".set[=1]")],
            )
            .force("applier", "v1", json!({"set": [1]}))
            .live("v1", json!({"set": [1, 3, 4]}))
            .owned(&[
                ("updater", "v1", ".set .set[=3] .set[=4]"),
                ("applier", "v1", ".set[=1]"),
            ]);
    });
    check(|history| {
        history
            .update("updater", "v1", json!({"set": [1, 1, 3, 4]}))
            .apply("applier", "v1", json!({"set": [5]}))
            .live("v1", json!({"set": [1, 1, 3, 4, 5]}))
            .owned(&[
                ("updater", "v1", ".set .set[=1] .set[=3] .set[=4]"),
                ("applier", "v1", ".set[=5]"),
            ]);
    });
}

#[test]
fn fields_of_repeated_items_have_no_owner() {
    let b = r#".list[name="b"] .list[name="b"].name .list[name="b"].value1"#;
    let first = json!({"list": [{"name": "a", "value1": 1}, {"name": "a", "value1": 2}, {"name": "b", "value1": 3}]});
    for second in [
        json!({"list": [{"name": "a", "value1": 1}, {"name": "a", "value1": 3}, {"name": "b", "value1": 3}]}),
        json!({"list": [{"name": "a", "value1": 1}, {"name": "a", "value1": 2, "value2": 3}, {"name": "b", "value1": 3}]}),
    ] {
        check(|history| {
            history
                .update("one", "v1", first.clone())
                .owned(&[("one", "v1", &format!(r#".list .list[name="a"] {b}"#))])
                .update("two", "v1", second.clone())
                .owned(&[
                    ("one", "v1", &format!(".list {b}")),
                    ("two", "v1", r#".list[name="a"]"#),
                ]);
        });
    }
    check(|history| {
        history
            .update(
                "one",
                "v1",
                json!({"list": [{"name": "a", "value1": 1}, {"name": "b", "value1": 3}]}),
            )
            .update("two", "v1", first.clone())
            .owned(&[
                ("one", "v1", &format!(".list {b}")),
                ("two", "v1", r#".list[name="a"]"#),
            ]);
    });
}

#[test]
fn an_apply_beside_repeated_items_keeps_them() {
    let repeated = json!({"list": [{"name": "a", "value1": 1}, {"name": "a", "value1": 2}]});
    check(|history| {
        history
            .update("one", "v1", repeated.clone())
            .apply("two", "v1", json!({"list": [{"name": "b", "value1": 3}], "unrelated": 5}))
            .live("v1", json!({"unrelated": 5, "list": [
                {"name": "a", "value1": 1}, {"name": "a", "value1": 2}, {"name": "b", "value1": 3}]}))
            .owned(&[
                ("one", "v1", r#".list .list[name="a"]"#),
                ("two", "v1", r#".list[name="b"] .list[name="b"].name .list[name="b"].value1 .unrelated"#),
            ])
            .force("two", "v1", json!({"list": [{"name": "a", "value2": 7}]}))
            .live("v1", json!({"list": [{"name": "a", "value2": 7}]}))
            .owned(&[
                ("one", "v1", ".list"),
                ("two", "v1", r#".list[name="a"] .list[name="a"].name .list[name="a"].value2"#),
            ]);
    });
}
