//! Prints Services, Endpoints, EndpointSlices, Ingresses and NetworkPolicies.

use serde_json::Value;

use super::PrintHandler;
use super::printer_input::{
    NONE, PrinterInput, UNSET, first_three, format_labels, join, list, or_default, scalar, string,
};

pub(super) const SERVICE: PrintHandler = PrintHandler {
    columns: &[
        ("Name", "string"),
        ("Type", "string"),
        ("Cluster-IP", "string"),
        ("External-IP", "string"),
        ("Port(s)", "string"),
        ("Age", "string"),
        ("Selector", "string"),
    ],
    wide_columns: &["Selector"],
    cells: |row| {
        vec![
            row.name(),
            row.text("/spec/type").into(),
            row.text_or("/spec/clusterIPs/0", NONE).into(),
            external_ip(row).into(),
            service_ports(row).into(),
            row.age(),
            format_labels(row.value("/spec/selector")).into(),
        ]
    },
};

fn external_ip(row: &PrinterInput<'_>) -> String {
    let external_ips = join(row.list("/spec/externalIPs").iter().map(string), ",");
    match row.text("/spec/type") {
        "ClusterIP" | "NodePort" => or_default(external_ips, NONE),
        "LoadBalancer" => {
            let assigned = load_balancer_addresses(row);
            match (assigned.as_str(), external_ips.as_str()) {
                ("", "") => "<pending>".into(),
                ("", _) => external_ips,
                (_, "") => assigned,
                _ => format!("{assigned},{external_ips}"),
            }
        }
        "ExternalName" => row.text("/spec/externalName").to_owned(),
        _ => "<unknown>".into(),
    }
}

/// The IP addresses or host names of a load balancer.
fn load_balancer_addresses(row: &PrinterInput<'_>) -> String {
    let points = row.list("/status/loadBalancer/ingress").iter();
    let names = points.map(|point| match string(&point["ip"]) {
        "" => string(&point["hostname"]),
        ip => ip,
    });
    join(names.filter(|name| !name.is_empty()), ",")
}

fn service_ports(row: &PrinterInput<'_>) -> String {
    let ports: Vec<_> = row
        .list("/spec/ports")
        .iter()
        .map(|port| {
            let (number, protocol) = (scalar(&port["port"]), string(&port["protocol"]));
            match port["nodePort"].as_i64().unwrap_or_default() {
                0 => format!("{number}/{protocol}"),
                node => format!("{number}:{node}/{protocol}"),
            }
        })
        .collect();
    or_default(ports.join(","), NONE)
}

pub(super) const ENDPOINTS: PrintHandler = PrintHandler {
    columns: &[
        ("Name", "string"),
        ("Endpoints", "string"),
        ("Age", "string"),
    ],
    wide_columns: &[],
    cells: |row| {
        let mut endpoints = Vec::new();
        for subset in row.list("/subsets") {
            let addresses = list(&subset["addresses"]);
            let ports = list(&subset["ports"]);
            if ports.is_empty() {
                endpoints.extend(addresses.iter().map(|a| string(&a["ip"]).to_owned()));
            }
            for port in ports {
                let port = scalar(&port["port"]);
                endpoints.extend(addresses.iter().map(|a| host_port(string(&a["ip"]), &port)));
            }
        }
        vec![row.name(), first_three(&endpoints, NONE).into(), row.age()]
    },
};

fn host_port(host: &str, port: &str) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

pub(super) const ENDPOINT_SLICE: PrintHandler = PrintHandler {
    columns: &[
        ("Name", "string"),
        ("AddressType", "string"),
        ("Ports", "string"),
        ("Endpoints", "string"),
        ("Age", "string"),
    ],
    wide_columns: &[],
    cells: |row| {
        let ports: Vec<_> = row
            .list("/ports")
            .iter()
            .map(
                |port| match (scalar(&port["port"]), string(&port["name"])) {
                    (number, "") => or_default(number, "*"),
                    (number, name) => or_default(number, name),
                },
            )
            .collect();
        let addresses: Vec<_> = row
            .list("/endpoints")
            .iter()
            .flat_map(|endpoint| list(&endpoint["addresses"]))
            .map(scalar)
            .collect();
        vec![
            row.name(),
            row.text("/addressType").into(),
            first_three(&ports, UNSET).into(),
            first_three(&addresses, UNSET).into(),
            row.age(),
        ]
    },
};

pub(super) const INGRESS: PrintHandler = PrintHandler {
    columns: &[
        ("Name", "string"),
        ("Class", "string"),
        ("Hosts", "string"),
        ("Address", "string"),
        ("Ports", "string"),
        ("Age", "string"),
    ],
    wide_columns: &[],
    cells: |row| {
        let hosts: Vec<_> = row
            .list("/spec/rules")
            .iter()
            .map(|rule| scalar(&rule["host"]))
            .filter(|host| !host.is_empty())
            .collect();
        let ports = if row.count("/spec/tls") > 0 {
            "80, 443"
        } else {
            "80"
        };
        vec![
            row.name(),
            row.text_or("/spec/ingressClassName", NONE).into(),
            first_three(&hosts, "*").into(),
            load_balancer_addresses(row).into(),
            ports.into(),
            row.age(),
        ]
    },
};

pub(super) const INGRESS_CLASS: PrintHandler = PrintHandler {
    columns: &[
        ("Name", "string"),
        ("Controller", "string"),
        ("Parameters", "string"),
        ("Age", "string"),
    ],
    wide_columns: &[],
    cells: |row| {
        let field = |name| row.text(&format!("/spec/parameters/{name}"));
        let parameters = match (field("kind"), field("apiGroup")) {
            ("", _) => NONE.to_owned(),
            (kind, "") => format!("{kind}/{}", field("name")),
            (kind, group) => format!("{kind}.{group}/{}", field("name")),
        };
        let controller = Value::from(row.text("/spec/controller"));
        vec![row.name(), controller, parameters.into(), row.age()]
    },
};

pub(super) const NETWORK_POLICY: PrintHandler = PrintHandler {
    columns: &[
        ("Name", "string"),
        ("Pod-Selector", "string"),
        ("Age", "string"),
    ],
    wide_columns: &[],
    cells: |row| {
        let selector = or_default(row.selector("/spec/podSelector"), NONE);
        vec![row.name(), selector.into(), row.age()]
    },
};
