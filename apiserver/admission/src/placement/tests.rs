//! Tests of the Placement rules.

use serde_json::json;

use super::*;

/// Checks the errors of a placement, without the prefix `spec.placement`.
fn check(placement: Value, expected: &[&str]) {
    let mut errors = Vec::new();
    validate(&placement, &mut errors);
    let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let expected: Vec<String> = expected
        .iter()
        .map(|e| format!("{PLACEMENT_FIELD}{e}"))
        .collect();
    assert_eq!(messages, expected, "{placement}");
}

fn fields(key: &str, operator: &str) -> Value {
    json!({"fieldSelector": {"matchExpressions": [{"key": key, "operator": operator, "values": ["x"]}]}})
}

fn term(name: &str, fields: Value) -> Value {
    let mut term = json!({"affinityName": name, "clusterNames": ["m"]});
    term.as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    term
}

#[test]
fn cluster_affinity_excludes_cluster_affinities() {
    let detail = "clusterAffinities cannot co-exist with clusterAffinity";
    check(json!({"clusterAffinity": {}}), &[]);
    check(json!({"clusterAffinities": [term("a", json!({}))]}), &[]);
    check(
        json!({"clusterAffinity": {"clusterNames": ["m"]}, "clusterAffinities": [term("a", json!({}))]}),
        &[&format!(
            r#": Invalid value: {{"clusterAffinity":{{"clusterNames":["m"]}},"clusterAffinities":[{{"affinityName":"a","clusterNames":["m"]}}]}}: {detail}"#
        )],
    );
    // An empty list still counts as set.
    check(
        json!({"clusterAffinity": {}, "clusterAffinities": []}),
        &[&format!(
            r#": Invalid value: {{"clusterAffinity":{{}}}}: {detail}"#
        )],
    );
}

#[test]
fn field_selectors_are_validated() {
    let message = |key: &str, operator: &str, detail: &str| {
        format!(
            r#".fieldSelector: Invalid value: {{"matchExpressions":[{{"key":"{key}","operator":"{operator}","values":["x"]}}]}}: {detail}"#
        )
    };
    let strategy =
        json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"});
    let everywhere = |affinity: Value, expected: Option<String>| {
        let expected = |path: &str| {
            expected
                .iter()
                .map(|e| format!("{path}{e}"))
                .collect::<Vec<_>>()
        };
        let cases = [
            (json!({"clusterAffinity": affinity}), ".clusterAffinity"),
            (
                json!({"clusterAffinities": [term("a", affinity.clone())]}),
                ".clusterAffinities[0]",
            ),
            (
                json!({"replicaScheduling": strategy, "clusterAffinities": [
                    term("a", json!({"overflowAffinities": [term("b", affinity)]}))]}),
                ".clusterAffinities[0].overflowAffinities[0]",
            ),
        ];
        for (placement, path) in cases {
            let expected = expected(path);
            let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
            check(placement, &expected);
        }
    };
    for key in ["provider", "region", "zone"] {
        for operator in ["In", "NotIn"] {
            everywhere(fields(key, operator), None);
        }
    }
    let key = r#"unsupported key "area", must be provider, region, or zone"#;
    everywhere(fields("area", "In"), Some(message("area", "In", key)));
    let operator = r#"unsupported operator "Exists", must be In or NotIn"#;
    everywhere(
        fields("zone", "Exists"),
        Some(message("zone", "Exists", operator)),
    );
}

#[test]
fn affinity_term_names_are_unique() {
    let terms_with_names = |names: &[&str]| {
        let terms = names.iter().map(|n| json!({"affinityName": n}));
        json!({"clusterAffinities": terms.collect::<Value>()})
    };
    check(terms_with_names(&["a", "b"]), &[]);
    let detail = validate_qualified_name("a b").unwrap_err();
    check(
        terms_with_names(&["a b"]),
        &[&format!(
            r#".clusterAffinities[0]: Invalid value: "a b": {detail}"#
        )],
    );
    check(
        terms_with_names(&["a", "a"]),
        &[
            r#".clusterAffinities: Invalid value: [{"affinityName":"a"},{"affinityName":"a"}]: each affinity term in a policy must have a unique name"#,
        ],
    );
}

fn overflowing(strategy: Value, primary: Value, tiers: &Value) -> Value {
    let mut term = primary;
    term["overflowAffinities"] = tiers.clone();
    json!({"clusterAffinities": [term], "replicaScheduling": strategy})
}

fn aggregated() -> Value {
    json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"})
}

const OVERFLOW: &str = ".clusterAffinities[0].overflowAffinities";

#[test]
fn overflow_needs_dynamic_weight_or_aggregation() {
    let tiers = json!([{"affinityName": "b"}]);
    let rejection = format!(
        r#"{OVERFLOW}: Invalid value: [{{"affinityName":"b"}}]: overflowAffinities can only be used together with dynamic weight or aggregated scheduling"#
    );
    let weighted = |weights: Value| json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted", "weightPreference": weights});
    let duplicated =
        json!({"replicaSchedulingType": "Duplicated", "replicaDivisionPreference": "Aggregated"});
    for (strategy, valid) in [
        (aggregated(), true),
        (
            weighted(json!({"dynamicWeight": "AvailableReplicas"})),
            true,
        ),
        (weighted(json!({"staticWeightList": []})), false),
        (weighted(Value::Null), false),
        (duplicated, false),
        (Value::Null, false),
    ] {
        let expected: &[&str] = if valid { &[] } else { &[&rejection] };
        check(
            overflowing(strategy, term("a", json!({})), &tiers),
            expected,
        );
    }
}

#[test]
fn overflow_needs_a_primary_affinity() {
    let tiers = json!([{"affinityName": "b"}]);
    check(
        overflowing(aggregated(), json!({"affinityName": "a"}), &tiers),
        &[&format!(
            r#"{OVERFLOW}: Invalid value: [{{"affinityName":"b"}}]: overflowAffinities can only be used together with the inline ClusterAffinity"#
        )],
    );
}

#[test]
fn overflow_affinity_names_are_unique() {
    let detail = validate_qualified_name("b c").unwrap_err();
    let duplicate_detail = "overflow affinity name must be unique and must not duplicate the primary group's affinityName";
    let tiers = ["a", "b c", "d", "d"].map(|n| json!({"affinityName": n}));
    check(
        overflowing(aggregated(), term("a", json!({})), &json!(tiers)),
        &[
            &format!(r#"{OVERFLOW}[0].affinityName: Invalid value: "a": {duplicate_detail}"#),
            &format!(r#"{OVERFLOW}[1].affinityName: Invalid value: "b c": {detail}"#),
            &format!(r#"{OVERFLOW}[3].affinityName: Invalid value: "d": {duplicate_detail}"#),
        ],
    );
}

/// Checks the errors of the first constraint.
fn spread(constraints: Value, expected: &[&str]) {
    let expected: Vec<String> = expected
        .iter()
        .map(|e| format!(".spreadConstraints{e}"))
        .collect();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    check(json!({"spreadConstraints": constraints}), &expected);
}

#[test]
fn spread_by_field_excludes_spread_by_label() {
    spread(json!([{"spreadByLabel": "x"}]), &[]);
    spread(
        json!([{"spreadByField": "cluster", "spreadByLabel": "x"}]),
        &[
            r#"[0]: Invalid value: {"spreadByField":"cluster","spreadByLabel":"x"}: spreadByLabel should not co-exist with spreadByField"#,
        ],
    );
}

#[test]
fn spread_constraint_groups_are_validated() {
    let bounds = |min: i64, max: i64, detail: &str| {
        let constraint = json!([{"spreadByField": "cluster", "minGroups": min, "maxGroups": max}]);
        let mut constraint_text = r#"{"spreadByField":"cluster""#.to_owned();
        for (name, n) in [("maxGroups", max), ("minGroups", min)] {
            if n != 0 {
                constraint_text += &format!(r#","{name}":{n}"#);
            }
        }
        let message = format!("[0]: Invalid value: {constraint_text}}}: {detail}");
        let expected: &[&str] = if detail.is_empty() { &[] } else { &[&message] };
        spread(constraint, expected);
    };
    bounds(1, 1, "");
    bounds(2, 0, "");
    bounds(-1, 0, "minGroups lower than 0 is not allowed");
    bounds(0, -1, "maxGroups lower than 0 is not allowed");
    bounds(2, 1, "maxGroups lower than minGroups is not allowed");
}

#[test]
fn spread_fields_are_unique() {
    let cluster = json!({"spreadByField": "cluster", "minGroups": 1});
    let constraint_text = r#"{"spreadByField":"cluster","minGroups":1}"#;
    spread(
        json!([cluster, cluster, cluster]),
        &[&format!(
            ": Invalid value: [{constraint_text},{constraint_text},{constraint_text}]: multiple cluster spread constraints are not allowed"
        )],
    );
}

#[test]
fn spread_by_field_needs_a_cluster_constraint() {
    spread(
        json!([{"spreadByField": "region"}, {"spreadByField": "cluster"}]),
        &[],
    );
    spread(
        json!([{"spreadByField": "region"}]),
        &[
            r#": Invalid value: [{"spreadByField":"region"}]: the cluster spread constraint must be enabled in one of the constraints in case of SpreadByField is enabled"#,
        ],
    );
}

#[test]
fn toleration_operators_are_validated() {
    for operator in ["", "Exists", "Equal", "Lt", "Gt"] {
        let placement = json!({"clusterTolerations": [{"key": "a", "operator": operator}]});
        let message = format!(
            r#".clusterTolerations[0].operator: Unsupported value: "{operator}": supported values: "", "Exists", "Equal""#
        );
        let is_rejected = matches!(operator, "Lt" | "Gt");
        let expected: &[&str] = if is_rejected { &[&message] } else { &[] };
        check(placement, expected);
    }
}

fn grouped(affinity: &str, anti: &str) -> Value {
    json!({"workloadAffinity": {"affinity": {"groupByLabelKey": affinity}, "antiAffinity": {"groupByLabelKey": anti}}})
}

#[test]
fn workload_affinity_keys_are_label_keys() {
    let detail = validate_qualified_name("a b").unwrap_err();
    check(grouped("a", "x.io/b"), &[]);
    check(
        grouped("a b", "a"),
        &[&format!(
            r#".workloadAffinity.affinity.groupByLabelKey: Invalid value: "a b": {detail}"#
        )],
    );
    check(
        grouped("a", "a b"),
        &[&format!(
            r#".workloadAffinity.antiAffinity.groupByLabelKey: Invalid value: "a b": {detail}"#
        )],
    );
}

#[test]
fn workload_affinity_and_anti_affinity_keys_differ() {
    check(
        grouped("a", "a"),
        &[
            r#".workloadAffinity: Invalid value: {"affinity":{"groupByLabelKey":"a"},"antiAffinity":{"groupByLabelKey":"a"}}: affinity and antiAffinity must not use the same groupByLabelKey"#,
        ],
    );
}
