//! Graceful shutdown: /readyz fails first, then requests and watches end without an error.

use std::time::{Duration, Instant};

use client::{Error, ResourcePath, WatchEvent, WatchOptions};
use futures_util::StreamExt;
use harness::ApiServerClient;
use harness::objects::{CONFIG_MAPS, config_map};

use crate::replicas::flotilla_process::FlotillaProcess;

const NS: &str = "default";
const READYZ_TIMEOUT: Duration = Duration::from_secs(90);

async fn wait_until_not_ready(server: &ApiServerClient) {
    let end = Instant::now() + READYZ_TIMEOUT;
    loop {
        match server.api.get_raw("/readyz").await {
            Ok(_) => assert!(Instant::now() < end, "readyz stays ok"),
            Err(Error::Status(status)) if status.code == 500 => return,
            Err(error) => panic!("readyz: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn readiness_fails_first_then_requests_and_watches_end_without_an_error() {
    let mut node = FlotillaProcess::serve(&["--shutdown-delay-duration=10s"]);
    let server = node.connect("control plane");
    let options = WatchOptions::default();
    let at = ResourcePath::collection(&CONFIG_MAPS, NS);
    let mut watch = server.api.watch(at, &options).await.unwrap();
    node.signal("-TERM");
    wait_until_not_ready(&server).await;
    server.api.get_raw("/livez").await.unwrap();
    server.create(config_map(NS, "late", "1")).await;
    let mut received = false;
    while let Some(event) = watch.next().await {
        match event {
            Ok(WatchEvent::Added(object)) => received |= object.name() == "late",
            Ok(_) => {}
            Err(error) => panic!("the watch does not end cleanly: {error}"),
        }
    }
    assert!(received, "the watch has no event of an acknowledged write");
    node.wait_for_exit().await;
}
