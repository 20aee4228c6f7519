//! Prints nodes, namespaces, events, and the kinds for access, limits and leases.

use serde_json::Value;

use super::Table;
use super::cells::{NONE, Row, condition, join, or, scalar, string};

pub(super) const NAMESPACE: Table = Table {
    columns: &[("Name", "string"), ("Status", "string"), ("Age", "string")],
    wide: &[],
    cells: |row| {
        let phase = Value::from(row.text("/status/phase"));
        vec![row.name(), phase, row.age()]
    },
};

pub(super) const NODE: Table = Table {
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
    wide: &[
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
            roles(row).into(),
            row.age(),
            row.text("/status/nodeInfo/kubeletVersion").into(),
            address(row, "InternalIP").into(),
            address(row, "ExternalIP").into(),
            info("osImage").into(),
            info("kernelVersion").into(),
            info("containerRuntimeVersion").into(),
        ]
    },
};

fn node_status(row: &Row<'_>) -> String {
    let ready = match condition(row.at("/status/conditions"), "Ready") {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    if *row.at("/spec/unschedulable") == true {
        format!("{ready},SchedulingDisabled")
    } else {
        ready.to_owned()
    }
}

fn roles(row: &Row<'_>) -> String {
    let labels = row.at("/metadata/labels").as_object();
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
    or(roles.join(","), NONE)
}

fn address<'a>(row: &Row<'a>, kind: &str) -> &'a str {
    row.list("/status/addresses")
        .iter()
        .find(|address| address["type"] == kind)
        .map_or(NONE, |address| string(&address["address"]))
}

pub(super) const EVENT: Table = Table {
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
    wide: &["Subobject", "Source", "First Seen", "Count", "Name"],
    cells: event,
};

/// Prints an event of either group; where their fields differ, only one of them is set.
fn event(row: &Row<'_>) -> Vec<Value> {
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
    if row.at("/series").is_object() {
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
        source(row).into(),
        either("/message", "/note").trim().into(),
        row.since(first).into(),
        count.into(),
        row.name(),
    ]
}

fn source(row: &Row<'_>) -> String {
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

pub(super) const SERVICE_ACCOUNT: Table = Table {
    columns: &[("Name", "string"), ("Secrets", "string"), ("Age", "string")],
    wide: &[],
    cells: |row| vec![row.name(), row.count("/secrets").into(), row.age()],
};

pub(super) const QUOTA: Table = Table {
    columns: &[
        ("Name", "string"),
        ("Request", "string"),
        ("Limit", "string"),
        ("Age", "string"),
    ],
    wide: &[],
    cells: |row| {
        let (mut requests, mut limits) = (Vec::new(), Vec::new());
        for (name, hard) in row.at("/status/hard").as_object().into_iter().flatten() {
            let used = or(scalar(&row.at("/status/used")[name.as_str()]), "0");
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

pub(super) const ROLE_BINDING: Table = Table {
    columns: &[
        ("Name", "string"),
        ("Role", "string"),
        ("Age", "string"),
        ("Users", "string"),
        ("Groups", "string"),
        ("ServiceAccounts", "string"),
    ],
    wide: &["Users", "Groups", "ServiceAccounts"],
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
pub(super) const CREATED: Table = Table {
    columns: &[("Name", "string"), ("Created At", "date")],
    wide: &[],
    cells: |row| {
        let created = Value::from(row.text("/metadata/creationTimestamp"));
        vec![row.name(), created]
    },
};

pub(super) const LEASE: Table = Table {
    columns: &[("Name", "string"), ("Holder", "string"), ("Age", "string")],
    wide: &[],
    cells: |row| {
        let holder = Value::from(row.text("/spec/holderIdentity"));
        vec![row.name(), holder, row.age()]
    },
};

pub(super) const PRIORITY_CLASS: Table = Table {
    columns: &[
        ("Name", "string"),
        ("Value", "integer"),
        ("Global-Default", "boolean"),
        ("Age", "string"),
        ("PreemptionPolicy", "string"),
    ],
    wide: &[],
    cells: |row| {
        vec![
            row.name(),
            row.number("/value").into(),
            (*row.at("/globalDefault") == true).into(),
            row.age(),
            row.text("/preemptionPolicy").into(),
        ]
    },
};
