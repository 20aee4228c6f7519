//! The rows of FederatedHPAs and CronFederatedHPAs: what they scale, how far, and by what.

use karmada_api::CronFederatedHpa;
use karmada_api::cron_federated_hpa::CronFederatedHpaRule;
use karmada_api::resources::{CRON_FEDERATED_HPAS, FEDERATED_HPAS};
use machinery::Object;
use serde_json::Value;

use super::resource_row::{ListedResource, ResourceRow, RowCell, abbreviated};

const KIND: &str = "FederatedHPA";
const CRON_KIND: &str = "CronFederatedHPA";

pub(crate) static AUTOSCALERS: [ListedResource; 2] = [
    ListedResource {
        resource: &FEDERATED_HPAS,
        kind: KIND,
        pages: None,
        project: |object, _| autoscaler_row(object),
    },
    ListedResource {
        resource: &CRON_FEDERATED_HPAS,
        kind: CRON_KIND,
        pages: None,
        project: |object, _| cron_row(object),
    },
];

fn autoscaler_row(object: &Object) -> Option<ResourceRow> {
    let value = object.value().ok()?;
    let (spec, status) = (&value["spec"], &value["status"]);
    let target = &spec["scaleTargetRef"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let number = |value: &Value, default: i64| value.as_i64().unwrap_or(default);
    let least = number(&spec["minReplicas"], 1);
    let most = number(&spec["maxReplicas"], least);
    let current = number(&status["currentReplicas"], 0);
    let desired = number(&status["desiredReplicas"], current);
    let mut replicas = vec![format!("{current}, from {least} to {most}")];
    if desired != current {
        replicas.push(format!("on the way to {desired}"));
    }
    let metrics = spec["metrics"].as_array().into_iter().flatten();
    let current_metrics = &status["currentMetrics"];
    let metrics = metrics
        .enumerate()
        .map(|(at, metric)| metric_text(metric, &current_metrics[at]));
    let cells = vec![
        RowCell::Lines(vec![format!(
            "{} {}",
            text(&target["kind"]),
            text(&target["name"])
        )]),
        RowCell::Lines(replicas),
        abbreviated(metrics.collect()),
    ];
    Some(ResourceRow::new(object, KIND, cells))
}

/// Such as `cpu 45 % of 80 %`.
fn metric_text(metric: &Value, current: &Value) -> String {
    let metric_type = metric["type"].as_str().unwrap_or_default();
    let field = match metric_type {
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        "Pods" => "pods",
        "Object" => "object",
        _ => "external",
    };
    let source = &metric[field];
    let name = source["name"]
        .as_str()
        .or(source["metric"]["name"].as_str());
    let amount = |values: &Value| {
        let percent = values["averageUtilization"].as_i64();
        let percent = percent.map(|percent| format!("{percent} %"));
        let amounts = ["averageValue", "value"].map(|key| values[key].as_str());
        percent.or_else(|| amounts.into_iter().flatten().next().map(str::to_owned))
    };
    let target = amount(&source["target"]).unwrap_or_default();
    let name = name.unwrap_or(metric_type);
    match amount(&current[field]["current"]) {
        Some(current) => format!("{name} {current} of {target}"),
        None => format!("{name} at {target}"),
    }
}

fn cron_row(object: &Object) -> Option<ResourceRow> {
    let spec = &object.decode::<CronFederatedHpa>().ok()?.spec;
    let target = &spec.scale_target_ref;
    let changes = spec.rules.iter().map(|rule| {
        let (name, change) = (&rule.name, change_text(rule));
        format!("{name}: {change}")
    });
    let schedules = spec.rules.iter().map(|rule| {
        let state = match rule.suspend {
            Some(true) => " (suspended)",
            _ => "",
        };
        format!("{}: {}{state}", rule.name, rule.schedule)
    });
    let cells = vec![
        RowCell::Lines(vec![format!("{} {}", target.kind, target.name)]),
        abbreviated(changes.collect()),
        abbreviated(schedules.collect()),
    ];
    Some(ResourceRow::new(object, CRON_KIND, cells))
}

fn change_text(rule: &CronFederatedHpaRule) -> String {
    let bound = |word: &str, bound: Option<i32>| bound.map(|number| format!("{word} {number}"));
    let bounds = [
        rule.target_replicas.map(|number| number.to_string()),
        bound("from", rule.target_min_replicas),
        bound("to", rule.target_max_replicas),
    ];
    let bounds: Vec<String> = bounds.into_iter().flatten().collect();
    bounds.join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lines(row: &ResourceRow) -> Vec<String> {
        let cells = row.cells.iter();
        let cells = cells.flat_map(|cell| match cell {
            RowCell::Lines(lines) => lines.clone(),
            _ => Vec::new(),
        });
        cells.collect()
    }

    // proves: CON-lists
    #[test]
    fn autoscalers_say_what_they_scale_and_by_what() {
        let object = json!({"metadata": {"name": "web", "namespace": "shop"},
            "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "minReplicas": 2, "maxReplicas": 9,
                "metrics": [
                    {"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 80}}},
                    {"type": "Pods", "pods": {"metric": {"name": "requests"}, "target": {"averageValue": "100"}}}]},
            "status": {"currentReplicas": 3, "desiredReplicas": 4,
                "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 95}}}]}});
        let object = Object::from_value(&object).unwrap();
        let row = autoscaler_row(&object).unwrap();
        let expected = [
            "Deployment web",
            "3, from 2 to 9",
            "on the way to 4",
            "cpu 95 % of 80 %",
            "requests at 100",
        ];
        assert_eq!(lines(&row), expected);
        let object = json!({"metadata": {"name": "night", "namespace": "shop"},
            "spec": {"scaleTargetRef": {"kind": "FederatedHPA", "name": "web"}, "rules": [
                {"name": "down", "schedule": "0 22 * * *", "targetMinReplicas": 1, "targetMaxReplicas": 2},
                {"name": "up", "schedule": "0 6 * * *", "targetReplicas": 5, "suspend": true}]}});
        let object = Object::from_value(&object).unwrap();
        let row = cron_row(&object).unwrap();
        let expected = [
            "FederatedHPA web",
            "down: from 1 to 2",
            "up: 5",
            "down: 0 22 * * *",
            "up: 0 6 * * * (suspended)",
        ];
        assert_eq!(lines(&row), expected);
    }
}
