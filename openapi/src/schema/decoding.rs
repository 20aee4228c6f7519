//! Finds the value that Go's decoder would reject: typed kinds answer 400 with this error
//! when a value has the wrong JSON type, before any validation.
//!
//! Texts are those of `sigs.k8s.io/json` and `apimachinery/pkg/api/resource`. Depth is
//! bounded.

use machinery::bounded_text::{MAX_QUOTED_BYTES, truncated};
use machinery::{Quantity, duration};
use serde_json::Value;

use super::value_types::QUANTITY_FORMAT_ERROR;
use super::{MAX_DEPTH, Schema, formats};
use crate::model::{
    SchemaDefinition, SchemaDefinitionArena, SchemaDefinitionId, SchemaField, SchemaNode,
    SchemaType,
};
use crate::protobuf::{JsonSchemaUnion, json_schema_union};

impl Schema {
    /// The first error that Go's decoder would report, with its text. Meant for kinds that
    /// Kubernetes has as Go types; for other kinds use [`Self::validate`].
    pub fn decode_error(&self, value: &Value) -> Option<String> {
        GoDecodeChecker::new(&self.definitions).first_error(&self.root, value, 0)
    }
}

pub(super) struct GoDecodeChecker<'a> {
    definitions: &'a SchemaDefinitionArena,
    /// The Go struct that contains the current field.
    struct_name: &'a str,
    /// Field names from the root; like Go, without list indexes and map keys.
    field_path: Vec<&'a str>,
}

impl<'a> GoDecodeChecker<'a> {
    pub(super) fn new(definitions: &'a SchemaDefinitionArena) -> Self {
        Self {
            definitions,
            struct_name: "",
            field_path: Vec::new(),
        }
    }

    /// The first error in document order.
    pub(super) fn first_error(
        &mut self,
        node: &'a SchemaNode,
        value: &Value,
        depth: usize,
    ) -> Option<String> {
        if depth > MAX_DEPTH {
            return Some("exceeded max depth".to_owned());
        }
        match (&node.ty, value) {
            // Go treats null as absent.
            (_, Value::Null) | (SchemaType::Any, _) | (SchemaType::Object, Value::Object(_)) => {
                None
            }
            (SchemaType::Ref(id), Value::Object(map)) => {
                let definition = self.definitions.get(*id);
                map.iter().find_map(|(name, child)| {
                    let field = definition.field(name)?;
                    self.field_error(definition, field, child, depth)
                })
            }
            (SchemaType::Map(of), Value::Object(map)) => map
                .values()
                .find_map(|child| self.first_error(of, child, depth + 1)),
            (SchemaType::Array(of), Value::Array(items)) => items
                .iter()
                .find_map(|child| self.first_error(of, child, depth + 1)),
            (SchemaType::Quantity, _) => {
                let is_quantity = Quantity::from_value(value).is_ok();
                (!is_quantity).then(|| QUANTITY_FORMAT_ERROR.to_owned())
            }
            (SchemaType::IntOrString, Value::String(_)) => None,
            (SchemaType::IntOrString, _)
                if is_integer_in(value, i32::MIN.into(), i32::MAX.into()) =>
            {
                None
            }
            (SchemaType::Bytes, Value::Array(items)) if items.iter().all(is_byte) => None,
            (SchemaType::Bytes, Value::String(text)) => formats::base64_error_offset(text)
                .map(|offset| format!("illegal base64 data at input byte {offset}")),
            (SchemaType::Time, Value::String(text)) => time_error(text, "05Z07:00"),
            (SchemaType::MicroTime, Value::String(text)) => time_error(text, "05.000000Z07:00"),
            (SchemaType::Duration, Value::String(text)) if !duration::is_duration(text) => {
                let text = truncated(text, MAX_QUOTED_BYTES);
                Some(format!("time: invalid duration {text:?}"))
            }
            _ if has_json_type(&node.ty, value) => None,
            _ => Some(format!(
                "json: cannot unmarshal {} into Go struct field {}.{} of type {}",
                json_type_name(value, &node.ty),
                self.struct_name,
                self.field_path.join("."),
                self.go_type(&node.ty)
            )),
        }
    }

    fn field_error(
        &mut self,
        definition: &'a SchemaDefinition,
        field: &'a SchemaField,
        value: &Value,
        depth: usize,
    ) -> Option<String> {
        let is_schema_or_bool = json_schema_union(definition, field) == Some(JsonSchemaUnion::Bool);
        if is_schema_or_bool && !matches!(value, Value::Null | Value::Bool(_) | Value::Object(_)) {
            return Some("boolean or JSON schema expected".to_owned());
        }
        let parent = std::mem::replace(&mut self.struct_name, struct_name(&definition.name));
        self.field_path.push(&field.name);
        let error = self.first_error(&field.node, value, depth + 1);
        self.field_path.pop();
        self.struct_name = parent;
        error
    }

    fn go_type(&self, ty: &SchemaType) -> String {
        match ty {
            SchemaType::Int32 | SchemaType::IntOrString => "int32".into(),
            SchemaType::Int64 => "int64".into(),
            SchemaType::Bool => "bool".into(),
            SchemaType::Number => "float64".into(),
            SchemaType::Bytes => "[]uint8".into(),
            SchemaType::Object | SchemaType::Any => "map[string]interface {}".into(),
            SchemaType::Array(of) => format!("[]{}", self.go_type(&of.ty)),
            SchemaType::Map(of) => format!("map[string]{}", self.go_type(&of.ty)),
            SchemaType::Ref(id) => self.go_struct(*id),
            SchemaType::String
            | SchemaType::Time
            | SchemaType::MicroTime
            | SchemaType::Duration
            | SchemaType::Quantity => "string".into(),
        }
    }

    /// `v1.Container` for `io.k8s.api.core.v1.Container`.
    fn go_struct(&self, id: SchemaDefinitionId) -> String {
        let name = &*self.definitions.get(id).name;
        let start = name
            .rmatch_indices('.')
            .nth(1)
            .map_or(0, |(index, _)| index + 1);
        name[start..].to_owned()
    }
}

/// `seconds`: the end of Go's layout of the time.
fn time_error(text: &str, seconds: &str) -> Option<String> {
    machinery::time::parse(text).err().map(|_| {
        let text = truncated(text, MAX_QUOTED_BYTES);
        format!(
            "parsing time {text:?} as \"2006-01-02T15:04:{seconds}\": cannot parse {text:?} as \"2006\""
        )
    })
}

fn struct_name(definition: &str) -> &str {
    definition.rsplit('.').next().unwrap_or(definition)
}

fn is_integer_in(value: &Value, min: i64, max: i64) -> bool {
    value.as_i64().is_some_and(|n| (min..=max).contains(&n))
}

fn has_json_type(ty: &SchemaType, value: &Value) -> bool {
    match ty {
        SchemaType::Int32 => is_integer_in(value, i32::MIN.into(), i32::MAX.into()),
        SchemaType::Int64 => is_integer_in(value, i64::MIN, i64::MAX),
        SchemaType::Bool => value.is_boolean(),
        SchemaType::Number => value.is_number(),
        SchemaType::String
        | SchemaType::Time
        | SchemaType::MicroTime
        | SchemaType::Duration
        | SchemaType::Bytes => value.is_string(),
        _ => false,
    }
}

/// Whether this is an item of a list of bytes, which Go takes for base64 text.
fn is_byte(value: &Value) -> bool {
    is_integer_in(value, 0, u8::MAX.into())
}

/// The JSON type as Go's error names it; a number that does not fit a type of numbers is given
/// with its digits.
fn json_type_name(value: &Value, ty: &SchemaType) -> String {
    let takes_numbers = matches!(
        ty,
        SchemaType::Int32 | SchemaType::Int64 | SchemaType::Number | SchemaType::IntOrString
    );
    match value {
        Value::Number(n) if takes_numbers => format!("number {n}"),
        Value::Null => "null".into(),
        Value::Number(_) => "number".into(),
        Value::Bool(_) => "bool".into(),
        Value::String(_) => "string".into(),
        Value::Array(_) => "array".into(),
        Value::Object(_) => "object".into(),
    }
}
