//! Large requests get small errors and few warnings, and are refused if they would take much more
//! memory than their text.

use harness::raw_http::{RawHttpConnection, RawHttpRequest};
use serde_json::json;

use crate::api::test_server::ApiTestServer;

const MAPS: &str = "/api/v1/namespaces/large-requests/configmaps";
/// More than an error lists, and less than it would if it listed everything.
const MAX_REPLY_BYTES: usize = 200_000;

/// A ConfigMap of 2.8 MB with a hundred unknown fields, each twice.
fn with_duplicate_keys() -> String {
    let keys: Vec<String> = (0..100)
        .map(|i| format!("\"{i}{}\":1", "k".repeat(14_000)))
        .collect();
    let keys = keys.join(",");
    format!("{{\"metadata\":{{\"name\":\"a\"}},{keys},{keys}}}")
}

#[test]
fn a_large_request_has_a_small_error() {
    let server = ApiTestServer::shared();
    server.create_namespace("large-requests");
    let body = with_duplicate_keys();
    let post = |query: &str, body: &str| {
        let path = format!("{MAPS}?dryRun=All{query}");
        let request = server.request("POST", &path);
        request.body("application/json", body).send()
    };
    let rejection = post("&fieldValidation=Strict", &body);
    assert_eq!(rejection.code, 400);
    let text = rejection.text();
    assert!(text.len() < MAX_REPLY_BYTES, "{}", text.len());
    let message = rejection.json()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("strict decoding error: unknown field \"0kkk"));
    assert!(message.ends_with('…'), "{message}");
    let warned = post("&fieldValidation=Warn", &body);
    assert_eq!(warned.code, 201, "{}", warned.text());
    let dense = format!("{{\"data\":[{}]}}", vec![r#"{"":0}"#; 350_000].join(","));
    let rejection = post("", &dense);
    assert_eq!(rejection.code, 413, "{}", rejection.text());
    let large = json!({"metadata": {"name": "b"}, "data": {"a": "x".repeat(1 << 20)}});
    assert_eq!(post("", &large.to_string()).code, 201);
}

/// More than one user may hold in bodies, and than the seats of a priority level.
const HALF_SENT_BODIES: usize = 100;

#[test]
fn half_sent_bodies_of_one_user_hold_up_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = dir.path().join("tokens");
    std::fs::write(&tokens, "ann,ann,1\nbob,bob,2\n").unwrap();
    let server = ApiTestServer::start_with(&[
        "--token-auth-file",
        tokens.to_str().unwrap(),
        "--authorization-mode=AlwaysAllow",
    ]);
    let path = "/api/v1/namespaces/default/configmaps?dryRun=All";
    let write = |user: &str| {
        let mut body = json!({"metadata": {"name": user}}).to_string();
        body.push_str(&" ".repeat(2_900_000));
        RawHttpRequest::new(&server.address, &server.anonymous, "POST", path)
            .header("Authorization", &format!("Bearer {user}"))
            .body("application/json", body)
    };
    let half_sent: Vec<RawHttpConnection> = (0..HALF_SENT_BODIES)
        .map(|_| write("ann").send_all_but_the_end())
        .collect();
    let other = write("bob").send();
    assert_eq!(other.code, 201, "{}", other.text());
    drop(half_sent);
}

/// More than a server reads of a body that it refuses.
const LARGE_BODY_BYTES: usize = 20 << 20;

#[test]
fn a_client_that_is_refused_while_it_sends_reads_the_answer() {
    let server = ApiTestServer::shared();
    let body = " ".repeat(LARGE_BODY_BYTES);
    let request = server.request("POST", MAPS);
    let reply = request.body("application/json", &*body).send();
    assert_eq!(reply.code, 413, "{}", reply.text());
    let stranger = RawHttpRequest::new(&server.address, &server.anonymous, "POST", MAPS)
        .header("Authorization", "Bearer of.nothing")
        .body("application/json", body);
    let reply = stranger.send();
    assert_eq!(reply.code, 401, "{}", reply.text());
}

#[test]
fn an_object_that_is_too_large_for_the_store_is_413() {
    let server = ApiTestServer::shared();
    server.create_namespace("too-large");
    let all = "/apis/apps/v1/namespaces/too-large/deployments";
    let deployment = |name: &str, length: usize| {
        let env = json!([{"name": "E", "value": "x".repeat(length)}]);
        let pod = json!({"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i", "env": env}]}});
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": pod}})
    };
    assert_eq!(server.post(all, &deployment("a", 900_000)).code, 201);
    let one = format!("{all}/a");
    let applied = format!("{all}/c?fieldManager=m");
    let (json, large) = ("application/json", 1_700_000);
    // Each patch is small enough by itself.
    let more = json!([{"op": "add", "path": "/spec/template/spec/containers/0/args", "value": ["x".repeat(900_000)]}]);
    let containers = json!([{"name": "c", "args": ["x".repeat(900_000)]}]);
    let merged = json!({"spec": {"template": {"spec": {"containers": containers}}}});
    let requests = [
        ("POST", all, json, deployment("b", large)),
        ("PUT", &one, json, deployment("a", large)),
        (
            "PATCH",
            &one,
            "application/merge-patch+json",
            deployment("a", large),
        ),
        (
            "PATCH",
            &one,
            "application/strategic-merge-patch+json",
            merged,
        ),
        ("PATCH", &one, "application/json-patch+json", more),
        (
            "PATCH",
            &applied,
            "application/apply-patch+yaml",
            deployment("c", large),
        ),
    ];
    for (method, path, content_type, body) in requests {
        let request = server.request(method, path);
        let rejection = request.body(content_type, body.to_string()).send();
        assert_eq!(rejection.code, 413, "{method} {content_type}");
        let status = rejection.json();
        assert_eq!(status["reason"], "RequestEntityTooLarge");
        let message = "Request entity too large: etcdserver: request is too large";
        assert_eq!(status["message"], message);
    }
}
