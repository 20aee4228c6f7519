//! Defaults of HorizontalPodAutoscalers (Kubernetes `pkg/apis/autoscaling/{v1,v2}/defaults.go`).

use serde_json::json;

use super::{JsonObjectMap, is_empty, set_default, with_object, with_object_or_create};

pub(super) fn set_defaults_horizontal_pod_autoscaler(version: &str, object: &mut JsonObjectMap) {
    with_object(object, "spec", |spec| {
        set_default(spec, "minReplicas", 1);
        if version == "v1" {
            return;
        }
        if is_empty(spec, "metrics") {
            spec.insert("metrics".into(), default_metrics());
        }
        with_object(spec, "behavior", |behavior| {
            with_object_or_create(behavior, "scaleUp", |rules| {
                set_default(rules, "stabilizationWindowSeconds", 0);
                set_default(rules, "selectPolicy", "Max");
                if is_empty(rules, "policies") {
                    let policies = json!([
                        {"type": "Pods", "value": 4, "periodSeconds": 15},
                        {"type": "Percent", "value": 100, "periodSeconds": 15},
                    ]);
                    rules.insert("policies".into(), policies);
                }
            });
            with_object_or_create(behavior, "scaleDown", |rules| {
                set_default(rules, "selectPolicy", "Max");
                if is_empty(rules, "policies") {
                    let policies = json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]);
                    rules.insert("policies".into(), policies);
                }
            });
        });
    });
}

fn default_metrics() -> serde_json::Value {
    json!([{
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
    }])
}
