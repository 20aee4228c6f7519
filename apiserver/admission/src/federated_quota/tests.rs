//! Tests of the FederatedResourceQuota rules.

use serde_json::json;

use super::*;

fn check(quota: Value, expected: &[&str]) {
    let messages: Vec<String> = validate(&quota).iter().map(ToString::to_string).collect();
    assert_eq!(messages, expected, "{quota}");
}

/// A quota of ten cores and five pods, with six cores assigned to a cluster.
fn with(cluster: &str, hard: Value) -> Value {
    json!({"metadata": {"name": "q"}, "spec": {"overall": {"cpu": "10", "pods": "5"},
        "staticAssignments": [{"clusterName": "m1", "hard": {"cpu": "6"}}, {"clusterName": cluster, "hard": hard}]}})
}

#[test]
fn quota_name_length_is_validated() {
    let quota_with_name_length =
        |n: usize| json!({"metadata": {"name": "q".repeat(n)}, "spec": {"overall": {"cpu": "1"}}});
    check(quota_with_name_length(63), &[]);
    let name = "q".repeat(64);
    check(
        quota_with_name_length(64),
        &[&format!(
            "metadata.name: Invalid value: {name:?}: must be no more than 63 characters"
        )],
    );
}

#[test]
fn quota_resources_are_validated() {
    let overall = |overall: Value| json!({"metadata": {"name": "q"}, "spec": {"overall": overall}});
    check(
        overall(json!({"cpu": "1", "limits.memory": "1Gi", "count/x.io": 3, "x.io/gpu": "1"})),
        &[],
    );
    check(
        overall(json!({"disks": "1"})),
        &[r#"spec.overall[disks]: Invalid value: "disks": must be a standard resource for quota"#],
    );
    check(
        overall(json!({"cpu": "-1"})),
        &[
            r#"spec.overall[cpu]: Invalid value: "-1": must be greater than or equal to 0"#,
            r#"spec.overall[cpu]: Invalid value: "-1": overall is less than assignments"#,
        ],
    );
    check(
        overall(json!({"pods": "1500m"})),
        &[r#"spec.overall[pods]: Invalid value: "1500m": must be an integer"#],
    );
    check(
        with("m2", json!({"pods": "1500m"})),
        &[r#"spec.staticAssignments[1].hard[pods]: Invalid value: "1500m": must be an integer"#],
    );
}

#[test]
fn assignment_cluster_names_are_validated() {
    let message = cluster::validate_cluster_name("M2").unwrap_err();
    check(
        with("M2", json!({})),
        &[&format!(
            r#"spec.staticAssignments[1].clusterName: Invalid value: "M2": {message}"#
        )],
    );
    let long = "m".repeat(49);
    check(
        with(&long, json!({})),
        &[&format!(
            "spec.staticAssignments[1].clusterName: Invalid value: {long:?}: must be no more than 48 characters"
        )],
    );
}

#[test]
fn assignments_are_unique_per_cluster() {
    check(
        with("m1", json!({})),
        &[r#"spec.staticAssignments[1].clusterName: Duplicate value: "m1""#],
    );
}

#[test]
fn assignments_fit_into_overall() {
    check(with("m2", json!({"cpu": "4"})), &[]);
    check(
        with("m2", json!({"cpu": "4500m"})),
        &[r#"spec.overall[cpu]: Invalid value: "10": overall is less than assignments"#],
    );
}

#[test]
fn assignments_use_overall_resources() {
    check(
        with("m2", json!({"memory": "1Gi"})),
        &[
            r#"spec.staticAssignments[1].hard[memory]: Invalid value: "memory": assignment resourceName is not exist in overall"#,
        ],
    );
}

#[test]
fn quota_status_is_validated() {
    let status = |status: Value| json!({"metadata": {"name": "q"}, "status": status});
    for list in ["overall", "overallUsed"] {
        check(
            status(json!({list: {"cpu": "-1"}})),
            &[&format!(
                r#"status.{list}[cpu]: Invalid value: "-1": must be greater than or equal to 0"#
            )],
        );
    }
    for list in ["hard", "used"] {
        check(
            status(json!({"aggregatedStatus": [{"clusterName": "m", list: {"cpu": "-1"}}]})),
            &[&format!(
                r#"status.aggregatedStatus[0].{list}[cpu]: Invalid value: "-1": must be greater than or equal to 0"#
            )],
        );
    }
    let message = cluster::validate_cluster_name("").unwrap_err();
    check(
        status(json!({"aggregatedStatus": [{}]})),
        &[&format!(
            r#"status.aggregatedStatus[0].clusterName: Invalid value: "": {message}"#
        )],
    );
}

// proves: ADM-quota-inert
#[test]
fn limits_that_would_act_on_nothing_are_refused_where_quotas_are_enforced() {
    let quota = json!({"spec": {"overall": {"cpu": "1", "requests.memory": "1Gi", "limits.cpu": "2",
        "limits.memory": "1Gi", "secrets": 5},
        "staticAssignments": [{"clusterName": "m1", "hard": {"limits.memory": "1Gi"}}]}});
    let fields = |old: Option<&Value>| {
        let errors = validate_enforceable(&quota, old);
        errors.into_iter().map(|e| e.field).collect::<Vec<_>>()
    };
    assert_eq!(
        fields(None),
        ["spec.overall[limits.cpu]", "spec.overall[secrets]"]
    );
    let old = json!({"spec": {"overall": {"limits.cpu": "1"}}});
    assert_eq!(fields(Some(&old)), ["spec.overall[secrets]"]);
}
