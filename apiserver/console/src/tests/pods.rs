//! The pods of a workload in a member, and their logs.

use std::sync::Arc;

use bytes::Bytes;
use client::Error;
use client_fake::FakeApi;
use http::header::CONTENT_TYPE;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use machinery::Status;
use serde_json::{Value, json};

use super::fixture::{ConsoleFixture, DEPLOYMENTS, deployment, fleet, request};
use super::live_pages::{live, next_event};

const WEB: &str = "/workloads/shop/web%2Ddeployment";
const PODS: &str = "/workloads/shop/web%2Ddeployment/pods/east";
const LOG: &str = "/workloads/shop/web%2Ddeployment/logs/east?pod=web%2D1&container=app";
const MEMBER_PODS: &str =
    "/apis/cluster.karmada.io/v1alpha1/clusters/east/proxy/api/v1/namespaces/shop/pods";

fn followed_path() -> String {
    format!("{MEMBER_PODS}/web-1/log?container=app&tailLines=200&follow=true")
}

/// The fleet, whose Deployment has a selector, and a member with pods.
fn fleet_with_pods(pods: &Value) -> Arc<FakeApi> {
    let api = fleet();
    let mut web = deployment("web", 3);
    web["spec"]["selector"] = json!({"matchLabels": {"app": "web"}});
    web["spec"]["template"] = json!({"spec": {"containers": []}});
    api.seed(&DEPLOYMENTS, web);
    let path = format!("{MEMBER_PODS}?limit=100&labelSelector=app%3Dweb");
    api.set_raw_body(&path, pods.to_string());
    let tail = format!("{MEMBER_PODS}/web-1/log?container=app&tailLines=200&limitBytes=262144");
    api.set_raw_body(&tail, "first <b>line</b>\nsecond\n");
    api
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"nodeName": "node-<1>",
        "containers": [{"name": "app"}, {"name": "proxy"}], "initContainers": [{"name": "setup"}]},
        "status": {"phase": "Running", "containerStatuses": [
            {"ready": true, "restartCount": 2}, {"ready": false, "restartCount": 1}]}})
}

// proves: CON-pods, CON-escape
#[tokio::test]
async fn the_tree_leads_to_the_pods_of_a_cluster() {
    let pods = json!({"items": [pod("web-1"), pod("<script>")], "metadata": {"continue": "more"}});
    let fixture = ConsoleFixture::start(fleet_with_pods(&pods)).await;
    let cookie = fixture.login().await;
    let tree = fixture.get(WEB, &cookie).await;
    let link = "href=\"/workloads/shop/web%2Ddeployment/pods/east\"";
    assert!(tree.text.contains(link), "{}", tree.text);
    let page = fixture.get(PODS, &cookie).await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.text);
    for text in [
        "<title>Pods of web in east · Flotilla</title>",
        "The first 2 pods",
        "1 of 2",
        "node-&lt;1&gt;",
        "<td data-title=\"Restarts\"><span>3</span>",
        "logs/east?pod=web%2D1&amp;container=app\"",
        "logs/east?pod=web%2D1&amp;container=setup\"",
        "&lt;script&gt;",
    ] {
        assert!(page.text.contains(text), "{text} in {}", page.text);
    }
    assert!(!page.text.contains("<script>"), "{}", page.text);
    // A member that does not answer.
    let page = fixture.get(&PODS.replace("east", "west"), &cookie).await;
    assert_eq!(page.status, StatusCode::BAD_GATEWAY, "{}", page.text);
    let page = fixture.send(request(Method::GET, PODS)).await;
    assert_eq!(page.status, StatusCode::UNAUTHORIZED);
}

// proves: CON-pods
#[tokio::test]
async fn a_workload_without_a_selector_has_no_pods() {
    let fixture = ConsoleFixture::start(fleet()).await;
    let cookie = fixture.login().await;
    let tree = fixture.get(WEB, &cookie).await;
    assert!(!tree.text.contains("/pods/"), "{}", tree.text);
    let page = fixture.get(PODS, &cookie).await;
    assert!(
        page.text.contains("have no pods of their own"),
        "{}",
        page.text
    );
}

// proves: CON-logs, CON-rights, CON-bounds
#[tokio::test]
async fn a_log_is_read_with_the_rights_of_the_user() {
    let api = fleet_with_pods(&json!({}));
    api.on_call(|call| {
        let is_refused = call.name.contains("/pods/secret-1/");
        is_refused.then(|| Error::from(Status::failure(403, "Forbidden", "no <logs>")))
    });
    let fixture = ConsoleFixture::start(api).await;
    let cookie = fixture.login().await;
    let page = fixture.get(LOG, &cookie).await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.text);
    let text = "first &lt;b&gt;line&lt;/b&gt;\nsecond\n</pre>";
    assert!(page.text.contains(text), "{}", page.text);
    for (pod, message) in [
        ("secret%2D1", "no &lt;logs&gt;"),
        ("web%2F..%2F..", "is no name"),
        ("", "is no name"),
    ] {
        let path = LOG.replace("web%2D1", pod);
        let page = fixture.get(&path, &cookie).await;
        assert_eq!(page.status, StatusCode::BAD_GATEWAY, "{}", page.text);
        assert!(page.text.contains(message), "{pod}: {}", page.text);
        let mut response = fixture.respond(live(&path, &cookie)).await;
        let event = next_event(&mut response).await;
        assert!(event.starts_with("event: end\ndata: "), "{event}");
        assert!(response.body_mut().frame().await.is_none());
    }
    let page = fixture.respond(live(LOG, "")).await;
    assert_eq!(page.status(), StatusCode::UNAUTHORIZED);
}

// proves: CON-logs
#[tokio::test(start_paused = true)]
async fn a_followed_log_arrives_as_text_and_ends_with_its_page() {
    let fixture = ConsoleFixture::start(fleet_with_pods(&json!({}))).await;
    let cookie = fixture.login().await;
    let log = fixture.streams.add(&followed_path());
    let mut response = fixture.respond(live(LOG, &cookie)).await;
    assert_eq!(response.headers()[CONTENT_TYPE], "text/event-stream");
    let policy = &response.headers()["content-security-policy"];
    assert!(policy.to_str().unwrap().starts_with("default-src 'none'"));
    assert_eq!(
        next_event(&mut response).await,
        "event: reset\ndata: open\n\n"
    );
    let send = async |text: &[u8]| log.send(Ok(Bytes::copy_from_slice(text))).await.unwrap();
    send(b"one\nevent: forged\rdata: x\n\nbroken \xff\nbeg").await;
    let event = next_event(&mut response).await;
    let expected =
        "event: log\ndata: one\ndata: event: forged data: x\ndata: \ndata: broken \u{fffd}\n\n";
    assert_eq!(event, expected);
    send(b"").await;
    send(b"inning\n").await;
    let event = next_event(&mut response).await;
    assert_eq!(event, "event: log\ndata: beginning\n\n");
    // A line without an end is broken, and the rest of it goes with the next piece.
    send("x".repeat(70 << 10).as_bytes()).await;
    let event = next_event(&mut response).await;
    assert_eq!(event.matches('x').count(), 64 << 10);
    drop(response);
    assert!(log.is_closed());

    // Without its page being closed it ends by itself.
    let log = fixture.streams.add(&followed_path());
    let mut response = fixture.respond(live(LOG, &cookie)).await;
    log.send(Ok(Bytes::from_static(b"last"))).await.unwrap();
    drop(log);
    let events = [
        next_event(&mut response).await,
        next_event(&mut response).await,
        next_event(&mut response).await,
    ];
    assert_eq!(events[1], "event: log\ndata: last\n\n");
    assert_eq!(events[2], "event: end\ndata: The log has ended\n\n");
    assert!(response.body_mut().frame().await.is_none());
}

// proves: CON-logs-bounded
#[tokio::test(start_paused = true)]
async fn a_log_without_end_is_bounded() {
    let fixture = ConsoleFixture::start(fleet_with_pods(&json!({}))).await;
    let cookie = fixture.login().await;
    let log = fixture.streams.add(&followed_path());
    let mut response = fixture.respond(live(LOG, &cookie)).await;
    let flood = tokio::spawn(async move {
        let line = format!("{}\n", "x".repeat(1023));
        let piece = Bytes::from(line.repeat(48));
        while log.send(Ok(piece.clone())).await.is_ok() {}
    });
    let began = tokio::time::Instant::now();
    let (mut bytes, mut events, mut last) = (0, 0_u32, String::new());
    while let Some(frame) = response.body_mut().frame().await {
        let frame = frame.unwrap().into_data().unwrap();
        assert!(frame.len() < 1 << 20, "{}", frame.len());
        last = String::from_utf8(frame.to_vec()).unwrap();
        bytes += last.matches('x').count();
        events += 1;
    }
    assert!(
        last.starts_with("event: end\ndata: Much is shown"),
        "{last}"
    );
    assert!((16 << 20..17 << 20).contains(&bytes), "{bytes}");
    // At most one event in 200 ms.
    assert!(began.elapsed().as_millis() >= u128::from(events - 3) * 200);
    flood.await.unwrap();
}
