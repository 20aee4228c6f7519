//! Makes `pairs` and `next` go through the fields of a table in the order in which they were set.
//!
//! source ──[`rewrite_tables`]──► source whose tables record the order ──► `pairs` and `next` of [`install`]
//!
//! In gopher-lua, which Karmada uses, `pairs` goes through the fields in the order in which a script
//! set them, so the lists that scripts build from them have a stable order; Luau's tables record no
//! order. Arguments have no order in Karmada either. Only scripts that mention `pairs` are rewritten:
//! each `{ … }` in them becomes a call of [`ORDERED_TABLE_FUNCTION`].

use std::borrow::Cow;

use mlua::{Function, Lua, Table};

use super::lazy_table::LazyTables;

/// The global function that makes a table record the order of its fields.
const ORDERED_TABLE_FUNCTION: &str = "__keep";

/// The metatable of an ordered table lists the fields in order. A field that was removed and set
/// again is listed more than once until `clean` removes the repetitions; `order.clean` is the length
/// after the last time. `order.last` is where `next` was last. Luau calls builtins fastest by their
/// own names.
const LIBRARY_SOURCE: &str = r##"
local lazy, fill = ...
local next, error, clone = next, error, table.clone

local remembering = table.create(4)
remembering.clean, remembering.last = 0, 0
remembering.__newindex = function(t, field, value)
  if field == nil then error("table index is nil", 2) end
  if field ~= field then error("table index is NaN", 2) end
  rawset(t, field, value)
  if value ~= nil and type(field) ~= "number" then
    local order = getmetatable(t)
    order[#order + 1] = field
  end
end

local function fields(t)
  local count = 0
  for field in next, t do
    if type(field) ~= "number" then count = count + 1 end
  end
  return count
end

local function keep(t, ...)
  local order = clone(remembering)
  for at = 1, select("#", ...) do
    local field = select(at, ...)
    if rawget(t, field) ~= nil then order[#order + 1] = field end
  end
  if fields(t) > #order then
    for field in next, t do
      if type(field) ~= "number" then order[#order + 1] = field end
    end
  end
  return setmetatable(t, order)
end

local function clean(t, order)
  local count = #order
  if order.clean == count then return end
  if fields(t) ~= count then
    local known, to = {}, 0
    for at = 1, count do
      local field = order[at]
      if not known[field] then
        known[field] = true
        to = to + 1
        order[to] = field
      end
    end
    for at = count, to + 1, -1 do order[at] = nil end
    count = to
  end
  order.clean = count
end

local function number_after(t, field)
  local value
  repeat
    field, value = next(t, field)
  until field == nil or type(field) == "number"
  return field, value
end

local function field_after(t, order, at)
  repeat
    at = at + 1
    local field = order[at]
    if field == nil then return nil end
    local value = rawget(t, field)
    if value ~= nil then return field, value, at end
  until false
end

local function place(order, field)
  if order[order.last] == field then return order.last end
  for at = 1, #order do
    if order[at] == field then return at end
  end
  error("invalid key to 'next'", 3)
end

local function order_of(t, name)
  if type(t) ~= "table" then
    error("invalid argument #1 to '" .. name .. "' (table expected, got " .. type(t) .. ")", 3)
  end
  local order = getmetatable(t)
  if order == lazy then
    fill(t)
    return nil
  end
  if order ~= nil then clean(t, order) end
  return order
end

local function step(t, field)
  local order = order_of(t, "next")
  if order == nil then return next(t, field) end
  local at, value = 0, nil
  if field == nil or type(field) == "number" then
    field, value = number_after(t, field)
    if field ~= nil then return field, value end
  else
    at = place(order, field)
  end
  field, value, order.last = field_after(t, order, at)
  return field, value
end

local function pairs(t)
  local order = order_of(t, "pairs")
  if order == nil then return next, t, nil end
  local at = nil
  return function(_, field)
    local value
    if at == nil then
      field, value = number_after(t, field)
      if field ~= nil then return field, value end
      at = 0
    end
    field, value, at = field_after(t, order, at)
    return field, value
  end, t, nil
end

return keep, step, pairs
"##;

/// Installs the library in the globals that scripts see.
pub(super) fn install(lua: &Lua, base: &Table, tables: &LazyTables) -> mlua::Result<()> {
    let library = lua.load(LIBRARY_SOURCE).set_name("=pairs");
    let (keep, next, pairs): (Function, Function, Function) =
        library.call((tables.metatable(), tables.fill_function(lua)?))?;
    base.raw_set(ORDERED_TABLE_FUNCTION, keep)?;
    base.raw_set("next", next)?;
    base.raw_set("pairs", pairs)
}

/// Rewrites the tables of a script that mentions `pairs`. Line numbers do not change.
pub(super) fn rewrite_tables(source: &str) -> Cow<'_, str> {
    let Some(tokens) = tokenize(source) else {
        return source.into();
    };
    if !tokens.iter().any(|token| token.text == "pairs") {
        return source.into();
    }
    let mut insertions = insertions(&tokens);
    insertions.sort_by_key(|(at, _)| *at);
    let mut rewritten = String::with_capacity(source.len() + 16 * insertions.len());
    let mut done = 0;
    for (at, text) in insertions {
        rewritten.push_str(&source[done..at]);
        rewritten.push_str(&text);
        done = at;
    }
    rewritten.push_str(&source[done..]);
    rewritten.into()
}

#[derive(Clone, Copy, PartialEq)]
enum LuaTokenKind {
    Name,
    StringLiteral,
    Symbol,
}

#[derive(Clone, Copy)]
struct LuaToken<'a> {
    kind: LuaTokenKind,
    text: &'a str,
    at: usize,
}

impl LuaToken<'_> {
    fn end(&self) -> usize {
        self.at + self.text.len()
    }

    /// Whether a table constructor that follows is the argument of a call.
    fn is_callable(&self) -> bool {
        match self.kind {
            LuaTokenKind::Name => !LUA_KEYWORDS.contains(&self.text),
            LuaTokenKind::StringLiteral => true,
            LuaTokenKind::Symbol => matches!(self.text, ")" | "]" | "}"),
        }
    }
}

const LUA_KEYWORDS: [&str; 21] = [
    "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in", "local",
    "nil", "not", "or", "repeat", "return", "then", "true", "until", "while",
];

/// An open bracket; for a table, with the fields that its constructor names.
struct OpenBracket<'a> {
    symbol: &'a str,
    is_argument: bool,
    fields: Vec<Cow<'a, str>>,
}

/// The texts to insert, and their byte offsets.
fn insertions(tokens: &[LuaToken<'_>]) -> Vec<(usize, String)> {
    let mut insertions = Vec::new();
    let mut open: Vec<OpenBracket<'_>> = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        if token.kind != LuaTokenKind::Symbol {
            continue;
        }
        match token.text {
            "{" => {
                let before = at.checked_sub(1).map(|at| tokens[at]);
                let call = before.filter(LuaToken::is_callable);
                if let Some(before) = call {
                    insertions.push((before.end(), "(".to_owned()));
                }
                insertions.push((token.at, format!("{ORDERED_TABLE_FUNCTION}(")));
                open.push(OpenBracket {
                    symbol: token.text,
                    is_argument: call.is_some(),
                    fields: leading_field(&tokens[at + 1..]).into_iter().collect(),
                });
            }
            "(" | "[" => open.push(OpenBracket {
                symbol: token.text,
                is_argument: false,
                fields: Vec::new(),
            }),
            "," | ";" => {
                if let Some(table) = open.last_mut().filter(|open| open.symbol == "{") {
                    table.fields.extend(leading_field(&tokens[at + 1..]));
                }
            }
            ")" | "]" | "}" => {
                let Some(closed) = open.pop().filter(|open| open.symbol == "{") else {
                    continue;
                };
                let mut text = String::new();
                // A single field needs no order.
                if closed.fields.len() > 1 {
                    for field in &closed.fields {
                        text.push_str(", ");
                        text.push_str(field);
                    }
                }
                text.push_str(if closed.is_argument { "))" } else { ")" });
                insertions.push((token.end(), text));
            }
            _ => {}
        }
    }
    insertions
}

/// The name of the field that begins here, as a Lua expression.
fn leading_field<'a>(tokens: &[LuaToken<'a>]) -> Option<Cow<'a, str>> {
    match tokens {
        [name, equals, ..] if name.kind == LuaTokenKind::Name && equals.text == "=" => {
            Some(format!("\"{}\"", name.text).into())
        }
        [open, name, close, ..]
            if open.text == "["
                && name.kind == LuaTokenKind::StringLiteral
                && close.text == "]" =>
        {
            Some(name.text.into())
        }
        _ => None,
    }
}

/// The tokens of a script; `None` if it is not Lua.
fn tokenize(source: &str) -> Option<Vec<LuaToken<'_>>> {
    let bytes = source.as_bytes();
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let rest = &source[at..];
        let (kind, length) = match byte {
            b if b.is_ascii_whitespace() => {
                at += 1;
                continue;
            }
            b'-' if rest.starts_with("--") => {
                let line = || rest.find('\n').unwrap_or(rest.len());
                at += long_bracket_length(&rest[2..]).map_or_else(line, |length| length + 2);
                continue;
            }
            b'"' | b'\'' => (LuaTokenKind::StringLiteral, quoted_length(rest)?),
            b'[' => match long_bracket_length(rest) {
                Some(length) => (LuaTokenKind::StringLiteral, length),
                None => (LuaTokenKind::Symbol, 1),
            },
            b if b.is_ascii_alphabetic() || b == b'_' => (LuaTokenKind::Name, word_length(rest)),
            // As long as a word, so that the letters in a number are not taken for a name.
            b if b.is_ascii_digit() => (LuaTokenKind::Symbol, word_length(rest)),
            b'=' | b'~' | b'<' | b'>' if bytes.get(at + 1) == Some(&b'=') => {
                (LuaTokenKind::Symbol, 2)
            }
            b if b.is_ascii() => (LuaTokenKind::Symbol, 1),
            _ => return None,
        };
        let text = &source[at..at + length];
        tokens.push(LuaToken { kind, text, at });
        at += length;
    }
    Some(tokens)
}

fn word_length(text: &str) -> usize {
    let ends = |c: char| !c.is_ascii_alphanumeric() && c != '_';
    text.find(ends).unwrap_or(text.len())
}

/// The length of a quoted string.
fn quoted_length(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 1;
    while bytes.get(at)? != &bytes[0] {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    Some(at + 1)
}

/// The length of a string in long brackets, if one begins here.
fn long_bracket_length(text: &str) -> Option<usize> {
    let inner = text.strip_prefix('[')?;
    let level = inner.len() - inner.trim_start_matches('=').len();
    let content = inner[level..].strip_prefix('[')?;
    let end = format!("]{}]", "=".repeat(level));
    let length = content.find(&end)?;
    Some(level + 2 + length + end.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Sets, removes and iterates fields; returns the fields that each iteration visited.
    const DRIVER: &str = "
        local keep, pairs, next = ...
        return function(steps)
            local t, visited = keep({}), {}
            for _, step in ipairs(steps) do
                local field, what = step[1], step[2]
                if what == 0 then
                    t[field] = nil
                elseif what == 1 then
                    for k in pairs(t) do table.insert(visited, k) end
                    table.insert(visited, '|')
                elseif what == 2 then
                    local k = next(t)
                    while k ~= nil do
                        table.insert(visited, k)
                        k = next(t, k)
                    end
                    table.insert(visited, '|')
                else
                    t[field] = what
                end
            end
            return table.concat(visited)
        end";

    /// The model is gopher-lua: a field keeps the position at which it was first set.
    fn model(steps: &[(char, u8)]) -> String {
        let (mut order, mut live) = (Vec::<char>::new(), Vec::<char>::new());
        let mut visited = String::new();
        for (field, what) in steps {
            match what {
                0 => live.retain(|existing| existing != field),
                1 | 2 => {
                    visited.extend(order.iter().filter(|field| live.contains(field)));
                    visited.push('|');
                }
                _ => {
                    for all in [&mut order, &mut live] {
                        if !all.contains(field) {
                            all.push(*field);
                        }
                    }
                }
            }
        }
        visited
    }

    proptest! {
        #[test]
        fn fields_come_in_the_order_in_which_they_were_set(
            steps in vec((prop::char::range('a', 'f'), 0..6_u8), 0..40),
        ) {
            let lua = Lua::new();
            let tables = LazyTables::install(&lua).unwrap();
            let base = lua.create_table().unwrap();
            install(&lua, &base, &tables).unwrap();
            let library = [ORDERED_TABLE_FUNCTION, "pairs", "next"].map(|name| base.raw_get::<Function>(name).unwrap());
            let driver: Function = lua.load(DRIVER).call(mlua::Variadic::from_iter(library)).unwrap();
            let all = steps.iter().map(|(field, what)| {
                let step = lua.create_table().unwrap();
                step.raw_set(1, field.to_string()).unwrap();
                step.raw_set(2, *what).unwrap();
                step
            });
            let visited: String = driver.call(all.collect::<Vec<_>>()).unwrap();
            prop_assert_eq!(visited, model(&steps));
        }
    }

    #[test]
    fn table_constructors_are_rewritten_where_pairs_is_used() {
        for (source, expected) in [
            ("return {a = 1}", "return {a = 1}"),
            ("pairs({})", "pairs(__keep({}))"),
            (
                "pairs(t) return {b = 1, a = {x = 1}}",
                "pairs(t) return __keep({b = 1, a = __keep({x = 1})}, \"b\", \"a\")",
            ),
            (
                "pairs{1; ['x.y'] = 2, z = f(a, b), [1] = 3}",
                "pairs(__keep({1; ['x.y'] = 2, z = f(a, b), [1] = 3}, 'x.y', \"z\"))",
            ),
            (
                "pairs(t) f 'x' {} g[1]\n{} h{}{}",
                "pairs(t) f 'x'( __keep({})) g[1](\n__keep({})) h(__keep({}))(__keep({}))",
            ),
            (
                "pairs(t) -- {\n--[[ {\n{ ]] s = '{' .. \"\\\"{\" .. [==[{]]]==] a = b == {}",
                "pairs(t) -- {\n--[[ {\n{ ]] s = '{' .. \"\\\"{\" .. [==[{]]]==] a = b == __keep({})",
            ),
            (
                "-- pairs\nreturn {'pairs', ipairs}",
                "-- pairs\nreturn {'pairs', ipairs}",
            ),
            ("pairs(t) x = {'", "pairs(t) x = {'"),
        ] {
            assert_eq!(rewrite_tables(source), expected, "{source}");
        }
    }
}
