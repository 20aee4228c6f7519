//! Prints nodes, namespaces, events, and the kinds for access, limits and leases.

use jiff::SignedDuration;
use serde_json::Value;

use super::PrintHandler;
use super::printer_input::{NONE, PrinterInput, condition, join, or_default, scalar, string};
use crate::human_duration;

pub(super) const NAMESPACE: PrintHandler = PrintHandler {
    columns: &[("Name", "string"), ("Status", "string"), ("Age", "string")],
    wide_columns: &[],
    cells: |row| {
        let phase = Value::from(row.text("/status/phase"));
        vec![row.name(), phase, row.age()]
    },
};

pub(super) const NODE: PrintHandler = PrintHandler {
    columns: &[
        ("Name", "string"),
        ("Status", "string"),
        ("Roles", "string"),
        ("Age", "string"),
        ("Version", "string"),
        ("Internal-IP", "string"),
        ("External-IP", "string"),
        ("OS-Image", "string"),
        ("Kernel-Version", "string"),
        ("Container-Runtime", "string"),
    ],
    wide_columns: &[
        "Internal-IP",
        "External-IP",
        "OS-Image",
        "Kernel-Version",
        "Container-Runtime",
    ],
    cells: |row| {
        let info = |field| row.text_or(&format!("/status/nodeInfo/{field}"), "<unknown>");
        vec![
            row.name(),
            node_status(row).into(),
            node_roles(row).into(),
            row.age(),
            row.text("/status/nodeInfo/kubeletVersion").into(),
            node_address(row, "InternalIP").into(),
            node_address(row, "ExternalIP").into(),
            info("osImage").into(),
            info("kernelVersion").into(),
            info("containerRuntimeVersion").into(),
        ]
    },
};

fn node_status(row: &PrinterInput<'_>) -> String {
    let ready = match condition(row.value("/status/conditions"), "Ready") {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    if *row.value("/spec/unschedulable") == true {
        format!("{ready},SchedulingDisabled")
    } else {
        ready.to_owned()
    }
}

fn node_roles(row: &PrinterInput<'_>) -> String {
    let labels = row.value("/metadata/labels").as_object();
    let mut roles: Vec<_> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.as_str() {
            "kubernetes.io/role" => value.as_str(),
            _ => key.strip_prefix("node-role.kubernetes.io/"),
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    or_default(roles.join(","), NONE)
}

fn node_address<'a>(row: &PrinterInput<'a>, kind: &str) -> &'a str {
    row.list("/status/addresses")
        .iter()
        .find(|address| address["type"] == kind)
        .map_or(NONE, |address| string(&address["address"]))
}

pub(super) const EVENT: PrintHandler = PrintHandler {
    columns: &[
        ("Last Seen", "string"),
        ("Type", "string"),
        ("Reason", "string"),
        ("Object", "string"),
        ("Subobject", "string"),
        ("Source", "string"),
        ("Message", "string"),
        ("First Seen", "string"),
        ("Count", "string"),
        ("Name", "string"),
    ],
    wide_columns: &["Subobject", "Source", "First Seen", "Count", "Name"],
    cells: event_cells,
};

/// Prints an event of either group; where their fields differ, only one of them is set.
fn event_cells(row: &PrinterInput<'_>) -> Vec<Value> {
    let either = |core: &str, new: &str| match row.text(core) {
        "" => row.text(new),
        text => text,
    };
    let first = match either("/firstTimestamp", "/deprecatedFirstTimestamp") {
        "" => row.text("/eventTime"),
        first => first,
    };
    let mut last = match either("/lastTimestamp", "/deprecatedLastTimestamp") {
        "" => first,
        last => last,
    };
    let mut count = row.number("/count").max(row.number("/deprecatedCount"));
    if row.value("/series").is_object() {
        last = row.text("/series/lastObservedTime");
        count = row.number("/series/count");
    } else if count == 0 {
        count = 1;
    }
    let about = |field: &str| {
        either(
            &format!("/involvedObject/{field}"),
            &format!("/regarding/{field}"),
        )
    };
    let kind = about("kind").to_lowercase();
    let object = match about("name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    vec![
        row.since(last).into(),
        row.text("/type").into(),
        row.text("/reason").into(),
        object.into(),
        about("fieldPath").into(),
        event_source(row).into(),
        either("/message", "/note").trim().into(),
        row.since(first).into(),
        count.into(),
        row.name(),
    ]
}

fn event_source(row: &PrinterInput<'_>) -> String {
    let first = |pointers: [&str; 3]| {
        let texts = pointers.map(|pointer| row.text(pointer));
        texts.into_iter().find(|text| !text.is_empty())
    };
    let component = first([
        "/source/component",
        "/deprecatedSource/component",
        "/reportingComponent",
    ])
    .unwrap_or_else(|| row.text("/reportingController"));
    let instance = first([
        "/source/host",
        "/deprecatedSource/host",
        "/reportingInstance",
    ]);
    match instance {
        Some(instance) => format!("{component}, {instance}"),
        None => component.to_owned(),
    }
}

pub(super) const SERVICE_ACCOUNT: PrintHandler = PrintHandler {
    columns: &[("Name", "string"), ("Secrets", "string"), ("Age", "string")],
    wide_columns: &[],
    cells: |row| vec![row.name(), row.count("/secrets").into(), row.age()],
};

pub(super) const RESOURCE_QUOTA: PrintHandler = PrintHandler {
    columns: &[
        ("Name", "string"),
        ("Request", "string"),
        ("Limit", "string"),
        ("Age", "string"),
    ],
    wide_columns: &[],
    cells: |row| {
        let (mut requests, mut limits) = (Vec::new(), Vec::new());
        for (name, hard) in row.value("/status/hard").as_object().into_iter().flatten() {
            let used = or_default(scalar(&row.value("/status/used")[name.as_str()]), "0");
            let text = format!("{name}: {used}/{}", scalar(hard));
            if name.starts_with("limits") {
                limits.push(text);
            } else {
                requests.push(text);
            }
        }
        vec![
            row.name(),
            requests.join(", ").into(),
            limits.join(", ").into(),
            row.age(),
        ]
    },
};

pub(super) const ROLE_BINDING: PrintHandler = PrintHandler {
    columns: &[
        ("Name", "string"),
        ("Role", "string"),
        ("Age", "string"),
        ("Users", "string"),
        ("Groups", "string"),
        ("ServiceAccounts", "string"),
    ],
    wide_columns: &["Users", "Groups", "ServiceAccounts"],
    cells: |row| {
        let subjects = |kind: &'static str| {
            row.list("/subjects")
                .iter()
                .filter(move |subject| subject["kind"] == kind)
        };
        let names = |kind| join(subjects(kind).map(|s| string(&s["name"])), ", ");
        let accounts: Vec<_> = subjects("ServiceAccount")
            .map(|s| format!("{}/{}", string(&s["namespace"]), string(&s["name"])))
            .collect();
        let role = format!(
            "{}/{}",
            row.text("/roleRef/kind"),
            row.text("/roleRef/name")
        );
        vec![
            row.name(),
            role.into(),
            row.age(),
            names("User").into(),
            names("Group").into(),
            accounts.join(", ").into(),
        ]
    },
};

/// For kinds without a printer in Kubernetes: the creation time instead of the age.
pub(super) const CREATED_AT: PrintHandler = PrintHandler {
    columns: &[("Name", "string"), ("Created At", "date")],
    wide_columns: &[],
    cells: |row| {
        let created = Value::from(row.text("/metadata/creationTimestamp"));
        vec![row.name(), created]
    },
};

pub(super) const WEBHOOK_CONFIGURATION: PrintHandler = PrintHandler {
    columns: &[
        ("Name", "string"),
        ("Webhooks", "integer"),
        ("Age", "string"),
    ],
    wide_columns: &[],
    cells: |row| vec![row.name(), row.count("/webhooks").into(), row.age()],
};

pub(super) const LEASE: PrintHandler = PrintHandler {
    columns: &[("Name", "string"), ("Holder", "string"), ("Age", "string")],
    wide_columns: &[],
    cells: |row| {
        let holder = Value::from(row.text("/spec/holderIdentity"));
        vec![row.name(), holder, row.age()]
    },
};

pub(super) const COMPONENT_STATUS: PrintHandler = PrintHandler {
    columns: &[
        ("Name", "string"),
        ("Status", "string"),
        ("Message", "string"),
        ("Error", "string"),
    ],
    wide_columns: &[],
    cells: |row| {
        let mut conditions = row.list("/conditions").iter();
        let healthy = conditions.find(|condition| condition["type"] == "Healthy");
        let Some(condition) = healthy else {
            return vec![row.name(), "Unknown".into(), "".into(), "".into()];
        };
        let status = match condition["status"] == "True" {
            true => "Healthy",
            false => "Unhealthy",
        };
        let text = |field: &str| Value::from(condition[field].as_str().unwrap_or_default());
        vec![row.name(), status.into(), text("message"), text("error")]
    },
};

pub(super) const PRIORITY_CLASS: PrintHandler = PrintHandler {
    columns: &[
        ("Name", "string"),
        ("Value", "integer"),
        ("Global-Default", "boolean"),
        ("Age", "string"),
        ("PreemptionPolicy", "string"),
    ],
    wide_columns: &[],
    cells: |row| {
        vec![
            row.name(),
            row.number("/value").into(),
            (*row.value("/globalDefault") == true).into(),
            row.age(),
            row.text("/preemptionPolicy").into(),
        ]
    },
};

pub(super) const RUNTIME_CLASS: PrintHandler = PrintHandler {
    columns: &[("Name", "string"), ("Handler", "string"), ("Age", "string")],
    wide_columns: &[],
    cells: |row| {
        let handler = Value::from(row.text("/handler"));
        vec![row.name(), handler, row.age()]
    },
};

pub(super) const CERTIFICATE_SIGNING_REQUEST: PrintHandler = PrintHandler {
    columns: &[
        ("Name", "string"),
        ("Age", "string"),
        ("SignerName", "string"),
        ("Requestor", "string"),
        ("RequestedDuration", "string"),
        ("Condition", "string"),
    ],
    wide_columns: &[],
    cells: |row| {
        let duration = match row.number("/spec/expirationSeconds") {
            0 => NONE.to_owned(),
            seconds => human_duration(SignedDuration::from_secs(seconds)),
        };
        vec![
            row.name(),
            row.age(),
            row.text_or("/spec/signerName", NONE).into(),
            row.text("/spec/username").into(),
            duration.into(),
            csr_condition(row).into(),
        ]
    },
};

/// `Pending`, or the decision with what followed it, such as `Approved,Issued`.
fn csr_condition(row: &PrinterInput<'_>) -> String {
    let conditions = row.value("/status/conditions");
    let has = |kind: &&&str| condition(conditions, kind).is_some();
    let mut words: Vec<&str> = match ["Denied", "Approved"].iter().find(has) {
        Some(decision) => vec![decision],
        None => vec!["Pending"],
    };
    if has(&&"Failed") {
        words.push("Failed");
    }
    if !row.text("/status/certificate").is_empty() {
        words.push("Issued");
    }
    words.join(",")
}
