//! The Lua library `kube`: quantities, and what the native rules know about pod templates.
//!
//! Source: Karmada's `luavm/kube.go`.

use std::rc::Rc;
use std::sync::Arc;

use machinery::Quantity;
use mlua::{Error, Function, Lua, MultiValue, Result, Value as Item, Variadic};
use serde::Deserialize;
use serde_json::Value;

use super::bounds::Watch;
use super::convert::to_json;
use super::empties::mended;
use super::given::{Given, unlimited};
use super::tape::Tape;
use crate::dependencies::of_template;
use crate::requirements::{PodTemplate, requirements};

const REQUIRE: &str = "
local kube, error, tostring = ..., error, tostring
return function(name)
  if name == 'kube' then return kube end
  error('module ' .. tostring(name) .. ' not found', 2)
end";

/// A function of the library.
type Entry = fn(&Lua, &Host, MultiValue) -> Result<Item>;

/// The state of the VM that the functions need.
#[derive(Clone)]
struct Host {
    tables: Given,
    watch: Rc<Watch>,
}

/// The function `require`, which can load only this library.
pub(super) fn require(lua: &Lua, tables: &Given, watch: &Rc<Watch>) -> Result<Function> {
    let library = lua.create_table()?;
    let functions: [(&str, Entry); 4] = [
        ("resourceAdd", add),
        ("accuratePodRequirements", pod_requirements),
        ("getPodDependencies", pod_dependencies),
        ("getResourceQuantity", quantity_of),
    ];
    for (name, function) in functions {
        let host = Host {
            tables: tables.clone(),
            watch: Rc::clone(watch),
        };
        let entry = move |lua: &Lua, args| function(lua, &host, args);
        library.raw_set(name, lua.create_function(entry)?)?;
    }
    library.set_readonly(true);
    lua.load(REQUIRE).set_name("=library").call(library)
}

/// `resourceAdd`: the sum of quantities as a string; nil counts as zero.
fn add(lua: &Lua, _: &Host, args: MultiValue) -> Result<Item> {
    let mut sum: Option<Quantity> = None;
    for (at, arg) in (1..).zip(args) {
        let Some(more) = quantity(at, "resourceAdd", arg)? else {
            continue;
        };
        sum = Some(sum.map_or(more, |sum| sum + more));
    }
    let text = sum.map_or_else(|| "0".to_owned(), |sum| sum.to_string());
    unlimited(lua, || lua.create_string(text)).map(Item::String)
}

/// `getResourceQuantity`: a quantity as a number.
fn quantity_of(_: &Lua, _: &Host, args: MultiValue) -> Result<Item> {
    let arg = one("getResourceQuantity", args)?;
    let amount = quantity(1, "getResourceQuantity", arg)?;
    let amount = amount.unwrap_or_else(|| Quantity::from_units(0));
    if amount.is_negative() {
        return Err(Error::runtime(format!(
            "the resource quantity is negative: {amount}"
        )));
    }
    Ok(Item::Number(amount.milli() as f64 / 1000.0))
}

/// `accuratePodRequirements`: the requirements of one replica of a pod template; nil when it has
/// none.
fn pod_requirements(lua: &Lua, host: &Host, args: MultiValue) -> Result<Item> {
    let template = table(host, 1, one("accuratePodRequirements", args)?)?;
    let template = PodTemplate::deserialize(&template).map_err(Error::runtime)?;
    match requirements(&template.spec) {
        Some(found) => host.tables.item(lua, &Arc::new(Tape::of(&found)), None),
        None => Ok(Item::Nil),
    }
}

/// `getPodDependencies`: the dependencies of a pod template in a namespace.
fn pod_dependencies(lua: &Lua, host: &Host, args: MultiValue) -> Result<Item> {
    let args = Variadic::from_iter(args);
    let [template, namespace] = <[Item; 2]>::try_from(Vec::from(args))
        .map_err(|_| Error::runtime("getPodDependencies only accepts two argument"))?;
    let template = table(host, 1, template)?;
    let namespace = match namespace {
        Item::Nil => "default".to_owned(),
        Item::String(text) => text.to_string_lossy(),
        Item::Integer(number) => number.to_string(),
        Item::Number(number) => number.to_string(),
        other => return Err(bad(2, "string", &other)),
    };
    let found = of_template(&template, &namespace);
    let found = serde_json::to_value(found).map_err(Error::runtime)?;
    host.tables.item(lua, &Arc::new(Tape::of(&found)), None)
}

fn one(function: &str, args: MultiValue) -> Result<Item> {
    let mut args = args.into_iter();
    match (args.next(), args.next()) {
        (Some(arg), None) => Ok(arg),
        _ => Err(Error::runtime(format!(
            "{function} only accepts one argument"
        ))),
    }
}

fn table(host: &Host, at: usize, item: Item) -> Result<Value> {
    if !item.is_table() {
        return Err(bad(at, "table", &item));
    }
    let json = to_json(&host.tables, item, host.watch.room());
    if json.is_err() {
        // It may be too large only for the limits of an inline call.
        host.watch.lengthy()?;
    }
    let json = json.map_err(Error::runtime)?;
    Ok(mended(json.unwrap_or_default(), &[]))
}

fn quantity(at: usize, function: &str, item: Item) -> Result<Option<Quantity>> {
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
        other => Err(bad(at, "string", &other)),
    }
}

fn bad(at: usize, expected: &str, got: &Item) -> Error {
    let got = got.type_name();
    Error::runtime(format!(
        "bad argument #{at} ({expected} expected, got {got})"
    ))
}
