//! Metrics of the scheduler under Karmada's names.

use serde_json::{Value, json};

use crate::flow::fleet::{ApiServerClient, FleetFixture, find_condition, wait_until};
use crate::flow::objects::{
    BINDINGS, CLUSTERS, DEPLOYMENTS, config_map, deployment, divided_policy, policy,
};

/// The sum of all series with a prefix; `None` when there is none.
async fn metric_value(control: &ApiServerClient, series: &str) -> Option<f64> {
    let text = control.api.get_raw("/metrics").await.unwrap();
    let text = String::from_utf8(text.to_vec()).unwrap();
    let of_series = text.lines().filter(|line| line.starts_with(series));
    let values = of_series.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap());
    values.fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}

async fn assert_zero(control: &ApiServerClient, series: &[&str]) {
    for series in series {
        assert_eq!(metric_value(control, series).await, Some(0.0), "{series}");
    }
}

async fn wait_until_counted(control: &ApiServerClient, series: &[&str]) {
    for series in series {
        wait_until(series, async || {
            metric_value(control, series).await >= Some(1.0)
        })
        .await;
    }
}

const SCALE_ATTEMPTS: &str = "karmada_scheduler_schedule_attempts_total{result=\"scheduled\",schedule_type=\"ScaleSchedule\"}";
const RECONCILE_ATTEMPTS: &str = "karmada_scheduler_schedule_attempts_total{result=\"scheduled\",schedule_type=\"ReconcileSchedule\"}";
const FAILED_ATTEMPTS: &str = "karmada_scheduler_schedule_attempts_total{result=\"error\",schedule_type=\"ReconcileSchedule\"}";
const SCALE_E2E_COUNT: &str = "karmada_scheduler_e2e_scheduling_duration_seconds_count{result=\"scheduled\",schedule_type=\"ScaleSchedule\"}";
const UNSCHEDULABLE_BINDINGS: &str = "scheduler_pending_bindings{queue=\"unschedulable\"}";
const INCOMING_ADDED: &str =
    "karmada_scheduler_queue_incoming_bindings_total{event=\"BindingAdd\"}";
const INCOMING_UPDATED: &str =
    "karmada_scheduler_queue_incoming_bindings_total{event=\"BindingUpdate\"}";
const INCOMING_RETRIED: &str =
    "karmada_scheduler_queue_incoming_bindings_total{event=\"ScheduleAttemptFailure\"}";
const INCOMING_BY_CLUSTER: &str =
    "karmada_scheduler_queue_incoming_bindings_total{event=\"ClusterChanged\"}";
const FILTER_UNSCHEDULABLE: &str = "karmada_scheduler_framework_extension_point_duration_seconds_count{extension_point=\"Filter\",result=\"Unschedulable\"}";
const CLUSTER_AFFINITY_UNSCHEDULABLE: &str = "karmada_scheduler_plugin_execution_duration_seconds_count{extension_point=\"Filter\",plugin=\"ClusterAffinity\",result=\"Unschedulable\"}";

// proves: MET-schedule-attempts, MET-schedule-steps, MET-schedule-incoming
// proves: MET-schedule-pending, MET-schedule-plugins
#[tokio::test]
async fn scheduler_metrics_have_karmada_names() {
    let ns = "figures";
    let fleet = FleetFixture::with_flags(&[], ns).await;
    let control = &fleet.control;
    // Other series count the object that the start of the fleet has placed.
    let never = [SCALE_ATTEMPTS, SCALE_E2E_COUNT];
    assert_zero(control, &never).await;
    for series in [
        RECONCILE_ATTEMPTS,
        FAILED_ATTEMPTS,
        INCOMING_ADDED,
        INCOMING_UPDATED,
        INCOMING_RETRIED,
        FILTER_UNSCHEDULABLE,
        CLUSTER_AFFINITY_UNSCHEDULABLE,
    ] {
        assert!(metric_value(control, series).await.is_some(), "{series}");
    }

    let web = deployment(ns, "web", 2);
    let weights = [("member1", 1), ("member2", 1)];
    control
        .create(divided_policy(ns, "web", &web, &weights))
        .await;
    control.create(web).await;
    let scheduled = |b: &Value| find_condition(b, "Scheduled")["status"] == "True";
    control
        .wait_until(&BINDINGS, ns, "web-deployment", "scheduled", scheduled)
        .await;
    wait_until_counted(
        control,
        &[
            RECONCILE_ATTEMPTS,
            INCOMING_ADDED,
            FILTER_UNSCHEDULABLE,
            CLUSTER_AFFINITY_UNSCHEDULABLE,
        ],
    )
    .await;
    for step in ["Filter", "Score", "Select", "AssignReplicas"] {
        let series = format!(
            "karmada_scheduler_scheduling_algorithm_duration_seconds_count{{schedule_step=\"{step}\"}}"
        );
        wait_until_counted(control, &[&series]).await;
    }
    for point in ["Filter", "Score"] {
        let series = format!(
            "karmada_scheduler_framework_extension_point_duration_seconds_count{{extension_point=\"{point}\",result=\"Success\"}}"
        );
        wait_until_counted(control, &[&series]).await;
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
        wait_until_counted(control, &[&series]).await;
    }
    assert_zero(control, &never).await;

    let five = json!({"spec": {"replicas": 5}});
    control.merge_patch(&DEPLOYMENTS, ns, "web", five).await;
    control
        .wait_until(&BINDINGS, ns, "web-deployment", "scaled", |b| {
            let clusters = b["spec"]["clusters"].as_array().into_iter().flatten();
            clusters.filter_map(|c| c["replicas"].as_i64()).sum::<i64>() == 5 && scheduled(b)
        })
        .await;
    wait_until_counted(
        control,
        &[SCALE_ATTEMPTS, SCALE_E2E_COUNT, INCOMING_UPDATED],
    )
    .await;

    // First no cluster fits, then no cluster has the capacity.
    let failures = [FAILED_ATTEMPTS, INCOMING_RETRIED];
    let mut failed_before = Vec::new();
    for series in failures {
        failed_before.push(metric_value(control, series).await);
    }
    let lost = config_map(ns, "lost", "v");
    control
        .create(policy(ns, "lost", &lost, &["atlantis"]))
        .await;
    control.create(lost).await;
    let unfit = |b: &Value| find_condition(b, "Scheduled")["status"] == "False";
    control
        .wait_until(&BINDINGS, ns, "lost-configmap", "unfit", unfit)
        .await;
    let huge = deployment(ns, "huge", 100_000);
    let mut aggregated = divided_policy(ns, "huge", &huge, &[]);
    aggregated["spec"]["placement"]["replicaScheduling"] =
        json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"});
    control.create(aggregated).await;
    control.create(huge).await;
    control
        .wait_until(&BINDINGS, ns, "huge-deployment", "unfit", unfit)
        .await;
    for (series, before) in failures.iter().zip(failed_before) {
        wait_until(series, async || {
            metric_value(control, series).await > before
        })
        .await;
    }
    wait_until("one unschedulable binding", async || {
        metric_value(control, UNSCHEDULABLE_BINDINGS).await == Some(1.0)
    })
    .await;

    let before = metric_value(control, INCOMING_BY_CLUSTER).await.unwrap();
    let label = json!({"metadata": {"labels": {"ring": "one"}}});
    control.merge_patch(&CLUSTERS, "", "member3", label).await;
    wait_until("bindings are enqueued for a cluster", async || {
        metric_value(control, INCOMING_BY_CLUSTER).await > Some(before)
    })
    .await;
}
