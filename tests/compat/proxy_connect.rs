//! The cluster proxy: members that are reached through a proxy.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use harness::fake_proxy::FakeProxy;
use harness::http_client::cluster_proxy_path;
use harness::https_server::FakeHttpsServer;
use serde_json::json;

use crate::compat::proxy::echo_handler;
use crate::compat::test_server::CompatTestServer;

/// Registers a cluster behind a proxy, and reaches it with a request and with an upgrade.
async fn reach_through_proxy(name: &str, proxy: &FakeProxy, url: &str, member: &str) {
    let test_server = CompatTestServer::shared().await;
    let names = ["localhost", "127.0.0.1", "::1"];
    let mut peer = FakeHttpsServer::start_at(member, &names, echo_handler()).await;
    peer.ca_pem.push_str(&proxy.ca_pem);
    let spec = json!({"proxyURL": url, "proxyHeader": {"X-Way": "a,b"}});
    test_server.register_cluster(name, &peer, spec).await;
    let path = cluster_proxy_path(name, "/api");
    let reply = test_server.admin.get(&path).await;
    assert_eq!(reply.json()["path"], "/base/api");
    let path = cluster_proxy_path(name, "/exec");
    let (head, _stream) = test_server.admin.upgrade(&path, "SPDY/3.1", b"").await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let requests = proxy.requests();
    assert_eq!(
        requests.len(),
        2,
        "one connection for requests, one for an upgrade"
    );
    for request in requests {
        assert!(request.contains(&peer.address.to_string()), "{request}");
    }
}

// proves: PRX-connect
#[tokio::test(flavor = "multi_thread")]
async fn http_and_https_proxies_get_their_headers() {
    for (name, proxy, scheme) in [
        ("behind-http", FakeProxy::http().await, "http"),
        ("behind-https", FakeProxy::https().await, "https"),
    ] {
        let url = format!("{scheme}://me:p%40ss@{}", proxy.address);
        reach_through_proxy(name, &proxy, &url, "127.0.0.1:0").await;
        for head in proxy.requests() {
            assert!(head.starts_with("CONNECT 127.0.0.1:"), "{head}");
            assert!(head.contains("X-Way: a\r\nX-Way: b\r\n"), "{head}");
            let basic = STANDARD.encode("me:p@ss");
            assert!(head.contains(&format!("Proxy-Authorization: Basic {basic}\r\n")));
        }
    }
}

// proves: PRX-socks, PRX-ipv6, PRX-refused
#[tokio::test(flavor = "multi_thread")]
async fn socks5_proxies_and_ipv6_members_are_reached() {
    let proxy = FakeProxy::socks5("127.0.0.1:0", None).await;
    let url = format!("socks5://{}", proxy.address);
    reach_through_proxy("behind-socks", &proxy, &url, "127.0.0.1:0").await;
    let proxy = FakeProxy::socks5("[::1]:0", Some("me:p@ss")).await;
    let url = format!("socks5://me:p%40ss@{}", proxy.address);
    reach_through_proxy("behind-socks-ipv6", &proxy, &url, "[::1]:0").await;

    let test_server = CompatTestServer::shared().await;
    let peer = FakeHttpsServer::start(echo_handler()).await;
    let spec = json!({"proxyURL": format!("socks5://me:wrong-secret@{}", proxy.address)});
    test_server.register_cluster("refused", &peer, spec).await;
    let path = cluster_proxy_path("refused", "/api");
    let reply = test_server.admin.get(&path).await;
    let text = String::from_utf8_lossy(&reply.body);
    assert_eq!(reply.code, 503, "{text}");
    assert!(text.contains("proxy refused: "), "{text}");
    assert!(!text.contains("wrong-secret"), "{text}");
    assert!(!test_server.log().contains("wrong-secret"));
}
