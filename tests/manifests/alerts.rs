//! The alerting rules, tested with `promtool`: they are well formed, and each alert fires on its
//! series and not before.

use std::collections::BTreeSet;
use std::process::Command;

use harness::tools;
use serde_json::{Value, json};

use crate::manifests::prometheus_rules;

/// An alert, input series, and the time when it must fire.
struct AlertCase {
    alert: &'static str,
    /// Series with their values in promtool's notation, one value per minute.
    series: &'static [(&'static str, &'static str)],
    at: &'static str,
    /// Labels of the alert besides its severity.
    labels: &'static [(&'static str, &'static str)],
    severity: &'static str,
}

const fn case(
    alert: &'static str,
    series: &'static [(&'static str, &'static str)],
    at: &'static str,
    labels: &'static [(&'static str, &'static str)],
    severity: &'static str,
) -> AlertCase {
    AlertCase {
        alert,
        series,
        at,
        labels,
        severity,
    }
}

const WARNING: &str = "warning";
const CRITICAL: &str = "critical";
const JOB: (&str, &str) = ("job", "flotilla");
const M1: (&str, &str) = ("member_cluster", "m1");

#[rustfmt::skip]
const CASES: &[AlertCase] = &[
    case("FlotillaDown", &[("up{job='flotilla',instance='a'}", "0x10")], "5m", &[], CRITICAL),
    case("FlotillaReplicaDown", &[("up{job='flotilla',instance='a'}", "0x10"), ("up{job='flotilla',instance='b'}", "1x10")], "8m", &[JOB, ("instance", "a")], WARNING),
    case("FlotillaNoLeader", &[("leader_election_master_status{job='flotilla',name='flotilla',instance='a'}", "0x10")], "5m", &[], CRITICAL),
    case("FlotillaErrorBudgetBurn", &[("apiserver_request_total{job='flotilla',code='500',verb='GET'}", "0+30x90"), ("apiserver_request_total{job='flotilla',code='200',verb='GET'}", "0+70x90")], "10m", &[], CRITICAL),
    case("FlotillaRequestsSlow", &[("apiserver_request_sli_duration_seconds_bucket{job='flotilla',verb='PUT',le='1'}", "0+0x30"), ("apiserver_request_sli_duration_seconds_bucket{job='flotilla',verb='PUT',le='2'}", "0+60x30"), ("apiserver_request_sli_duration_seconds_bucket{job='flotilla',verb='PUT',le='+Inf'}", "0+60x30")], "20m", &[("verb", "PUT")], WARNING),
    case("FlotillaRequestsTerminated", &[("apiserver_request_terminations_total{job='flotilla',code='429'}", "0+30x30"), ("apiserver_request_total{job='flotilla',code='429'}", "0+60x30")], "20m", &[], WARNING),
    case("FlotillaRequestPanics", &[("apiserver_request_aborts_total{job='flotilla',instance='a'}", "0x5 1x5")], "8m", &[JOB, ("instance", "a")], WARNING),
    case("FlotillaHealthcheckFailing", &[("kubernetes_healthcheck{job='flotilla',type='readyz',name='etcd',instance='a'}", "0x20")], "10m", &[("instance", "a"), ("name", "etcd")], WARNING),
    case("FlotillaClientCertificateExpiration", &[("apiserver_client_certificate_expiration_seconds_count{job='flotilla'}", "0+10x30"), ("apiserver_client_certificate_expiration_seconds_bucket{job='flotilla',le='86400'}", "0+10x30"), ("apiserver_client_certificate_expiration_seconds_bucket{job='flotilla',le='+Inf'}", "0+10x30")], "20m", &[JOB], WARNING),
    case("FlotillaCertificateExpiration", &[("flotilla_certificate_expiration_timestamp_seconds{job='flotilla',certificate='serving'}", "2592000x30")], "20m", &[("certificate", "serving")], WARNING),
    case("FlotillaClusterCredentialExpiration", &[("flotilla_cluster_credential_expiration_timestamp_seconds{job='flotilla',member_cluster='m1',credential='a/m1/token'}", "2592000x30")], "20m", &[M1, ("credential", "a/m1/token")], WARNING),
    case("FlotillaVersionMismatch", &[("kubernetes_build_info{job='flotilla',git_version='a'}", "1x90"), ("kubernetes_build_info{job='flotilla',git_version='b'}", "1x90")], "80m", &[], WARNING),
    case("FlotillaMemoryHigh", &[("process_resident_memory_bytes{job='flotilla',instance='a'}", "900000000x30")], "20m", &[JOB, ("instance", "a")], WARNING),
    case("FlotillaStoreSlow", &[("etcd_request_duration_seconds_bucket{job='flotilla',operation='update',le='0.6'}", "0+0x30"), ("etcd_request_duration_seconds_bucket{job='flotilla',operation='update',le='1'}", "0+60x30"), ("etcd_request_duration_seconds_bucket{job='flotilla',operation='update',le='+Inf'}", "0+60x30")], "20m", &[("operation", "update")], WARNING),
    case("FlotillaStoreErrors", &[("etcd_request_errors_total{job='flotilla',operation='create'}", "0+1x30")], "15m", &[("operation", "create")], CRITICAL),
    case("FlotillaStoreLarge", &[("apiserver_storage_size_bytes{job='flotilla'}", "7000000000x30")], "20m", &[], WARNING),
    case("FlotillaWatchersTerminated", &[("apiserver_terminated_watchers_total{job='flotilla',group='apps',resource='deployments'}", "0+120x30")], "20m", &[("group", "apps"), ("resource", "deployments")], WARNING),
    case("FlotillaClusterNotReady", &[("cluster_ready_state{job='flotilla',member_cluster='m1'}", "0x20")], "10m", &[M1], CRITICAL),
    case("FlotillaClusterNodesNotReady", &[("cluster_ready_node_number{job='flotilla',member_cluster='m1'}", "1x30"), ("cluster_node_number{job='flotilla',member_cluster='m1'}", "2x30")], "20m", &[M1], WARNING),
    case("FlotillaClusterCallsFail", &[("flotilla_member_request_errors_total{job='flotilla',member_cluster='m1',reason='transport'}", "0+60x30")], "20m", &[M1, ("reason", "transport")], WARNING),
    case("FlotillaClusterSlow", &[("flotilla_member_requests_in_flight{job='flotilla',member_cluster='m1'}", "2x30"), ("flotilla_member_requests_limit{job='flotilla',member_cluster='m1'}", "2x30")], "15m", &[M1], WARNING),
    case("FlotillaAgentTunnelDown", &[("flotilla_agent_tunnels{job='flotilla',instance='a',member_cluster='m1'}", "0x20"), ("flotilla_agent_tunnels{job='flotilla',instance='b',member_cluster='m1'}", "1x20")], "10m", &[M1], WARNING),
    case("FlotillaAgentTunnelsUnstable", &[("flotilla_agent_tunnels_opened_total{job='flotilla',member_cluster='m1'}", "0+6x30")], "25m", &[M1], WARNING),
    case("FlotillaAgentTunnelRefused", &[("flotilla_agent_tunnels_refused_total{job='flotilla',member_cluster='m1'}", "0+6x30")], "25m", &[M1], CRITICAL),
    case("FlotillaPropagationSlow", &[("flotilla_propagation_lag_seconds_bucket{job='flotilla',stage='applied',le='10'}", "0+0x30"), ("flotilla_propagation_lag_seconds_bucket{job='flotilla',stage='applied',le='60'}", "0+60x30"), ("flotilla_propagation_lag_seconds_bucket{job='flotilla',stage='applied',le='+Inf'}", "0+60x30")], "20m", &[("stage", "applied")], WARNING),
    case("FlotillaReconcileErrors", &[("controller_runtime_reconcile_total{job='flotilla',controller='execution',result='error'}", "0+60x60"), ("controller_runtime_reconcile_total{job='flotilla',controller='execution',result='success'}", "0+1x60")], "30m", &[("controller", "execution")], WARNING),
    case("FlotillaQueueDeep", &[("workqueue_depth{job='flotilla',name='execution'}", "2000x30")], "20m", &[("name", "execution")], WARNING),
    case("FlotillaBindingsUnschedulable", &[("scheduler_pending_bindings{job='flotilla',queue='unschedulable'}", "3x60")], "40m", &[], WARNING),
    case("FlotillaSchedulingErrors", &[("karmada_scheduler_schedule_attempts_total{job='flotilla',result='error'}", "0+60x60"), ("karmada_scheduler_schedule_attempts_total{job='flotilla',result='scheduled'}", "0+1x60")], "30m", &[], WARNING),
    case("FlotillaApplyErrors", &[("create_resource_to_cluster{job='flotilla',result='error',member_cluster='m1'}", "0+1x60")], "30m", &[M1], WARNING),
    case("FlotillaRolloutStuck", &[("flotilla_rollout_stage_stuck_seconds{job='flotilla'}", "3000+60x30")], "20m", &[], WARNING),
    case("FlotillaRolloutFailureBudgetExceeded", &[("flotilla_rollout_failure_budget_used_ratio{job='flotilla'}", "1x20")], "10m", &[], WARNING),
    case("FlotillaDriftRepairsHigh", &[("flotilla_drift_repairs_total{job='flotilla',kind='Deployment',member_cluster='m1'}", "0+6x40")], "30m", &[M1], WARNING),
    case("FlotillaAutoscalerErrors", &[("horizontal_pod_autoscaler_controller_reconciliations_total{job='flotilla',action='none',error='internal'}", "0+60x60"), ("horizontal_pod_autoscaler_controller_reconciliations_total{job='flotilla',action='none',error='none'}", "0+1x60")], "30m", &[], WARNING),
    case("FlotillaAutoscalerMetricsMissing", &[("horizontal_pod_autoscaler_controller_metric_computation_total{job='flotilla',action='none',error='internal',metric_type='Pods'}", "0+60x60"), ("horizontal_pod_autoscaler_controller_metric_computation_total{job='flotilla',action='none',error='none',metric_type='Resource'}", "0+60x60")], "30m", &[("metric_type", "Pods")], WARNING),
    case("FlotillaAutoscalerSlow", &[("federatedhpa_pull_metrics_duration_seconds_bucket{job='flotilla',result='success',metricType='ResourceMetric',le='2.56'}", "0+0x30"), ("federatedhpa_pull_metrics_duration_seconds_bucket{job='flotilla',result='success',metricType='ResourceMetric',le='5.12'}", "0+60x30"), ("federatedhpa_pull_metrics_duration_seconds_bucket{job='flotilla',result='success',metricType='ResourceMetric',le='+Inf'}", "0+60x30")], "20m", &[("metricType", "ResourceMetric")], WARNING),
    case("FlotillaScheduledScalingErrors", &[("cronfederatedhpa_rule_process_duration_seconds_count{job='flotilla',result='error'}", "0x5 1x10")], "10m", &[], WARNING),
    case("FlotillaEndpointsSlow", &[("flotilla_propagation_lag_seconds_bucket{job='flotilla',stage='endpoints_dispatched',le='2.5'}", "0+0x30"), ("flotilla_propagation_lag_seconds_bucket{job='flotilla',stage='endpoints_dispatched',le='10'}", "0+60x30"), ("flotilla_propagation_lag_seconds_bucket{job='flotilla',stage='endpoints_dispatched',le='+Inf'}", "0+60x30")], "20m", &[("stage", "endpoints_dispatched")], WARNING),
    case("FlotillaSearchIncomplete", &[("flotilla_search_caches{job='flotilla',member_cluster='m1',state='unreachable'}", "2x20"), ("flotilla_search_caches{job='flotilla',member_cluster='m2',state='unreachable'}", "0x20")], "15m", &[M1], WARNING),
    case("FlotillaSearchBackendUnavailable", &[("flotilla_search_backend_available{job='flotilla',backend='o:9200'}", "0x20")], "10m", &[("backend", "o:9200")], WARNING),
    case("FlotillaSearchBackendBehind", &[("flotilla_search_backend_pending_documents{job='flotilla',backend='o:9200'}", "20000x30")], "20m", &[("backend", "o:9200")], WARNING),
    case("FlotillaSearchBackendRejects", &[("flotilla_search_backend_documents_total{job='flotilla',backend='o:9200',result='rejected'}", "0+1x60")], "30m", &[("backend", "o:9200")], WARNING),
];

/// Whether an alert has a summary and a description.
fn has_annotations(alert: &Value) -> bool {
    let all = alert["annotations"].as_object();
    ["summary", "description"].iter().all(|name| {
        all.is_some_and(|a| {
            a.get(*name)
                .is_some_and(|t| !t.as_str().unwrap().is_empty())
        })
    })
}

pub(crate) fn alerts() -> Vec<Value> {
    let rules = prometheus_rules();
    let groups = rules["groups"].as_array().unwrap().iter();
    let all = groups.flat_map(|g| g["rules"].as_array().unwrap().clone());
    all.filter(|r| r["alert"].is_string()).collect()
}

#[test]
fn every_alert_fires_on_its_series() {
    let Some([promtool]) = tools(["promtool"]) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let mut plain = prometheus_rules();
    let groups = plain["groups"].as_array_mut().unwrap().iter_mut();
    for rule in groups.flat_map(|g| g["rules"].as_array_mut().unwrap()) {
        rule.as_object_mut().unwrap().remove("annotations");
    }
    std::fs::write(dir.path().join("rules.yaml"), plain.to_string()).unwrap();
    let tests: Vec<Value> = CASES.iter().map(promtool_test).collect();
    let file = json!({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests});
    let tests = dir.path().join("tests.yaml");
    std::fs::write(&tests, file.to_string()).unwrap();
    let run = |arguments: &[&str]| {
        let out = harness::process::run(Command::new(&promtool).args(arguments));
        let output = [out.stdout, out.stderr].concat();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&output));
    };
    let rules = dir.path().join("rules.yaml").display().to_string();
    run(&["check", "rules", &rules]);
    run(&["test", "rules", &tests.display().to_string()]);
}

/// The unit test of promtool for a case: the alert does not fire at the start, and fires at the
/// case's time.
fn promtool_test(case: &AlertCase) -> Value {
    let quoted = |text: &str| text.replace('\'', "\"");
    let series: Vec<Value> = case
        .series
        .iter()
        .map(|(series, values)| json!({"series": quoted(series), "values": values}))
        .collect();
    let mut labels = json!({"severity": case.severity});
    for (name, value) in case.labels {
        labels[*name] = json!(value);
    }
    json!({
        "interval": "1m",
        "name": case.alert,
        "input_series": series,
        "alert_rule_test": [
            {"eval_time": "0m", "alertname": case.alert, "exp_alerts": []},
            {"eval_time": case.at, "alertname": case.alert, "exp_alerts": [{"exp_labels": labels}]},
        ],
    })
}

#[test]
fn every_alert_has_annotations_and_a_case() {
    let cases: BTreeSet<&str> = CASES.iter().map(|c| c.alert).collect();
    for alert in alerts() {
        let name = alert["alert"].as_str().unwrap();
        assert!(cases.contains(name), "no case for {name}");
        assert!(
            has_annotations(&alert),
            "{name} has no summary or description"
        );
        let severity = alert["labels"]["severity"].as_str();
        assert!(matches!(severity, Some("warning" | "critical")), "{name}");
    }
    // In aggregated mode the rules must not select series of the kube-apiserver.
    assert!(!prometheus_rules().to_string().contains("kube-apiserver"));
}
