//! Converts the arguments of scripts to Lua tables, field by field when the script accesses them.
//!
//! [`FlatJson`] ──► [`LazyTables`] ──► tables ──[`LazyTables::for_each_unfilled`]──► results of scripts
//!
//! A script accesses a small part of an object. So a field that holds an object or a list becomes a
//! table when it is first read, or at once if an earlier call of the script read it
//! ([`AccessedPathCursor`]). Scripts cannot observe the difference: metatables are not available to them,
//! and iteration fills a table first ([`super::ordered_tables`]). Null is absent, in lists too.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use mlua::{Either, Function, Lua, Table, Value as Item};

use super::flat_json::{DecodedJsonNode, FlatJson, JsonNodeIndex, ROOT_NODE};

/// Lua source of the metamethods. Their errors are those of plain tables.
const METAMETHODS_SOURCE: &str = "
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
const MAX_ACCESSED_PATHS: usize = 512;

/// A path that a script accessed in an earlier call; its value is converted at once. All elements
/// of a list share one path.
#[derive(Clone)]
pub(super) struct AccessedPathCursor {
    /// All accessed paths of this script and argument, as a tree; the root is first.
    nodes: Rc<RefCell<Vec<AccessedPathNode>>>,
    index: usize,
}

/// One accessed path.
#[derive(Default)]
struct AccessedPathNode {
    /// Whether the script iterated over all fields.
    iterated: bool,
    /// Accessed fields, by name, as indices into [`AccessedPathCursor::nodes`].
    fields: BTreeMap<Box<str>, usize>,
}

impl Default for AccessedPathCursor {
    /// The root of an argument.
    fn default() -> Self {
        Self {
            nodes: Rc::new(RefCell::new(vec![AccessedPathNode::default()])),
            index: 0,
        }
    }
}

impl AccessedPathCursor {
    /// The path of a field, if the script accessed it before.
    fn child(&self, name: &str) -> Option<Self> {
        let all = self.nodes.borrow();
        let node = all.get(self.index)?;
        let (at, iterated) = (node.fields.get(name).copied(), node.iterated);
        drop(all);
        match at {
            None if iterated => self.record_child(name),
            at => at.map(|at| self.path_at(at)),
        }
    }

    fn record_child(&self, name: &str) -> Option<Self> {
        let mut all = self.nodes.borrow_mut();
        let new = all.len();
        let node = all.get_mut(self.index)?;
        if let Some(at) = node.fields.get(name) {
            return Some(self.path_at(*at));
        }
        if new == MAX_ACCESSED_PATHS {
            return None;
        }
        node.fields.insert(name.into(), new);
        all.push(AccessedPathNode::default());
        Some(self.path_at(new))
    }

    fn record_iteration(&self) {
        if let Some(node) = self.nodes.borrow_mut().get_mut(self.index) {
            node.iterated = true;
        }
    }

    fn path_at(&self, at: usize) -> Self {
        let all = Rc::clone(&self.nodes);
        Self {
            nodes: all,
            index: at,
        }
    }
}

/// A table of which some fields are not converted yet.
pub(super) struct PartialLuaTable {
    /// Keeps the table alive, so that its address is not reused.
    _table: Table,
    json: Arc<FlatJson>,
    unfilled: Vec<JsonNodeIndex>,
    accessed_path: Option<AccessedPathCursor>,
}

/// The tables of one VM that are only partly filled.
#[derive(Clone, Default)]
pub(super) struct LazyTables(pub(super) Rc<VmLazyTablesState>);

#[derive(Default)]
pub(super) struct VmLazyTablesState {
    /// By the address of the table.
    pub(super) partial: RefCell<HashMap<usize, PartialLuaTable>>,
    metatable: RefCell<Option<Table>>,
}

fn table_address(table: &Table) -> usize {
    table.to_pointer() as usize
}

impl LazyTables {
    /// Creates the metatable. The VM must still have its full base library.
    pub(super) fn install(lua: &Lua) -> mlua::Result<Self> {
        let tables = Self::default();
        let kind = lua.create_table()?;
        let this = tables.clone();
        let load = move |lua: &Lua, (table, field): (Table, Item)| match field {
            Item::String(name) => this.load_field(lua, &table, &name),
            _ => Ok(Item::Nil),
        };
        kind.raw_set("__index", lua.create_function(load)?)?;
        let this = tables.clone();
        let note = move |_: &Lua, (table, field): (Table, Item)| {
            if let Item::String(name) = field {
                this.take_unfilled(&table, &name.to_string_lossy());
            }
            Ok(())
        };
        let note = lua.create_function(note)?;
        let library = lua.load(METAMETHODS_SOURCE).set_name("=given");
        library.call::<()>((&kind, note, tables.fill_function(lua)?))?;
        *tables.0.metatable.borrow_mut() = Some(kind);
        Ok(tables)
    }

    /// The metatable of partly filled tables.
    pub(super) fn metatable(&self) -> Option<Table> {
        self.0.metatable.borrow().clone()
    }

    /// A Lua function that fills a table.
    pub(super) fn fill_function(&self, lua: &Lua) -> mlua::Result<Function> {
        let this = self.clone();
        lua.create_function(move |lua, table: Table| this.fill(lua, &table))
    }

    /// Converts an argument; `cursor` has the paths that the script accessed in earlier calls.
    pub(super) fn to_lua(
        &self,
        lua: &Lua,
        json: &Arc<FlatJson>,
        cursor: Option<&AccessedPathCursor>,
    ) -> mlua::Result<Item> {
        self.convert(lua, json, ROOT_NODE, cursor)
    }

    /// Forgets all partly filled tables, after a call.
    pub(super) fn clear(&self) {
        self.0.partial.borrow_mut().clear();
    }

    /// Calls `each` for the fields of a table that the script did not access.
    pub(super) fn for_each_unfilled<E>(
        &self,
        table: &Table,
        mut each: impl FnMut(&str, &FlatJson, JsonNodeIndex) -> Result<(), E>,
    ) -> Result<(), E> {
        let all = self.0.partial.borrow();
        let Some(PartialLuaTable { json, unfilled, .. }) = all.get(&table_address(table)) else {
            return Ok(());
        };
        unfilled
            .iter()
            .try_for_each(|at| each(json.field_name(*at), json, *at))
    }

    /// Removes a field from the unfilled ones, because it is set now.
    fn take_unfilled(
        &self,
        table: &Table,
        name: &str,
    ) -> Option<(Arc<FlatJson>, JsonNodeIndex, Option<AccessedPathCursor>)> {
        let mut all = self.0.partial.borrow_mut();
        let PartialLuaTable {
            json,
            unfilled,
            accessed_path: cursor,
            ..
        } = all.get_mut(&table_address(table))?;
        let index = unfilled
            .iter()
            .position(|at| json.field_name(*at) == name)?;
        let at = unfilled.swap_remove(index);
        Some((Arc::clone(json), at, cursor.clone()))
    }

    fn load_field(&self, lua: &Lua, table: &Table, name: &mlua::LuaString) -> mlua::Result<Item> {
        let Ok(text) = name.to_str() else {
            return Ok(Item::Nil);
        };
        let Some((json, at, cursor)) = self.take_unfilled(table, &text) else {
            return Ok(Item::Nil);
        };
        let cursor = cursor.and_then(|cursor| cursor.record_child(&text));
        let value = without_memory_limit(lua, || self.convert(lua, &json, at, cursor.as_ref()))?;
        table.raw_set(name, &value)?;
        Ok(value)
    }

    fn fill(&self, lua: &Lua, table: &Table) -> mlua::Result<()> {
        let partial = self.0.partial.borrow_mut().remove(&table_address(table));
        let Some(PartialLuaTable {
            json,
            unfilled,
            accessed_path: cursor,
            ..
        }) = partial
        else {
            return Ok(());
        };
        if let Some(cursor) = &cursor {
            cursor.record_iteration();
        }
        table.set_metatable(None)?;
        without_memory_limit(lua, || {
            for at in unfilled {
                let name = json.field_name(at);
                let cursor = cursor.as_ref().and_then(|cursor| cursor.child(name));
                table.raw_set(name, self.convert(lua, &json, at, cursor.as_ref())?)?;
            }
            Ok(())
        })
    }

    fn convert(
        &self,
        lua: &Lua,
        json: &Arc<FlatJson>,
        at: JsonNodeIndex,
        cursor: Option<&AccessedPathCursor>,
    ) -> mlua::Result<Item> {
        Ok(match json.node(at) {
            DecodedJsonNode::Null => Item::Nil,
            DecodedJsonNode::Bool(value) => Item::Boolean(value),
            DecodedJsonNode::Number(value) => Item::Number(value),
            DecodedJsonNode::String(text) => Item::String(lua.create_string(text)?),
            DecodedJsonNode::List => {
                let items = json.items(at);
                let list = lua.create_table_with_capacity(items.len(), 0)?;
                let mut to = 1;
                for item in items {
                    let item = self.convert(lua, json, item, cursor)?;
                    if !item.is_nil() {
                        list.raw_seti(to, item)?;
                        to += 1;
                    }
                }
                Item::Table(list)
            }
            DecodedJsonNode::Object => Item::Table(self.convert_object(lua, json, at, cursor)?),
        })
    }

    fn convert_object(
        &self,
        lua: &Lua,
        json: &Arc<FlatJson>,
        at: JsonNodeIndex,
        cursor: Option<&AccessedPathCursor>,
    ) -> mlua::Result<Table> {
        let all = json.fields(at);
        let mut fields = Vec::with_capacity(all.len());
        let mut unfilled = Vec::new();
        for (name, value) in all {
            let field = match json.node(value) {
                DecodedJsonNode::Null => continue,
                DecodedJsonNode::String(text) => Either::Left(text),
                DecodedJsonNode::Bool(value) => Either::Right(Item::Boolean(value)),
                DecodedJsonNode::Number(value) => Either::Right(Item::Number(value)),
                DecodedJsonNode::List | DecodedJsonNode::Object => match cursor
                    .and_then(|cursor| cursor.child(name))
                {
                    Some(cursor) => Either::Right(self.convert(lua, json, value, Some(&cursor))?),
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
            table.set_metatable(self.metatable())?;
            let partial = PartialLuaTable {
                _table: table.clone(),
                json: Arc::clone(json),
                unfilled,
                accessed_path: cursor.cloned(),
            };
            let mut all = self.0.partial.borrow_mut();
            all.insert(table_address(&table), partial);
        }
        Ok(table)
    }
}

/// Runs `work` without the memory limit of the script. Converting arguments is bounded by the size
/// of the arguments, and takes half the time without the limit.
pub(super) fn without_memory_limit<T>(
    lua: &Lua,
    work: impl FnOnce() -> mlua::Result<T>,
) -> mlua::Result<T> {
    let limit = lua.set_memory_limit(0)?;
    let value = work();
    lua.set_memory_limit(limit)?;
    value
}
