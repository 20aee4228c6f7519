//! Prints workloads, disruption budgets and autoscalers.

use serde_json::Value;

use super::PrintHandler;
use super::printer_input::{
    NONE, PrinterInput, UNSET, format_labels, lower_kind, or_default, scalar, string,
};

const POD_SPEC: &str = "/spec/template/spec";

pub(super) const POD_TEMPLATE: PrintHandler = PrintHandler {
    columns: &[
        ("Name", "string"),
        ("Containers", "string"),
        ("Images", "string"),
        ("Pod Labels", "string"),
    ],
    wide_columns: &[],
    cells: |row| {
        let (names, images) = row.containers("/template/spec");
        let labels = format_labels(row.value("/template/metadata/labels"));
        vec![row.name(), names, images, labels.into()]
    },
};

const REPLICA_COLUMNS: &[(&str, &str)] = &[
    ("Name", "string"),
    ("Desired", "integer"),
    ("Current", "integer"),
    ("Ready", "integer"),
    ("Age", "string"),
    ("Containers", "string"),
    ("Images", "string"),
    ("Selector", "string"),
];

const WIDE_COLUMNS: &[&str] = &["Containers", "Images", "Selector"];

pub(super) const REPLICATION_CONTROLLER: PrintHandler = PrintHandler {
    columns: REPLICA_COLUMNS,
    wide_columns: WIDE_COLUMNS,
    cells: |row| replica_cells(row, format_labels(row.value("/spec/selector"))),
};

pub(super) const REPLICA_SET: PrintHandler = PrintHandler {
    columns: REPLICA_COLUMNS,
    wide_columns: WIDE_COLUMNS,
    cells: |row| replica_cells(row, or_default(row.selector("/spec/selector"), NONE)),
};

fn replica_cells(row: &PrinterInput<'_>, selector: String) -> Vec<Value> {
    let (names, images) = row.containers(POD_SPEC);
    vec![
        row.name(),
        row.number("/spec/replicas").into(),
        row.number("/status/replicas").into(),
        row.number("/status/readyReplicas").into(),
        row.age(),
        names,
        images,
        selector.into(),
    ]
}

pub(super) const DEPLOYMENT: PrintHandler = PrintHandler {
    columns: &[
        ("Name", "string"),
        ("Ready", "string"),
        ("Up-to-date", "string"),
        ("Available", "string"),
        ("Age", "string"),
        ("Containers", "string"),
        ("Images", "string"),
        ("Selector", "string"),
    ],
    wide_columns: WIDE_COLUMNS,
    cells: |row| {
        let (names, images) = row.containers(POD_SPEC);
        vec![
            row.name(),
            ready(row).into(),
            row.number("/status/updatedReplicas").into(),
            row.number("/status/availableReplicas").into(),
            row.age(),
            names,
            images,
            row.selector("/spec/selector").into(),
        ]
    },
};

pub(super) const STATEFUL_SET: PrintHandler = PrintHandler {
    columns: &[
        ("Name", "string"),
        ("Ready", "string"),
        ("Age", "string"),
        ("Containers", "string"),
        ("Images", "string"),
    ],
    wide_columns: WIDE_COLUMNS,
    cells: |row| {
        let (names, images) = row.containers(POD_SPEC);
        vec![row.name(), ready(row).into(), row.age(), names, images]
    },
};

fn ready(row: &PrinterInput<'_>) -> String {
    let (ready, desired) = ("/status/readyReplicas", "/spec/replicas");
    format!("{}/{}", row.number(ready), row.number(desired))
}

pub(super) const DAEMON_SET: PrintHandler = PrintHandler {
    columns: &[
        ("Name", "string"),
        ("Desired", "integer"),
        ("Current", "integer"),
        ("Ready", "integer"),
        ("Up-to-date", "integer"),
        ("Available", "integer"),
        ("Node Selector", "string"),
        ("Age", "string"),
        ("Containers", "string"),
        ("Images", "string"),
        ("Selector", "string"),
    ],
    wide_columns: WIDE_COLUMNS,
    cells: |row| {
        let (names, images) = row.containers(POD_SPEC);
        vec![
            row.name(),
            row.number("/status/desiredNumberScheduled").into(),
            row.number("/status/currentNumberScheduled").into(),
            row.number("/status/numberReady").into(),
            row.number("/status/updatedNumberScheduled").into(),
            row.number("/status/numberAvailable").into(),
            format_labels(row.value("/spec/template/spec/nodeSelector")).into(),
            row.age(),
            names,
            images,
            or_default(row.selector("/spec/selector"), NONE).into(),
        ]
    },
};

pub(super) const CONTROLLER_REVISION: PrintHandler = PrintHandler {
    columns: &[
        ("Name", "string"),
        ("Controller", "string"),
        ("Revision", "integer"),
        ("Age", "string"),
    ],
    wide_columns: &[],
    cells: |row| {
        let owner = row
            .list("/metadata/ownerReferences")
            .iter()
            .find(|owner| owner["controller"] == true)
            .map(|owner| {
                let kind = lower_kind(string(&owner["apiVersion"]), string(&owner["kind"]));
                format!("{kind}/{}", string(&owner["name"]))
            });
        vec![
            row.name(),
            or_default(owner.unwrap_or_default(), NONE).into(),
            row.number("/revision").into(),
            row.age(),
        ]
    },
};

pub(super) const POD_DISRUPTION_BUDGET: PrintHandler = PrintHandler {
    columns: &[
        ("Name", "string"),
        ("Min Available", "string"),
        ("Max Unavailable", "string"),
        ("Allowed Disruptions", "integer"),
        ("Age", "string"),
    ],
    wide_columns: &[],
    cells: |row| {
        vec![
            row.name(),
            or_default(scalar(row.value("/spec/minAvailable")), "N/A").into(),
            or_default(scalar(row.value("/spec/maxUnavailable")), "N/A").into(),
            row.number("/status/disruptionsAllowed").into(),
            row.age(),
        ]
    },
};

pub(super) const HORIZONTAL_POD_AUTOSCALER: PrintHandler = PrintHandler {
    columns: &[
        ("Name", "string"),
        ("Reference", "string"),
        ("Targets", "string"),
        ("MinPods", "string"),
        ("MaxPods", "string"),
        ("Replicas", "string"),
        ("Age", "string"),
    ],
    wide_columns: &[],
    cells: |row| {
        let target = |field| row.text(&format!("/spec/scaleTargetRef/{field}"));
        vec![
            row.name(),
            format!("{}/{}", target("kind"), target("name")).into(),
            format_metrics(row).into(),
            or_default(scalar(row.value("/spec/minReplicas")), UNSET).into(),
            row.number("/spec/maxReplicas").into(),
            row.number("/status/currentReplicas").into(),
            row.age(),
        ]
    },
};

fn format_metrics(row: &PrinterInput<'_>) -> String {
    const SHOWN: usize = 2;
    // autoscaling/v1 has a single metric, in separate fields.
    if let Some(target) = row.value("/spec/targetCPUUtilizationPercentage").as_i64() {
        let current = format_percent(row.value("/status/currentCPUUtilizationPercentage"));
        return format!("cpu: {current}/{target}%");
    }
    let metrics = row.list("/spec/metrics");
    let current = row.list("/status/currentMetrics");
    let formatted: Vec<_> = metrics
        .iter()
        .enumerate()
        .take(SHOWN)
        .map(|(index, metric)| format_metric(metric, current.get(index).unwrap_or(&Value::Null)))
        .collect();
    match metrics.len().saturating_sub(SHOWN) {
        _ if formatted.is_empty() => NONE.into(),
        0 => formatted.join(", "),
        more => format!("{} + {more} more...", formatted.join(", ")),
    }
}

/// One metric: its current value and its target.
fn format_metric(metric: &Value, status: &Value) -> String {
    let field = match string(&metric["type"]) {
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        "Pods" => "pods",
        "Object" => "object",
        "External" => "external",
        _ => return "<unknown type>".into(),
    };
    let (target, current) = (&metric[field]["target"], &status[field]["current"]);
    let prefix = match field {
        "resource" | "containerResource" => format!("{}: ", string(&metric[field]["name"])),
        _ => String::new(),
    };
    let or_unknown = |value: &Value| or_default(scalar(value), "<unknown>");
    if prefix.is_empty() {
        let average = target["averageValue"].is_string();
        let kind = if average { "averageValue" } else { "value" };
        let note = if average && field != "pods" {
            " (avg)"
        } else {
            ""
        };
        return format!(
            "{}/{}{note}",
            or_unknown(&current[kind]),
            scalar(&target[kind])
        );
    }
    if target["averageValue"].is_string() {
        let current = or_unknown(&current["averageValue"]);
        return format!("{prefix}{current}/{}", scalar(&target["averageValue"]));
    }
    let utilization = match target["averageUtilization"].as_i64() {
        Some(percentage) => format!("{percentage}%"),
        None => "<auto>".into(),
    };
    format!(
        "{prefix}{}/{utilization}",
        format_percent(&current["averageUtilization"])
    )
}

fn format_percent(value: &Value) -> String {
    value
        .as_i64()
        .map_or_else(|| "<unknown>".to_owned(), |value| format!("{value}%"))
}
