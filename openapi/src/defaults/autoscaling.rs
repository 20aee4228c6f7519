//! Defaults of HorizontalPodAutoscalers (Kubernetes `pkg/apis/autoscaling/{v1,v2}/defaults.go`).

use serde_json::json;

use super::{Fields, fill, is_empty, within, within_new};

pub(super) fn autoscaler(version: &str, object: &mut Fields) {
    within(object, "spec", |spec| {
        fill(spec, "minReplicas", 1);
        if version == "v1" {
            return;
        }
        if is_empty(spec, "metrics") {
            spec.insert("metrics".into(), default_metrics());
        }
        within(spec, "behavior", |behavior| {
            within_new(behavior, "scaleUp", |rules| {
                fill(rules, "stabilizationWindowSeconds", 0);
                fill(rules, "selectPolicy", "Max");
                if is_empty(rules, "policies") {
                    let policies = json!([
                        {"type": "Pods", "value": 4, "periodSeconds": 15},
                        {"type": "Percent", "value": 100, "periodSeconds": 15},
                    ]);
                    rules.insert("policies".into(), policies);
                }
            });
            within_new(behavior, "scaleDown", |rules| {
                fill(rules, "selectPolicy", "Max");
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
