//! Tests of kyverno.io.

use super::*;

const POLICIES: [&str; 2] = ["kyverno.io/v1 ClusterPolicy", "kyverno.io/v1 Policy"];

// proves: CRD-kyverno
#[test]
fn ready_field_precedes_the_conditions() {
    let ready = |status: &str, reason: &str| json!({"conditions": [condition("Ready", status, reason, "")]});
    let both = |is_ready: bool| {
        let mut status = ready("True", "Succeeded");
        status["ready"] = is_ready.into();
        status
    };
    for kind in POLICIES {
        check_health_by_status(
            kind,
            &[
                (both(true), Some(true)),
                (both(false), Some(false)),
                (ready("True", "Succeeded"), Some(true)),
                (ready("True", "Failed"), Some(false)),
                (ready("False", "Succeeded"), Some(false)),
                (json!({}), Some(false)),
                (json!({"ready": "yes"}), None),
            ],
        );
    }
}

// proves: CRD-kyverno-status
#[test]
fn rules_are_counted_over_clusters() {
    let report = |ready: bool, validate: i64, message: &str| {
        json!({"ready": ready, "rulecount": {"validate": validate, "generate": 0, "mutate": 1, "verifyimages": 0},
               "conditions": [condition("Ready", "True", "Succeeded", message)], "autogen": {"rules": [{"name": message}]}})
    };
    for kind in POLICIES {
        let template = json!({"metadata": {"name": "p"}, "spec": {"a": 1}, "status": {"mine": 1}});
        let result = aggregated(
            kind,
            &template,
            &[report(true, 1, "x"), Value::Null, report(false, 2, "y")],
        )
        .unwrap();
        assert_eq!(
            result["status"],
            json!({"ready": false, "autogen": {"rules": [{"name": "y"}]},
                   "rulecount": {"validate": 3, "generate": 0, "mutate": 2, "verifyimages": 0},
                   "conditions": [condition("Ready", "False", "StatusNotReported", "waiting for the status in clusters: b")]})
        );
        let none =
            json!({"rulecount": {"validate": 0, "generate": 0, "mutate": 0, "verifyimages": 0}});
        assert_eq!(
            aggregated(kind, &template, &[Value::Null]).unwrap()["status"],
            none
        );
        assert_eq!(aggregated_without_items(kind, &template), template);
        assert!(aggregated(kind, &template, &[json!({"rulecount": {"validate": 1}})]).is_err());
    }
}

// proves: CRD-kyverno-status
#[test]
fn counted_fields_are_reflected() {
    for kind in POLICIES {
        let copy = json!({"metadata": {"generation": 1}, "status": {"ready": true, "rulecount": {"validate": 0}, "autogen": {}, "odd": 1}});
        assert_eq!(
            reflected(kind, &copy),
            json!({"ready": true, "rulecount": {"validate": 0}})
        );
    }
}
