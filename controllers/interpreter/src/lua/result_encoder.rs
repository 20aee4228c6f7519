//! Converts the results of scripts to JSON.
//!
//! Lua cannot distinguish an empty list from an empty object, so every empty table becomes `[]`;
//! [`super::empty_tables`] corrects that. Follows gopher-json, which Karmada uses: integral numbers
//! become integers.

use mlua::{Table, Value as Item};
use serde_json::{Map, Number, Value};

use super::flat_json::{DecodedJsonNode, FlatJson, JsonNodeIndex};
use super::lazy_table::LazyTables;

const MIXED_KEYS_ERROR: &str = "cannot encode mixed or invalid key types";
/// Maximum nesting of a result: that of an object.
const MAX_RESULT_DEPTH: usize = machinery::json::MAX_OBJECT_DEPTH;

/// Limits the size of a result, in which one table may occur many times.
#[derive(Clone, Copy)]
pub(super) struct LuaResultLimits {
    /// Number of JSON values.
    pub(super) values: usize,
    /// Total bytes of all strings.
    pub(super) string_bytes: usize,
}

pub(super) const RESULT_LIMITS: LuaResultLimits = LuaResultLimits {
    values: 500_000,
    string_bytes: 32 << 20,
};

/// Encodes one result of a script; `None` for nil. The error says what cannot be encoded.
pub(super) fn to_json(
    tables: &LazyTables,
    item: Item,
    limits: LuaResultLimits,
) -> Result<Option<Value>, String> {
    ResultEncoder { tables, limits }.encode(item, 0)
}

/// Encodes a result while its limits last.
struct ResultEncoder<'a> {
    tables: &'a LazyTables,
    /// The remaining limits.
    limits: LuaResultLimits,
}

impl ResultEncoder<'_> {
    fn consume(&mut self, text: usize) -> Result<(), String> {
        let LuaResultLimits {
            values,
            string_bytes: left,
        } = self.limits;
        match (values.checked_sub(1), left.checked_sub(text)) {
            (Some(values), Some(text)) => {
                self.limits = LuaResultLimits {
                    values,
                    string_bytes: text,
                };
                Ok(())
            }
            _ => Err("the result is too large".into()),
        }
    }

    fn encode(&mut self, item: Item, depth: usize) -> Result<Option<Value>, String> {
        self.consume(0)?;
        Ok(Some(match item {
            Item::Nil => return Ok(None),
            Item::Boolean(value) => value.into(),
            Item::Integer(value) => value.into(),
            Item::Number(value) => encode_number(value)?,
            Item::String(text) => {
                self.consume(text.as_bytes().len())?;
                text.to_string_lossy().into()
            }
            Item::Table(table) => self.encode_table(&table, depth)?,
            other => return Err(format!("cannot encode {} to JSON", other.type_name())),
        }))
    }

    fn check_depth(&self, depth: usize) -> Result<(), String> {
        if depth >= MAX_RESULT_DEPTH {
            return Err("cannot encode recursively nested tables to JSON".into());
        }
        Ok(())
    }

    /// Encodes a part of an argument that the script returns without having accessed it.
    fn encode_unfilled(
        &mut self,
        json: &FlatJson,
        at: JsonNodeIndex,
        depth: usize,
    ) -> Result<Option<Value>, String> {
        self.consume(0)?;
        Ok(Some(match json.node(at) {
            DecodedJsonNode::Null => return Ok(None),
            DecodedJsonNode::Bool(value) => value.into(),
            DecodedJsonNode::Number(value) => encode_number(value)?,
            DecodedJsonNode::String(text) => {
                self.consume(text.len())?;
                text.into()
            }
            DecodedJsonNode::List => {
                self.check_depth(depth)?;
                let each = json
                    .items(at)
                    .filter_map(|item| self.encode_unfilled(json, item, depth + 1).transpose());
                Value::Array(each.collect::<Result<_, _>>()?)
            }
            DecodedJsonNode::Object => {
                self.check_depth(depth)?;
                let mut fields = Map::new();
                for (name, value) in json.fields(at) {
                    if let Some(value) = self.encode_unfilled(json, value, depth + 1)? {
                        self.consume(name.len())?;
                        fields.insert(name.to_owned(), value);
                    }
                }
                if fields.is_empty() {
                    Value::Array(Vec::new())
                } else {
                    Value::Object(fields)
                }
            }
        }))
    }

    fn encode_entry(
        &mut self,
        key: Item,
        value: Item,
        depth: usize,
        fields: &mut Map<String, Value>,
        items: &mut Vec<(i64, Value)>,
    ) -> Result<(), String> {
        let Some(value) = self.encode(value, depth)? else {
            return Ok(());
        };
        match key {
            Item::String(name) if items.is_empty() => {
                self.consume(name.as_bytes().len())?;
                fields.insert(name.to_string_lossy(), value);
            }
            Item::Integer(at) if fields.is_empty() => items.push((at, value)),
            _ => return Err(MIXED_KEYS_ERROR.into()),
        }
        Ok(())
    }

    fn encode_table(&mut self, table: &Table, depth: usize) -> Result<Value, String> {
        self.check_depth(depth)?;
        let mut fields = Map::new();
        let mut items: Vec<(i64, Value)> = Vec::new();
        let visited = table.for_each(|key: Item, value: Item| {
            self.encode_entry(key, value, depth + 1, &mut fields, &mut items)
                .map_err(mlua::Error::RuntimeError)
        });
        visited.map_err(|error| match error {
            mlua::Error::RuntimeError(reason) => reason,
            other => other.to_string(),
        })?;
        let tables = self.tables;
        tables.for_each_unfilled(table, |name, json, at| {
            if !items.is_empty() {
                return Err(MIXED_KEYS_ERROR.to_owned());
            }
            if let Some(value) = self.encode_unfilled(json, at, depth + 1)? {
                self.consume(name.len())?;
                fields.insert(name.to_owned(), value);
            }
            Ok(())
        })?;
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

fn encode_number(value: f64) -> Result<Value, String> {
    /// 2^63, the first integral number above `i64`.
    const END: f64 = 9_223_372_036_854_775_808.0;
    if value.fract() == 0.0 && (-END..END).contains(&value) {
        return Ok((value as i64).into());
    }
    let number = Number::from_f64(value);
    let number = number.ok_or_else(|| format!("{value} is not a valid JSON number"))?;
    Ok(number.into())
}
