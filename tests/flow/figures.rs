//! Metrics of the scheduler under Karmada's names.

use serde_json::{Value, json};

use crate::fleet::{Fleet, Server, condition, until};
use crate::objects::{BINDINGS, CLUSTERS, DEPLOYMENTS, config_map, deployment, divided, policy};

/// The sum of all series with a prefix; `None` when there is none.
async fn told(control: &Server, series: &str) -> Option<f64> {
    let text = control.api.raw("/metrics").await.unwrap();
    let text = String::from_utf8(text.to_vec()).unwrap();
    let of_series = text.lines().filter(|line| line.starts_with(series));
    let values = of_series.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap());
    values.fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}

async fn is_zero(control: &Server, series: &[&str]) {
    for series in series {
        assert_eq!(told(control, series).await, Some(0.0), "{series}");
    }
}

async fn counted(control: &Server, series: &[&str]) {
    for series in series {
        let value = told(control, series).await;
        assert!(value.is_some_and(|v| v >= 1.0), "{series}: {value:?}");
    }
}

const SCALED: &str = "karmada_scheduler_schedule_attempts_total{result=\"scheduled\",schedule_type=\"ScaleSchedule\"}";
const SCHEDULED: &str = "karmada_scheduler_schedule_attempts_total{result=\"scheduled\",schedule_type=\"ReconcileSchedule\"}";
const FAILED: &str = "karmada_scheduler_schedule_attempts_total{result=\"error\",schedule_type=\"ReconcileSchedule\"}";
const E2E_SCALED: &str = "karmada_scheduler_e2e_scheduling_duration_seconds_count{result=\"scheduled\",schedule_type=\"ScaleSchedule\"}";
const UNSCHEDULABLE: &str = "scheduler_pending_bindings{queue=\"unschedulable\"}";
const ADDED: &str = "karmada_scheduler_queue_incoming_bindings_total{event=\"BindingAdd\"}";
const UPDATED: &str = "karmada_scheduler_queue_incoming_bindings_total{event=\"BindingUpdate\"}";
const AGAIN: &str =
    "karmada_scheduler_queue_incoming_bindings_total{event=\"ScheduleAttemptFailure\"}";
const BY_CLUSTER: &str =
    "karmada_scheduler_queue_incoming_bindings_total{event=\"ClusterChanged\"}";
const POINT_REFUSED: &str = "karmada_scheduler_framework_extension_point_duration_seconds_count{extension_point=\"Filter\",result=\"Unschedulable\"}";
const PLUGIN_REFUSED: &str = "karmada_scheduler_plugin_execution_duration_seconds_count{extension_point=\"Filter\",plugin=\"ClusterAffinity\",result=\"Unschedulable\"}";

// proves: MET-schedule-attempts, MET-schedule-steps, MET-schedule-incoming
// proves: MET-schedule-pending, MET-schedule-plugins
#[tokio::test]
async fn scheduling_is_told_under_the_names_of_karmada() {
    let ns = "figures";
    let fleet = Fleet::with_flags(&[], ns).await;
    let control = &fleet.control;
    let all = [
        SCALED,
        SCHEDULED,
        FAILED,
        E2E_SCALED,
        ADDED,
        UPDATED,
        AGAIN,
        POINT_REFUSED,
        PLUGIN_REFUSED,
    ];
    is_zero(control, &all).await;

    let web = deployment(ns, "web", 2);
    let weights = [("member1", 1), ("member2", 1)];
    control.create(divided(ns, "web", &web, &weights)).await;
    control.create(web).await;
    let scheduled = |b: &Value| condition(b, "Scheduled")["status"] == "True";
    control
        .until(&BINDINGS, ns, "web-deployment", "scheduled", scheduled)
        .await;
    counted(control, &[SCHEDULED, ADDED, POINT_REFUSED, PLUGIN_REFUSED]).await;
    for step in ["Filter", "Score", "Select", "AssignReplicas"] {
        let series = format!(
            "karmada_scheduler_scheduling_algorithm_duration_seconds_count{{schedule_step=\"{step}\"}}"
        );
        counted(control, &[&series]).await;
    }
    for point in ["Filter", "Score"] {
        let series = format!(
            "karmada_scheduler_framework_extension_point_duration_seconds_count{{extension_point=\"{point}\",result=\"Success\"}}"
        );
        counted(control, &[&series]).await;
    }
    for (point, plugin) in [
        ("Filter", "APIEnablement"),
        ("Filter", "TaintToleration"),
        ("Filter", "ClusterAffinity"),
        ("Filter", "SpreadConstraint"),
        ("Filter", "ClusterEviction"),
        ("Score", "ClusterLocality"),
    ] {
        let series = format!(
            "karmada_scheduler_plugin_execution_duration_seconds_count{{extension_point=\"{point}\",plugin=\"{plugin}\",result=\"Success\"}}"
        );
        counted(control, &[&series]).await;
    }
    is_zero(control, &[SCALED, E2E_SCALED, FAILED, AGAIN, UNSCHEDULABLE]).await;

    let five = json!({"spec": {"replicas": 5}});
    control.merge(&DEPLOYMENTS, ns, "web", five).await;
    control
        .until(&BINDINGS, ns, "web-deployment", "scaled", |b| {
            let clusters = b["spec"]["clusters"].as_array().into_iter().flatten();
            clusters.filter_map(|c| c["replicas"].as_i64()).sum::<i64>() == 5 && scheduled(b)
        })
        .await;
    counted(control, &[SCALED, E2E_SCALED, UPDATED]).await;

    // First no cluster fits, then no cluster has the capacity.
    let lost = config_map(ns, "lost", "v");
    control
        .create(policy(ns, "lost", &lost, &["atlantis"]))
        .await;
    control.create(lost).await;
    let unfit = |b: &Value| condition(b, "Scheduled")["status"] == "False";
    control
        .until(&BINDINGS, ns, "lost-configmap", "unfit", unfit)
        .await;
    let huge = deployment(ns, "huge", 100_000);
    let mut aggregated = divided(ns, "huge", &huge, &[]);
    aggregated["spec"]["placement"]["replicaScheduling"] =
        json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"});
    control.create(aggregated).await;
    control.create(huge).await;
    control
        .until(&BINDINGS, ns, "huge-deployment", "unfit", unfit)
        .await;
    counted(control, &[FAILED, AGAIN]).await;
    until("one unschedulable binding", async || {
        told(control, UNSCHEDULABLE).await == Some(1.0)
    })
    .await;

    let before = told(control, BY_CLUSTER).await.unwrap();
    let label = json!({"metadata": {"labels": {"ring": "one"}}});
    control.merge(&CLUSTERS, "", "member3", label).await;
    until("bindings are enqueued for a cluster", async || {
        told(control, BY_CLUSTER).await > Some(before)
    })
    .await;
}
