//! OverridePolicy and ClusterOverridePolicy.
//!
//! Enters: a policy. Leaves: field errors. Pure. Rules of Karmada's
//! `webhook/overridepolicy` and `util/validation/validation.go`.

use machinery::FieldError;
use serde_json::Value;

use crate::attributes::Attributes;
use crate::tree::{get, has, items, nth, text};
use crate::{affinity, metadata, policy};

pub(crate) fn mutate(at: &Attributes<'_>, policy: &mut Value) {
    policy::fill_namespace(at.namespace, policy);
}

pub(crate) fn validate(at: &Attributes<'_>, policy: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = get(policy, "/spec");
    policy::own_namespace(at.namespace, spec, &mut errors);
    affinity::validate(
        "spec.targetCluster",
        get(spec, "/targetCluster"),
        &mut errors,
    );
    let rules = items(spec, "/overrideRules");
    if !rules.is_empty() {
        for field in ["targetCluster", "overriders"] {
            let value = get(spec, &format!("/{field}"));
            let said = if field == "overriders" {
                says_something(value)
            } else {
                !value.is_null()
            };
            if said {
                errors.push(FieldError::invalid(
                    format!("spec.{field}"),
                    value,
                    format!("overrideRules and {field} can't co-exist"),
                ));
            }
        }
    }
    for (i, rule) in rules.iter().enumerate() {
        let field = nth("spec.overrideRules", i);
        affinity::validate(
            &format!("{field}.targetCluster"),
            get(rule, "/targetCluster"),
            &mut errors,
        );
        overriders(
            &format!("{field}.overriders"),
            get(rule, "/overriders"),
            &mut errors,
        );
    }
    errors
}

fn says_something(overriders: &Value) -> bool {
    let lists = overriders.as_object().into_iter().flat_map(|o| o.values());
    lists
        .into_iter()
        .any(|list| list.as_array().is_some_and(|l| !l.is_empty()))
}

fn overriders(field: &str, overriders: &Value, errors: &mut Vec<FieldError>) {
    let each = |name: &str| {
        let base = format!("{field}.{name}");
        let list = items(overriders, &format!("/{name}")).iter().enumerate();
        list.map(move |(i, item)| (nth(&base, i), item))
    };
    for (field, item) in each("annotationsOverrider") {
        metadata::annotations(&format!("{field}.value"), get(item, "/value"), errors);
    }
    for (field, item) in each("labelsOverrider") {
        metadata::labels(&format!("{field}.value"), get(item, "/value"), errors);
    }
    for (field, item) in each("imageOverrider") {
        if has(item, "/predicate") {
            pointer(
                &format!("{field}.predicate.path"),
                text(item, "/predicate/path"),
                errors,
            );
        }
    }
    for (field, item) in each("fieldOverrider") {
        field_overrider(&field, item, errors);
    }
}

fn field_overrider(field: &str, overrider: &Value, errors: &mut Vec<FieldError>) {
    pointer(
        &format!("{field}.fieldPath"),
        text(overrider, "/fieldPath"),
        errors,
    );
    let (json, yaml) = (items(overrider, "/json"), items(overrider, "/yaml"));
    if json.is_empty() == yaml.is_empty() {
        let why = if json.is_empty() {
            "at least one of json or yaml must be set"
        } else {
            "json and yaml can't be set at the same time"
        };
        errors.push(FieldError::invalid(field, overrider, why));
    }
    for (name, operations) in [("json", json), ("yaml", yaml)] {
        for (i, operation) in operations.iter().enumerate() {
            let at = nth(&format!("{field}.{name}"), i);
            pointer(
                &format!("{at}.subPath"),
                text(operation, "/subPath"),
                errors,
            );
            let valued = has(operation, "/value");
            let why = match text(operation, "/operator") {
                "add" | "replace" if !valued => "value is required for add or replace operation",
                "remove" if valued => "value is not allowed for remove operation",
                _ => continue,
            };
            errors.push(FieldError::invalid(
                format!("{at}.value"),
                get(operation, "/value"),
                why,
            ));
        }
    }
}

/// RFC 6901: empty, or segments each begun by a slash, `~` only as `~0` or `~1`.
fn pointer(field: &str, path: &str, errors: &mut Vec<FieldError>) {
    let escapes = path.split('~').skip(1).all(|s| s.starts_with(['0', '1']));
    if (!path.is_empty() && !path.starts_with('/')) || !escapes {
        errors.push(FieldError::invalid(
            field,
            &path.into(),
            "must be a JSON pointer as in RFC 6901",
        ));
    }
}

#[cfg(test)]
mod tests;
