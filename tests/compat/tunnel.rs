//! The cluster proxy: upgraded connections (SPDY, WebSocket), byte by byte.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::plane::Plane;
use harness::peer::{FAREWELL, Peer, noise, upgrader};
use harness::target::{proxied, soon};

const PROTOCOLS: [&str; 2] = ["SPDY/3.1", "websocket"];

#[tokio::test(flavor = "multi_thread")]
async fn upgraded_connections_are_forwarded_with_half_closes() {
    let test_server = Plane::shared().await;
    let (received, mut receiver) = tokio::sync::mpsc::channel(8);
    let peer = Peer::start(upgrader(received)).await;
    test_server.register("tunnels", &peer, json!({})).await;
    for (at, protocol) in PROTOCOLS.into_iter().enumerate() {
        let sent = noise(3_000_000, 7 + at as u32);
        let (early, rest) = sent.split_at(100);
        let path = proxied("tunnels", "/exec/echo?command=cat");
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
        let mut got = Vec::new();
        let both = async {
            tokio::join!(
                async {
                    to.write_all(rest).await.unwrap();
                    // This direction is closed; the other one is open.
                    to.shutdown().await.unwrap();
                },
                async { from.read_to_end(&mut got).await.unwrap() },
            )
        };
        soon("the echo", both).await;
        assert!(
            got == [&sent, FAREWELL].concat(),
            "{protocol}: {} bytes",
            got.len()
        );

        // The cluster closes its direction first, and receives what is sent afterwards.
        let path = proxied("tunnels", "/exec/brief");
        let (_, mut stream) = test_server.admin.upgrade(&path, protocol, b"").await;
        let mut got = Vec::new();
        soon("the farewell", stream.read_to_end(&mut got))
            .await
            .unwrap();
        assert_eq!(got, FAREWELL);
        stream.write_all(&sent).await.unwrap();
        stream.shutdown().await.unwrap();
        assert!(soon("the rest", receiver.recv()).await.unwrap() == sent);
    }
    let (head, mut stream) = test_server
        .admin
        .upgrade(&proxied("tunnels", "/exec/none"), PROTOCOLS[0], b"")
        .await;
    assert!(
        head.starts_with("HTTP/1.1 403 ") && head.contains("x-why: none"),
        "{head}"
    );
    let mut body = [0; 10];
    soon("the body", stream.read_exact(&mut body))
        .await
        .unwrap();
    assert_eq!(&body, b"no upgrade");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgraded_connection_ends_when_its_cluster_is_deleted() {
    let test_server = Plane::shared().await;
    let (received, _receiver) = tokio::sync::mpsc::channel(8);
    let peer = Peer::start(upgrader(received)).await;
    test_server.register("brief", &peer, json!({})).await;
    let path = proxied("brief", "/exec/echo");
    let (_, mut stream) = test_server.admin.upgrade(&path, PROTOCOLS[0], b"").await;
    stream.write_all(b"x").await.unwrap();
    assert_eq!(soon("the echo", stream.read_u8()).await.unwrap(), b'x');
    let cluster = "/apis/cluster.karmada.io/v1alpha1/clusters/brief";
    let request = harness::target::Ask::new(hyper::Method::DELETE, cluster);
    assert_eq!(test_server.admin.call(request).await.code, 200);
    let mut rest = Vec::new();
    // The connection may end with an error.
    let _ = soon("the end", stream.read_to_end(&mut rest)).await;
    assert!(rest.is_empty());
}
