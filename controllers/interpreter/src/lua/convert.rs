//! JSON to Lua and back.
//!
//! Enters: JSON, as bytes or as a tree; results of scripts. Leaves: Lua tables; JSON in
//! which every empty table is an empty list, for Lua cannot tell ([`super::empties`]
//! mends it). Follows gopher-lua and gopher-json, on which Karmada stands: null is
//! absent, in lists too; whole numbers come back as such.

use std::fmt;

use machinery::Object;
use mlua::{Lua, Table, Value as Item};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// How deep a result may be nested, as deep as JSON may be elsewhere.
const DEPTH: usize = 120;
/// How many values a result may have: one table may be in it many times.
const VALUES: usize = 500_000;
/// How long its texts may be together.
const TEXT: usize = 32 << 20;

/// A value for a script, out of bytes.
pub(super) fn of_object(lua: &Lua, object: &Object) -> mlua::Result<Item> {
    let mut from = serde_json::Deserializer::from_slice(object.bytes());
    top(lua, &mut from)
}

/// A value for a script, out of a tree.
pub(super) fn of_tree(lua: &Lua, tree: &Value) -> mlua::Result<Item> {
    top(lua, tree)
}

fn top<'de, D: Deserializer<'de>>(lua: &Lua, from: D) -> mlua::Result<Item> {
    let table = lua.create_table_with_capacity(1, 0)?;
    let slot = Slot {
        lua,
        table: &table,
        key: Key::Index(1),
    };
    slot.deserialize(from).map_err(mlua::Error::runtime)?;
    table.raw_get(1)
}

enum Key<'a> {
    Index(usize),
    Field(&'a str),
}

/// Where a value goes; tells whether there was one.
struct Slot<'a> {
    lua: &'a Lua,
    table: &'a Table,
    key: Key<'a>,
}

impl Slot<'_> {
    fn put<E: serde::de::Error>(&self, value: impl mlua::IntoLua) -> Result<bool, E> {
        let put = match self.key {
            Key::Index(at) => self.table.raw_seti(at, value),
            Key::Field(name) => self.table.raw_set(name, value),
        };
        put.map(|()| true).map_err(E::custom)
    }
}

impl<'de> DeserializeSeed<'de> for Slot<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<bool, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Slot<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<bool, E> {
        self.put(value)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<bool, E> {
        self.put(value as f64)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<bool, E> {
        self.put(value as f64)
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<bool, E> {
        self.put(value)
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<bool, E> {
        self.put(value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<bool, A::Error> {
        let room = from.size_hint().unwrap_or(0);
        let list = self.lua.create_table_with_capacity(room, 0);
        let list = list.map_err(A::Error::custom)?;
        let mut at = 1;
        while let Some(there) = from.next_element_seed(Slot {
            lua: self.lua,
            table: &list,
            key: Key::Index(at),
        })? {
            at += usize::from(there);
        }
        self.put(list)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<bool, A::Error> {
        let room = from.size_hint().unwrap_or(0);
        let map = self.lua.create_table_with_capacity(0, room);
        let map = map.map_err(A::Error::custom)?;
        while let Some(name) = from.next_key::<Name<'_>>()? {
            from.next_value_seed(Slot {
                lua: self.lua,
                table: &map,
                key: Key::Field(&name.0),
            })?;
        }
        self.put(map)
    }
}

/// A key, borrowed where it can be.
#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] std::borrow::Cow<'a, str>);

/// What a script has returned; `None` is nil. The error says what JSON cannot hold.
pub(super) fn to_json(item: Item) -> Result<Option<Value>, String> {
    Budget {
        values: VALUES,
        text: TEXT,
    }
    .json(item, 0)
}

struct Budget {
    values: usize,
    text: usize,
}

impl Budget {
    fn spend(&mut self, text: usize) -> Result<(), String> {
        match (self.values.checked_sub(1), self.text.checked_sub(text)) {
            (Some(values), Some(text)) => {
                (self.values, self.text) = (values, text);
                Ok(())
            }
            _ => Err("the result is too large".into()),
        }
    }

    fn json(&mut self, item: Item, depth: usize) -> Result<Option<Value>, String> {
        self.spend(0)?;
        Ok(Some(match item {
            Item::Nil => return Ok(None),
            Item::Boolean(value) => value.into(),
            Item::Integer(value) => value.into(),
            Item::Number(value) => number(value)?,
            Item::String(text) => {
                self.spend(text.as_bytes().len())?;
                text.to_string_lossy().into()
            }
            Item::Table(table) => self.table(&table, depth)?,
            other => return Err(format!("cannot encode {} to JSON", other.type_name())),
        }))
    }

    fn table(&mut self, table: &Table, depth: usize) -> Result<Value, String> {
        if depth >= DEPTH {
            return Err("cannot encode recursively nested tables to JSON".into());
        }
        let mut fields = Map::new();
        let mut items: Vec<(i64, Value)> = Vec::new();
        for entry in table.pairs::<Item, Item>() {
            let (key, value) = entry.map_err(|e| e.to_string())?;
            let Some(value) = self.json(value, depth + 1)? else {
                continue;
            };
            match key {
                Item::String(name) if items.is_empty() => {
                    self.spend(name.as_bytes().len())?;
                    fields.insert(name.to_string_lossy(), value);
                }
                Item::Integer(at) if fields.is_empty() => items.push((at, value)),
                _ => return Err("cannot encode mixed or invalid key types".into()),
            }
        }
        if !fields.is_empty() {
            return Ok(Value::Object(fields));
        }
        items.sort_by_key(|(at, _)| *at);
        if (1..).zip(&items).any(|(expected, (at, _))| expected != *at) {
            return Err("cannot encode sparse array".into());
        }
        Ok(items.into_iter().map(|(_, value)| value).collect())
    }
}

fn number(value: f64) -> Result<Value, String> {
    /// The first whole number that no integer holds.
    const END: f64 = 9_223_372_036_854_775_808.0;
    if value.fract() == 0.0 && (-END..END).contains(&value) {
        return Ok((value as i64).into());
    }
    let number = Number::from_f64(value);
    let number = number.ok_or_else(|| format!("{value} is no number of JSON"))?;
    Ok(number.into())
}

/// About how many bytes a tree would have as text.
pub(super) fn weight(tree: &Value) -> usize {
    match tree {
        Value::String(text) => text.len() + 3,
        Value::Array(items) => items.iter().map(|item| weight(item) + 1).sum(),
        Value::Object(fields) => {
            let each = fields.iter();
            each.map(|(name, value)| name.len() + 4 + weight(value))
                .sum()
        }
        _ => 6,
    }
}
