//! Tests of roles and their bindings.

use serde_json::{Value, json};

use super::{check, check_reasons, check_update};

#[test]
fn access() {
    let rule = |r: Value| json!({"rules": [r]});
    let role = &[
        (
            rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]})),
            &[][..],
        ),
        (
            rule(json!({"apiGroups": [""], "resources": ["pods"]})),
            &["rules[0].verbs"],
        ),
        (
            rule(json!({"verbs": ["get"], "resources": ["pods"]})),
            &["rules[0].apiGroups"],
        ),
        (
            rule(json!({"verbs": ["get"], "apiGroups": [""]})),
            &["rules[0].resources"],
        ),
        (
            rule(json!({"verbs": ["get"], "nonResourceURLs": ["/x"]})),
            &["rules[0].nonResourceURLs"],
        ),
    ];
    let group = "rbac.authorization.k8s.io";
    let api = &format!("{group}/v1");
    check(api, "Role", &json!({}), role);
    check(
        api,
        "ClusterRole",
        &json!({}),
        &[
            (
                rule(json!({"verbs": ["get"], "nonResourceURLs": ["/x"]})),
                &[],
            ),
            (
                rule(json!({"verbs": ["get"], "nonResourceURLs": ["/x"], "resources": ["x"]})),
                &["rules[0].nonResourceURLs"],
            ),
            (
                json!({"aggregationRule": {}}),
                &["aggregationRule.clusterRoleSelectors"],
            ),
        ],
    );
    let base = json!({"roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "system:x"},
        "subjects": [{"kind": "User", "name": "u", "apiGroup": group}, {"kind": "ServiceAccount", "name": "s", "namespace": "n"}]});
    let subject = |s: Value| json!({"subjects": [s]});
    check(
        api,
        "ClusterRoleBinding",
        &base,
        &[
            (json!({}), &[]),
            (json!({"roleRef": {"kind": "Role"}}), &["roleRef.kind"]),
            (json!({"roleRef": {"apiGroup": "x"}}), &["roleRef.apiGroup"]),
            (json!({"roleRef": {"name": ""}}), &["roleRef.name"]),
            (
                subject(json!({"kind": "ServiceAccount", "name": "s"})),
                &["subjects[0].namespace"],
            ),
            (subject(json!({"kind": "User"})), &["subjects[0].name"]),
            (
                subject(json!({"kind": "Robot", "name": "r"})),
                &["subjects[0].kind"],
            ),
            (
                subject(json!({"kind": "User", "name": "u", "apiGroup": "x"})),
                &["subjects[0].apiGroup"],
            ),
        ],
    );
    check_update(
        api,
        "RoleBinding",
        &base,
        &[
            (json!({"subjects": []}), &[]),
            (json!({"roleRef": {"name": "other"}}), &["roleRef"]),
        ],
    );
}

#[test]
fn rules_subjects_and_aggregation() {
    let kind = |kind| ("rbac.authorization.k8s.io/v1", kind);
    let urls =
        json!({"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"], "resources": ["y"]}]});
    let at_urls = "Invalid rules[0].nonResourceURLs";
    let table = [(urls, &[at_urls, at_urls][..])];
    check_reasons(kind("Role"), &json!({}), None, &table);
    let aggregated =
        |selector: Value| json!({"aggregationRule": {"clusterRoleSelectors": [selector]}});
    let invalid = json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b c"]}]});
    let first = "aggregationRule.clusterRoleSelectors[0]";
    check_reasons(
        kind("ClusterRole"),
        &json!({}),
        None,
        &[
            (aggregated(json!({})), &[]),
            (
                aggregated(invalid.clone()),
                &[&format!("Invalid {first}.matchExpressions[0].values[0]")],
            ),
            (
                aggregated(
                    json!({"matchExpressions": [{"key": "", "operator": "Exists", "values": ["b"]}]}),
                ),
                &[
                    &format!("Forbidden {first}.matchExpressions[0].values"),
                    &format!("Invalid {first}.matchExpressions[0].key"),
                ],
            ),
        ],
    );
    let stored = aggregated(invalid);
    check_reasons(
        kind("ClusterRole"),
        &stored,
        Some(&stored),
        &[(json!({}), &[])],
    );
    let group = "rbac.authorization.k8s.io";
    let bound = json!({"roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "a"}});
    let subject = |subject: Value| json!({"subjects": [subject]});
    check_reasons(
        kind("ClusterRoleBinding"),
        &bound,
        None,
        &[
            (
                subject(json!({"kind": "ServiceAccount", "name": "a b", "namespace": ""})),
                &["Invalid subjects[0].name", "Required subjects[0].namespace"],
            ),
            (
                subject(
                    json!({"kind": "ServiceAccount", "name": "a", "namespace": "n", "apiGroup": group}),
                ),
                &["NotSupported subjects[0].apiGroup"],
            ),
            (
                json!({"roleRef": {"name": "a/b"}}),
                &["Invalid roleRef.name"],
            ),
        ],
    );
}
