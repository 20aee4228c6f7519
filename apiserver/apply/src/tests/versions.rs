//! Managers that write in different versions of a kind.

use serde_json::{Value, json};

use super::ManagedObjectHistory;
use super::fixtures::{OneSchema, RenamedFields, object, schema, set_of, string};

const VERSIONS: [&str; 3] = ["v1", "v2", "v3"];

fn renamed() -> RenamedFields {
    RenamedFields::new(&VERSIONS, |version| {
        let mut fields = json!({"name": string()});
        fields[format!("scalar_{version}")] = string();
        fields[format!("complex_{version}")] = object(json!({"name": string()}));
        json!({"struct": object(fields)})
    })
}

fn with_field(field: &str, version: &str, value: Value) -> Value {
    let mut fields = json!({"name": "a"});
    fields[format!("{field}_{version}")] = value;
    json!({"struct": fields})
}

fn only_field(field: &str, version: &str, value: Value) -> Value {
    let mut object = with_field(field, version, value);
    object["struct"].as_object_mut().unwrap().remove("name");
    object
}

fn for_all_versions(test: impl Fn(&mut ManagedObjectHistory<'_>, &str, &str, &str)) {
    let converter = renamed();
    for v1 in VERSIONS {
        for v2 in VERSIONS {
            for v3 in VERSIONS {
                let mut history = ManagedObjectHistory::new(&converter);
                history.live_version = v1.into();
                test(&mut history, v1, v2, v3);
            }
        }
    }
}

#[test]
fn a_field_without_other_owner_is_removed_across_versions() {
    for (field, value) in [("scalar", json!("a")), ("complex", json!({"name": "b"}))] {
        for_all_versions(|history, v1, v2, v3| {
            history
                .apply("one", v1, with_field(field, v1, value.clone()))
                .apply("one", v2, json!({"struct": {"name": "a"}}))
                .live(v3, json!({"struct": {"name": "a"}}))
                .owned(&[("one", v2, ".struct.name")]);
        });
    }
}

#[test]
fn a_shared_field_stays_across_versions() {
    for (field, value, subpath) in [
        ("scalar", json!("a"), ""),
        ("complex", json!({"name": "b"}), ".name"),
    ] {
        for_all_versions(|history, v1, v2, v3| {
            history
                .apply("one", v1, with_field(field, v1, value.clone()))
                .apply("two", v2, only_field(field, v2, value.clone()))
                .apply("one", v3, json!({"struct": {"name": "a"}}))
                .live(v3, with_field(field, v3, value.clone()))
                .owned(&[
                    ("one", v3, ".struct.name"),
                    ("two", v2, &format!(".struct.{field}_{v2}{subpath}")),
                ]);
        });
    }
}

#[test]
fn a_field_of_an_updater_stays_across_versions() {
    for_all_versions(|history, v1, v2, v3| {
        history
            .update("updater", v1, with_field("scalar", v1, json!("a")))
            .apply("applier", v2, with_field("scalar", v2, json!("a")))
            .apply("applier", v3, json!({"struct": {"name": "a"}}))
            .live(v3, with_field("scalar", v3, json!("a")))
            .owned(&[
                (
                    "updater",
                    v1,
                    &format!(".struct .struct.name .struct.scalar_{v1}"),
                ),
                ("applier", v3, ".struct.name"),
            ]);
    });
}

#[test]
fn an_updater_takes_a_field_across_versions() {
    for_all_versions(|history, v1, v2, _| {
        history
            .apply("applier", v1, with_field("scalar", v1, json!("a")))
            .update("updater", v2, with_field("scalar", v2, json!("b")))
            .owned(&[
                ("updater", v2, &format!(".struct.scalar_{v2}")),
                ("applier", v1, ".struct.name"),
            ])
            .conflicting(
                "applier",
                v1,
                with_field("scalar", v1, json!("c")),
                &[("updater", &format!(".struct.scalar_{v2}"))],
            );
    });
}

#[test]
fn managers_in_versions_that_are_not_served_are_dropped() {
    let before = OneSchema::deduced().in_versions(&["v1", "v2"]);
    let after = OneSchema::deduced().in_versions(&["v2", "v3"]);
    let mut history = ManagedObjectHistory::new(&before);
    history
        .update("one", "v1", json!({"v1": 0}))
        .update("two", "v2", json!({"v1": 0, "v2": 0}));
    history.converter = &after;
    history
        .update("three", "v3", json!({"v1": 0, "v2": 0, "v3": 0}))
        .owned(&[("two", "v2", ".v2"), ("three", "v3", ".v3")]);
}

#[test]
fn nothing_is_removed_that_was_applied_in_a_version_that_is_not_served() {
    let sets = || OneSchema::new(schema(json!({"list": set_of(string())})));
    let (before, after) = (sets().in_versions(&["v1"]), sets().in_versions(&["v2"]));
    let mut history = ManagedObjectHistory::new(&before);
    history.apply("apply", "v1", json!({"list": ["a", "b", "c", "d"]}));
    history.converter = &after;
    history
        .apply("apply", "v2", json!({"list": ["a"]}))
        .live("v2", json!({"list": ["a", "b", "c", "d"]}))
        .owned(&[("apply", "v2", r#".list[="a"]"#)]);
}
