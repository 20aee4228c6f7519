//! The number of metric series depends on the served resources, not on the requests.

use std::collections::BTreeSet;

use http::Method;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{TestHttpClient, start_server};

/// A random method and a path of known and unknown segments, so that every branch of
/// routing is reached.
fn random_request(rng: &mut StdRng, names: &mut StdRng) -> (Method, String) {
    let methods = [
        Method::GET,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
    ];
    let segments = [
        "api",
        "apis",
        "v1",
        "apps",
        "namespaces",
        "default",
        "pods",
        "deployments",
        "status",
        "log",
        "healthz",
        "metrics",
        "openapi",
    ];
    let length = rng.random_range(1..9);
    let path = (0..length)
        .map(|_| match rng.random_range(0..3) {
            0 => format!("/x{}", names.random_range(0..1_000_000_u32)),
            _ => format!("/{}", segments[rng.random_range(0..segments.len())]),
        })
        .collect();
    (methods[rng.random_range(0..methods.len())].clone(), path)
}

#[tokio::test]
async fn requests_cannot_grow_metric_series() {
    let running = start_server().await;
    let mut admin = running.admin().await;
    let series = async |admin: &mut TestHttpClient| {
        let reply = admin.get("/metrics").await;
        let text = String::from_utf8(reply.body.to_vec()).unwrap();
        let requests = text.lines().filter(|l| l.starts_with("apiserver_request_"));
        requests
            .map(|l| l.split(' ').next().unwrap().to_owned())
            .collect::<BTreeSet<_>>()
    };
    // The same requests three times, apart from the unknown segments. The first round
    // may still delete something.
    let mut names = StdRng::seed_from_u64(1);
    let mut snapshots = Vec::new();
    for _ in 0..3 {
        let mut rng = StdRng::seed_from_u64(7);
        for _ in 0..3_400 {
            let (method, path) = random_request(&mut rng, &mut names);
            let json = [("content-type", "application/json")];
            admin.call(method, &path, &json, "{}").await;
        }
        snapshots.push(series(&mut admin).await);
    }
    assert_eq!(snapshots[1], snapshots[2]);
    assert!(!snapshots[2].iter().any(|s| s.contains("\"x")));
}
