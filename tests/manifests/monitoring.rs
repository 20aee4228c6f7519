//! The rules and dashboards in a real Prometheus that scrapes a server under load: every rule is
//! evaluated without an error, and every panel has data.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use harness::daemon::TestDir;
use harness::process::run_with_input;
use harness::{ApiServerClient, ServerProcess, tools};
use serde_json::Value;

use crate::manifests::prometheus::{Prometheus, ScrapeTarget, is_number};
use crate::manifests::{BINARY, load, manifest_path, prometheus_rules};

const DASHBOARDS: [&str; 3] = [
    "flotilla-fleet",
    "flotilla-apiserver",
    "flotilla-autoscaling-and-services",
];
/// The values of the variables that Grafana fills in.
const DASHBOARD_VARIABLES: [(&str, &str); 5] = [
    ("$__rate_interval", "20s"),
    ("$job", "flotilla"),
    ("$cluster", ".*"),
    ("$instance", ".*"),
    ("${datasource}", "prometheus"),
];
const DATA_TIMEOUT: Duration = Duration::from_secs(90);

/// The expressions of the panels of a dashboard, by title.
fn panels(name: &str) -> BTreeMap<String, Vec<String>> {
    let path = manifest_path(&format!("monitoring/dashboards/{name}.json"));
    let dashboard: Value = machinery::json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let all = dashboard["panels"].as_array().unwrap().iter();
    let data_panels: Vec<&Value> = all.filter(|p| p["type"] != "row").collect();
    let panels: BTreeMap<String, Vec<String>> = data_panels
        .iter()
        .map(|panel| {
            let targets = panel["targets"].as_array().unwrap().iter();
            let expressions = targets
                .map(|t| fill_variables(t["expr"].as_str().unwrap()))
                .collect();
            (panel["title"].as_str().unwrap().to_owned(), expressions)
        })
        .collect();
    assert_eq!(
        panels.len(),
        data_panels.len(),
        "{name}: a title is used twice"
    );
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        if let Some(query) = variable["query"]["query"].as_str() {
            assert!(query.starts_with("label_values("), "{query}");
        }
    }
    panels
}

fn fill_variables(expression: &str) -> String {
    let filled = DASHBOARD_VARIABLES
        .iter()
        .fold(expression.to_owned(), |text, (name, value)| {
            text.replace(name, value)
        });
    assert!(!filled.contains('$'), "a variable is left in {filled}");
    filled
}

// proves: MET-autoscalers, MET-search
#[tokio::test(flavor = "multi_thread")]
async fn every_rule_and_panel_has_data_under_load() {
    let Some([prometheus, promtool]) = tools(["prometheus", "promtool"]) else {
        return;
    };
    let dir = TestDir::new();
    let data = dir.path().join("fleet");
    let arguments = [
        "up",
        "--members",
        "2",
        "--listen",
        "127.0.0.1:0",
        "--dir",
        &data.display().to_string(),
        "--feature-gates",
        "MultiClusterService=true",
    ];
    let (_fleet, address) = ServerProcess::start(BINARY, &arguments, &dir.path().join("fleet.log"));
    let control = ApiServerClient::connect("control plane", &data.join("kubeconfig"));
    let target = ScrapeTarget {
        address: &address,
        pki: data.join("pki"),
    };
    let prometheus = Prometheus::start(&prometheus, dir.path(), &target, &prometheus_rules());
    load::create_objects(&control).await;
    load::create_autoscalers_services_and_registries(&control).await;
    let watching = load::spawn_watch(&control);

    // Expressions without data yet, with their panels. Under load each must have data once.
    let mut missing: Vec<(String, String)> = Vec::new();
    for name in DASHBOARDS {
        for (title, expressions) in panels(name) {
            let expressions = expressions.into_iter();
            missing.extend(expressions.map(|e| (format!("{name}: {title}"), e)));
        }
    }
    let recorded = prometheus_rules();
    let groups = recorded["groups"].as_array().unwrap().iter();
    let records = groups.flat_map(|g| g["rules"].as_array().unwrap());
    let records = records.filter_map(|r| r["record"].as_str());
    missing.extend(records.map(|r| ("recorded".to_owned(), r.to_owned())));

    let end = Instant::now() + DATA_TIMEOUT;
    let mut n = 0;
    while !missing.is_empty() {
        assert!(Instant::now() < end, "no data for {missing:#?}");
        n += 1;
        load::run_round(&control, n).await;
        load::send_unauthenticated_requests(&data.join("kubeconfig"), dir.path()).await;
        // A rate needs two samples.
        if n % 5 == 0 {
            let mut left = Vec::new();
            for (what, expression) in missing {
                let values = prometheus.query(&expression).await;
                let values = values.unwrap_or_else(|error| panic!("{what}: {expression}: {error}"));
                if !values.iter().any(is_number) {
                    left.push((what, expression));
                }
            }
            missing = left;
        }
    }
    watching.abort();
    assert_rules_healthy(&prometheus).await;
    assert_metrics_well_formed(&control, &promtool).await;
}

/// Asserts by the API of Prometheus that no rule has failed and no alert fires.
async fn assert_rules_healthy(prometheus: &Prometheus) {
    let rules = prometheus.get_api("rules", &[]).await.unwrap();
    let groups = rules["groups"].as_array().unwrap().iter();
    let all: Vec<&Value> = groups
        .flat_map(|g| g["rules"].as_array().unwrap())
        .collect();
    assert!(all.len() > 30, "{rules:#}");
    for rule in all {
        assert_eq!(rule["health"], "ok", "{rule:#}");
        assert_ne!(rule["state"], "firing", "{rule:#}");
    }
    let clusters = prometheus.wait_for_data("cluster_ready_state == 1").await;
    assert_eq!(clusters.len(), 2);
}

/// Asserts that each metric has one type, and that promtool parses all metrics.
async fn assert_metrics_well_formed(control: &ApiServerClient, promtool: &Path) {
    let text = control.api.get_raw("/metrics").await.unwrap();
    let text = String::from_utf8(text.to_vec()).unwrap();
    let mut types = BTreeMap::new();
    for line in text.lines().filter_map(|l| l.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        let previous = types.insert(name.to_owned(), kind.to_owned());
        assert_eq!(previous, None, "{name} has two types");
    }
    for (name, kind) in [
        ("apiserver_request_total", "counter"),
        ("apiserver_request_sli_duration_seconds", "histogram"),
        ("cluster_ready_state", "gauge"),
        ("create_resource_to_cluster", "counter"),
        ("flotilla_propagation_lag_seconds", "histogram"),
        ("karmada_build_info", "gauge"),
        ("karmada_scheduler_schedule_attempts_total", "counter"),
        ("process_resident_memory_bytes", "gauge"),
        ("rest_client_requests_total", "counter"),
        ("workqueue_depth", "gauge"),
    ] {
        assert_eq!(types.get(name).map(String::as_str), Some(kind), "{name}");
    }
    let mut check = Command::new(promtool);
    check.args(["check", "metrics"]);
    let out = run_with_input(&check, text.as_bytes());
    // Exit code 3: metric names that break Prometheus' conventions, as some of Karmada's do.
    let output = String::from_utf8_lossy(&out.stderr);
    assert!(matches!(out.status.code(), Some(0 | 3)), "{output}");
}
