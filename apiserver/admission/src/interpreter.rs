//! ResourceInterpreterWebhookConfiguration and ResourceInterpreterCustomization.
//!
//! Enters: a configuration, for customizations also the others that exist. Leaves:
//! field errors. Pure; compiling scripts is handed in. Rules of Karmada's
//! `webhook/{configuration,resourceinterpretercustomization}`.

use std::collections::HashSet;
use std::sync::Arc;

use machinery::FieldError;
use machinery::names::{dns1035_label, dns1123_subdomain};
use serde_json::Value;

use crate::tree::{check, entries, get, has, int, items, nth, text, texts};
use crate::url;

/// Says why a script does not compile. The time it may take is its own business.
pub type Compile = Arc<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

const OPERATIONS: [&str; 9] = [
    "*",
    "InterpretReplica",
    "InterpretComponent",
    "ReviseReplica",
    "InterpretStatus",
    "Retain",
    "AggregateStatus",
    "InterpretHealth",
    "InterpretDependency",
];
const CONTEXT_VERSION: &str = "v1alpha1";

pub(crate) fn validate_webhooks(configuration: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut names = HashSet::new();
    for (i, webhook) in items(configuration, "/webhooks").iter().enumerate() {
        let field = nth("webhooks", i);
        let name = text(webhook, "/name");
        webhook_name(&format!("{field}.name"), name, &mut errors);
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
        client_config(
            &format!("{field}.clientConfig"),
            get(webhook, "/clientConfig"),
            &mut errors,
        );
        for (j, rule) in items(webhook, "/rules").iter().enumerate() {
            rule_with_operations(&nth(&format!("{field}.rules"), j), rule, &mut errors);
        }
        context_versions(
            &format!("{field}.interpreterContextVersions"),
            webhook,
            &mut errors,
        );
    }
    errors
}

fn webhook_name(field: &str, name: &str, errors: &mut Vec<FieldError>) {
    if name.is_empty() {
        errors.push(FieldError::required(field, ""));
        return;
    }
    check(field, name, dns1123_subdomain(name), errors);
    if name.split('.').count() < 3 {
        errors.push(FieldError::invalid(
            field,
            &name.into(),
            "should be a domain with at least three segments separated by dots",
        ));
    }
}

fn client_config(field: &str, config: &Value, errors: &mut Vec<FieldError>) {
    let by_url = has(config, "/url");
    if by_url == has(config, "/service") {
        errors.push(FieldError::required(
            format!("{field}.url"),
            "exactly one of url or service is required",
        ));
        return;
    }
    if by_url {
        let address = text(config, "/url");
        if let Err(why) = https_url(address) {
            errors.push(FieldError::invalid(
                format!("{field}.url"),
                &address.into(),
                why,
            ));
        }
        return;
    }
    for part in ["name", "namespace"] {
        if text(config, &format!("/service/{part}")).is_empty() {
            errors.push(FieldError::required(
                format!("{field}.service.{part}"),
                &format!("service {part} is required"),
            ));
        }
    }
    let path = text(config, "/service/path");
    if !path.is_empty() && !path.starts_with('/') {
        errors.push(FieldError::invalid(
            format!("{field}.service.path"),
            &path.into(),
            "must start with a '/'",
        ));
    }
    let port = int(config, "/service/port").unwrap_or(443);
    if !(1..=65_535).contains(&port) {
        errors.push(FieldError::invalid(
            format!("{field}.service.port"),
            &port.into(),
            "port is not valid: must be between 1 and 65535, inclusive",
        ));
    }
}

fn https_url(address: &str) -> Result<(), String> {
    if url::plain(address)?.scheme != "https" {
        return Err(
            "'https' is the only allowed URL scheme; desired format: https://host[/path]".into(),
        );
    }
    Ok(())
}

fn rule_with_operations(field: &str, rule: &Value, errors: &mut Vec<FieldError>) {
    for name in ["operations", "apiGroups", "apiVersions", "kinds"] {
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
                "if '*' is present, must not specify other values",
            ));
        }
        for (i, value) in values.iter().enumerate() {
            let at = nth(&field, i);
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

fn context_versions(field: &str, webhook: &Value, errors: &mut Vec<FieldError>) {
    let versions: Vec<&str> = texts(webhook, "/interpreterContextVersions").collect();
    if versions.is_empty() {
        let why = format!("must specify one of {CONTEXT_VERSION}");
        errors.push(FieldError::required(field, &why));
        return;
    }
    let mut seen = HashSet::new();
    for (i, version) in versions.iter().enumerate() {
        let at = nth(field, i);
        if !seen.insert(version) {
            errors.push(FieldError::invalid(
                &at,
                &(*version).into(),
                "duplicate version",
            ));
            continue;
        }
        check(&at, version, dns1035_label(version), errors);
    }
    if !versions.contains(&CONTEXT_VERSION) {
        errors.push(FieldError::invalid(
            field,
            get(webhook, "/interpreterContextVersions"),
            format!("must include at least one of {CONTEXT_VERSION}"),
        ));
    }
}

/// `others`: every other customization.
pub(crate) fn validate_customization(
    customization: &Value,
    others: &[Value],
    compile: Option<&Compile>,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (operation, rule) in entries(customization, "/spec/customizations") {
        let field = format!("spec.customizations.{operation}");
        let script = text(rule, "/luaScript");
        if let Some(compile) = compile.filter(|_| !script.is_empty())
            && let Err(why) = compile(script)
        {
            errors.push(FieldError::invalid(
                format!("{field}.luaScript"),
                &script.into(),
                format!("Lua script error: {why}"),
            ));
        }
        if operation == "dependencyInterpretation" || rule.is_null() {
            continue;
        }
        let rival = others.iter().find(|other| {
            get(other, "/spec/target") == get(customization, "/spec/target")
                && has(other, &format!("/spec/customizations/{operation}"))
        });
        if let Some(rival) = rival {
            let why = format!(
                "conflicting with ResourceInterpreterCustomization {}: both define {operation} for {} {}",
                text(rival, "/metadata/name"),
                text(customization, "/spec/target/apiVersion"),
                text(customization, "/spec/target/kind"),
            );
            errors.push(FieldError::forbidden(&field, &why));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn webhook(change: Value) -> Value {
        let mut webhook = json!({"name": "a.b.c", "clientConfig": {"url": "https://x/y"},
            "rules": [{"operations": ["Retain"], "apiGroups": ["apps"], "apiVersions": ["v1"], "kinds": ["*"]}],
            "timeoutSeconds": 10, "interpreterContextVersions": ["v1alpha1"]});
        for (k, v) in change.as_object().unwrap() {
            webhook[k] = v.clone();
        }
        json!({"webhooks": [webhook]})
    }

    // proves: ADM-interpreter-webhooks
    #[test]
    fn webhooks_are_judged() {
        let rule = |k: &str, v: Value| {
            let mut rule = json!({"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "kinds": ["Pod"]});
            rule[k] = v;
            json!({"rules": [rule]})
        };
        let service = |s: Value| json!({"clientConfig": {"service": s}});
        let table = [
            (json!({}), vec![]),
            (json!({"name": "a.b"}), vec!["webhooks[0].name"]),
            (
                json!({"timeoutSeconds": 0}),
                vec!["webhooks[0].timeoutSeconds"],
            ),
            (
                json!({"timeoutSeconds": 31}),
                vec!["webhooks[0].timeoutSeconds"],
            ),
            (
                json!({"clientConfig": {}}),
                vec!["webhooks[0].clientConfig.url"],
            ),
            (
                json!({"clientConfig": {"url": "https://x", "service": {}}}),
                vec!["webhooks[0].clientConfig.url"],
            ),
            (
                json!({"clientConfig": {"url": "http://x"}}),
                vec!["webhooks[0].clientConfig.url"],
            ),
            (
                json!({"clientConfig": {"url": "https://u@x"}}),
                vec!["webhooks[0].clientConfig.url"],
            ),
            (service(json!({"name": "s", "namespace": "n"})), vec![]),
            (
                service(json!({"name": "s"})),
                vec!["webhooks[0].clientConfig.service.namespace"],
            ),
            (
                service(json!({"name": "s", "namespace": "n", "port": 0})),
                vec!["webhooks[0].clientConfig.service.port"],
            ),
            (rule("kinds", json!([])), vec!["webhooks[0].rules[0].kinds"]),
            (
                rule("kinds", json!(["*", "Pod"])),
                vec!["webhooks[0].rules[0].kinds"],
            ),
            (
                rule("apiVersions", json!([""])),
                vec!["webhooks[0].rules[0].apiVersions[0]"],
            ),
            (
                rule("operations", json!(["Prune"])),
                vec!["webhooks[0].rules[0].operations[0]"],
            ),
            (
                rule("operations", json!(["*", "Retain"])),
                vec!["webhooks[0].rules[0].operations"],
            ),
            (
                json!({"interpreterContextVersions": []}),
                vec!["webhooks[0].interpreterContextVersions"],
            ),
            (
                json!({"interpreterContextVersions": ["v1alpha1", "v1alpha1"]}),
                vec!["webhooks[0].interpreterContextVersions[1]"],
            ),
            (
                json!({"interpreterContextVersions": ["v2"]}),
                vec!["webhooks[0].interpreterContextVersions"],
            ),
            (
                json!({"interpreterContextVersions": ["v1alpha1", "V2"]}),
                vec!["webhooks[0].interpreterContextVersions[1]"],
            ),
        ];
        for (change, expect) in table {
            let errors = validate_webhooks(&webhook(change.clone()));
            let fields: Vec<&str> = errors.iter().map(|e| e.field.as_str()).collect();
            assert_eq!(fields, expect, "{change}");
        }
        let one = webhook(json!({}))["webhooks"][0].clone();
        let twice = validate_webhooks(&json!({"webhooks": [one, one]}));
        assert_eq!(
            twice[0].to_string(),
            "webhooks[1].name: Duplicate value: \"a.b.c\""
        );
    }

    // proves: ADM-interpreter-overlap
    #[test]
    fn customizations_do_not_overlap() {
        let make = |name: &str, kind: &str, operations: &[&str]| {
            let mut rules = json!({});
            for operation in operations {
                rules[operation] = json!({"luaScript": "x"});
            }
            json!({"metadata": {"name": name}, "spec": {"target": {"apiVersion": "v1", "kind": kind}, "customizations": rules}})
        };
        let others = [make(
            "other",
            "Pod",
            &["retention", "dependencyInterpretation"],
        )];
        let table = [
            (
                make(
                    "a",
                    "Pod",
                    &["healthInterpretation", "dependencyInterpretation"],
                ),
                0,
            ),
            (make("a", "Node", &["retention"]), 0),
            (make("a", "Pod", &["retention"]), 1),
        ];
        for (customization, count) in table {
            assert_eq!(
                validate_customization(&customization, &others, None).len(),
                count
            );
        }
        let compile: Compile = Arc::new(|script| match script {
            "x" => Err("no".into()),
            _ => Ok(()),
        });
        let errors =
            validate_customization(&make("a", "Node", &["retention"]), &[], Some(&compile));
        assert_eq!(errors[0].field, "spec.customizations.retention.luaScript");
    }
}
