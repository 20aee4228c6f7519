//! Prints NodeMetrics and PodMetrics as metrics-server does (`pkg/api/table.go`): the usage of
//! CPU and memory, summed over the containers of a pod, and the window of the measurement.

use machinery::Quantity;
use openapi::KindInfo;
use serde_json::Value;

use super::{TableColumnDefinition, name_cell};

const RESOURCES: [&str; 2] = ["cpu", "memory"];

fn is_resource_metrics(kind: &KindInfo) -> bool {
    kind.gvk.group == "metrics.k8s.io"
}

pub(super) fn columns(kind: &KindInfo) -> Option<Vec<TableColumnDefinition>> {
    is_resource_metrics(kind).then(|| {
        let with_format = |name: &str, format: &str| TableColumnDefinition {
            format: format.to_owned(),
            ..TableColumnDefinition::new(name, "string")
        };
        let mut columns = vec![
            TableColumnDefinition::new("Name", "string").with_description("Name of the resource"),
        ];
        columns.extend(RESOURCES.map(|resource| with_format(resource, "quantity")));
        columns.push(with_format("Window", "duration"));
        columns
    })
}

pub(super) fn cells(kind: &KindInfo, object: &Value) -> Option<Vec<Value>> {
    if !is_resource_metrics(kind) {
        return None;
    }
    let containers = object["containers"].as_array().into_iter().flatten();
    let usages: Vec<&Value> = containers
        .chain([object])
        .map(|container| &container["usage"])
        .collect();
    let total = |resource: &str| -> Quantity {
        let amounts = usages.iter().filter_map(|usage| usage.get(resource));
        amounts
            .filter_map(|amount| Quantity::from_value(amount).ok())
            .sum()
    };
    let mut cells = vec![name_cell(object)];
    cells.extend(RESOURCES.map(|resource| Value::from(total(resource).to_string())));
    cells.push(object["window"].clone());
    Some(cells)
}

#[cfg(test)]
mod tests {
    use machinery::Gvk;
    use serde_json::json;

    use super::*;
    use openapi::catalog;

    #[test]
    fn the_usage_of_containers_is_summed() {
        let kind = |name| Gvk::from_static("metrics.k8s.io", "v1beta1", name);
        let usage = |cpu, memory| json!({"cpu": cpu, "memory": memory});
        let pod = json!({"metadata": {"name": "web"}, "window": "15s", "containers": [
            {"name": "a", "usage": usage("150m", "1Mi")}, {"name": "b", "usage": usage("1", "2Mi")}]});
        let node = json!({"metadata": {"name": "n1"}, "window": "20s", "usage": usage("2", "3Gi")});
        for (name, object, expected) in [
            ("PodMetrics", pod, json!(["web", "1150m", "3Mi", "15s"])),
            ("NodeMetrics", node, json!(["n1", "2", "3Gi", "20s"])),
        ] {
            let kind = catalog().kind(&kind(name)).unwrap();
            assert_eq!(Value::from(cells(kind, &object).unwrap()), expected);
            let titles: Vec<_> = columns(kind).unwrap().into_iter().map(|c| c.name).collect();
            assert_eq!(titles, ["Name", "cpu", "memory", "Window"]);
        }
    }
}
