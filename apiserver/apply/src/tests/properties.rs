//! Properties that hold for all sets and objects.

use std::collections::BTreeSet;

use jiff::Timestamp;
use machinery::Gvk;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::fixtures::{OneSchema, list_by, map_of, number, schema, set_of, string};
use crate::field_manager::FieldManager;
use crate::field_set::FieldSet;
use crate::field_type::FieldType;
use crate::managed_fields::ManagedFields;
use crate::manager::{ManagerId, ManagerOperation, ManagerSets};
use crate::path_element::PathElement;
use crate::reset_fields::ResetFields;
use crate::typed::{compare, field_set_of, merge, remove_items};
use crate::updater::Updater;
use crate::version_conversion::VersionedConverter;

type NaiveSet = BTreeSet<Vec<PathElement>>;

fn element() -> impl Strategy<Value = PathElement> {
    prop_oneof![
        "[a-c]".prop_map(|name| PathElement::field(&name)),
        (0..2i64, "[a-b<&]").prop_map(|(n, s)| PathElement::key([
            ("port".into(), json!(n)),
            ("name".into(), json!(s)),
        ])),
        prop_oneof![
            Just(json!(1)),
            Just(json!(1.5)),
            Just(json!(true)),
            Just(json!("x\"é>"))
        ]
        .prop_map(PathElement::value),
        (0..3i64).prop_map(PathElement::Index),
    ]
}

fn paths() -> impl Strategy<Value = NaiveSet> {
    let path = prop::collection::vec(element(), 1..4);
    prop::collection::btree_set(path, 0..12)
}

fn tree_of(paths: &NaiveSet) -> FieldSet {
    paths.iter().collect()
}

fn paths_of(set: &FieldSet) -> NaiveSet {
    let mut paths = NaiveSet::new();
    set.for_each_path(&mut |path| {
        paths.insert(path.to_vec());
    });
    paths
}

fn object_schema() -> OneSchema {
    OneSchema::new(schema(json!({
        "number": number(),
        "text": string(),
        "map": map_of(string()),
        "set": set_of(string()),
        "atomic": {"type": "array", "items": string()},
        "list": list_by(&["name"], json!({"name": string(), "value": number(), "tags": set_of(string())})),
        "free": {"x-kubernetes-preserve-unknown-fields": true},
    })))
}

fn letters() -> impl Strategy<Value = Vec<String>> {
    prop::collection::btree_set("[a-d]", 0..4)
        .prop_map(|set| set.into_iter().collect::<Vec<_>>())
        .prop_shuffle()
}

fn free_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        (0..2i64).prop_map(Value::from),
        "[a-b]".prop_map(Value::from),
        letters().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 8, 3, |inner| {
        prop::collection::btree_map("[a-c]", inner, 0..3)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
    })
}

fn list_item(name: String) -> impl Strategy<Value = Value> {
    let fields = (prop::option::of(0..2i64), prop::option::of(letters()));
    fields.prop_map(move |(value, tags)| {
        let mut item = json!({"name": name});
        if let Some(value) = value {
            item["value"] = value.into();
        }
        if let Some(tags) = tags {
            item["tags"] = tags.into();
        }
        item
    })
}

/// An object of [`object_schema`]; each field is there or not.
fn object() -> impl Strategy<Value = Value> {
    let list =
        letters().prop_flat_map(|names| names.into_iter().map(list_item).collect::<Vec<_>>());
    let map = prop::collection::btree_map("[a-c]", "[x-y]", 0..3);
    (
        prop::option::of(0..3i64),
        prop::option::of("[a-b]"),
        prop::option::of(map),
        prop::option::of(letters()),
        prop::option::of(letters()),
        prop::option::of(list),
        prop::option::of(free_value()),
    )
        .prop_map(|(number, text, map, set, atomic, list, free)| {
            let fields = [
                ("number", number.map(Value::from)),
                ("text", text.map(Value::from)),
                ("map", map.map(|m| json!(m))),
                ("set", set.map(Value::from)),
                ("atomic", atomic.map(Value::from)),
                ("list", list.map(Value::from)),
                ("free", free),
            ];
            let fields = fields.into_iter();
            fields
                .filter_map(|(name, value)| Some((name.to_owned(), value?)))
                .collect::<Map<String, Value>>()
                .into()
        })
}

fn id(name: &str) -> ManagerId {
    ManagerId::new(name, ManagerOperation::Apply, "", "")
}

/// An object with its managers, written without conflicts.
#[derive(Clone, Debug, PartialEq)]
struct WrittenObject {
    live: Value,
    managers: ManagerSets,
}

impl WrittenObject {
    fn empty() -> Self {
        Self {
            live: json!({}),
            managers: ManagerSets::new(),
        }
    }

    fn apply(&self, converter: &OneSchema, manager: &str, config: &Value) -> Self {
        let reset_fields = &ResetFields::default();
        let updater = Updater {
            converter,
            reset_fields,
        };
        let managers = self.managers.clone();
        let (object, managers) = updater
            .apply(&self.live, config, "v1", managers, &id(manager), true)
            .unwrap();
        let live = object.unwrap_or_else(|| self.live.clone());
        Self { live, managers }
    }

    fn update(&self, converter: &OneSchema, manager: &str, new: &Value) -> Self {
        let reset_fields = &ResetFields::default();
        let updater = Updater {
            converter,
            reset_fields,
        };
        let managers = self.managers.clone();
        let managers = updater
            .update(&self.live, new, "v1", managers, &id(manager))
            .unwrap();
        Self {
            live: new.clone(),
            managers,
        }
    }

    fn owned(&self, manager: &str) -> FieldSet {
        let managed = self.managers.get(&id(manager));
        managed.map(|m| m.set.clone()).unwrap_or_default()
    }
}

/// The members of each list, whatever its order.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(sorted).collect();
            items.sort_by_key(ToString::to_string);
            Value::Array(items)
        }
        Value::Object(fields) => {
            let fields = fields.iter().map(|(k, v)| (k.clone(), sorted(v)));
            Value::Object(fields.collect())
        }
        other => other.clone(),
    }
}

proptest! {
    #[test]
    fn operations_are_those_of_sets(a in paths(), b in paths()) {
        let (x, y) = (tree_of(&a), tree_of(&b));
        prop_assert_eq!(&paths_of(&x), &a);
        prop_assert_eq!(x.len(), a.len());
        prop_assert_eq!(paths_of(&x.union(&y)), &a | &b);
        prop_assert_eq!(paths_of(&x.intersection(&y)), &a & &b);
        prop_assert_eq!(paths_of(&x.difference(&y)), &a - &b);
        let is_below = |path: &Vec<PathElement>| (1..=path.len()).any(|n| b.contains(&path[..n]));
        let rest: NaiveSet = a.iter().filter(|p| !is_below(p)).cloned().collect();
        prop_assert_eq!(paths_of(&x.recursive_difference(&y)), rest);
        let is_leaf = |path: &Vec<PathElement>| {
            !a.iter().any(|p| p.len() > path.len() && p.starts_with(path))
        };
        let leaves: NaiveSet = a.iter().filter(|p| is_leaf(p)).cloned().collect();
        prop_assert_eq!(paths_of(&x.leaves()), leaves);
        for path in a.union(&b) {
            prop_assert_eq!(x.contains(path), a.contains(path));
        }
    }

    #[test]
    fn fields_v1_is_read_as_it_was_written(paths in paths()) {
        let set = tree_of(&paths);
        let text = serde_json::to_string(&set).unwrap();
        prop_assert_eq!(FieldSet::from_fields_v1(&text).unwrap(), set);
    }

    #[test]
    fn any_text_is_read_or_rejected(text in r#"[{}":,.fkvi\\ a1]{0,40}"#) {
        let _ = FieldSet::from_fields_v1(&text);
    }

    #[test]
    fn a_comparison_is_empty_for_equal_objects_and_else_names_the_difference(
        a in object(), b in object(),
    ) {
        let converter = object_schema();
        let field_type = converter.field_type("v1").unwrap();
        prop_assert!(compare(field_type, &a, &a).is_same());
        let forth = compare(field_type, &a, &b);
        let back = compare(field_type, &b, &a);
        prop_assert_eq!(&forth.added, &back.removed);
        prop_assert_eq!(&forth.removed, &back.added);
        prop_assert_eq!(&forth.modified, &back.modified);
        if forth.is_same() {
            // Only the order of lists, or an empty set in place of none, is no difference.
            let empty = |v: &Value| sorted(v).to_string();
            prop_assert!(empty(&a) == empty(&b) || a.to_string().contains("[]") || b.to_string().contains("[]"));
        }
    }

    #[test]
    fn a_merge_contains_the_configuration(live in object(), config in object()) {
        let converter = object_schema();
        let field_type = converter.field_type("v1").unwrap();
        let merged = merge(field_type, &live, &config).unwrap();
        prop_assert_eq!(&merge(field_type, &merged, &config).unwrap(), &merged);
        let owned = field_set_of(field_type, &config);
        let present = field_set_of(field_type, &merged).leaves();
        // Null in a configuration does not remove what a map contains.
        if !config.to_string().contains("null") && !config.to_string().contains("{}") {
            prop_assert!(owned.leaves().difference(&field_set_of(field_type, &merged)).is_empty(),
                "{} {}", owned, present);
        }
    }

    #[test]
    fn removing_all_fields_leaves_nothing(object in object()) {
        let field_type = FieldType::Deduced;
        let set = field_set_of(field_type, &object);
        let rest = remove_items(field_type, &object, &set);
        prop_assert!(set.is_empty() || rest.is_null());
    }

    #[test]
    fn an_apply_is_idempotent(first in object(), other in object(), config in object()) {
        let converter = object_schema();
        let applied = WrittenObject::empty()
            .apply(&converter, "one", &first)
            .update(&converter, "two", &other)
            .apply(&converter, "one", &config);
        let applied_again = applied.apply(&converter, "one", &config);
        prop_assert_eq!(&applied_again.managers, &applied.managers);
        // A field that an apply empties is gone or null, and is empty when it is applied again.
        let config = config.to_string();
        let empties = config.contains("[]") || config.contains("{}");
        if !empties && !applied.live.to_string().contains("null") {
            prop_assert_eq!(applied_again.live, applied.live);
        }
    }

    #[test]
    fn an_applier_owns_exactly_its_configuration(
        first in object(), other in object(), config in object(),
    ) {
        let converter = object_schema();
        let field_type = converter.field_type("v1").unwrap();
        let written = WrittenObject::empty()
            .apply(&converter, "one", &first)
            .apply(&converter, "two", &other)
            .apply(&converter, "one", &config);
        prop_assert_eq!(written.owned("one"), field_set_of(field_type, &config));
    }

    #[test]
    fn appliers_of_disjoint_fields_commute(a in object(), b in object()) {
        let converter = object_schema();
        let mut b = b;
        for name in a.as_object().unwrap().keys() {
            b.as_object_mut().unwrap().remove(name);
        }
        let empty = WrittenObject::empty();
        let ab = empty.apply(&converter, "one", &a).apply(&converter, "two", &b);
        let ba = empty.apply(&converter, "two", &b).apply(&converter, "one", &a);
        prop_assert_eq!(ab, ba);
    }

    #[test]
    fn parsing_only_affected_entries_makes_no_difference(
        a in object(), b in object(), first in object(), second in object(),
    ) {
        let converter = object_schema();
        let reset_fields = ResetFields::default();
        let manager = FieldManager {
            converter: &converter,
            gvk: &Gvk::from_static("", "v1", "X"),
            subresource: "",
            reset_fields: &reset_fields,
            now: Timestamp::UNIX_EPOCH,
        };
        let with_name = |mut object: Value| {
            object["apiVersion"] = "v1".into();
            object["kind"] = "X".into();
            object["metadata"] = json!({"uid": "u"});
            object
        };
        let mut object = with_name(json!({}));
        let mut managed = ManagedFields::default();
        for (name, config) in [("a", with_name(a)), ("b", with_name(b))] {
            let applied = manager.apply(&object, &config, managed, name, true).unwrap();
            (object, managed) = (applied.object, applied.managed);
        }
        for (name, new) in [("b", with_name(first)), ("c", with_name(second))] {
            let Some(text) = managed.encode_json() else { break };
            let partly = manager.update_json(&object, &new, &text, name).unwrap();
            managed = manager.update(&object, &new, managed, name).unwrap();
            prop_assert_eq!(partly, managed.encode_json());
            object = new;
        }
    }

    #[test]
    fn an_update_takes_only_what_it_changes(a in object(), b in object(), new in object()) {
        let converter = object_schema();
        let field_type = converter.field_type("v1").unwrap();
        let before = WrittenObject::empty()
            .apply(&converter, "one", &a)
            .apply(&converter, "two", &b);
        let after = before.update(&converter, "three", &new);
        let changed = compare(field_type, &before.live, &new);
        let changes = changed.added.union(&changed.modified).union(&changed.removed);
        for manager in ["one", "two"] {
            prop_assert_eq!(after.owned(manager), before.owned(manager).difference(&changes));
        }
        prop_assert_eq!(after.owned("three"), changed.added.union(&changed.modified));
    }
}
