//! Validates a value alone, not its fields or items: enums, lengths, ranges, patterns and
//! counts.

use machinery::FieldError;
use serde_json::Value;

use super::FieldPath;
use crate::model::ValueValidation;

pub(super) fn check_value_validation(
    rules: &ValueValidation,
    value: &Value,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    check_enum(rules, value, path, errors);
    let mut validator = ValueValidator {
        value,
        path,
        errors,
    };
    match value {
        Value::String(text) => validator.check_string(rules, text),
        Value::Number(n) => validator.check_number(rules, n.as_f64().unwrap_or(f64::NAN)),
        Value::Array(items) => {
            validator.check_count(items.len(), rules.min_items, rules.max_items, "items");
        }
        Value::Object(map) => validator.check_count(
            map.len(),
            rules.min_properties,
            rules.max_properties,
            "properties",
        ),
        _ => {}
    }
}

pub(super) fn check_enum(
    rules: &ValueValidation,
    value: &Value,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    if rules.enum_values.is_empty() || rules.enum_values.contains(value) {
        return;
    }
    let names: Vec<String> = rules
        .enum_values
        .iter()
        .map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    errors.push(FieldError::not_supported(path.render(), value, &names));
}

/// Checks the range of a number.
pub(super) fn check_number(
    rules: &ValueValidation,
    value: &Value,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    let mut validator = ValueValidator {
        value,
        path,
        errors,
    };
    if let Some(number) = value.as_f64() {
        validator.check_number(rules, number);
    }
}

struct ValueValidator<'j> {
    value: &'j Value,
    path: &'j FieldPath<'j>,
    errors: &'j mut Vec<FieldError>,
}

impl ValueValidator<'_> {
    fn invalid(&mut self, message: &str) {
        let field = self.path.render();
        let text = format!("{field} in body {message}");
        self.errors.push(FieldError::invalid(
            field,
            &without_composite(self.value),
            text,
        ));
    }

    fn check_string(&mut self, rules: &ValueValidation, text: &str) {
        let length = text.chars().count() as u64;
        // Kubernetes reports the first of these only.
        if let Some(max) = rules.max_length.filter(|n| length > *n) {
            let max = usize::try_from(max).unwrap_or(usize::MAX);
            self.errors
                .push(FieldError::too_long(self.path.render(), max));
        } else if let Some(min) = rules.min_length.filter(|n| length < *n) {
            self.invalid(&format!("should be at least {min} chars long"));
        } else if let Some(pattern) = &rules.pattern
            && pattern.matches(text) == Some(false)
        {
            self.invalid(&format!("should match '{}'", pattern.source));
        }
    }

    fn check_number(&mut self, rules: &ValueValidation, n: f64) {
        if let Some(min) = rules.minimum {
            if rules.exclusive_minimum && n <= min {
                self.invalid(&format!("should be greater than {min}"));
            } else if n < min {
                self.invalid(&format!("should be greater than or equal to {min}"));
            }
        }
        if let Some(max) = rules.maximum {
            if rules.exclusive_maximum && n >= max {
                self.invalid(&format!("should be less than {max}"));
            } else if n > max {
                self.invalid(&format!("should be less than or equal to {max}"));
            }
        }
        if let Some(divisor) = rules.multiple_of.filter(|divisor| *divisor > 0.0)
            && (n / divisor).fract() != 0.0
        {
            self.invalid(&format!("should be a multiple of {divisor}"));
        }
    }

    fn check_count(&mut self, actual: usize, min: Option<u64>, max: Option<u64>, items_name: &str) {
        let count = actual as u64;
        if let Some(min) = min.filter(|n| count < *n) {
            let field = self.path.render();
            let text = format!("{field} in body should have at least {min} {items_name}");
            self.errors
                .push(FieldError::invalid(field, &Value::from(count), text));
        }
        if let Some(max) = max.filter(|n| count > *n) {
            let max = usize::try_from(max).unwrap_or(usize::MAX);
            self.errors
                .push(FieldError::too_many(self.path.render(), actual, max));
        }
    }
}

/// Objects and arrays are reported as an empty string.
fn without_composite(value: &Value) -> Value {
    match value {
        Value::Object(_) | Value::Array(_) => Value::from(""),
        other => other.clone(),
    }
}
