//! Tables that are filled lazily, read back as JSON.

use std::sync::Arc;

use mlua::{Lua, Value as Item};
use serde_json::{Value, json};

use crate::lua::flat_json::FlatJson;
use crate::lua::lazy_table::LazyTables;
use crate::lua::result_encoder::{RESULT_LIMITS, to_json};

/// The result of a script on an object, and how many tables are only partly filled afterwards.
fn run_script(body: &str) -> (Value, usize) {
    let lua = Lua::new();
    let tables = LazyTables::install(&lua).unwrap();
    let object = json!({"kind": "A", "spec": {"n": 1, "list": [{"m": {"x": "y"}}, null, 2], "m": {"k": "v"}}, "status": {}});
    let item = tables
        .to_lua(&lua, &Arc::new(FlatJson::from_value(&object)), None)
        .unwrap();
    let result: Item = lua
        .load(format!("local t = ... {body}"))
        .call(item)
        .unwrap();
    let result = to_json(&tables, result, RESULT_LIMITS)
        .unwrap()
        .unwrap_or_default();
    let partial = tables.0.partial.borrow().len();
    (result, partial)
}

// proves: LUA-given
#[test]
fn tables_are_filled_on_access_without_visible_effect() {
    let full = json!({"kind": "A", "spec": {"n": 1, "list": [{"m": {"x": "y"}}, 2], "m": {"k": "v"}}, "status": []});
    let with = |pointer: &str, value: Value| {
        let mut all = full.clone();
        *all.pointer_mut(pointer).unwrap() = value;
        all
    };
    for (body, expected, partial) in [
        ("return t", full.clone(), 1),
        ("return {t.spec.n, t.spec.m.k}", json!([1, "v"]), 2),
        (
            "return t.spec.list[1].m == t.spec.list[1].m",
            json!(true),
            3,
        ),
        ("t.spec = nil return t.spec == nil", json!(true), 1),
        (
            "t.spec.m = nil return {t.spec.m == nil, t.spec}",
            json!([true, {"n": 1, "list": full["spec"]["list"]}]),
            2,
        ),
        (
            "t.spec.m = {z = 1} return t",
            with("/spec/m", json!({"z": 1})),
            2,
        ),
        (
            "t.spec.m.k = 'w' return t",
            with("/spec/m/k", json!("w")),
            2,
        ),
        (
            "t.kind = nil return {t.kind == nil, t.none == nil, t[1] == nil}",
            json!([true, true, true]),
            1,
        ),
        (
            "local n = 0 for k, v in t do n = n + 1 end return n",
            json!(3),
            1,
        ),
        (
            "table.insert(t.spec.list, t.spec.m) return #t.spec.list",
            json!(3),
            3,
        ),
        ("return t.spec.list", full["spec"]["list"].clone(), 3),
        ("return {#t.spec.list, t.spec.list[2]}", json!([2, 2]), 3),
    ] {
        assert_eq!(run_script(body), (expected, partial), "{body}");
    }
}
