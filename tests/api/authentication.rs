//! Client authorities, static tokens and issuers of OpenID Connect that flags configure.

use std::path::Path;
use std::time::{Duration, Instant};

use harness::raw_http::{RawHttpRequest, RawHttpResponse, TestTlsClientConfig};
use harness::token_issuer::{FakeTokenIssuer, new_key, signed_token};
use serde_json::{Value, json};

use crate::api::access::wait_until_code;
use crate::api::test_server::{ApiTestServer, start_error};

const REVIEW: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

impl ApiTestServer {
    fn review_with(&self, client: &TestTlsClientConfig, token: &str) -> RawHttpResponse {
        let request = RawHttpRequest::new(&self.address, client, "POST", REVIEW);
        match token {
            "" => request,
            token => request.header("Authorization", &format!("Bearer {token}")),
        }
        .json(&json!({}))
        .send()
    }

    fn user_of(&self, token: &str) -> Value {
        let reply = self.review_with(&self.anonymous, token);
        assert_eq!(reply.code, 201, "{}", reply.text());
        reply.json()["status"]["userInfo"].clone()
    }

    fn assert_refused(&self, description: &str, token: &str) {
        let reply = self.review_with(&self.anonymous, token);
        assert_eq!(reply.code, 401, "{description}: {}", reply.text());
        assert_eq!(reply.json()["message"], "Unauthorized", "{description}");
    }
}

fn write(dir: &Path, name: &str, content: &str) -> String {
    let file = dir.join(name);
    std::fs::write(&file, content).unwrap();
    file.display().to_string()
}

#[test]
fn static_tokens_of_a_file_are_users() {
    let dir = tempfile::tempdir().unwrap();
    let file = write(
        dir.path(),
        "tokens",
        "s3cret,ann,u1,\"staff,ops\"\nplain,bob,u2\n",
    );
    let server = ApiTestServer::start_with(&["--token-auth-file", &file]);
    let ann = server.user_of("s3cret");
    assert_eq!(ann["username"], "ann");
    assert_eq!(ann["uid"], "u1");
    assert_eq!(
        ann["groups"],
        json!(["staff", "ops", "system:authenticated"])
    );
    assert_eq!(
        server.user_of("plain")["groups"],
        json!(["system:authenticated"])
    );
    for token in ["s3cre", "s3cret,ann", "S3CRET", "x"] {
        server.assert_refused("another token", token);
    }
    let review = |audiences: Value| {
        let body = json!({"spec": {"token": "plain", "audiences": audiences}});
        let reply = server.post("/apis/authentication.k8s.io/v1/tokenreviews", &body);
        reply.json()["status"]["authenticated"] == true
    };
    assert!(review(json!([])));
    assert!(review(json!([
        "https://kubernetes.default.svc.cluster.local",
        "x"
    ])));
    assert!(!review(json!(["x"])));
    let bad = write(dir.path(), "bad", "s3cret,ann\n");
    let error = start_error(&["--token-auth-file", &bad]);
    assert!(
        error.contains("line 1") && !error.contains("s3cret"),
        "{error}"
    );
    assert!(start_error(&["--token-auth-file", "/nowhere"]).contains("/nowhere"));
}

#[test]
fn client_certificates_of_another_authority_are_users() {
    let dir = tempfile::tempdir().unwrap();
    let now = jiff::Timestamp::now();
    let other = auth::pki::Pki::open(&dir.path().join("other"), &[], now).unwrap();
    let identity = other
        .sign_client_certificate("foreign", &["staff".to_owned()], now)
        .unwrap();
    let file = write(dir.path(), "ca.crt", &other.ca_pem);
    let server = ApiTestServer::start_with(&["--client-ca-file", &file]);
    let ca = std::fs::read_to_string(server.data_dir().join("pki/ca.crt")).unwrap();
    let own = (identity.certificate_pem.as_str(), identity.key_pem.as_str());
    let client = TestTlsClientConfig::new(&ca, Some(own));
    let reply = server.review_with(&client, "");
    assert_eq!(reply.code, 201, "{}", reply.text());
    let user = reply.json()["status"]["userInfo"].clone();
    assert_eq!(user["username"], "foreign");
    assert_eq!(user["groups"], json!(["staff", "system:authenticated"]));
    // The server's own authority is still trusted, and others are not.
    assert_eq!(server.review_with(&server.admin, "").code, 201);
    let plain = ApiTestServer::shared();
    let ca = std::fs::read_to_string(plain.data_dir().join("pki/ca.crt")).unwrap();
    let stranger = TestTlsClientConfig::new(&ca, Some(own));
    assert_eq!(plain.review_with(&stranger, "").code, 401);
    let bad = write(dir.path(), "bad", "no certificate");
    assert!(start_error(&["--client-ca-file", &bad]).contains("--client-ca-file"));
}

#[test]
fn the_authorities_of_clients_are_published_for_extension_servers() {
    let dir = tempfile::tempdir().unwrap();
    let now = jiff::Timestamp::now();
    let authority = |name: &str| {
        let pki = auth::pki::Pki::open(&dir.path().join(name), &[], now);
        pki.unwrap().ca_pem
    };
    let (first, second) = (authority("first"), authority("second"));
    let file = write(dir.path(), "ca.crt", &first);
    let server = ApiTestServer::start_with(&["--client-ca-file", &file]);
    let own = std::fs::read_to_string(server.data_dir().join("pki/ca.crt")).unwrap();
    let maps = "/api/v1/namespaces/kube-system/configmaps";
    let path = format!("{maps}/extension-apiserver-authentication");
    let published = |expected: &str| {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let data = server.get(&path).json()["data"].clone();
            if data == json!({"client-ca-file": format!("{own}\n{expected}")}) {
                break;
            }
            assert!(Instant::now() < end, "{data}");
            harness::sleep_blocking(Duration::from_millis(50));
        }
    };
    published(&first);
    write(dir.path(), "ca.crt", &second);
    published(&second);

    // Whoever has the role reads this ConfigMap and no other.
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/rolebindings";
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role",
        "name": "extension-apiserver-authentication-reader"});
    let subject = json!({"kind": "User", "name": "extension"});
    let binding =
        json!({"metadata": {"name": "extension"}, "roleRef": role, "subjects": [subject]});
    assert_eq!(server.post(bindings, &binding).code, 201);
    wait_until_code(200, || server.request_as("extension", "GET", &path).send());
    let other = format!("{maps}/kube-root-ca.crt");
    assert_eq!(
        server.request_as("extension", "GET", &other).send().code,
        403
    );
}

/// Claims of a valid token.
fn claims(issuer: &FakeTokenIssuer) -> Value {
    let now = jiff::Timestamp::now().as_second();
    json!({"iss": issuer.url, "aud": "kube", "sub": "ann", "exp": now + 600, "nbf": now,
        "groups": ["staff"], "tenant": "one", "jti": "j1"})
}

fn with(claims: &Value, field: &str, value: Value) -> Value {
    let mut claims = claims.clone();
    claims[field] = value;
    claims
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_of_an_issuer_are_users() {
    let issuer = FakeTokenIssuer::start().await;
    tokio::task::spawn_blocking(move || check_issuer(&issuer))
        .await
        .unwrap();
}

fn check_issuer(issuer: &FakeTokenIssuer) {
    let dir = tempfile::tempdir().unwrap();
    let ca = write(dir.path(), "ca.crt", &issuer.ca_pem);
    let server = ApiTestServer::start_with(&[
        "--oidc-issuer-url",
        &issuer.url,
        "--oidc-client-id=kube",
        "--oidc-ca-file",
        &ca,
        "--oidc-username-prefix=oidc:",
        "--oidc-groups-claim=groups",
        "--oidc-groups-prefix=g:",
        "--oidc-required-claim=tenant=one",
        "--oidc-signing-algs=ES256",
    ]);
    let good = claims(issuer);
    let user = server.user_of(&issuer.token(&good));
    assert_eq!(user["username"], "oidc:ann");
    assert_eq!(user["groups"], json!(["g:staff", "system:authenticated"]));
    let id = &user["extra"]["authentication.kubernetes.io/credential-id"];
    assert_eq!(*id, json!(["JTI=j1"]));
    let one = issuer.token(&with(&good, "groups", "one".into()));
    assert_eq!(server.user_of(&one)["groups"][0], "g:one");
    let bad = [
        ("aud", json!("other")),
        ("aud", Value::Null),
        ("iss", json!("https://127.0.0.1:1")),
        ("exp", json!(1)),
        ("exp", Value::Null),
        ("nbf", json!(9_999_999_999_i64)),
        ("sub", json!("")),
        ("sub", json!(1)),
        ("tenant", json!("two")),
        ("groups", json!([1])),
        ("groups", json!({"a": 1})),
    ];
    for (field, value) in bad {
        let token = issuer.token(&with(&good, field, value.clone()));
        server.assert_refused(&format!("{field} {value}"), &token);
    }
    let distributed = with(
        &with(&good, "groups", Value::Null),
        "_claim_names",
        json!({"groups": "s"}),
    );
    server.assert_refused("distributed groups", &issuer.token(&distributed));
    // A signature of another key, none at all, and a symmetric one over the public key.
    let stranger = new_key();
    server.assert_refused("another key", &signed_token(&good, &stranger, "first"));
    server.assert_refused("an unknown key", &signed_token(&good, &stranger, "unknown"));
    let token = issuer.token(&good);
    let (signed, _) = token.rsplit_once('.').unwrap();
    server.assert_refused("no signature", &format!("{signed}."));
    let (_, body) = signed.split_once('.').unwrap();
    server.assert_refused("alg none", &format!("eyJhbGciOiJub25lIn0.{body}."));
    server.assert_refused("alg HS256", &format!("eyJhbGciOiJIUzI1NiJ9.{body}.AAAA"));
    // Tokens with invented key ids do not make the server ask the issuer each time.
    let reads = issuer.reads();
    for _ in 0..20 {
        server.assert_refused("an unknown key", &signed_token(&good, &stranger, "unknown"));
    }
    assert!(issuer.reads() <= reads + 2, "{} reads", issuer.reads());
    // A new key is found.
    issuer.add_key("second");
    let end = Instant::now() + Duration::from_secs(60);
    while server
        .review_with(&server.anonymous, &issuer.token(&good))
        .code
        != 201
    {
        assert!(Instant::now() < end, "the new key is never read");
    }
    // An authenticated user has no rights without a role.
    let request = RawHttpRequest::new(&server.address, &server.anonymous, "GET", "/api/v1/secrets");
    let token = format!("Bearer {}", issuer.token(&good));
    let reply = request.header("Authorization", &token).send();
    assert_eq!(reply.code, 403, "{}", reply.text());
    assert!(reply.text().contains("oidc:ann"), "{}", reply.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_names_several_issuers() {
    let issuers = [
        FakeTokenIssuer::start().await,
        FakeTokenIssuer::start().await,
    ];
    tokio::task::spawn_blocking(move || check_configuration(&issuers))
        .await
        .unwrap();
}

fn check_configuration(issuers: &[FakeTokenIssuer; 2]) {
    let dir = tempfile::tempdir().unwrap();
    let entry = |issuer: &FakeTokenIssuer, prefix: &str| {
        json!({"issuer": {"url": issuer.url, "audiences": ["kube", "other"],
                "audienceMatchPolicy": "MatchAny", "certificateAuthority": issuer.ca_pem},
            "claimValidationRules": [{"claim": "tenant", "requiredValue": "one"}],
            "claimMappings": {"username": {"claim": "sub", "prefix": prefix},
                "groups": {"claim": "groups", "prefix": ""}, "uid": {"claim": "jti"}}})
    };
    let config = json!({"apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration", "anonymous": {"enabled": false},
        "jwt": [entry(&issuers[0], "a:"), entry(&issuers[1], "b:")]});
    let file = write(dir.path(), "config.yaml", &config.to_string());
    let server = ApiTestServer::start_with(&["--authentication-config", &file]);
    for (issuer, name) in issuers.iter().zip(["a:ann", "b:ann"]) {
        let user = server.user_of(&issuer.token(&claims(issuer)));
        assert_eq!(user["username"], name);
        assert_eq!(user["uid"], "j1");
        assert_eq!(user["groups"], json!(["staff", "system:authenticated"]));
    }
    // A token of one issuer in the name of another.
    server.assert_refused("another issuer", &issuers[0].token(&claims(&issuers[1])));
    server.assert_refused("anonymous", "");
    let mut bad = config;
    bad["jwt"][0]["claimMappings"]["username"] = json!({"expression": "claims."});
    let file = write(dir.path(), "cel.yaml", &bad.to_string());
    let error = start_error(&["--authentication-config", &file]);
    assert!(
        error.contains("jwt[0].claimMappings.username.expression"),
        "{error}"
    );
    let error = start_error(&["--oidc-issuer-url=http://x", "--oidc-client-id=k"]);
    assert!(error.contains("https"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn expressions_map_claims_and_validate_users() {
    let issuer = FakeTokenIssuer::start().await;
    tokio::task::spawn_blocking(move || check_expressions(&issuer))
        .await
        .unwrap();
}

/// A configuration with expressions for one issuer.
fn expressions(issuer: &FakeTokenIssuer, paths: &Value, username: &str) -> String {
    let config = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
        "anonymous": {"enabled": true, "conditions": paths},
        "jwt": [{"issuer": {"url": issuer.url, "audiences": ["kube"],
                "certificateAuthority": issuer.ca_pem},
            "claimValidationRules": [{"expression": "claims.exp - claims.nbf <= 3600",
                "message": "too long"}],
            "claimMappings": {"username": {"expression": username},
                "groups": {"expression": "claims.roles.split(',').map(r, 'r:' + r)"},
                "uid": {"expression": "claims.?id.orValue('none')"},
                "extra": [{"key": "example.org/tenant", "valueExpression": "claims.tenant"},
                    {"key": "example.org/none", "valueExpression": "''"}]},
            "userValidationRules": [{"expression": "!user.username.startsWith('system:')",
                    "message": "reserved"},
                {"expression": "user.groups.all(g, g != 'r:root')"}]}]});
    config.to_string()
}

fn check_expressions(issuer: &FakeTokenIssuer) {
    let dir = tempfile::tempdir().unwrap();
    let first = expressions(issuer, &json!([{"path": "/livez"}]), "'x:' + claims.sub");
    let file = write(dir.path(), "config.yaml", &first);
    let server = ApiTestServer::start_with(&["--authentication-config", &file]);
    let good = with(&claims(issuer), "roles", "a,b".into());
    let user = server.user_of(&issuer.token(&good));
    assert_eq!(user["username"], "x:ann");
    assert_eq!(user["uid"], "none");
    assert_eq!(
        user["groups"],
        json!(["r:a", "r:b", "system:authenticated"])
    );
    assert_eq!(user["extra"]["example.org/tenant"], json!(["one"]));
    assert_eq!(user["extra"].get("example.org/none"), None);
    let token_with_id = issuer.token(&with(&good, "id", "7".into()));
    assert_eq!(server.user_of(&token_with_id)["uid"], "7");
    let long = good["nbf"].as_i64().unwrap() + 3601;
    for (field, value) in [
        ("exp", json!(long)),
        ("roles", json!("root")),
        ("roles", Value::Null),
        ("roles", json!(["a"])),
        ("sub", json!(7)),
        ("tenant", json!({"a": "b"})),
    ] {
        let token = issuer.token(&with(&good, field, value.clone()));
        server.assert_refused(&format!("{field} {value}"), &token);
    }
    // Only the probe is anonymous.
    let anonymous = |path: &str| {
        let request = RawHttpRequest::new(&server.address, &server.anonymous, "GET", path);
        request.send().code
    };
    assert_eq!(anonymous("/livez"), 200);
    for path in ["/readyz", "/livez/ping", "/version"] {
        assert_eq!(anonymous(path), 401, "{path}");
    }
    // A changed file is used soon; one that cannot be used changes nothing.
    write(dir.path(), "config.yaml", "{");
    assert_eq!(server.user_of(&issuer.token(&good))["username"], "x:ann");
    let username = "claims.sub == 'ann' ? 'system:ann' : claims.sub";
    let second = expressions(issuer, &json!([]), username);
    write(dir.path(), "config.yaml", &second);
    let end = Instant::now() + Duration::from_secs(90);
    while anonymous("/version") != 200 {
        assert!(Instant::now() < end, "the file is not read again");
        harness::sleep_blocking(Duration::from_millis(50));
    }
    server.assert_refused("a reserved name", &issuer.token(&good));
    let other = issuer.token(&with(&good, "sub", "eve".into()));
    assert_eq!(server.user_of(&other)["username"], "eve");
}
