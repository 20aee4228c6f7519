//! Watches as informers start them, for every kind; watches over WebSocket; compressed lists.

use harness::raw_http::RawHttpResponseStream;
use serde_json::{Value, json};

use crate::api::test_server::ApiTestServer;

/// The collection paths of all resources that can be watched, by discovery.
fn watchable_paths(server: &ApiTestServer) -> Vec<String> {
    let groups = server.get("/apis").json();
    let mut versions = vec!["/api/v1".to_owned()];
    for group in groups["groups"].as_array().unwrap() {
        for version in group["versions"].as_array().unwrap() {
            versions.push(format!(
                "/apis/{}",
                version["groupVersion"].as_str().unwrap()
            ));
        }
    }
    let mut paths = Vec::new();
    for version in versions {
        let resources = server.get(&version).json();
        for resource in resources["resources"].as_array().unwrap() {
            let verbs = resource["verbs"].as_array().unwrap();
            if verbs.contains(&json!("watch")) {
                paths.push(format!("{version}/{}", resource["name"].as_str().unwrap()));
            }
        }
    }
    paths
}

#[test]
fn every_kind_sends_its_initial_events_and_their_end() {
    let server = ApiTestServer::shared();
    let paths = watchable_paths(&server);
    for kind in [
        "/api/v1/events",
        "/apis/events.k8s.io/v1/events",
        "/api/v1/pods",
    ] {
        assert!(paths.iter().any(|path| path == kind), "{kind}");
    }
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=60";
    for path in paths {
        let mut stream = server
            .request("GET", &format!("{path}?{query}"))
            .send_streaming();
        assert_eq!(stream.code, 200, "{path}");
        let mut text = String::new();
        while !text.contains("\"k8s.io/initial-events-end\":\"true\"") {
            let chunk = stream
                .next_chunk()
                .unwrap_or_else(|| panic!("{path}: {text}"));
            text.push_str(&String::from_utf8(chunk).unwrap());
        }
        let last: Value = machinery::json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!(last["type"], "BOOKMARK", "{path}");
        let revision = last["object"]["metadata"]["resourceVersion"]
            .as_str()
            .unwrap();
        assert!(revision.parse::<u64>().unwrap() > 0, "{path}");
    }
}

/// The next frame of a WebSocket: its first byte and its payload.
fn next_message(stream: &mut RawHttpResponseStream) -> (u8, Vec<u8>) {
    let head = stream.read_upgraded(2);
    let length = match head[1] {
        126 => {
            let bytes = stream.read_upgraded(2);
            usize::from(u16::from_be_bytes([bytes[0], bytes[1]]))
        }
        length => usize::from(length),
    };
    (head[0], stream.read_upgraded(length))
}

const TEXT: u8 = 0x81;
const BINARY: u8 = 0x82;
const CLOSE: u8 = 0x88;

fn open_web_socket(server: &ApiTestServer, path: &str, accept: &str) -> RawHttpResponseStream {
    server
        .request("GET", path)
        .header("Connection", "Upgrade")
        .header("Upgrade", "websocket")
        .header("Origin", "https://dashboard.example.org")
        .header("Sec-WebSocket-Version", "13")
        .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
        .header("Sec-WebSocket-Protocol", "binary.k8s.io")
        .header("Accept", accept)
        .send_streaming()
}

#[test]
fn a_web_socket_gets_one_message_per_event() {
    let server = ApiTestServer::shared();
    server.create_namespace("web-socket");
    let path = "/api/v1/namespaces/web-socket/secrets";
    let create = |name: &str| {
        let reply = server.post(path, &json!({"metadata": {"name": name}}));
        assert_eq!(reply.code, 201, "{}", reply.text());
    };
    create("a");
    create("b");
    let watch = format!("{path}?watch=1&timeoutSeconds=5");
    let mut stream = open_web_socket(&server, &watch, "application/json");
    assert_eq!(stream.code, 101);
    let accepted = stream.header("sec-websocket-accept");
    assert_eq!(accepted.as_deref(), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    let protocol = stream.header("sec-websocket-protocol");
    assert_eq!(protocol.as_deref(), Some("binary.k8s.io"));
    for name in ["a", "b"] {
        let (kind, payload) = next_message(&mut stream);
        let event: Value = machinery::json::from_slice(&payload).unwrap();
        assert_eq!((kind, &event["type"]), (TEXT, &json!("ADDED")));
        assert_eq!(event["object"]["metadata"]["name"], name);
    }
    create("c");
    let (_, payload) = next_message(&mut stream);
    let event: Value = machinery::json::from_slice(&payload).unwrap();
    assert_eq!(event["object"]["metadata"]["name"], "c");
    assert_eq!(next_message(&mut stream).0, CLOSE);

    let protobuf = "application/vnd.kubernetes.protobuf;stream=watch";
    let mut stream = open_web_socket(&server, &watch, protobuf);
    assert_eq!(stream.code, 101);
    for _ in 0..3 {
        let (kind, payload) = next_message(&mut stream);
        assert_eq!((kind, payload.is_empty()), (BINARY, false));
    }
    // Without the right to watch there is no socket.
    let anonymous = server
        .request("GET", &watch)
        .with_identity(&server.anonymous)
        .header("Connection", "Upgrade")
        .header("Upgrade", "websocket")
        .send_streaming();
    assert_eq!(anonymous.code, 403);
    let unversioned = server
        .request("GET", &watch)
        .header("Connection", "Upgrade")
        .header("Upgrade", "websocket")
        .send();
    assert_eq!(unversioned.code, 400, "{}", unversioned.text());
}

#[test]
fn large_lists_are_compressed_for_clients_that_accept_it() {
    let server = ApiTestServer::shared();
    server.create_namespace("gzip");
    let path = "/api/v1/namespaces/gzip/secrets";
    let list = |encoding: &str| {
        server
            .request("GET", path)
            .header("Accept-Encoding", encoding)
            .send()
    };
    let small = list("gzip");
    assert_eq!(
        (small.code, small.header("content-encoding")),
        (200, String::new())
    );
    for name in ["a", "b"] {
        let body =
            json!({"metadata": {"name": name}, "stringData": {"text": "x".repeat(80 << 10)}});
        assert_eq!(server.post(path, &body).code, 201);
    }
    // As client-go sends it.
    let large = list("gzip");
    let encoding = (large.header("content-encoding"), large.header("vary"));
    assert_eq!(encoding, ("gzip".to_owned(), "Accept-Encoding".to_owned()));
    assert!(large.body.starts_with(&[0x1f, 0x8b]) && large.body.len() < 100 << 10);
    let plain = list("identity");
    assert_eq!(plain.header("content-encoding"), "");
    assert_eq!(plain.json()["items"].as_array().unwrap().len(), 2);
}
