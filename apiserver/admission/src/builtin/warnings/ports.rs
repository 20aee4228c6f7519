//! Warns of ports that containers of one pod define twice.

use std::collections::HashMap;

use serde_json::Value;

use crate::unstructured::{int, items, non_empty_or, text};

struct DefinedPort<'a> {
    field: String,
    host_ip: &'a str,
    host_port: i64,
}

/// Warns of the ports of all containers, given with their paths.
pub(super) fn ports(containers: &[(String, &Value)], out: &mut Vec<String>) {
    let mut defined: HashMap<(i64, &str), Vec<DefinedPort<'_>>> = HashMap::new();
    for (field, port) in all_ports(containers) {
        let number = int(port, "/containerPort").unwrap_or(0);
        let protocol = non_empty_or(text(port, "/protocol"), "TCP");
        let port_definition = DefinedPort {
            field,
            host_ip: text(port, "/hostIP"),
            host_port: int(port, "/hostPort").unwrap_or(0),
        };
        if !port_definition.host_ip.is_empty() && port_definition.host_port == 0 {
            out.push(format!(
                "{}: hostIP set without hostPort: {{Name:{} HostPort:0 ContainerPort:{number} \
                 Protocol:{protocol} HostIP:{}}}",
                port_definition.field,
                text(port, "/name"),
                port_definition.host_ip
            ));
        }
        let earlier_ports = defined.entry((number, protocol)).or_default();
        for other in &*earlier_ports {
            if let Some(conflict_kind) = conflict(&port_definition, other) {
                let (field, other) = (&port_definition.field, &other.field);
                out.push(format!(
                    "{field}: {conflict_kind} port definition with {other}"
                ));
            }
        }
        earlier_ports.push(port_definition);
    }
}

/// Warns of a name that ports of several containers have.
pub(super) fn port_names(containers: &[(String, &Value)], out: &mut Vec<String>) {
    let mut fields_by_name: HashMap<&str, String> = HashMap::new();
    for (field, port) in all_ports(containers) {
        let name = text(port, "/name");
        if name.is_empty() {
            continue;
        }
        match fields_by_name.get(name) {
            Some(first) => out.push(format!(
                "{field}: duplicate port name {name:?} with {first}, services and probes that \
                 select ports by name will use {first}"
            )),
            None => {
                fields_by_name.insert(name, field);
            }
        }
    }
}

fn all_ports<'a>(
    containers: &'a [(String, &'a Value)],
) -> impl Iterator<Item = (String, &'a Value)> {
    containers.iter().flat_map(|(field, container)| {
        let ports = items(container, "/ports").iter().enumerate();
        ports.map(move |(i, port)| (format!("{field}.ports[{i}]"), port))
    })
}

fn conflict(port: &DefinedPort<'_>, other: &DefinedPort<'_>) -> Option<&'static str> {
    let same_host_port = port.host_port == other.host_port;
    if same_host_port && port.host_ip == other.host_ip {
        return Some("duplicate");
    }
    if port.host_port == 0 || other.host_port == 0 {
        return Some("overlapping");
    }
    let one_is_open = port.host_ip.is_empty() != other.host_ip.is_empty();
    (same_host_port && one_is_open).then_some("dangerously ambiguous")
}
