//! Targets of [`crate::fuzz`]: JSON to Lua and back, and the library `kube`.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use machinery::{Gvk, json};
use mlua::{Function, Lua, MultiValue, Table, Value as Item};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

use super::flat_json::FlatJson;
use super::kube_library::require;
use super::lazy_table::{AccessedPathCursor, LazyTables};
use super::result_encoder::{RESULT_LIMITS, to_json};
use crate::fuzz::edits::unexpected_values;
use crate::fuzz::inputs::json_values;
use crate::fuzz::run;

/// 2^63, the first integral number above `i64`.
const I64_END: f64 = 9_223_372_036_854_775_808.0;

/// JSON after a round trip through Lua: numbers are doubles, null is absent, and an empty
/// table is a list.
fn after_round_trip(tree: &Value) -> Option<Value> {
    Some(match tree {
        Value::Null => return None,
        Value::Number(number) => {
            let double = number.as_f64().unwrap();
            if double.fract() == 0.0 && (-I64_END..I64_END).contains(&double) {
                (double as i64).into()
            } else {
                double.into()
            }
        }
        Value::Array(items) => items.iter().filter_map(after_round_trip).collect(),
        Value::Object(fields) => {
            let each = fields
                .iter()
                .filter_map(|(name, value)| Some((name.clone(), after_round_trip(value)?)));
            let fields: Map<String, Value> = each.collect();
            if fields.is_empty() {
                Value::Array(Vec::new())
            } else {
                Value::Object(fields)
            }
        }
        other => other.clone(),
    })
}

/// How a script may access its arguments: not at all, everything, or some fields.
const ACCESS_PATTERNS: [&str; 3] = [
    "return function() end",
    "local function all(t)
       for _, value in t do
         if type(value) == 'table' then all(value) end
       end
     end
     return all",
    "local function some(t, names)
       for at, name in names do
         local value = t[name]
         if at % 3 > 0 and type(value) == 'table' then some(value, names) end
       end
     end
     return some",
];

fn collect_field_names(tree: &Value, names: &mut BTreeSet<String>) {
    match tree {
        Value::Array(items) => items
            .iter()
            .for_each(|item| collect_field_names(item, names)),
        Value::Object(fields) => {
            names.extend(fields.keys().cloned());
            fields
                .values()
                .for_each(|value| collect_field_names(value, names));
        }
        _ => {}
    }
}

/// Flattens an object from its bytes, with its kind; other values, and those nested too deeply for
/// that, from the parsed value.
fn flatten(tree: Value) -> (Value, FlatJson) {
    let text = serde_json::to_vec(&tree).unwrap();
    let kind = Gvk::from_static("example.io", "v1", "Thing");
    if let Ok(Value::Object(mut fields)) = json::from_slice(&text) {
        fields.insert("apiVersion".into(), kind.api_version().into());
        fields.insert("kind".into(), (&*kind.kind).into());
        return (fields.into(), FlatJson::from_object(&text, &kind).unwrap());
    }
    let json = FlatJson::from_value(&tree);
    (tree, json)
}

#[test]
fn json_survives_a_round_trip_however_it_is_accessed() {
    let lua = Lua::new();
    let tables = LazyTables::install(&lua).unwrap();
    let accesses = ACCESS_PATTERNS.map(|access| lua.load(access).eval::<Function>().unwrap());
    let cursors: [AccessedPathCursor; ACCESS_PATTERNS.len()] = Default::default();
    run(
        "JSON to Lua and back",
        &json_values(),
        Value::to_string,
        |tree| {
            let (tree, json) = flatten(tree);
            let json = Arc::new(json);
            let mut fields = BTreeSet::new();
            collect_field_names(&tree, &mut fields);
            for (access, cursor) in accesses.iter().zip(&cursors) {
                let item = tables.to_lua(&lua, &json, Some(cursor)).unwrap();
                if item.is_table() {
                    let half: Vec<_> = fields.iter().step_by(2).take(24).cloned().collect();
                    access.call::<()>((&item, half)).unwrap();
                }
                let back = to_json(&tables, item, RESULT_LIMITS);
                if json::depth(&tree) > json::MAX_OBJECT_DEPTH {
                    prop_assert!(back.is_err());
                } else {
                    prop_assert_eq!(back, Ok(after_round_trip(&tree)));
                }
            }
            tables.clear();
            Ok(())
        },
    );
}

/// A Lua value that a script could return.
#[derive(Clone, Debug)]
enum GeneratedLuaValue {
    Nil,
    Boolean(bool),
    Number(f64),
    Text(Vec<u8>),
    Function,
    /// The table that contains it.
    EnclosingTable,
    Table(Vec<(GeneratedLuaValue, GeneratedLuaValue)>),
    List(Vec<GeneratedLuaValue>),
}

impl GeneratedLuaValue {
    fn to_lua(&self, lua: &Lua, around: &Table) -> Item {
        match self {
            Self::Nil => Item::Nil,
            Self::Boolean(value) => Item::Boolean(*value),
            Self::Number(value) => Item::Number(*value),
            Self::Text(text) => Item::String(lua.create_string(text).unwrap()),
            Self::Function => Item::Function(lua.create_function(|_, ()| Ok(())).unwrap()),
            Self::EnclosingTable => Item::Table(around.clone()),
            Self::Table(entries) => {
                let table = lua.create_table().unwrap();
                for (key, value) in entries {
                    let (key, value) = (key.to_lua(lua, &table), value.to_lua(lua, &table));
                    // The table rejects invalid keys.
                    drop(table.raw_set(key, value));
                }
                Item::Table(table)
            }
            Self::List(items) => {
                let table = lua.create_table().unwrap();
                for item in items {
                    table.raw_push(item.to_lua(lua, &table)).unwrap();
                }
                Item::Table(table)
            }
        }
    }
}

fn lua_values() -> impl Strategy<Value = GeneratedLuaValue> {
    let numbers = [
        0.0,
        -0.0,
        1.0,
        2.0,
        3.0,
        -1.0,
        0.5,
        1e15,
        9.3e18,
        -9.3e18,
        1e300,
        f64::NAN,
        f64::INFINITY,
    ];
    let leaf = prop_oneof![
        1 => Just(GeneratedLuaValue::Nil),
        2 => any::<bool>().prop_map(GeneratedLuaValue::Boolean),
        4 => select(numbers.to_vec()).prop_map(GeneratedLuaValue::Number),
        1 => any::<f64>().prop_map(GeneratedLuaValue::Number),
        4 => "[a-c]{0,2}".prop_map(|text| GeneratedLuaValue::Text(text.into_bytes())),
        1 => vec(any::<u8>(), 0..8).prop_map(GeneratedLuaValue::Text),
        1 => Just(GeneratedLuaValue::Function),
        1 => Just(GeneratedLuaValue::EnclosingTable),
    ];
    let key = prop_oneof![
        6 => "[a-z]{1,6}".prop_map(|text| GeneratedLuaValue::Text(text.into_bytes())),
        1 => leaf.clone(),
    ];
    leaf.prop_recursive(8, 64, 6, move |inner| {
        prop_oneof![
            vec((key.clone(), inner.clone()), 0..6).prop_map(GeneratedLuaValue::Table),
            vec(inner, 0..6).prop_map(GeneratedLuaValue::List),
        ]
    })
}

#[test]
fn results_become_json_or_an_error() {
    let lua = Lua::new();
    let tables = LazyTables::install(&lua).unwrap();
    let show = |generated: &GeneratedLuaValue| format!("{generated:?}");
    run("Lua to JSON and back", &lua_values(), show, |generated| {
        let around = lua.create_table().unwrap();
        let Ok(Some(tree)) = to_json(&tables, generated.to_lua(&lua, &around), RESULT_LIMITS)
        else {
            return Ok(());
        };
        prop_assert_eq!(
            after_round_trip(&tree),
            Some(tree.clone()),
            "JSON from Lua survives another round trip"
        );
        let again = tables
            .to_lua(&lua, &Arc::new(FlatJson::from_value(&tree)), None)
            .unwrap();
        prop_assert_eq!(to_json(&tables, again, RESULT_LIMITS), Ok(Some(tree)));
        tables.clear();
        Ok(())
    });
}

#[test]
fn library_accepts_any_arguments() {
    let lua = Lua::new();
    let tables = LazyTables::install(&lua).unwrap();
    let library: Table = require(&lua, &tables, &Rc::default())
        .unwrap()
        .call("kube")
        .unwrap();
    let functions = [
        "resourceAdd",
        "getResourceQuantity",
        "accuratePodRequirements",
        "getPodDependencies",
    ];
    let templates = json_values().prop_map(|tree| {
        let template = tree.pointer("/spec/template");
        template.cloned().unwrap_or(tree)
    });
    let argument = prop_oneof![
        templates,
        unexpected_values(),
        ".{0,9}".prop_map(Value::from)
    ];
    let show = |args: &Vec<Value>| json!(args).to_string();
    run("library kube", &vec(argument, 0..4), show, |args| {
        let items = args.into_iter().map(|arg| {
            tables
                .to_lua(&lua, &Arc::new(FlatJson::from_value(&arg)), None)
                .unwrap()
        });
        let items: Vec<_> = items.collect();
        for name in functions {
            let function: Function = library.raw_get(name).unwrap();
            for many in 0..=items.len() {
                let some = MultiValue::from_vec(items[..many].to_vec());
                if let Ok(actual) = function.call::<Item>(some) {
                    prop_assert!(to_json(&tables, actual, RESULT_LIMITS).is_ok(), "{}", name);
                }
            }
        }
        tables.clear();
        Ok(())
    });
}
