//! Tests of streamed responses: watches, and lists of more than one chunk.

use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::Api;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use machinery::{Object, UserInfo};
use registry::LoopbackApi;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::{CONFIG_MAPS, config_map, start_server};

async fn next_event(body: &mut Incoming, buffer: &mut Vec<u8>) -> Option<Value> {
    loop {
        if let Some(end) = buffer.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = buffer.drain(..=end).collect();
            return Some(machinery::json::from_slice(&line).unwrap());
        }
        let frame = tokio::time::timeout(Duration::from_secs(10), body.frame())
            .await
            .expect("no event came")?
            .unwrap();
        buffer.extend_from_slice(frame.data_ref().unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_stream_events_and_end_cleanly() {
    let mut running = start_server().await;
    let mut admin = running.admin().await;
    let revision = admin.get(CONFIG_MAPS).await.json()["metadata"]["resourceVersion"].clone();
    let revision = revision.as_str().unwrap();
    let mut watching = running.admin().await;
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={revision}");
    let response = watching
        .send(Method::GET, &path, &[("accept", "*/*")], "")
        .await;
    assert_eq!(response.status(), StatusCode::OK);
    let (mut body, mut buffer) = (response.into_body(), Vec::new());
    admin.post(CONFIG_MAPS, config_map("w")).await;
    let event = next_event(&mut body, &mut buffer).await.unwrap();
    assert_eq!(event["type"], "ADDED");
    assert_eq!(event["object"]["metadata"]["name"], "w");

    let mut tables = running.admin().await;
    let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let first =
        "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let path = format!("{CONFIG_MAPS}?watch=1&fieldSelector=metadata.name%3Dw{first}");
    let response = tables.send(Method::GET, &path, &accept, "").await;
    let (mut rows, mut row_buffer) = (response.into_body(), Vec::new());
    let event = next_event(&mut rows, &mut row_buffer).await.unwrap();
    assert_eq!(event["object"]["kind"], "Table");
    assert!(event["object"]["columnDefinitions"].is_array());
    let end = next_event(&mut rows, &mut row_buffer).await.unwrap();
    assert_eq!(end["type"], "BOOKMARK");
    let annotations = &end["object"]["rows"][0]["object"]["metadata"]["annotations"];
    assert_eq!(annotations["k8s.io/initial-events-end"], "true");

    let mut short = running.admin().await;
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={revision}&timeoutSeconds=1");
    let ended = short.get(&path).await;
    assert!(ended.code == 200 && !ended.body.is_empty());
    assert_eq!(
        short
            .get(&format!("{CONFIG_MAPS}?watch=1&resourceVersion=x"))
            .await
            .code,
        500
    );

    let _ = running.stop.take().unwrap().send(());
    assert_eq!(next_event(&mut body, &mut buffer).await, None);
    assert_eq!(next_event(&mut rows, &mut row_buffer).await, None);
    drop((watching, tables, short, admin));
    running.tasks.join_next().await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_watches_share_a_connection() {
    let running = start_server().await;
    let stream = TcpStream::connect(running.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let tls = running.tls(Some(&running.pki.admin), b"h2");
    let stream = tls.connect(name, stream).await.unwrap();
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(async move {
        let _ = connection.await;
    });
    let mut bodies = Vec::new();
    for _ in 0..100 {
        let uri = format!("https://localhost{CONFIG_MAPS}?watch=1");
        let request = Request::get(uri).body(Full::<Bytes>::default()).unwrap();
        let response = sender.clone().send_request(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        bodies.push((response.into_body(), Vec::new()));
    }
    let mut admin = running.admin().await;
    assert_eq!(
        admin.post(CONFIG_MAPS, config_map("shared")).await.code,
        201
    );
    for (body, buffer) in &mut bodies {
        loop {
            let event = next_event(body, buffer).await.unwrap();
            if event["object"]["metadata"]["name"] == "shared" {
                break;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_lists_are_streamed() {
    let running = start_server().await;
    let api: Arc<dyn Api> = LoopbackApi::new(Arc::clone(&running.registry), UserInfo::internal());
    let gvr = machinery::Gvr::from_static("", "v1", "configmaps");
    let pad = "x".repeat(4000);
    for n in 0..300 {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("n{n}"), "namespace": "default"}, "data": {"pad": pad}});
        let path = client::ResourcePath::collection(&gvr, "default");
        let created: Object = api
            .create(path, body.into(), &client::WriteOptions::default())
            .await
            .unwrap();
        assert_eq!(created.namespace(), "default");
    }
    let mut admin = running.admin().await;
    let uncompressed = admin.get(CONFIG_MAPS).await;
    assert_eq!(
        uncompressed.headers["content-length"].to_str().unwrap(),
        uncompressed.body.len().to_string()
    );
    let gzip = [("accept-encoding", "gzip")];
    let packed = admin.call(Method::GET, CONFIG_MAPS, &gzip, "").await;
    assert_eq!(packed.headers["content-encoding"], "gzip");
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(&packed.body[..])
        .read_to_end(&mut text)
        .unwrap();
    let (a, b): (Value, Value) = (
        uncompressed.json(),
        machinery::json::from_slice(&text).unwrap(),
    );
    assert_eq!(a["items"], b["items"]);
    assert!(a["items"].as_array().unwrap().len() >= 300);
}
