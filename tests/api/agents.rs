//! The rights of a bootstrap token and of the agent of a cluster: with the certificates that a
//! server issues, each thing is tried against another cluster and against all.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use harness::certificate_requests::certificate_request;
use harness::raw_http::{RawHttpRequest, RawHttpResponse, TestTlsClientConfig};
use serde_json::{Value, json};

use crate::api::bootstrap_tokens::create_token;
use crate::api::http_requests::wait_until;
use crate::api::test_server::ApiTestServer;

const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases";
const SERVICES: &str = "/api/v1/services";
const SECRETS: &str = "/api/v1/namespaces/karmada-cluster/secrets";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const REGISTRATION: &str = r#"{"provider":"","region":"north","zones":[]}"#;

/// A request for the certificate of an agent, with the token; returns its status when it is decided,
/// and the key.
fn request_certificate(
    server: &ApiTestServer,
    token: &str,
    name: &str,
    cluster: &str,
) -> (Value, String) {
    let (body, key) = signing_request(name, cluster);
    let with_token = |method, path: &str| {
        RawHttpRequest::new(&server.address, &server.anonymous, method, path)
            .header("Authorization", &format!("Bearer {token}"))
    };
    let reply = with_token("POST", CSRS).json(&body).send();
    assert_eq!(reply.code, 201, "{}", reply.text());
    let path = format!("{CSRS}/{name}");
    let status = wait_until("a decision", || {
        let status = with_token("GET", &path).send().json()["status"].clone();
        let denied = status["conditions"][0]["type"] == "Denied";
        (denied || status["certificate"].is_string()).then_some(status)
    });
    (status, key)
}

/// A request for the certificate of an agent, and its key.
fn signing_request(name: &str, cluster: &str) -> (Value, String) {
    let user = format!("system:karmada:agent:{cluster}");
    let request = certificate_request(&user, "system:karmada:agents", &[]);
    let body = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": name, "annotations": {"flotilla.io/agent-registration": REGISTRATION}},
        "spec": {"signerName": "kubernetes.io/kube-apiserver-client",
            "request": STANDARD.encode(request.request_pem), "expirationSeconds": 31_536_000,
            "usages": ["digital signature", "key encipherment", "client auth"]}});
    (body, request.key_pem)
}

/// A client with an issued certificate.
struct CertifiedClient<'a> {
    server: &'a ApiTestServer,
    config: TestTlsClientConfig,
}

impl<'a> CertifiedClient<'a> {
    fn new(server: &'a ApiTestServer, status: &Value, key: &str) -> Self {
        let certificate = STANDARD
            .decode(status["certificate"].as_str().unwrap())
            .unwrap();
        let certificate = String::from_utf8(certificate).unwrap();
        let ca = std::fs::read_to_string(server.data_dir().join("pki/ca.crt")).unwrap();
        let config = TestTlsClientConfig::new(&ca, Some((&certificate, key)));
        Self { server, config }
    }

    /// Registers the cluster with a token of its own.
    fn register(server: &'a ApiTestServer, cluster: &str) -> Self {
        let token = create_token(server, &format!("--cluster-name {cluster}"));
        Self::register_with(server, &token, &format!("csr-{cluster}"), cluster)
    }

    fn register_with(server: &'a ApiTestServer, token: &str, csr: &str, cluster: &str) -> Self {
        let (status, key) = request_certificate(server, token, csr, cluster);
        assert!(status["certificate"].is_string(), "{status}");
        let client = Self::new(server, &status, &key);
        // The rights of a new agent reach the authorizer by its cache.
        wait_until("its rights", || {
            (client.send("GET", CLUSTERS, &Value::Null).code == 200).then_some(())
        });
        client
    }

    /// Requests another certificate with its own, and waits for the decision.
    fn renew(&self, name: &str, cluster: &str) -> Value {
        let (body, _) = signing_request(name, cluster);
        let reply = self.send("POST", CSRS, &body);
        assert_eq!(reply.code, 201, "{}", reply.text());
        let path = format!("{CSRS}/{name}");
        wait_until("a decision", || {
            let status = self.server.get(&path).json()["status"].clone();
            let denied = status["conditions"][0]["type"] == "Denied";
            (denied || status["certificate"].is_string()).then_some(status)
        })
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> RawHttpResponse {
        let request = RawHttpRequest::new(&self.server.address, &self.config, method, path);
        match (method, body.is_null()) {
            (_, true) => request.send(),
            ("PATCH", _) => request
                .body("application/merge-patch+json", body.to_string())
                .send(),
            _ => request.json(body).send(),
        }
    }

    /// Asserts that the server refuses with 403.
    fn assert_forbidden(&self, method: &str, path: &str, body: &Value) {
        let reply = self.send(method, path, body);
        assert_eq!(reply.code, 403, "{method} {path} {body}: {}", reply.text());
    }
}

fn cluster(name: &str) -> Value {
    json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
        "spec": {"syncMode": "Pull", "id": format!("{name}-id"), "region": "north"}})
}

fn denial(status: &Value) -> &str {
    assert_eq!(status["conditions"][0]["type"], "Denied", "{status}");
    status["conditions"][0]["message"].as_str().unwrap()
}

// proves: CSR-one-cluster, CSR-existing
#[test]
fn a_token_registers_one_cluster() {
    let server = ApiTestServer::shared();
    let token = create_token(&server, "");
    let (first, _) = request_certificate(&server, &token, "one-first", "one");
    assert!(first["certificate"].is_string(), "{first}");
    // The same cluster again, after a registration that failed; but no second one.
    let (again, _) = request_certificate(&server, &token, "one-again", "one");
    assert!(again["certificate"].is_string(), "{again}");
    let (second, _) = request_certificate(&server, &token, "one-second", "two");
    assert!(
        denial(&second).contains("registers the cluster \"one\" only"),
        "{second}"
    );
    let other = create_token(&server, "--cluster-name three");
    let (denied, _) = request_certificate(&server, &other, "one-taken", "one");
    assert!(
        denial(&denied).contains("registers the cluster \"three\" only"),
        "{denied}"
    );
    let unbound = create_token(&server, "");
    let (denied, _) = request_certificate(&server, &unbound, "one-unbound", "one");
    assert!(
        denial(&denied).contains("another bootstrap token"),
        "{denied}"
    );
    let push = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": "pushed"}, "spec": {"syncMode": "Push"}});
    let reply = server.post(CLUSTERS, &push);
    assert_eq!(reply.code, 201, "{}", reply.text());
    let (existing, _) = request_certificate(&server, &unbound, "one-existing", "pushed");
    assert!(
        denial(&existing).contains("cluster with name pushed already exists"),
        "{existing}"
    );
    for reserved in ["one-impersonator", "Upper"] {
        let name = format!("one-{}", reserved.to_lowercase());
        let (rejection, _) = request_certificate(&server, &unbound, &name, reserved);
        assert!(
            denial(&rejection).contains("no agent may have"),
            "{rejection}"
        );
    }
}

// proves: AGT-own, AGT-foreign, AGT-works, AGT-registered
#[test]
fn an_agent_has_its_own_cluster_only() {
    let server = ApiTestServer::shared();
    let agent = CertifiedClient::register(&server, "agent-a");
    drop(CertifiedClient::register(&server, "agent-b"));
    let lease = |name: &str| {
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"namespace": "karmada-cluster", "name": name}, "spec": {"holderIdentity": name}})
    };
    let secret = |name: &str, kind: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": {"name": name,
            "annotations": {"kubernetes.io/service-account.name": "default"}}})
    };
    let mut elsewhere = cluster("agent-a");
    elsewhere["spec"]["region"] = "south".into();
    agent.assert_forbidden("POST", CLUSTERS, &elsewhere);
    let mut labeled = cluster("agent-a");
    labeled["metadata"]["labels"] = json!({"env": "prod"});
    agent.assert_forbidden("POST", CLUSTERS, &labeled);
    let mut pushed = cluster("agent-a");
    pushed["spec"]["syncMode"] = "Push".into();
    agent.assert_forbidden("POST", CLUSTERS, &pushed);
    agent.assert_forbidden("POST", CLUSTERS, &cluster("agent-b"));
    let reply = agent.send("POST", CLUSTERS, &cluster("agent-a"));
    assert_eq!(reply.code, 201, "{}", reply.text());
    let reply = agent.send("POST", LEASES, &lease("agent-a"));
    assert_eq!(reply.code, 201, "{}", reply.text());
    let reply = server.post(LEASES, &lease("agent-b"));
    assert_eq!(reply.code, 201, "{}", reply.text());
    let other = format!("{LEASES}/agent-b");
    agent.assert_forbidden("PUT", &other, &reply.json());
    agent.assert_forbidden("POST", LEASES, &lease("agent-c"));
    let reply = agent.send("POST", SECRETS, &secret("agent-a", "Opaque"));
    assert_eq!(reply.code, 201, "{}", reply.text());
    agent.assert_forbidden("POST", SECRETS, &secret("agent-b", "Opaque"));
    let token = secret(
        "agent-a-impersonator",
        "kubernetes.io/service-account-token",
    );
    agent.assert_forbidden("POST", SECRETS, &token);
    agent.assert_forbidden("GET", &format!("{SECRETS}/agent-b"), &Value::Null);
    agent.assert_forbidden("GET", &format!("{CLUSTERS}/agent-b"), &Value::Null);
    agent.assert_forbidden("DELETE", &format!("{CLUSTERS}/pushed"), &Value::Null);
    let region = json!({"spec": {"region": "south"}});
    agent.assert_forbidden("PATCH", &format!("{CLUSTERS}/agent-a"), &region);
    assert_works_and_events_are_its_own(&agent);
}

fn assert_works_and_events_are_its_own(agent: &CertifiedClient<'_>) {
    let works = |cluster: &str| {
        format!("/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-{cluster}/works")
    };
    let work = |name: &str, kind: &str, labels: Value| {
        json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
            "metadata": {"name": name, "labels": labels},
            "spec": {"suspendDispatching": true, "workload": {"manifests": [
                {"apiVersion": "discovery.k8s.io/v1", "kind": kind, "addressType": "IPv4",
                    "metadata": {"namespace": "default", "name": "web"}, "endpoints": []}]}}})
    };
    let own = works("agent-a");
    let reply = agent.send("POST", &own, &work("slice", "EndpointSlice", json!({})));
    assert_eq!(reply.code, 201, "{}", reply.text());
    agent.assert_forbidden("POST", &own, &work("export", "ServiceExport", json!({})));
    let binding = json!({"resourcebinding.karmada.io/permanent-id": "b"});
    agent.assert_forbidden(
        "POST",
        &own,
        &work("bound", "EndpointSlice", binding.clone()),
    );
    let stolen = json!({"metadata": {"labels": binding}});
    agent.assert_forbidden("PATCH", &format!("{own}/slice"), &stolen);
    for kept in [
        json!({"metadata": {"finalizers": ["a.b/c"]}}),
        json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": "u"}]}}),
    ] {
        agent.assert_forbidden("PATCH", &format!("{own}/slice"), &kept);
    }
    agent.assert_forbidden("GET", &works("agent-b"), &Value::Null);
    agent.assert_forbidden(
        "POST",
        &works("agent-b"),
        &work("slice", "EndpointSlice", json!({})),
    );
    let event = |kind: &str, name: &str, reason: &str| {
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": format!("{name}.{reason}").to_lowercase()},
            "type": "Normal", "reason": reason, "involvedObject": {"kind": kind, "name": name}})
    };
    let events = "/api/v1/namespaces/default/events";
    let reply = agent.send("POST", events, &event("Cluster", "agent-a", "ClusterReady"));
    assert_eq!(reply.code, 201, "{}", reply.text());
    agent.assert_forbidden("POST", events, &event("Cluster", "agent-b", "ClusterReady"));
    agent.assert_forbidden(
        "POST",
        events,
        &event("Namespace", "default", "SyncSucceed"),
    );
}

// proves: AGT-reads, AGT-own
#[test]
fn an_agent_reads_nothing_of_other_clusters() {
    let server = ApiTestServer::shared();
    let agent = CertifiedClient::register(&server, "reader-a");
    let other = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": "reader-b"}, "spec": {"syncMode": "Push", "id": "reader-b-id",
            "apiEndpoint": "https://10.0.0.1", "proxyURL": "https://10.0.0.2",
            "proxyHeader": {"Authorization": "secret"}}});
    let reply = server.post(CLUSTERS, &other);
    assert_eq!(reply.code, 201, "{}", reply.text());
    let mut same_member = cluster("reader-a");
    same_member["spec"]["id"] = "reader-b-id".into();
    let reply = agent.send("POST", CLUSTERS, &same_member);
    assert_eq!(reply.code, 422, "{}", reply.text());
    assert_eq!(reply.json()["details"]["causes"][0]["field"], "spec.id");
    let reply = agent.send("POST", CLUSTERS, &cluster("reader-a"));
    assert_eq!(reply.code, 201, "{}", reply.text());
    for (query, expected) in [
        ("", 1),
        ("?limit=500&resourceVersion=0", 1),
        ("?fieldSelector=metadata.name%3Dreader-a", 1),
        ("?fieldSelector=metadata.name!%3Dreader-a", 0),
    ] {
        let listed = agent.send("GET", &format!("{CLUSTERS}{query}"), &Value::Null);
        assert_eq!(listed.code, 200, "{}", listed.text());
        let listed = listed.json();
        let names = listed["items"].as_array().unwrap().iter();
        let names: Vec<&Value> = names.map(|item| &item["metadata"]["name"]).collect();
        assert_eq!(names, vec!["reader-a"; expected], "{query}");
    }
    let watch = "?watch=1&timeoutSeconds=5&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let watched = agent.send("GET", &format!("{CLUSTERS}{watch}"), &Value::Null);
    assert!(watched.text().contains("reader-a"), "{}", watched.text());
    assert!(!watched.text().contains("reader-b"), "{}", watched.text());
    for path in [
        &format!("{CLUSTERS}?fieldSelector=metadata.name%3Dreader-b"),
        &format!("{CLUSTERS}?watch=1&fieldSelector=metadata.name%3Dreader-b"),
        &format!("{CLUSTERS}/reader-b"),
        &format!("{CLUSTERS}/reader-b/status"),
        &format!("{CLUSTERS}/reader-b/proxy/api"),
        &format!("{CLUSTERS}/*/proxy/api"),
        SERVICES,
        "/api/v1/namespaces/default/services/kubernetes",
        "/api/v1/namespaces/default",
        "/api/v1/namespaces",
        LEASES,
        &format!("{LEASES}/reader-b"),
        "/api/v1/namespaces/default/events",
        "/api/v1/namespaces/kube-system/configmaps",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/policy.karmada.io/v1alpha1/propagationpolicies",
        "/apis/search.karmada.io/v1alpha1/proxying/karmada/proxy/api/v1/nodes",
        "/apis/metrics.k8s.io/v1beta1/nodes",
        "/metrics",
        "/debug/pprof/heap",
        "/flotilla/backup",
    ] {
        agent.assert_forbidden("GET", path, &Value::Null);
    }
    for path in [
        "/api/v1/namespaces/kube-system",
        "/api/v1/namespaces/karmada-es-reader-a",
    ] {
        let reply = agent.send("GET", path, &Value::Null);
        assert_eq!(reply.code, 200, "{path}: {}", reply.text());
    }
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": "a", "nonResourceAttributes": {"verb": "get", "path": "/"}}});
    let reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    agent.assert_forbidden("POST", reviews, &review);
}

// proves: CSR-ended, AGT-former, AGT-ended
#[test]
fn the_rights_of_an_agent_end_with_its_cluster() {
    let server = ApiTestServer::shared();
    let token = create_token(&server, "");
    let agent = CertifiedClient::register_with(&server, &token, "ended-first", "ended");
    let reply = agent.send("POST", CLUSTERS, &cluster("ended"));
    assert_eq!(reply.code, 201, "{}", reply.text());
    let renewed = agent.renew("ended-renewal", "ended");
    assert!(renewed["certificate"].is_string(), "{renewed}");
    let own = format!("{CLUSTERS}/ended");
    wait_until("its finalizer", || {
        let finalizers = server.get(&own).json()["metadata"]["finalizers"].clone();
        finalizers.is_array().then_some(())
    });
    let reply = server.request("DELETE", &own).send();
    assert_eq!(reply.code, 200, "{}", reply.text());
    wait_until("the deletion", || {
        (server.get(&own).code == 404).then_some(())
    });
    wait_until("the end of its rights", || {
        (agent.send("GET", CLUSTERS, &Value::Null).code == 403).then_some(())
    });
    let assert_has_no_rights = |agent: &CertifiedClient<'_>, csr: &str| {
        agent.assert_forbidden("GET", CLUSTERS, &Value::Null);
        agent.assert_forbidden("POST", CLUSTERS, &cluster("ended"));
        agent.assert_forbidden("GET", &format!("{LEASES}/ended"), &Value::Null);
        agent.assert_forbidden("GET", &format!("{SECRETS}/ended"), &Value::Null);
        agent.assert_forbidden("POST", CSRS, &signing_request(csr, "ended").0);
    };
    assert_has_no_rights(&agent, "ended-again");
    // Whoever unregisters a cluster as its agent sees that it is gone.
    assert_eq!(agent.send("GET", &own, &Value::Null).code, 404);
    let (used, _) = request_certificate(&server, &token, "ended-used", "ended");
    assert!(denial(&used).contains("has ended"), "{used}");
    let (used, _) = request_certificate(&server, &token, "ended-roles", "rbac-generator");
    assert!(denial(&used).contains("was used"), "{used}");
    let second = create_token(&server, "--cluster-name ended");
    let next = CertifiedClient::register_with(&server, &second, "ended-next", "ended");
    let reply = next.send("POST", CLUSTERS, &cluster("ended"));
    assert_eq!(reply.code, 201, "{}", reply.text());
    assert_has_no_rights(&agent, "ended-former");
    agent.assert_forbidden("GET", &own, &Value::Null);
    agent.assert_forbidden("POST", &format!("{own}/attach"), &Value::Null);
    assert_eq!(next.send("GET", &own, &Value::Null).code, 200);
    let (used, _) = request_certificate(&server, &token, "ended-used-again", "ended");
    assert!(denial(&used).contains("already exists"), "{used}");
}

// proves: AGT-former
#[test]
fn a_registration_without_a_cluster_ends_with_the_next_one() {
    let server = ApiTestServer::shared();
    let token = create_token(&server, "");
    let former = CertifiedClient::register_with(&server, &token, "taken-first", "taken");
    let id = token.trim().split('.').next().unwrap();
    let secret = format!("/api/v1/namespaces/kube-system/secrets/bootstrap-token-{id}");
    assert_eq!(server.request("DELETE", &secret).send().code, 200);
    let token = create_token(&server, "--cluster-name taken");
    let agent = CertifiedClient::register_with(&server, &token, "taken-next", "taken");
    let reply = agent.send("POST", CLUSTERS, &cluster("taken"));
    assert_eq!(reply.code, 201, "{}", reply.text());
    let own = format!("{CLUSTERS}/taken");
    wait_until("the end of its rights", || {
        (former.send("GET", &own, &Value::Null).code == 403).then_some(())
    });
    former.assert_forbidden("GET", &format!("{SECRETS}/taken"), &Value::Null);
    former.assert_forbidden("POST", &format!("{own}/attach"), &Value::Null);
    assert_eq!(agent.send("GET", &own, &Value::Null).code, 200);
}

// proves: AGT-generator, CSR-generator
#[test]
fn whoever_creates_the_roles_of_agents_has_no_other_rights() {
    let server = ApiTestServer::shared();
    let token = create_token(&server, "");
    let (status, key) =
        request_certificate(&server, &token, "agent-rbac-generator-x", "rbac-generator");
    let pem = STANDARD
        .decode(status["certificate"].as_str().unwrap())
        .unwrap();
    let (from, until) =
        machinery::certificate_request::certificate_validity(&String::from_utf8(pem).unwrap())
            .unwrap();
    assert!(until - from <= 15 * 60, "{} s", until - from);
    let generator = CertifiedClient::new(&server, &status, &key);
    for path in [
        SECRETS,
        "/api/v1/namespaces/kube-system/secrets",
        "/apis/work.karmada.io/v1alpha1/works",
        "/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-x/works",
    ] {
        generator.assert_forbidden("GET", path, &Value::Null);
    }
    generator.assert_forbidden("DELETE", &format!("{CLUSTERS}/x"), &Value::Null);
    generator.assert_forbidden(
        "DELETE",
        &format!("{RBAC}/clusterroles/cluster-admin"),
        &Value::Null,
    );
    generator.assert_forbidden("GET", CLUSTERS, &Value::Null);
    let absent = format!("{CLUSTERS}/gen-a");
    assert_eq!(generator.send("GET", &absent, &Value::Null).code, 404);
    let role = |kind: &str, name: &str, rules: Value| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "rules": rules});
    let wide = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]);
    let name = "system:karmada:gen-a:agent";
    let cluster_roles = format!("{RBAC}/clusterroles");
    generator.assert_forbidden("POST", &cluster_roles, &role("ClusterRole", name, wide));
    generator.assert_forbidden(
        "POST",
        &cluster_roles,
        &role("ClusterRole", "other", json!([])),
    );
    let own = json!([{"apiGroups": ["cluster.karmada.io"], "resources": ["clusters"], "verbs": ["get", "delete"], "resourceNames": ["gen-a"]}]);
    let reply = generator.send("POST", &cluster_roles, &role("ClusterRole", name, own));
    assert_eq!(reply.code, 201, "{}", reply.text());
    // A role that has no rules yet is bound to its agent only.
    let empty = role("ClusterRole", "system:karmada:gen-unbound:agent", json!([]));
    assert_eq!(generator.send("POST", &cluster_roles, &empty).code, 201);
    let everybody = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "system:karmada:gen-unbound:agent"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:karmada:gen-unbound:agent"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}]});
    generator.assert_forbidden("POST", &format!("{RBAC}/clusterrolebindings"), &everybody);
    let secrets = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]}]);
    let secrets = role("Role", "system:karmada:gen-a:agent-secret", secrets);
    let reply = generator.send(
        "POST",
        &format!("{RBAC}/namespaces/karmada-cluster/roles"),
        &secrets,
    );
    assert_eq!(reply.code, 201, "{}", reply.text());
    generator.assert_forbidden(
        "POST",
        &format!("{RBAC}/namespaces/kube-system/roles"),
        &secrets,
    );
    let bind = |name: &str, role: &str| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:karmada:agent:gen-a"}]})
    };
    let bindings = format!("{RBAC}/clusterrolebindings");
    generator.assert_forbidden("POST", &bindings, &bind(name, "cluster-admin"));
    let reply = generator.send("POST", &bindings, &bind(name, name));
    assert_eq!(reply.code, 201, "{}", reply.text());
    let space =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "karmada-es-gen-a"}});
    let reply = generator.send("POST", "/api/v1/namespaces", &space);
    assert_eq!(reply.code, 201, "{}", reply.text());
    let other = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gen-a"}});
    generator.assert_forbidden("POST", "/api/v1/namespaces", &other);
    let skipped = json!({"namespace.karmada.io/skip-auto-propagation": "true"});
    for (pointer, value) in [
        (
            "metadata",
            json!({"name": "karmada-es-gen-b", "labels": skipped}),
        ),
        ("spec", json!({"finalizers": ["a.b/c"]})),
    ] {
        let mut space = space.clone();
        space["metadata"]["name"] = "karmada-es-gen-b".into();
        space[pointer] = value;
        generator.assert_forbidden("POST", "/api/v1/namespaces", &space);
    }
    // A role without rights does not block the name.
    let empty = role("ClusterRole", "system:karmada:gen-b:agent", json!([]));
    let reply = generator.send("POST", &cluster_roles, &empty);
    assert_eq!(reply.code, 201, "{}", reply.text());
    let agent = CertifiedClient::register(&server, "gen-b");
    let reply = agent.send("POST", CLUSTERS, &cluster("gen-b"));
    assert_eq!(reply.code, 201, "{}", reply.text());
}

// proves: CSR-insecure
#[test]
fn karmadas_way_of_registration_needs_a_flag() {
    let server = ApiTestServer::start_with(&["--insecure-agent-registration"]);
    let token = create_token(&server, "");
    for cluster in ["first", "second"] {
        let (status, _) = request_certificate(&server, &token, cluster, cluster);
        assert!(status["certificate"].is_string(), "{status}");
    }
    let (status, key) = request_certificate(&server, &token, "generator", "rbac-generator");
    let generator = CertifiedClient::new(&server, &status, &key);
    let works = "/apis/work.karmada.io/v1alpha1/works";
    assert_eq!(generator.send("GET", works, &Value::Null).code, 200);
    // Its own rights decide what it may grant, whatever the role is named.
    let rules =
        json!([{"apiGroups": ["work.karmada.io"], "resources": ["works"], "verbs": ["get"]}]);
    let mut role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "works-of-agents"}, "rules": rules});
    let cluster_roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let reply = generator.send("POST", cluster_roles, &role);
    assert_eq!(reply.code, 201, "{}", reply.text());
    role["metadata"]["name"] = "pods-of-agents".into();
    role["rules"][0] = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["delete"]});
    generator.assert_forbidden("POST", cluster_roles, &role);
    // Without the flag the rights are gone again.
    let server = server.restart();
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": "system:karmada:agent:rbac-generator", "resourceAttributes":
            {"verb": "list", "group": "work.karmada.io", "resource": "works"}}});
    let reply = server.post(
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        &review,
    );
    assert_eq!(reply.json()["status"]["allowed"], false, "{}", reply.text());
}
