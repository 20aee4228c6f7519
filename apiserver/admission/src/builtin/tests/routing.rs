//! Tests of ingresses, their classes, and disruption budgets.

use serde_json::{Value, json};

use super::{check, check_reasons, with};

#[test]
fn ingresses_and_disruption_budgets() {
    let path = |p: Value| {
        let ingress_path = with(
            &json!({"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "s", "port": {"number": 80}}}}),
            &p,
        );
        json!({"spec": {"rules": [{"host": "*.a.b", "http": {"paths": [ingress_path]}}]}})
    };
    let path_field = "spec.rules[0].http.paths[0]";
    check(
        "networking.k8s.io/v1",
        "Ingress",
        &json!({}),
        &[
            (path(json!({})), &[]),
            (json!({"spec": {}}), &["spec"]),
            (
                json!({"spec": {"rules": [{"host": "1.2.3.4"}]}}),
                &["spec.rules[0].host"],
            ),
            (
                json!({"spec": {"rules": [{"host": "a", "http": {}}]}}),
                &["spec.rules[0].http.paths"],
            ),
            (
                path(json!({"pathType": null})),
                &[&format!("{path_field}.pathType")],
            ),
            (
                path(json!({"pathType": "Regex"})),
                &[&format!("{path_field}.pathType")],
            ),
            (path(json!({"path": "x"})), &[&format!("{path_field}.path")]),
            (
                path(json!({"path": "/a//b"})),
                &[&format!("{path_field}.path")],
            ),
            (
                path(json!({"backend": null})),
                &[&format!("{path_field}.backend")],
            ),
            (
                path(json!({"backend": {"service": {"name": ""}}})),
                &[&format!("{path_field}.backend.service.name")],
            ),
            (
                path(json!({"backend": {"service": {"port": null}}})),
                &[&format!("{path_field}.backend")],
            ),
            (
                path(json!({"backend": {"service": {"port": {"name": "x"}}}})),
                &[&format!("{path_field}.backend")],
            ),
        ],
    );
    check(
        "policy/v1",
        "PodDisruptionBudget",
        &json!({}),
        &[
            (
                json!({"spec": {"minAvailable": "50%", "selector": {}}}),
                &[],
            ),
            (
                json!({"spec": {"minAvailable": 1, "maxUnavailable": 1}}),
                &["spec"],
            ),
            (
                json!({"spec": {"minAvailable": -1}}),
                &["spec.minAvailable"],
            ),
            (
                json!({"spec": {"unhealthyPodEvictionPolicy": "Never"}}),
                &["spec.unhealthyPodEvictionPolicy"],
            ),
            (
                json!({"spec": {"maxUnavailable": "101%"}}),
                &["spec.maxUnavailable"],
            ),
            (
                json!({"spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}}),
                &["spec.selector.matchExpressions[0].operator"],
            ),
        ],
    );
}

#[test]
fn hosts_backends_and_classes_of_ingresses() {
    let kind = ("networking.k8s.io/v1", "Ingress");
    let spec = |fields: Value| json!({ "spec": fields });
    let base = spec(json!({"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}));
    let backend = |backend: Value| spec(json!({ "defaultBackend": backend }));
    let path = |kind: &str, path: &str| {
        let backend = &base["spec"]["defaultBackend"];
        spec(
            json!({"rules": [{"http": {"paths": [{"path": path, "pathType": kind, "backend": backend}]}}]}),
        )
    };
    let at_path = "Invalid spec.rules[0].http.paths[0].path";
    let host = |host: &str| spec(json!({"rules": [{ "host": host }]}));
    let tls = |tls: Value| spec(json!({"tls": [tls]}));
    let class = json!({"metadata": {"annotations": {"kubernetes.io/ingress.class": "a"}}});
    check_reasons(
        kind,
        &base,
        None,
        &[
            (json!({}), &[]),
            (host("*.example.com"), &[]),
            (host("a.*.b"), &["Invalid spec.rules[0].host"]),
            (host("A"), &["Invalid spec.rules[0].host"]),
            (
                host("::1"),
                &["Invalid spec.rules[0].host", "Invalid spec.rules[0].host"],
            ),
            (
                tls(json!({"hosts": ["1.2.3.4", "*.a.b"], "secretName": ""})),
                &[],
            ),
            (
                tls(json!({"hosts": ["", "*"], "secretName": "a b"})),
                &[
                    "Invalid spec.tls[0].hosts[0]",
                    "Invalid spec.tls[0].hosts[1]",
                    "Invalid spec.tls[0].secretName",
                ],
            ),
            (path("ImplementationSpecific", ""), &[]),
            (path("ImplementationSpecific", "/a/../b"), &[]),
            (path("ImplementationSpecific", "a"), &[at_path]),
            (path("Exact", "/a/.."), &[at_path]),
            (path("Prefix", "/."), &[at_path]),
            (backend(json!({"service": {"name": "1s"}})), &[]),
            (
                backend(json!({"service": {"port": {"name": "http"}}})),
                &["Invalid spec.defaultBackend"],
            ),
            (
                backend(json!({"service": {"name": "S", "port": {"number": null, "name": "a b"}}})),
                &[
                    "Invalid spec.defaultBackend.service.name",
                    "Invalid spec.defaultBackend.service.port.name",
                ],
            ),
            (
                backend(json!({"service": {"port": {"number": 65_536}}})),
                &["Invalid spec.defaultBackend.service.port.number"],
            ),
            (
                backend(json!({"resource": {}})),
                &["Invalid spec.defaultBackend"],
            ),
            (
                backend(json!({"service": null, "resource": {"apiGroup": "a b", "kind": "a/b"}})),
                &[
                    "Invalid spec.defaultBackend.resource.apiGroup",
                    "Invalid spec.defaultBackend.resource.kind",
                    "Required spec.defaultBackend.resource.name",
                ],
            ),
            (
                spec(json!({"ingressClassName": "a b"})),
                &["Invalid spec.ingressClassName"],
            ),
            (class.clone(), &[]),
            (
                with(&class, &spec(json!({"ingressClassName": "b"}))),
                &["Invalid annotations.kubernetes.io/ingress.class"],
            ),
            (with(&class, &spec(json!({"ingressClassName": "a"}))), &[]),
        ],
    );
    let stored = with(
        &base,
        &with(&tls(json!({"secretName": "a b"})), &host("*.a")),
    );
    let wildcard = |path: &str| {
        spec(
            json!({"rules": [{"host": "*.a", "http": {"paths": [{"path": path, "pathType": "Exact",
        "backend": base["spec"]["defaultBackend"]}]}}]}),
        )
    };
    check_reasons(
        kind,
        &stored,
        Some(&stored),
        &[
            (class, &[]),
            (wildcard("a"), &["Invalid spec.rules[0].http.paths[0].path"]),
        ],
    );
    let stored = with(&base, &wildcard("a"));
    check_reasons(kind, &stored, Some(&stored), &[(wildcard("b"), &[])]);
}

#[test]
fn ingress_classes() {
    let kind = ("networking.k8s.io/v1", "IngressClass");
    let spec = |fields: Value| json!({ "spec": fields });
    let parameters = |change: Value| {
        let all = json!({"kind": "K", "name": "n", "scope": "Cluster"});
        spec(json!({"parameters": with(&all, &change)}))
    };
    let namespace = "spec.parameters.namespace";
    let base = spec(json!({"controller": "a.b/c"}));
    check_reasons(
        kind,
        &base,
        None,
        &[
            (json!({}), &[]),
            (parameters(json!({})), &[]),
            (
                parameters(json!({"scope": "Namespace", "namespace": "x"})),
                &[],
            ),
            (
                spec(json!({"controller": ""})),
                &["Required spec.controller"],
            ),
            (
                spec(json!({"controller": "c"})),
                &["Invalid spec.controller"],
            ),
            (
                spec(json!({"controller": format!("a.b/{}", "c".repeat(250))})),
                &["TooLong spec.controller"],
            ),
            (
                parameters(json!({"kind": "", "name": "a/b", "apiGroup": ""})),
                &[
                    "Invalid spec.parameters.apiGroup",
                    "Required spec.parameters.kind",
                    "Invalid spec.parameters.name",
                ],
            ),
            (
                parameters(json!({"scope": "World"})),
                &["NotSupported spec.parameters.scope"],
            ),
            (
                parameters(json!({"namespace": "x"})),
                &[&format!("Forbidden {namespace}")],
            ),
            (
                parameters(json!({"scope": "Namespace"})),
                &[&format!("Required {namespace}")],
            ),
            (
                parameters(json!({"scope": "Namespace", "namespace": "a.b"})),
                &[&format!("Invalid {namespace}")],
            ),
        ],
    );
    let table = [(
        spec(json!({"controller": "a.b/d"})),
        &["Invalid spec.controller"][..],
    )];
    check_reasons(kind, &base, Some(&base), &table);
}
