//! Field errors: what is wrong at which path of an object. They become the causes of a
//! 422 `Status`, or the text of an admission denial.
//!
//! Texts follow `apimachinery/pkg/util/validation/field/errors.go`. Paths, values and details
//! are bounded.

use std::fmt;

use serde_json::Value;

use crate::bounded_text::{
    MAX_DETAIL_BYTES, MAX_LISTED, MAX_QUOTED_BYTES, and_more, joined, rendered_json, truncate,
    truncated,
};
use crate::go_format;

/// The type of a field error (`field.ErrorType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldErrorType {
    Required,
    Invalid,
    Duplicate,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    TypeInvalid,
    NotFound,
}

impl FieldErrorType {
    /// The value of `causes[].reason` (`metav1.CauseType`).
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::Duplicate => "FieldValueDuplicate",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::NotFound => "FieldValueNotFound",
        }
    }
}

/// A validation error (`field.Error`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FieldError {
    pub error_type: FieldErrorType,
    /// The path of the field, as in `spec.containers[0].image`.
    pub field: String,
    /// The text without the path, as in `Invalid value: "x": must be …`.
    pub message: String,
}

impl FieldError {
    /// `path: Required value[: detail]`
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        Self::new(
            FieldErrorType::Required,
            field,
            with_detail("Required value", detail),
        )
    }

    /// `path: Invalid value: VALUE: detail`
    pub fn invalid(field: impl Into<String>, value: &Value, detail: impl AsRef<str>) -> Self {
        Self::new(
            FieldErrorType::Invalid,
            field,
            with_detail(
                &format!("Invalid value: {}", render_value(value)),
                detail.as_ref(),
            ),
        )
    }

    /// As [`Self::invalid`], for a value that the caller has rendered: the JSON of a Go
    /// struct keeps the order of its fields.
    pub fn invalid_rendered(
        field: impl Into<String>,
        rendered: &str,
        detail: impl AsRef<str>,
    ) -> Self {
        let rendered = truncated(rendered, MAX_QUOTED_BYTES);
        Self::new(
            FieldErrorType::Invalid,
            field,
            with_detail(&format!("Invalid value: {rendered}"), detail.as_ref()),
        )
    }

    /// `path: Invalid value: detail`, for a value that is too large to be shown.
    pub fn invalid_omitted(field: impl Into<String>, detail: &str) -> Self {
        Self::new(
            FieldErrorType::Invalid,
            field,
            with_detail("Invalid value", detail),
        )
    }

    /// `path: Duplicate value: VALUE`
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::new(
            FieldErrorType::Duplicate,
            field,
            format!("Duplicate value: {}", render_value(value)),
        )
    }

    /// As [`Self::duplicate`], for a value that the caller has rendered, with the reason
    /// why it must be unique.
    pub fn duplicate_rendered(field: impl Into<String>, rendered: &str, detail: &str) -> Self {
        let rendered = truncated(rendered, MAX_QUOTED_BYTES);
        let text = with_detail(&format!("Duplicate value: {rendered}"), detail);
        Self::new(FieldErrorType::Duplicate, field, text)
    }

    /// `path: Unsupported value: VALUE: supported values: "a", "b"`
    pub fn not_supported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let quoted = supported.iter().map(|s| format!("{s:?}"));
        let text = format!(
            "Unsupported value: {}: supported values: {}",
            render_value(value),
            joined(quoted, ", ")
        );
        Self::new(FieldErrorType::NotSupported, field, text)
    }

    /// `path: Forbidden: detail`
    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::new(
            FieldErrorType::Forbidden,
            field,
            with_detail("Forbidden", detail),
        )
    }

    /// `path: Too long: may not be more than N bytes`
    pub fn too_long(field: impl Into<String>, max: usize) -> Self {
        Self::new(
            FieldErrorType::TooLong,
            field,
            format!("Too long: may not be more than {max} bytes"),
        )
    }

    /// `path: Too many: N: must have at most MAX items`
    pub fn too_many(field: impl Into<String>, actual: usize, max: usize) -> Self {
        let items = if max == 1 { "item" } else { "items" };
        Self::new(
            FieldErrorType::TooMany,
            field,
            format!("Too many: {actual}: must have at most {max} {items}"),
        )
    }

    /// `path: Invalid value: "TYPE": detail`: the value has the wrong JSON type.
    pub fn type_invalid(field: impl Into<String>, value: &Value, detail: impl AsRef<str>) -> Self {
        Self::new(
            FieldErrorType::TypeInvalid,
            field,
            with_detail(
                &format!("Invalid value: {}", render_value(value)),
                detail.as_ref(),
            ),
        )
    }

    /// `path: Not found: VALUE`
    pub fn not_found(field: impl Into<String>, value: &Value) -> Self {
        Self::new(
            FieldErrorType::NotFound,
            field,
            format!("Not found: {}", render_value(value)),
        )
    }

    /// An error with a text of its own.
    pub fn new(
        error_type: FieldErrorType,
        field: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        let (mut field, mut message) = (field.into(), message.into());
        truncate(&mut field, MAX_QUOTED_BYTES);
        truncate(&mut message, MAX_DETAIL_BYTES);
        Self {
            error_type,
            field,
            message,
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// Joins errors into one text without duplicates; several texts stand in brackets
/// (`utilerrors.NewAggregate`). Of a long list the beginning is shown.
pub fn aggregate(errors: &[FieldError]) -> String {
    let listed = errors.iter().take(MAX_LISTED).map(FieldError::to_string);
    let mut texts: Vec<String> = Vec::new();
    for text in listed {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    if errors.len() > MAX_LISTED {
        texts.push(and_more(errors.len() - MAX_LISTED));
    }
    match texts.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

fn with_detail(head: &str, detail: &str) -> String {
    if detail.is_empty() {
        head.to_owned()
    } else {
        format!("{head}: {detail}")
    }
}

/// Renders a value as field errors show it: strings as Go quotes them, the rest as compact
/// JSON.
fn render_value(value: &Value) -> String {
    match value {
        Value::String(text) => go_format::quoted(&truncated(text, MAX_QUOTED_BYTES)),
        Value::Number(_) => go_format::plain(value),
        other => rendered_json(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn texts_are_those_of_kubernetes() {
        let table = [
            (
                FieldError::required("metadata.name", "name or generateName is required"),
                "metadata.name: Required value: name or generateName is required",
            ),
            (
                FieldError::invalid("a", &json!("x"), "must be y"),
                "a: Invalid value: \"x\": must be y",
            ),
            (
                FieldError::not_supported("a", &json!("x"), &["b", "c"]),
                "a: Unsupported value: \"x\": supported values: \"b\", \"c\"",
            ),
            (
                FieldError::invalid("a", &json!("x\u{1}\n\"ü"), "must be y"),
                r#"a: Invalid value: "x\x01\n\"ü": must be y"#,
            ),
            (
                FieldError::invalid_omitted("a", "must be y"),
                "a: Invalid value: must be y",
            ),
            (
                FieldError::too_many("a", 3, 2),
                "a: Too many: 3: must have at most 2 items",
            ),
            (
                FieldError::too_many("a", 3, 1),
                "a: Too many: 3: must have at most 1 item",
            ),
        ];
        for (error, text) in &table {
            assert_eq!(error.to_string(), *text);
        }
        assert_eq!(aggregate(&[table[0].0.clone()]), table[0].1);
        assert!(
            aggregate(&[table[0].0.clone(), table[1].0.clone()]).starts_with("[metadata.name: ")
        );
    }
}
