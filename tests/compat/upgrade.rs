//! The cluster proxy: upgraded connections (SPDY, WebSocket), byte by byte.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::compat::test_server::CompatTestServer;
use harness::http_client::{cluster_proxy_path, within_timeout};
use harness::https_server::{
    FakeHttpsServer, HALF_CLOSE_MESSAGE, pseudo_random_bytes, upgrade_handler,
};

const PROTOCOLS: [&str; 2] = ["SPDY/3.1", "websocket"];

#[tokio::test(flavor = "multi_thread")]
async fn upgraded_connections_are_forwarded_with_half_closes() {
    let test_server = CompatTestServer::shared().await;
    let (received, mut receiver) = tokio::sync::mpsc::channel(8);
    let peer = FakeHttpsServer::start(upgrade_handler(received)).await;
    test_server
        .register_cluster("tunnels", &peer, json!({}))
        .await;
    for (at, protocol) in PROTOCOLS.into_iter().enumerate() {
        let sent = pseudo_random_bytes(3_000_000, 7 + at as u32);
        let (early, rest) = sent.split_at(100);
        let path = cluster_proxy_path("tunnels", "/exec/echo?command=cat");
        let (head, stream) = test_server.admin.upgrade(&path, protocol, early).await;
        let lower = head.to_lowercase();
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        for header in [
            "connection: upgrade",
            &format!("upgrade: {}", protocol.to_lowercase()),
            "x-stream-protocol-version: v4.channel.k8s.io",
        ] {
            assert!(lower.contains(header), "{header}: {head}");
        }
        let (mut from, mut to) = tokio::io::split(stream);
        let mut actual = Vec::new();
        let both = async {
            tokio::join!(
                async {
                    to.write_all(rest).await.unwrap();
                    // This direction is closed; the other one is open.
                    to.shutdown().await.unwrap();
                },
                async { from.read_to_end(&mut actual).await.unwrap() },
            )
        };
        within_timeout("the echo", both).await;
        assert!(
            actual == [&sent, HALF_CLOSE_MESSAGE].concat(),
            "{protocol}: {} bytes",
            actual.len()
        );

        // The cluster closes its direction first, and receives what is sent afterwards.
        let path = cluster_proxy_path("tunnels", "/exec/brief");
        let (_, mut stream) = test_server.admin.upgrade(&path, protocol, b"").await;
        let mut actual = Vec::new();
        within_timeout("the farewell", stream.read_to_end(&mut actual))
            .await
            .unwrap();
        assert_eq!(actual, HALF_CLOSE_MESSAGE);
        stream.write_all(&sent).await.unwrap();
        stream.shutdown().await.unwrap();
        assert!(within_timeout("the rest", receiver.recv()).await.unwrap() == sent);
    }
    let (head, mut stream) = test_server
        .admin
        .upgrade(
            &cluster_proxy_path("tunnels", "/exec/none"),
            PROTOCOLS[0],
            b"",
        )
        .await;
    assert!(
        head.starts_with("HTTP/1.1 403 ") && head.contains("x-why: none"),
        "{head}"
    );
    let mut body = [0; 10];
    within_timeout("the body", stream.read_exact(&mut body))
        .await
        .unwrap();
    assert_eq!(&body, b"no upgrade");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgraded_connection_ends_when_its_cluster_is_deleted() {
    let test_server = CompatTestServer::shared().await;
    let (received, _receiver) = tokio::sync::mpsc::channel(8);
    let peer = FakeHttpsServer::start(upgrade_handler(received)).await;
    test_server
        .register_cluster("brief", &peer, json!({}))
        .await;
    let path = cluster_proxy_path("brief", "/exec/echo");
    let (_, mut stream) = test_server.admin.upgrade(&path, PROTOCOLS[0], b"").await;
    stream.write_all(b"x").await.unwrap();
    assert_eq!(
        within_timeout("the echo", stream.read_u8()).await.unwrap(),
        b'x'
    );
    let cluster = "/apis/cluster.karmada.io/v1alpha1/clusters/brief";
    let request = harness::http_client::HttpTestRequest::new(hyper::Method::DELETE, cluster);
    assert_eq!(test_server.admin.call(request).await.code, 200);
    let mut rest = Vec::new();
    // The connection may end with an error.
    let _ = within_timeout("the end", stream.read_to_end(&mut rest)).await;
    assert!(rest.is_empty());
}
