//! The administrator of a namespace reaches nothing outside of it, whatever the
//! path looks like.

use harness::raw_http::RawHttpResponse;
use serde_json::{Value, json};

use crate::api::access::{RBAC, wait_until_code};
use crate::api::test_server::ApiTestServer;

const USER: &str = "scope-admin";
const NS: &str = "scope";
const NO_ROUTE: &str = "the server could not find the requested resource";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1";
const CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1";
const SEARCH: &str = "/apis/search.karmada.io/v1alpha1";
const METRICS: &str = "/apis/metrics.k8s.io/v1beta1";
const CUSTOM_METRICS: &str = "/apis/custom.metrics.k8s.io/v1beta2";

/// A server with a user who may do everything in one namespace.
fn start() -> std::sync::Arc<ApiTestServer> {
    let server = ApiTestServer::shared();
    server.create_namespace(NS);
    let everything = json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]});
    server.grant(USER, "everything", Some(NS), &everything);
    let path = format!("/api/v1/namespaces/{NS}/configmaps");
    wait_until_code(200, || server.request_as(USER, "GET", &path).send());
    server
}

fn cluster_role() -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": NS},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]})
}

fn registry() -> Value {
    json!({"apiVersion": "search.karmada.io/v1alpha1", "kind": "ResourceRegistry",
        "metadata": {"name": NS}, "spec": {"targetCluster": {}, "resourceSelectors": []}})
}

fn assert_no_route(reply: &RawHttpResponse, request: &str) {
    let text = reply.text();
    assert_eq!(reply.code, 404, "{request}: {text}");
    assert!(
        text.contains(NO_ROUTE) || text.contains("404 page not found"),
        "{request}: {text}"
    );
}

/// A request below a namespace.
struct NamespacedRequest {
    method: &'static str,
    path: String,
    body: Option<Value>,
}

fn in_namespace(method: &'static str, version: &str, rest: &str) -> NamespacedRequest {
    NamespacedRequest {
        method,
        path: format!("{version}/namespaces/{NS}/{rest}"),
        body: None,
    }
}

/// Requests for an object with the name of the namespace, and for its collection.
fn requests_for_kind(version: &str, resource: &str, object: &Value) -> Vec<NamespacedRequest> {
    let named = format!("{resource}/{NS}");
    let selected = format!("{resource}?fieldSelector=metadata.name%3D{NS}");
    let status = format!("{named}/status");
    let watch = format!("{resource}?watch=1");
    let paths: [(&[&'static str], &str); 5] = [
        (&["GET", "PUT", "PATCH", "DELETE", "POST"], &named),
        (&["GET", "POST", "DELETE"], resource),
        (&["GET", "DELETE"], &selected),
        (&["GET", "PUT", "PATCH"], &status),
        (&["GET"], &watch),
    ];
    let requests = paths.into_iter().flat_map(|(methods, path)| {
        methods.iter().map(move |&method| NamespacedRequest {
            body: (method != "GET").then(|| object.clone()),
            ..in_namespace(method, version, path)
        })
    });
    requests.collect()
}

fn requests_for_kinds() -> Vec<NamespacedRequest> {
    let named = json!({"metadata": {"name": NS}});
    let kinds = [
        (RBAC, "clusterroles", &cluster_role()),
        (RBAC, "clusterrolebindings", &named),
        (POLICIES, "mutatingadmissionpolicies", &named),
        (POLICIES, "mutatingwebhookconfigurations", &named),
        (SEARCH, "resourceregistries", &registry()),
        (CLUSTERS, "clusters", &named),
        ("/api/v1", "nodes", &named),
        ("/api/v1", "namespaces", &named),
    ];
    let requests = kinds.into_iter();
    requests
        .flat_map(|(version, resource, object)| requests_for_kind(version, resource, object))
        .collect()
}

fn connections() -> Vec<NamespacedRequest> {
    let mut requests = Vec::new();
    for method in ["GET", "POST", "DELETE"] {
        for rest in ["clusters/*/proxy/api/v1/secrets", "clusters/m/attach"] {
            requests.push(in_namespace(method, CLUSTERS, rest));
        }
        let rest = format!("clusters/{NS}/proxy/api/v1/secrets");
        requests.push(in_namespace(method, CLUSTERS, &rest));
        for rest in [
            format!("search/cache/api/v1/namespaces/{NS}/secrets"),
            format!("search/{NS}/apis/apps/v1/deployments"),
            format!("proxying/{NS}/proxy/api/v1/secrets"),
        ] {
            requests.push(in_namespace(method, SEARCH, &rest));
        }
    }
    requests
}

fn metrics() -> Vec<NamespacedRequest> {
    let mut requests = Vec::new();
    for rest in ["nodes".to_owned(), format!("nodes/{NS}")] {
        requests.push(in_namespace("GET", METRICS, &rest));
    }
    for described in ["nodes/*", "namespaces/*", &format!("namespaces/{NS}")] {
        let rest = format!("{described}/cpu");
        requests.push(in_namespace("GET", CUSTOM_METRICS, &rest));
    }
    requests
}

#[test]
fn a_cluster_scoped_resource_has_no_path_in_a_namespace() {
    let server = start();
    let all = [requests_for_kinds(), connections(), metrics()];
    for NamespacedRequest { method, path, body } in all.into_iter().flatten() {
        let request = server.request_as(USER, method, &path);
        let reply = match (&body, method) {
            (None, _) => request.send(),
            (Some(body), "PATCH") => {
                let patch = body.to_string();
                request.body("application/merge-patch+json", patch).send()
            }
            (Some(body), _) => request.json(body).send(),
        };
        assert_no_route(&reply, &format!("{method} {path}"));
    }
    // Nothing was stored or removed.
    for path in [
        format!("{RBAC}/clusterroles/{NS}"),
        format!("{POLICIES}/mutatingadmissionpolicies/{NS}"),
        format!("{SEARCH}/resourceregistries/{NS}"),
        format!("/api/v1/nodes/{NS}"),
    ] {
        assert_eq!(server.get(&path).code, 404, "{path}");
    }
    let namespace = format!("/api/v1/namespaces/{NS}");
    assert_eq!(server.request_as(USER, "GET", &namespace).send().code, 200);
    assert_eq!(server.get(&namespace).json()["status"]["phase"], "Active");
}

#[test]
fn paths_with_another_scope_are_forbidden_without_rights_to_them() {
    let server = ApiTestServer::shared();
    let path = format!("{RBAC}/namespaces/default/clusterroles/default");
    assert_no_route(
        &server.request("PUT", &path).json(&cluster_role()).send(),
        &path,
    );
    let forbidden = server.request_as("nobody-known", "GET", &path).send();
    assert_eq!(forbidden.code, 403, "{}", forbidden.text());
    // A namespaced object is not served without its namespace, and lists are.
    for (method, path, code) in [
        ("GET", "/api/v1/configmaps/a", 404),
        ("GET", "/api/v1/pods/a/log", 404),
        ("POST", "/api/v1/configmaps", 405),
        ("DELETE", "/api/v1/configmaps", 405),
        ("GET", "/api/v1/configmaps", 200),
    ] {
        let reply = server.request(method, path).send();
        assert_eq!(reply.code, code, "{method} {path}: {}", reply.text());
    }
}

#[test]
fn search_and_global_proxy_keep_the_namespace_of_their_path() {
    let server = ApiTestServer::start();
    let created = server.post(
        &format!("{SEARCH}/resourceregistries"),
        &json!({"metadata": {"name": "all"}, "spec": {"targetCluster": {}, "resourceSelectors": [
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"},
            {"apiVersion": "v1", "kind": "Namespace"}]}}),
    );
    assert_eq!(created.code, 201, "{}", created.text());
    for native in [
        format!("{RBAC}/namespaces/{NS}/clusterroles"),
        format!("{RBAC}/namespaces/{NS}/clusterroles/{NS}"),
        format!("{RBAC}/namespaces/{NS}/clusterroles?fieldSelector=metadata.name%3D{NS}"),
        format!("/api/v1/namespaces/{NS}/namespaces"),
        format!("/api/v1/namespaces/{NS}/namespaces/{NS}"),
    ] {
        for prefix in [
            format!("{SEARCH}/search/cache"),
            format!("{SEARCH}/proxying/karmada/proxy"),
        ] {
            let path = format!("{prefix}{native}");
            let reply = wait_until_code(404, || server.get(&path));
            assert!(reply.text().contains(NO_ROUTE), "{path}: {}", reply.text());
        }
    }
}
