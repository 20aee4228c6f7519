//! Tests of the connection to clusters on the pages, of their places, and of what the server's metrics
//! say.

use std::sync::Arc;

use client::Error;
use client_fake::FakeApi;
use karmada_api::resources::CLUSTERS;
use machinery::{Gvr, Status};
use serde_json::{Value, json};

use super::fixture::{ConsoleFixture, api, cluster};
use crate::metrics_history::SAMPLE_INTERVAL;

static LEASES: Gvr = Gvr::from_static("coordination.k8s.io", "v1", "leases");
const SINCE: &str = "2026-01-01T00:00:00Z";

fn condition(kind: &str, status: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "message": message, "lastTransitionTime": SINCE})
}

/// A cluster in pull mode whose agent reports a condition.
fn pull_cluster(name: &str, reported: &Value) -> Value {
    let mut cluster = cluster(name, "True", "");
    cluster["spec"]["syncMode"] = json!("Pull");
    let conditions = cluster["status"]["conditions"].as_array_mut().unwrap();
    conditions.push(reported.clone());
    cluster
}

fn connected_fleet() -> Arc<FakeApi> {
    let api = api();
    api.seed(&CLUSTERS, cluster("east", "True", ""));
    let open = condition("AgentTunnel", "True", "to 2 replicas");
    api.seed(&CLUSTERS, pull_cluster("edge", &open));
    let lost = condition("AgentTunnel", "False", "no <route>");
    api.seed(&CLUSTERS, pull_cluster("lost", &lost));
    let ending = condition("AgentCertificateValid", "False", "it ends <soon>");
    api.seed(&CLUSTERS, pull_cluster("mute", &ending));
    let lease = json!({"metadata": {"name": "edge", "namespace": "karmada-cluster"},
        "spec": {"renewTime": "2026-01-02T00:00:00.000000Z"}});
    api.seed(&LEASES, lease);
    api.set_raw_body(
        "/metrics",
        "karmada_scheduler_schedule_attempts_total{result=\"scheduled\"} 1\n\
         flotilla_cluster_credential_expiration_timestamp_seconds{member_cluster=\"east\",credential=\"s/token\"} 7226582400\n",
    );
    api
}

// proves: CON-connection, CON-escape
#[tokio::test]
async fn clusters_say_whether_they_are_connected_and_until_when() {
    let fixture = ConsoleFixture::start(connected_fleet()).await;
    fixture
        .wait_until(|console| console.metrics.count() > 0)
        .await;
    let cookie = fixture.login().await;
    for (name, texts, absent) in [
        (
            "east",
            vec!["not needed", "title=\"2199-01-01T00:00:00Z\">2199-01-01<"],
            "Heartbeat",
        ),
        (
            "edge",
            vec![
                ">Connected</span>",
                "title=\"to 2 replicas\">since 2026-01-01T00:00:00Z",
                "<dt>Heartbeat</dt><dd>2026-01-02T00:00:00Z</dd>",
                "<dt>Expiry</dt><dd><span class=\"muted\">unknown",
            ],
            "Not connected",
        ),
        (
            "lost",
            vec![">Not connected</span>", "no &lt;route&gt;"],
            ">Connected",
        ),
        (
            "mute",
            vec![
                "<dt>Tunnel</dt><dd><span class=\"muted\">unknown",
                "<dt>Heartbeat</dt><dd>unknown</dd>",
                "it ends &lt;soon&gt;",
            ],
            "onnected",
        ),
    ] {
        let page = fixture.get(&format!("/clusters/{name}"), &cookie).await;
        for text in texts {
            assert!(page.text.contains(text), "{name}: {text} in {}", page.text);
        }
        assert!(
            !page.text.contains(absent),
            "{name}: {absent} in {}",
            page.text
        );
    }
    for path in ["/", "/?view=table"] {
        let page = fixture.get(path, &cookie).await;
        assert!(page.text.contains(">2199-01-01<"), "{}", page.text);
        assert_eq!(
            page.text.matches(">Not connected<").count(),
            1,
            "{}",
            page.text
        );
    }
}

// proves: CON-connection, CON-rights, CON-plots
#[tokio::test]
async fn what_the_user_may_not_read_about_connections_is_unknown() {
    let api = connected_fleet();
    api.on_call(|call| {
        let is_refused = call.resource == Some(&LEASES) || call.verb == "raw";
        is_refused.then(|| Error::from(Status::failure(403, "Forbidden", "no <metrics>")))
    });
    let fixture = ConsoleFixture::start(api).await;
    fixture
        .wait_until(|console| console.metrics.count() > 0)
        .await;
    let cookie = fixture.login().await;
    let page = fixture.get("/clusters/edge", &cookie).await;
    let text = "<dt>Heartbeat</dt><dd>unknown</dd>";
    assert!(page.text.contains(text), "{}", page.text);
    let page = fixture.get("/clusters/east", &cookie).await;
    assert!(!page.text.contains("2199"), "{}", page.text);
    let page = fixture.get("/activity", &cookie).await;
    for text in [
        "The metrics cannot be read",
        "no &lt;metrics&gt;",
        "Nothing is sampled yet",
    ] {
        assert!(page.text.contains(text), "{text} in {}", page.text);
    }
}

// proves: CON-plots
#[tokio::test(start_paused = true)]
async fn the_last_hour_is_plotted_from_the_metrics() {
    let fixture = ConsoleFixture::start(connected_fleet()).await;
    tokio::time::sleep(SAMPLE_INTERVAL * 3).await;
    fixture
        .wait_until(|console| console.metrics.count() > 2)
        .await;
    let page = fixture.page("/activity").await;
    for text in [
        "<title id=\"placements-title\">Placements</title>",
        "<desc id=\"queues-text\">From 0 to 0 s in the last hour</desc>",
        "aria-labelledby=\"repairs-title repairs-text\"",
        "<polyline class=\"line\"",
    ] {
        assert!(page.text.contains(text), "{text} in {}", page.text);
    }
}

// proves: CON-map, CON-escape
#[tokio::test]
async fn clusters_are_shown_by_region_and_provider() {
    let api = api();
    for (name, region, provider) in [
        ("a", "north", "<metal>"),
        ("b", "south", "cloud"),
        ("c", "", ""),
        ("d", "north", "<metal>"),
    ] {
        let mut cluster = cluster(name, "True", "");
        cluster["spec"]["region"] = json!(region);
        cluster["spec"]["provider"] = json!(provider);
        api.seed(&CLUSTERS, cluster);
    }
    let fixture = ConsoleFixture::start(api).await;
    let page = fixture.page("/?view=map").await;
    let headings: Vec<usize> = [
        "&lt;metal&gt;</th>",
        ">cloud</th>",
        ">no provider</span></th>",
    ]
    .iter()
    .map(|text| page.text.find(text).unwrap())
    .collect();
    assert!(headings.is_sorted(), "{}", page.text);
    let cells: Vec<&str> = page.text.split("<td>").skip(1).collect();
    let names = |cell: &str| -> Vec<String> {
        let links = cell.split("/clusters/").skip(1);
        links.map(|link| link.chars().take(1).collect()).collect()
    };
    let names: Vec<Vec<String>> = cells.into_iter().map(names).collect();
    let nothing: Vec<String> = Vec::new();
    let row = |at: usize, names: &[&str]| {
        let mut row = vec![nothing.clone(); 3];
        row[at] = names.iter().map(|name| (*name).to_owned()).collect();
        row
    };
    assert_eq!(
        names,
        [row(0, &["a", "d"]), row(1, &["b"]), row(2, &["c"])].concat()
    );
}
