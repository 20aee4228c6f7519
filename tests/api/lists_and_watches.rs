//! Paged lists, watches, and the responses of deletions.

use std::time::{Duration, Instant};

use harness::raw_http::RawHttpResponseStream;
use serde_json::{Value, json};

use crate::api::test_server::ApiTestServer;

const TIMEOUT: Duration = Duration::from_secs(90);

fn config_map(name: &str, data: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"a": data}})
}

/// Reads the next frame of a watch: one line with one JSON document.
fn next_frame(stream: &mut RawHttpResponseStream, rest: &mut Vec<u8>) -> Option<Value> {
    loop {
        if let Some(end) = rest.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            return Some(machinery::json::from_slice(&line).unwrap());
        }
        rest.extend(stream.next_chunk()?);
    }
}

fn event_type_and_name(frame: &Value) -> (String, String) {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    (
        text(&frame["type"]),
        text(&frame["object"]["metadata"]["name"]),
    )
}

#[test]
fn a_watch_sends_each_change_once_and_ends_cleanly() {
    let test_server = ApiTestServer::shared();
    test_server.create_namespace("frames");
    let path = "/api/v1/namespaces/frames/secrets";
    let list = test_server.get(path).json();
    let from = list["metadata"]["resourceVersion"].as_str().unwrap();
    let query =
        format!("{path}?watch=1&resourceVersion={from}&timeoutSeconds=5&labelSelector=!hidden");
    let request = test_server.request("GET", &query);
    let mut stream = request.header("accept-encoding", "gzip").send_streaming();
    assert_eq!((stream.code, stream.chunked), (200, true));
    assert_eq!(stream.header("content-encoding"), None);
    assert_eq!(
        stream.header("content-type").as_deref(),
        Some("application/json")
    );
    assert_eq!(stream.header("content-length"), None);
    let one = format!("{path}/s");
    let body = json!({"metadata": {"name": "s"}});
    assert_eq!(test_server.post(path, &body).code, 201);
    let merge = |patch: Value| {
        let reply = test_server
            .request("PATCH", &one)
            .body("application/merge-patch+json", patch.to_string())
            .send();
        assert_eq!(reply.code, 200, "{}", reply.text());
    };
    merge(json!({"metadata": {"labels": {"a": "b"}}}));
    merge(json!({"metadata": {"labels": {"hidden": "y"}}}));
    merge(json!({"metadata": {"labels": {"hidden": null}}}));
    assert_eq!(test_server.request("DELETE", &one).send().code, 200);
    let (mut types, mut rest, mut last) = (Vec::new(), Vec::new(), 0);
    while let Some(frame) = next_frame(&mut stream, &mut rest) {
        let revision = frame["object"]["metadata"]["resourceVersion"]
            .as_str()
            .unwrap();
        let revision: u64 = revision.parse().unwrap();
        assert!(revision > last);
        last = revision;
        types.push(event_type_and_name(&frame).0);
    }
    assert_eq!(types, ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]);
}

/// How many watches of Secrets the server counts.
fn open_watches(test_server: &ApiTestServer) -> usize {
    let metrics = test_server.get("/metrics").text();
    let mut lines = metrics.lines();
    let count = lines.find_map(|line| {
        let labels = line.strip_prefix("apiserver_longrunning_requests{")?;
        let (labels, count) = labels.split_once("} ")?;
        let is_counted = labels.contains(r#"resource="secrets""#);
        is_counted.then(|| count.parse().unwrap())
    });
    count.unwrap_or_default()
}

#[test]
fn watchers_of_closed_clients_are_freed() {
    let test_server = ApiTestServer::start();
    let wait_for = |count: usize| {
        let end = Instant::now() + TIMEOUT;
        while open_watches(&test_server) != count {
            assert!(Instant::now() < end, "{}", open_watches(&test_server));
        }
    };
    for _ in 0..3 {
        let watch = || {
            let stream = test_server.request("GET", "/api/v1/secrets?watch=1");
            stream.send_streaming()
        };
        let streams: Vec<_> = (0..20).map(|_| watch()).collect();
        wait_for(20);
        drop(streams);
        wait_for(0);
    }
}

#[test]
fn a_watch_can_send_initial_events() {
    let test_server = ApiTestServer::shared();
    test_server.create_namespace("initial");
    let path = "/api/v1/namespaces/initial/configmaps";
    assert_eq!(test_server.post(path, &config_map("a", "1")).code, 201);
    let query = "watch=1&timeoutSeconds=30&allowWatchBookmarks=true&sendInitialEvents=true\
        &resourceVersionMatch=NotOlderThan&fieldSelector=metadata.name%3Da";
    let mut stream = test_server
        .request("GET", &format!("{path}?{query}"))
        .send_streaming();
    let mut rest = Vec::new();
    let first = next_frame(&mut stream, &mut rest).unwrap();
    assert_eq!(event_type_and_name(&first), ("ADDED".into(), "a".into()));
    let bookmark = next_frame(&mut stream, &mut rest).unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(bookmark["object"]["kind"], "ConfigMap");
    assert_eq!(bookmark["object"]["apiVersion"], "v1");
    let revision = |event: &Value| -> u64 {
        let text = event["object"]["metadata"]["resourceVersion"].as_str();
        text.unwrap().parse().unwrap()
    };
    assert!(revision(&bookmark) >= revision(&first), "{bookmark}");
    assert_eq!(
        bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"],
        "true"
    );

    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let mut stream = test_server
        .request("GET", &format!("{path}?watch=1&timeoutSeconds=30"))
        .header("Accept", table)
        .send_streaming();
    let mut rest = Vec::new();
    let first = next_frame(&mut stream, &mut rest).unwrap();
    let columns = |frame: &Value| {
        frame["object"]["columnDefinitions"]
            .as_array()
            .map_or(0, Vec::len)
    };
    assert_eq!(first["object"]["kind"], "Table");
    assert_eq!(columns(&first), 3);
    let next = next_frame(&mut stream, &mut rest).unwrap();
    assert_eq!(columns(&next), 0);
    assert_eq!(next["object"]["rows"].as_array().unwrap().len(), 1);
}

#[test]
fn pages_are_of_one_resource_version() {
    let test_server = ApiTestServer::shared();
    test_server.create_namespace("pages");
    let path = "/api/v1/namespaces/pages/secrets";
    for name in ["a", "b", "c", "d", "e"] {
        assert_eq!(
            test_server
                .post(path, &json!({"metadata": {"name": name}}))
                .code,
            201
        );
    }
    let first = test_server.get(&format!("{path}?limit=2")).json();
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    let revision = &first["metadata"]["resourceVersion"];
    test_server.post(path, &json!({"metadata": {"name": "cc"}}));
    assert_eq!(
        test_server
            .request("DELETE", &format!("{path}/d"))
            .send()
            .code,
        200
    );
    let mut names: Vec<String> = Vec::new();
    let mut page = first.clone();
    loop {
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= 2);
        names.extend(
            items
                .iter()
                .map(|i| i["metadata"]["name"].as_str().unwrap().to_owned()),
        );
        assert_eq!(&page["metadata"]["resourceVersion"], revision);
        let Some(token) = page["metadata"]["continue"]
            .as_str()
            .filter(|t| !t.is_empty())
        else {
            break;
        };
        page = test_server
            .get(&format!("{path}?limit=2&continue={token}"))
            .json();
    }
    assert_eq!(names, ["a", "b", "c", "d", "e"]);
    let both = format!(
        "{path}?continue={}&resourceVersion=5",
        first["metadata"]["continue"].as_str().unwrap()
    );
    assert_eq!(test_server.get(&both).code, 400);
}

#[test]
fn delete_returns_a_status_or_the_terminating_object() {
    let test_server = ApiTestServer::shared();
    test_server.create_namespace("deletion");
    let path = "/api/v1/namespaces/deletion/configmaps";
    let created = test_server.post(path, &config_map("a", "1")).json();
    let deleted = test_server
        .request("DELETE", &format!("{path}/a"))
        .send()
        .json();
    assert_eq!(deleted["status"], "Success");
    assert_eq!(
        deleted["details"],
        json!({"name": "a", "kind": "configmaps", "uid": created["metadata"]["uid"]})
    );
    let with_finalizer = json!({"metadata": {"name": "b", "finalizers": ["x.io/y"]}});
    test_server.post(path, &with_finalizer);
    let terminating = test_server.request("DELETE", &format!("{path}/b")).send();
    assert_eq!(terminating.code, 200);
    assert_eq!(
        terminating.json()["metadata"]["deletionGracePeriodSeconds"],
        0
    );
    let dry = test_server
        .post(&format!("{path}?dryRun=All"), &config_map("c", "1"))
        .json();
    assert!(dry["metadata"]["uid"].is_string() && dry["metadata"].get("resourceVersion").is_none());
    assert_eq!(test_server.get(&format!("{path}/c")).code, 404);
}
