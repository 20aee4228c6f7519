//! Validates a value against its type: wrong types, fields that the schema does not
//! declare, and list items that are not unique (`typed/validate.go`).

use std::collections::BTreeSet;
use std::fmt;

use machinery::go_format;
use serde_json::{Number, Value};

use crate::field_type::{FieldType, ListIdentity, ListMerge, MapMerge, ResolvedType, ScalarType};
use crate::list_item::item_element;
use crate::path_element::{PathElement, path_text};

/// Whether a list may have several items of one identity. Objects that were stored before
/// their schema named keys have them; they are an error in an applied configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuplicateItems {
    Allowed,
    Forbidden,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct TypedValueError {
    path: String,
    message: String,
}

/// The errors of a value, with their paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValidationErrors(Vec<TypedValueError>);

impl ValidationErrors {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn single(message: String) -> Self {
        let path = String::new();
        Self(vec![TypedValueError { path, message }])
    }
}

impl fmt::Display for TypedValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let colon = if self.path.is_empty() { "" } else { ": " };
        write!(f, "{}{colon}{}", self.path, self.message)
    }
}

impl fmt::Display for ValidationErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0[..] {
            [error] => error.fmt(f),
            errors => {
                f.write_str("errors:")?;
                errors.iter().try_for_each(|e| write!(f, "\n  {e}"))
            }
        }
    }
}

impl std::error::Error for ValidationErrors {}

/// Validates a value.
pub fn validate(
    field_type: FieldType<'_>,
    value: &Value,
    duplicates: DuplicateItems,
) -> Result<(), ValidationErrors> {
    let mut validator = TypeValidator {
        duplicates,
        path: Vec::new(),
        errors: Vec::new(),
    };
    validator.validate(field_type, value);
    match validator.errors.is_empty() {
        true => Ok(()),
        false => Err(ValidationErrors(validator.errors)),
    }
}

struct TypeValidator {
    duplicates: DuplicateItems,
    path: Vec<PathElement>,
    errors: Vec<TypedValueError>,
}

impl TypeValidator {
    fn report(&mut self, message: String) {
        self.errors.push(TypedValueError {
            path: path_text(&self.path),
            message,
        });
    }

    fn validate(&mut self, field_type: FieldType<'_>, value: &Value) {
        match (field_type.resolve(Some(value)), value) {
            (_, Value::Null) => {}
            (ResolvedType::Scalar(scalar), value) => {
                if let Some(message) = wrong_scalar(scalar, value) {
                    self.report(message);
                }
            }
            (ResolvedType::List(list), Value::Array(items)) => self.validate_items(&list, items),
            (ResolvedType::List(_), value) => {
                self.report(format!("expected list, got {}", pointer_text(value)))
            }
            (ResolvedType::Map(map), Value::Object(fields)) => self.validate_fields(&map, fields),
            (ResolvedType::Map(_), value) => {
                self.report(format!("expected map, got {}", pointer_text(value)))
            }
        }
    }

    fn validate_items(&mut self, list: &ListMerge<'_>, items: &[Value]) {
        let mut observed = BTreeSet::new();
        for (i, item) in items.iter().enumerate() {
            let element = match list.identity {
                ListIdentity::Atomic => PathElement::Index(i64::try_from(i).unwrap_or(i64::MAX)),
                _ => match item_element(list, item) {
                    Ok(element) => {
                        if observed.contains(&element)
                            && self.duplicates == DuplicateItems::Forbidden
                        {
                            self.report(format!("duplicate entries for key {element}"));
                        }
                        observed.insert(element.clone());
                        element
                    }
                    Err(detail) => {
                        // Without a path nothing below can be reported either.
                        self.report(format!("element {i}: {detail}"));
                        return;
                    }
                },
            };
            self.path.push(element);
            self.validate(list.item, item);
            self.path.pop();
        }
    }

    fn validate_fields(&mut self, map: &MapMerge<'_>, fields: &serde_json::Map<String, Value>) {
        for (name, value) in fields {
            self.path.push(PathElement::field(name));
            match map.field(name) {
                Some(field_type) => self.validate(field_type, value),
                None => self.report("field not declared in schema".into()),
            }
            self.path.pop();
        }
    }
}

/// Why a value is not the scalar, in the words of Kubernetes' library, which shows values as
/// Go does.
fn wrong_scalar(scalar: ScalarType, value: &Value) -> Option<String> {
    match scalar {
        ScalarType::Numeric if !value.is_number() => Some(format!(
            "expected numeric (int or float), got {}",
            go_format::type_name(value)
        )),
        ScalarType::String if !value.is_string() => Some(format!(
            "expected string, got &value.valueUnstructured{{Value:{}}}",
            go_format::go_syntax(&with_floats(value))
        )),
        ScalarType::Boolean if !value.is_boolean() => {
            Some(format!("expected boolean, got {}", pointer_text(value)))
        }
        ScalarType::Untyped if value.is_array() || value.is_object() => {
            Some(format!("expected any scalar, got {}", pointer_text(value)))
        }
        _ => None,
    }
}

/// The value as Go shows a pointer to a struct that holds it.
fn pointer_text(value: &Value) -> String {
    format!("&{{{}}}", go_format::plain(&with_floats(value)))
}

/// Configurations are decoded from YAML, where every number is a float.
fn with_floats(value: &Value) -> Value {
    match value {
        Value::Number(number) => {
            let float = number.as_f64().and_then(Number::from_f64);
            float.map_or_else(|| value.clone(), Value::Number)
        }
        Value::Array(items) => items.iter().map(with_floats).collect(),
        Value::Object(fields) => {
            let fields = fields.iter();
            fields.map(|(k, v)| (k.clone(), with_floats(v))).collect()
        }
        other => other.clone(),
    }
}
