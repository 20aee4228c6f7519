//! Tests of the remote API against real HTTPS servers in this process.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use futures_util::StreamExt;
use machinery::Gvr;
use serde_json::json;
use tokio::net::TcpListener;

use super::test_https_server::TestHttpsServer;
use super::*;
use crate::api::WriteOptions;
use crate::tasks::ShutdownToken;
use crate::write_body::EncodedObjectBody;

static MAPS: Gvr = Gvr::from_static("", "v1", "configmaps");

fn event(n: u64) -> Bytes {
    format!("{{\"type\":\"ADDED\",\"object\":{{\"metadata\":{{\"name\":\"n\",\"resourceVersion\":\"{n}\"}}}}}}\n").into()
}

async fn watch(client: &RemoteApi) -> WatchStream {
    client
        .watch(
            ResourcePath::collection(&MAPS, ""),
            &WatchOptions::default(),
        )
        .await
        .unwrap()
}

/// Asks until the server answers.
async fn wait_until_served(client: &RemoteApi) {
    let served = async {
        let at = || ResourcePath::object(&MAPS, "ns", "m");
        while client.get(at()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let limit = Duration::from_secs(20);
    tokio::time::timeout(limit, served).await.unwrap();
}

#[tokio::test]
async fn a_connection_is_opened_before_the_peers_limit_is_reached() {
    let server = TestHttpsServer::start(&["h2"], 10).await;
    let client = server.client();
    let mut streams = Vec::new();
    for _ in 0..20 {
        streams.push(watch(&client).await);
    }
    // 9 of 10 streams on each connection: a call still goes through at once.
    client
        .get(ResourcePath::object(&MAPS, "ns", "m"))
        .await
        .unwrap();
    assert_eq!(
        (
            server.count(|s| &s.connections),
            server.count(|s| &s.max_streams)
        ),
        (3, 9)
    );
    let senders = std::mem::take(&mut *server.state.open_watches.lock());
    for (n, send) in senders.iter().enumerate() {
        send.send(event(n as u64 + 1)).unwrap();
    }
    for stream in &mut streams {
        assert!(matches!(
            stream.next().await.unwrap().unwrap(),
            WatchEvent::Added(_)
        ));
    }
    drop(senders);
    for stream in &mut streams {
        assert!(stream.next().await.is_none());
    }
    drop(streams);
    client
        .get(ResourcePath::object(&MAPS, "ns", "m"))
        .await
        .unwrap();
    assert_eq!(
        client.connection.pool().open_connections(),
        1,
        "surplus empty connections are closed"
    );
    server.tasks.stop().await;
}

#[tokio::test]
async fn a_burst_shares_one_connection() {
    let server = TestHttpsServer::start(&["h2", "http/1.1"], 100).await;
    let client = server.client();
    let calls = (0..40).map(|_| client.get(ResourcePath::object(&MAPS, "ns", "m")));
    for done in futures_util::future::join_all(calls).await {
        assert_eq!(done.unwrap().revision(), 5);
    }
    assert_eq!(server.count(|s| &s.connections), 1);
    server.tasks.stop().await;
}

#[tokio::test]
async fn a_request_refused_with_goaway_is_sent_again() {
    let server = TestHttpsServer::start(&["h2"], 10).await;
    let client = server.client();
    let object = json!({"metadata": {"name": "m"}});
    let options = WriteOptions::default();
    let create = || {
        client.create(
            ResourcePath::collection(&MAPS, "ns"),
            object.clone().into(),
            &options,
        )
    };
    server.state.refused_connections.store(1, Ordering::SeqCst);
    create().await.unwrap();
    assert_eq!(server.count(|s| &s.connections), 2);
    assert_eq!(server.count(|s| &s.requests), 1);
    // A request that is not retried, as to a webhook, was not processed either.
    client.connection.pool().drop_connections();
    server.state.refused_connections.store(1, Ordering::SeqCst);
    client.post("/hook", Bytes::new(), 1000).await.unwrap();
    assert_eq!(server.count(|s| &s.requests), 2);
    // It is sent again only once.
    client.connection.pool().drop_connections();
    server.state.refused_connections.store(2, Ordering::SeqCst);
    create().await.unwrap_err();
    assert_eq!(server.count(|s| &s.requests), 2);
}

/// A TLS handshake alone is no success: the backoff between dials goes on growing.
#[tokio::test]
async fn a_connection_closed_before_the_settings_is_a_failed_dial() {
    let server = TestHttpsServer::start(&["h2"], 10).await;
    let client = server.client();
    server.state.is_silent.store(true, Ordering::SeqCst);
    for _ in 0..50 {
        let at = ResourcePath::object(&MAPS, "ns", "m");
        client.get(at).await.unwrap_err();
    }
    assert!(server.count(|s| &s.connections) < 20);
    server.state.is_silent.store(false, Ordering::SeqCst);
    wait_until_served(&client).await;
    server.tasks.stop().await;
}

#[tokio::test]
async fn goaway_moves_new_calls_and_leaves_open_watches() {
    let server = TestHttpsServer::start(&["h2"], 100).await;
    let client = server.client();
    let mut old = watch(&client).await;
    server.state.goaway.store(true, Ordering::SeqCst);
    while server.count(|s| &s.connections) < 2 {
        client
            .get(ResourcePath::object(&MAPS, "ns", "m"))
            .await
            .unwrap();
    }
    let send = server.state.open_watches.lock().remove(0);
    send.send(event(8)).unwrap();
    assert!(
        matches!(old.next().await.unwrap().unwrap(), WatchEvent::Added(o) if o.revision() == 8)
    );
    server.tasks.stop().await;
}

#[tokio::test]
async fn an_unreachable_server_fails_fast_and_recovers() {
    let mut server = TestHttpsServer::start(&["h2"], 100).await;
    let listening = server.tasks.clone();
    server.tasks = TaskGroup::new(ShutdownToken::new());
    let client = server.client();
    client
        .get(ResourcePath::object(&MAPS, "ns", "m"))
        .await
        .unwrap();
    let mut broken = watch(&client).await;
    listening.stop().await;
    assert!(!matches!(broken.next().await, Some(Ok(_))));
    let error = client
        .get(ResourcePath::object(&MAPS, "ns", "m"))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Transport { .. }), "{error}");
    let text = format!("{error} {error:?}");
    assert!(
        text.contains("localhost") && !text.contains("sesame"),
        "{text}"
    );
    server.serve(TcpListener::bind(server.address).await.unwrap());
    wait_until_served(&client).await;
    server.tasks.stop().await;
}

#[tokio::test]
async fn http1_is_spoken_where_there_is_no_http2() {
    let server = TestHttpsServer::start(&["http/1.1"], 0).await;
    let client = server.client();
    for _ in 0..3 {
        client
            .get(ResourcePath::object(&MAPS, "ns", "m"))
            .await
            .unwrap();
    }
    assert_eq!(server.count(|s| &s.connections), 1);
    let mut stream = watch(&client).await;
    client
        .get(ResourcePath::object(&MAPS, "ns", "m"))
        .await
        .unwrap();
    let send = server.state.open_watches.lock().remove(0);
    send.send(event(3)).unwrap();
    assert!(stream.next().await.unwrap().is_ok());
    assert_eq!(server.count(|s| &s.connections), 2);
    server.tasks.stop().await;
}

/// The body is longer than a frame and than the flow control window.
#[tokio::test]
async fn a_body_in_pieces_arrives_as_a_whole() {
    let object = json!({"data": {"k": "x".repeat(300 << 10)}, "metadata": {"name": "m"}});
    let text = Bytes::from(object.to_string());
    for protocol in ["h2", "http/1.1"] {
        let server = TestHttpsServer::start(&[protocol], 100).await;
        let client = server.client();
        let cuts = [(0, 9), (9, 9), (9, 200_000), (200_000, text.len())];
        let body: EncodedObjectBody = cuts
            .map(|(from, to)| text.slice(from..to))
            .into_iter()
            .collect();
        let (all, one) = (
            ResourcePath::collection(&MAPS, "ns"),
            ResourcePath::object(&MAPS, "ns", "m"),
        );
        let options = WriteOptions::default();
        client
            .create(all, body.clone().into(), &options)
            .await
            .unwrap();
        client.update(one, body.into(), &options).await.unwrap();
        client
            .update(one, object.clone().into(), &options)
            .await
            .unwrap();
        assert_eq!(*server.state.bodies.lock(), [&text; 3]);
        server.tasks.stop().await;
    }
}

#[tokio::test]
async fn answers_are_repeated_understood_or_refused() {
    let server = TestHttpsServer::start(&["h2"], 100).await;
    let client = server.client();
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "message": "gone", "code": 404}).to_string();
    // (method is a write, responses before the usual one, requests made, error)
    type TestCase<'a> = (bool, Vec<(u16, &'a str, &'a str)>, usize, Option<&'a str>);
    let table: [TestCase<'_>; 8] = [
        (false, vec![(429, "0", ""), (503, "0", "")], 3, None),
        (true, vec![(429, "0", "")], 2, None),
        (
            true,
            vec![(503, "0", "down")],
            1,
            Some("503 Service Unavailable: down"),
        ),
        (
            false,
            vec![(503, "", "")],
            1,
            Some("503 Service Unavailable"),
        ),
        (
            false,
            vec![
                (429, "0", "a"),
                (429, "0", "b"),
                (429, "0", "c"),
                (429, "0", "d"),
            ],
            4,
            Some("429 Too Many Requests: d"),
        ),
        (false, vec![(404, "", &status)], 1, Some("gone")),
        (
            false,
            vec![(500, "", "<html>")],
            1,
            Some("500 Internal Server Error: <html>"),
        ),
        (false, vec![(200, "", "[]")], 1, Some("unexpected reply")),
    ];
    for (write, planned_responses, requests, expected) in table {
        let responses = planned_responses
            .iter()
            .map(|(c, r, t)| (*c, (*r).to_owned(), (*t).to_owned()));
        *server.state.first_responses.lock() = responses.collect();
        server.state.requests.store(0, Ordering::SeqCst);
        let at = ResourcePath::object(&MAPS, "ns", "m");
        let outcome = if write {
            client
                .create(
                    ResourcePath::collection(&MAPS, "ns"),
                    json!({}).into(),
                    &WriteOptions::default(),
                )
                .await
        } else {
            client.get(at).await
        };
        let text = outcome.err().map(|e| e.to_string());
        assert_eq!(text.is_some(), expected.is_some(), "{text:?}");
        assert!(
            text.unwrap_or_default()
                .starts_with(expected.unwrap_or_default())
        );
        assert_eq!(
            server.count(|s| &s.requests),
            requests,
            "{planned_responses:?}"
        );
    }
    server.tasks.stop().await;
}

#[tokio::test]
async fn refused_credentials_are_read_again() {
    let server = TestHttpsServer::start(&["h2"], 100).await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    std::fs::write(&path, "stale").unwrap();
    let mut config = server.config.clone();
    config.auth.token_file = Some(path.clone());
    let client = RemoteApi::new(config, &server.tasks).unwrap();
    let error = client
        .get(ResourcePath::object(&MAPS, "ns", "m"))
        .await
        .unwrap_err();
    assert_eq!(error.status().unwrap().code, 401);
    std::fs::write(&path, "sesame").unwrap();
    client
        .get(ResourcePath::object(&MAPS, "ns", "m"))
        .await
        .unwrap();

    let mut unknown = server.config.clone();
    unknown.ca = Some(
        rcgen::generate_simple_self_signed(["x".to_owned()])
            .unwrap()
            .cert
            .pem()
            .into_bytes(),
    );
    let error = RemoteApi::new(unknown.clone(), &server.tasks)
        .unwrap()
        .get_raw("/version")
        .await
        .unwrap_err();
    assert!(error.to_string().contains("TLS"), "{error}");
    unknown.ca = None;
    unknown.insecure_skip_tls_verify = true;
    assert!(
        RemoteApi::new(unknown.clone(), &server.tasks)
            .unwrap()
            .get_raw("/version")
            .await
            .is_ok()
    );
    unknown.auth.client_certificate = Some(ClientCertificate {
        certificate: b"x".to_vec(),
        key: Redacted(b"y".to_vec()),
    });
    let error = RemoteApi::new(unknown, &server.tasks)
        .err()
        .unwrap()
        .to_string();
    assert!(error.ends_with("client certificate is not PEM"), "{error}");
    server.tasks.stop().await;
}

#[tokio::test]
async fn both_forms_of_discovery_are_read() {
    let server = TestHttpsServer::start(&["h2"], 100).await;
    let client = server.client();
    *server.state.responses_by_path.lock() = HashMap::from([
        (
            "/api",
            r#"{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":""},"versions":[{"version":"v1","resources":[
            {"resource":"pods","responseKind":{"kind":"Pod"},"scope":"Namespaced","verbs":["get","list"],"shortNames":["po"],"subresources":[{"subresource":"status"}]}]}]}]}"#,
        ),
        (
            "/apis",
            r#"{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":"x.io"},"versions":[{"version":"v1","freshness":"Stale"}]}]}"#,
        ),
    ]);
    let new = client.discover().await.unwrap();
    *server.state.responses_by_path.lock() = HashMap::from([
        ("/api", r#"{"kind":"APIVersions","versions":["v1"]}"#),
        (
            "/apis",
            r#"{"kind":"APIGroupList","groups":[{"name":"x.io","versions":[{"groupVersion":"x.io/v1"}],"preferredVersion":{"groupVersion":"x.io/v1"}},
            {"name":"gone.io","versions":[{"groupVersion":"gone.io/v1"}]}]}"#,
        ),
        (
            "/api/v1",
            r#"{"kind":"APIResourceList","resources":[{"name":"pods/status","kind":"Pod","verbs":[]},
            {"name":"pods","namespaced":true,"kind":"Pod","verbs":["get","list"],"shortNames":["po"]}]}"#,
        ),
        ("/apis/x.io/v1", "no JSON"),
    ]);
    let old = client.discover().await.unwrap();
    assert_eq!(new.resources, old.resources);
    assert_eq!((new.resources.len(), &*new.resources[0].kind), (1, "Pod"));
    assert_eq!(
        old.failed_group_versions.len(),
        1,
        "a group that is not found is not served"
    );
    assert_eq!(
        (
            &*new.failed_group_versions[0].0,
            &*old.failed_group_versions[0].0
        ),
        ("x.io/v1", "x.io/v1")
    );
    // A group that is filtered out is not requested: it may be our own.
    let core = client
        .discover_groups(&|group| group.is_empty())
        .await
        .unwrap();
    assert_eq!(
        (core.resources, core.failed_group_versions),
        (old.resources, vec![])
    );
    server.tasks.stop().await;
}

#[tokio::test]
async fn a_page_that_is_too_large_is_asked_for_in_smaller_ones() {
    const PATH: &str = "/api/v1/configmaps";
    let server = TestHttpsServer::start(&["h2"], 100).await;
    let client = server.client();
    let small = r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"continue":"c"},"items":[{"metadata":{"name":"a"}}]}"#;
    let large: &'static str = " ".repeat(MAX_PAGE_BYTES + 1).leak();
    *server.state.responses_by_path.lock() =
        HashMap::from([("/api/v1/configmaps?limit=8", small), (PATH, large)]);
    let list = async |limit| {
        let options = ListOptions {
            limit,
            ..ListOptions::default()
        };
        let at = ResourcePath::collection(&MAPS, "");
        client.list(at, &options).await
    };
    let page = list(60).await.unwrap();
    assert_eq!((page.items.len(), &*page.continue_token), (1, "c"));
    let error = list(1).await.unwrap_err().to_string();
    assert!(
        error.contains("the reply exceeds 67108864 bytes"),
        "{error}"
    );
    server.tasks.stop().await;
}

#[tokio::test]
async fn a_server_that_lies_about_what_it_serves_is_read_in_part() {
    let server = TestHttpsServer::start(&["h2"], 100).await;
    let client = server.client();
    let resource =
        r#"{"resource":"r","responseKind":{"kind":"R"},"scope":"Namespaced","verbs":["get"]}"#;
    let version = format!(
        r#"{{"version":"v1","resources":[{}]}}"#,
        vec![resource; 15_000].join(",")
    );
    let groups: Vec<String> = (0..4)
        .map(|i| format!(r#"{{"metadata":{{"name":"g{i}.io"}},"versions":[{version}]}}"#))
        .collect();
    let groups = format!(
        r#"{{"kind":"APIGroupDiscoveryList","items":[{}]}}"#,
        groups.join(",")
    );
    let core = r#"{"kind":"APIGroupDiscoveryList","items":[]}"#;
    *server.state.responses_by_path.lock() =
        HashMap::from([("/api", core), ("/apis", &*groups.leak())]);
    let served = client.discover().await.unwrap();
    assert_eq!(served.resources.len(), 30_000);
    let failed: Vec<&str> = served
        .failed_group_versions
        .iter()
        .map(|(v, _)| &**v)
        .collect();
    assert_eq!(failed, ["g2.io/v1", "g3.io/v1"]);

    let version = |i| format!(r#"{{"groupVersion":"g.io/v{i}"}}"#);
    let versions: Vec<String> = (0..1_500).map(version).collect();
    let groups = format!(
        r#"{{"kind":"APIGroupList","groups":[{{"name":"g.io","versions":[{}]}}]}}"#,
        versions.join(",")
    );
    *server.state.responses_by_path.lock() = HashMap::from([
        ("/api", r#"{"kind":"APIVersions","versions":[]}"#),
        ("/apis", &*groups.leak()),
    ]);
    let served = client.discover().await.unwrap();
    assert_eq!(served.failed_group_versions.len(), 500);
    server.tasks.stop().await;
}
