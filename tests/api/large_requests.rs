//! What large requests come to: small errors, few warnings, and a refusal of those that would take
//! much more memory than their text.

use serde_json::json;

use crate::test_server::ApiTestServer;

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
    let refused = post("&fieldValidation=Strict", &body);
    assert_eq!(refused.code, 400);
    let text = refused.text();
    assert!(text.len() < MAX_REPLY_BYTES, "{}", text.len());
    let message = refused.json()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("strict decoding error: unknown field \"0kkk"));
    assert!(message.ends_with('…'), "{message}");
    let warned = post("&fieldValidation=Warn", &body);
    assert_eq!(warned.code, 201, "{}", warned.text());
    let dense = format!("{{\"data\":[{}]}}", vec![r#"{"":0}"#; 350_000].join(","));
    let refused = post("", &dense);
    assert_eq!(refused.code, 413, "{}", refused.text());
    let large = json!({"metadata": {"name": "b"}, "data": {"a": "x".repeat(1 << 20)}});
    assert_eq!(post("", &large.to_string()).code, 201);
}
