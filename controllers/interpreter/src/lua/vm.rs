//! One Lua VM: the globals that scripts see, and how a function of a script is called.
//!
//! The whole script runs for each call, in globals of its own, with the libraries that Karmada's
//! `luavm/lua.go` opens. So nothing that a script sets remains for the next call.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use machinery::{Gvk, Object};
use mlua::chunk::ChunkMode;
use mlua::{Function, Lua, LuaOptions, MultiValue, StdLib, Table, Value as Item, Variadic};
use serde_json::Value;

use super::flat_json::FlatJson;
use super::lazy_table::{AccessedPathCursor, LazyTables, without_memory_limit};
use super::limits::{LuaCallDeadline, LuaCallLimits};
use super::result_encoder::to_json;
use super::script::{LuaScript, ScriptHash};
use super::{LuaLimits, kube_library, ordered_tables};

/// The functions of the base library that scripts may use.
const BASE_FUNCTIONS: [&str; 13] = [
    "assert", "error", "ipairs", "next", "pairs", "pcall", "select", "tonumber", "tostring",
    "type", "unpack", "xpcall", "_VERSION",
];
/// Functions that are defined, but fail with the error that Karmada gives.
const FORBIDDEN_FUNCTIONS: [&str; 14] = [
    "collectgarbage",
    "dofile",
    "getfenv",
    "getmetatable",
    "load",
    "loadfile",
    "loadstring",
    "rawequal",
    "rawget",
    "rawset",
    "setfenv",
    "setmetatable",
    "module",
    "newproxy",
];
/// The other libraries, with the functions that scripts may use.
const LIBRARIES: [(&str, &[&str]); 4] = [
    (
        "table",
        &["concat", "getn", "insert", "maxn", "remove", "sort"],
    ),
    (
        "string",
        &[
            "byte", "char", "find", "format", "gmatch", "gsub", "len", "lower", "match", "rep",
            "reverse", "sub", "upper",
        ],
    ),
    (
        "math",
        &[
            "abs",
            "acos",
            "asin",
            "atan",
            "atan2",
            "ceil",
            "cos",
            "cosh",
            "deg",
            "exp",
            "floor",
            "fmod",
            "frexp",
            "huge",
            "ldexp",
            "log",
            "log10",
            "max",
            "min",
            "modf",
            "pi",
            "pow",
            "rad",
            "random",
            "randomseed",
            "sin",
            "sinh",
            "sqrt",
            "tan",
            "tanh",
        ],
    ),
    ("os", &["date", "time"]),
];

/// Maximum number of arguments of a function.
const MAX_ARGUMENTS: usize = 2;

/// The chunk name of the sources below in tracebacks.
const LIBRARY_CHUNK: &str = "library";
/// Bounds pattern matching: one step of a match may cost text length times pattern length, and the
/// VM cannot interrupt it.
const PATTERN_GUARD_SOURCE: &str = "
local lengthy = ...
local function guarded(search)
    return function(text, pattern, ...)
        if type(text) == 'string' and type(pattern) == 'string' and #text * #pattern > 2^18 then
            if #text * #pattern > 2^26 then
                error('the pattern is too long for a text of this length', 2)
            end
            lengthy()
        end
        return search(text, pattern, ...)
    end
end
for _, name in ipairs({'find', 'gmatch', 'gsub', 'match'}) do
    string[name] = guarded(string[name])
end";

/// Why a script has no result.
#[derive(Debug, PartialEq)]
pub(super) enum LuaFailure {
    /// The script raised an error.
    Script(String),
    Deadline,
    Memory,
}

impl From<String> for LuaFailure {
    fn from(why: String) -> Self {
        Self::Script(why)
    }
}

/// An argument of a function.
#[derive(Clone, Debug)]
pub(crate) enum LuaArg {
    /// With its kind, because objects from a list may lack it.
    Object(Object, Gvk),
    Json(Arc<FlatJson>),
    Count(i64),
}

impl LuaArg {
    pub(crate) fn from_value(tree: &Value) -> Self {
        Self::Json(Arc::new(FlatJson::from_value(tree)))
    }

    fn to_lua(
        &self,
        lua: &Lua,
        tables: &LazyTables,
        cursor: &AccessedPathCursor,
    ) -> mlua::Result<Item> {
        match self {
            Self::Object(object, kind) => {
                let json = FlatJson::from_object(&object.bytes(), kind);
                let json = json.map_err(mlua::Error::runtime)?;
                tables.to_lua(lua, &Arc::new(json), Some(cursor))
            }
            Self::Json(json) => tables.to_lua(lua, json, Some(cursor)),
            Self::Count(count) => Ok(Item::Number(*count as f64)),
        }
    }

    pub(super) fn approximate_bytes(&self) -> usize {
        match self {
            Self::Object(object, _) => object.encoded_len(),
            Self::Json(json) => json.approximate_bytes(),
            Self::Count(_) => 0,
        }
    }
}

/// A script that is loaded into the VM.
#[derive(Clone)]
struct LoadedScript {
    main: Function,
    /// The paths that it accessed in each argument.
    accessed_paths: Rc<[AccessedPathCursor; MAX_ARGUMENTS]>,
}

/// A VM and the scripts loaded into it.
pub(super) struct LuaVm {
    lua: Lua,
    tables: LazyTables,
    /// The globals of every script.
    base: Table,
    /// `table.clone`.
    clone_table: Function,
    reseed: Function,
    deadline: Rc<LuaCallDeadline>,
    scripts: HashMap<ScriptHash, LoadedScript>,
}

/// Adds the allowed functions of the libraries to the globals, read-only; returns `math.randomseed`.
fn add_libraries(lua: &Lua, base: &Table) -> mlua::Result<Function> {
    let mut reseed = None;
    for (name, allowed) in LIBRARIES {
        let library: Table = lua.globals().raw_get(name)?;
        retain_functions(&library, allowed)?;
        match name {
            "math" => {
                let modulo = lua.load("local a, b = ... return a % b").into_function()?;
                library.raw_set("mod", modulo)?;
                reseed = Some(library.raw_get::<Function>("randomseed")?);
            }
            "string" => {
                library.raw_set("dump", unsupported_function(lua, "string.dump")?)?;
                let older = library.raw_get::<Function>("gmatch")?;
                library.raw_set("gfind", older)?;
            }
            _ => {}
        }
        library.set_readonly(true);
        base.raw_set(name, library)?;
    }
    reseed.ok_or_else(|| mlua::Error::runtime("there is no math library"))
}

impl LuaVm {
    pub(super) fn new() -> mlua::Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::OS;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        let globals = lua.globals();
        // Safe for the sources of this crate, which replace no builtin; lets Luau call builtins directly.
        globals.set_safeenv(true);
        let base = lua.create_table()?;
        for name in BASE_FUNCTIONS {
            base.raw_set(name, globals.raw_get::<Item>(name)?)?;
        }
        base.raw_set("_VERSION", "Lua 5.1")?;
        for name in FORBIDDEN_FUNCTIONS {
            base.raw_set(name, forbidden_function(&lua, name)?)?;
        }
        // Output of `print` is discarded.
        base.raw_set("print", lua.create_function(|_, _: Variadic<Item>| Ok(()))?)?;
        let tables = LazyTables::install(&lua)?;
        ordered_tables::install(&lua, &base, &tables)?;
        let copy = globals.raw_get::<Table>("table")?.raw_get("clone")?;
        let watch = Rc::new(LuaCallDeadline::default());
        let deadline = Rc::clone(&watch);
        let lengthy = lua.create_function(move |_, ()| deadline.abort_inline_call())?;
        let guard = lua
            .load(PATTERN_GUARD_SOURCE)
            .set_name(format!("={LIBRARY_CHUNK}"));
        guard.call::<()>(lengthy)?;
        let reseed = add_libraries(&lua, &base)?;
        // Reserves the entry; each copy of the globals sets it to itself.
        base.raw_set("_G", false)?;
        base.raw_set("require", kube_library::require(&lua, &tables, &watch)?)?;
        let ticking = Rc::clone(&watch);
        lua.set_interrupt(move |_| ticking.on_interrupt());
        Ok(Self {
            reseed,
            lua,
            tables,
            base,
            clone_table: copy,
            deadline: watch,
            scripts: HashMap::new(),
        })
    }

    /// Calls a function of a script. Returns its first two results, `None` for nil.
    pub(super) fn call_function(
        &mut self,
        script: &LuaScript,
        function: &str,
        args: &[LuaArg],
        bounds: LuaCallLimits,
    ) -> Result<[Option<Value>; 2], LuaFailure> {
        let LoadedScript {
            main,
            accessed_paths: accesses,
        } = self.load(script)?;
        let mut arguments = MultiValue::with_capacity(args.len());
        for (arg, cursor) in args.iter().zip(&*accesses) {
            let item = arg.to_lua(&self.lua, &self.tables, cursor);
            arguments.push_back(item.map_err(to_failure)?);
        }
        let weight: usize = args.iter().map(LuaArg::approximate_bytes).sum();
        let globals = self.new_globals(script, &main).map_err(to_failure)?;
        let returned: MultiValue = self.run_limited(weight, bounds, || {
            self.find_function(&globals, &main, function)?
                .call(arguments)
        })?;
        let mut returned = returned.into_iter();
        let mut next = || {
            to_json(
                &self.tables,
                returned.next().unwrap_or(Item::Nil),
                bounds.result_limits,
            )
        };
        let results = [next()?, next()?];
        self.tables.clear();
        Ok(results)
    }

    /// Checks that a script defines a function; the error says why it does not.
    pub(super) fn check_function(
        &mut self,
        script: &LuaScript,
        function: &str,
        limits: LuaLimits,
    ) -> Result<(), LuaFailure> {
        let main = self.load(script)?.main;
        let globals = self.new_globals(script, &main).map_err(to_failure)?;
        self.run_limited(0, LuaCallLimits::full(limits), || {
            self.find_function(&globals, &main, function).map(drop)
        })
    }

    fn load(&mut self, script: &LuaScript) -> Result<LoadedScript, LuaFailure> {
        if let Some(loaded) = self.scripts.get(script.hash()) {
            return Ok(loaded.clone());
        }
        let chunk = self.lua.load(script.bytecode()?);
        let chunk = chunk.set_name("=script").set_mode(ChunkMode::Binary);
        let loaded = LoadedScript {
            main: chunk.into_function().map_err(to_failure)?,
            accessed_paths: Rc::default(),
        };
        self.scripts.insert(*script.hash(), loaded.clone());
        Ok(loaded)
    }

    /// Runs `run` with the limits of a call. They apply to the script only; arguments and results
    /// have limits of their own.
    fn run_limited<T>(
        &self,
        weight: usize,
        bounds: LuaCallLimits,
        run: impl FnOnce() -> mlua::Result<T>,
    ) -> Result<T, LuaFailure> {
        let limit = |bytes| self.lua.set_memory_limit(bytes).map_err(to_failure);
        let LuaLimits {
            memory,
            memory_per_argument_byte: per_byte,
            ..
        } = bounds.limits;
        limit(self.lua.used_memory() + memory + per_byte * weight)?;
        self.deadline.start(bounds);
        let outcome = run();
        let expired = self.deadline.finish();
        limit(0)?;
        outcome.map_err(|error| {
            if expired {
                LuaFailure::Deadline
            } else {
                to_failure(error)
            }
        })
    }

    /// New globals for a call of a script.
    fn new_globals(&self, script: &LuaScript, main: &Function) -> mlua::Result<Table> {
        // A copy, not a metatable with `__index`: a script may set a global to nil.
        let globals: Table = self.clone_table.call(&self.base)?;
        globals.raw_set("_G", &globals)?;
        main.set_environment(globals.clone())?;
        if script.may_use_random() {
            self.reseed.call::<()>(0)?;
        }
        Ok(globals)
    }

    /// Runs the script, which defines its functions, and returns one of them.
    fn find_function(
        &self,
        globals: &Table,
        main: &Function,
        function: &str,
    ) -> mlua::Result<Function> {
        main.call::<()>(())?;
        match without_memory_limit(&self.lua, || globals.raw_get(function))? {
            Item::Function(function) => Ok(function),
            Item::Nil => Err(mlua::Error::runtime(format!(
                "not found function {function}"
            ))),
            other => Err(mlua::Error::runtime(format!(
                "{function} is not a function: {}",
                other.type_name()
            ))),
        }
    }
}

fn forbidden_function(lua: &Lua, name: &'static str) -> mlua::Result<Function> {
    lua.create_function(move |_, _: Variadic<Item>| -> mlua::Result<()> {
        Err(mlua::Error::runtime(format!(
            "call function {name} is not supported in karmada customized resourceinterpreter."
        )))
    })
}

fn unsupported_function(lua: &Lua, name: &'static str) -> mlua::Result<Function> {
    lua.create_function(move |_, _: Variadic<Item>| -> mlua::Result<()> {
        Err(mlua::Error::runtime(format!("{name} is not supported")))
    })
}

/// Removes all other functions from a library.
fn retain_functions(library: &Table, allowed: &[&str]) -> mlua::Result<()> {
    let mut others = Vec::new();
    for entry in library.pairs::<String, Item>() {
        let (name, _) = entry?;
        if !allowed.contains(&name.as_str()) {
            others.push(name);
        }
    }
    for name in others {
        library.raw_set(name, Item::Nil)?;
    }
    Ok(())
}

/// An error without its traceback.
fn to_failure(error: mlua::Error) -> LuaFailure {
    match error {
        mlua::Error::MemoryError(_) => LuaFailure::Memory,
        mlua::Error::CallbackError { cause, traceback } => match to_failure((*cause).clone()) {
            LuaFailure::Script(text) => LuaFailure::Script(with_script_line(&text, &traceback)),
            other => other,
        },
        mlua::Error::RuntimeError(text) => {
            let (text, trace) = text.split_once("\nstack traceback:").unwrap_or((&text, ""));
            LuaFailure::Script(match text.strip_prefix(LIBRARY_CHUNK) {
                // A line in the library means nothing to the author of the script.
                Some(rest) => {
                    with_script_line(rest.split_once(": ").map_or(rest, |(_, text)| text), trace)
                }
                None => text.to_owned(),
            })
        }
        other => LuaFailure::Script(other.to_string()),
    }
}

/// An error raised outside the script, prefixed with the line of the script that made the call.
fn with_script_line(text: &str, trace: &str) -> String {
    const SCRIPT: &str = "script:";
    let line = trace.split_once(SCRIPT).map(|(_, rest)| {
        let end = rest.find(|c: char| !c.is_ascii_digit());
        &rest[..end.unwrap_or(rest.len())]
    });
    match line {
        Some(line) if !text.starts_with(SCRIPT) => format!("{SCRIPT}{line}: {text}"),
        _ => text.to_owned(),
    }
}
