//! Keyed lists, maps and objects in each other, and what is removed from them.

use serde_json::{Value, json};

use super::ManagedObjectHistory;
use super::fixtures::{OneSchema, list_by, map_of, nested_schema, number, schema, set_of, string};

/// Applies two configurations as the same manager.
fn check(first: Value, second: Value, owned: &str) {
    let converter = OneSchema::new(nested_schema());
    ManagedObjectHistory::new(&converter)
        .apply("default", "v1", first)
        .apply("default", "v1", second.clone())
        .live("v1", second)
        .owned(&[("default", "v1", owned)]);
}

#[test]
fn a_second_configuration_replaces_the_first() {
    check(
        json!({"listOfLists": [{"name": "a", "value": ["b", "c"]}]}),
        json!({"listOfLists": [{"name": "a", "value": ["a", "c"]}]}),
        r#".listOfLists[name="a"] .listOfLists[name="a"].name .listOfLists[name="a"].value[="a"] .listOfLists[name="a"].value[="c"]"#,
    );
    check(
        json!({"listOfLists": [{"name": "a", "value": ["b", "c"]}]}),
        json!({"listOfLists": [{"name": "b", "value": ["a"]}]}),
        r#".listOfLists[name="b"] .listOfLists[name="b"].name .listOfLists[name="b"].value[="a"]"#,
    );
    check(
        json!({"listOfMaps": [{"name": "a", "value": {"b": "x", "c": "y"}}]}),
        json!({"listOfMaps": [{"name": "a", "value": {"a": "x", "c": "z"}}]}),
        r#".listOfMaps[name="a"] .listOfMaps[name="a"].name .listOfMaps[name="a"].value.a .listOfMaps[name="a"].value.c"#,
    );
    check(
        json!({"mapOfLists": {"a": ["b", "c"]}}),
        json!({"mapOfLists": {"a": ["a", "c"]}}),
        r#".mapOfLists.a .mapOfLists.a[="a"] .mapOfLists.a[="c"]"#,
    );
    check(
        json!({"mapOfLists": {"a": ["b", "c"]}}),
        json!({"mapOfLists": {"b": ["a"]}}),
        r#".mapOfLists.b .mapOfLists.b[="a"]"#,
    );
    check(
        json!({"mapOfMaps": {"a": {"b": "x", "c": "y"}}}),
        json!({"mapOfMaps": {"b": {"a": "x", "c": "z"}}}),
        ".mapOfMaps.b .mapOfMaps.b.a .mapOfMaps.b.c",
    );
    check(
        json!({"mapOfMapsRecursive": {"a": {"b": {"c": null}}}}),
        json!({"mapOfMapsRecursive": {"a": {"d": {"c": null}}}}),
        ".mapOfMapsRecursive.a .mapOfMapsRecursive.a.d .mapOfMapsRecursive.a.d.c",
    );
    check(
        json!({"struct": {"name": "a"}}),
        json!({"struct": null}),
        ".struct",
    );
}

#[test]
fn what_nobody_owns_any_more_is_removed() {
    let converter = OneSchema::new(nested_schema());
    ManagedObjectHistory::new(&converter)
        .apply(
            "default",
            "v1",
            json!({"struct": {"name": "a", "value": 1}}),
        )
        .apply("default", "v1", json!({}))
        .live("v1", json!({}))
        .owned(&[]);
    // A field that a controller added to the object remains, however the applier omits its own fields.
    for omitted in [json!({}), json!({"struct": {}}), json!({"struct": null})] {
        ManagedObjectHistory::new(&converter)
            .apply("default", "v1", json!({"struct": {"name": "a"}}))
            .update(
                "controller",
                "v1",
                json!({"struct": {"name": "a", "value": 1}}),
            )
            .apply("default", "v1", omitted)
            .live("v1", json!({"struct": {"value": 1}}));
    }
    ManagedObjectHistory::new(&converter)
        .apply("default", "v1", json!({"struct": {"name": "a"}}))
        .update(
            "controller",
            "v1",
            json!({"struct": {"name": "b", "value": 1}}),
        )
        .apply("default", "v1", json!({"struct": null}))
        .live("v1", json!({"struct": {"name": "b", "value": 1}}));
}

/// An applier owns the empty object that it applies, but not the empty list.
#[test]
fn objects_that_an_apply_empties_become_null_and_lists_are_removed() {
    let converter = OneSchema::new(schema(json!({
        "struct": {"type": "object", "properties": {"name": string()}},
        "map": map_of(string()),
        "set": set_of(string()),
        "list": list_by(&["name"], json!({"name": string(), "value": number()})),
    })));
    let null = |field: &str| json!({field: null});
    for (field, filled, empty, emptied) in [
        ("struct", json!({"name": "a"}), json!({}), null("struct")),
        ("map", json!({"a": "b"}), json!({}), null("map")),
        ("set", json!(["a"]), json!([]), json!({})),
        ("list", json!([{"name": "a"}]), json!([]), json!({})),
    ] {
        ManagedObjectHistory::new(&converter)
            .apply("one", "v1", json!({field: filled}))
            .apply("one", "v1", json!({field: empty}))
            .live("v1", emptied);
        // A list that was empty before remains as it was applied.
        ManagedObjectHistory::new(&converter)
            .apply("one", "v1", json!({field: empty}))
            .apply("one", "v1", json!({field: empty}))
            .live("v1", json!({field: empty}));
        // The fields of others stay in it.
        ManagedObjectHistory::new(&converter)
            .apply("one", "v1", json!({field: filled}))
            .apply("two", "v1", json!({field: filled}))
            .apply("one", "v1", json!({field: empty}))
            .live("v1", json!({field: filled}));
    }
}

#[test]
fn items_of_others_stay() {
    let item = |name: &str| json!({"name": name});
    let converter = OneSchema::new(schema(
        json!({"list": list_by(&["name"], json!({"name": string(), "value": number()}))}),
    ));
    ManagedObjectHistory::new(&converter)
        .apply(
            "one",
            "v1",
            json!({"list": [item("a"), item("b"), item("c")]}),
        )
        .apply("two", "v2", json!({"list": [item("c"), item("d")]}))
        .apply("one", "v3", json!({"list": [item("a")]}))
        .live("v1", json!({"list": [item("a"), item("c"), item("d")]}))
        .owned(&[
            ("one", "v3", r#".list[name="a"] .list[name="a"].name"#),
            (
                "two",
                "v2",
                r#".list[name="c"] .list[name="c"].name .list[name="d"] .list[name="d"].name"#,
            ),
        ]);
    let a = |value: i64| json!({"list": [{"name": "a", "value": value}]});
    let owned = r#".list[name="a"] .list[name="a"].name .list[name="a"].value"#;
    ManagedObjectHistory::new(&converter)
        .apply("one", "v1", a(0))
        .apply("two", "v2", a(0))
        .owned(&[("one", "v1", owned), ("two", "v2", owned)]);
    ManagedObjectHistory::new(&converter)
        .apply("one", "v1", a(0))
        .conflicting("two", "v2", a(1), &[("one", r#".list[name="a"].value"#)])
        .live("v1", a(0))
        .owned(&[("one", "v1", owned)]);
}

#[test]
fn items_stay_for_what_others_own_in_them() {
    let item = |name: &str, value: Value| json!({"name": name, "value": value});
    let a = json!({"name": "a"});
    let converter = OneSchema::new(nested_schema());
    let owned_by_one = (
        "one",
        "v3",
        r#".listOfLists[name="a"] .listOfLists[name="a"].name"#,
    );
    ManagedObjectHistory::new(&converter)
        .apply("one", "v1", json!({"listOfLists": [a, item("b", json!(["c"]))]}))
        .apply("two", "v2", json!({"listOfLists": [item("b", json!(["d"]))]}))
        .update("controller", "v2", json!({"listOfLists": [a, item("b", json!(["c", "d", "e"]))]}))
        .apply("one", "v3", json!({"listOfLists": [a]}))
        .live("v1", json!({"listOfLists": [a, item("b", json!(["d", "e"]))]}))
        .owned(&[
            owned_by_one,
            ("two", "v2", r#".listOfLists[name="b"] .listOfLists[name="b"].name .listOfLists[name="b"].value[="d"]"#),
            ("controller", "v2", r#".listOfLists[name="b"].value[="e"]"#),
        ]);
    // An item that an update merely adds to goes with the applier that owned it.
    ManagedObjectHistory::new(&converter)
        .apply("one", "v1", json!({"listOfLists": [a, item("b", json!(["c"]))]}))
        .apply("two", "v2", json!({"listOfLists": [item("a", json!(["b"]))]}))
        .update("controller", "v2", json!({"listOfLists": [item("a", json!(["b"])), item("b", json!(["c", "d"]))]}))
        .apply("one", "v3", json!({"listOfLists": [a]}))
        .live("v1", json!({"listOfLists": [item("a", json!(["b"]))]}))
        .owned(&[
            owned_by_one,
            ("two", "v2", r#".listOfLists[name="a"] .listOfLists[name="a"].name .listOfLists[name="a"].value[="b"]"#),
        ]);
}

#[test]
fn maps_without_schema_are_granular() {
    let converter = OneSchema::deduced();
    ManagedObjectHistory::new(&converter)
        .apply("one", "v1", json!({"a": null, "b": {"c": {"d": null}}}))
        .apply("two", "v2", json!({"a": null, "c": {"d": null}}))
        .update("controller-one", "v3", json!({"a": null, "b": {"c": {"d": null}}, "c": {"d": {"e": null}}}))
        .update("controller-two", "v2", json!({"a": null, "b": {"c": {"d": null}}, "c": {"d": {"e": {"f": null}}}}))
        .update("controller-one", "v3", json!({"a": null, "b": {"c": {"d": {"e": null}}}, "c": {"d": {"e": {"f": {"g": null}}}}}))
        .apply("one", "v4", json!({}))
        .live("v1", json!({"a": null, "c": {"d": {"e": {"f": {"g": null}}}}}));
}

#[test]
fn defaults_of_keys_identify_items() {
    let ports = list_by(
        &["port", "protocol"],
        json!({"port": number(), "protocol": {"type": "string", "default": "TCP"}, "name": string()}),
    );
    let converter = OneSchema::new(schema(json!({"ports": ports})));
    ManagedObjectHistory::new(&converter)
        .apply("default", "v1", json!({"ports": [{"port": 80}, {"port": 80, "protocol": "UDP"}]}))
        .owned(&[("default", "v1", concat!(
            r#".ports[port=80,protocol="TCP"] .ports[port=80,protocol="TCP"].port "#,
            r#".ports[port=80,protocol="UDP"] .ports[port=80,protocol="UDP"].port .ports[port=80,protocol="UDP"].protocol"#,
        ))]);
    ManagedObjectHistory::new(&converter)
        .apply(
            "one",
            "v1",
            json!({"ports": [{"port": 80, "protocol": "TCP", "name": "foo"}]}),
        )
        .conflicting(
            "two",
            "v1",
            json!({"ports": [{"port": 80, "name": "bar"}]}),
            &[("one", r#".ports[port=80,protocol="TCP"].name"#)],
        );
    ManagedObjectHistory::new(&converter)
        .apply(
            "default",
            "v1",
            json!({"ports": [{"protocol": "TCP", "name": "A"}]}),
        )
        .owned(&[(
            "default",
            "v1",
            r#".ports[protocol="TCP"] .ports[protocol="TCP"].name .ports[protocol="TCP"].protocol"#,
        )]);
}

#[test]
fn defaults_identify_nested_items_without_keys() {
    let sentences = list_by(
        &["page", "line"],
        json!({"page": {"type": "number", "default": 2.0}, "line": {"type": "number", "default": 3}, "text": string()}),
    );
    let book = list_by(
        &["chapter", "section"],
        json!({"chapter": {"type": "number", "default": 1}, "section": {"type": "string", "default": "A"}, "sentences": sentences}),
    );
    let converter = OneSchema::new(schema(json!({"book": book, "tags": set_of(string())})));
    let sentence = r#".book[chapter=1,section="A"].sentences[line=3,page=2]"#;
    ManagedObjectHistory::new(&converter)
        .apply(
            "default",
            "v1",
            json!({"book": [{"sentences": [{"text": "blah"}]}]}),
        )
        .owned(&[(
            "default",
            "v1",
            &format!(r#".book[chapter=1,section="A"] {sentence} {sentence}.text"#),
        )])
        .apply(
            "default",
            "v1",
            json!({"book": [{"sentences": [{"text": "blah", "page": 2}]}]}),
        )
        .live(
            "v1",
            json!({"book": [{"sentences": [{"text": "blah", "page": 2}]}]}),
        )
        .owned(&[(
            "default",
            "v1",
            &format!(r#".book[chapter=1,section="A"] {sentence} {sentence}.text {sentence}.page"#),
        )]);
}
