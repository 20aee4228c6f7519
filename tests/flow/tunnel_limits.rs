//! Many requests in the tunnel of an agent, and clients that do not read their answers.

use bytes::Bytes;
use client::{Error, ResourcePath, WatchOptions};
use futures_util::future::join_all;
use harness::http_client::{
    HttpTestClient, HttpTestRequest, cluster_proxy_path, collect_response, within_timeout,
};
use http::Method;

use crate::flow::agent_tunnels::TunneledMember;
use crate::flow::fleet::wait_until;
use crate::flow::objects::{NAMESPACES, config_map};
use crate::flow::pull_members::{NAME, PullFixture};

const NS: &str = "limits";
const TUNNEL_REQUESTS: usize = 256;
/// Together they exceed all buffers between the member and a client.
const LARGE_MAPS: usize = 24;
const LARGE_MAP_BYTES: usize = 900_000;
const STALLED_CLIENTS: usize = 8;

/// A client of the control plane as its administrator.
fn admin(fleet: &PullFixture) -> HttpTestClient {
    let read = |name: &str| std::fs::read(fleet.up.dir().join("pki").join(name)).unwrap();
    let (certificate, key) = (read("admin.crt"), read("admin.key"));
    let identity = Some((&*certificate, &*key));
    HttpTestClient::new(fleet.up.address(), "127.0.0.1", &read("ca.crt"), identity)
}

async fn read_namespace(member: &TunneledMember) -> Option<Error> {
    let at = ResourcePath::object(&NAMESPACES, "", "default");
    member.admin.api.get(at).await.err()
}

// proves: TUN-limit, TUN-stalled
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_tunnel_refuses_requests_and_stalled_clients_delay_no_others() {
    let fleet = PullFixture::start().await;
    fleet.register().await;
    let config = fleet.agent_kubeconfig().await;
    let _agent = fleet.start_agent(&config, &[]).await;
    let member = TunneledMember::new(&fleet);
    member.wait_until_reached().await;
    fleet.member.create_namespace(NS).await;

    let text = "x".repeat(LARGE_MAP_BYTES);
    for n in 0..LARGE_MAPS {
        let map = config_map(NS, &format!("large-{n}"), &text);
        fleet.member.create(map).await;
    }
    let client = admin(&fleet);
    let path = cluster_proxy_path(NAME, &format!("/api/v1/namespaces/{NS}/configmaps"));
    let list = || client.send(HttpTestRequest::new(Method::GET, &path));
    let stalled = join_all((0..STALLED_CLIENTS).map(|_| list())).await;
    for _ in 0..20 {
        let read = within_timeout("an answer beside stalled clients", read_namespace(&member));
        assert_eq!(read.await.map(|error| error.to_string()), None);
    }
    let answered = within_timeout("the rest", collect_response(list().await)).await;
    assert_eq!(answered.code, 200, "{:?}", answered.body);
    let bytes = answered.body.len();
    assert!(bytes > LARGE_MAPS * LARGE_MAP_BYTES, "{bytes}");
    // A client that begins to read gets all of its answer.
    let mut bodies: Vec<Bytes> = Vec::new();
    for response in stalled {
        assert_eq!(response.status(), 200);
        bodies.push(
            within_timeout("a late reader", collect_response(response))
                .await
                .body,
        );
    }
    assert!(bodies.iter().all(|body| *body == answered.body));

    let at = ResourcePath::collection(&NAMESPACES, "");
    let options = WatchOptions::default();
    let watch = || member.admin.api.watch(at, &options);
    let opened = join_all((0..TUNNEL_REQUESTS).map(|_| watch())).await;
    let watches: Vec<_> = opened.into_iter().map(Result::unwrap).collect();
    wait_until(
        "the refusal of one more request",
        async || matches!(read_namespace(&member).await, Some(Error::Status(s)) if s.code == 429),
    )
    .await;
    drop(watches);
    member.wait_until_reached().await;
}
