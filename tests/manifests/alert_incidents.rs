//! Alerts over time, evaluated by `promtool` minute by minute: an alert does not fire in calm nor
//! during a short disturbance, fires during an incident, and resolves soon after it.
//!
//! calm ──► short disturbance ──► calm ──► incident ──► calm

use std::collections::BTreeSet;
use std::process::Command;

use harness::tools;
use serde_json::{Value, json};

use crate::manifests::alerts::alerts;
use crate::manifests::prometheus_rules;

/// Minutes at which the disturbance and the incident begin.
const DISTURBANCE_MINUTE: usize = 20;
const INCIDENT_MINUTE: usize = 70;

/// A series with its values per minute in calm and during an incident.
struct AlertIncidentSeries {
    name: &'static str,
    /// The increase per minute of a counter, or the value of a gauge.
    calm: f64,
    incident: f64,
    is_counter: bool,
}

const fn counter(name: &'static str, calm: f64, trouble: f64) -> AlertIncidentSeries {
    AlertIncidentSeries {
        name,
        calm,
        incident: trouble,
        is_counter: true,
    }
}

const fn gauge(name: &'static str, calm: f64, trouble: f64) -> AlertIncidentSeries {
    AlertIncidentSeries {
        is_counter: false,
        ..counter(name, calm, trouble)
    }
}

struct AlertIncident {
    alert: &'static str,
    severity: &'static str,
    /// Labels of the alert besides its severity.
    labels: &'static [(&'static str, &'static str)],
    /// Minutes: `disturbed`, how long a disturbance lasts that must not fire the alert; `fires`,
    /// after how long an incident must have fired it; `clears`, how long after the end of the
    /// incident it must be resolved.
    disturbed: usize,
    fires: usize,
    clears: usize,
    series: &'static [AlertIncidentSeries],
}

const JOB: (&str, &str) = ("job", "flotilla");
const INSTANCE: (&str, &str) = ("instance", "a");
const M1: (&str, &str) = ("member_cluster", "m1");

macro_rules! incident {
    ($alert:ident $severity:ident $labels:expr, $disturbed:literal, $fires:literal, $clears:literal, $($series:expr),+) => {
        AlertIncident {
            alert: stringify!($alert), severity: stringify!($severity), labels: &$labels,
            disturbed: $disturbed, fires: $fires, clears: $clears, series: &[$($series),+],
        }
    };
}

#[rustfmt::skip]
const INCIDENTS: &[AlertIncident] = &[
    incident!(FlotillaDown critical [], 1, 4, 1, gauge("up{job='flotilla',instance='a'}", 1., 0.)),
    incident!(FlotillaReplicaDown warning [JOB, INSTANCE], 3, 6, 1, gauge("up{job='flotilla',instance='a'}", 1., 0.), gauge("up{job='flotilla',instance='b'}", 1., 1.)),
    incident!(FlotillaNoLeader critical [], 1, 4, 1, gauge("leader_election_master_status{job='flotilla',name='flotilla',instance='a'}", 1., 0.), gauge("leader_election_master_status{job='flotilla',name='flotilla',instance='b'}", 0., 0.)),
    incident!(FlotillaErrorBudgetBurn critical [], 1, 15, 60, counter("apiserver_request_total{job='flotilla',code='500',verb='GET'}", 0., 100.), counter("apiserver_request_total{job='flotilla',code='200',verb='GET'}", 100., 0.)),
    incident!(FlotillaRequestsSlow warning [("verb", "PUT")], 2, 18, 8, counter("apiserver_request_sli_duration_seconds_bucket{job='flotilla',verb='PUT',le='1'}", 60., 0.), counter("apiserver_request_sli_duration_seconds_bucket{job='flotilla',verb='PUT',le='2'}", 60., 60.), counter("apiserver_request_sli_duration_seconds_bucket{job='flotilla',verb='PUT',le='+Inf'}", 60., 60.)),
    incident!(FlotillaRequestsTerminated warning [], 1, 12, 12, counter("apiserver_request_terminations_total{job='flotilla',code='429'}", 0., 60.), counter("apiserver_request_total{job='flotilla',code='200'}", 60., 60.)),
    incident!(FlotillaRequestPanics warning [JOB, INSTANCE], 0, 2, 12, counter("apiserver_request_aborts_total{job='flotilla',instance='a'}", 0., 1.)),
    incident!(FlotillaHealthcheckFailing warning [INSTANCE, ("name", "etcd")], 3, 6, 1, gauge("kubernetes_healthcheck{job='flotilla',type='readyz',name='etcd',instance='a'}", 1., 0.)),
    incident!(FlotillaClientCertificateExpiration warning [JOB], 0, 12, 8, counter("apiserver_client_certificate_expiration_seconds_count{job='flotilla'}", 10., 10.), counter("apiserver_client_certificate_expiration_seconds_bucket{job='flotilla',le='86400'}", 0., 10.), counter("apiserver_client_certificate_expiration_seconds_bucket{job='flotilla',le='604800'}", 0., 10.), counter("apiserver_client_certificate_expiration_seconds_bucket{job='flotilla',le='7776000'}", 10., 10.), counter("apiserver_client_certificate_expiration_seconds_bucket{job='flotilla',le='+Inf'}", 10., 10.)),
    incident!(FlotillaCertificateExpiration warning [("certificate", "serving")], 3, 8, 1, gauge("flotilla_certificate_expiration_timestamp_seconds{job='flotilla',certificate='serving'}", 1e7, 1e6)),
    incident!(FlotillaClusterCredentialExpiration warning [M1, ("credential", "a/m1/token")], 3, 8, 1, gauge("flotilla_cluster_credential_expiration_timestamp_seconds{job='flotilla',member_cluster='m1',credential='a/m1/token'}", 1e7, 1e6)),
    incident!(FlotillaMemoryHigh warning [JOB, INSTANCE], 10, 17, 1, gauge("process_resident_memory_bytes{job='flotilla',instance='a'}", 1e8, 9e8)),
    incident!(FlotillaStoreSlow warning [("operation", "update")], 2, 18, 8, counter("etcd_request_duration_seconds_bucket{job='flotilla',operation='update',le='0.1'}", 60., 0.), counter("etcd_request_duration_seconds_bucket{job='flotilla',operation='update',le='0.6'}", 60., 0.), counter("etcd_request_duration_seconds_bucket{job='flotilla',operation='update',le='1'}", 60., 60.), counter("etcd_request_duration_seconds_bucket{job='flotilla',operation='update',le='+Inf'}", 60., 60.)),
    incident!(FlotillaStoreErrors critical [("operation", "create")], 1, 8, 8, counter("etcd_request_errors_total{job='flotilla',operation='create'}", 0., 1.)),
    incident!(FlotillaStoreLarge warning [], 10, 17, 1, gauge("apiserver_storage_size_bytes{job='flotilla'}", 1e9, 7e9)),
    incident!(FlotillaWatchersTerminated warning [("group", "apps"), ("resource", "deployments")], 1, 20, 12, counter("apiserver_terminated_watchers_total{job='flotilla',group='apps',resource='deployments'}", 0., 120.)),
    incident!(FlotillaClusterNotReady critical [M1], 3, 6, 1, gauge("cluster_ready_state{job='flotilla',member_cluster='m1'}", 1., 0.)),
    incident!(FlotillaClusterNodesNotReady warning [M1], 10, 17, 1, gauge("cluster_ready_node_number{job='flotilla',member_cluster='m1'}", 2., 1.), gauge("cluster_node_number{job='flotilla',member_cluster='m1'}", 2., 2.)),
    incident!(FlotillaClusterCallsFail warning [M1, ("reason", "transport")], 3, 14, 8, counter("flotilla_member_request_errors_total{job='flotilla',member_cluster='m1',reason='transport'}", 0., 60.)),
    incident!(FlotillaClusterSlow warning [M1], 5, 12, 1, gauge("flotilla_member_requests_in_flight{job='flotilla',member_cluster='m1'}", 1., 2.), gauge("flotilla_member_requests_limit{job='flotilla',member_cluster='m1'}", 64., 2.)),
    incident!(FlotillaAgentTunnelDown warning [M1], 3, 6, 1, gauge("flotilla_agent_tunnels{job='flotilla',instance='a',member_cluster='m1'}", 1., 0.)),
    incident!(FlotillaAgentTunnelsUnstable warning [M1], 2, 14, 12, counter("flotilla_agent_tunnels_opened_total{job='flotilla',member_cluster='m1'}", 0., 6.)),
    incident!(FlotillaAgentTunnelRefused critical [M1], 2, 14, 12, counter("flotilla_agent_tunnels_refused_total{job='flotilla',member_cluster='m1'}", 0., 6.)),
    incident!(FlotillaPropagationSlow warning [("stage", "applied")], 2, 18, 8, counter("flotilla_propagation_lag_seconds_bucket{job='flotilla',stage='applied',le='10'}", 60., 0.), counter("flotilla_propagation_lag_seconds_bucket{job='flotilla',stage='applied',le='60'}", 60., 60.), counter("flotilla_propagation_lag_seconds_bucket{job='flotilla',stage='applied',le='+Inf'}", 60., 60.)),
    incident!(FlotillaReconcileErrors warning [("controller", "execution")], 5, 24, 12, counter("controller_runtime_reconcile_total{job='flotilla',controller='execution',result='error'}", 0., 60.), counter("controller_runtime_reconcile_total{job='flotilla',controller='execution',result='success'}", 60., 0.)),
    incident!(FlotillaQueueDeep warning [("name", "execution")], 10, 17, 1, gauge("workqueue_depth{job='flotilla',name='execution'}", 3., 2000.)),
    incident!(FlotillaBindingsUnschedulable warning [], 20, 32, 1, gauge("scheduler_pending_bindings{job='flotilla',queue='unschedulable'}", 0., 3.)),
    incident!(FlotillaSchedulingErrors warning [], 5, 24, 12, counter("karmada_scheduler_schedule_attempts_total{job='flotilla',result='error'}", 0., 60.), counter("karmada_scheduler_schedule_attempts_total{job='flotilla',result='scheduled'}", 60., 0.)),
    incident!(FlotillaApplyErrors warning [M1], 1, 20, 12, counter("create_resource_to_cluster{job='flotilla',result='error',member_cluster='m1'}", 0., 1.)),
    incident!(FlotillaRolloutStuck warning [], 3, 8, 1, gauge("flotilla_rollout_stage_stuck_seconds{job='flotilla'}", 60., 4000.)),
    incident!(FlotillaRolloutFailureBudgetExceeded warning [], 1, 4, 1, gauge("flotilla_rollout_failure_budget_used_ratio{job='flotilla'}", 0.5, 1.)),
    incident!(FlotillaDriftRepairsHigh warning [M1], 1, 22, 12, counter("flotilla_drift_repairs_total{job='flotilla',kind='Deployment',member_cluster='m1'}", 0., 6.)),
    incident!(FlotillaAutoscalerErrors warning [], 5, 24, 12, counter("horizontal_pod_autoscaler_controller_reconciliations_total{job='flotilla',action='none',error='internal'}", 0., 60.), counter("horizontal_pod_autoscaler_controller_reconciliations_total{job='flotilla',action='none',error='none'}", 60., 0.)),
    incident!(FlotillaAutoscalerMetricsMissing warning [("metric_type", "Pods")], 5, 24, 12, counter("horizontal_pod_autoscaler_controller_metric_computation_total{job='flotilla',action='none',error='internal',metric_type='Pods'}", 0., 60.), counter("horizontal_pod_autoscaler_controller_metric_computation_total{job='flotilla',action='none',error='none',metric_type='Pods'}", 60., 0.)),
    incident!(FlotillaAutoscalerSlow warning [("metricType", "ResourceMetric")], 2, 18, 8, counter("federatedhpa_pull_metrics_duration_seconds_bucket{job='flotilla',result='success',metricType='ResourceMetric',le='2.56'}", 60., 0.), counter("federatedhpa_pull_metrics_duration_seconds_bucket{job='flotilla',result='success',metricType='ResourceMetric',le='5.12'}", 60., 60.), counter("federatedhpa_pull_metrics_duration_seconds_bucket{job='flotilla',result='success',metricType='ResourceMetric',le='+Inf'}", 60., 60.)),
    incident!(FlotillaScheduledScalingErrors warning [], 0, 2, 17, counter("cronfederatedhpa_rule_process_duration_seconds_count{job='flotilla',result='error'}", 0., 1.)),
    incident!(FlotillaEndpointsSlow warning [("stage", "endpoints_dispatched")], 2, 18, 8, counter("flotilla_propagation_lag_seconds_bucket{job='flotilla',stage='endpoints_dispatched',le='2.5'}", 60., 0.), counter("flotilla_propagation_lag_seconds_bucket{job='flotilla',stage='endpoints_dispatched',le='10'}", 60., 60.), counter("flotilla_propagation_lag_seconds_bucket{job='flotilla',stage='endpoints_dispatched',le='+Inf'}", 60., 60.)),
    incident!(FlotillaSearchIncomplete warning [M1], 5, 12, 1, gauge("flotilla_search_caches{job='flotilla',member_cluster='m1',state='unreachable'}", 0., 2.), gauge("flotilla_search_caches{job='flotilla',member_cluster='m1',state='ready'}", 2., 0.)),
    incident!(FlotillaSearchBackendUnavailable warning [("backend", "o:9200")], 3, 6, 1, gauge("flotilla_search_backend_available{job='flotilla',backend='o:9200'}", 1., 0.)),
    incident!(FlotillaSearchBackendBehind warning [("backend", "o:9200")], 10, 17, 1, gauge("flotilla_search_backend_pending_documents{job='flotilla',backend='o:9200'}", 3., 20000.)),
    incident!(FlotillaSearchBackendRejects warning [("backend", "o:9200")], 1, 20, 12, counter("flotilla_search_backend_documents_total{job='flotilla',backend='o:9200',result='rejected'}", 0., 1.)),
];
/// Alerts that have no incident. FlotillaVersionMismatch compares constant series: the version of
/// a replica does not change while it runs.
const WITHOUT_INCIDENT: [&str; 1] = ["FlotillaVersionMismatch"];

impl AlertIncident {
    fn end_minute(&self) -> usize {
        INCIDENT_MINUTE + self.fires
    }

    /// The values of a series, one per minute, until the alert is resolved.
    fn series_values(&self, series: &AlertIncidentSeries) -> String {
        let (mut sum, mut values) = (0., Vec::new());
        for minute in 0..=self.end_minute() + self.clears {
            let disturbed =
                (DISTURBANCE_MINUTE..DISTURBANCE_MINUTE + self.disturbed).contains(&minute);
            let trouble = disturbed || (INCIDENT_MINUTE..self.end_minute()).contains(&minute);
            let now = if trouble {
                series.incident
            } else {
                series.calm
            };
            sum += now;
            let value = if series.is_counter { sum } else { now };
            values.push(value.to_string());
        }
        values.join(" ")
    }

    /// The unit test of promtool for this incident.
    fn promtool_test(&self) -> Value {
        let series = self.series.iter().map(|s| {
            let name = s.name.replace('\'', "\"");
            json!({"series": name, "values": self.series_values(s)})
        });
        let mut labels = json!({"severity": self.severity});
        for (name, value) in self.labels {
            labels[*name] = (*value).into();
        }
        let firing = json!([{ "exp_labels": labels }]);
        let quiet = (1..INCIDENT_MINUTE)
            .step_by(6)
            .map(|minute| (minute, json!([])));
        let rest = [
            (self.end_minute() - 1, firing),
            (self.end_minute() + self.clears, json!([])),
        ];
        let evaluations = quiet.chain(rest).map(|(minute, alerts)| {
            json!({"eval_time": format!("{minute}m"), "alertname": self.alert, "exp_alerts": alerts})
        });
        json!({
            "interval": "1m", "name": self.alert,
            "input_series": series.collect::<Vec<_>>(),
            "alert_rule_test": evaluations.collect::<Vec<_>>(),
        })
    }
}

#[harness::slow]
#[test]
fn alerts_ignore_short_disturbances_and_resolve() {
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
    let tests: Vec<Value> = INCIDENTS.iter().map(AlertIncident::promtool_test).collect();
    let file = json!({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests});
    let path = dir.path().join("tests.yaml");
    std::fs::write(&path, file.to_string()).unwrap();
    let out = harness::process::run(Command::new(&promtool).args(["test", "rules"]).arg(&path));
    let output = [out.stdout, out.stderr].concat();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&output));
}

#[test]
fn every_alert_has_an_incident() {
    let names: BTreeSet<String> = alerts()
        .iter()
        .map(|a| a["alert"].as_str().unwrap().to_owned())
        .collect();
    let tested = INCIDENTS.iter().map(|i| i.alert).chain(WITHOUT_INCIDENT);
    assert_eq!(names, tested.map(str::to_owned).collect());
}
