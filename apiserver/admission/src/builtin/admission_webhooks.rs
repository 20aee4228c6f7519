//! Validates MutatingWebhookConfiguration and ValidatingWebhookConfiguration
//! (`pkg/apis/admissionregistration/validation/validation.go`).

use std::collections::HashSet;

use machinery::FieldError;
use machinery::names::validate_dns1035_label;
use serde_json::Value;

use super::label_selectors::{SelectorValues, validate_label_selector};
use super::match_conditions::validate_match_conditions;
use crate::unstructured::{get, has, index_path, int, items, report_invalid, text, texts};
use crate::webhook_fields::{validate_client_config, validate_webhook_name};

/// In the order in which errors list them, as are the other lists.
const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
const SIDE_EFFECTS: [&str; 2] = ["None", "NoneOnDryRun"];
/// Fields with a fixed set of values.
const ENUMERATIONS: [(&str, &[&str]); 4] = [
    ("failurePolicy", &["Fail", "Ignore"]),
    ("matchPolicy", &["Equivalent", "Exact"]),
    ("reinvocationPolicy", &["IfNeeded", "Never"]),
    ("sideEffects", &SIDE_EFFECTS),
];

pub(super) fn validate(configuration: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let webhooks = items(configuration, "/webhooks");
    let unchanged = old.is_some_and(|old| have_same_conditions(webhooks, items(old, "/webhooks")));
    let mut names = HashSet::new();
    for (i, webhook) in webhooks.iter().enumerate() {
        let field = index_path("webhooks", i);
        validate_webhook(&field, webhook, errors);
        if !unchanged {
            let path = format!("{field}.matchConditions");
            validate_match_conditions(&path, webhook, false, errors);
        }
        validate_review_versions(&format!("{field}.admissionReviewVersions"), webhook, errors);
        let name = text(webhook, "/name");
        if !name.is_empty() && !names.insert(name) {
            errors.push(FieldError::duplicate(format!("{field}.name"), &name.into()));
        }
    }
}

fn validate_webhook(field: &str, webhook: &Value, errors: &mut Vec<FieldError>) {
    validate_webhook_name(&format!("{field}.name"), text(webhook, "/name"), errors);
    for (i, rule) in items(webhook, "/rules").iter().enumerate() {
        validate_rule(&index_path(&format!("{field}.rules"), i), rule, errors);
    }
    if !has(webhook, "/sideEffects") {
        let detail = format!("must specify one of {}", SIDE_EFFECTS.join(", "));
        errors.push(FieldError::required(
            format!("{field}.sideEffects"),
            &detail,
        ));
    }
    for (name, supported) in ENUMERATIONS {
        validate_enumeration(&format!("{field}.{name}"), webhook, name, supported, errors);
    }
    if let Some(seconds) = int(webhook, "/timeoutSeconds")
        && !(1..=30).contains(&seconds)
    {
        errors.push(FieldError::invalid(
            format!("{field}.timeoutSeconds"),
            &seconds.into(),
            "the timeout value must be between 1 and 30 seconds",
        ));
    }
    for selector in ["namespaceSelector", "objectSelector"] {
        let value = get(webhook, &format!("/{selector}"));
        let path = format!("{field}.{selector}");
        validate_label_selector(&path, value, SelectorValues::Strict, errors);
    }
    validate_client_config(
        &format!("{field}.clientConfig"),
        get(webhook, "/clientConfig"),
        errors,
    );
}

/// Whether an update leaves the match conditions of all webhooks as they are.
fn have_same_conditions(new: &[Value], old: &[Value]) -> bool {
    let conditions = |webhook| get(webhook, "/matchConditions");
    new.len() == old.len()
        && new
            .iter()
            .zip(old)
            .all(|(new, old)| conditions(new) == conditions(old))
}

pub(super) fn validate_enumeration(
    field: &str,
    owner: &Value,
    name: &str,
    supported: &[&str],
    errors: &mut Vec<FieldError>,
) {
    let value = get(owner, &format!("/{name}"));
    if !value.is_null()
        && !supported
            .iter()
            .any(|supported_value| value == supported_value)
    {
        errors.push(FieldError::not_supported(field, value, supported));
    }
}

pub(super) fn validate_rule(field: &str, rule: &Value, errors: &mut Vec<FieldError>) {
    for (name, noun) in [
        ("operations", "operations"),
        ("apiGroups", "API groups"),
        ("apiVersions", "API versions"),
    ] {
        let (field, path) = (format!("{field}.{name}"), format!("/{name}"));
        let values = items(rule, &path);
        if values.is_empty() {
            errors.push(FieldError::required(&field, ""));
        }
        if values.len() > 1 && values.iter().any(|v| v == "*") {
            let detail = format!("if '*' is present, must not specify other {noun}");
            errors.push(FieldError::invalid(&field, get(rule, &path), detail));
        }
        for (i, value) in values.iter().enumerate() {
            let value_path = index_path(&field, i);
            if name == "operations" && !OPERATIONS.iter().any(|operation| value == operation) {
                errors.push(FieldError::not_supported(value_path, value, &OPERATIONS));
            } else if name == "apiVersions" && value == "" {
                errors.push(FieldError::required(value_path, ""));
            }
        }
    }
    validate_resources(
        &format!("{field}.resources"),
        get(rule, "/resources"),
        errors,
    );
    let scope = format!("{field}.scope");
    validate_enumeration(
        &scope,
        rule,
        "scope",
        &["*", "Cluster", "Namespaced"],
        errors,
    );
}

/// Checks `x`, `x/y` and their wildcards: a wildcard stands alone where it covers others.
fn validate_resources(field: &str, value: &Value, errors: &mut Vec<FieldError>) {
    let resources: Vec<&str> = texts(value, "").collect();
    if resources.is_empty() {
        errors.push(FieldError::required(field, ""));
    }
    let (mut all_of_resource, mut all_of_subresource) = (HashSet::new(), HashSet::new());
    let mut has_plain_resource = false;
    for (i, entry) in resources.iter().enumerate() {
        let path = index_path(field, i);
        if entry.is_empty() {
            errors.push(FieldError::required(path, ""));
            continue;
        }
        let Some((resource, subresource)) = entry.split_once('/') else {
            has_plain_resource = *entry != "*";
            continue;
        };
        for (is_covered, pattern) in [
            (all_of_resource.contains(resource), format!("{resource}/*")),
            (
                all_of_subresource.contains(subresource),
                format!("*/{subresource}"),
            ),
        ] {
            if is_covered {
                let detail = format!("if '{pattern}' is present, must not specify {entry}");
                errors.push(FieldError::invalid(&path, &(*entry).into(), detail));
            }
        }
        if subresource == "*" {
            all_of_resource.insert(resource);
        }
        if resource == "*" {
            all_of_subresource.insert(subresource);
        }
    }
    if resources.len() > 1 && resources.contains(&"*/*") {
        let detail = "if '*/*' is present, must not specify other resources";
        errors.push(FieldError::invalid(field, value, detail));
    }
    if resources.contains(&"*") && has_plain_resource {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.push(FieldError::invalid(field, value, detail));
    }
}

fn validate_review_versions(field: &str, webhook: &Value, errors: &mut Vec<FieldError>) {
    let value = get(webhook, "/admissionReviewVersions");
    let versions: Vec<&str> = texts(value, "").collect();
    let supported = REVIEW_VERSIONS.join(", ");
    if versions.is_empty() {
        let detail = format!("must specify one of {supported}");
        errors.push(FieldError::required(field, &detail));
        return;
    }
    let mut visited = HashSet::new();
    for (i, version) in versions.iter().enumerate() {
        let path = index_path(field, i);
        if visited.insert(version) {
            report_invalid(&path, version, validate_dns1035_label(version), errors);
        } else {
            errors.push(FieldError::invalid(
                &path,
                &(*version).into(),
                "duplicate version",
            ));
        }
    }
    if !versions.iter().any(|v| REVIEW_VERSIONS.contains(v)) {
        let detail = format!("must include at least one of {supported}");
        errors.push(FieldError::invalid(field, value, detail));
    }
}
