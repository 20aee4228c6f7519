//! Access through the rights of the server: Secrets that Clusters refer to, tokens bound to Pods,
//! directories with keys, and requests without credentials.

use harness::raw_http::{RawHttpRequest, RawHttpResponse};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::test_server::ApiTestServer;

const CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";
pub(crate) const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const REGISTRIES: &str = "/apis/search.karmada.io/v1alpha1/resourceregistries";
const ENDPOINT: &str = "https://127.0.0.1:1";
const RBAC_TIMEOUT: Duration = Duration::from_secs(90);

impl ApiTestServer {
    /// Grants a user a rule, in a namespace or cluster-wide.
    pub(crate) fn grant(&self, user: &str, role: &str, namespace: Option<&str>, rule: &Value) {
        let (kind, path) = match namespace {
            Some(namespace) => ("Role", format!("{RBAC}/namespaces/{namespace}/role")),
            None => ("ClusterRole", format!("{RBAC}/clusterrole")),
        };
        let granted = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
            "metadata": {"name": role}, "rules": [rule]});
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": format!("{kind}Binding"), "metadata": {"name": role},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
            "subjects": [{"kind": "User", "name": user}]});
        for (path, body) in [
            (format!("{path}s"), granted),
            (format!("{path}bindings"), binding),
        ] {
            let reply = self.post(&path, &body);
            assert_eq!(reply.code, 201, "{}", reply.text());
        }
    }

    /// A request that impersonates a user.
    pub(crate) fn request_as<'a>(
        &'a self,
        user: &str,
        method: &'a str,
        path: &str,
    ) -> RawHttpRequest<'a> {
        self.request(method, path).header("Impersonate-User", user)
    }

    pub(crate) fn merge_as(&self, user: &str, path: &str, patch: &Value) -> RawHttpResponse {
        let request = self.request_as(user, "PATCH", path);
        request
            .body("application/merge-patch+json", patch.to_string())
            .send()
    }
}

/// Repeats a request until its response has a code: a grant acts some time after its binding is
/// created.
pub(crate) fn wait_until_code(code: u16, request: impl Fn() -> RawHttpResponse) -> RawHttpResponse {
    let end = Instant::now() + RBAC_TIMEOUT;
    loop {
        let reply = request();
        if reply.code == code {
            return reply;
        }
        let text = format!("{}: {}", reply.code, reply.text());
        assert!(Instant::now() < end, "not {code} but {text}");
    }
}

fn cluster(name: &str, spec: &Value) -> Value {
    let mut cluster = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": name}, "spec": {"syncMode": "Push", "apiEndpoint": ENDPOINT}});
    for (field, value) in spec.as_object().unwrap() {
        cluster["spec"][field] = value.clone();
    }
    cluster
}

/// Asserts a 403 that names the field, the Secret and the missing right.
fn assert_secret_forbidden(reply: &RawHttpResponse, field: &str, secret: &str) {
    let text = reply.text();
    assert_eq!(reply.code, 403, "{text}");
    let status = reply.json();
    assert_eq!(status["reason"], "Forbidden", "{text}");
    assert_eq!(status["details"]["causes"][0]["field"], field, "{text}");
    let message = status["message"].as_str().unwrap();
    for part in [field, secret, "cannot get"] {
        assert!(message.contains(part), "no {part:?} in {message}");
    }
}

#[test]
fn a_cluster_names_only_secrets_that_its_writer_may_get() {
    // Of its own: other tests expect that the shared server has no clusters.
    let test_server = ApiTestServer::start();
    test_server.create_namespace("vault");
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token"},
        "stringData": {"token": "t"}});
    let created = test_server.post("/api/v1/namespaces/vault/secrets", &secret);
    assert_eq!(created.code, 201, "{}", created.text());
    let rule = json!({"apiGroups": ["cluster.karmada.io"], "resources": ["clusters"],
        "verbs": ["get", "create", "update", "patch"]});
    test_server.grant("ann", "joiner", None, &rule);
    let reference = json!({"namespace": "vault", "name": "token"});
    let create = |user: &str, name: &str, spec: &Value| {
        let request = test_server.request_as(user, "POST", CLUSTERS);
        request.json(&cluster(name, spec)).send()
    };
    wait_until_code(201, || create("ann", "plain", &json!({})));
    for field in ["secretRef", "impersonatorSecretRef"] {
        let rejected = create("ann", "deputy", &json!({field: reference}));
        assert_secret_forbidden(&rejected, &format!("spec.{field}"), "vault/token");
        let plain = format!("{CLUSTERS}/plain");
        let rejected = test_server.merge_as("ann", &plain, &json!({"spec": {field: reference}}));
        assert_secret_forbidden(&rejected, &format!("spec.{field}"), "vault/token");
    }
    assert_eq!(test_server.get(&format!("{CLUSTERS}/deputy")).code, 404);

    // An administrator may set it. After that only changes of the connection are checked again.
    let created = test_server.post(
        CLUSTERS,
        &cluster("named", &json!({"secretRef": reference})),
    );
    assert_eq!(created.code, 201, "{}", created.text());
    let named = format!("{CLUSTERS}/named");
    let label = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"region": "r"}});
    let changed = test_server.merge_as("ann", &named, &label);
    assert_eq!(changed.code, 200, "{}", changed.text());
    let connection_changes = [
        json!({"apiEndpoint": "https://127.0.0.1:2"}),
        json!({"proxyURL": "http://127.0.0.1:3"}),
        json!({"proxyHeader": {"a": "b"}}),
        json!({"insecureSkipTLSVerification": true}),
    ];
    for spec in &connection_changes {
        let rejected = test_server.merge_as("ann", &named, &json!({"spec": spec}));
        assert_secret_forbidden(&rejected, "spec.secretRef", "vault/token");
    }
    let rule = json!({"apiGroups": [""], "resources": ["secrets"],
        "resourceNames": ["token"], "verbs": ["get"]});
    test_server.grant("ann", "reader", Some("vault"), &rule);
    wait_until_code(201, || {
        create("ann", "deputy", &json!({"secretRef": reference}))
    });
    for spec in &connection_changes {
        let changed = test_server.merge_as("ann", &named, &json!({"spec": spec}));
        assert_eq!(changed.code, 200, "{spec}: {}", changed.text());
    }
}

// proves: SRC-backend-access
#[test]
fn a_resource_registry_names_only_secrets_that_its_writer_may_get() {
    let server = ApiTestServer::shared();
    server.create_namespace("search-vault");
    let rule = json!({"apiGroups": ["search.karmada.io"], "resources": ["resourceregistries"],
        "verbs": ["get", "create", "update", "patch"]});
    server.grant("sara", "registrar", None, &rule);
    let reference = json!({"namespace": "search-vault", "name": "password"});
    let registry = |name: &str, address: &str, secret: &Value| {
        json!({"apiVersion": "search.karmada.io/v1alpha1", "kind": "ResourceRegistry",
            "metadata": {"name": name},
            "spec": {"targetCluster": {"clusterNames": ["none"]}, "resourceSelectors": [],
                "backendStore": {"openSearch": {"addresses": [address], "secretRef": secret}}}})
    };
    let create = |body: &Value| {
        let request = server.request_as("sara", "POST", REGISTRIES);
        request.json(body).send()
    };
    let field = "spec.backendStore.openSearch.secretRef";
    wait_until_code(201, || create(&registry("plain", ENDPOINT, &Value::Null)));
    let rejected = create(&registry("deputy", ENDPOINT, &reference));
    assert_secret_forbidden(&rejected, field, "search-vault/password");
    let patch = json!({"spec": {"backendStore": {"openSearch": {"secretRef": reference}}}});
    let rejected = server.merge_as("sara", &format!("{REGISTRIES}/plain"), &patch);
    assert_secret_forbidden(&rejected, field, "search-vault/password");

    // An administrator may set it; whoever sends it elsewhere needs the right to it.
    let created = server.post(REGISTRIES, &registry("named", ENDPOINT, &reference));
    assert_eq!(created.code, 201, "{}", created.text());
    let named = format!("{REGISTRIES}/named");
    let moved =
        json!({"spec": {"backendStore": {"openSearch": {"addresses": ["https://127.0.0.1:2"]}}}});
    let rejected = server.merge_as("sara", &named, &moved);
    assert_secret_forbidden(&rejected, field, "search-vault/password");
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(server.merge_as("sara", &named, &label).code, 200);

    // Without TLS it is sent only where the registry says so.
    let mut bare = registry("bare", "http://127.0.0.1:1", &Value::Null);
    let rejected = create(&bare);
    assert_eq!(rejected.code, 422, "{}", rejected.text());
    bare["metadata"]["annotations"] = json!({"flotilla.io/insecure-backend-store": "true"});
    assert_eq!(create(&bare).code, 201);
    for name in ["plain", "named", "bare"] {
        let path = format!("{REGISTRIES}/{name}");
        assert_eq!(server.request("DELETE", &path).send().code, 200);
    }
}

// proves: ROL-job-rights
#[test]
fn a_rollout_policy_runs_only_jobs_that_its_writer_may_run() {
    let server = ApiTestServer::shared();
    server.create_namespace("job-gates");
    let rule = json!({"apiGroups": ["rollout.flotilla.io"], "resources": ["rolloutpolicies"],
        "verbs": ["get", "create", "update", "patch"]});
    server.grant("joe", "stager", Some("job-gates"), &rule);
    let policies = "/apis/rollout.flotilla.io/v1alpha1/namespaces/job-gates/rolloutpolicies";
    let policy = |name: &str, gates: &Value| {
        json!({"apiVersion": "rollout.flotilla.io/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": name},
            "spec": {"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
                "stages": [{"name": "a", "gates": gates}]}})
    };
    let create = |body: &Value| {
        let request = server.request_as("joe", "POST", policies);
        request.json(body).send()
    };
    wait_until_code(201, || {
        create(&policy("plain", &json!({"healthyFor": "1m"})))
    });
    let gated = policy("gated", &json!({"job": {"cronJob": "smoke"}}));
    let is_forbidden = |reply: &RawHttpResponse, missing: &str| {
        let text = reply.text();
        assert_eq!(reply.code, 403, "{text}");
        let cause = &reply.json()["details"]["causes"][0];
        assert_eq!(cause["field"], "spec.stages[0].gates.job", "{text}");
        assert!(text.contains(missing), "no {missing:?} in {text}");
    };
    is_forbidden(&create(&gated), "cannot get cronjobs in the namespace");
    let plain = format!("{policies}/plain");
    let reply = server.merge_as("joe", &plain, &json!({"spec": gated["spec"]}));
    is_forbidden(&reply, "cannot get cronjobs");
    let rule = json!({"apiGroups": ["batch"], "resources": ["cronjobs"],
        "resourceNames": ["smoke"], "verbs": ["get"]});
    server.grant("joe", "reader", Some("job-gates"), &rule);
    let rule = json!({"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create"]});
    server.grant("joe", "runner", Some("job-gates"), &rule);
    let reply = wait_until_code(403, || {
        let reply = create(&gated);
        match reply.text().contains("cannot create propagationpolicies") {
            true => reply,
            false => server.get("/"),
        }
    });
    is_forbidden(&reply, "cannot create propagationpolicies");
    let rule = json!({"apiGroups": ["policy.karmada.io"], "resources": ["propagationpolicies"],
        "verbs": ["create"]});
    server.grant("joe", "sender", Some("job-gates"), &rule);
    wait_until_code(201, || create(&gated));
    let mut unnamed = gated;
    unnamed["spec"]["stages"][0]["gates"]["job"] = json!({"cronJob": "No_Name"});
    unnamed["metadata"]["name"] = "unnamed".into();
    let rejected = create(&unnamed);
    assert_eq!(rejected.code, 422, "{}", rejected.text());
    for name in ["plain", "gated"] {
        let path = format!("{policies}/{name}");
        assert_eq!(server.request("DELETE", &path).send().code, 200);
    }
}

#[test]
fn a_cluster_is_reached_by_https_unless_verification_is_off() {
    // Of its own: other tests expect that the shared server has no clusters.
    let test_server = ApiTestServer::start();
    let create = |name: &str, spec: &Value| test_server.post(CLUSTERS, &cluster(name, spec));
    for spec in [
        json!({"apiEndpoint": "http://127.0.0.1:1"}),
        json!({"apiEndpoint": "ftp://127.0.0.1:1", "insecureSkipTLSVerification": true}),
    ] {
        let rejected = create("bare", &spec);
        assert_eq!(rejected.code, 422, "{}", rejected.text());
        let cause = &rejected.json()["details"]["causes"][0];
        assert_eq!(cause["field"], "spec.apiEndpoint", "{cause}");
        assert!(
            cause["message"].as_str().unwrap().contains("https"),
            "{cause}"
        );
    }
    let spec = json!({"apiEndpoint": "http://127.0.0.1:1", "insecureSkipTLSVerification": true});
    let created = create("bare", &spec);
    assert_eq!(created.code, 201, "{}", created.text());
    let bare = format!("{CLUSTERS}/bare");
    let verify = json!({"spec": {"insecureSkipTLSVerification": false}});
    let rejected = test_server.merge_as("system:admin", &bare, &verify);
    assert_eq!(
        rejected.code,
        403,
        "an unknown user may not: {}",
        rejected.text()
    );
    let merge = |patch: &Value| {
        let request = test_server.request("PATCH", &bare);
        request
            .body("application/merge-patch+json", patch.to_string())
            .send()
    };
    assert_eq!(merge(&verify).code, 422);
    assert_eq!(
        merge(&json!({"metadata": {"labels": {"a": "b"}}})).code,
        200
    );
}

#[test]
fn a_token_is_bound_to_a_pod_of_its_own_account() {
    let test_server = ApiTestServer::shared();
    test_server.create_namespace("bound");
    let at = |rest: &str| format!("/api/v1/namespaces/bound/{rest}");
    for name in ["one", "other"] {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": name}});
        let created = test_server.post(&at("serviceaccounts"), &account);
        assert_eq!(created.code, 201, "{}", created.text());
    }
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"serviceAccountName": "one", "containers": [{"name": "c", "image": "i"}]}});
    let created = test_server.post(&at("pods"), &pod);
    assert_eq!(created.code, 201, "{}", created.text());
    let request = |account: &str, change: &Value| {
        let mut body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p"}}});
        for (pointer, value) in change.as_object().unwrap() {
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            body.pointer_mut(parent).unwrap()[field] = value.clone();
        }
        test_server.post(&at(&format!("serviceaccounts/{account}/token")), &body)
    };
    let rejected = request("other", &json!({}));
    assert_eq!(rejected.code, 400, "{}", rejected.text());
    assert_eq!(
        rejected.json()["message"],
        "cannot bind token for serviceaccount \"other\" to pod running with different serviceaccount name."
    );
    for (change, code) in [
        (json!({}), 201),
        (json!({"/spec/boundObjectRef/apiVersion": "apps/v1"}), 400),
        (json!({"/spec/boundObjectRef/kind": "Deployment"}), 400),
        (json!({"/spec/boundObjectRef/uid": "x"}), 409),
        (json!({"/spec/boundObjectRef/name": "q"}), 404),
        (json!({"/spec/boundObjectRef": "p"}), 400),
        (json!({"/spec/audiences": [5]}), 400),
        (json!({"/spec/audiences": "a"}), 400),
        (json!({"/spec/expirationSeconds": "3600"}), 400),
        (json!({"/spec": [1]}), 400),
        (
            json!({"/metadata": {"name": "one", "namespace": "bound"}}),
            201,
        ),
        (json!({"/metadata": {"name": "two"}}), 422),
        (json!({"/metadata": {"namespace": "two"}}), 422),
    ] {
        let reply = request("one", &change);
        assert_eq!(reply.code, code, "{change}: {}", reply.text());
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn directories_with_keys_are_accessible_to_the_owner_only() {
    let test_server = ApiTestServer::start();
    for folder in [test_server.data_dir(), test_server.data_dir().join("pki")] {
        assert_eq!(mode(&folder), 0o700, "{}", folder.display());
    }
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    for folder in [data.clone(), data.join("pki")] {
        std::fs::create_dir(&folder).unwrap();
        let wide = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&folder, wide).unwrap();
    }
    let opened = ApiTestServer::start_in(dir);
    assert_eq!(opened.get("/readyz").code, 200);
    for folder in [data.clone(), data.join("pki")] {
        assert_eq!(mode(&folder), 0o700, "{}", folder.display());
    }
    for file in [
        "store/store.db",
        "store/store.db-wal",
        "store/lock",
        "pki/ca.key",
        "kubeconfig",
    ] {
        assert_eq!(mode(&data.join(file)), 0o600, "{file}");
    }
    opened.stop();
}

#[test]
fn without_anonymous_users_every_request_needs_credentials() {
    let open = ApiTestServer::shared();
    let closed = ApiTestServer::start_with(&["--anonymous-auth=false"]);
    let request = |test_server: &ApiTestServer, path: &str| {
        let request =
            RawHttpRequest::new(&test_server.address, &test_server.anonymous, "GET", path);
        request.send().code
    };
    for path in ["/version", "/livez", "/readyz", "/healthz"] {
        assert_eq!(request(&open, path), 200, "{path}");
        assert_eq!(request(&closed, path), 401, "{path}");
        assert_eq!(closed.get(path).code, 200, "{path}");
    }
    let basic = RawHttpRequest::new(&closed.address, &closed.anonymous, "GET", "/version");
    let reply = basic.header("Authorization", "Basic YTpi").send();
    assert_eq!(reply.code, 401);
}

#[test]
fn named_objects_are_listed_and_watched_by_their_field_selector() {
    let server = ApiTestServer::shared();
    let maps = "/api/v1/namespaces/named/configmaps";
    server.create_namespace("named");
    let rule = json!({"apiGroups": [""], "resources": ["configmaps"],
        "resourceNames": ["one"], "verbs": ["list", "watch", "create", "deletecollection"]});
    server.grant("nora", "named", Some("named"), &rule);
    let request = |method: &str, query: &str| {
        let path = format!("{maps}{query}");
        server.request_as("nora", method, &path).send()
    };
    wait_until_code(200, || request("GET", "?fieldSelector=metadata.name%3Done"));
    let watch = "?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3Done";
    assert_eq!(request("GET", watch).code, 200);
    for query in [
        "",
        "?fieldSelector=metadata.name%3Dtwo",
        "?labelSelector=a%3Db",
    ] {
        assert_eq!(request("GET", query).code, 403, "{query}");
    }
    // Names do not restrict a creation or the deletion of a collection: they grant neither.
    let one = json!({"metadata": {"name": "one"}});
    let created = server.request_as("nora", "POST", maps).json(&one).send();
    assert_eq!(created.code, 403);
    assert_eq!(request("DELETE", "").code, 403);
}
