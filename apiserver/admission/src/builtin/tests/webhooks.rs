//! Tests of webhook configurations.

use serde_json::{Value, json};

use super::{check, check_reasons, errors, with};

const API: &str = "admissionregistration.k8s.io/v1";

fn webhook() -> Value {
    json!({"name": "a.b.c", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://h"}, "rules": [rule()]})
}

fn rule() -> Value {
    json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]})
}

#[test]
fn webhooks_are_validated() {
    let table: Vec<(Value, &[&str])> = vec![
        (json!({}), &[]),
        (json!({"name": "a.b"}), &[]),
        (json!({"name": "a"}), &["webhooks[0].name"]),
        (json!({"sideEffects": null}), &["webhooks[0].sideEffects"]),
        (json!({"sideEffects": "Some"}), &["webhooks[0].sideEffects"]),
        (json!({"sideEffects": "NoneOnDryRun"}), &[]),
        (
            json!({"failurePolicy": "Maybe"}),
            &["webhooks[0].failurePolicy"],
        ),
        (
            json!({"matchPolicy": "Maybe"}),
            &["webhooks[0].matchPolicy"],
        ),
        (
            json!({"reinvocationPolicy": "Maybe"}),
            &["webhooks[0].reinvocationPolicy"],
        ),
        (
            json!({"timeoutSeconds": 31}),
            &["webhooks[0].timeoutSeconds"],
        ),
        (json!({"timeoutSeconds": 30}), &[]),
        (
            json!({"objectSelector": {"matchLabels": {"a": "/"}}}),
            &["webhooks[0].objectSelector.matchLabels"],
        ),
        (
            json!({"clientConfig": {"url": null}}),
            &["webhooks[0].clientConfig"],
        ),
        (
            json!({"clientConfig": {"service": {"name": "s", "namespace": "n"}}}),
            &["webhooks[0].clientConfig"],
        ),
        (
            json!({"clientConfig": {"url": null, "service": {"name": "s", "namespace": "n", "port": 0}}}),
            &["webhooks[0].clientConfig.service.port"],
        ),
        (
            json!({"matchConditions": [{"name": "a", "expression": "true"}]}),
            &[],
        ),
        (
            json!({"matchConditions": [{"name": "a", "expression": "1"}, {"name": "a", "expression": "x"}]}),
            &[
                "webhooks[0].matchConditions[0].expression",
                "webhooks[0].matchConditions[1].expression",
                "webhooks[0].matchConditions[1].name",
            ],
        ),
        (
            json!({"admissionReviewVersions": []}),
            &["webhooks[0].admissionReviewVersions"],
        ),
        (
            json!({"admissionReviewVersions": ["v2"]}),
            &["webhooks[0].admissionReviewVersions"],
        ),
        (json!({"admissionReviewVersions": ["v2", "v1beta1"]}), &[]),
        (
            json!({"admissionReviewVersions": ["v1", "v1"]}),
            &["webhooks[0].admissionReviewVersions[1]"],
        ),
    ];
    let table: Vec<(Value, &[&str])> = table
        .into_iter()
        .map(|(change, fields)| (json!({"webhooks": [with(&webhook(), &change)]}), fields))
        .collect();
    check(API, "ValidatingWebhookConfiguration", &json!({}), &table);
    let two_webhooks = json!({"webhooks": [webhook(), webhook()]});
    check(
        API,
        "MutatingWebhookConfiguration",
        &json!({}),
        &[(two_webhooks, &["webhooks[1].name"])],
    );
}

#[test]
fn rules_are_validated() {
    for (change, expected) in [
        (
            json!({"operations": ["*"], "resources": ["*/*"]}),
            Vec::new(),
        ),
        (json!({"operations": []}), vec!["operations"]),
        (json!({"operations": ["*", "CREATE"]}), vec!["operations"]),
        (json!({"operations": ["create"]}), vec!["operations[0]"]),
        (json!({"apiGroups": []}), vec!["apiGroups"]),
        (json!({"apiVersions": ["*", "v1"]}), vec!["apiVersions"]),
        (json!({"apiVersions": [""]}), vec!["apiVersions[0]"]),
        (json!({"scope": "All"}), vec!["scope"]),
        (json!({"resources": []}), vec!["resources"]),
        (json!({"resources": [""]}), vec!["resources[0]"]),
        (json!({"resources": ["*/*", "pods"]}), vec!["resources"]),
        (json!({"resources": ["*", "pods"]}), vec!["resources"]),
        (json!({"resources": ["*", "pods/status"]}), Vec::new()),
        (
            json!({"resources": ["pods/*", "pods/status"]}),
            vec!["resources[1]"],
        ),
        (
            json!({"resources": ["*/status", "pods/status"]}),
            vec!["resources[1]"],
        ),
    ] {
        let mut webhook = webhook();
        webhook["rules"] = json!([with(&rule(), &change)]);
        let configuration = json!({"webhooks": [webhook]});
        let actual = errors(API, "ValidatingWebhookConfiguration", &configuration, None);
        let fields: Vec<&str> = actual.iter().map(|e| e.field.as_str()).collect();
        let expected: Vec<String> = expected
            .iter()
            .map(|field| format!("webhooks[0].rules[0].{field}"))
            .collect();
        assert_eq!(fields, expected, "{change}");
    }
}

#[test]
fn bindings_of_policies() {
    let kind = |kind| ("admissionregistration.k8s.io/v1", kind);
    let spec = |fields: Value| json!({ "spec": fields });
    let base = spec(json!({"policyName": "p", "validationActions": ["Deny"]}));
    let matched = |selector: Value| {
        spec(
            json!({"matchResources": {"matchPolicy": "Exact", "namespaceSelector": selector, "objectSelector": {}}}),
        )
    };
    check_reasons(
        kind("ValidatingAdmissionPolicyBinding"),
        &base,
        None,
        &[
            (matched(json!({})), &[]),
            (
                matched(json!({"matchExpressions": [{"key": "a", "operator": "In"}]})),
                &["Required spec.matchResources.namespaceSelector.matchExpressions[0].values"],
            ),
            (
                spec(json!({"matchResources": {}})),
                &[
                    "Required spec.matchResources.matchPolicy",
                    "Required spec.matchResources.namespaceSelector",
                    "Required spec.matchResources.objectSelector",
                ],
            ),
            (
                spec(json!({"policyName": "", "validationActions": []})),
                &[
                    "Required spec.policyName",
                    "Required spec.validationActions",
                ],
            ),
            (
                spec(
                    json!({"policyName": "a b", "validationActions": ["Deny", "Warn", "Warn", "Log"]}),
                ),
                &[
                    "Invalid spec.policyName",
                    "Duplicate spec.validationActions[2]",
                    "NotSupported spec.validationActions[3]",
                    "Invalid spec.validationActions",
                ],
            ),
            (
                spec(
                    json!({"paramRef": {"name": "a/b", "selector": {}, "parameterNotFoundAction": "Retry"}}),
                ),
                &[
                    "Invalid spec.paramRef.name",
                    "Forbidden spec.paramRef.name",
                    "Forbidden spec.paramRef.selector",
                    "NotSupported spec.paramRef.parameterNotFoundAction",
                ],
            ),
            (
                spec(json!({"paramRef": {"parameterNotFoundAction": ""}})),
                &[
                    "Required spec.paramRef",
                    "Required spec.paramRef.parameterNotFoundAction",
                ],
            ),
        ],
    );
}
