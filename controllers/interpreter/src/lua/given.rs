//! Converts the arguments of scripts to Lua tables, field by field when the script accesses them.
//!
//! [`FlatJson`] ──► [`LazyTables`] ──► tables ──[`LazyTables::for_each_unfilled`]──► results of scripts
//!
//! A script accesses a small part of an object. So a field that holds an object or a list becomes a
//! table when it is first read, or at once if an earlier call of the script read it
//! ([`AccessCursor`]). Scripts cannot observe the difference: metatables are not available to them,
//! and iteration fills a table first ([`super::ordered_tables`]). Null is absent, in lists too.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use mlua::{Either, Function, Lua, Table, Value as Item};

use super::tape::{At, Node, ROOT, Tape};

/// Lua source of the metamethods. Their errors are those of plain tables.
const LIBRARY: &str = "
local kind, note, fill = ...
local next, rawset, error = next, rawset, error
kind.__newindex = function(t, field, value)
  if field == nil then error('table index is nil', 2) end
  if field ~= field then error('table index is NaN', 2) end
  note(t, field)
  rawset(t, field, value)
end
kind.__iter = function(t)
  fill(t)
  return next, t, nil
end";

/// Maximum number of accessed paths remembered per script and argument.
const PLACES: usize = 512;

/// A path that a script accessed in an earlier call; its value is converted at once. All elements
/// of a list share one path.
#[derive(Clone)]
pub(super) struct Look {
    /// All accessed paths of this script and argument, as a tree; the root is first.
    all: Rc<RefCell<Vec<Place>>>,
    at: usize,
}

/// One accessed path.
#[derive(Default)]
struct Place {
    /// Whether the script iterated over all fields.
    whole: bool,
    /// Accessed fields, by name, as indices into [`AccessCursor::nodes`].
    fields: BTreeMap<Box<str>, usize>,
}

impl Default for Look {
    /// The root of an argument.
    fn default() -> Self {
        Self {
            all: Rc::new(RefCell::new(vec![Place::default()])),
            at: 0,
        }
    }
}

impl Look {
    /// The path of a field, if the script accessed it before.
    fn known(&self, name: &str) -> Option<Self> {
        let all = self.all.borrow();
        let node = all.get(self.at)?;
        let (at, iterated) = (node.fields.get(name).copied(), node.whole);
        drop(all);
        match at {
            None if iterated => self.learn(name),
            at => at.map(|at| self.place(at)),
        }
    }

    fn learn(&self, name: &str) -> Option<Self> {
        let mut all = self.all.borrow_mut();
        let new = all.len();
        let node = all.get_mut(self.at)?;
        if let Some(at) = node.fields.get(name) {
            return Some(self.place(*at));
        }
        if new == PLACES {
            return None;
        }
        node.fields.insert(name.into(), new);
        all.push(Place::default());
        Some(self.place(new))
    }

    fn learn_all(&self) {
        if let Some(node) = self.all.borrow_mut().get_mut(self.at) {
            node.whole = true;
        }
    }

    fn place(&self, at: usize) -> Self {
        let all = Rc::clone(&self.all);
        Self { all, at }
    }
}

/// A table of which some fields are not converted yet.
struct Partial {
    /// Keeps the table alive, so that its address is not reused.
    _table: Table,
    json: Arc<Tape>,
    unfilled: Vec<At>,
    cursor: Option<Look>,
}

/// The tables of one VM that are only partly filled.
#[derive(Clone, Default)]
pub(super) struct Given(Rc<Inner>);

#[derive(Default)]
struct Inner {
    /// By the address of the table.
    partial: RefCell<HashMap<usize, Partial>>,
    kind: RefCell<Option<Table>>,
}

fn address(table: &Table) -> usize {
    table.to_pointer() as usize
}

impl Given {
    /// Creates the metatable. The VM must still have its full base library.
    pub(super) fn install(lua: &Lua) -> mlua::Result<Self> {
        let it = Self::default();
        let kind = lua.create_table()?;
        let this = it.clone();
        let load = move |lua: &Lua, (table, field): (Table, Item)| match field {
            Item::String(name) => this.look(lua, &table, &name),
            _ => Ok(Item::Nil),
        };
        kind.raw_set("__index", lua.create_function(load)?)?;
        let this = it.clone();
        let note = move |_: &Lua, (table, field): (Table, Item)| {
            if let Item::String(name) = field {
                this.take(&table, &name.to_string_lossy());
            }
            Ok(())
        };
        let note = lua.create_function(note)?;
        let library = lua.load(LIBRARY).set_name("=given");
        library.call::<()>((&kind, note, it.filler(lua)?))?;
        *it.0.kind.borrow_mut() = Some(kind);
        Ok(it)
    }

    /// The metatable of partly filled tables.
    pub(super) fn kind(&self) -> Option<Table> {
        self.0.kind.borrow().clone()
    }

    /// A Lua function that fills a table.
    pub(super) fn filler(&self, lua: &Lua) -> mlua::Result<Function> {
        let this = self.clone();
        lua.create_function(move |lua, table: Table| this.fill(lua, &table))
    }

    /// Converts an argument; `cursor` has the paths that the script accessed in earlier calls.
    pub(super) fn item(
        &self,
        lua: &Lua,
        json: &Arc<Tape>,
        cursor: Option<&Look>,
    ) -> mlua::Result<Item> {
        self.made(lua, json, ROOT, cursor)
    }

    /// Forgets all partly filled tables, after a call.
    pub(super) fn clear(&self) {
        self.0.partial.borrow_mut().clear();
    }

    /// Calls `each` for the fields of a table that the script did not access.
    pub(super) fn untouched<E>(
        &self,
        table: &Table,
        mut each: impl FnMut(&str, &Tape, At) -> Result<(), E>,
    ) -> Result<(), E> {
        let all = self.0.partial.borrow();
        let Some(Partial { json, unfilled, .. }) = all.get(&address(table)) else {
            return Ok(());
        };
        unfilled
            .iter()
            .try_for_each(|at| each(json.name(*at), json, *at))
    }

    /// Removes a field from the unfilled ones, because it is set now.
    fn take(&self, table: &Table, name: &str) -> Option<(Arc<Tape>, At, Option<Look>)> {
        let mut all = self.0.partial.borrow_mut();
        let Partial {
            json,
            unfilled,
            cursor,
            ..
        } = all.get_mut(&address(table))?;
        let found = unfilled.iter().position(|at| json.name(*at) == name)?;
        let at = unfilled.swap_remove(found);
        Some((Arc::clone(json), at, cursor.clone()))
    }

    fn look(&self, lua: &Lua, table: &Table, name: &mlua::LuaString) -> mlua::Result<Item> {
        let Ok(text) = name.to_str() else {
            return Ok(Item::Nil);
        };
        let Some((json, at, cursor)) = self.take(table, &text) else {
            return Ok(Item::Nil);
        };
        let cursor = cursor.and_then(|cursor| cursor.learn(&text));
        let value = unlimited(lua, || self.made(lua, &json, at, cursor.as_ref()))?;
        table.raw_set(name, &value)?;
        Ok(value)
    }

    fn fill(&self, lua: &Lua, table: &Table) -> mlua::Result<()> {
        let partial = self.0.partial.borrow_mut().remove(&address(table));
        let Some(Partial {
            json,
            unfilled,
            cursor,
            ..
        }) = partial
        else {
            return Ok(());
        };
        if let Some(cursor) = &cursor {
            cursor.learn_all();
        }
        table.set_metatable(None)?;
        unlimited(lua, || {
            for at in unfilled {
                let name = json.name(at);
                let cursor = cursor.as_ref().and_then(|cursor| cursor.known(name));
                table.raw_set(name, self.made(lua, &json, at, cursor.as_ref())?)?;
            }
            Ok(())
        })
    }

    fn made(
        &self,
        lua: &Lua,
        json: &Arc<Tape>,
        at: At,
        cursor: Option<&Look>,
    ) -> mlua::Result<Item> {
        Ok(match json.node(at) {
            Node::Null => Item::Nil,
            Node::Bool(value) => Item::Boolean(value),
            Node::Number(value) => Item::Number(value),
            Node::Text(text) => Item::String(lua.create_string(text)?),
            Node::List => {
                let items = json.items(at);
                let list = lua.create_table_with_capacity(items.len(), 0)?;
                let mut to = 1;
                for item in items {
                    let item = self.made(lua, json, item, cursor)?;
                    if !item.is_nil() {
                        list.raw_seti(to, item)?;
                        to += 1;
                    }
                }
                Item::Table(list)
            }
            Node::Object => Item::Table(self.object(lua, json, at, cursor)?),
        })
    }

    fn object(
        &self,
        lua: &Lua,
        json: &Arc<Tape>,
        at: At,
        cursor: Option<&Look>,
    ) -> mlua::Result<Table> {
        let all = json.fields(at);
        let mut fields = Vec::with_capacity(all.len());
        let mut unfilled = Vec::new();
        for (name, value) in all {
            let field = match json.node(value) {
                Node::Null => continue,
                Node::Text(text) => Either::Left(text),
                Node::Bool(value) => Either::Right(Item::Boolean(value)),
                Node::Number(value) => Either::Right(Item::Number(value)),
                Node::List | Node::Object => match cursor.and_then(|cursor| cursor.known(name)) {
                    Some(cursor) => Either::Right(self.made(lua, json, value, Some(&cursor))?),
                    None => {
                        unfilled.push(value);
                        continue;
                    }
                },
            };
            fields.push((name, field));
        }
        let table = lua.create_table_from(fields)?;
        if !unfilled.is_empty() {
            table.set_metatable(self.kind())?;
            let partial = Partial {
                _table: table.clone(),
                json: Arc::clone(json),
                unfilled,
                cursor: cursor.cloned(),
            };
            let mut all = self.0.partial.borrow_mut();
            all.insert(address(&table), partial);
        }
        Ok(table)
    }
}

/// Runs `work` without the memory limit of the script. Converting arguments is bounded by the size
/// of the arguments, and takes half the time without the limit.
pub(super) fn unlimited<T>(lua: &Lua, work: impl FnOnce() -> mlua::Result<T>) -> mlua::Result<T> {
    let limit = lua.set_memory_limit(0)?;
    let value = work();
    lua.set_memory_limit(limit)?;
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lua::convert::{ROOM, to_json};
    use serde_json::{Value, json};

    /// The result of a script on an object, and how many tables are only partly filled afterwards.
    fn run_script(body: &str) -> (Value, usize) {
        let lua = Lua::new();
        let tables = Given::install(&lua).unwrap();
        let object = json!({"kind": "A", "spec": {"n": 1, "list": [{"m": {"x": "y"}}, null, 2], "m": {"k": "v"}}, "status": {}});
        let item = tables
            .item(&lua, &Arc::new(Tape::of(&object)), None)
            .unwrap();
        let found: Item = lua
            .load(format!("local t = ... {body}"))
            .call(item)
            .unwrap();
        let found = to_json(&tables, found, ROOM).unwrap().unwrap_or_default();
        let partial = tables.0.partial.borrow().len();
        (found, partial)
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
}
