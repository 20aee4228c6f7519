//! Webhooks that authenticate tokens and authorize requests, and the modes of authorization.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use harness::http_client::full_body;
use harness::https_server::FakeHttpsServer;
use harness::raw_http::{RawHttpRequest, RawHttpResponse};
use http_body_util::BodyExt;
use hyper::Response;
use serde_json::{Value, json};

use crate::api::test_server::{ApiTestServer, start_error};

/// A server that reviews tokens and requests, and a kubeconfig that names it.
struct ReviewServer {
    _server: FakeHttpsServer,
    kubeconfig: String,
    reviews: Arc<AtomicUsize>,
}

impl ReviewServer {
    async fn start(dir: &Path, answer: fn(&Value) -> Value) -> Self {
        let reviews = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&reviews);
        let server = FakeHttpsServer::start(Arc::new(move |request| {
            let count = Arc::clone(&count);
            Box::pin(async move {
                assert_eq!(request.uri().path(), "/review");
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let mut review: Value = machinery::json::from_slice(&body).unwrap();
                count.fetch_add(1, Ordering::SeqCst);
                review["status"] = answer(&review["spec"]);
                let code = if review["status"]["fail"] == true {
                    500
                } else {
                    201
                };
                let response = Response::builder().status(code);
                response.body(full_body(review.to_string())).unwrap()
            })
        }));
        let server = server.await;
        let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}],
            "clusters": [{"name": "c", "cluster": {
                "server": format!("https://{}/review", server.address),
                "certificate-authority-data": STANDARD.encode(&server.ca_pem)}}]});
        let kubeconfig = dir.join(format!("{}.yaml", server.address.port()));
        std::fs::write(&kubeconfig, config.to_string()).unwrap();
        Self {
            _server: server,
            kubeconfig: kubeconfig.display().to_string(),
            reviews,
        }
    }

    fn reviews(&self) -> usize {
        self.reviews.load(Ordering::SeqCst)
    }
}

/// The token is the name of the user.
fn review_token(spec: &Value) -> Value {
    let name = spec["token"].as_str().unwrap();
    match name {
        "refused" => json!({"authenticated": false, "error": "unknown"}),
        "failing" => json!({"fail": true}),
        "elsewhere" => json!({"authenticated": true, "user": {"username": name},
            "audiences": ["elsewhere"]}),
        name => json!({"authenticated": true, "user": {"username": name, "uid": "u",
            "groups": ["staff"], "extra": {"example.org/a": ["b"]}}}),
    }
}

/// Grants secrets to ann, forbids everything to bob.
fn review_access(spec: &Value) -> Value {
    let attributes = &spec["resourceAttributes"];
    match spec["user"].as_str().unwrap() {
        "bob" => json!({"allowed": false, "denied": true, "reason": "bob may nothing"}),
        "ann" if attributes["resource"] == "secrets" => {
            json!({"allowed": true, "reason": "ann may read"})
        }
        "sel" if attributes["resource"] == "pods" => {
            let fields = json!([{"key": "spec.nodeName", "operator": "In", "values": ["n"]}]);
            let labels = json!([{"key": "app", "operator": "NotIn", "values": ["x", "y"]}]);
            let allowed = attributes["fieldSelector"] == json!({"requirements": fields})
                && attributes["labelSelector"] == json!({"requirements": labels});
            json!({"allowed": allowed, "denied": !allowed})
        }
        "eve" => json!({"fail": true}),
        _ => json!({"allowed": false, "reason": "not mine"}),
    }
}

fn get_as(server: &ApiTestServer, token: &str, path: &str) -> RawHttpResponse {
    let request = RawHttpRequest::new(&server.address, &server.anonymous, "GET", path);
    request
        .header("Authorization", &format!("Bearer {token}"))
        .send()
}

fn write(dir: &Path, name: &str, content: &Value) -> String {
    let file = dir.join(name);
    std::fs::write(&file, content.to_string()).unwrap();
    file.display().to_string()
}

async fn start_reviewers(dir: &Path) -> (ReviewServer, ReviewServer) {
    let tokens = ReviewServer::start(dir, review_token).await;
    (tokens, ReviewServer::start(dir, review_access).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_get_the_selectors_of_requests_reviews_and_expressions() {
    let dir = tempfile::tempdir().unwrap();
    let (tokens, access) = start_reviewers(dir.path()).await;
    let check = move || check_selectors(&tokens, &access);
    tokio::task::spawn_blocking(check).await.unwrap();
}

fn check_selectors(tokens: &ReviewServer, access: &ReviewServer) {
    let server = ApiTestServer::start_with(&[
        "--authentication-token-webhook-config-file",
        &tokens.kubeconfig,
        "--authorization-mode=Webhook,RBAC",
        "--authorization-webhook-config-file",
        &access.kubeconfig,
    ]);
    let pods = "/api/v1/namespaces/default/pods";
    assert_eq!(get_as(&server, "sel", pods).code, 403);
    let fields = "fieldSelector=spec.nodeName%3Dn";
    let labels = "labelSelector=app%20notin%20%28y%2Cx%29";
    for (query, code) in [
        (fields.to_owned(), 403),
        (format!("{fields}&{labels}"), 200),
        (format!("{fields}&{labels}&watch=1&timeoutSeconds=1"), 200),
        (format!("{labels}&fieldSelector=%3D%3D%3D"), 403),
    ] {
        let reply = get_as(&server, "sel", &format!("{pods}?{query}"));
        assert_eq!(reply.code, code, "{query}: {}", reply.text());
    }
    let reviewed = |selectors: Value| {
        let mut attributes =
            json!({"namespace": "default", "verb": "list", "resource": "pods", "version": "v1"});
        for (name, selector) in selectors.as_object().unwrap() {
            attributes[name] = selector.clone();
        }
        let spec = json!({"user": "sel", "resourceAttributes": attributes});
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        server.post(path, &json!({"spec": spec}))
    };
    let field = json!({"key": "spec.nodeName", "operator": "In", "values": ["n"]});
    let label = json!({"key": "app", "operator": "NotIn", "values": ["x", "y"]});
    let allowed = reviewed(json!({"fieldSelector": {"requirements": [field]},
        "labelSelector": {"requirements": [label]}}));
    assert_eq!(
        allowed.json()["status"]["allowed"],
        true,
        "{}",
        allowed.text()
    );
    let allowed = reviewed(json!({"fieldSelector": {"rawSelector": "spec.nodeName=n"},
        "labelSelector": {"rawSelector": "app notin (x,y)"}}));
    assert_eq!(
        allowed.json()["status"]["allowed"],
        true,
        "{}",
        allowed.text()
    );
    let denied = reviewed(json!({"fieldSelector": {"rawSelector": "spec.nodeName=m"}}));
    assert_eq!(denied.json()["status"]["denied"], true, "{}", denied.text());
    let empty = reviewed(json!({"fieldSelector": {}})).json();
    assert_eq!(empty["code"], 422, "{empty}");
    check_selectors_of_expressions(&server);
}

fn check_selectors_of_expressions(server: &ApiTestServer) {
    let everything = json!({"metadata": {"name": "staff"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": "cluster-admin"},
        "subjects": [{"kind": "Group", "name": "staff"}]});
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    assert_eq!(server.post(bindings, &everything).code, 201);
    let pods = "authorizer.group('').resource('pods').namespace('default')";
    let selected = format!(
        "{pods}.fieldSelector('spec.nodeName=n').labelSelector('app notin (x, y)').check('list').allowed()"
    );
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
        "resources": ["configmaps"]});
    let policy = json!({"metadata": {"name": "selectors"}, "spec": {
        "matchConstraints": {"resourceRules": [rule]}, "validations": [
            {"expression": format!("!{selected}"), "message": "allowed with selectors"},
            {"expression": format!("{pods}.check('list').allowed()"), "message": "denied without"}]}});
    let admission = "/apis/admissionregistration.k8s.io/v1";
    let path = format!("{admission}/validatingadmissionpolicies");
    let created = server.post(&path, &policy);
    assert_eq!(created.code, 201, "{}", created.text());
    let binding = json!({"metadata": {"name": "selectors"},
        "spec": {"policyName": "selectors", "validationActions": ["Warn"]}});
    let path = format!("{admission}/validatingadmissionpolicybindings");
    assert_eq!(server.post(&path, &binding).code, 201);
    let end = Instant::now() + Duration::from_secs(90);
    loop {
        let path = "/api/v1/namespaces/default/configmaps?dryRun=All";
        let request = RawHttpRequest::new(&server.address, &server.anonymous, "POST", path);
        let request = request.header("Authorization", "Bearer sel");
        let reply = request.json(&json!({"metadata": {"name": "m"}})).send();
        let is_warning = |(name, _): &&(String, String)| name == "warning";
        let warnings: Vec<_> = reply.headers.iter().filter(is_warning).collect();
        if warnings.len() == 2 {
            assert!(
                warnings[0].1.contains("allowed with selectors"),
                "{warnings:?}"
            );
            assert!(warnings[1].1.contains("denied without"), "{warnings:?}");
            return;
        }
        assert!(Instant::now() < end, "{} {warnings:?}", reply.text());
        harness::sleep_blocking(Duration::from_millis(20));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_review_tokens_and_requests() {
    let dir = tempfile::tempdir().unwrap();
    let (tokens, access) = start_reviewers(dir.path()).await;
    let check = move || check_webhooks(&tokens, &access);
    tokio::task::spawn_blocking(check).await.unwrap();
}

fn check_webhooks(tokens: &ReviewServer, access: &ReviewServer) {
    let server = ApiTestServer::start_with(&[
        "--authentication-token-webhook-config-file",
        &tokens.kubeconfig,
        "--authorization-mode=Webhook,RBAC",
        "--authorization-webhook-config-file",
        &access.kubeconfig,
    ]);
    let review = RawHttpRequest::new(
        &server.address,
        &server.anonymous,
        "POST",
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
    );
    let review = review
        .header("Authorization", "Bearer ann")
        .json(&json!({}));
    let user = review.send().json()["status"]["userInfo"].clone();
    assert_eq!(user["username"], "ann");
    assert_eq!(user["groups"], json!(["staff", "system:authenticated"]));
    assert_eq!(user["extra"]["example.org/a"], json!(["b"]));
    for token in ["refused", "elsewhere", "failing"] {
        assert_eq!(get_as(&server, token, "/version").code, 401, "{token}");
    }
    let secrets = "/api/v1/namespaces/default/secrets";
    assert_eq!(get_as(&server, "ann", secrets).code, 200);
    // The next request is answered from the caches.
    let (token_reviews, access_reviews) = (tokens.reviews(), access.reviews());
    assert_eq!(get_as(&server, "ann", secrets).code, 200);
    assert_eq!(
        (tokens.reviews(), access.reviews()),
        (token_reviews, access_reviews)
    );
    let denied = get_as(&server, "ann", "/api/v1/namespaces/default/pods");
    assert_eq!(denied.code, 403);
    assert!(denied.text().contains("not mine"), "{}", denied.text());
    // RBAC is asked after a webhook without an opinion, and not after one that denies.
    let everything = json!({"metadata": {"name": "staff"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": "cluster-admin"},
        "subjects": [{"kind": "Group", "name": "staff"}]});
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    assert_eq!(server.post(bindings, &everything).code, 201);
    let end = Instant::now() + Duration::from_secs(90);
    while get_as(&server, "carl", secrets).code != 200 {
        assert!(Instant::now() < end, "the role does not act");
    }
    let denied = get_as(&server, "bob", secrets);
    assert_eq!(denied.code, 403);
    assert!(
        denied.text().contains("bob may nothing"),
        "{}",
        denied.text()
    );
    // A webhook that fails has no opinion: the role grants.
    assert_eq!(get_as(&server, "eve", secrets).code, 200);
    let ask = json!({"spec": {"user": "bob",
        "resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let status = server.post(path, &ask).json()["status"].clone();
    let expected = json!({"allowed": false, "denied": true, "reason": "bob may nothing"});
    assert_eq!(status, expected);
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let rules = server.post(path, &json!({"spec": {"namespace": "default"}}));
    assert_eq!(
        rules.json()["status"]["incomplete"],
        true,
        "{}",
        rules.text()
    );
    let metrics = server.get("/metrics").text();
    for series in [
        "apiserver_authorization_decisions_total{decision=\"allowed\",name=\"default\",type=\"Webhook\"}",
        "apiserver_authorization_decisions_total{decision=\"denied\",name=\"default\",type=\"Webhook\"}",
        "apiserver_authorization_decisions_total{decision=\"allowed\",name=\"rbac\",type=\"RBAC\"}",
        "apiserver_authorization_webhook_evaluations_total{name=\"default\",result=\"success\"}",
        "apiserver_authorization_webhook_evaluations_fail_open_total{name=\"default\",result=\"error\"}",
        "apiserver_authorization_webhook_duration_seconds_count{name=\"default\",result=\"error\"}",
    ] {
        assert!(metrics.contains(series), "{series}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_orders_authorizers() {
    let dir = tempfile::tempdir().unwrap();
    let (tokens, access) = start_reviewers(dir.path()).await;
    let check = move || check_configuration(dir.path(), &tokens, &access);
    tokio::task::spawn_blocking(check).await.unwrap();
}

fn check_configuration(dir: &Path, tokens: &ReviewServer, access: &ReviewServer) {
    let webhook = |policy: &str, condition: &str| {
        json!({"type": "Webhook", "name": "first", "webhook": {"timeout": "10s",
            "subjectAccessReviewVersion": "v1", "failurePolicy": policy,
            "matchConditionSubjectAccessReviewVersion": "v1",
            "matchConditions": [{"expression": condition}],
            "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": access.kubeconfig}}})
    };
    let rbac = json!({"type": "RBAC", "name": "roles"});
    let config = |authorizers: Value| {
        json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration",
            "authorizers": authorizers})
    };
    let secrets =
        "has(request.resourceAttributes) && request.resourceAttributes.namespace == 'default'";
    let first = config(json!([webhook("Deny", secrets), rbac]));
    let file = write(dir, "authorization.yaml", &first);
    let server = ApiTestServer::start_with(&[
        "--authentication-token-webhook-config-file",
        &tokens.kubeconfig,
        "--authorization-config",
        &file,
    ]);
    let path = "/api/v1/namespaces/default/secrets";
    assert_eq!(get_as(&server, "ann", path).code, 200);
    let reviews = access.reviews();
    let elsewhere = get_as(&server, "ann", "/api/v1/namespaces/kube-system/secrets");
    assert_eq!(elsewhere.code, 403, "{}", elsewhere.text());
    assert_eq!(
        access.reviews(),
        reviews,
        "a condition excludes the request"
    );
    // It fails closed.
    let failed = get_as(&server, "eve", path);
    assert_eq!(failed.code, 500, "{}", failed.text());
    // A file that cannot be used changes nothing, and a better one is used soon.
    write(
        dir,
        "authorization.yaml",
        &config(json!([webhook("Deny", "1")])),
    );
    assert_eq!(get_as(&server, "ann", path).code, 200);
    let other = config(json!([webhook("NoOpinion", "request.user != 'ann'"), rbac]));
    write(dir, "authorization.yaml", &other);
    let end = Instant::now() + Duration::from_secs(90);
    while get_as(&server, "ann", path).code != 403 {
        assert!(Instant::now() < end, "the file is not read again");
        harness::sleep_blocking(Duration::from_millis(50));
    }
    let metrics = server.get("/metrics").text();
    let series =
        "apiserver_authorization_match_condition_exclusions_total{name=\"first\",type=\"Webhook\"}";
    assert!(metrics.contains(series));
    let bad = write(
        dir,
        "bad.yaml",
        &config(json!([webhook("Deny", "request.nothing == ''")])),
    );
    let error = start_error(&["--authorization-config", &bad]);
    assert!(
        error.contains("authorizers[0].matchConditions[0].expression"),
        "{error}"
    );
    assert!(error.contains("undefined field"), "{error}");
    let error = start_error(&["--authorization-config", &bad, "--authorization-mode=RBAC"]);
    assert!(error.contains("--authorization-mode"), "{error}");
}

#[test]
fn modes_decide_without_roles() {
    let server = ApiTestServer::start_with(&["--authorization-mode=AlwaysDeny"]);
    let anonymous = RawHttpRequest::new(&server.address, &server.anonymous, "GET", "/version");
    let denied = anonymous.send();
    assert_eq!(denied.code, 403, "{}", denied.text());
    assert!(denied.text().contains("Everything is forbidden."));
    assert_eq!(
        server.get("/api/v1/secrets").code,
        200,
        "superusers may do everything"
    );
    let server = ApiTestServer::start_with(&["--authorization-mode=AlwaysAllow"]);
    let path = "/api/v1/secrets";
    let anonymous = RawHttpRequest::new(&server.address, &server.anonymous, "GET", path);
    assert_eq!(anonymous.send().code, 200);
    for (mode, message) in [
        ("Node", "not served"),
        ("ABAC", "not served"),
        ("RBAC,RBAC", "more than once"),
        ("Webhook", "--authorization-webhook-config-file"),
        ("Other", "not a valid mode"),
    ] {
        let error = start_error(&[&format!("--authorization-mode={mode}")]);
        assert!(error.contains(message), "{mode}: {error}");
    }
}
