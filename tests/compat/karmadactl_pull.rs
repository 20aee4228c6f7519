//! The requests of `karmadactl token`, `register` and `unregister` to a control plane, and those
//! of Karmada's agent with the rights that `register` gives it.
//!
//! Sources: Karmada's `pkg/karmadactl/{token,register,unregister}`, `pkg/util/{credential,rbac}.go`,
//! `cmd/agent/app/agent.go`, `pkg/controllers/{execution,status,certificate}`, at f8fdd02df376.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use harness::certificate_requests::rsa_certificate_request;
use harness::http_client::{
    CLUSTERS_PATH, HttpTestClient, HttpTestRequest, HttpTestResponse, full_body,
};
use hyper::Method;
use serde_json::{Value, json};

use crate::compat::karmadactl_requests::KarmadactlRequestChecker;
use crate::compat::test_server::CompatTestServer;

const NAME: &str = "edge";
const TOKEN: (&str, &str) = ("abcdef", "0123456789abcdef");
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const SECRETS: &str = "/api/v1/namespaces/karmada-cluster/secrets";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases";
const WORKS: &str = "/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-edge/works";
const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
const JSON: &str = "application/json";

fn checker<'a>(command: &'a str, target: &'a HttpTestClient) -> KarmadactlRequestChecker<'a> {
    KarmadactlRequestChecker { command, target }
}

async fn put(checker: &KarmadactlRequestChecker<'_>, path: &str, body: &Value) -> Value {
    let request = HttpTestRequest::new(Method::PUT, path)
        .header("accept", JSON)
        .json(body);
    checker
        .request(request, &format!("PUT {path}"), &[200], &[])
        .await
}

/// Replays `token create` and `token list`.
async fn create_token(admin: &HttpTestClient) {
    let create = checker("token create", admin);
    let secrets = "/api/v1/namespaces/kube-system/secrets";
    let name = format!("bootstrap-token-{}", TOKEN.0);
    create.get(&format!("{secrets}/{name}"), 404, &[]).await;
    let text = |text: &str| STANDARD.encode(text);
    let data = json!({
        "token-id": text(TOKEN.0), "token-secret": text(TOKEN.1), "expiration": text("2099-01-01T00:00:00Z"),
        "usage-bootstrap-signing": text("true"), "usage-bootstrap-authentication": text("true"),
        "auth-extra-groups": text("system:bootstrappers:karmada:default-cluster-token"),
    });
    let secret = json!({"metadata": {"name": name, "namespace": "kube-system"},
        "type": "bootstrap.kubernetes.io/token", "data": data});
    let kind = [("/type", json!("bootstrap.kubernetes.io/token"))];
    create.post(secrets, secret, &kind).await;
    let list = checker("token list", admin);
    let selected = format!("{secrets}?fieldSelector=type%3Dbootstrap.kubernetes.io%2Ftoken");
    let tokens = list
        .get(&selected, 200, &[("/kind", json!("SecretList"))])
        .await;
    let items = tokens["items"].as_array().unwrap();
    assert!(
        items
            .iter()
            .any(|item| item["metadata"]["name"] == name.as_str()),
        "{tokens}"
    );
}

/// Requests with the bootstrap token.
async fn with_token(
    anonymous: &HttpTestClient,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> HttpTestResponse {
    let bearer = format!("Bearer {}.{}", TOKEN.0, TOKEN.1);
    let request = HttpTestRequest::new(method, path)
        .header("authorization", &bearer)
        .header("accept", JSON);
    anonymous
        .call(match body {
            Some(body) => request.json(body),
            None => request,
        })
        .await
}

/// Replays the request of a certificate; returns the certificate and its key, both PEM.
async fn issue(anonymous: &HttpTestClient, csr: &str, user: &str) -> (Vec<u8>, String) {
    let request = rsa_certificate_request(user, "system:karmada:agents");
    let body = json!({
        "metadata": {"name": csr, "labels": {"karmada.io/system": "true"}},
        "spec": {"request": STANDARD.encode(&request.request_pem), "signerName": SIGNER,
            "expirationSeconds": 31_536_000,
            "usages": ["digital signature", "key encipherment", "client auth"]},
        "status": {},
    });
    let created = with_token(anonymous, Method::POST, REQUESTS, Some(&body)).await;
    assert_eq!(created.code, 201, "{}", created.json());
    let path = format!("{REQUESTS}/{csr}");
    let certificate = harness::http_client::within_timeout("a certificate", async {
        loop {
            let stored = with_token(anonymous, Method::GET, &path, None).await;
            assert_eq!(stored.code, 200, "{}", stored.json());
            if let Some(certificate) = stored.json()["status"]["certificate"].as_str() {
                return STANDARD.decode(certificate).unwrap();
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    });
    (certificate.await, request.key_pem)
}

/// The roles that `register` creates, with their paths, and their bindings.
fn agent_roles() -> Vec<(String, Value)> {
    let rule = |group: &str, resources: &[&str], verbs: &[&str], names: &[&str]| {
        let mut rule = json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
        if !names.is_empty() {
            rule["resourceNames"] = json!(names);
        }
        rule
    };
    let clusters = "cluster.karmada.io";
    let wide = json!([
        rule(clusters, &["clusters"], &["get", "delete"], &[NAME]),
        rule(clusters, &["clusters"], &["create", "list", "watch"], &[]),
        rule(clusters, &["clusters/status"], &["update"], &[NAME]),
        rule(
            "config.karmada.io",
            &[
                "resourceinterpreterwebhookconfigurations",
                "resourceinterpretercustomizations"
            ],
            &["get", "list", "watch"],
            &[]
        ),
        rule("", &["namespaces"], &["get"], &[]),
        rule(
            "coordination.k8s.io",
            &["leases"],
            &["get", "create", "update"],
            &[]
        ),
        rule(
            "certificates.k8s.io",
            &["certificatesigningrequests"],
            &["get", "create"],
            &[]
        ),
        rule("", &["services"], &["list", "watch"], &[]),
        rule("", &["events"], &["patch", "create", "update"], &[]),
    ]);
    let secrets = json!([
        rule(
            "",
            &["secrets"],
            &["get", "patch"],
            &[NAME, "edge-impersonator"]
        ),
        rule("", &["secrets"], &["create"], &[]),
    ]);
    let verbs = ["get", "create", "list", "watch", "update", "delete"];
    let works = json!([
        rule("work.karmada.io", &["works"], &verbs, &[]),
        rule(
            "work.karmada.io",
            &["works/status"],
            &["patch", "update"],
            &[]
        ),
    ]);
    let mut all = Vec::new();
    for (namespace, name, rules) in [
        ("", "system:karmada:edge:agent", wide),
        (
            "karmada-cluster",
            "system:karmada:edge:agent-secret",
            secrets,
        ),
        ("karmada-es-edge", "system:karmada:edge:agent-work", works),
    ] {
        let (kind, at) = match namespace {
            "" => ("ClusterRole", RBAC.to_owned()),
            namespace => ("Role", format!("{RBAC}/namespaces/{namespace}")),
        };
        let mut metadata = json!({"name": name});
        if !namespace.is_empty() {
            metadata["namespace"] = namespace.into();
        }
        let plural = format!("{}s", kind.to_lowercase());
        let role = json!({"metadata": metadata, "rules": rules});
        all.push((format!("{at}/{plural}"), role));
        let group = "rbac.authorization.k8s.io";
        let user = format!("system:karmada:agent:{NAME}");
        let binding = json!({"metadata": metadata,
            "subjects": [{"kind": "User", "apiGroup": group, "name": user}],
            "roleRef": {"apiGroup": group, "kind": kind, "name": name}});
        let plural = plural.replace("roles", "rolebindings");
        all.push((format!("{at}/{plural}"), binding));
    }
    all
}

/// Replays `register` up to the certificate of the agent; returns a client with it.
async fn register(server: &CompatTestServer) -> HttpTestClient {
    let anonymous = &server.anonymous;
    let info = checker("register", anonymous);
    let path = "/api/v1/namespaces/kube-public/configmaps/cluster-info";
    let signed = |reply: &HttpTestResponse| {
        reply.code == 200 && reply.json()["data"]["jws-kubeconfig-abcdef"].is_string()
    };
    info.get_until(path, "signed", signed).await;
    let csr = "agent-rbac-generator-edgex2v5z";
    let generator = "system:karmada:agent:rbac-generator";
    let (certificate, key) = issue(anonymous, csr, generator).await;
    let generator = server.client(&certificate, key.as_bytes());
    let register = checker("register", &generator);
    let cluster = format!("{CLUSTERS_PATH}/{NAME}");
    register.get(&cluster, 404, &[]).await;
    for (path, body) in agent_roles() {
        if let Some(namespace) = body["metadata"]["namespace"].as_str() {
            let body =
                json!({"metadata": {"name": namespace, "labels": {"karmada.io/system": "true"}}});
            let request = HttpTestRequest::new(Method::POST, "/api/v1/namespaces").json(&body);
            let line = format!("POST namespace {namespace}");
            register.request(request, &line, &[201, 409], &[]).await;
        }
        let name = [("/metadata/name", body["metadata"]["name"].clone())];
        register.post(&path, body, &name).await;
    }
    // karmadactl only warns that it may not.
    let request = HttpTestRequest::new(Method::DELETE, &format!("{REQUESTS}/{csr}"));
    register
        .request(request, "DELETE the request", &[403], &[])
        .await;
    let user = format!("system:karmada:agent:{NAME}");
    let (certificate, key) = issue(anonymous, "edge-7x2vd", &user).await;
    server.client(&certificate, key.as_bytes())
}

/// Replays the start of Karmada's agent: Secrets, Cluster, caches, status and lease.
async fn start_agent(agent: &HttpTestClient) {
    let agent = checker("karmada-agent", agent);
    let list = [("/kind", json!("ClusterList"))];
    // The authorizer reads the keys of a registration from its cache.
    let is_admitted = |reply: &HttpTestResponse| reply.code == 200;
    agent
        .get_until(CLUSTERS_PATH, "admitted", is_admitted)
        .await;
    agent.get(CLUSTERS_PATH, 200, &list).await;
    agent
        .get("/api/v1/namespaces/karmada-cluster", 200, &[])
        .await;
    for name in ["edge-impersonator", NAME] {
        let labels = json!({"karmada.io/system": "true"});
        let body = json!({"metadata": {"name": name, "namespace": "karmada-cluster", "labels": labels},
            "data": {"token": STANDARD.encode("t")}});
        agent.post(SECRETS, body, &[]).await;
    }
    let cluster_path = format!("{CLUSTERS_PATH}/{NAME}");
    agent.get(&cluster_path, 404, &[]).await;
    let reference = |name: &str| json!({"namespace": "karmada-cluster", "name": name});
    let cluster = json!({"metadata": {"name": NAME}, "spec": {"syncMode": "Pull", "id": "edge-id",
        "apiEndpoint": "https://10.0.0.1:6443", "secretRef": reference(NAME),
        "impersonatorSecretRef": reference("edge-impersonator")}, "status": {}});
    let created = agent
        .post(CLUSTERS_PATH, cluster, &[("/spec/syncMode", json!("Pull"))])
        .await;
    for name in ["edge-impersonator", NAME] {
        let owner = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "name": NAME,
            "uid": created["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true});
        let patch = json!({"metadata": {"ownerReferences": [owner]}});
        agent
            .merge(&format!("{SECRETS}/{name}"), patch, 200, &[])
            .await;
    }
    for path in ["/api", "/apis"] {
        agent.get(path, 200, &[]).await;
    }
    for path in [
        CLUSTERS_PATH,
        WORKS,
        "/api/v1/services",
        "/apis/config.karmada.io/v1alpha1/resourceinterpretercustomizations",
        "/apis/config.karmada.io/v1alpha1/resourceinterpreterwebhookconfigurations",
    ] {
        let listed = agent
            .get(&format!("{path}?limit=500&resourceVersion=0"), 200, &[])
            .await;
        for item in listed["items"].as_array().unwrap() {
            let metadata = &item["metadata"];
            let is_own = match path {
                CLUSTERS_PATH => metadata["name"] == NAME,
                "/api/v1/services" => metadata["namespace"] == "karmada-system",
                _ => true,
            };
            assert!(is_own, "{path}: {metadata}");
        }
        let version = listed["metadata"]["resourceVersion"].as_str().unwrap();
        let watch = format!(
            "{path}?allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds=1&watch=true"
        );
        let watched = agent.target.get(&watch).await;
        assert_eq!(watched.code, 200, "{watch}");
    }
    let mut current = agent.get(&cluster_path, 200, &[]).await;
    current["status"] = json!({"kubernetesVersion": "v1.34.0", "conditions": [{"type": "Ready",
        "status": "True", "reason": "ClusterReady", "message": "cluster is healthy and ready to accept workloads",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    let written = put(&agent, &format!("{cluster_path}/status"), &current).await;
    assert_eq!(written["status"]["kubernetesVersion"], "v1.34.0");
    let lease_path = format!("{LEASES}/{NAME}");
    agent.get(&lease_path, 404, &[]).await;
    let owner = json!([{"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "name": NAME,
        "uid": created["metadata"]["uid"]}]);
    let lease = json!({"metadata": {"name": NAME, "namespace": "karmada-cluster", "ownerReferences": owner},
        "spec": {"holderIdentity": NAME, "leaseDurationSeconds": 40, "renewTime": "2026-01-01T00:00:00.000000Z"}});
    let mut lease = agent.post(LEASES, lease, &[]).await;
    lease["spec"]["renewTime"] = "2026-01-01T00:00:10.000000Z".into();
    put(&agent, &lease_path, &lease).await;
}

/// Replays what the agent does with one Work, and what it may not do.
async fn run_work(admin: &HttpTestClient, agent: &HttpTestClient) {
    let plane = checker("binding controller", admin);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": "a"}});
    let work = json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
        "metadata": {"name": "w", "namespace": "karmada-es-edge"}, "spec": {"workload": {"manifests": [map]}}});
    plane.post(WORKS, work, &[]).await;
    let agent = checker("karmada-agent", agent);
    let path = format!("{WORKS}/w");
    let mut work = agent.get(&path, 200, &[]).await;
    work["metadata"]["finalizers"] = json!(["karmada.io/execution-controller"]);
    let mut work = put(&agent, &path, &work).await;
    let applied = json!({"type": "Applied", "status": "True", "reason": "AppliedSuccessful",
        "message": "Manifest has been successfully applied", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    work["status"] = json!({"conditions": [applied]});
    let written = put(&agent, &format!("{path}/status"), &work).await;
    assert_eq!(written["status"]["conditions"][0]["type"], "Applied");
    let event = json!({"metadata": {"name": "w.1", "namespace": "karmada-es-edge"}, "reason": "SyncSucceed",
        "message": "m", "type": "Normal", "count": 1, "source": {"component": "execution-controller"},
        "involvedObject": {"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "name": "w", "namespace": "karmada-es-edge"}});
    let events = "/api/v1/namespaces/karmada-es-edge/events";
    agent.post(events, event, &[]).await;
    let counted = HttpTestRequest::new(Method::PATCH, &format!("{events}/w.1"))
        .header("content-type", "application/strategic-merge-patch+json")
        .body(full_body(json!({"count": 2}).to_string()));
    let count = [("/count", json!(2))];
    agent
        .request(counted, "PATCH an event", &[200], &count)
        .await;
    // These are no rights of the role.
    agent
        .merge(&path, json!({"metadata": {"labels": {"a": "b"}}}), 403, &[])
        .await;
    let patch = json!({"spec": {"region": "r"}});
    let cluster = format!("{CLUSTERS_PATH}/{NAME}");
    agent.merge(&cluster, patch, 403, &[]).await;
    agent.get(SECRETS, 403, &[]).await;
}

/// One round of the deletion of Works, and of the agent, which removes its finalizer from each;
/// returns whether there were any.
async fn delete_works(
    command: &KarmadactlRequestChecker<'_>,
    agent: &KarmadactlRequestChecker<'_>,
) -> bool {
    let work_list = command
        .get(WORKS, 200, &[("/kind", json!("WorkList"))])
        .await;
    let works = work_list["items"].as_array().unwrap();
    for work in works {
        let path = format!("{WORKS}/{}", work["metadata"]["name"].as_str().unwrap());
        command.delete(&path).await;
        let deleting =
            |reply: &HttpTestResponse| reply.json()["metadata"]["deletionTimestamp"].is_string();
        let mut current = agent.get_until(&path, "deleting", deleting).await.json();
        current["metadata"]["finalizers"] = Value::Null;
        put(agent, &path, &current).await;
    }
    !works.is_empty()
}

/// Replays `unregister --karmada-config`, while the agent finishes its Work.
async fn unregister(admin: &HttpTestClient, agent: &HttpTestClient) {
    let command = checker("unregister", admin);
    let cluster = format!("{CLUSTERS_PATH}/{NAME}");
    let pull = [("/spec/syncMode", json!("Pull"))];
    command.get(&cluster, 200, &pull).await;
    let agent = checker("karmada-agent", agent);
    harness::http_client::within_timeout("no works", async {
        while delete_works(&command, &agent).await {}
    })
    .await;
    command.delete(&cluster).await;
    command
        .get_until(&cluster, "gone", |reply| reply.code == 404)
        .await;
    for (path, body) in agent_roles() {
        let path = format!("{path}/{}", body["metadata"]["name"].as_str().unwrap());
        // The copies in the execution space may have gone with it.
        let request = HttpTestRequest::new(Method::DELETE, &path);
        command.request(request, &path, &[200, 404], &[]).await;
    }
    for secret in [NAME, "edge-impersonator"] {
        let path = format!("{SECRETS}/{secret}");
        command
            .get_until(&path, "gone", |reply| reply.code == 404)
            .await;
    }
    let token = format!(
        "/api/v1/namespaces/kube-system/secrets/bootstrap-token-{}",
        TOKEN.0
    );
    checker("token delete", admin).delete(&token).await;
}

/// Replays all commands in order.
pub(crate) async fn replay(server: &CompatTestServer) {
    create_token(&server.admin).await;
    let agent = register(server).await;
    start_agent(&agent).await;
    run_work(&server.admin, &agent).await;
    unregister(&server.admin, &agent).await;
}
