//! Checks that constructed objects are of the types that their places ask for: the value of
//! the field `spec` of an `Object` is an `Object.spec`
//! (`k8s.io/apiserver/pkg/cel/mutation/dynamic`).

use crate::error::EvalError;
use crate::value::{EvaluationResult, Map, Value};

/// The result of a mutation, once its types are checked.
pub(super) fn check_type_names(value: &Value<'_>) -> EvaluationResult<'static, Vec<String>> {
    let mut errors = Vec::new();
    match value {
        // The operations of a JSON patch: objects begin anew in each value.
        Value::List(operations) => {
            for operation in operations.iter() {
                let Value::Map(operation) = operation? else {
                    return Err(EvalError::NoSuchOverload);
                };
                if let Some(value) = operation.field("value")
                    && let value @ Value::Map(Map::Constructed { .. }) = value?
                {
                    check(&value, "Object", &mut errors)?;
                }
            }
        }
        value => check(value, "Object", &mut errors)?,
    }
    Ok(errors)
}

fn check(value: &Value<'_>, path: &str, errors: &mut Vec<String>) -> Result<(), EvalError> {
    match value {
        Value::Map(Map::Constructed { type_name, fields }) => {
            if *type_name != path {
                errors.push(format!(
                    "unexpected type name {type_name:?}, expected {path:?}, which matches field name path from root Object type"
                ));
            }
            for (key, value) in fields.entries() {
                let Value::String(field) = key else {
                    continue;
                };
                check(value, &format!("{path}.{}", field.as_str()), errors)?;
            }
        }
        Value::Map(Map::Owned(map)) => {
            for (_, value) in map.entries() {
                check(value, path, errors)?;
            }
        }
        Value::List(list) => {
            for item in list.iter() {
                check(&item?, path, errors)?;
            }
        }
        Value::Optional(Some(inner)) => check(inner, path, errors)?,
        _ => {}
    }
    Ok(())
}
