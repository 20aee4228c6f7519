//! Tests of the rules of interpreter webhooks and customizations.

use serde_json::json;

use super::*;

fn webhook(change: &Value) -> Value {
    let mut webhook = json!({"name": "a.b", "clientConfig": {"url": "https://x/y"},
        "rules": [{"operations": ["Retain"], "apiGroups": ["apps"], "apiVersions": ["v1"], "kinds": ["*"]}],
        "timeoutSeconds": 10, "interpreterContextVersions": ["v1alpha1"]});
    for (k, v) in change.as_object().unwrap() {
        webhook[k] = v.clone();
    }
    webhook
}

/// Checks the errors of the only webhook, without their path prefix.
fn check(change: Value, expected: &[&str]) {
    let errors = validate_webhooks(&json!({"webhooks": [webhook(&change)]}));
    let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let expected: Vec<String> = expected
        .iter()
        .map(|e| format!("webhooks[0].{e}"))
        .collect();
    assert_eq!(messages, expected, "{change}");
}

#[test]
fn webhook_names_are_validated() {
    const LABEL: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    check(json!({}), &[]);
    check(json!({"name": "a.b.c."}), &[]);
    check(json!({"name": ""}), &["name: Required value"]);
    check(
        json!({"name": "a"}),
        &[
            r#"name: Invalid value: "a": should be a domain with at least two segments separated by dots"#,
        ],
    );
    check(
        json!({"name": "A.b"}),
        &[&format!(r#"name: Invalid value: "A.b": {LABEL}"#)],
    );
    let named_webhook = webhook(&json!({}));
    let errors = validate_webhooks(
        &json!({"webhooks": [named_webhook, named_webhook, webhook(&json!({"name": "other.b"}))]}),
    );
    let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(messages, [r#"webhooks[1].name: Duplicate value: "a.b""#]);
}

#[test]
fn webhook_timeouts_are_validated() {
    let detail = "the timeout value must be between 1 and 30 seconds";
    for (seconds, valid) in [(1, true), (30, true), (0, false), (31, false)] {
        let message = format!("timeoutSeconds: Invalid value: {seconds}: {detail}");
        let expected: &[&str] = if valid { &[] } else { &[&message] };
        check(json!({"timeoutSeconds": seconds}), expected);
    }
    check(json!({"timeoutSeconds": null}), &[]);
}

#[test]
fn webhook_client_config_is_validated() {
    let config = |config: Value| json!({ "clientConfig": config });
    let with_url = |url: &str| config(json!({ "url": url }));
    const FORM: &str = "desired format: https://host[/path]";
    let neither = "clientConfig: Required value: exactly one of url or service is required";
    check(config(json!({})), &[neither]);
    check(
        config(json!({"url": "https://x", "service": {}})),
        &[neither],
    );
    check(
        with_url("http://x"),
        &[&format!(
            "clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; {FORM}"
        )],
    );
    check(
        with_url("https:///x"),
        &[&format!(
            "clientConfig.url: Invalid value: \"\": host must be specified; {FORM}"
        )],
    );
    check(
        with_url("https://u@x"),
        &["clientConfig.url: Invalid value: \"u\": user information is not permitted in the URL"],
    );
    check(
        with_url("https://x#f"),
        &["clientConfig.url: Invalid value: \"f\": fragments are not permitted in the URL"],
    );
    check(
        with_url("https://x?q=1"),
        &[
            "clientConfig.url: Invalid value: \"q=1\": query parameters are not permitted in the URL",
        ],
    );
}

#[test]
fn webhook_services_are_validated() {
    let service = |fields: Value| {
        let mut service = json!({"name": "s", "namespace": "n"});
        service
            .as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        json!({"clientConfig": {"service": service}})
    };
    let base = "clientConfig.service";
    check(service(json!({})), &[]);
    check(service(json!({"port": 8443, "path": "/a/b/"})), &[]);
    check(
        service(json!({"name": ""})),
        &[&format!("{base}.name: Required value")],
    );
    check(
        service(json!({"namespace": ""})),
        &[&format!("{base}.namespace: Required value")],
    );
    check(
        service(json!({"port": 0})),
        &[&format!(
            "{base}.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive"
        )],
    );
    check(
        service(json!({"path": "ab"})),
        &[&format!(
            "{base}.path: Invalid value: \"ab\": must start with a '/'"
        )],
    );
    check(
        service(json!({"path": "//"})),
        &[&format!(
            "{base}.path: Invalid value: \"//\": segment[0] may not be empty"
        )],
    );
    check(
        service(json!({"path": "/a//b"})),
        &[&format!(
            "{base}.path: Invalid value: \"/a//b\": segment[1] may not be empty"
        )],
    );
}

#[test]
fn webhook_rules_are_validated() {
    let rule = |k: &str, v: Value| {
        let mut rule = json!({"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "kinds": ["Pod"]});
        rule[k] = v;
        json!({"rules": [rule]})
    };
    check(rule("kinds", json!(["Pod", "Node"])), &[]);
    for (list, noun) in [
        ("operations", "operations"),
        ("apiGroups", "API groups"),
        ("apiVersions", "API versions"),
        ("kinds", "kinds"),
    ] {
        check(
            rule(list, json!([])),
            &[&format!("rules[0].{list}: Required value")],
        );
        check(
            rule(list, json!(["*", "Retain"])),
            &[&format!(
                r#"rules[0].{list}: Invalid value: ["*","Retain"]: if '*' is present, must not specify other {noun}"#
            )],
        );
    }
    check(
        rule("apiVersions", json!([""])),
        &["rules[0].apiVersions[0]: Required value"],
    );
    check(
        rule("kinds", json!(["Pod", ""])),
        &["rules[0].kinds[1]: Required value"],
    );
    check(
        rule("operations", json!(["Prune"])),
        &[
            r#"rules[0].operations[0]: Unsupported value: "Prune": supported values: "*", "AggregateStatus", "InterpretComponent", "InterpretDependency", "InterpretHealth", "InterpretReplica", "InterpretStatus", "Retain", "ReviseReplica""#,
        ],
    );
}

#[test]
fn context_versions_are_validated() {
    let versions = |list: Value| json!({ "interpreterContextVersions": list });
    let base = "interpreterContextVersions";
    check(versions(json!(["v2", "v1alpha1"])), &[]);
    check(
        versions(json!([])),
        &[&format!(
            "{base}: Required value: must specify one of v1alpha1"
        )],
    );
    check(
        versions(json!(["v1alpha1", "v1alpha1"])),
        &[&format!(
            r#"{base}[1]: Invalid value: "v1alpha1": duplicate version"#
        )],
    );
    check(
        versions(json!(["v2"])),
        &[&format!(
            r#"{base}: Invalid value: ["v2"]: must include at least one of v1alpha1"#
        )],
    );
    check(
        versions(json!(["v1alpha1", "V2"])),
        &[&format!(
            r#"{base}[1]: Invalid value: "V2": {}"#,
            validate_dns1035_label("V2").unwrap_err()
        )],
    );
}

fn customization(name: &str, kind: &str, rules: &[&str]) -> Value {
    let rules = rules
        .iter()
        .map(|rule| ((*rule).to_owned(), json!({"luaScript": "x"})));
    json!({"metadata": {"name": name}, "spec": {"target": {"apiVersion": "v1", "kind": kind},
        "customizations": Value::Object(rules.collect())}})
}

#[test]
fn customizations_of_one_kind_do_not_overlap() {
    let all = RULE_OPERATIONS.map(|(rule, _)| rule);
    let other_customizations = [customization("other", "Pod", &all)];
    for (rule, operation) in RULE_OPERATIONS {
        let validate = |kind| {
            validate_customization(
                &customization("a", kind, &[rule]),
                &other_customizations,
                None,
            )
        };
        assert_eq!(validate("Node"), Ok(()), "{rule}");
        let expected = if rule == "dependencyInterpretation" {
            Ok(())
        } else {
            Err(format!(
                "conflicting with InterpreterOperation({operation}) of existing ResourceInterpreterCustomization(other)"
            ))
        };
        assert_eq!(validate("Pod"), expected, "{rule}");
    }
    let mut empty = customization("a", "Pod", &["retention"]);
    empty["spec"]["customizations"]["retention"]["luaScript"] = "".into();
    assert_eq!(
        validate_customization(&empty, &other_customizations, None),
        Ok(())
    );
}

#[test]
fn script_errors_name_their_operation() {
    let compile: CustomizationScriptValidator = Arc::new(|_, script| match script {
        "x" => Err("no".into()),
        _ => Ok(()),
    });
    let of = |rules: &[&str]| {
        validate_customization(&customization("a", "Node", rules), &[], Some(&compile))
    };
    assert_eq!(of(&[]), Ok(()));
    assert_eq!(
        of(&["retention"]),
        Err("InterpreterOperation(Retain) Lua script error: no".into())
    );
}
