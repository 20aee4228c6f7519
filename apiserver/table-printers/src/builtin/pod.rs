//! Prints Pods; their status summarizes phase, conditions and container states.

use serde_json::Value;

use super::PrintHandler;
use super::printer_input::{NONE, PrinterInput, condition, list, string};

pub(super) const POD: PrintHandler = PrintHandler {
    columns: &[
        ("Name", "string"),
        ("Ready", "string"),
        ("Status", "string"),
        ("Restarts", "string"),
        ("Age", "string"),
        ("IP", "string"),
        ("Node", "string"),
        ("Nominated Node", "string"),
        ("Readiness Gates", "string"),
    ],
    wide_columns: &["IP", "Node", "Nominated Node", "Readiness Gates"],
    cells: pod_cells,
};

fn pod_cells(row: &PrinterInput<'_>) -> Vec<Value> {
    let summary = PodContainerSummary::from_pod(row);
    let ip = match row.text("/status/podIPs/0/ip") {
        "" => row.text_or("/status/podIP", NONE),
        ip => ip,
    };
    vec![
        row.name(),
        format!("{}/{}", summary.ready, summary.total).into(),
        pod_status(row, summary.reason).into(),
        format_restarts(row, summary.restarts, summary.restarted_at).into(),
        row.age(),
        ip.into(),
        row.text_or("/spec/nodeName", NONE).into(),
        row.text_or("/status/nominatedNodeName", NONE).into(),
        readiness_gates(row).into(),
    ]
}

fn pod_status(row: &PrinterInput<'_>, reason: String) -> String {
    let terminal = matches!(row.text("/status/phase"), "Failed" | "Succeeded");
    if !row.is_deleting() {
        reason
    } else if row.text("/status/reason") == "NodeLost" {
        "Unknown".into()
    } else if terminal {
        reason
    } else {
        "Terminating".into()
    }
}

fn format_restarts(row: &PrinterInput<'_>, count: i64, last: &str) -> String {
    if count == 0 || last.is_empty() {
        count.to_string()
    } else {
        format!("{count} ({} ago)", row.since(last))
    }
}

fn readiness_gates(row: &PrinterInput<'_>) -> String {
    let gates = row.list("/spec/readinessGates");
    if gates.is_empty() {
        return NONE.into();
    }
    let conditions = row.value("/status/conditions");
    let open = gates
        .iter()
        .filter(|gate| condition(conditions, string(&gate["conditionType"])) == Some("True"))
        .count();
    format!("{open}/{}", gates.len())
}

/// The summary of all container statuses.
#[derive(Default)]
struct PodContainerSummary<'a> {
    total: usize,
    ready: usize,
    restarts: i64,
    restarted_at: &'a str,
    reason: String,
}

impl<'a> PodContainerSummary<'a> {
    fn from_pod(row: &PrinterInput<'a>) -> Self {
        let sidecars = row
            .list("/spec/initContainers")
            .iter()
            .filter(|container| container["restartPolicy"] == "Always")
            .count();
        let mut summary = Self {
            total: row.count("/spec/containers") + sidecars,
            reason: pod_reason(row),
            ..Self::default()
        };
        let (initializing, of_sidecars) = summary.add_init_containers(row);
        if !initializing || row.condition("Initialized") {
            (summary.restarts, summary.restarted_at) = of_sidecars;
            summary.add_containers(row);
        }
        summary
    }

    fn add_restarts(&mut self, status: &'a Value) {
        add_restarts(&mut self.restarts, &mut self.restarted_at, status);
    }

    /// Adds init containers up to the first that is not finished. Returns whether there
    /// is one, and the count and the last time of the restarts of sidecars.
    fn add_init_containers(&mut self, row: &PrinterInput<'a>) -> (bool, (i64, &'a str)) {
        let containers = row.list("/spec/initContainers");
        let (mut count, mut last) = (0, "");
        for (index, status) in row.list("/status/initContainerStatuses").iter().enumerate() {
            let sidecar = containers
                .iter()
                .any(|c| c["name"] == status["name"] && c["restartPolicy"] == "Always");
            self.add_restarts(status);
            if sidecar {
                add_restarts(&mut count, &mut last, status);
            }
            let (terminated, waiting) = container_states(status);
            let exited = terminated.map(|t| t["exitCode"].as_i64().unwrap_or_default());
            if exited == Some(0) {
                continue;
            }
            if sidecar && status["started"] == true {
                self.ready += usize::from(status["ready"] == true);
                continue;
            }
            let wait = waiting.map_or("", |waiting| string(&waiting["reason"]));
            self.reason = match terminated {
                Some(terminated) => format!("Init:{}", exit_reason(terminated)),
                None if !wait.is_empty() && wait != "PodInitializing" => format!("Init:{wait}"),
                None => format!("Init:{index}/{}", containers.len()),
            };
            return (true, (count, last));
        }
        (false, (count, last))
    }

    fn add_containers(&mut self, row: &PrinterInput<'a>) {
        let mut running = false;
        for status in row.list("/status/containerStatuses").iter().rev() {
            self.add_restarts(status);
            let (terminated, waiting) = container_states(status);
            let wait = waiting.map_or("", |waiting| string(&waiting["reason"]));
            if !wait.is_empty() {
                wait.clone_into(&mut self.reason);
            } else if let Some(terminated) = terminated {
                self.reason = exit_reason(terminated);
            } else if status["ready"] == true && status["state"]["running"].is_object() {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" && running {
            self.reason = if row.condition("Ready") {
                "Running".into()
            } else {
                "NotReady".into()
            };
        }
    }
}

fn pod_reason(row: &PrinterInput<'_>) -> String {
    let gated = list(row.value("/status/conditions"))
        .iter()
        .any(|c| c["type"] == "PodScheduled" && c["reason"] == "SchedulingGated");
    if gated {
        return "SchedulingGated".into();
    }
    match row.text("/status/reason") {
        "" => row.text("/status/phase").to_owned(),
        reason => reason.to_owned(),
    }
}

fn container_states(status: &Value) -> (Option<&Value>, Option<&Value>) {
    let state = |name| status["state"].get(name).filter(|state| state.is_object());
    (state("terminated"), state("waiting"))
}

fn exit_reason(terminated: &Value) -> String {
    let number = |field: &str| terminated[field].as_i64().unwrap_or_default();
    match (string(&terminated["reason"]), number("signal")) {
        ("", 0) => format!("ExitCode:{}", number("exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn add_restarts<'a>(count: &mut i64, last: &mut &'a str, status: &'a Value) {
    *count += status["restartCount"].as_i64().unwrap_or_default();
    let finished_at = string(&status["lastState"]["terminated"]["finishedAt"]);
    // Timestamps come from one encoder, so they compare as text.
    if finished_at > *last {
        *last = finished_at;
    }
}
