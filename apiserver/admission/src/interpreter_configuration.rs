//! Validates ResourceInterpreterWebhookConfiguration and
//! ResourceInterpreterCustomization. Does no I/O; the caller passes in the script
//! compiler. Rules of Karmada's
//! `webhook/{configuration,resourceinterpretercustomization}`.

use std::collections::HashSet;
use std::sync::Arc;

use machinery::FieldError;
use machinery::names::{
    validate_dns1035_label, validate_dns1123_label, validate_dns1123_subdomain,
};
use serde_json::Value;

use crate::unstructured::{get, has, index_path, int, items, report_invalid, text, texts};
use crate::url;

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

/// Requires a domain of at least two segments; a trailing dot is allowed.
fn validate_webhook_name(field: &str, name: &str, errors: &mut Vec<FieldError>) {
    if name.is_empty() {
        errors.push(FieldError::required(field, ""));
        return;
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let mut refuse = |value: &str, why: &str| {
        errors.push(FieldError::invalid(field, &value.into(), why));
    };
    if let Err(why) = validate_dns1123_subdomain(name) {
        return refuse(name, &why);
    }
    if !name.contains('.') {
        return refuse(
            name,
            "should be a domain with at least two segments separated by dots",
        );
    }
    for label in name.split('.') {
        if let Err(why) = validate_dns1123_label(label) {
            refuse(label, &why);
        }
    }
}

fn validate_client_config(field: &str, config: &Value, errors: &mut Vec<FieldError>) {
    let by_url = has(config, "/url");
    if by_url == has(config, "/service") {
        let why = "exactly one of url or service is required";
        errors.push(FieldError::required(field, why));
    } else if by_url {
        validate_webhook_url(&format!("{field}.url"), text(config, "/url"), errors);
    } else {
        validate_service_reference(&format!("{field}.service"), get(config, "/service"), errors);
    }
}

fn validate_webhook_url(field: &str, address: &str, errors: &mut Vec<FieldError>) {
    const FORM: &str = "desired format: https://host[/path]";
    let parts = url::split_url(address).unwrap_or_default();
    let mut refuse =
        |value: &str, why: String| errors.push(FieldError::invalid(field, &value.into(), why));
    if parts.scheme != "https" {
        let why = format!("'https' is the only allowed URL scheme; {FORM}");
        refuse(parts.scheme, why);
    }
    if parts.host.is_empty() {
        refuse("", format!("host must be specified; {FORM}"));
    }
    let refused = [
        (parts.user, "user information is not permitted in the URL"),
        (
            Some(parts.fragment).filter(|f| !f.is_empty()),
            "fragments are not permitted in the URL",
        ),
        (
            Some(parts.query).filter(|q| !q.is_empty()),
            "query parameters are not permitted in the URL",
        ),
    ];
    for (part, why) in refused {
        if let Some(part) = part {
            refuse(part, why.to_owned());
        }
    }
}

fn validate_service_reference(field: &str, service: &Value, errors: &mut Vec<FieldError>) {
    for part in ["name", "namespace"] {
        if text(service, &format!("/{part}")).is_empty() {
            errors.push(FieldError::required(format!("{field}.{part}"), ""));
        }
    }
    let port = int(service, "/port").unwrap_or(443);
    if !(1..=65_535).contains(&port) {
        errors.push(FieldError::invalid(
            format!("{field}.port"),
            &port.into(),
            "port is not valid: must be between 1 and 65535, inclusive",
        ));
    }
    validate_service_path(&format!("{field}.path"), text(service, "/path"), errors);
}

/// Requires segments to be DNS-1123 subdomains; a trailing slash is allowed.
fn validate_service_path(field: &str, path: &str, errors: &mut Vec<FieldError>) {
    if matches!(path, "" | "/") {
        return;
    }
    let mut refuse = |why: String| errors.push(FieldError::invalid(field, &path.into(), why));
    if path == "//" {
        return refuse("segment[0] may not be empty".into());
    }
    if !path.starts_with('/') {
        refuse("must start with a '/'".into());
    }
    let mut steps = path.chars();
    steps.next();
    let steps = steps.as_str();
    let steps = steps.strip_suffix('/').unwrap_or(steps);
    for (i, step) in steps.split('/').enumerate() {
        if step.is_empty() {
            refuse(format!("segment[{i}] may not be empty"));
        } else if let Err(why) = validate_dns1123_subdomain(step) {
            refuse(format!("segment[{i}]: {why}"));
        }
    }
}

fn validate_rule_with_operations(field: &str, rule: &Value, errors: &mut Vec<FieldError>) {
    for (name, others) in [
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
                format!("if '*' is present, must not specify other {others}"),
            ));
        }
        for (i, value) in values.iter().enumerate() {
            let at = index_path(&field, i);
            let empty = value.as_str() == Some("");
            if name == "operations" {
                if !OPERATIONS.iter().any(|known| value == known) {
                    errors.push(FieldError::not_supported(at, value, &OPERATIONS));
                }
            } else if empty && name != "apiGroups" {
                errors.push(FieldError::required(at, ""));
            }
        }
    }
}

fn validate_context_versions(field: &str, webhook: &Value, errors: &mut Vec<FieldError>) {
    let versions: Vec<&str> = texts(webhook, "/interpreterContextVersions").collect();
    if versions.is_empty() {
        let why = format!("must specify one of {CONTEXT_VERSION}");
        errors.push(FieldError::required(field, &why));
        return;
    }
    let mut visited = HashSet::new();
    for (i, version) in versions.iter().enumerate() {
        let at = index_path(field, i);
        if !visited.insert(version) {
            errors.push(FieldError::invalid(
                &at,
                &(*version).into(),
                "duplicate version",
            ));
            continue;
        }
        report_invalid(&at, version, validate_dns1035_label(version), errors);
    }
    if !versions.contains(&CONTEXT_VERSION) {
        errors.push(FieldError::invalid(
            field,
            get(webhook, "/interpreterContextVersions"),
            format!("must include at least one of {CONTEXT_VERSION}"),
        ));
    }
}

/// `others` are all other customizations. Returns the first error.
pub(crate) fn validate_customization(
    customization: &Value,
    others: &[Value],
    compile: Option<&CustomizationScriptValidator>,
) -> Result<(), String> {
    if let Some(why) = others
        .iter()
        .find_map(|other| conflicting_operation(customization, other))
    {
        return Err(why);
    }
    let Some(compile) = compile else {
        return Ok(());
    };
    for (rule, operation) in RULE_OPERATIONS {
        let script = lua_script(customization, rule);
        if !script.is_empty() {
            compile(rule, script).map_err(|why| {
                format!("InterpreterOperation({operation}) Lua script error: {why}")
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
    let same = |part| target(new, part) == target(other, part);
    if !same("apiVersion") || !same("kind") {
        return None;
    }
    let both =
        |rule: &str| !lua_script(new, rule).is_empty() && !lua_script(other, rule).is_empty();
    let (_, operation) = RULE_OPERATIONS
        .into_iter()
        .find(|(rule, operation)| *operation != DEPENDENCY_OPERATION && both(rule))?;
    let name = text(other, "/metadata/name");
    Some(format!(
        "conflicting with InterpreterOperation({operation}) of existing ResourceInterpreterCustomization({name})"
    ))
}

#[cfg(test)]
mod tests;
