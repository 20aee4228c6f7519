//! The Lua library `kube`: quantities, and what the native rules know about pod templates.
//!
//! Source: Karmada's `luavm/kube.go`.

use std::rc::Rc;
use std::sync::Arc;

use machinery::Quantity;
use mlua::{Error, Function, Lua, MultiValue, Result, Value as Item, Variadic};
use serde::Deserialize;
use serde_json::Value;

use super::empty_tables::prune_object;
use super::flat_json::FlatJson;
use super::lazy_table::{LazyTables, without_memory_limit};
use super::limits::LuaCallDeadline;
use super::result_encoder::to_json;
use crate::native::dependencies::pod_template_dependencies;
use crate::replica_requirements::{PodTemplateSpec, generate_replica_requirements};

const REQUIRE_SOURCE: &str = "
local kube, error, tostring = ..., error, tostring
return function(name)
  if name == 'kube' then return kube end
  error('module ' .. tostring(name) .. ' not found', 2)
end";

/// A function of the library.
type KubeLibraryFunction = fn(&Lua, &KubeLibraryContext, MultiValue) -> Result<Item>;

/// The state of the VM that the functions need.
#[derive(Clone)]
struct KubeLibraryContext {
    tables: LazyTables,
    deadline: Rc<LuaCallDeadline>,
}

/// The function `require`, which can load only this library.
pub(super) fn require(
    lua: &Lua,
    tables: &LazyTables,
    watch: &Rc<LuaCallDeadline>,
) -> Result<Function> {
    let library = lua.create_table()?;
    let functions: [(&str, KubeLibraryFunction); 4] = [
        ("resourceAdd", resource_add),
        ("accuratePodRequirements", accurate_pod_requirements),
        ("getPodDependencies", get_pod_dependencies),
        ("getResourceQuantity", get_resource_quantity),
    ];
    for (name, function) in functions {
        let host = KubeLibraryContext {
            tables: tables.clone(),
            deadline: Rc::clone(watch),
        };
        let entry = move |lua: &Lua, args| function(lua, &host, args);
        library.raw_set(name, lua.create_function(entry)?)?;
    }
    library.set_readonly(true);
    lua.load(REQUIRE_SOURCE).set_name("=library").call(library)
}

/// `resourceAdd`: the sum of quantities as a string; nil counts as zero.
fn resource_add(lua: &Lua, _: &KubeLibraryContext, args: MultiValue) -> Result<Item> {
    let mut sum: Option<Quantity> = None;
    for (at, arg) in (1..).zip(args) {
        let Some(more) = quantity_argument(at, "resourceAdd", arg)? else {
            continue;
        };
        sum = Some(sum.map_or(more, |sum| sum + more));
    }
    let text = sum.map_or_else(|| "0".to_owned(), |sum| sum.to_string());
    without_memory_limit(lua, || lua.create_string(text)).map(Item::String)
}

/// `getResourceQuantity`: a quantity as a number.
fn get_resource_quantity(_: &Lua, _: &KubeLibraryContext, args: MultiValue) -> Result<Item> {
    let arg = single_argument("getResourceQuantity", args)?;
    let amount = quantity_argument(1, "getResourceQuantity", arg)?;
    let amount = amount.unwrap_or_else(|| Quantity::from_units(0));
    if amount.is_negative() {
        return Err(Error::runtime(format!(
            "the resource quantity is negative: {amount}"
        )));
    }
    Ok(Item::Number(amount.milli_value() as f64 / 1000.0))
}

/// `accuratePodRequirements`: the requirements of one replica of a pod template; nil when it has
/// none.
fn accurate_pod_requirements(
    lua: &Lua,
    host: &KubeLibraryContext,
    args: MultiValue,
) -> Result<Item> {
    let template = table_argument(host, 1, single_argument("accuratePodRequirements", args)?)?;
    let template = PodTemplateSpec::deserialize(&template).map_err(Error::runtime)?;
    match generate_replica_requirements(&template.spec) {
        Some(requirements) => {
            host.tables
                .to_lua(lua, &Arc::new(FlatJson::from_value(&requirements)), None)
        }
        None => Ok(Item::Nil),
    }
}

/// `getPodDependencies`: the dependencies of a pod template in a namespace.
fn get_pod_dependencies(lua: &Lua, host: &KubeLibraryContext, args: MultiValue) -> Result<Item> {
    let args = Variadic::from_iter(args);
    let [template, namespace] = <[Item; 2]>::try_from(Vec::from(args))
        .map_err(|_| Error::runtime("getPodDependencies only accepts two argument"))?;
    let template = table_argument(host, 1, template)?;
    let namespace = match namespace {
        Item::Nil => "default".to_owned(),
        Item::String(text) => text.to_string_lossy(),
        Item::Integer(number) => number.to_string(),
        Item::Number(number) => number.to_string(),
        other => return Err(bad_argument(2, "string", &other)),
    };
    let dependencies = pod_template_dependencies(&template, &namespace);
    let dependencies = serde_json::to_value(dependencies).map_err(Error::runtime)?;
    host.tables
        .to_lua(lua, &Arc::new(FlatJson::from_value(&dependencies)), None)
}

fn single_argument(function: &str, args: MultiValue) -> Result<Item> {
    let mut args = args.into_iter();
    match (args.next(), args.next()) {
        (Some(arg), None) => Ok(arg),
        _ => Err(Error::runtime(format!(
            "{function} only accepts one argument"
        ))),
    }
}

fn table_argument(host: &KubeLibraryContext, at: usize, item: Item) -> Result<Value> {
    if !item.is_table() {
        return Err(bad_argument(at, "table", &item));
    }
    let json = to_json(&host.tables, item, host.deadline.result_limits());
    if json.is_err() {
        // It may be too large only for the limits of an inline call.
        host.deadline.abort_inline_call()?;
    }
    let json = json.map_err(Error::runtime)?;
    Ok(prune_object(json.unwrap_or_default(), &[]))
}

fn quantity_argument(at: usize, function: &str, item: Item) -> Result<Option<Quantity>> {
    match item {
        Item::Nil => Ok(None),
        Item::String(text) => {
            let bytes = text.as_bytes();
            let text = String::from_utf8_lossy(&bytes);
            let amount = Quantity::parse(&text);
            let amount =
                amount.map_err(|e| Error::runtime(format!("{function}: {text:?}: {e}")))?;
            Ok(Some(amount))
        }
        other => Err(bad_argument(at, "string", &other)),
    }
}

fn bad_argument(at: usize, expected: &str, got: &Item) -> Error {
    let got = got.type_name();
    Error::runtime(format!(
        "bad argument #{at} ({expected} expected, got {got})"
    ))
}
