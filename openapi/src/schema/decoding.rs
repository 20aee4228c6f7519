//! Finds the value that Go's decoder would reject: typed kinds answer 400 with this error
//! when a value has the wrong JSON type, before any validation.
//!
//! Texts are those of `sigs.k8s.io/json` and `apimachinery/pkg/api/resource`. Depth is
//! bounded.

use machinery::Quantity;
use serde_json::Value;

use super::validation::QUANTITY;
use super::{MAX_DEPTH, formats};
use crate::model::{DefId, Definitions, Node, Type};

pub(super) struct Decoding<'a> {
    definitions: &'a Definitions,
    /// The Go struct that contains the current field.
    holder: &'a str,
    /// Field names from the root; like Go, without list indexes and map keys.
    fields: Vec<&'a str>,
}

impl<'a> Decoding<'a> {
    pub(super) fn new(definitions: &'a Definitions) -> Self {
        Self {
            definitions,
            holder: "",
            fields: Vec::new(),
        }
    }

    /// The first error in document order.
    pub(super) fn complaint(
        &mut self,
        node: &'a Node,
        value: &Value,
        depth: usize,
    ) -> Option<String> {
        if depth > MAX_DEPTH {
            return Some("exceeded max depth".to_owned());
        }
        match (&node.ty, value) {
            // Go treats null as absent.
            (_, Value::Null) | (Type::Any, _) | (Type::Object, Value::Object(_)) => None,
            (Type::Ref(id), Value::Object(map)) => map.iter().find_map(|(name, child)| {
                let definitions = self.definitions;
                let definition = definitions.get(*id);
                let field = definition.field(name)?;
                let parent = std::mem::replace(&mut self.holder, struct_name(&definition.name));
                self.fields.push(&field.name);
                let found = self.complaint(&field.node, child, depth + 1);
                self.fields.pop();
                self.holder = parent;
                found
            }),
            (Type::Map(of), Value::Object(map)) => map
                .values()
                .find_map(|child| self.complaint(of, child, depth + 1)),
            (Type::Array(of), Value::Array(items)) => items
                .iter()
                .find_map(|child| self.complaint(of, child, depth + 1)),
            (Type::Quantity, _) => {
                let fits = Quantity::from_value(value).is_ok();
                (!fits).then(|| QUANTITY.to_owned())
            }
            (Type::IntOrString, Value::String(_)) => None,
            (Type::IntOrString, _) if whole(value, i32::MIN.into(), i32::MAX.into()) => None,
            (Type::IntOrString, _) => Some(format!(
                "json: cannot unmarshal {} into Go value of type int32",
                told(value)
            )),
            (Type::Bytes, Value::String(text)) => formats::base64_fault(text)
                .map(|at| format!("illegal base64 data at input byte {at}")),
            (Type::Time | Type::MicroTime, Value::String(text)) => time_fault(text),
            (Type::Duration, Value::String(text)) if !formats::is_duration(text) => {
                Some(format!("time: invalid duration {text:?}"))
            }
            _ if fits(&node.ty, value) => None,
            _ => Some(format!(
                "json: cannot unmarshal {} into Go struct field {}.{} of type {}",
                told(value),
                self.holder,
                self.fields.join("."),
                self.go_type(&node.ty)
            )),
        }
    }

    fn go_type(&self, ty: &Type) -> String {
        match ty {
            Type::Int32 => "int32".into(),
            Type::Int64 => "int64".into(),
            Type::Bool => "bool".into(),
            Type::Number => "float64".into(),
            Type::Bytes => "[]uint8".into(),
            Type::Object | Type::Any => "map[string]interface {}".into(),
            Type::Array(of) => format!("[]{}", self.go_type(&of.ty)),
            Type::Map(of) => format!("map[string]{}", self.go_type(&of.ty)),
            Type::Ref(id) => self.go_struct(*id),
            Type::String
            | Type::Time
            | Type::MicroTime
            | Type::Duration
            | Type::Quantity
            | Type::IntOrString => "string".into(),
        }
    }

    /// `v1.Container` for `io.k8s.api.core.v1.Container`.
    fn go_struct(&self, id: DefId) -> String {
        let name = &*self.definitions.get(id).name;
        let start = name.rmatch_indices('.').nth(1).map_or(0, |(at, _)| at + 1);
        name[start..].to_owned()
    }
}

fn time_fault(text: &str) -> Option<String> {
    machinery::time::parse(text).err().map(|_| {
        format!(
            "parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?} as \"2006\""
        )
    })
}

fn struct_name(definition: &str) -> &str {
    definition.rsplit('.').next().unwrap_or(definition)
}

fn whole(value: &Value, min: i64, max: i64) -> bool {
    value.as_i64().is_some_and(|n| (min..=max).contains(&n))
}

fn fits(ty: &Type, value: &Value) -> bool {
    match ty {
        Type::Int32 => whole(value, i32::MIN.into(), i32::MAX.into()),
        Type::Int64 => whole(value, i64::MIN, i64::MAX),
        Type::Bool => value.is_boolean(),
        Type::Number => value.is_number(),
        Type::String | Type::Time | Type::MicroTime | Type::Duration | Type::Bytes => {
            value.is_string()
        }
        _ => false,
    }
}

/// The JSON type as Go's error names it; a number that does not fit is given with its digits.
fn told(value: &Value) -> String {
    match value {
        Value::Number(n) if n.is_f64() || n.as_i64().is_none_or(|n| i32::try_from(n).is_err()) => {
            format!("number {n}")
        }
        Value::Null => "null".into(),
        Value::Number(_) => "number".into(),
        Value::Bool(_) => "bool".into(),
        Value::String(_) => "string".into(),
        Value::Array(_) => "array".into(),
        Value::Object(_) => "object".into(),
    }
}
