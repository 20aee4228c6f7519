//! Validates the fields of a custom resource that its `scale` subresource reads
//! (`apiextensions-apiserver/pkg/registry/customresource/validator.go`).

use machinery::{FieldError, go_format};
use openapi::ScalePaths;
use serde_json::{Value, json};

/// Validates the fields of a scale; the fields of the spec only if `with_spec`.
pub(crate) fn validate(paths: &ScalePaths, value: &Value, with_spec: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if with_spec {
        errors.extend(validate_replicas(&paths.spec, value));
    }
    errors.extend(validate_replicas(&paths.status, value));
    if !paths.selector.is_empty() {
        let selector = nested(&paths.selector, value).and_then(|selector| match selector {
            None | Some(Value::String(_)) => Ok(()),
            Some(other) => Err(wrong_type(&paths.selector, other, "string")),
        });
        if let Err(message) = selector {
            errors.push(FieldError::invalid(&paths.selector, &json!(""), message));
        }
    }
    errors
}

fn validate_replicas(path: &str, value: &Value) -> Option<FieldError> {
    let replicas = nested(path, value).and_then(|field_value| match field_value {
        None => Ok(0),
        Some(field_value) => field_value
            .as_i64()
            .ok_or_else(|| wrong_type(path, field_value, "int64")),
    });
    let invalid =
        |count: i64, message: &str| Some(FieldError::invalid(path, &json!(count), message));
    match replicas {
        Err(message) => invalid(0, &message),
        Ok(count) if count < 0 => invalid(count, "should be a non-negative integer"),
        Ok(count) if count > i64::from(i32::MAX) => {
            invalid(count, "should be less than or equal to 2147483647")
        }
        Ok(_) => None,
    }
}

/// The value at a path like `.spec.replicas`; an error if the path leads through a value that
/// is not an object.
fn nested<'v>(path: &str, value: &'v Value) -> Result<Option<&'v Value>, String> {
    let mut current = value;
    let mut walked = String::new();
    for name in path.trim_start_matches('.').split('.') {
        walked.push('.');
        walked.push_str(name);
        match current {
            Value::Null => return Ok(None),
            Value::Object(fields) => match fields.get(name) {
                Some(next) => current = next,
                None => return Ok(None),
            },
            other => return Err(wrong_type(&walked, other, "map[string]interface{}")),
        }
    }
    Ok(Some(current))
}

fn wrong_type(path: &str, value: &Value, expected: &str) -> String {
    format!(
        "{path} accessor error: {} is of the type {}, expected {expected}",
        go_format::plain(value),
        go_format::type_name(value)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_a_scale_are_validated() {
        let paths = ScalePaths {
            spec: ".spec.replicas".into(),
            status: ".status.replicas".into(),
            selector: ".status.selector".into(),
        };
        for (value, with_spec, expected) in [
            (json!({}), true, &[][..]),
            (
                json!({"spec": {"replicas": 3}, "status": {"selector": "a=b"}}),
                true,
                &[],
            ),
            (json!({"spec": {"replicas": -1}}), false, &[]),
            (
                json!({"spec": {"replicas": -1}}),
                true,
                &[".spec.replicas: Invalid value: -1: should be a non-negative integer"],
            ),
            (
                json!({"spec": 1, "status": {"replicas": 1u64 << 40}}),
                true,
                &[
                    ".spec.replicas: Invalid value: 0: .spec.replicas accessor error: 1 is of the type int64, expected map[string]interface{}",
                    ".status.replicas: Invalid value: 1099511627776: should be less than or equal to 2147483647",
                ],
            ),
            (
                json!({"spec": {"replicas": "many"}, "status": {"selector": {"a": "b"}}}),
                true,
                &[
                    ".spec.replicas: Invalid value: 0: .spec.replicas accessor error: many is of the type string, expected int64",
                    ".status.selector: Invalid value: \"\": .status.selector accessor error: map[a:b] is of the type map[string]interface {}, expected string",
                ],
            ),
        ] {
            let errors = validate(&paths, &value, with_spec);
            let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(texts, expected, "{value}");
        }
    }
}
