//! Validates ResourceInterpreterWebhookConfiguration and
//! ResourceInterpreterCustomization. Does no I/O; the caller passes in the script
//! compiler. Rules of Karmada's
//! `webhook/{configuration,resourceinterpretercustomization}`.

use std::collections::HashSet;
use std::sync::Arc;

use machinery::FieldError;
use machinery::names::validate_dns1035_label;
use serde_json::Value;

use crate::unstructured::{get, index_path, int, items, report_invalid, text, texts};
use crate::webhook_fields::{validate_client_config, validate_webhook_name};

/// Compiles the script in a field of `spec.customizations`; the error says why it fails
/// or what it lacks. The compiler bounds its own time.
pub type CustomizationScriptValidator = Arc<dyn Fn(&str, &str) -> Result<(), String> + Send + Sync>;

/// In the order in which errors list them.
const OPERATIONS: [&str; 9] = [
    "*",
    "AggregateStatus",
    "InterpretComponent",
    "InterpretDependency",
    "InterpretHealth",
    "InterpretReplica",
    "InterpretStatus",
    "Retain",
    "ReviseReplica",
];
/// The rules of a customization and their operations.
const RULE_OPERATIONS: [(&str, &str); 8] = [
    ("retention", "Retain"),
    ("replicaResource", "InterpretReplica"),
    ("componentResource", "InterpretComponent"),
    ("replicaRevision", "ReviseReplica"),
    ("statusReflection", "InterpretStatus"),
    ("statusAggregation", "AggregateStatus"),
    ("healthInterpretation", "InterpretHealth"),
    ("dependencyInterpretation", DEPENDENCY_OPERATION),
];
/// The operation that several customizations may define for one kind.
const DEPENDENCY_OPERATION: &str = "InterpretDependency";
const CONTEXT_VERSION: &str = "v1alpha1";

pub(crate) fn validate_webhooks(configuration: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut names = HashSet::new();
    for (i, webhook) in items(configuration, "/webhooks").iter().enumerate() {
        let field = index_path("webhooks", i);
        let name = text(webhook, "/name");
        validate_webhook_name(&format!("{field}.name"), name, &mut errors);
        if !names.insert(name) {
            errors.push(FieldError::duplicate(format!("{field}.name"), &name.into()));
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
        validate_client_config(
            &format!("{field}.clientConfig"),
            get(webhook, "/clientConfig"),
            &mut errors,
        );
        for (j, rule) in items(webhook, "/rules").iter().enumerate() {
            validate_rule_with_operations(
                &index_path(&format!("{field}.rules"), j),
                rule,
                &mut errors,
            );
        }
        validate_context_versions(
            &format!("{field}.interpreterContextVersions"),
            webhook,
            &mut errors,
        );
    }
    errors
}

fn validate_rule_with_operations(field: &str, rule: &Value, errors: &mut Vec<FieldError>) {
    for (name, noun) in [
        ("operations", "operations"),
        ("apiGroups", "API groups"),
        ("apiVersions", "API versions"),
        ("kinds", "kinds"),
    ] {
        let field = format!("{field}.{name}");
        let path = format!("/{name}");
        let values = items(rule, &path);
        if values.is_empty() {
            errors.push(FieldError::required(&field, ""));
        }
        if values.len() > 1 && values.iter().any(|v| v == "*") {
            errors.push(FieldError::invalid(
                &field,
                get(rule, &path),
                format!("if '*' is present, must not specify other {noun}"),
            ));
        }
        for (i, value) in values.iter().enumerate() {
            let value_path = index_path(&field, i);
            let empty = value.as_str() == Some("");
            if name == "operations" {
                if !OPERATIONS.iter().any(|operation| value == operation) {
                    errors.push(FieldError::not_supported(value_path, value, &OPERATIONS));
                }
            } else if empty && name != "apiGroups" {
                errors.push(FieldError::required(value_path, ""));
            }
        }
    }
}

fn validate_context_versions(field: &str, webhook: &Value, errors: &mut Vec<FieldError>) {
    let versions: Vec<&str> = texts(webhook, "/interpreterContextVersions").collect();
    if versions.is_empty() {
        let message = format!("must specify one of {CONTEXT_VERSION}");
        errors.push(FieldError::required(field, &message));
        return;
    }
    let mut visited = HashSet::new();
    for (i, version) in versions.iter().enumerate() {
        let path = index_path(field, i);
        if !visited.insert(version) {
            errors.push(FieldError::invalid(
                &path,
                &(*version).into(),
                "duplicate version",
            ));
            continue;
        }
        report_invalid(&path, version, validate_dns1035_label(version), errors);
    }
    if !versions.contains(&CONTEXT_VERSION) {
        errors.push(FieldError::invalid(
            field,
            get(webhook, "/interpreterContextVersions"),
            format!("must include at least one of {CONTEXT_VERSION}"),
        ));
    }
}

/// `other_customizations` are all other customizations. Returns the first error.
pub(crate) fn validate_customization(
    customization: &Value,
    other_customizations: &[Value],
    compile: Option<&CustomizationScriptValidator>,
) -> Result<(), String> {
    if let Some(message) = other_customizations
        .iter()
        .find_map(|other| conflicting_operation(customization, other))
    {
        return Err(message);
    }
    let Some(compile) = compile else {
        return Ok(());
    };
    for (rule, operation) in RULE_OPERATIONS {
        let script = lua_script(customization, rule);
        if !script.is_empty() {
            compile(rule, script).map_err(|message| {
                format!("InterpreterOperation({operation}) Lua script error: {message}")
            })?;
        }
    }
    Ok(())
}

fn lua_script<'a>(customization: &'a Value, rule: &str) -> &'a str {
    text(
        customization,
        &format!("/spec/customizations/{rule}/luaScript"),
    )
}

/// The error when both customizations define an operation for the same kind.
fn conflicting_operation(new: &Value, other: &Value) -> Option<String> {
    let target = |c, part: &str| text(c, &format!("/spec/target/{part}"));
    let is_same = |part| target(new, part) == target(other, part);
    if !is_same("apiVersion") || !is_same("kind") {
        return None;
    }
    let both_have =
        |rule: &str| !lua_script(new, rule).is_empty() && !lua_script(other, rule).is_empty();
    let (_, operation) = RULE_OPERATIONS
        .into_iter()
        .find(|(rule, operation)| *operation != DEPENDENCY_OPERATION && both_have(rule))?;
    let name = text(other, "/metadata/name");
    Some(format!(
        "conflicting with InterpreterOperation({operation}) of existing ResourceInterpreterCustomization({name})"
    ))
}

#[cfg(test)]
mod tests;
