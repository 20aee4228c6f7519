//! Measures `flotilla console` with 100,000 templates: its memory, and the time until the first row
//! and all of the first page of Workloads are there, with and without a search.
//!
//! a control plane that generates its bindings, in this process ──► `flotilla console` ──► requests over loopback

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::generated_servers::{GeneratedCollection, GeneratedServers, ObjectState};
use crate::measured_process::{MIB, MeasuredProcess, wait_until};
use crate::measurement::{MeasurementLimit, MeasurementRecorder};

const TEMPLATES: usize = 100_000;
const NAMESPACES: usize = 200;
const CLUSTERS: usize = 100;
const ROUNDS: usize = 101;
const FILL_TIMEOUT: Duration = Duration::from_secs(300);
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// How the first row of a table begins.
const FIRST_ROW: &[u8] = b"<tbody><tr>";
const HEAD_END: &[u8] = b"\r\n\r\n";

fn cluster_name(number: usize) -> String {
    format!("cluster-{:03}", number % CLUSTERS)
}

fn template_name(number: usize) -> String {
    format!("service-{number:06}")
}

/// The binding of a Deployment that is healthy in three clusters.
fn binding(state: ObjectState) -> String {
    let number = state.number;
    let (name, namespace) = (
        template_name(number),
        format!("team-{:03}", number % NAMESPACES),
    );
    let names = [0, 1, 2].map(|n| cluster_name(number + n * 7));
    let clusters = names
        .each_ref()
        .map(|name| json!({"name": name, "replicas": 2}));
    let statuses = names.each_ref().map(|name| {
        json!({"clusterName": name, "applied": true, "health": "Healthy",
            "status": {"replicas": 2, "readyReplicas": 2, "availableReplicas": 2, "updatedReplicas": 2}})
    });
    let time = "2026-01-01T00:00:00Z";
    let condition = |name: &str, reason: &str| {
        json!({"type": name, "status": "True", "reason": reason, "message": "",
            "lastTransitionTime": time})
    };
    json!({
        "metadata": {"name": format!("{name}-deployment"), "namespace": namespace,
            "uid": format!("00000000-0000-4000-8000-{number:012x}"), "generation": 2,
            "resourceVersion": state.revision.to_string(), "creationTimestamp": time,
            "annotations": {"propagationpolicy.karmada.io/name": "all",
                "propagationpolicy.karmada.io/namespace": namespace}},
        "spec": {"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": namespace,
                "name": name},
            "replicas": 6, "placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}},
            "clusters": clusters},
        "status": {"aggregatedStatus": statuses,
            "conditions": [condition("Scheduled", "Success"), condition("FullyApplied", "FullyAppliedSuccess")]},
    })
    .to_string()
}

fn cluster(state: ObjectState) -> String {
    let amounts = json!({"cpu": "64", "memory": "256Gi", "pods": "1000"});
    json!({"metadata": {"name": cluster_name(state.number),
            "resourceVersion": state.revision.to_string()},
        "spec": {"syncMode": "Push", "region": "north"},
        "status": {"kubernetesVersion": "v1.36.0", "nodeSummary": {"totalNum": 3, "readyNum": 3},
            "conditions": [{"type": "Ready", "status": "True", "reason": "ClusterReady"}],
            "resourceSummary": {"allocatable": amounts, "allocated": amounts}}})
    .to_string()
}

/// A control plane with so many templates.
fn control_plane(templates: usize) -> anyhow::Result<GeneratedServers> {
    let bindings = GeneratedCollection {
        path: "/apis/work.karmada.io/v1alpha2/resourcebindings",
        kind: "ResourceBinding",
        count: templates,
        encode: Box::new(binding),
    };
    let clusters = GeneratedCollection {
        path: "/apis/cluster.karmada.io/v1alpha1/clusters",
        kind: "Cluster",
        count: CLUSTERS,
        encode: Box::new(cluster),
    };
    GeneratedServers::start(1, vec![bindings, clusters])
}

fn kubeconfig(servers: &GeneratedServers) -> Value {
    json!({"apiVersion": "v1", "kind": "Config", "current-context": "bench",
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
        "clusters": [{"name": "bench", "cluster": {"server": servers.url(0),
            "certificate-authority-data": STANDARD.encode(servers.ca_pem())}}],
        "users": [{"name": "bench", "user": {"token": "bench"}}]})
}

/// A page, and when its pieces were there.
struct TimedPage {
    text: String,
    first_row: Option<Duration>,
    complete: Duration,
}

/// A console and a session of it.
struct ConsoleUnderTest {
    process: MeasuredProcess,
    connection: TcpStream,
    address: String,
    cookie: String,
}

impl ConsoleUnderTest {
    /// Starts a console, and waits until its pages have all templates.
    fn start(servers: &GeneratedServers, dir: &Path, templates: usize) -> anyhow::Result<Self> {
        let path = dir.join("kubeconfig");
        std::fs::write(&path, kubeconfig(servers).to_string())?;
        let (process, link) = MeasuredProcess::console(&path)?;
        let link = link.strip_prefix("http://").context("no link")?;
        let (address, login) = link.split_once('/').context("no path in the link")?;
        let connection = TcpStream::connect(address)?;
        connection.set_nodelay(true)?;
        connection.set_read_timeout(Some(READ_TIMEOUT))?;
        let mut console = Self {
            process,
            connection,
            address: address.to_owned(),
            cookie: String::new(),
        };
        let (head, _) = console.get(&format!("/{login}"))?;
        let cookie = head.split("set-cookie: ").nth(1);
        let cookie = cookie.and_then(|text| text.split(';').next());
        console.cookie = cookie.context("no cookie")?.to_owned();
        let ready = match templates {
            0 => "Nothing is propagated yet",
            _ => "100,000 workloads",
        };
        wait_until("all templates", FILL_TIMEOUT, || {
            let (_, page) = console.get("/workloads")?;
            Ok(page.text.contains(ready) && page.text.contains(&cluster_name(0)))
        })?;
        console.process.wait_until_idle(IDLE_TIMEOUT)?;
        Ok(console)
    }

    /// GET; returns the head of the response and its body.
    fn get(&mut self, path: &str) -> anyhow::Result<(String, TimedPage)> {
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: {}\r\ncookie: {}\r\n\r\n",
            self.address, self.cookie
        );
        let start = Instant::now();
        self.connection.write_all(request.as_bytes())?;
        let (mut received, mut buffer) = (Vec::new(), vec![0; 256 << 10]);
        let mut first_row = None;
        loop {
            let count = self.connection.read(&mut buffer)?;
            ensure!(count > 0, "the console closed the connection");
            received.extend_from_slice(&buffer[..count]);
            if first_row.is_none() && position(&received, FIRST_ROW).is_some() {
                first_row = Some(start.elapsed());
            }
            let Some(head_length) = position(&received, HEAD_END) else {
                continue;
            };
            let head = std::str::from_utf8(&received[..head_length])?.to_lowercase();
            let length = head.split("content-length: ").nth(1);
            let length = length.and_then(|text| text.lines().next()?.parse().ok());
            let length: usize = length.context("no content-length")?;
            let body = &received[head_length + HEAD_END.len()..];
            if body.len() >= length {
                let page = TimedPage {
                    text: String::from_utf8(body.to_vec())?,
                    first_row,
                    complete: start.elapsed(),
                };
                return Ok((head, page));
            }
        }
    }
}

fn position(bytes: &[u8], text: &[u8]) -> Option<usize> {
    bytes.windows(text.len()).position(|window| window == text)
}

pub(crate) fn run(report: &mut MeasurementRecorder) -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let empty = control_plane(0)?;
    let console = ConsoleUnderTest::start(&empty, dir.path(), 0)?;
    let before = console.process.resident_bytes()?;
    console.process.stop()?;

    let servers = control_plane(TEMPLATES)?;
    let start = Instant::now();
    let mut console = ConsoleUnderTest::start(&servers, dir.path(), TEMPLATES)?;
    let elapsed = start.elapsed().as_secs_f64();
    let none = MeasurementLimit::None;
    let setup =
        "console with 100,000 templates in three of 100 clusters each, over one without templates";
    let resident = console.process.resident_bytes()? - before;
    report.record("console_memory", resident / MIB, "MiB", none, setup);
    let setup = "until such a console has listed all of them and is idle";
    report.record("console_fill", elapsed, "s", none, setup);
    let every_page = |_| "/workloads".to_owned();
    measure_pages(report, &mut console, ("console", "all of them"), every_page)?;
    let search = |round: usize| format!("/workloads?q={}", template_name(round * 977));
    measure_pages(
        report,
        &mut console,
        ("console_search", "one that is searched by name"),
        search,
    )?;
    let search = |round: usize| format!("/workloads?q=team-{:03}+deployment", round % NAMESPACES);
    measure_pages(
        report,
        &mut console,
        ("console_search_many", "500 that two words select"),
        search,
    )?;
    console.process.stop()
}

fn measure_pages(
    report: &mut MeasurementRecorder,
    console: &mut ConsoleUnderTest,
    (name, shown): (&str, &str),
    path: impl Fn(usize) -> String,
) -> anyhow::Result<()> {
    let (mut first_rows, mut pages) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let (_, page) = console.get(&path(round))?;
        let first_row = page.first_row.context("a page without a row")?;
        first_rows.push(first_row.as_secs_f64() * 1000.0);
        pages.push(page.complete.as_secs_f64() * 1000.0);
    }
    let setup = |end: &str| {
        format!(
            "from a request for Workloads, with 100,000 templates and {shown} shown, until {end} has come over loopback, {ROUNDS} times"
        )
    };
    let limit = MeasurementLimit::Below(300.0);
    let first_row = setup("the first row");
    report.record_percentiles(
        &format!("{name}_first_row"),
        &mut first_rows,
        "ms",
        limit,
        &first_row,
    );
    let page = setup("the first page");
    report.record_percentiles(&format!("{name}_page"), &mut pages, "ms", limit, &page);
    Ok(())
}
