//! What scripts are given: tables that are filled when they are looked at.
//!
//! JSON ──► [`Given`] ──► tables ──[`Given::untouched`]──► what scripts return
//!
//! A script looks at little of an object, so a field that holds an object or a list
//! becomes a table when it is read first. Scripts cannot tell: they have no metatables,
//! and what goes through the fields of a table fills it before ([`super::order`]). Null is
//! absent, in lists too; numbers are doubles, as in gopher-lua.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use mlua::{Function, Lua, Table, Value as Item};
use serde_json::Value;

/// Errors are those of plain tables.
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

/// Where in what was given something is.
enum Place {
    Whole(Arc<Value>),
    Field(Rc<Place>, Box<str>),
    Item(Rc<Place>, usize),
}

impl Place {
    fn value(&self) -> &Value {
        match self {
            Self::Whole(value) => value,
            Self::Field(of, name) => &of.value()[&**name],
            Self::Item(of, at) => &of.value()[*at],
        }
    }
}

/// A table of which some fields are not there yet.
struct Partial {
    /// Kept, so that its address stays its own.
    _table: Table,
    place: Rc<Place>,
    /// What was looked at, or replaced, before.
    taken: Vec<Box<str>>,
}

impl Partial {
    fn lacks(&self, name: &str) -> bool {
        !self.taken.iter().any(|taken| **taken == *name)
    }
}

/// The tables of one machine that are not filled.
#[derive(Clone, Default)]
pub(super) struct Given(Rc<Inner>);

#[derive(Default)]
struct Inner {
    /// By the addresses of the tables.
    partial: RefCell<HashMap<usize, Partial>>,
    kind: RefCell<Option<Table>>,
}

/// What is a table only when it is looked at.
fn waits(value: &Value) -> bool {
    value.is_object() || value.is_array()
}

fn address(table: &Table) -> usize {
    table.to_pointer() as usize
}

impl Given {
    /// In a machine that still has all of its base library.
    pub(super) fn install(lua: &Lua) -> mlua::Result<Self> {
        let it = Self::default();
        let kind = lua.create_table()?;
        let this = it.clone();
        let look = move |lua: &Lua, (table, field): (Table, Item)| match field {
            Item::String(name) => this.look(lua, &table, &name),
            _ => Ok(Item::Nil),
        };
        kind.raw_set("__index", lua.create_function(look)?)?;
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

    /// The metatable of tables that are not filled.
    pub(super) fn kind(&self) -> Option<Table> {
        self.0.kind.borrow().clone()
    }

    /// What fills a table.
    pub(super) fn filler(&self, lua: &Lua) -> mlua::Result<Function> {
        let this = self.clone();
        lua.create_function(move |lua, table: Table| this.fill(lua, &table))
    }

    /// A value for a script.
    pub(super) fn item(&self, lua: &Lua, whole: &Arc<Value>) -> mlua::Result<Item> {
        let place = || Rc::new(Place::Whole(Arc::clone(whole)));
        Ok(self.made(lua, whole, &place)?.unwrap_or(Item::Nil))
    }

    /// Nothing is looked at any more.
    pub(super) fn clear(&self) {
        self.0.partial.borrow_mut().clear();
    }

    /// Goes through the fields of a table that nobody has looked at.
    pub(super) fn untouched<E>(
        &self,
        table: &Table,
        mut each: impl FnMut(&str, &Value) -> Result<(), E>,
    ) -> Result<(), E> {
        let all = self.0.partial.borrow();
        let Some(partial) = all.get(&address(table)) else {
            return Ok(());
        };
        let fields = partial.place.value().as_object().into_iter().flatten();
        for (name, value) in fields {
            if waits(value) && partial.lacks(name) {
                each(name, value)?;
            }
        }
        Ok(())
    }

    fn take(&self, table: &Table, name: &str) -> Option<Rc<Place>> {
        let mut all = self.0.partial.borrow_mut();
        let partial = all.get_mut(&address(table))?;
        let fresh = waits(&partial.place.value()[name]) && partial.lacks(name);
        fresh.then(|| {
            partial.taken.push(name.into());
            Rc::new(Place::Field(Rc::clone(&partial.place), name.into()))
        })
    }

    fn look(&self, lua: &Lua, table: &Table, name: &mlua::LuaString) -> mlua::Result<Item> {
        let text = name.to_str().ok();
        let Some(place) = text.and_then(|text| self.take(table, &text)) else {
            return Ok(Item::Nil);
        };
        let made = unlimited(lua, || self.made(lua, place.value(), &|| Rc::clone(&place)))?;
        let made = made.unwrap_or(Item::Nil);
        table.raw_set(name, &made)?;
        Ok(made)
    }

    fn fill(&self, lua: &Lua, table: &Table) -> mlua::Result<()> {
        let partial = self.0.partial.borrow_mut().remove(&address(table));
        let Some(partial) = partial else {
            return Ok(());
        };
        table.set_metatable(None)?;
        let fields = partial.place.value().as_object().into_iter().flatten();
        unlimited(lua, || {
            for (name, value) in fields.filter(|(name, value)| waits(value) && partial.lacks(name))
            {
                let place = || {
                    Rc::new(Place::Field(
                        Rc::clone(&partial.place),
                        name.as_str().into(),
                    ))
                };
                table.raw_set(name.as_str(), self.made(lua, value, &place)?)?;
            }
            Ok(())
        })
    }

    /// `None` for null.
    fn made(
        &self,
        lua: &Lua,
        value: &Value,
        place: &dyn Fn() -> Rc<Place>,
    ) -> mlua::Result<Option<Item>> {
        Ok(Some(match value {
            Value::Null => return Ok(None),
            Value::Bool(value) => Item::Boolean(*value),
            Value::Number(number) => Item::Number(number.as_f64().unwrap_or_default()),
            Value::String(text) => Item::String(lua.create_string(text)?),
            Value::Array(items) => {
                let list = lua.create_table_with_capacity(items.len(), 0)?;
                let mut to = 1;
                for (at, item) in items.iter().enumerate() {
                    let place = || Rc::new(Place::Item(place(), at));
                    if let Some(item) = self.made(lua, item, &place)? {
                        list.raw_seti(to, item)?;
                        to += 1;
                    }
                }
                Item::Table(list)
            }
            Value::Object(fields) => {
                let table = lua.create_table_with_capacity(0, fields.len())?;
                let mut partial = false;
                for (name, value) in fields {
                    match value {
                        Value::Null => {}
                        value if waits(value) => partial = true,
                        Value::String(text) => table.raw_set(name.as_str(), text.as_str())?,
                        value => table.raw_set(name.as_str(), self.made(lua, value, place)?)?,
                    }
                }
                if partial {
                    table.set_metatable(self.kind())?;
                    let partial = Partial {
                        _table: table.clone(),
                        place: place(),
                        taken: Vec::new(),
                    };
                    let mut all = self.0.partial.borrow_mut();
                    all.insert(address(&table), partial);
                }
                Item::Table(table)
            }
        }))
    }
}

/// What is given is limited by what the machine was given; without a limit it is made in
/// half the time.
fn unlimited<T>(lua: &Lua, work: impl FnOnce() -> mlua::Result<T>) -> mlua::Result<T> {
    let limit = lua.set_memory_limit(0)?;
    let made = work();
    lua.set_memory_limit(limit)?;
    made
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lua::convert::to_json;
    use serde_json::json;

    /// What a script makes of an object, and how many of its tables are not filled then.
    fn told(body: &str) -> (Value, usize) {
        let lua = Lua::new();
        let given = Given::install(&lua).unwrap();
        let object = json!({"kind": "A", "spec": {"n": 1, "list": [{"m": {"x": "y"}}, null, 2], "m": {"k": "v"}}, "status": {}});
        let item = given.item(&lua, &Arc::new(object)).unwrap();
        let found: Item = lua
            .load(format!("local t = ... {body}"))
            .call(item)
            .unwrap();
        let found = to_json(&given, found).unwrap().unwrap_or_default();
        let partial = given.0.partial.borrow().len();
        (found, partial)
    }

    // proves: LUA-given
    #[test]
    fn tables_are_filled_when_they_are_looked_at_and_nobody_can_tell() {
        let whole = json!({"kind": "A", "spec": {"n": 1, "list": [{"m": {"x": "y"}}, 2], "m": {"k": "v"}}, "status": []});
        let with = |pointer: &str, value: Value| {
            let mut all = whole.clone();
            *all.pointer_mut(pointer).unwrap() = value;
            all
        };
        for (body, expected, partial) in [
            ("return t", whole.clone(), 1),
            ("return {t.spec.n, t.spec.m.k}", json!([1, "v"]), 2),
            (
                "return t.spec.list[1].m == t.spec.list[1].m",
                json!(true),
                3,
            ),
            ("t.spec = nil return t.spec == nil", json!(true), 1),
            (
                "t.spec.m = nil return {t.spec.m == nil, t.spec}",
                json!([true, {"n": 1, "list": whole["spec"]["list"]}]),
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
            ("return t.spec.list", whole["spec"]["list"].clone(), 3),
            ("return {#t.spec.list, t.spec.list[2]}", json!([2, 2]), 3),
        ] {
            assert_eq!(told(body), (expected, partial), "{body}");
        }
    }
}
