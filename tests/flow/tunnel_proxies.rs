//! Tunnels through a proxy that ends TLS and passes on no upgrade but that to a WebSocket.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::remote::kubeconfig::KubeconfigLoadingRules;
use client::remote::{RequestBody, RequestForwarder};
use client::{ShutdownToken, TaskGroup};
use harness::https_server::{FakeHttpsServer, TestRequestHandler};
use http_body_util::BodyExt;
use hyper::header::{CONNECTION, UPGRADE};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;

use crate::flow::agent_tunnels::{NS, TunneledMember, list_config_maps, watch};
use crate::flow::objects::{DEPLOYMENTS, PODS, config_map, deployment};
use crate::flow::pull_members::PullFixture;

/// How many upgrades of each kind have reached the proxy.
#[derive(Default)]
struct UpgradeCounts {
    websockets: AtomicUsize,
    others: AtomicUsize,
}

/// Removes other upgrades from requests, as proxies do that do not know the protocol.
fn proxy_handler(server: RequestForwarder, counts: Arc<UpgradeCounts>) -> TestRequestHandler {
    let server = Arc::new(server);
    Arc::new(move |mut request: Request<_>| {
        let (server, counts) = (Arc::clone(&server), Arc::clone(&counts));
        Box::pin(async move {
            let protocol = request.headers().get(UPGRADE).cloned();
            if protocol.as_ref().is_some_and(|name| name != "websocket") {
                counts.others.fetch_add(1, Ordering::Relaxed);
                request.headers_mut().remove(UPGRADE);
                request.headers_mut().remove(CONNECTION);
            }
            if !request.headers().contains_key(UPGRADE) {
                let response = server.send(request.map(RequestBody::streamed)).await;
                return response.unwrap().map(BodyExt::boxed);
            }
            counts.websockets.fetch_add(1, Ordering::Relaxed);
            let of_client = hyper::upgrade::on(&mut request);
            let response = server.upgrade(request.map(RequestBody::streamed)).await;
            let mut response = response.unwrap();
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                let of_server = hyper::upgrade::on(&mut response);
                tokio::spawn(async move {
                    let client = TokioIo::new(of_client.await.unwrap());
                    let (mut client, mut server) = (client, TokioIo::new(of_server.await.unwrap()));
                    // Either end may break off.
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                });
            }
            response.map(BodyExt::boxed)
        })
    })
}

// proves: TUN-websocket
#[tokio::test]
async fn a_tunnel_passes_a_proxy_that_knows_websockets_only() {
    let Some([kubectl]) = harness::tools(["kubectl-new"]) else {
        return;
    };
    let fleet = PullFixture::start().await;
    fleet.register().await;
    let direct = fleet.agent_kubeconfig().await;
    // The proxy is known to the control plane as the agent.
    let credentials = KubeconfigLoadingRules::from_file(&direct).load().unwrap();
    let tasks = TaskGroup::new(ShutdownToken::new());
    let server = RequestForwarder::new(credentials, &tasks).unwrap();
    let counts = Arc::new(UpgradeCounts::default());
    let proxy = FakeHttpsServer::start(proxy_handler(server, Arc::clone(&counts))).await;
    let text = std::fs::read_to_string(&direct).unwrap();
    let mut config: Value = serde_saphyr::from_str(&text).unwrap();
    let cluster = &mut config["clusters"][0]["cluster"];
    cluster["server"] = format!("https://{}", proxy.address).into();
    cluster["certificate-authority-data"] = STANDARD.encode(&proxy.ca_pem).into();
    let proxied = direct.with_file_name("proxied.kubeconfig");
    std::fs::write(&proxied, config.to_string()).unwrap();

    let _agent = fleet.start_agent(&proxied, &[]).await;
    let member = TunneledMember::new(&fleet);
    member.wait_until_reached().await;
    assert_eq!(counts.websockets.load(Ordering::Relaxed), 1);
    assert!(counts.others.load(Ordering::Relaxed) >= 1);

    let through = &member.admin;
    through.create_namespace(NS).await;
    // More than one message each way.
    through
        .create(config_map(NS, "large", &"x".repeat(900_000)))
        .await;
    let lists = (0..20).map(|_| list_config_maps(&through.api));
    let lists = futures_util::future::join_all(lists).await;
    assert!(lists.into_iter().all(|count| count.unwrap() == 1));
    drop(watch(&member, "large").await);
    through.create(deployment(NS, "web", 1)).await;
    let ready = |d: &Value| d["status"]["readyReplicas"] == 1;
    through
        .wait_until(&DEPLOYMENTS, NS, "web", "ready", ready)
        .await;
    let pods = through.list(&PODS, NS).await;
    let pod = pods[0]["metadata"]["name"].as_str().unwrap();
    let line = format!("-n {NS} exec {pod} -- say this and that");
    assert_eq!(member.kubectl(&kubectl, &line).await, "say this and that\n");
    tasks.stop().await;
}
